//! The nodes and the retired transactions; the module's header has the protocol.

use std::collections::VecDeque;

use duramen_sync::atomic::{AtomicU8, AtomicU64, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, Mutex, Striped};
use duramen_types::{Gsn, TableId, planted};

use super::registry::{CommitOrder, OpenSnapshot, Registry};
use super::writer::{Outcome, Writer};
use crate::lock::LockId;
use crate::page::SlotFlags;
use crate::record::Tree;

/// A push prunes when its bucket has this many nodes, or a larger power of two: a record that many
/// transactions change before they are hardened is seldom searched in vain.
const LONG_CHAIN: usize = if cfg!(duramen_loom) { 8 } else { 32 };

/// Retired transactions that one commit frees, at most.
const FREED_AT_ONCE: usize = 64;

/// The memory is compared with its limit whenever the queue of a stripe has grown by this many
/// transactions.
const LIMIT_EVERY: usize = 32;

/// Queues of retired transactions. A model has few threads, and small stacks.
const STRIPES: usize = if cfg!(duramen_loom) { 1 } else { 32 };

/// A record as it was before a change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Before<'a> {
    /// There was none.
    Absent,
    /// The value in the leaf, which may be a reference to overflow pages.
    Value(&'a [u8], SlotFlags),
}

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

/// The value of a record before the first change of one transaction.
#[derive(Debug)]
struct Node {
    writer: Arc<Writer>,
    table: TableId,
    key_len: u16,
    /// The flags of the value; none if there was no record.
    flags: Option<SlotFlags>,
    /// The key, then the value.
    bytes: Box<[u8]>,
}

impl Node {
    fn new(writer: Arc<Writer>, table: TableId, key: &[u8], before: Before<'_>) -> Self {
        let (value, flags) = match before {
            Before::Absent => (&[][..], None),
            Before::Value(value, flags) => (value, Some(flags)),
        };
        let mut bytes = Vec::with_capacity(key.len() + value.len());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        let key_len = u16::try_from(key.len()).expect("the limit of a key's length was checked");
        Self { writer, table, key_len, flags, bytes: bytes.into_boxed_slice() }
    }

    #[inline]
    fn is_of(&self, table: TableId, key: &[u8]) -> bool {
        self.table == table && self.bytes[..usize::from(self.key_len)] == *key
    }

    fn value(&self) -> &[u8] {
        &self.bytes[usize::from(self.key_len)..]
    }

    /// Returns the bytes of memory that the node takes.
    fn size(&self) -> u64 {
        (size_of::<Self>() + self.bytes.len()) as u64
    }
}

/// The versions of one running transaction.
#[derive(Debug, Default)]
pub(crate) struct TxnVersions {
    writer: Option<Arc<Writer>>,
    /// The buckets of its nodes.
    buckets: Vec<u32>,
}

/// The key of a deleted record that has to be purged.
pub(crate) type Ghost = (Tree, Vec<u8>);

/// What is to be done when no snapshot needs a commit's versions.
#[derive(Debug)]
pub(crate) struct Cleanup {
    /// The position of the commit.
    pub(crate) at: Gsn,
    /// The GSN of the transaction's first record.
    pub(crate) first: Gsn,
    pub(crate) ghosts: Vec<Ghost>,
    /// Whether the transaction has deferred frees.
    pub(crate) has_frees: bool,
}

/// A committed transaction whose versions snapshots may need.
#[derive(Debug)]
struct Retired {
    writer: Option<Arc<Writer>>,
    buckets: Vec<u32>,
    cleanup: Cleanup,
}

/// The retired transactions of a few threads.
#[derive(Debug, Default)]
struct Stripe {
    queue: VecDeque<Retired>,
    /// Ghosts that may be purged.
    ghosts: VecDeque<Ghost>,
    /// Deferred frees of a transaction that has left the queue may be carried out.
    has_frees: bool,
}

/// What has become possible because no snapshot needs it.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Ghosts to be purged.
    pub(crate) ghosts: Vec<Ghost>,
    /// Whether there are deferred frees to be carried out.
    pub(crate) has_frees: bool,
}

/// The versions of all records, and the snapshots that need them.
#[derive(Debug)]
pub(crate) struct VersionStore {
    /// Whether the database keeps versions at all.
    is_on: bool,
    /// The logarithm of the number of buckets.
    bits: u32,
    buckets: Box<[Mutex<Vec<Node>>]>,
    /// One for a bucket with nodes, zero for an empty one. Stored under the bucket's mutex.
    marks: Box<[AtomicU8]>,
    retired: Striped<Mutex<Stripe>, STRIPES>,
    /// Bytes of nodes, as a sum that wraps around in each part.
    bytes: Striped<AtomicU64, STRIPES>,
    /// The most bytes of nodes.
    limit: u64,
    registry: Registry,
}

impl VersionStore {
    /// Creates a store for nodes of `limit` bytes.
    pub(crate) fn new(order: CommitOrder, limit: u64) -> Self {
        // A node with a short value takes some hundred bytes.
        let bits = (limit / 512).max(1).ilog2().clamp(8, 16);
        Self::with_buckets(order, limit, bits, true)
    }

    /// Creates a store that keeps nothing.
    pub(crate) fn off() -> Self {
        Self::with_buckets(CommitOrder::count(), 0, 0, false)
    }

    pub(super) fn with_buckets(order: CommitOrder, limit: u64, bits: u32, is_on: bool) -> Self {
        let buckets = (0..1_usize << bits).map(|_| Mutex::default()).collect();
        let marks = (0..1_usize << bits).map(|_| AtomicU8::new(0)).collect();
        Self {
            is_on,
            bits,
            buckets,
            marks,
            retired: Striped::default(),
            bytes: Striped::default(),
            limit,
            registry: Registry::new(order),
        }
    }

    /// Returns whether the database keeps versions.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
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

    /// Keeps the value of a record before its first change by a transaction. The caller holds the
    /// leaf's latch and the record's lock.
    #[inline]
    pub(crate) fn push(&self, txn: &mut TxnVersions, table: TableId, key: &[u8], before: Before<'_>) {
        if !self.is_on {
            return;
        }
        let writer = txn.writer.get_or_insert_default();
        let number = self.bucket_of(table, key);
        let mut nodes = self.buckets[number].lock();
        // The transaction holds the record's lock, so a node of its own is the newest. The keys of
        // other transactions' nodes are in the caches of other processors.
        if nodes.iter().rev().any(|node| Arc::ptr_eq(&node.writer, writer) && node.is_of(table, key)) {
            return;
        }
        if nodes.len() >= LONG_CHAIN && nodes.len().is_power_of_two() {
            self.prune(&mut nodes, table, key);
        }
        let node = Node::new(Arc::clone(writer), table, key, before);
        let bytes = self.bytes.own().1;
        bytes.fetch_add(node.size(), Ordering::Relaxed);
        nodes.push(node);
        self.marks[number].store(u8::from(!planted!(VersionPushedLate)), Ordering::Release);
        drop(nodes);
        txn.buckets.push(number as u32);
    }

    /// Unlinks the nodes of a key that no snapshot needs.
    #[cold]
    fn prune(&self, nodes: &mut Vec<Node>, table: TableId, key: &[u8]) {
        let (open, horizon) = self.registry.positions();
        // The position of the next older commit to the key.
        let mut from = Gsn::ZERO;
        let mut freed = 0;
        nodes.retain(|node| {
            if !node.is_of(table, key) {
                return true;
            }
            let Outcome::Committed(until) = node.writer.outcome() else { return true };
            let is_needed = planted!(PrunedTooMuch).then_some(false);
            let is_needed = is_needed.unwrap_or_else(|| open.iter().any(|at| (from..until).contains(at)));
            from = until;
            let stays = is_needed || until > horizon;
            if !stays {
                freed += node.size();
            }
            stays
        });
        if freed > 0 {
            reach(Probe::VersionsPruned);
            self.bytes.own().1.fetch_sub(freed, Ordering::Relaxed);
        }
    }

    /// Finds the version of a record at position `at`. An older value is appended to `out`. What it
    /// returns counts only if the leaf, which was read before, is still valid.
    #[inline]
    pub(crate) fn version_at(&self, table: TableId, key: &[u8], at: Gsn, out: &mut Vec<u8>) -> Version {
        let number = self.bucket_of(table, key);
        if self.marks[number].load(Ordering::Acquire) == 0 {
            return Version::Current;
        }
        self.find(number, table, key, at, out)
    }

    fn find(&self, number: usize, table: TableId, key: &[u8], at: Gsn, out: &mut Vec<u8>) -> Version {
        let nodes = self.buckets[number].lock();
        let mut oldest = None;
        for node in nodes.iter().rev().filter(|node| node.is_of(table, key)) {
            match node.writer.outcome() {
                Outcome::Committing => return Version::Unsettled,
                Outcome::Committed(position) if position <= at => break,
                Outcome::Active | Outcome::Committed(_) => oldest = Some(node),
                // The page has the value from before.
                Outcome::Aborted => {}
            }
        }
        match oldest {
            None => Version::Current,
            Some(node) => match node.flags {
                None => Version::Absent,
                Some(flags) => {
                    reach(Probe::OlderVersionRead);
                    out.extend_from_slice(node.value());
                    Version::Value(flags)
                }
            },
        }
    }

    /// Announces that the transaction inserts its commit record.
    #[inline]
    pub(crate) fn begin_commit(&self, txn: &TxnVersions) {
        let Some(writer) = &txn.writer else { return };
        if planted!(VersionPushedLate) {
            for number in &txn.buckets {
                self.marks[*number as usize].store(1, Ordering::Release);
            }
        }
        if planted!(CommitPublishedEarly) {
            writer.set_committed(self.registry.order().horizon());
        } else {
            writer.set_committing();
        }
    }

    /// Publishes the commit, whose record has this GSN; returns its position. The transaction still
    /// holds its locks.
    #[inline]
    pub(crate) fn commit(&self, txn: &TxnVersions, gsn: Gsn) -> Gsn {
        let at = self.registry.order().position(gsn);
        if let Some(writer) = &txn.writer
            && !planted!(CommitPublishedEarly)
        {
            writer.set_committed(at);
        }
        at
    }

    /// Drops the versions of a transaction whose changes are undone. It still holds its locks.
    pub(crate) fn abort(&self, txn: &mut TxnVersions) {
        if let Some(writer) = txn.writer.take() {
            writer.set_aborted();
            self.free(&writer, &txn.buckets);
        }
        txn.buckets.clear();
    }

    /// Removes a writer's nodes.
    fn free(&self, writer: &Arc<Writer>, buckets: &[u32]) {
        let mut freed = 0;
        for &number in buckets {
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

    /// Takes over the versions of a committed transaction.
    pub(crate) fn retire(&self, txn: &mut TxnVersions, cleanup: Cleanup) {
        let retired = Retired { writer: txn.writer.take(), buckets: std::mem::take(&mut txn.buckets), cleanup };
        let mut stripe = self.retired.own().1.lock();
        stripe.queue.push_back(retired);
        let is_time = stripe.queue.len().is_multiple_of(LIMIT_EVERY);
        drop(stripe);
        if is_time {
            self.keep_limit();
        }
    }

    /// Frees versions that the calling thread, or one that shares its stripe, has retired and that
    /// no snapshot needs. Returns up to `most` ghosts to be purged.
    pub(crate) fn collect(&self, most: usize) -> Due {
        let until = self.reclaimable();
        self.collect_from(self.retired.own().1, until, FREED_AT_ONCE, most)
    }

    /// Frees all versions that no snapshot needs, and returns all ghosts to be purged.
    pub(crate) fn collect_all(&self) -> Due {
        let until = self.reclaimable();
        let mut all = Due::default();
        for stripe in self.retired.iter() {
            let due = self.collect_from(stripe, until, usize::MAX, usize::MAX);
            all.ghosts.extend(due.ghosts);
            all.has_frees |= due.has_frees;
        }
        all
    }

    /// Frees all versions that no snapshot needs.
    fn free_all(&self) {
        let until = self.reclaimable();
        for stripe in self.retired.iter() {
            let due = self.collect_from(stripe, until, usize::MAX, 0);
            assert!(due.ghosts.is_empty(), "none was asked for");
            stripe.lock().has_frees |= due.has_frees;
        }
    }

    fn collect_from(&self, stripe: &Mutex<Stripe>, until: Gsn, most_freed: usize, most_ghosts: usize) -> Due {
        let mut stripe = stripe.lock();
        for _ in 0..most_freed {
            if stripe.queue.front().is_none_or(|retired| retired.cleanup.at > until) {
                break;
            }
            let retired = stripe.queue.pop_front().expect("there is a first one");
            if let Some(writer) = &retired.writer {
                self.free(writer, &retired.buckets);
            }
            stripe.ghosts.extend(retired.cleanup.ghosts);
            stripe.has_frees |= retired.cleanup.has_frees;
        }
        let purged = stripe.ghosts.len().min(most_ghosts);
        Due { ghosts: stripe.ghosts.drain(..purged).collect(), has_frees: std::mem::take(&mut stripe.has_frees) }
    }

    /// Keeps ghosts that could not be purged for another time.
    pub(crate) fn postpone(&self, ghosts: impl IntoIterator<Item = Ghost>) {
        self.retired.own().1.lock().ghosts.extend(ghosts);
    }

    /// Notes that there are more deferred frees to be carried out.
    pub(crate) fn postpone_frees(&self) {
        self.retired.own().1.lock().has_frees = true;
    }

    /// Returns the position up to which no snapshot, open or still to be opened, needs the versions
    /// of commits.
    pub(crate) fn reclaimable(&self) -> Gsn {
        self.registry.reclaimable()
    }

    /// Returns whether an open snapshot needs what a commit at this position has replaced.
    pub(crate) fn is_needed(&self, at: Gsn) -> bool {
        self.registry.positions().0.iter().any(|open| *open < at)
    }

    /// Returns whether a snapshot may need the slot of this key, although it is a ghost. The caller
    /// holds the leaf's latch.
    pub(crate) fn needs_slot(&self, table: TableId, key: &[u8]) -> bool {
        if !self.is_on || planted!(GhostPurgedUnderSnapshot) {
            return false;
        }
        let number = self.bucket_of(table, key);
        if self.marks[number].load(Ordering::Acquire) == 0 {
            return false;
        }
        let until = self.reclaimable();
        let nodes = self.buckets[number].lock();
        nodes.iter().filter(|node| node.is_of(table, key)).any(|node| match node.writer.outcome() {
            Outcome::Committed(at) => at > until,
            Outcome::Active | Outcome::Committing => true,
            Outcome::Aborted => false,
        })
    }

    /// Opens a snapshot of what is committed durably.
    pub(crate) fn open(&self) -> Arc<OpenSnapshot> {
        self.registry.open()
    }

    /// Closes a snapshot, and frees what only it needed.
    pub(crate) fn close(&self, snapshot: &Arc<OpenSnapshot>) {
        self.registry.close(snapshot);
        self.free_all();
    }

    /// Ends the oldest snapshots; returns whether there was one.
    pub(crate) fn end_oldest(&self) -> bool {
        let has_ended = self.registry.end_oldest();
        if has_ended {
            self.free_all();
        }
        has_ended
    }

    /// Ends every snapshot, for a database that is being closed: its snapshots show nothing any
    /// more.
    pub(crate) fn end_all(&self) {
        self.registry.end_all();
        self.free_all();
    }

    /// Ends the oldest snapshots while the versions take too much memory.
    fn keep_limit(&self) {
        if self.bytes() <= self.limit || self.registry.count() == 0 {
            return;
        }
        self.free_all();
        while self.bytes() > self.limit && self.end_oldest() {
            reach(Probe::SnapshotEnded);
        }
    }

    /// Returns a GSN such that every page with a lower one has only records as they are at position
    /// `at`, of an open snapshot. `active` is the least GSN of a first record among the
    /// transactions in the transaction table, which the caller has read before.
    pub(crate) fn unchanged_below(&self, at: Gsn, active: Option<Gsn>) -> Gsn {
        if !self.registry.order().is_of_gsns() {
            return Gsn::ZERO;
        }
        let next = Gsn::new(at.get().saturating_add(1));
        let mut least = active.map_or(next, |active| active.min(next));
        for stripe in self.retired.iter() {
            let stripe = stripe.lock();
            let invisible = stripe.queue.iter().map(|retired| &retired.cleanup).filter(|cleanup| cleanup.at > at);
            least = invisible.map(|cleanup| cleanup.first).fold(least, Gsn::min);
        }
        least
    }

    /// Returns the bytes of memory that the nodes take.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.iter().fold(0, |sum, part| sum.wrapping_add(part.load(Ordering::Relaxed)))
    }

    /// Returns how many snapshots are open, and how many were ended for lack of memory.
    pub(crate) fn snapshots(&self) -> (u64, u64) {
        (self.registry.count() as u64, self.registry.too_old())
    }
}
