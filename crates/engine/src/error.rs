//! The one error type of the public interface.

use std::path::PathBuf;

use duramen_io::DiskError;
use duramen_pmem::PmemError;
use duramen_types::{Gsn, LogId, PageId, TxnId};
use duramen_wal::{WalError, segment_name};

use crate::timestamp::Timestamp;

/// Result of an engine operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, in the terms of what a caller can do about it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The transaction and others waited for each other, and it was the youngest of them. Nothing
    /// of the operation took effect; abort the transaction and run it again, as [`crate::Db::run`]
    /// does.
    ///
    /// A thread that has several transactions open may wait for itself. The one that would wait
    /// gets this error, too; running it again helps only when the other one has ended. A
    /// transaction counts as open in the thread that used it last: one that was handed to another
    /// thread, from the first call there on in that one.
    #[error("{txn} was chosen as the victim of a deadlock; abort it and run it again")]
    Deadlock {
        /// The transaction that must give way.
        txn: TxnId,
    },
    /// The lock wait limit of [`crate::Options::lock_wait_limit`] passed. Abort the transaction and
    /// run it again.
    #[error("{txn} waited longer than the lock wait limit; abort it and run it again")]
    LockTimeout {
        /// The transaction that waited.
        txn: TxnId,
    },
    /// The transaction met an error earlier that leaves only [`crate::Txn::abort`] (or dropping
    /// it).
    #[error("the transaction failed earlier and can only be aborted")]
    MustAbort,
    /// The key is there already.
    #[error("the key exists already; use `put` to overwrite or `update` to change it")]
    KeyExists,
    /// The key is not there.
    #[error("the key does not exist; use `put` or `insert` to add it")]
    KeyNotFound,
    /// The key is longer than [`duramen_types::MAX_KEY_LEN`].
    #[error("the key is {len} bytes long; the limit is {limit}")]
    KeyTooLarge {
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The value is longer than [`duramen_types::MAX_VALUE_LEN`].
    #[error("the value is {len} bytes long; the limit is {limit}")]
    ValueTooLarge {
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The transaction has written as many values that are too large for a leaf as one transaction
    /// can, rolled back ones included. Nothing of the operation took effect; commit, and go on in
    /// another transaction.
    #[error("the transaction has written {limit} large values, which is the limit; commit, and go on in another one")]
    TooManyLargeValues {
        /// The limit.
        limit: u64,
    },
    /// No table of this name.
    #[error("there is no table `{name}`; create it with `create_table`")]
    NoSuchTable {
        /// The name asked for.
        name: String,
    },
    /// The table handle comes from another database, or from an earlier opening of this one.
    #[error("the handle of table `{name}` belongs to another database or an earlier opening; open the table again")]
    ForeignTable {
        /// The table's name.
        name: String,
    },
    /// A table of this name exists.
    #[error("a table `{name}` exists already; open it with `open_table`")]
    TableExists {
        /// The name asked for.
        name: String,
    },
    /// The calling thread has a transaction open that uses the table to be dropped, and would wait
    /// for itself.
    #[error(
        "the calling thread has a transaction open that uses the table `{name}`; end it before the table is dropped"
    )]
    TableInUse {
        /// The table's name.
        name: String,
    },
    /// A table name must have 1 to 255 bytes.
    #[error("a table name has 1 to {limit} bytes; `{name}` has {len}", len = name.len())]
    BadTableName {
        /// The name asked for.
        name: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// A savepoint of another transaction or database, or one that a rollback has passed.
    #[error("the savepoint does not belong to this transaction or was rolled back over")]
    NoSuchSavepoint,
    /// An option makes no sense.
    #[error("option `{option}`: {reason}")]
    InvalidOption {
        /// Its name.
        option: &'static str,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The database is open elsewhere.
    #[error("the database {path} is in use: {reason}; close the other opener first", path = path.display())]
    AlreadyOpen {
        /// The database's directory.
        path: PathBuf,
        /// Who holds it, where known.
        reason: String,
    },
    /// The directory does not hold a database that this version can open.
    #[error("{path} cannot be opened: {reason}", path = path.display())]
    NotADatabase {
        /// The directory or file.
        path: PathBuf,
        /// What was found, what was expected, what to do.
        reason: String,
    },
    /// A file was written by another version of the format.
    #[error("{file} has format version {found}; this program reads version {supported}: use the program that wrote it")]
    WrongVersion {
        /// The file.
        file: String,
        /// Its version.
        found: u32,
        /// What this program reads.
        supported: u32,
    },
    /// Stored data fails its checks.
    #[error("{file} is damaged at byte {offset}{}: {reason}; restore the database from a copy", page_suffix(*page))]
    Corrupt {
        /// The file.
        file: String,
        /// Where in the file, in bytes.
        offset: u64,
        /// The page, when it is one.
        page: Option<PageId>,
        /// Which check failed.
        reason: String,
    },
    /// The disk (or the log's size limit) has no room. Nothing of the operation took effect.
    #[error("no room: {reason}; make room (or raise the limit), abort and run the transaction again")]
    Full {
        /// What is full.
        reason: String,
    },
    /// The process, or the system, may not have more files open at this moment. Nothing of the
    /// operation took effect, and nothing is broken: it can succeed later.
    #[error("{reason}; close other files or raise the limit (`ulimit -n`), and try again")]
    TooManyFiles {
        /// Which file could not be opened.
        reason: String,
    },
    /// The disk failed. The database is out of service until it is reopened.
    #[error("{reason}; the database is out of service until it is reopened")]
    Io {
        /// Which operation on which file failed, and what the system said.
        reason: String,
    },
    /// The database could not be opened, or a closed one not be looked into, because of a disk or
    /// the operating system. It is as it was: what was acknowledged is kept.
    #[error(
        "the database {path} could not be opened: {reason}; put that right and open it again", path = path.display()
    )]
    OpenFailed {
        /// The database's directory.
        path: PathBuf,
        /// Which operation on which file failed, and what the system said.
        reason: String,
    },
    /// An earlier failure of the disk put the database out of service. Reopen it: everything
    /// acknowledged is there.
    #[error("the database failed earlier ({reason}); close and reopen it: everything acknowledged is kept")]
    Poisoned {
        /// The first failure.
        reason: String,
    },
    /// The buffer pool has no frame to give: too many pages are in use at once for its size.
    #[error("the buffer pool of {frames} pages is exhausted; raise `pool_bytes`")]
    PoolExhausted {
        /// Its size in pages.
        frames: usize,
    },
    /// The directory does not hold a backup, or lacks a part of it.
    #[error("{path} is no backup to restore from: {reason}", path = path.display())]
    NotABackup {
        /// The directory or file.
        path: PathBuf,
        /// What was found, and what to do.
        reason: String,
    },
    /// A directory that something is to be copied to has to be empty.
    #[error("{path} holds `{found}`; choose an empty or new directory", path = path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// What was found in it.
        found: String,
    },
    /// A backup or a restore failed because of a disk. The database is not affected.
    #[error("the copy was not completed: {reason}; begin it anew when that is put right")]
    CopyFailed {
        /// Which operation on which file failed, and what the system said.
        reason: String,
    },
    /// A point to restore to lies before the end of the backup.
    #[error("the point lies before the end of the backup: take an earlier backup, or a point from {end} on")]
    BeforeBackup {
        /// The earliest point that can be restored from this backup.
        end: Gsn,
    },
    /// A point to restore to lies behind the log that there is.
    #[error(
        "the log that was given ends at {end}{}, before the point: give more of it (the archive, or the log that is left in \
         the database's directory), or choose an earlier point, or restore all there is", last_commit_suffix(*last_commit)
    )]
    BehindLog {
        /// The latest point that can be restored.
        end: Gsn,
        /// When the last commit before it was, if the log says so.
        last_commit: Option<Timestamp>,
    },
    /// A segment of the log is missing, though later ones are there.
    #[error(
        "segment {segment:016x} of the log is missing: put `{}` back into the archive, or restore to a point before it",
        segment_name(*log, *segment)
    )]
    LogGap {
        /// Of which log.
        log: LogId,
        /// Its number.
        segment: u64,
    },
    /// This process is a fork of the one that opened the database, and must not touch it: the files
    /// and the threads are the parent's. Dropping what belongs to the database is allowed, does
    /// nothing to it, and gives no memory back.
    #[error("this process was forked from the one that opened the database; use it there, or fork before opening it")]
    Forked,
    /// The database has been closed.
    #[error("the database is closed")]
    Closed,
}

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Self {
        if error.is_full() {
            Self::Full { reason: error.to_string() }
        } else if error.is_passing() {
            Self::TooManyFiles { reason: error.to_string() }
        } else if error.kind == std::io::ErrorKind::ResourceBusy {
            Self::AlreadyOpen { path: error.file.into(), reason: error.reason }
        } else {
            Self::Io { reason: error.to_string() }
        }
    }
}

impl From<WalError> for Error {
    fn from(error: WalError) -> Self {
        match error {
            WalError::Disk(error) => error.into(),
            WalError::Full { wanted, cause } => {
                Self::Full { reason: format!("the log cannot set {wanted} more bytes aside: {cause}") }
            }
            WalError::Corrupt { segment, offset, reason } => {
                Self::Corrupt { file: format!("log/{segment:016x}.log"), offset, page: None, reason }
            }
            WalError::InLog { log, error } => match Self::from(*error) {
                Self::Corrupt { file, offset, page, reason } => {
                    Self::Corrupt { file: file.replacen("log", &format!("log{}", log.get()), 1), offset, page, reason }
                }
                Self::NotADatabase { path: _, reason } => {
                    let path = format!("log{}", log.get()).into();
                    Self::NotADatabase { path, reason: format!("log {}: {reason}", log.get()) }
                }
                other => other,
            },
            WalError::WrongVersion { found, supported } => Self::WrongVersion { file: "log".into(), found, supported },
            WalError::MissingSegment { .. } | WalError::NoLog { .. } | WalError::WrongDatabase { .. } => {
                Self::NotADatabase { path: "log".into(), reason: error.to_string() }
            }
            WalError::Region { error: PmemError::NotDurable { .. } | PmemError::InvalidOption { .. } } => {
                Self::InvalidOption { option: "log_device", reason: error.to_string() }
            }
            WalError::Region { error: PmemError::Busy { location } } => {
                Self::AlreadyOpen { path: location.into(), reason: "another program has the region open".into() }
            }
            WalError::WrongRing { location, reason } => Self::NotADatabase {
                path: location.into(),
                reason: format!("the log's ring there cannot be used: {reason}"),
            },
            WalError::Region { .. } | WalError::RingNeeded { .. } => {
                Self::NotADatabase { path: "log".into(), reason: error.to_string() }
            }
            WalError::WrongArchive { .. } => Self::InvalidOption { option: "archive", reason: error.to_string() },
            WalError::InvalidOption { option, reason } => Self::InvalidOption { option: option_of(option), reason },
            WalError::OlderLogs { .. } => Self::InvalidOption { option: "log", reason: error.to_string() },
            WalError::System { .. } => Self::Io { reason: error.to_string() },
            other => Self::Poisoned { reason: why_log_failed(&other) },
        }
    }
}

/// What stopped the log, without what to do about it: that is another thing where a database is
/// around the log.
pub(crate) fn why_log_failed(error: &WalError) -> String {
    match error {
        WalError::Failed { first } => format!("the log stopped after a failure: {first}"),
        other => other.to_string(),
    }
}

/// The option of [`crate::Options`] that is an option of the log.
fn option_of(log_option: &'static str) -> &'static str {
    match log_option {
        "ring_bytes" => "log_buffer_bytes",
        "array_slots" => "log_array_slots",
        "arrays" => "log_arrays",
        "slot_pool" => "log_slot_pool",
        "segment_bytes" => "log_segment_bytes",
        "max_bytes" => "log_max_bytes",
        "device" => "log_device",
        "insert" => "log_insert",
        "group_commit.transactions" => "group_commit_transactions",
        "group_commit.bytes" => "group_commit_bytes",
        "group_commit.time" => "group_commit_time",
        // These have the same name.
        other => other,
    }
}

fn last_commit_suffix(last_commit: Option<Timestamp>) -> String {
    last_commit.map(|time| format!(" (its last commit was at {time})")).unwrap_or_default()
}

fn page_suffix(page: Option<PageId>) -> String {
    page.map(|page| format!(" ({page})")).unwrap_or_default()
}

impl Error {
    /// The same, met when the database in `path` was opened, or looked into: nothing is out of
    /// service, and no transaction can be run again.
    pub(crate) fn in_opening(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        match self {
            Self::Io { reason } | Self::Poisoned { reason } => Self::OpenFailed { path, reason },
            Self::Full { reason } => {
                Self::OpenFailed { path, reason: format!("no room: {reason} (make room, or raise the limit)") }
            }
            Self::AlreadyOpen { reason, .. } => Self::AlreadyOpen { path, reason },
            other => other,
        }
    }

    /// Whether running the same transaction again can succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Deadlock { .. } | Self::LockTimeout { .. })
    }
}
