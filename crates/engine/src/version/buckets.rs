//! The nodes, in buckets by the keys of their records.

use duramen_sync::atomic::{AtomicU8, AtomicU64, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, Mutex, Striped, prefetch};
use duramen_types::{Gsn, TableId, planted};

use super::STRIPES;
use super::kept::Entry;
use super::node::{Node, prune, tag_of};
use super::registry::Registry;
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

/// The nodes of all records.
#[derive(Debug)]
pub(super) struct Buckets {
    /// The logarithm of their number.
    bits: u32,
    buckets: Box<[Mutex<Vec<Node>>]>,
    /// One for a bucket with nodes, zero for an empty one. Stored under the bucket's mutex.
    marks: Box<[AtomicU8]>,
    /// Bytes of nodes, as a sum that wraps around in each part.
    bytes: Striped<AtomicU64, STRIPES>,
}

impl Buckets {
    pub(super) fn new(bits: u32) -> Self {
        let buckets = (0..1_usize << bits).map(|_| Mutex::default()).collect();
        let marks = (0..1_usize << bits).map(|_| AtomicU8::new(0)).collect();
        Self { bits, buckets, marks, bytes: Striped::default() }
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

    /// Requests the bucket of a record to which a node is added soon.
    #[inline]
    pub(super) fn request(&self, table: TableId, key: &[u8]) {
        self.request_bucket(self.bucket_of(table, key));
    }

    #[inline]
    fn request_bucket(&self, number: usize) {
        prefetch(std::ptr::from_ref(&self.buckets[number]).cast());
    }

    /// Adds a node, and returns its bucket, unless the writer has one of this record: that one is
    /// older.
    pub(super) fn add(&self, writer: &Arc<Writer>, entry: Entry<'_>, registry: &Registry) -> Option<u32> {
        let Entry { table, key, before, .. } = entry;
        let (number, tag) = (self.bucket_of(table, key), tag_of(table, key));
        let mut nodes = self.buckets[number].lock();
        // The keys of other transactions' nodes are in the caches of other processors.
        if nodes.iter().rev().any(|node| Arc::ptr_eq(&node.writer, writer) && node.is_of(tag, table, key)) {
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

    /// Finds the version of a record at position `at`. An older value is appended to `out`.
    #[inline]
    pub(super) fn version_at(&self, table: TableId, key: &[u8], at: Gsn, out: &mut Vec<u8>) -> Version {
        let number = self.bucket_of(table, key);
        if self.marks[number].load(Ordering::Acquire) == 0 {
            return Version::Current;
        }
        self.find(number, table, key, at, out)
    }

    fn find(&self, number: usize, table: TableId, key: &[u8], at: Gsn, out: &mut Vec<u8>) -> Version {
        let (tag, nodes) = (tag_of(table, key), self.buckets[number].lock());
        // The oldest one that the snapshot does not show.
        let mut oldest: Option<(&Node, (Gsn, u64))> = None;
        for node in nodes.iter().filter(|node| node.is_of(tag, table, key)) {
            let turn = match node.writer.outcome() {
                Outcome::Committing => return Version::Unsettled,
                // Its commit will be the last one.
                Outcome::Active => (Gsn::MAX, u64::MAX),
                Outcome::Committed(position, turn) if position > at => (position, turn),
                Outcome::Committed(..) => continue,
                // The page has the value from before.
                Outcome::Aborted => continue,
            };
            if oldest.is_none_or(|(_, older)| turn < older) {
                oldest = Some((node, turn));
            }
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

    /// Returns whether a record has a node with a value that snapshots may need which show no
    /// commit beyond `reclaimable`, or which are opened later.
    pub(super) fn has_needed(&self, table: TableId, key: &[u8], reclaimable: impl FnOnce() -> Gsn) -> bool {
        let number = self.bucket_of(table, key);
        if self.marks[number].load(Ordering::Acquire) == 0 {
            return false;
        }
        let until = reclaimable();
        let (tag, nodes) = (tag_of(table, key), self.buckets[number].lock());
        let mut values = nodes.iter().filter(|node| node.flags.is_some() && node.is_of(tag, table, key));
        values.any(|node| match node.writer.outcome() {
            Outcome::Committed(at, _) => at > until,
            Outcome::Active | Outcome::Committing => true,
            Outcome::Aborted => false,
        })
    }

    /// Returns the bytes of memory that the nodes take.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.iter().fold(0, |sum, part| sum.wrapping_add(part.load(Ordering::Relaxed)))
    }
}
