//! The nodes, in buckets by the keys of their records, and the runs beside them.

use duramen_sync::atomic::{AtomicU8, AtomicU64, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, Mutex, Striped, prefetch};
use duramen_types::{Gsn, TableId, planted};

use super::STRIPES;
use super::kept::Entry;
use super::node::{Node, prune, tag_of};
use super::registry::Registry;
use super::runs::{Deleted, Place, Runs};
use super::writer::{Outcome, Writer};
use crate::lock::LockId;
use crate::page::SlotFlags;

/// A new node makes its bucket be pruned when there are this many, or a larger power of two: a
/// record that many transactions change before they are hardened is seldom searched in vain.
const LONG_CHAIN: usize = if cfg!(duramen_loom) { 8 } else { 32 };

/// What a snapshot finds beside the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    /// The page has the record as the snapshot shows it.
    Current,
    /// The snapshot shows no record.
    Absent,
    /// The snapshot shows an older value, which was appended to the caller's buffer.
    Value(SlotFlags),
    /// A transaction is committing: read again.
    Unsettled,
}

/// A run has this many records: fewer are as good as nodes.
const LEAST_OF_RUN: usize = if cfg!(duramen_loom) { 1 } else { 2 };

/// The nodes and runs of all records.
#[derive(Debug)]
pub(super) struct Buckets {
    /// The logarithm of their number.
    bits: u32,
    buckets: Box<[Mutex<Vec<Node>>]>,
    /// One for a bucket with nodes, zero for an empty one. Stored under the bucket's mutex.
    marks: Box<[AtomicU8]>,
    runs: Runs,
    /// Bytes of nodes and runs, as a sum that wraps around in each part.
    bytes: Striped<AtomicU64, STRIPES>,
}

impl Buckets {
    pub(super) fn new(bits: u32) -> Self {
        let buckets = (0..1_usize << bits).map(|_| Mutex::default()).collect();
        let marks = (0..1_usize << bits).map(|_| AtomicU8::new(0)).collect();
        Self { bits, buckets, marks, runs: Runs::default(), bytes: Striped::default() }
    }

    #[inline]
    fn bucket_of(&self, table: TableId, key: &[u8]) -> usize {
        LockId::record(table, key).bucket(self.bits)
    }

    fn mark(&self, number: usize, nodes: &mut Vec<Node>) {
        if nodes.is_empty() {
            // Most buckets stay empty for long.
            *nodes = Vec::new();
        }
        self.marks[number].store(u8::from(!nodes.is_empty()), Ordering::Release);
    }

    #[inline]
    fn request_bucket(&self, number: usize) {
        prefetch(std::ptr::from_ref(&self.buckets[number]).cast());
    }

    /// Adds a node, and returns its bucket, unless the writer has an older value of this record: a
    /// node, or a part of a run.
    pub(super) fn add(&self, writer: &Arc<Writer>, entry: Entry<'_>, registry: &Registry) -> Option<u32> {
        let Entry { table, key, before, .. } = entry;
        let (number, tag) = (self.bucket_of(table, key), tag_of(table, key));
        let mut nodes = self.buckets[number].lock();
        // The keys of other transactions' nodes are in the caches of other processors.
        if nodes.iter().rev().any(|node| Arc::ptr_eq(&node.writer, writer) && node.is_of(tag, table, key)) {
            return None;
        }
        if self.runs.with(table, key, |owner, _, _| Arc::ptr_eq(owner, writer)) == Some(true) {
            return None;
        }
        if nodes.len() >= LONG_CHAIN && nodes.len().is_power_of_two() {
            let (open, horizon) = registry.positions();
            let freed = prune(&mut nodes, table, key, &open, horizon);
            if freed > 0 {
                reach(Probe::VersionsPruned);
                self.bytes.own().1.fetch_sub(freed, Ordering::Relaxed);
            }
        }
        let node = Node::new(Arc::clone(writer), table, key, before);
        self.bytes.own().1.fetch_add(node.size(), Ordering::Relaxed);
        nodes.push(node);
        self.marks[number].store(u8::from(!planted!(VersionPushedLate)), Ordering::Release);
        Some(number as u32)
    }

    /// Adds a run of records that are in the order of their keys, and returns its place, unless
    /// they must be added one by one: they are few, or there is another run among them.
    pub(super) fn add_run(&self, writer: &Arc<Writer>, table: TableId, records: &[Deleted<'_>]) -> Option<Place> {
        if records.len() < LEAST_OF_RUN {
            return None;
        }
        let size = self.runs.add(writer, table, records)?;
        reach(Probe::RunPublished);
        self.bytes.own().1.fetch_add(size, Ordering::Relaxed);
        Some((table, records[0].key.into()))
    }

    /// Marks buckets as not empty: what a planted bug has left out.
    pub(super) fn mark_late(&self, buckets: &[u32]) {
        for number in buckets {
            self.marks[*number as usize].store(1, Ordering::Release);
        }
    }

    /// Removes a writer's nodes.
    pub(super) fn free(&self, writer: &Arc<Writer>, buckets: &[u32]) {
        const AHEAD: usize = 8;
        let mut freed = 0;
        for (place, &number) in buckets.iter().enumerate() {
            if let Some(&later) = buckets.get(place + AHEAD) {
                self.request_bucket(later as usize);
            }
            let number = number as usize;
            let mut nodes = self.buckets[number].lock();
            nodes.retain(|node| {
                let is_own = Arc::ptr_eq(&node.writer, writer);
                if is_own {
                    freed += node.size();
                }
                !is_own
            });
            self.mark(number, &mut nodes);
        }
        self.bytes.own().1.fetch_sub(freed, Ordering::Relaxed);
    }

    /// Removes a writer's runs.
    pub(super) fn free_runs(&self, places: &[Place]) {
        self.bytes.own().1.fetch_sub(self.runs.free(places), Ordering::Relaxed);
    }

    /// Finds the version of a record at position `at`. An older value is appended to `out`.
    #[inline]
    pub(super) fn version_at(&self, table: TableId, key: &[u8], at: Gsn, out: &mut Vec<u8>) -> Version {
        let bucket = self.marked_bucket(table, key);
        if bucket.is_none() && self.runs.is_empty() {
            return Version::Current;
        }
        self.find(bucket, table, key, at, out)
    }

    /// Returns the bucket of a record if it is not empty.
    #[inline]
    fn marked_bucket(&self, table: TableId, key: &[u8]) -> Option<&Mutex<Vec<Node>>> {
        let number = self.bucket_of(table, key);
        (self.marks[number].load(Ordering::Acquire) != 0).then(|| &self.buckets[number])
    }

    fn find(
        &self,
        bucket: Option<&Mutex<Vec<Node>>>,
        table: TableId,
        key: &[u8],
        at: Gsn,
        out: &mut Vec<u8>,
    ) -> Version {
        let (tag, nodes) = (tag_of(table, key), bucket.map(Mutex::lock));
        // The oldest one that the snapshot does not show.
        let mut oldest: Option<(&Node, Rank)> = None;
        for node in nodes.iter().flat_map(|nodes| nodes.iter()).filter(|node| node.is_of(tag, table, key)) {
            match turn_of(&node.writer, at) {
                Err(Unsettled) => return Version::Unsettled,
                Ok(Some(turn)) if oldest.is_none_or(|(_, older)| turn < older) => oldest = Some((node, turn)),
                Ok(_) => {}
            }
        }
        let of_run = self.runs.with(table, key, |writer, value, flags| match turn_of(writer, at) {
            // A node of the same transaction is older, even if the transaction has committed since
            // its outcome was read for the node.
            _ if oldest.is_some_and(|(node, _)| Arc::ptr_eq(&node.writer, writer)) => None,
            Err(Unsettled) => Some(Version::Unsettled),
            Ok(Some(turn)) if oldest.is_none_or(|(_, older)| turn < older) => {
                reach(Probe::RunRead);
                out.extend_from_slice(value);
                Some(Version::Value(flags))
            }
            Ok(_) => None,
        });
        if let Some(version) = of_run.flatten() {
            return version;
        }
        match oldest {
            None => Version::Current,
            Some((node, _)) => match node.flags {
                None => Version::Absent,
                Some(flags) => {
                    reach(Probe::OlderVersionRead);
                    out.extend_from_slice(node.value());
                    Version::Value(flags)
                }
            },
        }
    }

    /// Returns whether a record has a node with a value, or lies in a run, that snapshots may need
    /// which show no commit beyond `reclaimable`, or which are opened later.
    pub(super) fn has_needed(&self, table: TableId, key: &[u8], reclaimable: impl FnOnce() -> Gsn) -> bool {
        let bucket = self.marked_bucket(table, key);
        if bucket.is_none() && self.runs.is_empty() {
            return false;
        }
        let until = reclaimable();
        let is_needed = |writer: &Writer| match writer.outcome() {
            Outcome::Committed(at, _) => at > until,
            Outcome::Active | Outcome::Committing => true,
            Outcome::Aborted => false,
        };
        let (tag, nodes) = (tag_of(table, key), bucket.map(Mutex::lock));
        let all = nodes.iter().flat_map(|nodes| nodes.iter());
        let mut values = all.filter(|node| node.flags.is_some() && node.is_of(tag, table, key));
        values.any(|node| is_needed(&node.writer))
            || self.runs.with(table, key, |writer, _, _| is_needed(writer)) == Some(true)
    }

    /// Returns the bytes of memory that the nodes and runs take.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.iter().fold(0, |sum, part| sum.wrapping_add(part.load(Ordering::Relaxed)))
    }
}

/// Of a commit: its position and its turn among those of the same position.
type Rank = (Gsn, u64);

/// A transaction is committing: the caller reads again.
struct Unsettled;

/// Returns the turn of a writer whose commit a snapshot at position `at` does not show, and nothing
/// of one whose changes it shows, or whose values from before the page has again.
fn turn_of(writer: &Writer, at: Gsn) -> Result<Option<Rank>, Unsettled> {
    match writer.outcome() {
        Outcome::Committing => Err(Unsettled),
        // Its commit will be the last one.
        Outcome::Active => Ok(Some((Gsn::MAX, u64::MAX))),
        Outcome::Committed(position, turn) if position > at => Ok(Some((position, turn))),
        Outcome::Committed(..) | Outcome::Aborted => Ok(None),
    }
}
