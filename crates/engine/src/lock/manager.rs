//! The lock manager: grants locks to transactions, makes them wait, and finds deadlocks among them.
//!
//! # Protocol
//! A transaction owns its [`TxnLocks`], which record its locks; no other transaction touches them.
//! The table of locks is an array of buckets, each a mutex around the heads of the locks that hash
//! to it (`table.rs`; `head.rs` has the grant rule).
//!
//! - *No wait*: under the bucket's mutex the holder is added to the head. Nothing else happens.
//! - *Wait*: under the bucket's mutex the request joins the queue. Then, without the mutex, the
//!   transaction spins for some microseconds, publishes its wait, searches for a deadlock
//!   (`deadlock.rs` argues why the search finds exactly the deadlocks), and parks.
//! - *Hand-off*: a thread that releases a lock or withdraws a request also grants the requests that
//!   have become grantable, under the same hold of the bucket's mutex. It moves them from the queue
//!   to the holders and sets the outcome of their waiters. After it has released the mutex, it
//!   unparks them. A woken transaction already owns the lock, so no other transaction can take the
//!   lock first. No wake-up is lost, because a parker keeps one that comes early.
//! - *Inherited locks* stay with the agent that runs one transaction after another; `inherit.rs`
//!   has their protocol.
//! - *Checks*: [`LockManager::is_grantable`] returns whether a request would be granted without a
//!   wait, and takes nothing. An insertion checks the lock of its gap in this way, under the page
//!   latch that keeps the answer true. If it would have to wait, it releases the latch, acquires
//!   the lock, and keeps it over the next check until the record is in the leaf. Then it restores
//!   the mode that it held before ([`LockManager::restore`]). If the insertion only checked that
//!   the lock is free, the requests behind it in the queue would get the lock first, again and
//!   again.
//!
//! # Victims
//! The victim of a deadlock is its youngest member: the transaction that began last. A transaction
//! that is run again may keep the age of its first attempt ([`TxnLocks::set_age`]). The oldest
//! transaction is never a victim, and each of its waits ends: the transactions that block it either
//! run, or wait for it, and then one of them is the victim. So the oldest transaction commits, and
//! then the next one. (If the member whose request closed the cycle were the victim, the deadlock
//! would hit the member that got furthest, and transactions that run again at once could keep each
//! other from finishing for ever.)
//!
//! The searcher, whose request closed the cycle, ends the wait of the victim, which may be itself:
//!
//! 1. It holds the detector's mutex from the search on. So two searchers never choose victims of
//!    the same cycle.
//! 2. Under the mutex of the victim's bucket it takes the request out of the queue and sets the
//!    outcome. The request must belong to the same wait, by its ticket: a member may have left
//!    because of its wait limit, or because the manager was closed; then the cycle is gone. A
//!    grant, the wait limit, [`LockManager::close`] and a searcher all take the request out of the
//!    queue under this mutex: exactly one of them does, and sets the only outcome. Requests behind
//!    it are granted if the rule allows it.
//! 3. It unparks the victim and the granted transactions, without the bucket's mutex.
//! 4. It searches again, because its request may have closed several cycles, and parks when no
//!    cycle is left.
//!
//! If a thread waits for another transaction that it has open itself, the waiting transaction is
//! the victim, because it is the only one that waits.
//!
//! The victim keeps the locks that it holds: it should roll back and release them all. It does not
//! wait from step 2 on, so no other search finds a cycle through it.
//!
//! # Lock order
//! The detector's mutex, then one bucket mutex, or one mutex of the published waits, at a time. No
//! other lock is taken under the last two kinds. Only [`LockManager::acquire`] waits for anything
//! else than these mutexes; it must not be called while a page latch is held.
//!
//! # Failure behaviour
//! After an error the request has left the queue without a trace, and the locks held before are
//! still held, in the same mode. [`LockManager::close`] ends every present and later wait, and does
//! not affect holders. There is no other way to fail; a transaction that releases a lock that it
//! does not hold panics.

use std::time::Duration;

use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::cost::{self, Category};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, Backoff, CachePadded, Mutex, nesting};
use duramen_types::{Gsn, planted};

use super::deadlock::{Detector, Member, Wait, Waits};
use super::head::Request;
use super::id::LockId;
use super::mode::LockMode;
use super::owners::Owners;
use super::table::Bucket;
use super::txn::{Inherited, Outcome, TxnLocks, Waiter};
use crate::pre_block_hook::PreBlockHook;
use crate::zeroed::{Zeroed, ZeroedSlice};

/// Why a lock was not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// The transaction is the youngest in a cycle of waiting transactions; after a rollback it may
    /// be retried.
    #[error("deadlock: the transaction is the youngest of {cycle} transactions that wait for each other")]
    Deadlock {
        /// Number of transactions that wait in the cycle. One means that the thread waits for
        /// another transaction of its own. Zero means that several threads wait for such
        /// transactions of each other, so that the rollback of this one does not help.
        cycle: usize,
    },
    /// The lock was not granted within the limit.
    #[error("the lock was not granted within the wait limit")]
    Timeout,
    /// The lock was not free, and the transaction does not wait.
    #[error("the lock was not free")]
    Refused {
        /// Whether the calling thread has another transaction open: the lock may be that one's, or
        /// wait for it.
        of_own_thread: bool,
    },
    /// The manager was closed, and the lock was not free.
    #[error("the lock manager is closed")]
    Closed,
}

/// Totals since the manager was created.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct LockMetrics {
    /// Requests that had to wait, whatever their outcome.
    pub(crate) waits: u64,
    /// Waits ended because of a deadlock.
    pub(crate) deadlocks: u64,
    /// Waits that reached the limit.
    pub(crate) timeouts: u64,
    /// Total time of all waits, in nanoseconds.
    pub(crate) wait_nanos: u64,
}

#[derive(Debug, Default)]
struct Counters {
    waits: AtomicU64,
    deadlocks: AtomicU64,
    timeouts: AtomicU64,
    wait_nanos: AtomicU64,
    /// Completed searches for a deadlock.
    #[cfg(test)]
    searches: AtomicU64,
}

/// A bucket on a cache line of its own. (Padding against the prefetching of line pairs would double
/// the table, and with it the cache misses of threads that do not contend.)
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(Mutex<Bucket>);

// SAFETY: an unlocked mutex is zero; so are an empty place for a lock, whose holder is never zero,
// the GSN zero, and an empty option of a box. A test compares them.
unsafe impl Zeroed for Line {}

/// The locks of a database.
#[derive(Debug)]
pub(crate) struct LockManager {
    buckets: ZeroedSlice<Line>,
    /// Base-two logarithm of the number of buckets.
    bits: u32,
    wait_limit: Option<Duration>,
    /// Whether agents keep intention locks.
    inheritance: bool,
    closed: AtomicBool,
    owners: Owners,
    waits: Waits,
    detector: Mutex<Detector>,
    counters: CachePadded<Counters>,
    pre_block_hook: PreBlockHook,
}

impl LockManager {
    /// Creates a manager without locks. `buckets` is rounded up to a power of two; a few times the
    /// number of locks that are held at the same time is a good choice.
    pub(crate) fn new(buckets: usize) -> Self {
        let buckets = buckets.next_power_of_two();
        Self {
            buckets: ZeroedSlice::new(buckets).expect("there is memory for the buckets"),
            bits: buckets.trailing_zeros(),
            wait_limit: None,
            inheritance: false,
            closed: AtomicBool::new(false),
            owners: Owners::default(),
            waits: Waits::new(),
            detector: Mutex::new(Detector::default()),
            counters: CachePadded::new(Counters::default()),
            pre_block_hook: PreBlockHook::default(),
        }
    }

    /// Sets the function that each thread calls before it waits.
    #[must_use]
    pub(crate) fn with_pre_block_hook(mut self, f: impl Fn() + Send + Sync + 'static) -> Self {
        self.pre_block_hook = PreBlockHook::new(f);
        self
    }

    /// Limits the wait of each request to `limit`, unless its transaction has a limit of its own
    /// ([`TxnLocks::set_wait_limit`]). A limit of zero is no wait at all.
    #[must_use]
    pub(crate) fn with_wait_limit(mut self, limit: Duration) -> Self {
        self.wait_limit = Some(limit);
        self
    }

    /// Lets agents keep intention locks on tables from transaction to transaction.
    #[must_use]
    pub(crate) fn with_inheritance(mut self, inheritance: bool) -> Self {
        self.inheritance = inheritance;
        self
    }

    #[inline]
    fn bucket(&self, id: LockId) -> &Mutex<Bucket> {
        &self.buckets[id.bucket(self.bits)].0
    }

    /// Makes `txn` hold the lock in `mode`, or in the weakest mode that covers both `mode` and the
    /// one held; waits as long as other transactions block the request.
    ///
    /// # Errors
    /// Those of [`LockError`]; only requests that have to wait fail.
    #[inline]
    pub(crate) fn acquire(&self, txn: &mut TxnLocks, id: LockId, mode: LockMode) -> Result<(), LockError> {
        let _lock = cost::scope(Category::Lock);
        txn.use_by_thread(&self.owners);
        let held = txn.held(id);
        let Some(mode) = missing(held, mode) else { return Ok(()) };
        if held.is_none() && self.inherits(txn, id, mode) {
            return Ok(());
        }
        let mut bucket = self.bucket(id).lock();
        if !bucket.try_grant(txn.txn(), id, held, mode) {
            // Read under the bucket's mutex: either this thread sees that the manager is closed, or
            // the closing thread will see the request.
            if self.closed.load(Ordering::Relaxed) {
                return Err(LockError::Closed);
            }
            let limit = txn.wait_limit().unwrap_or(self.wait_limit);
            if limit == Some(Duration::ZERO) {
                self.counters.timeouts.fetch_add(1, Ordering::Relaxed);
                drop(bucket);
                return Err(LockError::Refused { of_own_thread: !self.owners.carried(txn.txn()).is_empty() });
            }
            let (ticket, waiter) = txn.begin_wait();
            bucket.enqueue(id, Request { txn: txn.txn(), mode, held, ticket, waiter: Arc::clone(&waiter) });
            drop(bucket);
            self.wait(Wait { txn: txn.txn(), age: txn.age(), lock: id, ticket }, &waiter, limit)?;
            bucket = self.bucket(id).lock();
        }
        let pre_committed = bucket.pre_committed;
        drop(bucket);
        txn.saw(pre_committed);
        note(txn, id, held, mode);
        Ok(())
    }

    /// Acquires the lock as [`Self::acquire`] does, but gives up instead of waiting; returns
    /// whether the lock is now held in `mode`.
    #[inline]
    pub(crate) fn try_acquire(&self, txn: &mut TxnLocks, id: LockId, mode: LockMode) -> bool {
        let _lock = cost::scope(Category::Lock);
        let held = txn.held(id);
        let Some(mode) = missing(held, mode) else { return true };
        if held.is_none() && self.inherits(txn, id, mode) {
            return true;
        }
        let pre_committed = {
            let mut bucket = self.bucket(id).lock();
            if !bucket.try_grant(txn.txn(), id, held, mode) {
                return false;
            }
            bucket.pre_committed
        };
        txn.saw(pre_committed);
        note(txn, id, held, mode);
        true
    }

    /// Returns whether [`Self::acquire`] would not have to wait at this moment. Takes nothing.
    #[inline]
    pub(crate) fn is_grantable(&self, txn: &TxnLocks, id: LockId, mode: LockMode) -> bool {
        let held = txn.held(id);
        missing(held, mode).is_none_or(|mode| self.bucket(id).lock().is_grantable(id, held, mode))
    }

    /// Uses an inherited lock that covers `mode`, if there is one; `txn` does not hold the lock
    /// yet.
    #[inline]
    fn inherits(&self, txn: &mut TxnLocks, id: LockId, mode: LockMode) -> bool {
        if !self.inheritance || !id.is_coarse() {
            return false;
        }
        let inherits = txn.use_inherited(id, mode);
        if !inherits {
            // An inherited lock that is too weak is dropped: the transaction will leave a stronger
            // one behind, and an agent has only one entry for each lock.
            self.drop_inherited(txn.take_inherited(id));
        }
        inherits
    }

    /// Waits for the outcome of a queued request.
    #[cold]
    fn wait(&self, wait: Wait, waiter: &Waiter, limit: Option<Duration>) -> Result<(), LockError> {
        let start = Instant::now();
        debug_assert_eq!(nesting::depth(), 0, "a thread waits for a lock in a section");
        self.pre_block_hook.call();
        // A lock that is released early is often free again before this thread would have parked.
        let mut backoff = Backoff::new();
        while waiter.outcome() == Outcome::Pending && !backoff.is_long() {
            backoff.snooze();
        }
        let result = result_of(waiter.outcome()).unwrap_or_else(|| self.sleep(wait, waiter, limit, start));
        let counters = &self.counters;
        counters.waits.fetch_add(1, Ordering::Relaxed);
        counters.wait_nanos.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        match result {
            Err(LockError::Deadlock { .. }) => counters.deadlocks.fetch_add(1, Ordering::Relaxed),
            Err(LockError::Timeout) => counters.timeouts.fetch_add(1, Ordering::Relaxed),
            Ok(()) | Err(LockError::Refused { .. } | LockError::Closed) => 0,
        };
        result
    }

    /// Waits without using the processor.
    fn sleep(&self, wait: Wait, waiter: &Waiter, limit: Option<Duration>, start: Instant) -> Result<(), LockError> {
        let carried = self.owners.carried(wait.txn);
        if !planted!(WaitPublishedLate) {
            self.waits.publish(wait, &carried);
        }
        self.break_deadlocks(wait);
        if planted!(WaitPublishedLate) {
            self.waits.publish(wait, &carried);
        }
        #[cfg(test)]
        self.counters.searches.fetch_add(1, Ordering::Relaxed);
        let result = self.park(wait, waiter, limit, start);
        self.waits.withdraw(wait, &carried);
        result
    }

    fn park(&self, wait: Wait, waiter: &Waiter, limit: Option<Duration>, start: Instant) -> Result<(), LockError> {
        loop {
            if let Some(result) = result_of(waiter.outcome()) {
                return result;
            }
            match limit.map(|limit| limit.saturating_sub(start.elapsed())) {
                None => waiter.parker().park(),
                // If the request has just left the queue, its outcome is set.
                Some(Duration::ZERO) if self.withdraw(wait, None) => return Err(LockError::Timeout),
                Some(Duration::ZERO) => {}
                Some(left) => {
                    waiter.parker().park_timeout(left);
                }
            }
        }
    }

    /// Breaks each deadlock that `wait` is part of: ends the wait of its youngest member among
    /// those whose own locks another member waits for. If a member is in the cycle only because its
    /// thread has another transaction open, its rollback would change nothing.
    fn break_deadlocks(&self, wait: Wait) {
        let mut detector = self.detector.lock();
        while let Some(cycle) = detector.search(wait, &self.waits, |wait, blockers| {
            self.bucket(wait.lock).lock().blockers(wait.txn, wait.lock, wait.ticket, blockers)
        }) {
            let youngest = |members: &mut dyn Iterator<Item = &Member>| {
                members.max_by_key(|member| member.wait.age).map(|member| member.wait)
            };
            // If every edge leads to another transaction of a member's thread, no member's rollback
            // ends the deadlock.
            let (victim, members) = match youngest(&mut cycle.iter().filter(|member| member.is_waited_for)) {
                Some(victim) => (victim, cycle.len() as u32),
                None => (youngest(&mut cycle.iter()).expect("a cycle has members"), u32::from(cycle.len() == 1)),
            };
            // A member may have left since, because of its wait limit; then the cycle is gone.
            if self.withdraw(victim, Some(Outcome::Victim(members))) {
                reach(Probe::DeadlockVictim);
                if victim != wait {
                    reach(Probe::SleepingVictim);
                }
            }
        }
    }

    /// Takes the request out of the queue; returns whether it was still there. Wakes its
    /// transaction with `outcome`; without an outcome, the transaction itself withdraws the
    /// request.
    fn withdraw(&self, wait: Wait, outcome: Option<Outcome>) -> bool {
        let mut granted = Vec::new();
        let withdrawn = {
            let mut bucket = self.bucket(wait.lock).lock();
            let request = bucket.withdraw(wait.txn, wait.lock, wait.ticket, &mut granted);
            if let (Some(request), Some(outcome)) = (&request, outcome) {
                request.waiter.set(outcome);
            }
            request
        };
        if !granted.is_empty() {
            reach(Probe::GrantedByWithdrawal);
        }
        wake(&granted);
        if let (Some(request), Some(_)) = (&withdrawn, outcome)
            && !planted!(VictimNotWoken)
        {
            request.waiter.parker().unpark();
        }
        withdrawn.is_some()
    }

    /// Releases a lock, in whichever mode it is held.
    ///
    /// # Panics
    /// If the lock is not held.
    pub(crate) fn release_one(&self, txn: &mut TxnLocks, id: LockId) {
        let mut granted = Vec::new();
        match txn.forget(id) {
            Some(mode) => self.bucket(id).lock().release(txn.txn(), id, mode, &mut granted),
            None => {
                let inherited = txn.take_inherited(id).filter(|lock| lock.in_use);
                self.end_use(txn, &inherited.expect("only a lock that is held is released"), &mut granted);
            }
        }
        wake(&granted);
    }

    /// Restores `before`, the mode in which the transaction held the lock until it acquired a
    /// stronger one; `None` releases the lock.
    ///
    /// # Panics
    /// If the lock is not held.
    pub(crate) fn restore(&self, txn: &mut TxnLocks, id: LockId, before: Option<LockMode>) {
        let Some(before) = before else { return self.release_one(txn, id) };
        let held = txn.held(id).expect("only a lock that is held is weakened");
        if held != before {
            let mut granted = Vec::new();
            self.bucket(id).lock().weaken(txn.txn(), id, held, before, &mut granted);
            txn.note(id, before);
            wake(&granted);
        }
    }

    /// Gives an inherited lock that the transaction uses back to its head.
    fn end_use(&self, txn: &TxnLocks, inherited: &Inherited, granted: &mut Vec<Arc<Waiter>>) {
        let Inherited { id, mode, agent, .. } = inherited;
        let mut bucket = self.bucket(*id).lock();
        if !bucket.dismiss(*id, agent, granted) {
            // A request for a conversion has adopted the lock: the transaction holds it as an
            // ordinary lock.
            bucket.release(txn.txn(), *id, *mode, granted);
        }
    }

    /// Releases the locks on records and gaps, the last taken first. Locks on tables stay, because
    /// clearing away after the transaction needs the tables. `pre_committed` is the GSN of the
    /// transaction's commit if it is not hardened yet, and zero otherwise: a transaction that takes
    /// one of the released exclusive locks, or later one on a table, depends on this commit.
    pub(crate) fn release_fine(&self, txn: &mut TxnLocks, pre_committed: Gsn) {
        let _lock = cost::scope(Category::Lock);
        let mut granted = Vec::new();
        txn.retain_coarse(|txn, id, mode| {
            let mut bucket = self.bucket(id).lock();
            if mode == LockMode::Exclusive && !planted!(EarlyReleaseNotTold) {
                bucket.pre_committed = bucket.pre_committed.max(pre_committed);
            }
            bucket.release(txn, id, mode, &mut granted);
        });
        for id in txn.exclusive() {
            let mut bucket = self.bucket(id).lock();
            bucket.pre_committed = bucket.pre_committed.max(pre_committed);
        }
        wake(&granted);
    }

    /// Releases every lock of the transaction, the last taken first; intention locks on tables may
    /// stay with the agent.
    pub(crate) fn release_all(&self, txn: &mut TxnLocks) {
        let _lock = cost::scope(Category::Lock);
        let mut granted = Vec::new();
        if self.inheritance {
            self.drop_inherited(txn.take_unused_if_full());
        }
        while let Some((id, mode)) = txn.pop() {
            let mut bucket = self.bucket(id).lock();
            let is_intent = matches!(mode, LockMode::IntentShared | LockMode::IntentExclusive);
            let inherits = self.inheritance && is_intent && id.is_coarse() && txn.may_inherit();
            if inherits && let Some(agent) = bucket.bequeath(txn.txn(), id, mode) {
                let pre_committed = bucket.pre_committed;
                txn.inherit(Inherited { id, mode, agent, in_use: false, pre_committed });
                continue;
            }
            bucket.release(txn.txn(), id, mode, &mut granted);
        }
        while let Some(inherited) = txn.give_back_inherited() {
            reach(Probe::InheritedLockGivenBack);
            self.end_use(txn, &inherited, &mut granted);
        }
        txn.clear_index();
        txn.end_use();
        // Last, because a transaction that waits for one of these locks often goes on to request
        // another.
        wake(&granted);
    }

    /// Gives up the locks that the agent has kept, because it runs no further transaction.
    pub(crate) fn disinherit(&self, txn: &mut TxnLocks) {
        while let Some(inherited) = txn.pop_inherited() {
            self.drop_inherited(Some(inherited));
        }
    }

    fn drop_inherited(&self, inherited: Option<Inherited>) {
        let Some(Inherited { id, agent, in_use, .. }) = inherited else { return };
        assert!(!in_use, "an inherited lock is dropped between transactions");
        let mut granted = Vec::new();
        // The lock may have been revoked in the meantime.
        self.bucket(id).lock().dismiss(id, &agent, &mut granted);
        wake(&granted);
    }

    /// Records that the calling thread ends the transaction, whichever thread has used it before.
    #[inline]
    pub(crate) fn adopt(&self, txn: &mut TxnLocks) {
        txn.use_by_thread(&self.owners);
    }

    /// Returns whether no transaction holds the lock or waits for it.
    pub(crate) fn is_unlocked(&self, id: LockId) -> bool {
        !self.bucket(id).lock().contains(id)
    }

    /// Returns whether no other transaction than the caller's, which holds it, holds the lock at
    /// some moment during the call. One that takes the lock later sees what the caller has done
    /// before the call.
    pub(crate) fn is_held_alone(&self, id: LockId) -> bool {
        self.bucket(id).lock().is_held_alone(id)
    }

    /// Returns the number of searches for a deadlock so far.
    #[cfg(test)]
    pub(super) fn searches(&self) -> u64 {
        self.counters.searches.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that wait for the lock.
    #[cfg(test)]
    pub(super) fn queue_len(&self, id: LockId) -> usize {
        self.bucket(id).lock().queue_len(id)
    }

    /// Returns whether no transaction holds any lock or waits for one. Reads the buckets one by
    /// one.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.buckets.iter().all(|Line(bucket)| bucket.lock().is_empty())
    }

    /// Ends every present and later wait with [`LockError::Closed`]. Locks that are held stay so
    /// until they are released, and locks that are free can still be taken.
    pub(crate) fn close(&self) {
        // The bucket mutexes order this store before every later read of a queue.
        self.closed.store(true, Ordering::Relaxed);
        let mut evicted = Vec::new();
        for Line(bucket) in self.buckets.iter() {
            bucket.lock().evict_waiters(&mut evicted);
        }
        wake(&evicted);
    }

    /// Returns the totals so far.
    pub(crate) fn metrics(&self) -> LockMetrics {
        LockMetrics {
            waits: self.counters.waits.load(Ordering::Relaxed),
            deadlocks: self.counters.deadlocks.load(Ordering::Relaxed),
            timeouts: self.counters.timeouts.load(Ordering::Relaxed),
            wait_nanos: self.counters.wait_nanos.load(Ordering::Relaxed),
        }
    }
}

/// Returns the result of a wait, if it has ended.
fn result_of(outcome: Outcome) -> Option<Result<(), LockError>> {
    match outcome {
        Outcome::Pending => None,
        Outcome::Granted => Some(Ok(())),
        Outcome::Closed => Some(Err(LockError::Closed)),
        Outcome::Victim(cycle) => Some(Err(LockError::Deadlock { cycle: cycle as usize })),
    }
}

/// Returns the mode to convert to, unless the held mode is sufficient.
#[inline]
fn missing(held: Option<LockMode>, mode: LockMode) -> Option<LockMode> {
    match held {
        None => Some(mode),
        Some(held) if held.covers(mode) => None,
        Some(held) => Some(held.join(mode)),
    }
}

#[inline]
fn note(txn: &mut TxnLocks, id: LockId, held: Option<LockMode>, mode: LockMode) {
    match held {
        None => txn.push(id, mode),
        Some(_) => {
            if id.is_coarse() {
                // A conversion has turned the inherited lock into an ordinary one.
                txn.take_inherited(id);
            }
            txn.note(id, mode);
        }
    }
}

/// Unparks the waiters whose outcome was set.
fn wake(waiters: &[Arc<Waiter>]) {
    let woken = waiters.len() - usize::from(planted!(HandOffLost) && waiters.len() > 1);
    for waiter in &waiters[..woken] {
        reach(Probe::LockHandedOff);
        waiter.parker().unpark();
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod zeros {
    use super::*;

    #[test]
    fn zeros_are_new_buckets() {
        let buckets = ZeroedSlice::<Line>::new(3).unwrap();
        for line in buckets.iter() {
            assert_eq!(format!("{line:?}"), format!("{:?}", Line::default()));
            assert!(line.0.try_lock().is_some());
        }
    }
}
