//! Errors of a log.

use duramen_io::DiskError;
use duramen_types::{LogId, Lsn};

/// Why the log could not do what the caller requested.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WalError {
    /// The disk refused an operation other than a write or sync of log data ([`WalError::Failed`]).
    #[error("{0}")]
    Disk(#[from] DiskError),

    /// The requested space cannot be reserved. Nothing is broken: recycle the log (take a
    /// checkpoint, end long transactions) or free space on the disk, and try again.
    #[error(
        "the log cannot reserve {wanted} more bytes: {cause}; take a checkpoint so that the log can be recycled, end \
         long transactions, free disk space or raise `max_bytes`"
    )]
    Full {
        /// The requested size in bytes.
        wanted: u64,
        /// What prevents the reservation.
        cause: String,
    },

    /// The log's bytes differ from what was written and hardened there.
    #[error(
        "log segment {segment:016x} is damaged at byte {offset}: {reason}; restore from a backup, or read the \
         remaining records with a `LogReader`"
    )]
    Corrupt {
        /// Number of the segment; its file is `log/<number in 16 hexadecimal digits>.log`.
        segment: u64,
        /// Byte offset in that file.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },

    /// A segment that the log needs is missing.
    #[error(
        "log segment {segment:016x}, which holds {lsn}, is missing; put `log/{segment:016x}.log` back or restore from \
         a backup"
    )]
    MissingSegment {
        /// Number of the segment.
        segment: u64,
        /// The first position in the segment that the log needs.
        lsn: Lsn,
    },

    /// There is no log at all.
    #[error("there is no log in `{location}`; create one, or check the path")]
    NoLog {
        /// Where the log was expected.
        location: String,
    },

    /// A log is already there.
    #[error("`{location}` already holds a log; open it, or choose an empty directory")]
    AlreadyExists {
        /// Where the log was found.
        location: String,
    },

    /// The segment belongs to another database or log.
    #[error("`{file}` belongs to another database; put back the file that was here before")]
    WrongDatabase {
        /// The file.
        file: String,
    },

    /// The log was written in a format that this version does not read.
    #[error(
        "the log has format version {found}, but this program reads version {supported}; open it with the program that \
         wrote it"
    )]
    WrongVersion {
        /// Version in the file.
        found: u32,
        /// Version that this program reads and writes.
        supported: u32,
    },

    /// The persistent memory for the log's ring cannot be used.
    #[error(transparent)]
    Region {
        /// Why.
        #[from]
        error: duramen_pmem::PmemError,
    },

    /// The ring in persistent memory is damaged, or is not the one that this log needs.
    #[error("the ring in `{location}` cannot be used: {reason}")]
    WrongRing {
        /// Where it is.
        location: String,
        /// What is wrong with it.
        reason: String,
    },

    /// The end of the log is in persistent memory, but the log was opened without it.
    #[error(
        "the end of the log in `{location}` is in persistent memory, in ring number {number:016x}; open the log with \
         the log device `nvm` and the region of that ring"
    )]
    RingNeeded {
        /// Where the log is.
        location: String,
        /// The ring's number.
        number: u64,
    },

    /// A copy of several logs was combined with a newer backup or archive. After a crash the logs
    /// may have been cut and continued differently, so the pieces may not belong together.
    #[error(
        "the logs in `{location}` are older than segment {segment:016x} of {log} in the {than}, and may have continued \
         differently since then; supply the latest logs, or omit them"
    )]
    OlderLogs {
        /// Where the copy is.
        location: String,
        /// What is newer than the copy: the archive or the backup.
        than: &'static str,
        /// The log that shows it.
        log: LogId,
        /// Number of the segment that shows it.
        segment: u64,
    },

    /// An option has a value that cannot work.
    #[error("option `{option}` of the log is invalid: {reason}")]
    InvalidOption {
        /// Name of the option.
        option: &'static str,
        /// What is allowed.
        reason: String,
    },

    /// The operating system refused to provide memory or a thread, or a thread of the log panicked.
    #[error("the log cannot {what}: {reason}")]
    System {
        /// What the log cannot do, as a verb phrase.
        what: String,
        /// The cause.
        reason: String,
    },

    /// The archive does not match the current state of this log.
    #[error("the archive in `{location}` cannot be used: {reason}")]
    WrongArchive {
        /// Where it is.
        location: String,
        /// What is wrong with it, and what to do about it.
        reason: String,
    },

    /// The log has been closed.
    #[error("the log is closed; open it again")]
    Closed,

    /// A position was given that is not in the log.
    #[error(
        "{lsn} is not in the log, which extends from {start} to {end}; the file that refers to it is damaged or \
         belongs to another log"
    )]
    OutOfRange {
        /// The given position (with one log, a GSN is an LSN).
        lsn: Lsn,
        /// Where the log starts.
        start: Lsn,
        /// Where the log ends.
        end: Lsn,
    },

    /// One of several logs of a database.
    #[error("log {}: {error}", log.get())]
    InLog {
        /// Which log; its segments are in the directory `log` with this number.
        log: LogId,
        /// The log's error.
        error: Box<WalError>,
    },

    /// A write or sync of the log failed. What reached the device is unknown, so the log stopped.
    #[error(
        "the log stopped after a failure ({first}); close it and open it again, which recovers every hardened record"
    )]
    Failed {
        /// The failure that stopped it.
        first: Box<WalError>,
    },
}

/// Result of a log operation.
pub type Result<T> = std::result::Result<T, WalError>;

impl WalError {
    /// Returns whether nothing has failed and the same call can succeed later: too many files are
    /// open at present.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Disk(error) => error.is_passing(),
            Self::InLog { error, .. } => error.is_passing(),
            _ => false,
        }
    }

    /// Returns the error that `option` cannot have its value; `reason` states what is allowed.
    pub(crate) fn invalid(option: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidOption { option, reason: reason.into() }
    }

    /// Returns the error that the system does not let the log do `what`, a verb phrase.
    pub(crate) fn system(what: impl Into<String>, reason: impl ToString) -> Self {
        Self::System { what: what.into(), reason: reason.to_string() }
    }

    /// Returns the error with `log` named, if it has an address and that is not the first log.
    pub(crate) fn in_log(self, log: LogId) -> Self {
        match self {
            Self::Corrupt { .. } | Self::MissingSegment { .. } | Self::OutOfRange { .. } if !log.is_zero() => {
                Self::InLog { log, error: Box::new(self) }
            }
            other => other,
        }
    }
}
