//! The one error type of the public interface.

use std::path::PathBuf;

use duramen_io::DiskError;
use duramen_pmem::PmemError;
use duramen_types::{Gsn, LogId, PageId, TxnId};
use duramen_wal::{WalError, segment_name};

use crate::timestamp::Timestamp;

/// Result of an engine operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong. Each variant is something a caller can act on.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The transaction and others waited for each other, and it was the youngest of them. Nothing
    /// of the operation took effect; abort the transaction and run it again, as [`crate::Db::run`]
    /// does.
    ///
    /// A thread that has several transactions open may wait for itself. The transaction that would
    /// wait gets this error, too; running it again helps only when the other transaction has ended.
    /// A transaction counts as open in the thread that used it last: after a move to another
    /// thread, it counts there from the first call that this thread makes.
    #[error("{txn} was chosen as the victim of a deadlock; abort it and run it again")]
    Deadlock {
        /// The transaction that must give way.
        txn: TxnId,
        /// Whether it waited for another transaction that its own thread has open, and for no other
        /// thread. Then [`crate::Db::run`] does not run it again.
        of_own_thread: bool,
    },
    /// The wait exceeded [`crate::Options::lock_wait_limit`], or the limit that the transaction has
    /// set with [`crate::Txn::set_lock_wait_limit`]. Abort the transaction and run it again.
    #[error("{txn} waited longer than the lock wait limit; abort it and run it again")]
    LockTimeout {
        /// The transaction that waited.
        txn: TxnId,
        /// Whether the limit is zero, and the calling thread has another transaction open: the lock
        /// may be that one's, or may become free only after that one has ended. Then
        /// [`crate::Db::run`] does not run it again. [`Error::Deadlock`] says which transactions
        /// count as open in a thread.
        of_own_thread: bool,
    },
    /// An earlier error left the transaction in a state that allows only [`crate::Txn::abort`] or
    /// dropping it.
    #[error("an earlier operation of the transaction failed; abort the transaction")]
    MustAbort,
    /// The key exists already.
    #[error("the key already exists; use `put` to overwrite or `update` to change it")]
    KeyExists,
    /// A key that is to be loaded is not above the one before it.
    #[error("the keys to be loaded must ascend, and each may come only once; sort the records by key")]
    KeyNotAscending,
    /// The table into which records are to be loaded has some already.
    #[error("the table `{name}` has records; load into a new or an empty table, or insert the records one by one")]
    TableNotEmpty {
        /// The table.
        name: String,
    },
    /// The key does not exist.
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
    /// can, including those that were rolled back. Nothing of the operation took effect; commit,
    /// and continue in another transaction.
    #[error(
        "the transaction has written {limit} large values, which is the limit; commit it, and continue in another \
         transaction"
    )]
    TooManyLargeValues {
        /// The limit.
        limit: u64,
    },
    /// The memory for values that only snapshots need ([`crate::Options::version_bytes`]) was used
    /// up, and this snapshot was the oldest. Open a new one.
    #[error(
        "the snapshot at position {at} is too old: keeping it would take more memory than `version_bytes`; open a new \
         one"
    )]
    SnapshotTooOld {
        /// The position of the latest commit that the snapshot showed.
        at: Gsn,
    },
    /// There is no table of this name.
    #[error("there is no table `{name}`; create it with `create_table`")]
    NoSuchTable {
        /// The requested name.
        name: String,
    },
    /// The table handle comes from another database, or from an earlier opening of this one.
    #[error(
        "the handle of table `{name}` belongs to another database or to an earlier opening of this one; open the table \
         again"
    )]
    ForeignTable {
        /// The table's name.
        name: String,
    },
    /// A table of this name exists.
    #[error("the table `{name}` already exists; open it with `open_table`")]
    TableExists {
        /// The requested name.
        name: String,
    },
    /// The calling thread has a transaction open that uses the table to be dropped, so the thread
    /// would wait for itself.
    #[error(
        "the calling thread has an open transaction that uses the table `{name}`; end the transaction, then drop the \
         table"
    )]
    TableInUse {
        /// The table's name.
        name: String,
    },
    /// The length of a table name is outside of 1 to 255 bytes.
    #[error("the table name `{name}` has {len} bytes; a name must have 1 to {limit} bytes", len = name.len())]
    BadTableName {
        /// The requested name.
        name: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// The savepoint belongs to another transaction or database, or was rolled back over.
    #[error("the savepoint belongs to another transaction, or an earlier rollback removed it")]
    NoSuchSavepoint,
    /// An option has an invalid value.
    #[error("option `{option}`: {reason}")]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// What is wrong, and which values are valid.
        reason: String,
    },
    /// The database is open elsewhere.
    #[error("the database {path} is in use: {reason}; close it there first", path = path.display())]
    AlreadyOpen {
        /// The database's directory.
        path: PathBuf,
        /// The process that holds it, where known.
        reason: String,
    },
    /// The directory does not hold a database that this version can open.
    #[error("cannot open {path}: {reason}", path = path.display())]
    NotADatabase {
        /// The directory or file.
        path: PathBuf,
        /// What was found, what was expected, what to do.
        reason: String,
    },
    /// A file was written by another version of the format.
    #[error(
        "{file} has format version {found}, but this program reads version {supported}; open it with the program that \
         wrote it"
    )]
    WrongVersion {
        /// The file.
        file: String,
        /// The file's version.
        found: u32,
        /// The version that this program reads.
        supported: u32,
    },
    /// Stored data fails its checks.
    #[error("{file} is damaged at byte {offset}{}: {reason}; restore the database from a backup", page_suffix(*page))]
    Corrupt {
        /// The file.
        file: String,
        /// The position in the file, in bytes.
        offset: u64,
        /// The page, if the damage is in a page.
        page: Option<PageId>,
        /// The check that failed.
        reason: String,
    },
    /// The disk is full, or the log has reached its size limit. Nothing of the operation took
    /// effect.
    #[error("no space: {reason}; abort the transaction, free space or raise the limit, then run the transaction again")]
    Full {
        /// What is full.
        reason: String,
    },
    /// The process or the system has reached its limit of open files. Nothing of the operation took
    /// effect and nothing is broken: the operation can succeed later.
    #[error("{reason}; close other files or raise the limit of open files (`ulimit -n`), then try again")]
    TooManyFiles {
        /// The file that could not be opened.
        reason: String,
    },
    /// The disk failed. The database is out of service until it is reopened.
    #[error("{reason}; the database is out of service: close and reopen it")]
    Io {
        /// The operation and the file that failed, and the system's message.
        reason: String,
    },
    /// The database could not be opened, or a closed database could not be inspected, because of a
    /// disk or the operating system. The database is unchanged: everything acknowledged is kept.
    #[error(
        "cannot open the database {path}: {reason}; correct the cause and open the database \
         again", path = path.display()
    )]
    OpenFailed {
        /// The database's directory.
        path: PathBuf,
        /// The operation and the file that failed, and the system's message.
        reason: String,
    },
    /// An earlier failure of the disk put the database out of service. Reopen it: everything
    /// acknowledged is kept.
    #[error(
        "the database is out of service after an earlier failure ({reason}); close and reopen it, which keeps every \
         acknowledged commit"
    )]
    Poisoned {
        /// The first failure.
        reason: String,
    },
    /// The buffer pool has no free frame: too many pages are in use at the same time for its size.
    #[error("all {frames} pages of the buffer pool are in use; raise `pool_bytes`")]
    PoolExhausted {
        /// The pool's size in pages.
        frames: usize,
    },
    /// The directory does not hold a backup, or lacks a part of it.
    #[error("cannot restore from {path}: {reason}", path = path.display())]
    NotABackup {
        /// The directory or file.
        path: PathBuf,
        /// What was found, and what to do.
        reason: String,
    },
    /// The target directory of a copy is not empty.
    #[error("{path} is not empty: it holds `{found}`; choose an empty or new directory", path = path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// A name found in it.
        found: String,
    },
    /// A backup or a restore failed because of a disk. The database is not affected.
    #[error("the copy is incomplete: {reason}; correct the cause and start the copy again")]
    CopyFailed {
        /// The operation and the file that failed, and the system's message.
        reason: String,
    },
    /// The point to restore to lies before the end of the backup.
    #[error(
        "the requested point is before the end of the backup; use an earlier backup, or choose a point from {end} on"
    )]
    BeforeBackup {
        /// The earliest point that can be restored from this backup.
        end: Gsn,
    },
    /// The point to restore to lies behind the end of the available log.
    #[error(
        "the supplied log ends at {end}{}, before the requested point; supply more of the log (the archive, or the log \
         in the database's directory), choose an earlier point, or restore to the end of the \
         log", last_commit_suffix(*last_commit)
    )]
    BehindLog {
        /// The latest point that can be restored.
        end: Gsn,
        /// The time of the last commit before it, if the log records one.
        last_commit: Option<Timestamp>,
    },
    /// A segment of the log is missing, although later segments exist.
    #[error(
        "segment {segment:016x} of the log is missing; put `{}` back into the archive, or restore to a point before \
         that segment",
        segment_name(*log, *segment)
    )]
    LogGap {
        /// The log that the segment belongs to.
        log: LogId,
        /// The segment's number.
        segment: u64,
    },
    /// This process is a fork of the process that opened the database, and must not touch it: the
    /// files and the threads belong to the parent. Dropping what belongs to the database is
    /// allowed; it has no effect on the database and frees no memory.
    #[error(
        "this process is a fork of the process that opened the database; use the database in that process, or fork \
         before you open it"
    )]
    Forked,
    /// The database has been closed.
    #[error("the database is closed; open it again")]
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
                Self::Full { reason: format!("the log cannot reserve {wanted} more bytes: {cause}") }
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
                reason: format!("its contents cannot be used as the ring of this log: {reason}"),
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

impl From<PmemError> for Error {
    /// Converts an error of the heap.
    fn from(error: PmemError) -> Self {
        match error {
            PmemError::NotDurable { .. } | PmemError::InvalidOption { .. } => {
                Self::InvalidOption { option: "scheme", reason: error.to_string() }
            }
            PmemError::Busy { location } => {
                Self::AlreadyOpen { path: location.into(), reason: "another program has the heap open".into() }
            }
            PmemError::Missing { location } => {
                let reason = "the heap does not exist; put it back, or name the file or device that it is in \
                              (`--region` of the commands)";
                Self::NotADatabase { path: location.into(), reason: reason.into() }
            }
            PmemError::AlreadyExists { ref location } | PmemError::TooSmall { ref location, .. } => {
                Self::NotADatabase { path: location.into(), reason: error.to_string() }
            }
            PmemError::System { .. } => Self::Io { reason: error.to_string() },
        }
    }
}

/// Returns the reason why the log stopped, without advice: the advice differs when a database
/// surrounds the log.
pub(crate) fn why_log_failed(error: &WalError) -> String {
    match error {
        WalError::Failed { first } => format!("the log stopped after a failure: {first}"),
        other => other.to_string(),
    }
}

/// Returns the name of the option in [`crate::Options`] for an option of the log.
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
        // All other options have the same name in both.
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
    /// Converts an error that occurred while the database in `path` was opened or inspected:
    /// nothing is out of service, and there is no transaction to run again.
    pub(crate) fn in_opening(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        match self {
            Self::Io { reason } | Self::Poisoned { reason } => Self::OpenFailed { path, reason },
            Self::Full { reason } => {
                Self::OpenFailed { path, reason: format!("no space: {reason} (free space, or raise the limit)") }
            }
            Self::AlreadyOpen { reason, .. } => Self::AlreadyOpen { path, reason },
            other => other,
        }
    }

    /// Returns whether the transaction can succeed when it is run again, without anything done in
    /// between but that the transactions that it conflicts with end. [`crate::Db::run`] runs it
    /// again then, unless the error is `of_own_thread`: the calling thread itself must end another
    /// transaction first.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # use std::time::Duration;
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let stock = db.create_table("stock")?;
    /// let (mut first, mut second) = (db.begin(), db.begin());
    /// first.put(&stock, b"bolts", b"40")?;
    /// second.set_lock_wait_limit(Some(Duration::ZERO));
    /// let refused = second.put(&stock, b"bolts", b"39").unwrap_err();
    /// assert!(refused.is_retryable()); // when `first` has ended
    /// assert!(!duramen::Error::KeyExists.is_retryable());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Deadlock { .. } | Self::LockTimeout { .. })
    }

    /// Returns whether the calling thread must end another transaction of its own first.
    pub(crate) fn is_of_own_thread(&self) -> bool {
        matches!(self, Self::Deadlock { of_own_thread: true, .. } | Self::LockTimeout { of_own_thread: true, .. })
    }
}
