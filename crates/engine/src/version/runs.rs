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
use std::ptr::NonNull;

use bytes::{Bytes, BytesMut};
use duramen_io::{HUGE_PAGE, prefer_huge_pages};
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

/// The largest piece of memory for the bytes of runs, in bytes.
const LARGEST_PIECE: usize = 16 << 20;

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
    bytes: Bytes,
}

/// Memory for the bytes of a transaction's runs: pieces, each as large as all those before, for
/// several runs. The system provides large pieces in huge pages, which takes a fraction of the time
/// that as many small pages take.
#[derive(Debug, Default)]
pub(super) struct RunMemory {
    /// What is left of the last piece.
    left: BytesMut,
    /// Bytes of all pieces, without what is left.
    bytes: usize,
}

impl RunMemory {
    /// Returns the bytes of memory that are in use, with the remainders of earlier pieces.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Returns an empty buffer with room for `len` bytes, which count as in use.
    fn take(&mut self, len: usize) -> &mut BytesMut {
        if self.left.capacity() < len {
            self.bytes += self.left.capacity();
            self.left = piece(len.max(self.bytes.min(LARGEST_PIECE)));
        }
        self.bytes += len;
        &mut self.left
    }
}

/// Returns memory for at least `len` bytes.
fn piece(len: usize) -> BytesMut {
    if len < HUGE_PAGE / 2 {
        return BytesMut::with_capacity(len);
    }
    let len = len.next_multiple_of(HUGE_PAGE);
    let mut memory = BytesMut::with_capacity(len + HUGE_PAGE);
    let start = memory.spare_capacity_mut().as_mut_ptr();
    // Fresh memory that is never touched is not taken from the system: that before and behind.
    let skip = start.align_offset(HUGE_PAGE).min(HUGE_PAGE);
    let mut whole = memory.split_off(skip);
    drop(whole.split_off(len));
    prefer_huge_pages(NonNull::from(&mut whole.spare_capacity_mut()[0]).cast(), len);
    whole
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

    /// Adds a run of these records, which are in the order of their keys; returns the bytes that it
    /// takes beside `memory`, or nothing if it overlaps with another one.
    pub(super) fn add(
        &self,
        writer: &Arc<Writer>,
        table: TableId,
        records: &[Deleted<'_>],
        memory: &mut RunMemory,
    ) -> Option<u64> {
        let (first, last) = (records.first()?.key, records.last()?.key);
        let run = Run::new(Arc::clone(writer), records, memory);
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

    /// Removes these runs; returns the bytes that they took beside their memory.
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
    fn new(writer: Arc<Writer>, deleted: &[Deleted<'_>], memory: &mut RunMemory) -> Self {
        let len = deleted.iter().map(|record| record.key.len() + record.value.len()).sum();
        let (bytes, mut records) = (memory.take(len), Vec::with_capacity(deleted.len()));
        for Deleted { key, value, flags } in deleted {
            bytes.extend_from_slice(key);
            let key = bytes.len() as u32;
            bytes.extend_from_slice(value);
            records.push(Record { key, value: bytes.len() as u32, flags: *flags });
        }
        Self { writer, records: records.into_boxed_slice(), bytes: bytes.split().freeze() }
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

    /// Returns the bytes that the run takes beside its memory, with its first key in two places.
    fn size(&self) -> u64 {
        let places = 2 * (size_of::<Place>() + self.key(0).len());
        (size_of::<Self>() + size_of_val(&self.records[..]) + places) as u64
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
        let size = runs
            .add(&writer, TABLE, &run_of(&[b"b", b"cc", b"f"]), &mut RunMemory::default())
            .expect("nothing is there");
        assert!(runs.add(&writer, TABLE, &run_of(&[b"g", b"h"]), &mut RunMemory::default()).is_some());
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
        runs.add(&writer, TABLE, &run_of(&[b"d", b"g"]), &mut RunMemory::default()).expect("nothing is there");
        for overlapping in [&[&b"d"[..], b"g"][..], &[b"a", b"d"], &[b"e", b"f"], &[b"g", b"h"], &[b"a", b"z"]] {
            assert!(
                runs.add(&writer, TABLE, &run_of(overlapping), &mut RunMemory::default()).is_none(),
                "{overlapping:?}"
            );
        }
        assert!(runs.add(&writer, TABLE, &run_of(&[b"a", b"c"]), &mut RunMemory::default()).is_some());
        assert!(runs.add(&writer, TABLE, &run_of(&[b"ga", b"h"]), &mut RunMemory::default()).is_some());
        assert!(
            runs.add(&writer, TableId::new(17), &run_of(&[b"d", b"g"]), &mut RunMemory::default()).is_some(),
            "of another table"
        );
    }

    #[test]
    fn the_runs_of_a_transaction_share_pieces_of_memory() {
        const VALUE: usize = 100_000;
        let (runs, writer, mut memory) = (Runs::default(), Arc::default(), RunMemory::default());
        let mut bytes = Vec::new();
        let mut places = Vec::new();
        for n in 0..100_u8 {
            let value = vec![n; VALUE];
            let keys = [[n, 0], [n, 1]];
            let deleted = keys.each_ref().map(|key| Deleted { key, value: &value, flags: SlotFlags::NONE });
            runs.add(&writer, TABLE, &deleted, &mut memory).expect("nothing is there");
            bytes.push(memory.bytes());
            places.push((TABLE, Box::from(&keys[0][..])));
        }
        let run = 2 * (2 + VALUE) as u64;
        assert_eq!(bytes[..2], [run, 2 * run], "the first run has memory of its own");
        assert!(
            bytes.iter().zip(1..).all(|(bytes, runs)| *bytes >= runs * run && *bytes <= 2 * runs * run),
            "{bytes:?}"
        );
        drop(memory);
        for n in 0..100_u8 {
            assert_eq!(value(&runs, &[n, 1]), Some(vec![n; VALUE]));
        }
        runs.free(&places);
        assert!(runs.is_empty());
    }
}
