//! The nodes, in buckets by the keys of their records, and the runs beside them.

use duramen_sync::atomic::{AtomicU8, AtomicU64, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, Mutex, OnceLock, Striped, prefetch};
use duramen_types::{Gsn, TableId, planted};

use super::STRIPES;
use super::node::{Node, prune};
use super::registry::Registry;
use super::runs::{self, Deleted, Runs};
use super::values::{Before, End, Place};
use super::writer::{Outcome, Writer};
use crate::lock::LockId;
use crate::page::SlotFlags;
use crate::zeroed::zeroed;

/// A new node makes its bucket be pruned when there are this many, and the memory of the bucket is
/// used up. It becomes larger if half of the nodes or more are needed: a record that many
/// transactions change before they are hardened is seldom searched in vain.
const LONG_CHAIN: usize = 8;

/// An empty bucket keeps the memory for this many nodes.
const FEW: usize = 4;

/// What a snapshot finds beside the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    /// The page has the record as the snapshot shows it.
    Current,
    /// The snapshot shows no record.
    Absent,
    /// The snapshot shows an older value, which was appended to the caller's buffer.
    Value(SlotFlags),
    /// The snapshot shows the value that the leaf has, with these flags, from before a deletion.
    InLeaf(SlotFlags),
    /// A transaction is committing: read again.
    Unsettled,
}

/// A run has this many records: fewer are as good as nodes.
const LEAST_OF_RUN: usize = if cfg!(duramen_loom) { 1 } else { 2 };

/// This many buckets, as a logarithm, take a page of memory.
const PART_BITS: u32 = if cfg!(duramen_loom) { 0 } else { 7 };

/// Neighbouring buckets.
type Part = Box<[Mutex<Vec<Node>>]>;

/// The nodes and runs of all records.
#[derive(Debug)]
pub(super) struct Buckets {
    /// The logarithm of their number.
    bits: u32,
    /// Made as they are used: there are many buckets, and a transaction that deletes a range, for
    /// instance, uses few.
    parts: Box<[OnceLock<Part>]>,
    /// One for a bucket with nodes, zero for an empty one. Stored under the bucket's mutex.
    marks: Box<[AtomicU8]>,
    runs: Runs,
    /// Bytes of versions, as a sum that wraps around in each part.
    bytes: Striped<AtomicU64, STRIPES>,
}

impl Buckets {
    pub(super) fn new(bits: u32) -> Self {
        let parts = (0..1_usize << bits.saturating_sub(PART_BITS)).map(|_| OnceLock::new()).collect();
        let buckets = Self { bits, parts, marks: zeroed(1 << bits), runs: Runs::default(), bytes: Striped::default() };
        if cfg!(duramen_loom) {
            // A model does not know of the locks with which they are made.
            for number in 0..1_usize << bits {
                let _ = buckets.bucket(number);
            }
        }
        buckets
    }

    fn bucket(&self, number: usize) -> &Mutex<Vec<Node>> {
        let make = || (0..1_usize << PART_BITS).map(|_| Mutex::default()).collect();
        let part = self.parts[number >> PART_BITS].get_or_init(make);
        &part[number % (1 << PART_BITS)]
    }

    /// Returns the bucket of a record, and the tag of its nodes there.
    #[inline]
    fn place_of(&self, table: TableId, key: &[u8]) -> (usize, u16) {
        let id = LockId::record(table, key);
        (id.bucket(self.bits), id.tag() as u16)
    }

    fn mark(&self, number: usize, nodes: &mut Vec<Node>) {
        if nodes.is_empty() && nodes.capacity() > FEW {
            // Most buckets stay empty for long.
            *nodes = Vec::new();
        }
        self.marks[number].store(u8::from(!nodes.is_empty()), Ordering::Release);
    }

    /// Requests the memory of a record's bucket, which will be needed soon.
    #[inline]
    pub(super) fn expect(&self, record: LockId) {
        self.request_bucket(record.bucket(self.bits));
    }

    #[inline]
    fn request_bucket(&self, number: usize) {
        if let Some(part) = self.parts[number >> PART_BITS].get() {
            prefetch(std::ptr::from_ref(&part[number % (1 << PART_BITS)]).cast());
        }
    }

    /// Adds a node, unless the writer has an older value of the record: a node, or a part of a run.
    /// `append` makes the node's entry, which tells the bucket. Returns whether there is a new
    /// node.
    pub(super) fn add(
        &self,
        writer: &Arc<Writer>,
        table: TableId,
        key: &[u8],
        registry: &Registry,
        append: impl FnOnce(u32) -> Place,
    ) -> bool {
        let (number, tag) = self.place_of(table, key);
        let mut nodes = self.bucket(number).lock();
        // The keys of other transactions' nodes are in the caches of other processors.
        if nodes.iter().rev().any(|node| Arc::ptr_eq(&node.writer, writer) && node.is_of(tag, table, key)) {
            return false;
        }
        if self.runs.with(table, key, |owner, _, _| Arc::ptr_eq(owner, writer)) == Some(true) {
            return false;
        }
        let of_record = || nodes.iter().filter(|node| node.tag == tag).count();
        if nodes.len() >= LONG_CHAIN && nodes.len() == nodes.capacity() && of_record() > 1 {
            let (open, horizon) = registry.positions();
            if prune(&mut nodes, tag, table, key, &open, horizon) {
                reach(Probe::VersionsPruned);
            }
            if nodes.len() > nodes.capacity() / 2 {
                let more = 2 * nodes.capacity() - nodes.len();
                nodes.reserve_exact(more);
            }
        }
        if nodes.capacity() == 0 {
            nodes.reserve_exact(FEW);
        }
        nodes.push(Node::new(Arc::clone(writer), tag, append(number as u32)));
        self.marks[number].store(u8::from(!planted!(VersionPushedLate)), Ordering::Release);
        true
    }

    /// Prunes the chains of all records.
    pub(super) fn prune_all(&self, registry: &Registry) {
        let (open, horizon) = registry.positions();
        let mut key = Vec::new();
        for bucket in self.parts.iter().filter_map(OnceLock::get).flatten() {
            let mut nodes = bucket.lock();
            let mut at = 0;
            // Each record is pruned at its first node, which may be gone then. Most records have
            // only one, and most nodes another tag, so that no entry is touched.
            while let Some(node) = nodes.get(at) {
                let (tag, len) = (node.tag, nodes.len());
                if nodes[at + 1..].iter().any(|node| node.tag == tag) {
                    let (entry, table) = (node.entry(), node.entry().table());
                    key.clear();
                    entry.copy_key(&mut key);
                    if !nodes[..at].iter().any(|node| node.is_of(tag, table, &key)) {
                        prune(&mut nodes, tag, table, &key, &open, horizon);
                    }
                }
                at += usize::from(nodes.len() == len);
            }
        }
    }

    /// Adds to the bytes of versions.
    pub(super) fn count(&self, bytes: u64) {
        self.bytes.own().1.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts from them.
    pub(super) fn discount(&self, bytes: u64) {
        self.bytes.own().1.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Adds a run of records that are in the order of their keys, and returns its place, unless
    /// they must be added one by one: they are few, or there is another run among them.
    pub(super) fn add_run(&self, writer: &Arc<Writer>, table: TableId, records: &[Deleted<'_>]) -> Option<runs::Place> {
        if records.len() < LEAST_OF_RUN {
            return None;
        }
        let size = self.runs.add(writer, table, records)?;
        reach(Probe::RunPublished);
        self.count(size);
        Some((table, records[0].key.into()))
    }

    /// Stores the value that a record has in its leaf, if it lies in a run. The caller has latched
    /// the leaf and is about to change the record. Returns the bytes that were counted.
    #[inline]
    pub(super) fn store_of_run(&self, table: TableId, key: &[u8], before: Before<'_>) -> u64 {
        let (Before::Ghost(value) | Before::Value(value, _)) = before else { return 0 };
        if self.runs.is_empty() || planted!(RunValueLost) {
            return 0;
        }
        let stored = self.runs.store(table, key, value);
        if stored > 0 {
            reach(Probe::RunValueStored);
            self.count(stored);
        }
        stored
    }

    /// Marks the buckets of a writer's nodes as not empty: what a planted bug has left out.
    pub(super) fn mark_late(&self, writer: &Writer, end: End) {
        for bucket in writer.values.entries(end).map(|entry| entry.bucket()) {
            self.marks[bucket as usize].store(1, Ordering::Release);
        }
    }

    /// Removes a writer's nodes.
    pub(super) fn free(&self, writer: &Arc<Writer>, end: End) {
        const AHEAD: usize = 8;
        let buckets = || writer.values.entries(end).map(|entry| entry.bucket());
        let mut later = buckets().skip(AHEAD);
        for number in buckets() {
            if let Some(later) = later.next() {
                self.request_bucket(later as usize);
            }
            let mut nodes = self.bucket(number as usize).lock();
            nodes.retain(|node| !Arc::ptr_eq(&node.writer, writer));
            self.mark(number as usize, &mut nodes);
        }
    }

    /// Removes a writer's runs.
    pub(super) fn free_runs(&self, places: &[runs::Place]) {
        if !places.is_empty() {
            self.discount(self.runs.free(places));
        }
    }

    /// Finds the version of a record at position `at`. An older value is appended to `out`.
    #[inline]
    pub(super) fn version_at(&self, table: TableId, key: &[u8], at: Gsn, out: &mut Vec<u8>) -> Version {
        let (number, tag) = self.place_of(table, key);
        let bucket = self.marked_bucket(number);
        if bucket.is_none() && self.runs.is_empty() {
            return Version::Current;
        }
        self.find(bucket, tag, table, key, at, out)
    }

    /// Returns a bucket if it is not empty.
    #[inline]
    fn marked_bucket(&self, number: usize) -> Option<&Mutex<Vec<Node>>> {
        (self.marks[number].load(Ordering::Acquire) != 0).then(|| self.bucket(number))
    }

    fn find(
        &self,
        bucket: Option<&Mutex<Vec<Node>>>,
        tag: u16,
        table: TableId,
        key: &[u8],
        at: Gsn,
        out: &mut Vec<u8>,
    ) -> Version {
        let nodes = bucket.map(Mutex::lock);
        // The oldest one that the snapshot does not show.
        let mut oldest: Option<(&Node, Rank)> = None;
        for node in nodes.iter().flat_map(|nodes| nodes.iter()).filter(|node| node.is_of(tag, table, key)) {
            match turn_of(&node.writer, at) {
                Err(Unsettled) => return Version::Unsettled,
                Ok(Some(turn)) if oldest.is_none_or(|(_, older)| turn < older) => oldest = Some((node, turn)),
                Ok(_) => {}
            }
        }
        let of_run = self.runs.with(table, key, |writer, stored, flags| match turn_of(writer, at) {
            // A node of the same transaction is older, even if the transaction has committed since
            // its outcome was read for the node.
            _ if oldest.is_some_and(|(node, _)| Arc::ptr_eq(&node.writer, writer)) => None,
            Err(Unsettled) => Some(Version::Unsettled),
            Ok(Some(turn)) if oldest.is_none_or(|(_, older)| turn < older) => {
                reach(Probe::RunRead);
                Some(match stored {
                    None => Version::InLeaf(flags),
                    Some(value) => {
                        out.extend_from_slice(value);
                        Version::Value(flags)
                    }
                })
            }
            Ok(_) => None,
        });
        if let Some(version) = of_run.flatten() {
            return version;
        }
        match oldest {
            None => Version::Current,
            Some((node, _)) => match node.entry().flags() {
                None => Version::Absent,
                Some(flags) => {
                    reach(Probe::OlderVersionRead);
                    node.entry().copy_value(out);
                    Version::Value(flags)
                }
            },
        }
    }

    /// Returns whether a record has a node with a value, or lies in a run, that snapshots may need
    /// which show no commit beyond `reclaimable`, or which are opened later.
    pub(super) fn has_needed(&self, table: TableId, key: &[u8], reclaimable: impl FnOnce() -> Gsn) -> bool {
        let (number, tag) = self.place_of(table, key);
        let bucket = self.marked_bucket(number);
        if bucket.is_none() && self.runs.is_empty() {
            return false;
        }
        let until = reclaimable();
        let is_needed = |writer: &Writer| match writer.outcome() {
            Outcome::Committed(at, _) => at > until,
            Outcome::Active | Outcome::Committing => true,
            Outcome::Aborted => false,
        };
        let nodes = bucket.map(Mutex::lock);
        let all = nodes.iter().flat_map(|nodes| nodes.iter());
        let mut values = all.filter(|node| node.is_of(tag, table, key) && node.entry().flags().is_some());
        values.any(|node| is_needed(&node.writer))
            || self.runs.with(table, key, |writer, _, _| is_needed(writer)) == Some(true)
    }

    /// Returns the bytes of memory that versions take.
    pub(super) fn bytes(&self) -> u64 {
        let sum: u64 = self.bytes.iter().fold(0, |sum, part| sum.wrapping_add(part.load(Ordering::Relaxed)));
        // Other threads may have subtracted what they had added to a part that was read before.
        (sum as i64).max(0) as u64
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
