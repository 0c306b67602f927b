//! The versions that transactions keep or have published, and the retired transactions; the
//! module's header has the protocol.

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, CachePadded, Mutex, OnceLock, SpinLock, stripe, thread};
use duramen_types::{Gsn, TableId, planted};

use super::STRIPES;
use super::buckets::{Buckets, Version};
use super::registry::{CommitOrder, OpenSnapshot, Registry};
use super::retired::{Chores, Cleanup, Due, FREED_AT_ONCE, Ghost, Retired, Stripe};
use super::runs::Deleted;
use super::txn_versions::{Published, TxnVersions, Versions};
use super::values::Before;
use super::writer::{Outcome, Writer};
use crate::lock::LockId;

/// A transaction keeps no more bytes than this to itself.
const MOST_KEPT: usize = if cfg!(duramen_loom) { 100 } else { 16 << 10 };

/// The bytes that a retired transaction takes beside its entries.
const RETIRED: u64 = (size_of::<Writer>() + size_of::<Retired>()) as u64;

/// The versions of all records, and the snapshots that need them.
#[derive(Debug)]
pub(crate) struct VersionStore {
    /// Whether the database keeps versions at all.
    is_on: bool,
    /// Whether records that are deleted together are published as runs.
    has_runs: bool,
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
    /// Those of the contexts that have versions, and of others.
    pub(super) contexts: Mutex<Vec<Arc<SpinLock<Versions>>>>,
    /// A few stripes for each processor: with more, retired transactions would fill its cache.
    retired: Box<[CachePadded<Shard>]>,
    registry: Registry,
    /// Locked by the thread that keeps the limit.
    limiting: Mutex<()>,
}

/// A stripe.
#[derive(Debug, Default)]
struct Shard {
    stripe: Mutex<Stripe>,
    /// Whether there may be something in it that a commit has to clear away. Stored under the
    /// mutex.
    is_used: AtomicBool,
}

impl Shard {
    /// Changes the stripe in a way that leaves something there.
    fn fill<R>(&self, change: impl FnOnce(&mut Stripe) -> R) -> R {
        let mut stripe = self.stripe.lock();
        self.is_used.store(true, Ordering::Relaxed);
        change(&mut stripe)
    }

    /// Takes what has become possible (see [`Stripe::take_due`]).
    fn take_due(&self, most: usize) -> Due {
        let mut stripe = self.stripe.lock();
        let due = stripe.take_due(most);
        self.is_used.store(!stripe.is_empty(), Ordering::Relaxed);
        due
    }
}

impl VersionStore {
    /// Creates a store for versions of `limit` bytes. It has runs only if ghosts keep their values.
    pub(crate) fn new(order: CommitOrder, limit: u64, ghosts_keep_values: bool) -> Self {
        // A transaction with one short value takes some hundred bytes.
        let bits = (limit / 2048).max(1).ilog2().clamp(8, 20);
        Self { has_runs: ghosts_keep_values, ..Self::with_buckets(order, limit, bits, true) }
    }

    /// Creates a store that keeps nothing.
    pub(crate) fn off() -> Self {
        Self::with_buckets(CommitOrder::count(), 0, 0, false)
    }

    pub(super) fn with_buckets(order: CommitOrder, limit: u64, bits: u32, is_on: bool) -> Self {
        let stripes = (2 * thread::available_parallelism()).next_power_of_two().min(STRIPES);
        Self {
            is_on,
            has_runs: is_on,
            bits,
            limit,
            buckets: OnceLock::new(),
            publishes: AtomicBool::new(false),
            opening: Mutex::default(),
            contexts: Mutex::default(),
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

    fn own_shard(&self) -> &Shard {
        &self.retired[stripe(self.retired.len())]
    }

    /// Makes the versions of a new context known to those who open snapshots.
    #[cold]
    fn register(&self) -> Arc<SpinLock<Versions>> {
        const MANY: usize = 64;
        let new = Arc::<SpinLock<Versions>>::default();
        let mut contexts = self.contexts.lock();
        if contexts.len() >= MANY && contexts.len().is_power_of_two() {
            // Contexts that are gone, except those with versions that snapshots may need.
            let until = self.reclaimable();
            let is_needed = |versions: &Versions| versions.published.is_some() || versions.kept.is_needed(until);
            contexts.retain(|one| Arc::strong_count(one) > 1 || is_needed(&one.lock()));
        }
        contexts.push(Arc::clone(&new));
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
        let stored = self.buckets.get().map_or(0, |buckets| buckets.store_of_run(table, key, before));
        let versions = &mut *txn.shared.get_or_insert_with(|| self.register()).lock();
        let keeps = !is_deletion && versions.published.is_none() && versions.kept.running_size() < MOST_KEPT;
        // A thread that opens a snapshot sees what is kept before it locks this, and what is pushed
        // later sees that snapshot.
        if keeps && !self.publishes.load(Ordering::Acquire) {
            versions.kept.append(table, key, before, || self.reclaimable());
            return;
        }
        let published = self.publish(versions);
        published.stored += stored;
        self.add(published, table, key, before);
    }

    /// Publishes records of one leaf that are deleted together, in the order of their keys, without
    /// their values if they can be a run; otherwise as [`Self::push`].
    pub(crate) fn push_deleted(&self, txn: &mut TxnVersions, table: TableId, records: &[Deleted<'_>]) {
        if !self.is_on {
            return;
        }
        let versions = &mut *txn.shared.get_or_insert_with(|| self.register()).lock();
        let published = self.publish(versions);
        if self.has_runs
            && let Some(place) = self.buckets().add_run(&published.writer, table, records)
        {
            published.runs.push(place);
            return;
        }
        for Deleted { key, value, flags } in records {
            self.add(published, table, key, Before::Value(value, *flags));
        }
    }

    /// Adds a node with a new entry.
    fn add(&self, published: &mut Published, table: TableId, key: &[u8], before: Before<'_>) {
        let Published { writer, end, .. } = published;
        let begin = *end;
        let append = |bucket| writer.values.append(end, table, key, before, bucket);
        if self.buckets().add(writer, table, key, &self.registry, append) {
            self.count(published, published.added_since(begin));
        }
    }

    fn count(&self, published: &mut Published, bytes: u64) {
        published.bytes += bytes;
        self.buckets().count(bytes);
    }

    /// Publishes values of a transaction.
    fn publish_values<'v>(
        &self,
        writer: Arc<Writer>,
        outcome: Outcome,
        values: impl Iterator<Item = (TableId, &'v [u8], Before<'v>)>,
    ) -> Published {
        let mut published = Published::new(writer, outcome);
        self.count(&mut published, RETIRED);
        values.for_each(|(table, key, before)| self.add(&mut published, table, key, before));
        published
    }

    /// Publishes what the running transaction of a context keeps, and whatever it pushes later.
    fn publish<'v>(&self, versions: &'v mut Versions) -> &'v mut Published {
        let Versions { kept, outcome, published, spare } = versions;
        published.get_or_insert_with(|| {
            let writer = spare.take().unwrap_or_default();
            let published = self.publish_values(writer, std::mem::take(outcome), kept.running());
            kept.drop_running();
            published
        })
    }

    /// Publishes what a context keeps of committed transactions, except what no snapshot needs that
    /// shows all commits up to `until`.
    fn publish_committed(&self, versions: &mut Versions, until: Gsn) {
        for (txn, values) in versions.kept.committed_beyond(until) {
            reach(Probe::CommittedPublished);
            let outcome = Outcome::Committed(txn.at, txn.turn);
            let published = Some(self.publish_values(Arc::default(), outcome, values));
            let cleanup = Cleanup { at: txn.at, first: txn.first, ghosts: Vec::new(), has_frees: false };
            self.own_shard().fill(|stripe| stripe.enter(Retired { published, cleanup }));
        }
        versions.kept.drop_committed();
    }

    /// Publishes what transactions keep, except what no snapshot will need.
    fn publish_all(&self) {
        let until = self.reclaimable();
        let contexts = self.contexts.lock().clone();
        for context in contexts {
            let versions = &mut *context.lock();
            self.publish_committed(versions, until);
            if versions.kept.has_running() && !planted!(KeptVersionsForgotten) {
                reach(Probe::RunningPublished);
                self.publish(versions);
            }
        }
    }

    /// Drops the versions of a transaction; returns its writer for another one.
    fn drop_versions(&self, published: Published) -> Option<Arc<Writer>> {
        let Published { mut writer, end, runs, bytes, .. } = published;
        self.buckets().free(&writer, end);
        self.buckets().free_runs(&runs);
        self.buckets().discount(bytes);
        // Nothing refers to it any more.
        Arc::get_mut(&mut writer)?.reset();
        Some(writer)
    }

    /// Drops the versions of a stripe that neither a node nor a run refers to.
    fn sweep(&self, shard: &Shard) {
        // The writers are dropped when others may use the stripe again.
        let (bytes, _unused) = shard.stripe.lock().sweep();
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
        let Some(versions) = &txn.shared else { return };
        let versions = &mut *versions.lock();
        if let Some(published) = versions.published.as_ref().filter(|_| planted!(VersionPushedLate)) {
            self.buckets().mark_late(&published.writer, published.end);
        }
        versions.set(match planted!(CommitPublishedEarly) {
            true => Outcome::Committed(self.registry.order().horizon(), 0),
            false => Outcome::Committing,
        });
    }

    /// Publishes the commit, whose record has GSN `gsn`; returns its position. The GSN of the
    /// transaction's first record is `first`. It still holds its locks.
    #[inline]
    pub(crate) fn commit(&self, txn: &mut TxnVersions, gsn: Gsn, first: Gsn) -> Gsn {
        let (at, turn) = self.registry.order().position(gsn);
        let TxnVersions { shared: Some(versions), has_published } = txn else { return at };
        let versions = &mut *versions.lock();
        *has_published = versions.published.is_some();
        if !*has_published {
            versions.kept.commit(at, turn, first);
            versions.set(Outcome::Active);
        } else if !planted!(CommitPublishedEarly) {
            versions.set(Outcome::Committed(at, turn));
        }
        at
    }

    /// Drops the versions of a transaction whose changes are undone. It still holds its locks.
    pub(crate) fn abort(&self, txn: &TxnVersions) {
        let Some(versions) = &txn.shared else { return };
        let versions = &mut *versions.lock();
        if let Some(published) = versions.published.take() {
            published.writer.set(Outcome::Aborted);
            versions.spare = self.drop_versions(published);
        }
        versions.kept.drop_running();
    }

    /// Takes over the published versions of a committed transaction, and what it leaves behind.
    /// Returns whether it is time to free some (see [`Self::collect`]).
    pub(crate) fn retire(&self, txn: &mut TxnVersions, cleanup: Cleanup) -> bool {
        let shard = self.own_shard();
        let chores = match &txn.shared {
            Some(versions) if txn.has_published => {
                let versions = &mut *versions.lock();
                let published = versions.published.take();
                shard.fill(|stripe| {
                    versions.spare = versions.spare.take().or_else(|| stripe.take_spare());
                    stripe.add(Retired { published, cleanup })
                })
            }
            _ if !cleanup.is_empty() => shard.fill(|stripe| stripe.add(Retired { published: None, cleanup })),
            _ if shard.is_used.load(Ordering::Relaxed) => shard.stripe.lock().pass(),
            _ => return false,
        };
        let Chores { free, sweep, compare } = chores;
        if sweep {
            self.sweep(shard);
        }
        if compare {
            self.keep_limit();
        }
        free
    }

    /// Frees versions that the calling thread, or one that shares its stripe, has retired and that
    /// no snapshot needs. Returns up to `most` ghosts to be purged.
    pub(crate) fn collect(&self, most: usize) -> Due {
        let shard = self.own_shard();
        self.free_some(shard, self.reclaimable());
        shard.take_due(most)
    }

    /// Frees all versions that no snapshot needs, and returns all ghosts to be purged.
    pub(crate) fn collect_all(&self) -> Due {
        self.free_all();
        let mut all = Due::default();
        for shard in self.retired.iter() {
            let due = shard.take_due(usize::MAX);
            all.ghosts.extend(due.ghosts);
            all.has_frees |= due.has_frees;
        }
        all
    }

    /// Frees all versions that no snapshot needs, a few at a time: the threads of a stripe go on
    /// meanwhile.
    fn free_all(&self) {
        let until = self.reclaimable();
        for shard in self.retired.iter() {
            while self.free_some(shard, until) {}
        }
    }

    /// Frees what the first retired transactions of a stripe have left, a few of them, if no
    /// snapshot needs it. Returns whether there may be more.
    fn free_some(&self, shard: &Shard, until: Gsn) -> bool {
        let taken = shard.stripe.lock().take_reclaimable(until);
        if taken.is_empty() {
            return false;
        }
        let has_more = taken.len() == FREED_AT_ONCE;
        let drop_versions = |retired: Retired| {
            let writer = retired.published.and_then(|published| self.drop_versions(published));
            (writer, retired.cleanup)
        };
        let dropped: Vec<_> = taken.into_iter().map(drop_versions).collect();
        // The ghosts come now, because nodes keep them from being purged.
        shard.fill(|stripe| dropped.into_iter().for_each(|(writer, cleanup)| stripe.note_dropped(writer, cleanup)));
        has_more
    }

    /// Keeps ghosts that could not be purged for another time.
    pub(crate) fn postpone(&self, ghosts: impl IntoIterator<Item = Ghost>) {
        self.own_shard().fill(|stripe| stripe.ghosts.extend(ghosts));
    }

    /// Keeps ghosts for another time that other transactions have locks on, unless there are many
    /// already.
    pub(crate) fn postpone_locked(&self, ghosts: impl IntoIterator<Item = Ghost>) {
        self.own_shard().fill(|stripe| stripe.postpone_locked(ghosts));
    }

    /// Notes that there are more deferred frees to be carried out.
    pub(crate) fn postpone_frees(&self) {
        self.own_shard().fill(|stripe| stripe.has_frees = true);
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
        self.retired.iter().for_each(|shard| self.sweep(shard));
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
        for shard in self.retired.iter() {
            let stripe = shard.stripe.lock();
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
