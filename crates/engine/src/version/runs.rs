//! Runs: the values of neighbouring records that one transaction has deleted together.
//!
//! A run takes a part of the time and the memory of as many nodes. Runs are found by the order of
//! keys, so the ranges of keys of no two of them overlap: a deletion whose range overlaps with that
//! of a run publishes nodes instead. Runs are freed as nodes are, but long chains are not pruned of
//! them.
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

/// The values of one run.
#[derive(Debug)]
struct Run {
    writer: Arc<Writer>,
    /// In the order of the keys.
    records: Box<[Record]>,
    /// The key of each record, and behind it the value.
    bytes: Box<[u8]>,
}

/// Where a record ends in the bytes of its run.
#[derive(Debug)]
struct Record {
    key: u32,
    value: u32,
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

    /// Calls `found` with the value of a record and its writer, if it lies in a run.
    pub(super) fn with<T>(
        &self,
        table: TableId,
        key: &[u8],
        found: impl FnOnce(&Arc<Writer>, &[u8], SlotFlags) -> T,
    ) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let tables = self.tables.read();
        let run = at_or_below(tables.get(&table)?, key)?;
        let at = run.find(key)?;
        Some(found(&run.writer, run.value(at), run.records[at].flags))
    }
}

/// Returns the run that begins at `key`, or the one before.
fn at_or_below<'r>(runs: &'r OfTable, key: &[u8]) -> Option<&'r Run> {
    runs.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back().map(|(_, run)| run)
}

impl Run {
    fn new(writer: Arc<Writer>, deleted: &[Deleted<'_>]) -> Self {
        let len = deleted.iter().map(|record| record.key.len() + record.value.len()).sum();
        let (mut bytes, mut records) = (Vec::with_capacity(len), Vec::with_capacity(deleted.len()));
        for Deleted { key, value, flags } in deleted {
            bytes.extend_from_slice(key);
            let key = bytes.len() as u32;
            bytes.extend_from_slice(value);
            records.push(Record { key, value: bytes.len() as u32, flags: *flags });
        }
        Self { writer, records: records.into_boxed_slice(), bytes: bytes.into_boxed_slice() }
    }

    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.records[before].value as usize)
    }

    fn key(&self, at: usize) -> &[u8] {
        &self.bytes[self.start(at)..self.records[at].key as usize]
    }

    fn value(&self, at: usize) -> &[u8] {
        let Record { key, value, .. } = self.records[at];
        &self.bytes[key as usize..value as usize]
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
        (size_of::<Self>() + size_of_val(&self.records[..]) + self.bytes.len() + places) as u64
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;

    const TABLE: TableId = TableId::new(16);

    fn run_of<'a>(keys: &[&'a [u8]]) -> Vec<Deleted<'a>> {
        keys.iter().map(|key| Deleted { key, value: &key[..1], flags: SlotFlags::NONE }).collect()
    }

    fn value(runs: &Runs, key: &[u8]) -> Option<Vec<u8>> {
        runs.with(TABLE, key, |_, value, _| value.to_vec())
    }

    #[test]
    fn a_record_is_found_in_its_run_and_in_no_other() {
        let (runs, writer) = (Runs::default(), Arc::default());
        assert!(runs.is_empty() && value(&runs, b"b").is_none());
        let size = runs.add(&writer, TABLE, &run_of(&[b"b", b"cc", b"f"])).expect("nothing is there");
        assert!(runs.add(&writer, TABLE, &run_of(&[b"g", b"h"])).is_some());
        for (key, expected) in
            [(&b"a"[..], None), (b"b", Some(b"b")), (b"c", None), (b"cc", Some(b"c")), (b"f", Some(b"f"))]
        {
            assert_eq!(value(&runs, key), expected.map(|value| value.to_vec()), "{key:?}");
        }
        assert_eq!(value(&runs, b"h"), Some(b"h".to_vec()));
        assert!(value(&runs, b"i").is_none());
        assert!(runs.with(TableId::new(17), b"b", |_, _, _| ()).is_none(), "of another table");
        assert_eq!(runs.free(&[(TABLE, b"b"[..].into())]), size);
        assert!(value(&runs, b"cc").is_none() && value(&runs, b"g").is_some());
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
