//! The steps that scripts are made of, and what a step gives.

use std::fmt;
use std::ops::Bound;

use crate::model::{Key, Value, brief};

/// Which of the transactions that a client has open at once.
pub type Slot = usize;

/// A range of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// Where it begins.
    pub from: Bound<Key>,
    /// Where it ends.
    pub to: Bound<Key>,
}

impl KeyRange {
    /// Every key.
    pub const ALL: Self = Self { from: Bound::Unbounded, to: Bound::Unbounded };

    /// Returns the range as the engine's scans take it.
    pub fn as_bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.from.as_ref().map(Vec::as_slice), self.to.as_ref().map(Vec::as_slice))
    }

    /// Returns whether no key can lie in it, as `BTreeMap::range` sees it: such a range would panic
    /// there.
    pub fn is_inverted(&self) -> bool {
        match (&self.from, &self.to) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Excluded(from), Bound::Excluded(to)) => from >= to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from > to,
        }
    }
}

/// What a transaction does to one record, or reads.
#[derive(Clone, Debug)]
pub enum Action {
    /// `Txn::get`.
    Get(Key),
    /// `Txn::get_for_update`.
    GetForUpdate(Key),
    /// `Txn::insert`.
    Insert(Key, Value),
    /// `Txn::put`.
    Put(Key, Value),
    /// `Txn::update`.
    Update(Key, Value),
    /// `Txn::delete`.
    Delete(Key),
    /// `Txn::delete_range`.
    DeleteRange(KeyRange),
    /// `Txn::scan`, or `Txn::scan_rev` when `reverse`, ended after `limit` records.
    Scan {
        /// What is scanned.
        range: KeyRange,
        /// Descending.
        reverse: bool,
        /// The most records taken.
        limit: usize,
    },
}

/// One step of a script: one call of the public interface.
#[derive(Clone, Debug)]
pub enum Step {
    /// Begins a transaction in a free slot.
    Begin(Slot),
    /// Acts on a table.
    Act(Slot, String, Action),
    /// Sets a savepoint; they are numbered from 0 in each transaction.
    Savepoint(Slot),
    /// Rolls back to the savepoint of this number; later ones are gone.
    RollbackTo(Slot, usize),
    /// Commits.
    Commit(Slot),
    /// Aborts.
    Abort(Slot),
    /// Creates a table.
    CreateTable(String),
    /// Drops a table.
    DropTable(String),
    /// Loads a table that is new or empty with sorted records.
    BulkLoad(String, Vec<(Key, Value)>),
    /// Takes a checkpoint.
    Checkpoint,
    /// Closes the database and opens it again; no transaction is open.
    Reopen,
    /// Aborts what is open, lets go of the database without closing it and opens it again, as when
    /// the process ends and the machine does not.
    Restart,
}

/// What a step gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was done.
    Done,
    /// The value found.
    Value(Option<Value>),
    /// Whether the record existed.
    Existed(bool),
    /// The number of records.
    Count(u64),
    /// The records scanned.
    Records(Vec<(Key, Value)>),
    /// Refused: the key exists.
    KeyExists,
    /// Refused: the key does not exist.
    KeyNotFound,
    /// Refused: the table exists.
    TableExists,
    /// Refused: the table has records.
    TableNotEmpty,
    /// Refused: no such table.
    NoSuchTable,
    /// Not tried, because the transaction it belongs to is gone.
    Skipped,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get(key) => write!(f, "get {}", brief(key)),
            Self::GetForUpdate(key) => write!(f, "get for update {}", brief(key)),
            Self::Insert(key, value) => write!(f, "insert {} = {} bytes", brief(key), value.len()),
            Self::Put(key, value) => write!(f, "put {} = {} bytes", brief(key), value.len()),
            Self::Update(key, value) => write!(f, "update {} = {} bytes", brief(key), value.len()),
            Self::Delete(key) => write!(f, "delete {}", brief(key)),
            Self::DeleteRange(range) => {
                let (from, to) = range.as_bounds();
                write!(f, "delete {:?} to {:?}", from.map(brief), to.map(brief))
            }
            Self::Scan { range, reverse, limit } => {
                let direction = if *reverse { "scan down" } else { "scan" };
                let (from, to) = range.as_bounds();
                write!(f, "{direction} {:?} to {:?}, at most {limit}", from.map(brief), to.map(brief))
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin(slot) => write!(f, "begin T{slot}"),
            Self::Act(slot, table, action) => write!(f, "T{slot} {action} in `{table}`"),
            Self::Savepoint(slot) => write!(f, "T{slot} savepoint"),
            Self::RollbackTo(slot, number) => write!(f, "T{slot} roll back to savepoint {number}"),
            Self::Commit(slot) => write!(f, "T{slot} commit"),
            Self::Abort(slot) => write!(f, "T{slot} abort"),
            Self::CreateTable(name) => write!(f, "create table `{name}`"),
            Self::DropTable(name) => write!(f, "drop table `{name}`"),
            Self::BulkLoad(name, records) => write!(f, "load {} records into table `{name}`", records.len()),
            Self::Checkpoint => f.write_str("checkpoint"),
            Self::Reopen => f.write_str("close and reopen"),
            Self::Restart => f.write_str("drop the handle and reopen"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Value(None) => f.write_str("no value"),
            Self::Value(Some(value)) => write!(f, "value {}", brief(value)),
            Self::Count(count) => write!(f, "{count} records"),
            Self::Existed(existed) => write!(f, "existed: {existed}"),
            Self::Records(records) => {
                write!(f, "{} records", records.len())?;
                if let (Some((first, _)), Some((last, _))) = (records.first(), records.last()) {
                    write!(f, " from {} to {}", brief(first), brief(last))?;
                }
                Ok(())
            }
            Self::KeyExists => f.write_str("key exists"),
            Self::KeyNotFound => f.write_str("key not found"),
            Self::TableExists => f.write_str("table exists"),
            Self::TableNotEmpty => f.write_str("table not empty"),
            Self::NoSuchTable => f.write_str("no such table"),
            Self::Skipped => f.write_str("skipped"),
        }
    }
}
