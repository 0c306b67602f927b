//! The reference implementation: what every step must give, by maps in memory.

use std::collections::BTreeMap;

use crate::model::{Key, Model, Records, Value};
use crate::step::{Action, KeyRange, Outcome, Slot, Step};

/// Uncommitted changes: by table and key, `None` for a deletion.
type Changes = BTreeMap<(String, Key), Option<Value>>;

#[derive(Clone, Debug, Default)]
struct OpenTxn {
    changes: Changes,
    savepoints: Vec<Changes>,
}

/// A database in memory whose open transactions do not touch the same keys.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// What is committed.
    pub committed: Model,
    open: BTreeMap<Slot, OpenTxn>,
}

impl Oracle {
    /// Returns a database with these contents and no open transaction.
    pub fn new(committed: Model) -> Self {
        Self { committed, open: BTreeMap::new() }
    }

    /// Returns whether `slot` has an open transaction.
    pub fn is_open(&self, slot: Slot) -> bool {
        self.open.contains_key(&slot)
    }

    /// Forgets the transaction in `slot`, as an abort does.
    pub fn forget(&mut self, slot: Slot) {
        self.open.remove(&slot);
    }

    /// Returns what `slot` sees of a key.
    pub fn get(&self, slot: Slot, table: &str, key: &[u8]) -> Option<Value> {
        let own = self.open.get(&slot).and_then(|txn| txn.changes.get(&(table.to_owned(), key.to_vec())));
        own.cloned().unwrap_or_else(|| self.committed.tables.get(table)?.get(key).cloned())
    }

    /// Returns what `slot` sees of a range, ascending.
    pub fn range(&self, slot: Slot, table: &str, range: &KeyRange) -> Records {
        if range.is_inverted() {
            return Records::new();
        }
        let within = (range.from.clone(), range.to.clone());
        let mut records: Records = match self.committed.tables.get(table) {
            Some(records) => records.range(within.clone()).map(|(key, value)| (key.clone(), value.clone())).collect(),
            None => Records::new(),
        };
        let own = self.open.get(&slot).into_iter().flat_map(|txn| &txn.changes);
        for ((name, key), value) in own {
            if name == table && std::ops::RangeBounds::contains(&within, key) {
                match value {
                    Some(value) => records.insert(key.clone(), value.clone()),
                    None => records.remove(key),
                };
            }
        }
        records
    }

    /// Returns the contents if the commit, or the change of tables, that `step` asks for takes
    /// effect; `None` for other steps.
    pub fn after(&self, step: &Step) -> Option<Model> {
        match step {
            Step::Commit(_) | Step::CreateTable(_) | Step::DropTable(_) | Step::BulkLoad(..) => {
                let mut changed = self.clone();
                changed.apply(step);
                Some(changed.committed)
            }
            _ => None,
        }
    }

    /// Does `step` and says what it must give.
    pub fn apply(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Begin(slot) => {
                let previous = self.open.insert(*slot, OpenTxn::default());
                assert!(previous.is_none(), "a script begins a transaction in a slot that is free");
                Outcome::Done
            }
            Step::Act(slot, table, action) if self.is_open(*slot) => self.act(*slot, table, action),
            Step::Savepoint(slot) => self.with(*slot, |txn| txn.savepoints.push(txn.changes.clone())),
            Step::RollbackTo(slot, number) => self.with(*slot, |txn| {
                txn.changes = txn.savepoints[*number].clone();
                txn.savepoints.truncate(number + 1);
            }),
            Step::Commit(slot) => match self.open.remove(slot) {
                Some(txn) => {
                    self.committed.apply(txn.changes);
                    Outcome::Done
                }
                None => Outcome::Skipped,
            },
            Step::Abort(slot) => self.open.remove(slot).map_or(Outcome::Skipped, |_| Outcome::Done),
            Step::CreateTable(name) => match self.committed.tables.contains_key(name) {
                true => Outcome::TableExists,
                false => {
                    self.committed.tables.insert(name.clone(), Records::new());
                    Outcome::Done
                }
            },
            Step::DropTable(name) => self.committed.tables.remove(name).map_or(Outcome::NoSuchTable, |_| Outcome::Done),
            Step::BulkLoad(name, records) => match self.committed.tables.get(name) {
                Some(table) if !table.is_empty() => Outcome::TableNotEmpty,
                _ => {
                    self.committed.tables.insert(name.clone(), records.iter().cloned().collect());
                    Outcome::Done
                }
            },
            Step::Checkpoint | Step::Reopen => Outcome::Done,
            Step::Restart => {
                self.open.clear();
                Outcome::Done
            }
            Step::Act(..) => Outcome::Skipped,
        }
    }

    fn with(&mut self, slot: Slot, change: impl FnOnce(&mut OpenTxn)) -> Outcome {
        self.open.get_mut(&slot).map_or(Outcome::Skipped, |txn| {
            change(txn);
            Outcome::Done
        })
    }

    fn act(&mut self, slot: Slot, table: &str, action: &Action) -> Outcome {
        if !self.committed.tables.contains_key(table) {
            return Outcome::NoSuchTable;
        }
        let existing = |key| self.get(slot, table, key);
        match action {
            Action::Get(key) | Action::GetForUpdate(key) => Outcome::Value(existing(key)),
            Action::Insert(key, _) if existing(key).is_some() => Outcome::KeyExists,
            Action::Update(key, _) if existing(key).is_none() => Outcome::KeyNotFound,
            Action::Insert(key, value) | Action::Update(key, value) | Action::Put(key, value) => {
                self.change(slot, table, key, Some(value.clone()));
                Outcome::Done
            }
            Action::Delete(key) => {
                let existed = existing(key).is_some();
                if existed {
                    self.change(slot, table, key, None);
                }
                Outcome::Existed(existed)
            }
            Action::DeleteRange(range) => {
                let keys: Vec<Key> = self.range(slot, table, range).into_keys().collect();
                keys.iter().for_each(|key| self.change(slot, table, key, None));
                Outcome::Count(keys.len() as u64)
            }
            Action::Scan { range, reverse, limit } => {
                let mut records: Vec<_> = self.range(slot, table, range).into_iter().collect();
                if *reverse {
                    records.reverse();
                }
                records.truncate(*limit);
                Outcome::Records(records)
            }
        }
    }

    fn change(&mut self, slot: Slot, table: &str, key: &Key, value: Option<Value>) {
        let txn = self.open.get_mut(&slot).expect("callers checked that the slot is open");
        txn.changes.insert((table.to_owned(), key.clone()), value);
    }
}

impl Model {
    fn apply(&mut self, changes: Changes) {
        for ((table, key), value) in changes {
            let records = self.tables.get_mut(&table).expect("tables are not dropped under an open transaction");
            match value {
                Some(value) => records.insert(key, value),
                None => records.remove(&key),
            };
        }
    }
}
