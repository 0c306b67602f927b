//! The errors of the pool, and the signals that make an optimistic reader start over.

use duramen_io::DiskError;
use duramen_types::{PAGE_SIZE, PageId};

use crate::error::Error;

/// An operation of the pool failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum PoolError {
    /// The disk refused a read, a write or the growth of a file.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A page on disk is not what the pool wrote there: the write was torn, the medium decayed, or
    /// another write went to the wrong address.
    #[error("{page} in `{file}` at offset {offset} is damaged: {defect}; restore the database from a backup")]
    Corrupt {
        /// The requested page.
        page: PageId,
        /// What is wrong with it.
        defect: String,
        /// The kind of the damage.
        damage: Damage,
        /// The file that the page was read from.
        file: String,
        /// The page's offset in the file, in bytes.
        offset: u64,
    },
    /// No frame could be freed: every frame is latched, or is dirty and could not be written.
    #[error("all {frames} frames of the buffer pool are in use; give the pool more memory or use fewer threads")]
    Exhausted {
        /// Size of the pool in pages.
        frames: usize,
    },
    /// The pool was configured with too few frames to make progress.
    #[error("a buffer pool of {frames} frames is too small; it needs at least {minimum}")]
    TooSmall {
        /// The requested number of frames.
        frames: usize,
        /// The smallest number of frames allowed.
        minimum: usize,
    },
    /// Every slot of a PCM region is needed by transactions under way.
    #[error("the PCM `{location}` has {slots} slots, and transactions under way need all; make it larger")]
    PcmFull {
        /// The region's name.
        location: String,
        /// Number of its slots.
        slots: u32,
    },
    /// Every page of a heap in persistent memory is in use.
    #[error("the heap `{location}` has {pages} pages, all in use; open it with a larger `bytes` (`--heap-mb`)")]
    HeapFull {
        /// The heap's name.
        location: String,
        /// The number of its pages.
        pages: u64,
    },
    /// The system cannot provide that much memory.
    #[error("the system cannot provide {} bytes of memory for the buffer pool; lower `pool_bytes`", frames * PAGE_SIZE)]
    NoMemory {
        /// The requested number of frames.
        frames: usize,
    },
    /// A write or sync failed earlier, so the contents of the disk are unknown. The pool writes
    /// nothing more.
    #[error("the buffer pool stopped writing: {reason}; reopen the database")]
    Poisoned {
        /// The first failure.
        reason: String,
    },
    /// The log could not be hardened, or a thread could not be started.
    #[error("{reason}")]
    Log {
        /// The reason that the log reported.
        reason: String,
    },
}

/// Kinds of damage that recovery distinguishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Damage {
    /// The page is all zeros: it was never written, or its write was lost.
    Blank,
    /// The page is whole, but has changes that the log lacks. So the log is what is damaged.
    AheadOfLog,
    /// Any other damage.
    Other,
}

impl PoolError {
    /// Creates the error for a page that is not what was written; `file` has each page at its
    /// number.
    pub(super) fn corrupt(page: PageId, damage: Damage, defect: String, file: String) -> Self {
        Self::Corrupt { page, defect, damage, file, offset: page.get().saturating_mul(PAGE_SIZE as u64) }
    }

    /// Returns whether the disk (or its quota) is full: the caller may free space and try again.
    #[cfg(test)]
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Disk(error) if error.is_full())
    }
}

/// Returns the error for pages that contradict each other. If their checksums are right, this is a
/// defect of the engine or of the machine's memory.
pub(crate) fn broken(page: PageId, defect: &str) -> PoolError {
    PoolError::corrupt(page, Damage::Other, defect.to_owned(), "data".to_owned())
}

/// The data that an optimistic reader saw may never have existed. The reader starts over from the
/// last page whose version was valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Restart;

/// Why an optimistic operation did not finish.
#[derive(Clone, Debug)]
pub(crate) enum Interrupt {
    /// Another thread changed the data that was read: start over.
    Restart,
    /// An error that starting over would not cure.
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
                reason: format!("must be at least {minimum} pages, not {frames}"),
            },
            PoolError::HeapFull { .. } | PoolError::PcmFull { .. } => Self::Full { reason: error.to_string() },
            PoolError::NoMemory { .. } => Self::Io { reason: error.to_string() },
            PoolError::Poisoned { reason } | PoolError::Log { reason } => Self::Poisoned { reason },
        }
    }
}
