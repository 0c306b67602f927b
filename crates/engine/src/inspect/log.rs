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
    pub fn position(&self) -> Lsn {
        self.scanner.position()
    }

    /// Returns the number of the ring in persistent memory that may hold the end of the log. The
    /// ring is not read.
    pub fn ring(&self) -> Option<u64> {
        self.ring
    }

    /// Returns why there is no record at [`Self::position`], after the last one.
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
/// # Errors
/// [`Error::InvalidOption`] when `from` is not in the log, or the database's storage scheme has
/// none; [`Error::NotADatabase`],
/// [`Error::Corrupt`] and [`Error::OpenFailed`] when the control file or the log's segments cannot
/// be read.
pub fn log(disk: Arc<dyn Disk>, from: Option<Lsn>) -> Result<LogEntries> {
    log_of(disk, LogId::ZERO, from)
}

/// Reads one of several logs as [`log()`] does.
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
