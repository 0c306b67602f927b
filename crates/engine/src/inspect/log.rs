//! Reads the log, record by record.

use duramen_io::Disk;
use duramen_sync::Arc;
use duramen_types::{Gsn, LogAddress, LogId, Lsn, PageId, TxnId};
use duramen_wal::{LogReader, Scanner, WalError};

use super::describe;
use crate::checkpoint::control::{ControlFile, SchemeId};
use crate::error::{Error, Result};

/// A record of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// The record's address.
    pub lsn: Lsn,
    /// The record's position in the order of all changes.
    pub gsn: Gsn,
    /// The transaction that the record belongs to, or zero.
    pub txn: TxnId,
    /// The page that the record changes, or zero if the record changes none or several.
    pub page: PageId,
    /// The address of the transaction's previous record, or zero.
    pub prev: LogAddress,
    /// The kind of the record: `update`, `system`, `compensation`, `commit`, `end`,
    /// `free-on-commit`, `checkpoint-begin`, `transaction-table`, `dirty-page-table`,
    /// `checkpoint-end`, or `unknown` with a number.
    pub kind: String,
    /// The record's length in bytes.
    pub length: u64,
    /// The record's contents, in words.
    pub detail: String,
}

/// The records of a log in order; see [`log()`].
#[derive(Debug)]
pub struct LogEntries {
    scanner: Scanner,
    failed: bool,
    ring: Option<u64>,
    /// Path of the database, for messages.
    path: String,
}

impl LogEntries {
    /// Returns the address of the next record; after the last record, the end of the log.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duramen::{Db, Options, inspect};
    /// # fn main() -> duramen::Result<()> {
    /// # let disk = duramen_io::SimDisk::new(1);
    /// Db::open_on(Arc::new(disk.clone()), Options::small())?.close()?;
    /// let mut entries = inspect::log(Arc::new(disk.clone()), None)?;
    /// let first = entries.next().unwrap()?;
    /// let next = entries.position();
    /// assert_eq!(next, first.lsn.advance(first.length));
    ///
    /// // The log can be read from there on.
    /// let rest = inspect::log(Arc::new(disk), Some(next))?;
    /// assert_eq!(rest.count(), entries.count());
    /// # Ok(())
    /// # }
    /// ```
    pub fn position(&self) -> Lsn {
        self.scanner.position()
    }

    /// Returns the number of the ring in persistent memory that may hold the end of the log. The
    /// ring is not read.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duramen::pmem::{Domain, SimMemory, Source};
    /// # use duramen::{Db, LogDevice, NvmOptions, Options, inspect};
    /// # fn main() -> duramen::Result<()> {
    /// # let disk = duramen_io::SimDisk::new(1);
    /// # let memory = Source::Simulated(SimMemory::new(1 << 20, Domain::VolatileCache));
    /// let log_device = LogDevice::Nvm(NvmOptions::new(memory, Domain::VolatileCache));
    /// let options = Options { log_device, ..Options::small() };
    /// let db = Db::open_on(Arc::new(disk.clone()), options.clone())?;
    /// drop(db); // without a clean shutdown
    /// assert!(inspect::log(Arc::new(disk.clone()), None)?.ring().is_some());
    ///
    /// // A clean shutdown leaves nothing in the ring.
    /// Db::open_on(Arc::new(disk.clone()), options)?.close()?;
    /// assert_eq!(inspect::log(Arc::new(disk), None)?.ring(), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn ring(&self) -> Option<u64> {
        self.ring
    }

    /// Returns why there is no record at [`Self::position`], after the last one; `None` before.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duramen::{Db, Options, inspect};
    /// # fn main() -> duramen::Result<()> {
    /// # let disk = duramen_io::SimDisk::new(1);
    /// Db::open_on(Arc::new(disk.clone()), Options::small())?.close()?;
    /// let mut entries = inspect::log(Arc::new(disk), None)?;
    /// assert_eq!(entries.stopped_because(), None);
    /// assert!(entries.by_ref().all(|entry| entry.is_ok()));
    /// assert!(entries.stopped_because().is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn stopped_because(&self) -> Option<&str> {
        self.scanner.stopped_because()
    }

    fn read(&mut self) -> Result<Option<LogEntry>> {
        let record = self.scanner.next()?;
        Ok(record.map(|record| LogEntry {
            lsn: record.lsn,
            gsn: record.gsn,
            txn: record.txn,
            page: record.page,
            prev: record.prev,
            kind: describe::kind(record.kind),
            length: record.end.get().saturating_sub(record.lsn.get()),
            detail: describe::detail(record.kind, record.flags, record.page, record.payload),
        }))
    }
}

impl Iterator for LogEntries {
    type Item = Result<LogEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let entry = self.read().map_err(|error| error.in_opening(&self.path));
        self.failed = entry.is_err();
        entry.transpose()
    }
}

/// Reads the log of a closed database from `from`, which must be the start of a record, or from its
/// beginning. Ends, as recovery does, at the first position that holds no intact record.
///
/// ```
/// # use std::sync::Arc;
/// # use duramen::{Db, Options, inspect};
/// # fn main() -> duramen::Result<()> {
/// # let disk = duramen_io::SimDisk::new(1);
/// # let db = Db::open_on(Arc::new(disk.clone()), Options::small())?;
/// # let accounts = db.create_table("accounts")?;
/// let mut txn = db.begin();
/// txn.insert(&accounts, b"alice", b"100")?;
/// txn.insert(&accounts, b"bob", b"20")?;
/// let id = txn.id();
/// txn.commit()?;
/// drop(db);
///
/// let entries = inspect::log(Arc::new(disk), None)?.collect::<duramen::Result<Vec<_>>>()?;
/// let of_txn = entries.iter().filter(|entry| entry.txn == id);
/// let kinds: Vec<_> = of_txn.map(|entry| entry.kind.as_str()).collect();
/// assert_eq!(kinds, ["update", "update", "commit"]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::InvalidOption`] when `from` is before any address or behind the log, or the database's
/// storage scheme has none; [`Error::NotADatabase`], [`Error::WrongVersion`], [`Error::Corrupt`]
/// and [`Error::OpenFailed`] when the control file or the log's segments cannot be read. The first
/// entry is an error when the segment of `from` has been recycled.
pub fn log(disk: Arc<dyn Disk>, from: Option<Lsn>) -> Result<LogEntries> {
    log_of(disk, LogId::ZERO, from)
}

/// Reads one of several logs as [`log()`] does.
///
/// ```
/// # use std::sync::Arc;
/// # use duramen::{Db, LogId, Options, Partition, inspect};
/// # fn main() -> duramen::Result<()> {
/// # let disk = duramen_io::SimDisk::new(1);
/// let options = Options { logs: 2, log_partition: Partition::RoundRobin, ..Options::small() };
/// let db = Db::open_on(Arc::new(disk.clone()), options)?;
/// let weather = db.create_table("weather")?;
/// for day in 0..4_u8 {
///     db.run(|txn| txn.put(&weather, &[day], b"rain"))?;
/// }
/// drop(db);
///
/// for log in [LogId::new(0), LogId::new(1)] {
///     let mut entries = inspect::log_of(Arc::new(disk.clone()), log, None)?;
///     assert!(entries.any(|entry| entry.is_ok_and(|entry| entry.kind == "commit")));
/// }
/// assert!(inspect::log_of(Arc::new(disk), LogId::new(2), None).is_err());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`log()`]; [`Error::NotADatabase`] when there is no such log.
pub fn log_of(disk: Arc<dyn Disk>, log: LogId, from: Option<Lsn>) -> Result<LogEntries> {
    let path = disk.location();
    open(disk, log, from).map_err(|error| error.in_opening(path))
}

fn open(disk: Arc<dyn Disk>, log: LogId, from: Option<Lsn>) -> Result<LogEntries> {
    let reader = match ControlFile::open(&*disk) {
        Ok(file) if file.control.scheme != SchemeId::Wal => {
            let scheme = file.control.scheme;
            let instead = match scheme {
                SchemeId::PcmLogging => "`duramen inspect pcm` (`inspect::pcm`) prints its memory",
                _ => "`duramen inspect heap` (`inspect::heap`) prints its journals",
            };
            let reason = format!("the scheme `{scheme}` has no log; {instead}");
            return Err(Error::InvalidOption { option: "scheme", reason });
        }
        Ok(file) => LogReader::open(&*disk, log, Some((file.control.database, file.control.logs.count)))?,
        // The log's own segments name the database that they belong to.
        Err(Error::Corrupt { .. }) if log.is_zero() => LogReader::open(&*disk, log, None)?,
        Err(error) => return Err(error),
    };
    let scanner = reader.scan(from).map_err(|error| match error {
        WalError::OutOfRange { .. } => Error::InvalidOption { option: "from", reason: error.to_string() },
        other => other.into(),
    })?;
    Ok(LogEntries { scanner, failed: false, ring: reader.ring(), path: disk.location() })
}
