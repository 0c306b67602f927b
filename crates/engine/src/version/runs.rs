//! Runs: neighbouring records that one transaction has deleted together.
//!
//! A run takes a part of the time and the memory of as many nodes, because it has no values: a
//! deleted record stays in its leaf as a ghost, with its value, as long as a snapshot may need it.
//! A transaction that is about to change the value of such a cell, because it inserts the record
//! again, or because the deletion was taken back to a savepoint, stores the value in the run before
//! ([`Runs::store`]). It holds the latch of the leaf. A reader that finds no value in the run takes
//! that of the leaf, and then validates the leaf: if the leaf has not changed, the value was
//! still the old one. Where ghosts lose their values with their frame in the pool (tuples of
//! `pcm-logging`), nodes are published instead of runs.
//!
//! Runs are found by the order of keys, so the ranges of keys of no two of them overlap: a deletion
//! whose range overlaps with that of a run publishes nodes instead. Runs are freed as nodes are,
//! but long chains are not pruned of them.
//!
//! A transaction adds no node of a record that lies in one of its runs, but it may add a run over
//! records of which it has nodes. So where it has both, the node is older. A reader decides this by
//! the writer itself, because the writer's outcome may change between two looks at it.

use std::collections::BTreeMap;
use std::ops::Bound;

use duramen_sync::atomic::{AtomicUsize, Ordering};
use duramen_sync::{Arc, RwLock};
use duramen_types::TableId;

use super::writer::Writer;
use crate::page::SlotFlags;

/// A record that is deleted, as its leaf has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deleted<'a> {
    pub(crate) key: &'a [u8],
    /// The value in the leaf, which may be a reference to overflow pages.
    pub(crate) value: &'a [u8],
    pub(crate) flags: SlotFlags,
}

/// The table of a run, and its first key.
pub(super) type Place = (TableId, Box<[u8]>);

/// The runs of one table, by first key.
type OfTable = BTreeMap<Box<[u8]>, Run>;

/// The runs of all transactions.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// Their number. Stored under the lock.
    count: AtomicUsize,
    tables: RwLock<BTreeMap<TableId, OfTable>>,
}

/// The records of one run.
#[derive(Debug)]
struct Run {
    writer: Arc<Writer>,
    /// In the order of the keys.
    records: Box<[Record]>,
    /// The keys of all records.
    keys: Box<[u8]>,
    /// Empty, or for each record the value that its leaf may not have any more.
    stored: Box<[Option<Box<[u8]>>]>,
}

#[derive(Debug)]
struct Record {
    /// Where its key ends in those of the run.
    end: u32,
    /// Those of the record before the deletion.
    flags: SlotFlags,
}

impl Runs {
    /// Returns whether there is no run. Costs one read of memory.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Adds a run of these records, which are in the order of their keys; returns the bytes of
    /// memory that it takes, or nothing if it overlaps with another one.
    pub(super) fn add(&self, writer: &Arc<Writer>, table: TableId, records: &[Deleted<'_>]) -> Option<u64> {
        let (first, last) = (records.first()?.key, records.last()?.key);
        let run = Run::new(Arc::clone(writer), records);
        let size = run.size();
        let mut tables = self.tables.write();
        let runs = tables.entry(table).or_default();
        if at_or_below(runs, last).is_some_and(|below| below.last() >= first) {
            return None;
        }
        runs.insert(first.into(), run);
        self.count.store(self.count.load(Ordering::Relaxed) + 1, Ordering::Release);
        Some(size)
    }

    /// Removes these runs; returns the bytes of memory that they took.
    pub(super) fn free(&self, places: &[Place]) -> u64 {
        if places.is_empty() {
            return 0;
        }
        // Their memory is given back when others may look again.
        let mut freed = Vec::with_capacity(places.len());
        {
            let mut tables = self.tables.write();
            for (table, first) in places {
                let runs = tables.get_mut(table).expect("a run stays until it is freed");
                freed.push(runs.remove(first).expect("a run stays until it is freed"));
                if runs.is_empty() {
                    tables.remove(table);
                }
            }
            self.count.store(self.count.load(Ordering::Relaxed) - places.len(), Ordering::Release);
        }
        freed.iter().map(Run::size).sum()
    }

    /// Stores the value that a record has in its leaf, if it lies in a run and has no value there;
    /// returns the bytes of memory that the value takes. The caller has latched the leaf.
    pub(super) fn store(&self, table: TableId, key: &[u8], value: &[u8]) -> u64 {
        if self.with(table, key, |_, stored, _| stored.is_none()) != Some(true) {
            return 0;
        }
        let mut tables = self.tables.write();
        let run = tables.get_mut(&table).and_then(|runs| at_or_below_mut(runs, key));
        // It may have been freed meanwhile.
        let Some((run, at)) = run.and_then(|run| run.find(key).map(|at| (run, at))) else { return 0 };
        let mut added = value.len();
        if run.stored.is_empty() {
            run.stored = run.records.iter().map(|_| None).collect();
            added += size_of_val(&run.stored[..]);
        }
        run.stored[at] = Some(value.into());
        added as u64
    }

    /// Calls `found` with the writer of a record, its value if the leaf may not have it any more,
    /// and its flags, if it lies in a run.
    pub(super) fn with<T>(
        &self,
        table: TableId,
        key: &[u8],
        found: impl FnOnce(&Arc<Writer>, Option<&[u8]>, SlotFlags) -> T,
    ) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let tables = self.tables.read();
        let run = at_or_below(tables.get(&table)?, key)?;
        let at = run.find(key)?;
        let stored = run.stored.get(at).and_then(Option::as_deref);
        Some(found(&run.writer, stored, run.records[at].flags))
    }
}

/// Returns the run that begins at `key`, or the one before.
fn at_or_below<'r>(runs: &'r OfTable, key: &[u8]) -> Option<&'r Run> {
    runs.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back().map(|(_, run)| run)
}

/// Does the same to change the run.
fn at_or_below_mut<'r>(runs: &'r mut OfTable, key: &[u8]) -> Option<&'r mut Run> {
    runs.range_mut::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back().map(|(_, run)| run)
}

impl Run {
    fn new(writer: Arc<Writer>, deleted: &[Deleted<'_>]) -> Self {
        let len = deleted.iter().map(|record| record.key.len()).sum();
        let (mut keys, mut records) = (Vec::with_capacity(len), Vec::with_capacity(deleted.len()));
        for Deleted { key, flags, .. } in deleted {
            keys.extend_from_slice(key);
            records.push(Record { end: keys.len() as u32, flags: *flags });
        }
        Self { writer, records: records.into(), keys: keys.into(), stored: Box::default() }
    }

    fn key(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.records[before].end as usize);
        &self.keys[start..self.records[at].end as usize]
    }

    fn last(&self) -> &[u8] {
        self.key(self.records.len() - 1)
    }

    fn find(&self, key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.records.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.key(middle).cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// Returns the bytes of memory that the run takes, with its first key in two places.
    fn size(&self) -> u64 {
        let places = 2 * (size_of::<Place>() + self.key(0).len());
        let stored: usize = self.stored.iter().flatten().map(|value| value.len()).sum();
        let lists = size_of_val(&self.records[..]) + size_of_val(&self.stored[..]);
        (size_of::<Self>() + lists + self.keys.len() + stored + places) as u64
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;

    const TABLE: TableId = TableId::new(16);

    fn run_of<'a>(keys: &[&'a [u8]]) -> Vec<Deleted<'a>> {
        keys.iter().map(|key| Deleted { key, value: &key[..1], flags: SlotFlags::NONE }).collect()
    }

    /// Returns the value of a record that lies in a run: one that is stored there, or empty.
    fn value(runs: &Runs, key: &[u8]) -> Option<Vec<u8>> {
        runs.with(TABLE, key, |_, stored, _| stored.unwrap_or_default().to_vec())
    }

    #[test]
    fn a_record_is_found_in_its_run_and_in_no_other() {
        let (runs, writer) = (Runs::default(), Arc::default());
        assert!(runs.is_empty() && value(&runs, b"b").is_none());
        let size = runs.add(&writer, TABLE, &run_of(&[b"b", b"cc", b"f"])).expect("nothing is there");
        assert!(runs.add(&writer, TABLE, &run_of(&[b"g", b"h"])).is_some());
        let stored = runs.store(TABLE, b"cc", b"value");
        assert!(stored > 5);
        assert_eq!(runs.store(TABLE, b"cc", b"a later value"), 0, "it has its value");
        for outside in [&b"a"[..], b"c", b"i"] {
            assert_eq!(runs.store(TABLE, outside, b"value"), 0);
            assert!(value(&runs, outside).is_none(), "{outside:?}");
        }
        for (key, expected) in [(&b"b"[..], &b""[..]), (b"cc", b"value"), (b"f", b""), (b"h", b"")] {
            assert_eq!(value(&runs, key).as_deref(), Some(expected), "{key:?}");
        }
        assert!(runs.with(TableId::new(17), b"b", |_, _, _| ()).is_none(), "of another table");
        assert_eq!(runs.free(&[(TABLE, b"b"[..].into())]), size + stored);
        assert!(value(&runs, b"cc").is_none() && value(&runs, b"g").is_some());
        assert_eq!(runs.store(TABLE, b"cc", b"value"), 0, "it is freed");
        runs.free(&[(TABLE, b"g"[..].into())]);
        assert!(runs.is_empty());
    }

    #[test]
    fn runs_do_not_overlap() {
        let (runs, writer) = (Runs::default(), Arc::default());
        runs.add(&writer, TABLE, &run_of(&[b"d", b"g"])).expect("nothing is there");
        for overlapping in [&[&b"d"[..], b"g"][..], &[b"a", b"d"], &[b"e", b"f"], &[b"g", b"h"], &[b"a", b"z"]] {
            assert!(runs.add(&writer, TABLE, &run_of(overlapping)).is_none(), "{overlapping:?}");
        }
        assert!(runs.add(&writer, TABLE, &run_of(&[b"a", b"c"])).is_some());
        assert!(runs.add(&writer, TABLE, &run_of(&[b"ga", b"h"])).is_some());
        assert!(runs.add(&writer, TableId::new(17), &run_of(&[b"d", b"g"])).is_some(), "of another table");
    }
}
