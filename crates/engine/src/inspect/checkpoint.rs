//! The latest checkpoint: the contents of the control file, and the tables in the log.

use std::fmt;

use duramen_io::Disk;
use duramen_sync::Arc;
use duramen_types::{Gsn, LogAddress, LogId, Lsn, PageId, TxnId};
use duramen_wal::LogReader;

use super::{describe, text};
use crate::checkpoint::control::{Control, ControlFile, SchemeId, read_slots};
use crate::checkpoint::tables::{CheckpointEnd, decode_pages, decode_txns};
use crate::error::Result;
use crate::record::Kind;

/// Number of rows of a table that `Display` shows.
const SHOWN: usize = 10;

/// The contents of an intact slot of the control file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlSlot {
    /// The slot's sequence number. The slot with the higher number counts.
    pub sequence: u64,
    /// The database's identity.
    pub database: [u8; 16],
    /// The begin record of the latest complete checkpoint.
    pub checkpoint: Lsn,
    /// Redo begins here at the earliest.
    pub redo: Gsn,
    /// The start of the log that is still needed.
    pub oldest: Gsn,
    /// No transaction number below this is given out again.
    pub next_txn: TxnId,
    /// When the slot was written, in microseconds since 1970.
    pub written: u64,
    /// At least this many groups of pages have an allocation bitmap.
    pub groups: u64,
    /// The generation that the other files are stamped with; 0 in a database whose format has no
    /// stamps.
    pub generation: u64,
    /// The storage scheme: `wal`, or one without a log: then the fields about checkpoints, logs,
    /// transactions and groups do not count.
    pub scheme: &'static str,
    /// Whether the database was closed in order, and nothing was written since.
    pub is_clean: bool,
    /// Number of logs.
    pub logs: u16,
    /// With several logs, the GSN up to which all of them are complete.
    pub complete: Gsn,
}

/// A transaction that had not ended at a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActiveTransaction {
    /// The transaction's number.
    pub txn: TxnId,
    /// The transaction's state: `active`, or `committed` (pages were still to be freed).
    pub state: &'static str,
    /// The transaction's first record.
    pub first: Gsn,
    /// The transaction's latest record.
    pub last: LogAddress,
}

/// The tables of a checkpoint, from the log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckpointTables {
    /// The transactions that had not ended.
    pub transactions: Vec<ActiveTransaction>,
    /// The pages that may have lacked changes in the data file, each with the first such change.
    pub dirty_pages: Vec<(PageId, Gsn)>,
    /// The address of the end record.
    pub end: Lsn,
}

/// The latest checkpoint of a database. `Display` formats it for human readers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckpointReport {
    /// The two slots of the control file, or for each unusable slot the reason.
    pub slots: [Result<ControlSlot, String>; 2],
    /// The tables, or the reason why they cannot be read.
    pub tables: Result<CheckpointTables, String>,
}

impl ControlSlot {
    /// Returns whether the storage scheme keeps a log.
    fn has_log(&self) -> bool {
        self.scheme == SchemeId::Wal.name()
    }
}

impl CheckpointReport {
    /// Returns the slot that counts, unless both are damaged.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duramen::{Db, Options, inspect};
    /// # fn main() -> duramen::Result<()> {
    /// # let disk = duramen_io::SimDisk::new(1);
    /// Db::open_on(Arc::new(disk.clone()), Options::small())?.close()?;
    /// let report = || inspect::checkpoint(Arc::new(disk.clone()));
    /// assert!(report()?.current().unwrap().is_clean);
    ///
    /// disk.flip_bit("control", 20, 0); // damages the first slot
    /// assert_eq!(report()?.current(), report()?.slots[1].as_ref().ok());
    /// disk.flip_bit("control", 4096 + 20, 0);
    /// assert_eq!(report()?.current(), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn current(&self) -> Option<&ControlSlot> {
        self.slots.iter().flatten().max_by_key(|slot| slot.sequence)
    }
}

/// Reads the control file of a closed database, and the tables of the checkpoint that it names.
///
/// ```
/// # use std::sync::Arc;
/// # use duramen::{Db, Options, inspect};
/// # use duramen_io::{CrashChoice, SimDisk};
/// # fn main() -> duramen::Result<()> {
/// # let disk = SimDisk::new(1);
/// # let db = Db::open_on(Arc::new(disk.clone()), Options::small())?;
/// let orders = db.create_table("orders")?;
/// let mut order = db.begin();
/// order.put(&orders, b"17", b"two chairs")?;
/// db.checkpoint()?;
/// let after_crash = disk.crash_image(&CrashChoice::Nothing);
///
/// let tables = inspect::checkpoint(Arc::new(after_crash))?.tables.unwrap();
/// let interrupted = &tables.transactions[0];
/// assert_eq!((interrupted.txn, interrupted.state), (order.id(), "active"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Error::Corrupt`] when the control file is cut short, [`crate::Error::OpenFailed`] when
/// it cannot be read. Any other damage is in the report.
pub fn checkpoint(disk: Arc<dyn Disk>) -> Result<CheckpointReport> {
    let slots =
        read_slots(&*disk).map_err(|error| error.in_opening(disk.location()))?.map(|slot| slot.map(ControlSlot::from));
    let tables = Err("no slot of the control file is intact".to_owned());
    let mut report = CheckpointReport { slots, tables };
    if let Some(&slot) = report.current() {
        report.tables = if slot.has_log() { read_tables(&*disk, &slot) } else { Err(no_checkpoints(slot.scheme)) };
    }
    Ok(report)
}

fn no_checkpoints(scheme: &str) -> String {
    let instead = match scheme {
        "pcm-logging" => "`duramen inspect pcm` prints its memory",
        _ => "`duramen inspect heap` prints the heap with its journals",
    };
    format!("the scheme `{scheme}` has no log and takes no checkpoints; {instead}")
}

/// Returns the name of the storage scheme of a closed database.
///
/// A preset is not a scheme of its own:
///
/// ```
/// # use std::sync::Arc;
/// # use duramen::{Db, Options, Scheme, inspect};
/// # fn main() -> duramen::Result<()> {
/// # let disk = duramen_io::SimDisk::new(1);
/// let options = Options { scheme: Scheme::NoPcm, ..Options::small() };
/// Db::open_on(Arc::new(disk.clone()), options)?.close()?;
/// assert_eq!(inspect::scheme(&disk)?, "wal");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Error::Corrupt`], [`crate::Error::WrongVersion`] and [`crate::Error::NotADatabase`]
/// when no slot of the control file can be used, [`crate::Error::OpenFailed`] when it cannot be
/// read.
pub fn scheme(disk: &dyn Disk) -> Result<&'static str> {
    let file = ControlFile::open(disk).map_err(|error| error.in_opening(disk.location()))?;
    Ok(file.control.scheme.name())
}

fn read_tables(disk: &dyn Disk, slot: &ControlSlot) -> Result<CheckpointTables, String> {
    let text = |error: duramen_wal::WalError| error.to_string();
    let reader = LogReader::open(disk, LogId::ZERO, Some((slot.database, slot.logs))).map_err(text)?;
    let mut scanner = reader.scan(Some(slot.checkpoint)).map_err(text)?;
    let mut tables = CheckpointTables::default();
    let mut first = true;
    while let Some(record) = scanner.next().map_err(text)? {
        let kind = Kind::from_u8(record.kind);
        if std::mem::take(&mut first) && kind != Some(Kind::CheckpointBegin) {
            return Err(format!("the record at {} does not begin a checkpoint", record.lsn));
        }
        let malformed = |_| format!("the record at {} is malformed", record.lsn);
        match kind {
            Some(Kind::CheckpointTransactions) => {
                let (begin, entries) = decode_txns(record.payload).map_err(malformed)?;
                if begin == slot.checkpoint {
                    tables.transactions.extend(entries.iter().map(|entry| ActiveTransaction {
                        txn: entry.txn,
                        state: describe::txn_state(entry.state),
                        first: entry.first,
                        last: entry.last,
                    }));
                }
            }
            Some(Kind::CheckpointPages) => {
                let (begin, entries) = decode_pages(record.payload).map_err(malformed)?;
                if begin == slot.checkpoint {
                    tables.dirty_pages.extend(entries);
                }
            }
            Some(Kind::CheckpointEnd) => {
                let end = CheckpointEnd::decode(record.payload).map_err(malformed)?;
                if end.begin == slot.checkpoint {
                    tables.end = record.lsn;
                    return Ok(tables);
                }
            }
            _ => {}
        }
    }
    let reason = scanner.stopped_because().unwrap_or("the log ends");
    Err(format!("the log lacks the end of the checkpoint; reading stopped at {}: {reason}", scanner.position()))
}

impl From<Control> for ControlSlot {
    fn from(control: Control) -> Self {
        let Control { database, sequence, checkpoint, redo, oldest, next_txn, written, groups, .. } = control;
        let Control { generation, scheme, is_clean, logs, .. } = control;
        Self {
            sequence,
            database,
            checkpoint,
            redo,
            oldest,
            next_txn,
            written,
            groups,
            generation,
            scheme: scheme.name(),
            is_clean,
            logs: logs.count,
            complete: logs.complete,
        }
    }
}

impl fmt::Display for CheckpointReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, slot) in self.slots.iter().enumerate() {
            match slot {
                Ok(slot) => {
                    let counts = if self.current() == Some(slot) { " (the latest)" } else { "" };
                    write!(f, "slot {index}: number {}, ", slot.sequence)?;
                    if slot.has_log() {
                        write!(f, "checkpoint at {}, ", slot.checkpoint)?;
                    }
                    writeln!(f, "written {}{counts}", text::time(slot.written))?;
                }
                Err(reason) => writeln!(f, "slot {index}: unusable: {reason}")?,
            }
        }
        if let Some(slot) = self.current() {
            writeln!(f, "database: {}", text::hex(&slot.database))?;
            writeln!(f, "scheme: {}", slot.scheme)?;
            if slot.has_log() {
                writeln!(f, "checkpoint: {}", slot.checkpoint)?;
                writeln!(f, "redo from: {}", slot.redo)?;
                writeln!(f, "log needed from: {}", slot.oldest)?;
                writeln!(f, "next transaction: {}", slot.next_txn.get())?;
                writeln!(f, "groups of pages: {}", slot.groups.max(1))?;
            }
            let closed = if slot.is_clean { "closed cleanly" } else { "in use, or not closed cleanly" };
            writeln!(f, "generation: {}, {closed}", slot.generation)?;
            if slot.logs > 1 {
                writeln!(f, "logs: {}, complete up to {}", slot.logs, slot.complete)?;
            }
        }
        match &self.tables {
            Ok(tables) => write!(f, "{tables}"),
            Err(reason) if self.current().is_some_and(|slot| !slot.has_log()) => write!(f, "tables: none: {reason}"),
            Err(reason) => write!(f, "tables: unreadable: {reason}"),
        }
    }
}

impl fmt::Display for CheckpointTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (transactions, pages) = (self.transactions.len(), self.dirty_pages.len());
        write!(f, "complete at {}: {transactions} active transactions, {pages} dirty pages", self.end)?;
        for entry in self.transactions.iter().take(SHOWN) {
            write!(f, "\n{}: {}, from {} to {}", entry.txn, entry.state, entry.first, text::place(entry.last))?;
        }
        if transactions > SHOWN {
            write!(f, "\n... and {} more transactions", transactions - SHOWN)?;
        }
        for (page, gsn) in self.dirty_pages.iter().take(SHOWN) {
            write!(f, "\n{page}: dirty from {gsn} on")?;
        }
        if pages > SHOWN {
            write!(f, "\n... and {} more pages", pages - SHOWN)?;
        }
        Ok(())
    }
}
