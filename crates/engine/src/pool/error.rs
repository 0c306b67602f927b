//! What goes wrong in the pool, and how a reader learns that it has to start over.

use duramen_io::DiskError;
use duramen_types::{PAGE_SIZE, PageId};

use crate::error::Error;

/// An operation of the pool failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum PoolError {
    /// The disk refused a read, a write or the growth of a file.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A page on disk is not what was written there: a torn write, decay of the medium, or a write
    /// in the wrong place.
    #[error("{page} in `{file}` at offset {offset} is damaged: {defect}; restore the database from a backup")]
    Corrupt {
        /// The page that was asked for.
        page: PageId,
        /// What is wrong with it.
        defect: String,
        /// What kind of damage that is.
        damage: Damage,
        /// The file it was read from.
        file: String,
        /// Where in the file, in bytes.
        offset: u64,
    },
    /// No frame could be freed: all of them are latched, or dirty and could not be written.
    #[error("all {frames} frames of the buffer pool are in use; give the pool more memory or use fewer threads")]
    Exhausted {
        /// Size of the pool in pages.
        frames: usize,
    },
    /// The pool was configured with too few frames to make progress.
    #[error("a buffer pool of {frames} frames is too small; it needs at least {minimum}")]
    TooSmall {
        /// Frames asked for.
        frames: usize,
        /// Fewest frames allowed.
        minimum: usize,
    },
    /// The system does not give so much memory.
    #[error("the system does not give {} bytes of memory for the buffer pool; lower `pool_bytes`", frames * PAGE_SIZE)]
    NoMemory {
        /// Frames asked for.
        frames: usize,
    },
    /// A write or sync failed earlier, so that nobody knows what is on disk; the pool writes
    /// nothing more.
    #[error("the buffer pool stopped writing: {reason}; reopen the database")]
    Poisoned {
        /// The first failure.
        reason: String,
    },
    /// The log could not be hardened, or a thread not be started.
    #[error("{reason}")]
    Log {
        /// What the log said.
        reason: String,
    },
}

/// Kinds of damage that recovery tells apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Damage {
    /// The page is all zeros: it was never written, or its write was lost.
    Blank,
    /// The page is whole, and has changes that the log does not have. It is the log that is
    /// damaged.
    AheadOfLog,
    /// Anything else.
    Other,
}

impl PoolError {
    /// Whether the disk (or quota) is full: the caller may free space and try again.
    #[cfg(test)]
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Disk(error) if error.is_full())
    }
}

/// Pages that do not hang together; where their checksums are right this is a defect of the engine
/// or of memory.
pub(crate) fn broken(page: PageId, defect: &str) -> PoolError {
    PoolError::Corrupt {
        page,
        defect: defect.to_owned(),
        damage: Damage::Other,
        file: "data".to_owned(),
        offset: page.get().saturating_mul(PAGE_SIZE as u64),
    }
}

/// What an optimistic reader saw may never have existed: it starts over from where it last held
/// something valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Restart;

/// Why an optimistic operation did not finish.
#[derive(Clone, Debug)]
pub(crate) enum Interrupt {
    /// Somebody changed what was read: start over.
    Restart,
    /// Starting over would not help.
    Failed(PoolError),
}

impl From<Restart> for Interrupt {
    fn from(_: Restart) -> Self {
        Self::Restart
    }
}

impl From<PoolError> for Interrupt {
    fn from(error: PoolError) -> Self {
        Self::Failed(error)
    }
}

impl From<PoolError> for Error {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Disk(error) => error.into(),
            PoolError::Corrupt { page, defect, file, offset, .. } => {
                Self::Corrupt { file, offset, page: Some(page), reason: defect }
            }
            PoolError::Exhausted { frames } => Self::PoolExhausted { frames },
            PoolError::TooSmall { frames, minimum } => Self::InvalidOption {
                option: "pool_bytes",
                reason: format!("{frames} pages are too few; at least {minimum} are needed"),
            },
            PoolError::NoMemory { .. } => Self::Io { reason: error.to_string() },
            PoolError::Poisoned { reason } | PoolError::Log { reason } => Self::Poisoned { reason },
        }
    }
}
