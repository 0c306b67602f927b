//! What can go wrong with a log.

use duramen_io::DiskError;
use duramen_types::{LogId, Lsn};

/// Why the log could not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WalError {
    /// The disk refused an operation. A failed write or sync of log data is reported as
    /// [`WalError::Failed`] instead.
    #[error("{0}")]
    Disk(#[from] DiskError),

    /// The space asked for cannot be set aside. Nothing is broken: recycle the log (take a
    /// checkpoint, end long transactions) or make room on the disk, and try again.
    #[error(
        "the log cannot set {wanted} more bytes aside: {cause}; take a checkpoint so that the log can be recycled, end \
         long transactions, free disk space or raise `max_bytes`"
    )]
    Full {
        /// How much was asked for, in bytes.
        wanted: u64,
        /// What stands in the way.
        cause: String,
    },

    /// The log's bytes are not what was once written and hardened there.
    #[error(
        "log segment {segment:016x} is damaged at byte {offset}: {reason}; restore from a backup, or read what is left \
         with a `LogReader`"
    )]
    Corrupt {
        /// Number of the segment; its file is `log/<number in 16 hexadecimal digits>.log`.
        segment: u64,
        /// Byte offset in that file.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },

    /// A segment that the log needs is not there.
    #[error(
        "log segment {segment:016x}, which holds {lsn}, is missing; put `log/{segment:016x}.log` back or restore from a \
         backup"
    )]
    MissingSegment {
        /// Number of the segment.
        segment: u64,
        /// The first position of the log that is needed from it.
        lsn: Lsn,
    },

    /// There is no log at all.
    #[error("there is no log in `{location}`; create one, or check the path")]
    NoLog {
        /// Where it was looked for.
        location: String,
    },

    /// A log is already there.
    #[error("`{location}` already holds a log; open it, or choose an empty directory")]
    AlreadyExists {
        /// Where it was found.
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
        "the log has format version {found}, this program reads version {supported}; use the program that wrote it"
    )]
    WrongVersion {
        /// Version in the file.
        found: u32,
        /// Version this program reads and writes.
        supported: u32,
    },

    /// The persistent memory for the log's ring cannot be used.
    #[error(transparent)]
    Region {
        /// Why.
        #[from]
        error: duramen_pmem::PmemError,
    },

    /// The ring in persistent memory is not the one that the log needs, or not the log's own, or
    /// damaged.
    #[error("the ring in `{location}` cannot be used: {reason}")]
    WrongRing {
        /// Where it is.
        location: String,
        /// What is wrong with it.
        reason: String,
    },

    /// The end of the log is in persistent memory, and the log was to be opened without it.
    #[error(
        "the end of the log in `{location}` is in persistent memory, in the ring with the number {number:016x}; open it with the \
         log device `nvm` and that region"
    )]
    RingNeeded {
        /// Where the log is.
        location: String,
        /// The ring's number.
        number: u64,
    },

    /// A copy of several logs, given to be put together with a backup or an archive, is older than
    /// they are: after a crash the logs may have been cut and have gone on otherwise, so the pieces
    /// need not belong together.
    #[error(
        "the logs in `{location}` were left before the {than} got its segment {segment:016x} of {log}, and may have gone on \
         otherwise since; give the logs as they were last, or leave them out"
    )]
    OlderLogs {
        /// Where the copy is.
        location: String,
        /// What is newer: the archive or the backup.
        than: &'static str,
        /// The log that tells.
        log: LogId,
        /// Number of the segment that tells.
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

    /// The operating system refused memory or a thread.
    #[error("the operating system refused {what}: {reason}")]
    System {
        /// What was asked for.
        what: String,
        /// What the system said.
        reason: String,
    },

    /// The archive is not that of this log as it is.
    #[error("the archive in `{location}` cannot be used: {reason}")]
    WrongArchive {
        /// Where it is.
        location: String,
        /// What is wrong with it, and what to do.
        reason: String,
    },

    /// The log has been closed.
    #[error("the log has been closed; open it again")]
    Closed,

    /// A position was named that is not in the log.
    #[error(
        "{lsn} is not in the log, which reaches from {start} to {end}: what names it is damaged or belongs elsewhere"
    )]
    OutOfRange {
        /// The position that was named (a GSN, with one log, is an LSN).
        lsn: Lsn,
        /// Where the log starts.
        start: Lsn,
        /// Where the log ends.
        end: Lsn,
    },

    /// One of several logs of a database.
    #[error("log {}: {error}", log.get())]
    InLog {
        /// Which one; its segments are in the directory `log` with this number.
        log: LogId,
        /// What is the matter with it.
        error: Box<WalError>,
    },

    /// A write or sync of the log failed earlier. What reached the device is unknown, so nothing
    /// more is hardened.
    #[error("the log stopped after a failure ({first}); close and reopen it, which recovers what was hardened")]
    Failed {
        /// The failure that stopped it.
        first: Box<WalError>,
    },
}

/// Result of a log operation.
pub type Result<T> = std::result::Result<T, WalError>;

impl WalError {
    /// Whether nothing has failed and the same can succeed later: the process may not have more
    /// files open at this moment.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Disk(error) => error.is_passing(),
            Self::InLog { error, .. } => error.is_passing(),
            _ => false,
        }
    }

    /// The same, told of a log that is not the first. What says nothing about a place stays as it
    /// is.
    pub(crate) fn in_log(self, log: LogId) -> Self {
        match self {
            Self::Corrupt { .. } | Self::MissingSegment { .. } | Self::OutOfRange { .. } if !log.is_zero() => {
                Self::InLog { log, error: Box::new(self) }
            }
            other => other,
        }
    }
}
