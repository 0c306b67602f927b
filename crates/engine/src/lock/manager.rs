//! The lock manager: grants locks to transactions, makes them wait, and finds deadlocks among them.
//!
//! # Protocol
//! A transaction owns its [`TxnLocks`], which know what it holds; nobody else touches them. The
//! table of locks is an array of buckets, each a mutex around the heads of the locks that hash to
//! it (`table.rs` has the grant rule).
//!
//! - *No wait*: under the bucket's mutex the holder is added to the head. That is all.
//! - *Wait*: under the bucket's mutex the request joins the queue. Then, without it, the
//!   transaction spins for some microseconds, publishes its wait, searches for a deadlock
//!   (`deadlock.rs` argues why that finds each of them, and nothing else), and parks.
//! - *Hand-off*: whoever releases a lock or withdraws a request also grants what has become
//!   grantable, under the same hold of the bucket's mutex: it moves the requests from the queue to
//!   the holders and sets the outcome of their waiters. It unparks them when it has let go of the
//!   mutex. The woken transaction owns the lock already; nobody can get in between, and no wake-up
//!   is lost, because a parker keeps one that comes early.
//! - *Inherited locks* stay with the agent that runs one transaction after another; `inherit.rs`
//!   has their protocol.
//! - *Looks*: [`LockManager::is_grantable`] tells whether a request would have to wait, and takes
//!   nothing. An insertion looks so at the lock of its gap, under the page latch that keeps the
//!   answer true. If it would have to wait it gives up the latch, acquires the lock and keeps it
//!   over the next look until the record is in, and then goes back to what it held
//!   ([`LockManager::restore`]). A lock that it only saw free would go to those behind it in the
//!   queue meanwhile, again and again.
//!
//! # Victims
//! The victim of a deadlock is its youngest member, the one that has begun last; one that is run
//! again may keep the age of its first attempt ([`TxnLocks::set_age`]). The oldest transaction is
//! never a victim, and what it waits for ends: those in its way wait for it, and then one of them
//! is the victim, or they run. So it comes through, and then the next one. (If the member whose
//! request closed the cycle were the victim, it would be the one that got furthest, and
//! transactions that run again at once could keep each other from the end for ever.)
//!
//! The searcher, whose request closed the cycle, ends the wait of the victim, which may be itself:
//!
//! 1. It holds the detector's mutex from the search on. So two searchers do not choose victims of
//!    one cycle.
//! 2. Under the mutex of the victim's bucket it takes the request out of the queue and sets the
//!    outcome. The request has to be of the same wait, by its ticket: a member may have left by its
//!    wait limit, or because the manager was closed, and the cycle with it. A grant, the wait
//!    limit, [`LockManager::close`] and a searcher all take the request out of the queue under this
//!    mutex: one of them does, and sets the only outcome. What was behind the request is granted.
//! 3. It unparks the victim and those granted, without the bucket's mutex.
//! 4. It searches again, for its request may have closed several cycles, and parks when there is
//!    none left.
//!
//! If a thread waits for another transaction that it has open itself, the one that waits is the
//! victim, for it is the only one that waits.
//!
//! The victim keeps what it holds: it should roll back and release all. It does not wait from step
//! 2 on, so no other search finds a cycle through it.
//!
//! # Lock order
//! The detector's mutex, then one bucket mutex, or one mutex of the published waits, at a time.
//! Nothing is taken under the last two kinds. No call but [`LockManager::acquire`] waits for
//! anything else than these mutexes; it must not be made while a page latch is held.
//!
//! # Failure behaviour
//! After an error the request has left the queue without a trace, and the locks held before are
//! still held, in the same mode. [`LockManager::close`] ends every wait, now and later, and leaves
//! holders alone. There is no other way to fail; a transaction that releases what it does not hold
//! panics.

use std::time::Duration;

use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::cost::{self, Category};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, Backoff, CachePadded, Mutex};
use duramen_types::{Gsn, planted};

use super::deadlock::{Detector, Member, Wait, Waits};
use super::head::Request;
use super::id::LockId;
use super::mode::LockMode;
use super::owners::Owners;
use super::table::Bucket;
use super::txn::{Inherited, Outcome, TxnLocks, Waiter};
use crate::pre_block_hook::PreBlockHook;

/// Why a lock was not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// The transaction is the youngest in a cycle of waiting transactions; after a rollback it may
    /// be retried.
    #[error("deadlock: the transaction is the youngest in a cycle of {cycle} that wait for each other")]
    Deadlock {
        /// Number of transactions that wait in the cycle. If it is one, the thread waits for
        /// another transaction of its own.
        cycle: usize,
    },
    /// The lock was not granted within the limit.
    #[error("the lock was not granted within the wait limit")]
    Timeout,
    /// The manager was closed, and the lock was not free.
    #[error("the lock manager is closed")]
    Closed,
}

/// Sums since the manager was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct LockMetrics {
    /// Requests that had to wait, whatever came of it.
    pub(crate) waits: u64,
    /// Waits ended because of a deadlock.
    pub(crate) deadlocks: u64,
    /// Waits that reached the limit.
    pub(crate) timeouts: u64,
    /// Time of all waits, in nanoseconds.
    pub(crate) wait_nanos: u64,
}

#[derive(Debug, Default)]
struct Counters {
    waits: AtomicU64,
    deadlocks: AtomicU64,
    timeouts: AtomicU64,
    wait_nanos: AtomicU64,
    /// Searches for a deadlock that have come to an end.
    #[cfg(test)]
    searches: AtomicU64,
}

/// A bucket on a cache line of its own. (Padding against the prefetching of line pairs would double
/// the table, and with it the cache misses of threads that do not contend.)
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(Mutex<Bucket>);

/// The locks of a database.
#[derive(Debug)]
pub(crate) struct LockManager {
    buckets: Box<[Line]>,
    /// The number of buckets is two to the power of this.
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
    /// Without locks. `buckets` is rounded up to a power of two; a few times the number of locks
    /// that are held at a time is a good choice.
    pub(crate) fn new(buckets: usize) -> Self {
        let buckets = buckets.next_power_of_two();
        Self {
            buckets: (0..buckets).map(|_| Line::default()).collect(),
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

    /// Has each thread call `f` before it waits.
    #[must_use]
    pub(crate) fn with_pre_block_hook(mut self, f: impl Fn() + Send + Sync + 'static) -> Self {
        self.pre_block_hook = PreBlockHook::new(f);
        self
    }

    /// Lets no request wait longer than `limit`.
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
    /// one held; waits for as long as others are in the way.
    ///
    /// # Errors
    /// Those of [`LockError`], all of them for requests only that have to wait.
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
            // Read under the bucket's mutex: either this sees the manager closed, or closing it
            // will see the request.
            if self.closed.load(Ordering::Relaxed) {
                return Err(LockError::Closed);
            }
            let (ticket, waiter) = txn.begin_wait();
            bucket.enqueue(id, Request { txn: txn.txn(), mode, held, ticket, waiter: Arc::clone(&waiter) });
            drop(bucket);
            self.wait(Wait { txn: txn.txn(), age: txn.age(), lock: id, ticket }, &waiter)?;
            bucket = self.bucket(id).lock();
        }
        let pre_committed = bucket.pre_committed;
        drop(bucket);
        txn.saw(pre_committed);
        note(txn, id, held, mode);
        Ok(())
    }

    /// As [`Self::acquire`], but gives up instead of waiting; returns whether the lock is held in
    /// `mode` now.
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

    /// Whether [`Self::acquire`] would not wait at this moment. Takes nothing.
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
            // One that is too weak goes: the transaction will leave a stronger one behind, and has
            // only one of a lock.
            self.drop_inherited(txn.take_inherited(id));
        }
        inherits
    }

    /// Waits for the outcome of a request that is in the queue.
    #[cold]
    fn wait(&self, wait: Wait, waiter: &Waiter) -> Result<(), LockError> {
        let start = Instant::now();
        self.pre_block_hook.call();
        // A lock that goes early is often free again before this thread would have fallen asleep.
        let mut backoff = Backoff::new();
        while waiter.outcome() == Outcome::Pending && !backoff.is_long() {
            backoff.snooze();
        }
        let result = result_of(waiter.outcome()).unwrap_or_else(|| self.sleep(wait, waiter, start));
        let counters = &self.counters;
        counters.waits.fetch_add(1, Ordering::Relaxed);
        counters.wait_nanos.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        match result {
            Err(LockError::Deadlock { .. }) => counters.deadlocks.fetch_add(1, Ordering::Relaxed),
            Err(LockError::Timeout) => counters.timeouts.fetch_add(1, Ordering::Relaxed),
            Ok(()) | Err(LockError::Closed) => 0,
        };
        result
    }

    /// Waits without using the processor.
    fn sleep(&self, wait: Wait, waiter: &Waiter, start: Instant) -> Result<(), LockError> {
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
        let result = self.park(wait, waiter, start);
        self.waits.withdraw(wait, &carried);
        result
    }

    fn park(&self, wait: Wait, waiter: &Waiter, start: Instant) -> Result<(), LockError> {
        loop {
            if let Some(result) = result_of(waiter.outcome()) {
                return result;
            }
            match self.wait_limit.map(|limit| limit.saturating_sub(start.elapsed())) {
                None => waiter.parker().park(),
                // If the request has left the queue just now, the outcome is set.
                Some(Duration::ZERO) if self.withdraw(wait, None) => return Err(LockError::Timeout),
                Some(Duration::ZERO) => {}
                Some(left) => {
                    waiter.parker().park_timeout(left);
                }
            }
        }
    }

    /// Ends the wait of the youngest member of each deadlock that `wait` is part of: of those whose
    /// locks are waited for. The rollback of one whose thread has another transaction open, which
    /// is what is waited for, would change nothing.
    fn break_deadlocks(&self, wait: Wait) {
        let mut detector = self.detector.lock();
        while let Some(cycle) = detector.search(wait, &self.waits, |wait, blockers| {
            self.bucket(wait.lock).lock().blockers(wait.txn, wait.lock, wait.ticket, blockers)
        }) {
            let youngest = |members: &mut dyn Iterator<Item = &Member>| {
                members.max_by_key(|member| member.wait.age).map(|member| member.wait)
            };
            // If all wait for other transactions of the members' threads, nobody's rollback ends
            // the deadlock: to one of them it is told as to a thread that waits for itself.
            let (victim, members) = match youngest(&mut cycle.iter().filter(|member| member.is_waited_for)) {
                Some(victim) => (victim, cycle.len() as u32),
                None => (youngest(&mut cycle.iter()).expect("a cycle has members"), 1),
            };
            // A member may have left since, by its wait limit; then there is no cycle any more.
            if self.withdraw(victim, Some(Outcome::Victim(members))) {
                reach(Probe::DeadlockVictim);
                if victim != wait {
                    reach(Probe::SleepingVictim);
                }
            }
        }
    }

    /// Takes the request out of the queue; returns whether it was still there. Its transaction is
    /// woken with `outcome`, if it does not withdraw the request itself.
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
    /// If it is not held.
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

    /// Goes back to `before`, what the transaction held of the lock until it acquired a stronger
    /// mode; `None` for nothing.
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
            // It was about to be converted, and the transaction holds it as any other lock.
            bucket.release(txn.txn(), *id, *mode, granted);
        }
    }

    /// Releases the locks on records and gaps, the last taken first. Those on tables stay: what the
    /// transaction still has to clear away needs the tables to be there. `pre_committed` is the
    /// transaction's commit if that is not hardened yet, and zero otherwise: who takes one of its
    /// exclusive locks depends on it.
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
                txn.inherit(Inherited { id, mode, agent, in_use: false });
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
        // Last, for who waits for one of these locks often goes on to ask for another one.
        wake(&granted);
    }

    /// Gives up the locks that the agent has kept: it runs no further transaction.
    pub(crate) fn disinherit(&self, txn: &mut TxnLocks) {
        while let Some(inherited) = txn.pop_inherited() {
            self.drop_inherited(Some(inherited));
        }
    }

    fn drop_inherited(&self, inherited: Option<Inherited>) {
        let Some(Inherited { id, agent, in_use, .. }) = inherited else { return };
        assert!(!in_use, "an inherited lock is dropped between transactions");
        let mut granted = Vec::new();
        // It may have been revoked meanwhile.
        self.bucket(id).lock().dismiss(id, &agent, &mut granted);
        wake(&granted);
    }

    /// The calling thread ends the transaction, whoever has used it before.
    #[inline]
    pub(crate) fn adopt(&self, txn: &mut TxnLocks) {
        txn.use_by_thread(&self.owners);
    }

    /// Whether nobody holds the lock or waits for it.
    pub(crate) fn is_unlocked(&self, id: LockId) -> bool {
        !self.bucket(id).lock().contains(id)
    }

    /// Searches for a deadlock so far.
    #[cfg(test)]
    pub(super) fn searches(&self) -> u64 {
        self.counters.searches.load(Ordering::Relaxed)
    }

    /// Number of requests that wait for the lock.
    #[cfg(test)]
    pub(super) fn queue_len(&self, id: LockId) -> usize {
        self.bucket(id).lock().queue_len(id)
    }

    /// Whether nobody holds any lock or waits for any. Buckets are looked at one by one.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.buckets.iter().all(|Line(bucket)| bucket.lock().is_empty())
    }

    /// Ends every wait with [`LockError::Closed`], and those that would begin from now on. Locks
    /// that are held stay so until they are released, and locks that are free can still be taken.
    pub(crate) fn close(&self) {
        // The bucket mutexes order this store before every later look at a queue.
        self.closed.store(true, Ordering::Relaxed);
        let mut evicted = Vec::new();
        for Line(bucket) in &self.buckets {
            bucket.lock().evict_waiters(&mut evicted);
        }
        wake(&evicted);
    }

    /// The sums so far.
    pub(crate) fn metrics(&self) -> LockMetrics {
        LockMetrics {
            waits: self.counters.waits.load(Ordering::Relaxed),
            deadlocks: self.counters.deadlocks.load(Ordering::Relaxed),
            timeouts: self.counters.timeouts.load(Ordering::Relaxed),
            wait_nanos: self.counters.wait_nanos.load(Ordering::Relaxed),
        }
    }
}

/// How a wait ended, if it has.
fn result_of(outcome: Outcome) -> Option<Result<(), LockError>> {
    match outcome {
        Outcome::Pending => None,
        Outcome::Granted => Some(Ok(())),
        Outcome::Closed => Some(Err(LockError::Closed)),
        Outcome::Victim(cycle) => Some(Err(LockError::Deadlock { cycle: cycle as usize })),
    }
}

/// The mode to convert to, unless what is held is enough.
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
                // A conversion has made it a lock like others.
                txn.take_inherited(id);
            }
            txn.note(id, mode);
        }
    }
}

/// Unparks those whose outcome was set.
fn wake(waiters: &[Arc<Waiter>]) {
    let woken = waiters.len() - usize::from(planted!(HandOffLost) && waiters.len() > 1);
    for waiter in &waiters[..woken] {
        reach(Probe::LockHandedOff);
        waiter.parker().unpark();
    }
}
