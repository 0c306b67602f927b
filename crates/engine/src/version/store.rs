//! The versions that transactions keep or have published, and the retired transactions; the
//! module's header has the protocol.

use std::collections::VecDeque;

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, CachePadded, Mutex, OnceLock, SpinLock, stripe, thread};
use duramen_types::{Gsn, TableId, planted};

use super::STRIPES;
use super::buckets::{Buckets, Version};
use super::node::Node;
use super::registry::{CommitOrder, OpenSnapshot, Registry};
use super::runs::{Deleted, Place};
use super::values::{Before, End};
use super::writer::{Outcome, Writer};
use crate::lock::LockId;
use crate::record::Tree;

/// Retired transactions that one commit frees, at most, and that a thread takes from a stripe at
/// once.
const FREED_AT_ONCE: usize = 64;

/// Commits that have nothing to clear away free versions whenever the queue of a stripe has grown
/// by this many transactions.
const FREE_EVERY: usize = 16;

/// The memory is compared with its limit whenever the queue of a stripe has grown by this many
/// transactions, or by more bytes than these, or by runs.
const LIMIT_EVERY: usize = 32;
const LIMIT_BYTES: u64 = 1 << 20;

/// A transaction keeps no more bytes than this to itself.
const MOST_KEPT: usize = if cfg!(duramen_loom) { 100 } else { 16 << 10 };

/// Ghosts that are locked and that a stripe keeps in mind. Further ones stay until their space is
/// needed.
const MOST_LOCKED: usize = 256;

/// Ghosts that were locked and that a commit tries to purge again, at least.
const TRIED_AGAIN: usize = 2;

/// Writers that a stripe keeps for later transactions.
const SPARE: usize = 256;

/// A stripe looks for transactions whose nodes are gone when its queue has doubled, and has this
/// many: fewer where a run is short.
const SWEPT: usize = if cfg!(any(duramen_loom, duramen_machine)) { 4 } else { 64 };

/// The bytes that a retired transaction takes beside its entries.
const RETIRED: u64 = (size_of::<Writer>() + size_of::<Retired>()) as u64;

/// The versions of one running transaction. The store knows of them from the first one on.
#[derive(Debug, Default)]
pub(crate) struct TxnVersions(Option<Arc<SpinLock<Versions>>>);

/// The versions of one transaction: kept by itself, or published. A running transaction shares them
/// with threads that open snapshots.
#[derive(Debug, Default)]
struct Versions {
    /// The outcome, and the values; or the writer of an earlier transaction, to be used again.
    writer: Option<Arc<Writer>>,
    /// The end of the values.
    end: End,
    /// Whether there are nodes or runs, and new versions become some.
    are_published: bool,
    /// The places of the runs.
    runs: Vec<Place>,
    /// The bytes of what is published, except runs.
    bytes: u64,
}

impl Versions {
    fn is_empty(&self) -> bool {
        self.end.is_empty() && !self.are_published
    }

    /// Returns whether they are published, but neither a node nor a run refers to them.
    fn are_unlinked(&self) -> bool {
        self.are_published
            && self.runs.is_empty()
            && self.writer.as_ref().is_none_or(|writer| Arc::strong_count(writer) == 1)
    }
}

/// A deleted record that has to be purged, or all those from one key to another that were deleted
/// together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ghost {
    pub(crate) tree: Tree,
    pub(crate) key: Vec<u8>,
    /// The last key, if there are several.
    pub(crate) last: Option<Vec<u8>>,
}

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
    versions: Versions,
    cleanup: Cleanup,
}

/// The retired transactions of a few threads.
#[derive(Debug, Default)]
struct Stripe {
    queue: VecDeque<Retired>,
    /// Ghosts that may be purged.
    ghosts: VecDeque<Ghost>,
    /// Ghosts that may be purged when no other transaction has a lock on them.
    locked: VecDeque<Ghost>,
    /// Deferred frees of a transaction that has left the queue may be carried out.
    has_frees: bool,
    /// Those of earlier transactions.
    spare: Vec<Arc<Writer>>,
    /// The length of the queue when it was last swept.
    swept: usize,
    /// The bytes that were added since the memory was last compared with its limit.
    uncompared: u64,
}

impl Stripe {
    /// Adds a transaction; returns what is to be done.
    fn add(&mut self, retired: Retired) -> Chores {
        let is_clear = self.ghosts.is_empty() && !self.has_frees;
        let leaves_nothing = retired.cleanup.ghosts.is_empty() && !retired.cleanup.has_frees;
        self.uncompared += retired.versions.bytes;
        let is_large = self.uncompared > LIMIT_BYTES || !retired.versions.runs.is_empty();
        self.queue.push_back(retired);
        let len = self.queue.len();
        let compare = is_large || len.is_multiple_of(LIMIT_EVERY);
        if compare {
            self.uncompared = 0;
        }
        Chores {
            free: !(is_clear && leaves_nothing) || is_large || len.is_multiple_of(FREE_EVERY),
            sweep: len >= SWEPT.max(2 * self.swept),
            compare,
        }
    }

    /// Takes the first transactions, a few, as far as no snapshot shows less than the commits up to
    /// `until`.
    fn take_reclaimable(&mut self, until: Gsn) -> Vec<Retired> {
        let is_reclaimable = |retired: &&Retired| retired.cleanup.at <= until;
        let count = self.queue.iter().take(FREED_AT_ONCE).take_while(is_reclaimable).count();
        let taken = self.queue.drain(..count).collect();
        self.swept = self.swept.min(self.queue.len());
        taken
    }

    /// Notes what a transaction has left whose versions are dropped.
    fn note_dropped(&mut self, Retired { versions, cleanup }: Retired) {
        if self.spare.len() < SPARE {
            self.spare.extend(versions.writer);
        }
        self.ghosts.extend(cleanup.ghosts);
        self.has_frees |= cleanup.has_frees;
    }

    /// Takes what has become possible, with up to `most` ghosts and a few that were locked.
    fn take_due(&mut self, most: usize) -> Due {
        let purged = self.ghosts.len().min(most);
        let tried = self.locked.len().min(TRIED_AGAIN.max(most / 16));
        let ghosts = self.ghosts.drain(..purged).chain(self.locked.drain(..tried)).collect();
        Due { ghosts, has_frees: std::mem::take(&mut self.has_frees) }
    }

    /// Drops the versions that neither a node nor a run refers to, and the transactions that have
    /// nothing else. Returns the bytes that they were counted with, and what is to be dropped.
    ///
    /// They have changed records that earlier transactions had changed, which the open snapshots do
    /// not show either; so [`VersionStore::unchanged_below`] is right without them.
    fn sweep(&mut self) -> (u64, Vec<Arc<Writer>>) {
        let (mut bytes, mut unused) = (0, Vec::new());
        let spare = &mut self.spare;
        self.queue.retain_mut(|Retired { versions, cleanup }| {
            if !versions.are_unlinked() {
                return true;
            }
            let dropped = std::mem::take(versions);
            bytes += dropped.bytes;
            if let Some(mut writer) = dropped.writer {
                match Arc::get_mut(&mut writer).filter(|_| spare.len() < SPARE) {
                    Some(again) => {
                        again.reset();
                        spare.push(writer);
                    }
                    None => unused.push(writer),
                }
            }
            !cleanup.ghosts.is_empty() || cleanup.has_frees
        });
        self.swept = self.queue.len();
        (bytes, unused)
    }
}

/// What is to be done after a transaction has retired.
#[derive(Clone, Copy, Debug)]
struct Chores {
    /// Free versions and ghosts.
    free: bool,
    /// Drop the versions that nothing refers to.
    sweep: bool,
    /// Compare the memory with its limit.
    compare: bool,
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
    /// The most bytes of versions.
    limit: u64,
    /// Made when versions are first published.
    buckets: OnceLock<Buckets>,
    /// Whether transactions publish their versions: a snapshot is open, or being opened. Stored
    /// under the mutex.
    publishes: AtomicBool,
    /// Whether all versions are published. Locked to open and to close snapshots.
    opening: Mutex<bool>,
    /// The transactions that have versions, and others.
    running: Mutex<Vec<Arc<SpinLock<Versions>>>>,
    /// A few stripes for each processor: with more, retired transactions would fill its cache.
    retired: Box<[CachePadded<Mutex<Stripe>>]>,
    registry: Registry,
    /// Locked by the thread that keeps the limit.
    limiting: Mutex<()>,
}

impl VersionStore {
    /// Creates a store for versions of `limit` bytes.
    pub(crate) fn new(order: CommitOrder, limit: u64) -> Self {
        // A transaction with one short value takes some hundred bytes.
        let bits = (limit / 2048).max(1).ilog2().clamp(8, 20);
        Self::with_buckets(order, limit, bits, true)
    }

    /// Creates a store that keeps nothing.
    pub(crate) fn off() -> Self {
        Self::with_buckets(CommitOrder::count(), 0, 0, false)
    }

    pub(super) fn with_buckets(order: CommitOrder, limit: u64, bits: u32, is_on: bool) -> Self {
        let stripes = (2 * thread::available_parallelism()).next_power_of_two().min(STRIPES);
        Self {
            is_on,
            bits,
            limit,
            buckets: OnceLock::new(),
            publishes: AtomicBool::new(false),
            opening: Mutex::default(),
            running: Mutex::default(),
            retired: (0..stripes).map(|_| CachePadded::default()).collect(),
            registry: Registry::new(order),
            limiting: Mutex::default(),
        }
    }

    /// Returns whether the database keeps versions.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(super) fn buckets(&self) -> &Buckets {
        self.buckets.get_or_init(|| Buckets::new(self.bits))
    }

    fn own_stripe(&self) -> &Mutex<Stripe> {
        &self.retired[stripe(self.retired.len())]
    }

    /// Makes the versions of a new context known to those who open snapshots.
    #[cold]
    fn register(&self) -> Arc<SpinLock<Versions>> {
        const MANY: usize = 64;
        let new = Arc::<SpinLock<Versions>>::default();
        let mut running = self.running.lock();
        if running.len() >= MANY && running.len().is_power_of_two() {
            // Contexts that are gone, except those of transactions that could not be ended.
            running.retain(|one| Arc::strong_count(one) > 1 || !one.lock().is_empty());
        }
        running.push(Arc::clone(&new));
        new
    }

    /// Announces that a value of this record may be pushed soon.
    #[inline]
    pub(crate) fn expect_push(&self, record: LockId) {
        if self.publishes.load(Ordering::Relaxed)
            && let Some(buckets) = self.buckets.get()
        {
            buckets.expect(record);
        }
    }

    /// Keeps the value of a record before a change of a transaction. The caller holds the leaf's
    /// latch and the record's lock. The value before a deletion is published in any case: the
    /// thread that purges the ghost searches for it.
    #[inline]
    pub(crate) fn push(
        &self,
        txn: &mut TxnVersions,
        table: TableId,
        key: &[u8],
        before: Before<'_>,
        is_deletion: bool,
    ) {
        if !self.is_on {
            return;
        }
        let versions = &mut *txn.0.get_or_insert_with(|| self.register()).lock();
        let keeps = !is_deletion && !versions.are_published && versions.end.bytes() < MOST_KEPT;
        // A thread that opens a snapshot sees what is kept before it locks this, and what is pushed
        // later sees that snapshot.
        if keeps && !self.publishes.load(Ordering::Acquire) {
            let writer = versions.writer.get_or_insert_default();
            writer.values.append(&mut versions.end, table, key, before, None);
            return;
        }
        self.publish(versions);
        self.add(versions, table, key, before);
    }

    /// Publishes the values of records of one leaf that are deleted together, in the order of their
    /// keys; otherwise as [`Self::push`].
    pub(crate) fn push_deleted(&self, txn: &mut TxnVersions, table: TableId, records: &[Deleted<'_>]) {
        if !self.is_on {
            return;
        }
        let versions = &mut *txn.0.get_or_insert_with(|| self.register()).lock();
        self.publish(versions);
        let writer = versions.writer.get_or_insert_default();
        if let Some(place) = self.buckets().add_run(writer, table, records) {
            versions.runs.push(place);
            return;
        }
        for Deleted { key, value, flags } in records {
            self.add(versions, table, key, Before::Value(value, *flags));
        }
    }

    /// Adds a node with a new entry.
    fn add(&self, versions: &mut Versions, table: TableId, key: &[u8], before: Before<'_>) {
        let Versions { writer, end, bytes, .. } = versions;
        let (writer, begin) = (writer.get_or_insert_default(), *end);
        let append = |bucket| writer.values.append(end, table, key, before, Some(bucket));
        if self.buckets().add(writer, table, key, &self.registry, append) {
            let added = (end.bytes() - begin.bytes() + size_of::<Node>()) as u64;
            *bytes += added;
            self.buckets().count(added);
        }
    }

    /// Publishes the versions of a transaction.
    fn publish(&self, versions: &mut Versions) {
        if versions.are_published {
            return;
        }
        versions.are_published = true;
        versions.bytes = RETIRED;
        if let Some(writer) = &versions.writer {
            let mut key = Vec::new();
            for (place, entry) in writer.values.entries(versions.end) {
                key.clear();
                entry.copy_key(&mut key);
                let found = |bucket| {
                    entry.set_bucket(bucket);
                    place
                };
                self.buckets().add(writer, entry.table(), &key, &self.registry, found);
                versions.bytes += (entry.words() * 8 + size_of::<Node>()) as u64;
            }
        }
        self.buckets().count(versions.bytes);
    }

    /// Publishes what transactions keep, except what no snapshot will need.
    fn publish_all(&self) {
        let until = self.reclaimable();
        let running = self.running.lock().clone();
        for one in running {
            let versions = &mut *one.lock();
            if !versions.is_empty() && !versions.are_published && !planted!(KeptVersionsForgotten) {
                reach(Probe::RunningPublished);
                self.publish(versions);
            }
        }
        // Behind the running ones: a transaction that was not among them is here.
        for stripe in self.retired.iter() {
            for Retired { versions, cleanup } in &mut stripe.lock().queue {
                if !versions.is_empty() && !versions.are_published && cleanup.at > until {
                    reach(Probe::RetiredPublished);
                    self.publish(versions);
                }
            }
        }
    }

    /// Drops the versions of a transaction; leaves its writer for another one.
    fn drop_versions(&self, versions: &mut Versions) {
        let Versions { mut writer, end, are_published, runs, bytes } = std::mem::take(versions);
        if are_published {
            if let Some(writer) = &writer {
                self.buckets().free(writer, end);
            }
            self.buckets().free_runs(&runs);
            self.buckets().discount(bytes);
        }
        // Nothing refers to it any more.
        if let Some(unused) = writer.as_mut().and_then(Arc::get_mut) {
            unused.reset();
            versions.writer = writer;
        }
    }

    /// Drops the versions of a stripe that neither a node nor a run refers to.
    fn sweep(&self, stripe: &Mutex<Stripe>) {
        // The writers are dropped when others may use the stripe again.
        let (bytes, _unused) = stripe.lock().sweep();
        if bytes > 0 {
            reach(Probe::RetiredSwept);
            self.buckets().discount(bytes);
        }
    }

    /// Finds the version of a record at position `at`, of an open snapshot. An older value is
    /// appended to `out`. What it returns counts only if the leaf, which was read before, is still
    /// valid.
    #[inline]
    pub(crate) fn version_at(&self, table: TableId, key: &[u8], at: Gsn, out: &mut Vec<u8>) -> Version {
        self.buckets.get().map_or(Version::Current, |buckets| buckets.version_at(table, key, at, out))
    }

    /// Announces that the transaction inserts its commit record.
    #[inline]
    pub(crate) fn begin_commit(&self, txn: &TxnVersions) {
        let Some(versions) = &txn.0 else { return };
        let Versions { writer: Some(writer), end, .. } = &*versions.lock() else { return };
        if planted!(VersionPushedLate) {
            self.buckets().mark_late(writer, *end);
        }
        writer.set(match planted!(CommitPublishedEarly) {
            true => Outcome::Committed(self.registry.order().horizon(), 0),
            false => Outcome::Committing,
        });
    }

    /// Publishes the commit, whose record has this GSN; returns its position. The transaction still
    /// holds its locks.
    #[inline]
    pub(crate) fn commit(&self, txn: &TxnVersions, gsn: Gsn) -> Gsn {
        let (at, turn) = self.registry.order().position(gsn);
        if let Some(versions) = &txn.0
            && let Some(writer) = &versions.lock().writer
            && !planted!(CommitPublishedEarly)
        {
            writer.set(Outcome::Committed(at, turn));
        }
        at
    }

    /// Drops the versions of a transaction whose changes are undone. It still holds its locks.
    pub(crate) fn abort(&self, txn: &mut TxnVersions) {
        let Some(versions) = &txn.0 else { return };
        let versions = &mut *versions.lock();
        if let Some(writer) = &versions.writer {
            writer.set(Outcome::Aborted);
        }
        self.drop_versions(versions);
    }

    /// Takes over the versions of a committed transaction. Returns whether it is time to free some
    /// (see [`Self::collect`]).
    pub(crate) fn retire(&self, txn: &mut TxnVersions, cleanup: Cleanup) -> bool {
        let stripe = self.own_stripe();
        let chores = match &txn.0 {
            Some(running) => {
                // Both at a time: a thread that opens a snapshot looks here, and then there.
                let mut running = running.lock();
                let versions = std::mem::take(&mut *running);
                let mut stripe = stripe.lock();
                running.writer = stripe.spare.pop();
                stripe.add(Retired { versions, cleanup })
            }
            None => stripe.lock().add(Retired { versions: Versions::default(), cleanup }),
        };
        if chores.sweep {
            self.sweep(stripe);
        }
        if chores.compare {
            self.keep_limit();
        }
        chores.free
    }

    /// Frees versions that the calling thread, or one that shares its stripe, has retired and that
    /// no snapshot needs. Returns up to `most` ghosts to be purged.
    pub(crate) fn collect(&self, most: usize) -> Due {
        let stripe = self.own_stripe();
        self.free_some(stripe, self.reclaimable());
        stripe.lock().take_due(most)
    }

    /// Frees all versions that no snapshot needs, and returns all ghosts to be purged.
    pub(crate) fn collect_all(&self) -> Due {
        self.free_all();
        let mut all = Due::default();
        for stripe in self.retired.iter() {
            let due = stripe.lock().take_due(usize::MAX);
            all.ghosts.extend(due.ghosts);
            all.has_frees |= due.has_frees;
        }
        all
    }

    /// Frees all versions that no snapshot needs, a few at a time: the threads of a stripe go on
    /// meanwhile.
    fn free_all(&self) {
        let until = self.reclaimable();
        for stripe in self.retired.iter() {
            while self.free_some(stripe, until) {}
        }
    }

    /// Frees what the first retired transactions of a stripe have left, a few of them, if no
    /// snapshot needs it. Returns whether there may be more.
    fn free_some(&self, stripe: &Mutex<Stripe>, until: Gsn) -> bool {
        let mut freed = stripe.lock().take_reclaimable(until);
        if freed.is_empty() {
            return false;
        }
        for retired in &mut freed {
            self.drop_versions(&mut retired.versions);
        }
        let has_more = freed.len() == FREED_AT_ONCE;
        // The ghosts come now, because nodes keep them from being purged.
        let mut stripe = stripe.lock();
        freed.into_iter().for_each(|retired| stripe.note_dropped(retired));
        has_more
    }

    /// Keeps ghosts that could not be purged for another time.
    pub(crate) fn postpone(&self, ghosts: impl IntoIterator<Item = Ghost>) {
        self.own_stripe().lock().ghosts.extend(ghosts);
    }

    /// Keeps ghosts for another time that other transactions have locks on, unless there are many
    /// already.
    pub(crate) fn postpone_locked(&self, ghosts: impl IntoIterator<Item = Ghost>) {
        let mut stripe = self.own_stripe().lock();
        for ghost in ghosts {
            if stripe.locked.len() < MOST_LOCKED && !stripe.locked.contains(&ghost) {
                stripe.locked.push_back(ghost);
            }
        }
    }

    /// Notes that there are more deferred frees to be carried out.
    pub(crate) fn postpone_frees(&self) {
        self.own_stripe().lock().has_frees = true;
    }

    /// Returns the position up to which no snapshot, open or still to be opened, needs the versions
    /// of commits.
    pub(crate) fn reclaimable(&self) -> Gsn {
        self.registry.reclaimable()
    }

    /// Returns whether snapshots may need what a commit has replaced until the commit is hardened,
    /// because positions are GSNs.
    pub(crate) fn waits_for_hardening(&self) -> bool {
        self.registry.order().is_of_gsns()
    }

    /// Returns whether a snapshot may need the slot of this key, although it is a ghost. If so, the
    /// ghost is purged after a later deletion. The caller holds the leaf's latch.
    pub(crate) fn needs_slot(&self, table: TableId, key: &[u8]) -> bool {
        let Some(buckets) = self.buckets.get().filter(|_| !planted!(GhostPurgedUnderSnapshot)) else { return false };
        buckets.has_needed(table, key, || self.reclaimable())
    }

    /// Opens a snapshot of what is committed durably.
    pub(crate) fn open(&self) -> Arc<OpenSnapshot> {
        let mut are_published = self.opening.lock();
        if !*are_published {
            // The position is chosen when all versions that it may need are published.
            self.publishes.store(true, Ordering::Release);
            self.publish_all();
            *are_published = true;
        }
        self.registry.open()
    }

    /// Closes a snapshot, and frees what only it needed.
    pub(crate) fn close(&self, snapshot: &Arc<OpenSnapshot>) {
        self.registry.close(snapshot);
        {
            let mut are_published = self.opening.lock();
            if self.registry.count() == 0 {
                *are_published = false;
                self.publishes.store(false, Ordering::Relaxed);
            }
        }
        self.free_all();
    }

    /// Ends the oldest snapshots, if their position is lower than `position`; returns whether there
    /// was one.
    pub(crate) fn end_oldest_below(&self, position: Gsn) -> bool {
        let has_ended = self.registry.end_oldest_below(position);
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
        // Another thread would end a snapshot for the memory that the first one is about to free.
        let Some(_limiting) = self.limiting.try_lock() else { return };
        let begin = self.registry.order().horizon();
        self.free_all();
        if self.bytes() <= self.limit {
            return;
        }
        self.buckets().prune_all(&self.registry);
        self.retired.iter().for_each(|stripe| self.sweep(stripe));
        // A thread that closes a snapshot may not have freed everything yet.
        self.free_all();
        // That visits everything, so it must not be due again at once. Snapshots that are younger
        // need little.
        let enough = self.limit - self.limit / 8;
        while self.bytes() > enough && self.end_oldest_below(begin) {
            reach(Probe::SnapshotEnded);
        }
    }

    /// Returns a GSN such that every page with a lower one has only records as they are at position
    /// `at`, of an open snapshot. `active` reads the least GSN of a first record among the
    /// transactions in the transaction table; the call asks first of all.
    pub(crate) fn unchanged_below(&self, at: Gsn, active: impl FnOnce() -> Option<Gsn>) -> Gsn {
        if !self.registry.order().is_of_gsns() {
            return Gsn::ZERO;
        }
        let next = Gsn::new(at.get().saturating_add(1));
        let mut least = active().map_or(next, |active| active.min(next));
        for stripe in self.retired.iter() {
            let stripe = stripe.lock();
            let invisible = stripe.queue.iter().map(|retired| &retired.cleanup).filter(|cleanup| cleanup.at > at);
            least = invisible.map(|cleanup| cleanup.first).fold(least, Gsn::min);
        }
        least
    }

    /// Returns the bytes of memory that published versions take.
    pub(crate) fn bytes(&self) -> u64 {
        self.buckets.get().map_or(0, Buckets::bytes)
    }

    /// Returns how many snapshots are open, and how many were ended for lack of memory.
    pub(crate) fn snapshots(&self) -> (u64, u64) {
        (self.registry.count() as u64, self.registry.too_old())
    }
}
