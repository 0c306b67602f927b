//! The locks of one transaction, and how the transaction is woken.

use std::collections::HashMap;
use std::time::Duration;

use duramen_sync::atomic::{AtomicU32, Ordering};
use duramen_sync::thread::{self, Parker};
use duramen_sync::{Arc, clock};
use duramen_types::{Gsn, TxnId};

use super::id::LockId;
use super::inherit::Agent;
use super::mode::LockMode;
use super::owners::{Owner, Owners};
use crate::hash::BuildNumberHasher;

/// Up to this number, locks are searched one by one; beyond it, through a hash index.
const UNINDEXED: usize = 16;

/// An index that has grown beyond this capacity is dropped rather than kept for the next
/// transaction.
const KEPT_INDEX: usize = 1024;

/// The state of a transaction's wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// Still in a queue, or not waiting.
    Pending,
    /// The request was granted and is out of the queue.
    Granted,
    /// The manager was closed and the request is out of the queue.
    Closed,
    /// The transaction is the victim of a deadlock of this many members, or of those whose rollback
    /// does not help if it is zero, and the request is out of the queue.
    Victim(u32),
}

impl Outcome {
    /// Outcomes as numbers: from this one on they are victims, and the difference is the number of
    /// members.
    const VICTIM: u32 = 3;

    fn to_u32(self) -> u32 {
        match self {
            Self::Pending => 0,
            Self::Granted => 1,
            Self::Closed => 2,
            Self::Victim(cycle) => Self::VICTIM + cycle,
        }
    }

    fn from_u32(raw: u32) -> Self {
        match raw {
            0 => Self::Pending,
            1 => Self::Granted,
            2 => Self::Closed,
            victim => Self::Victim(victim - Self::VICTIM),
        }
    }
}

/// The point at which the thread of a transaction waits.
///
/// The thread that takes the request out of the queue changes the outcome from pending to another
/// state, under the mutex of the bucket in which the transaction waits. The transaction itself sets
/// it back to pending before it queues again.
#[derive(Debug, Default)]
pub(super) struct Waiter {
    outcome: AtomicU32,
    parker: Parker,
}

impl Waiter {
    pub(super) fn set(&self, outcome: Outcome) {
        // Release, because the waiter may see the new state without having taken the bucket's
        // mutex.
        self.outcome.store(outcome.to_u32(), Ordering::Release);
    }

    pub(super) fn outcome(&self) -> Outcome {
        Outcome::from_u32(self.outcome.load(Ordering::Acquire))
    }

    /// A wake-up of an earlier wait may still arrive during a later one: a thread that parks must
    /// read the outcome again.
    pub(super) fn parker(&self) -> &Parker {
        &self.parker
    }
}

/// The most locks that an agent keeps.
const INHERITED: usize = 16;

/// A lock that the agent keeps from transaction to transaction.
#[derive(Debug)]
pub(super) struct Inherited {
    pub(super) id: LockId,
    pub(super) mode: LockMode,
    pub(super) agent: Arc<Agent>,
    /// Whether the current transaction uses the lock.
    pub(super) in_use: bool,
    /// The latest commit that had released the lock, or another one of its bucket, before it was
    /// hardened. A later one revokes the lock first.
    pub(super) pre_committed: Gsn,
}

/// The time when a transaction, or the first attempt at it, began. Ages are distinct, and the
/// youngest is the largest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Age {
    /// The value of [`clock::ticks`]. Transaction ids do not follow the order of time, because
    /// threads take many at once.
    began: u64,
    /// The id of the first attempt.
    txn: TxnId,
}

impl Age {
    /// Returns the age of a transaction that begins now.
    #[inline]
    pub(crate) fn now(txn: TxnId) -> Self {
        Self { began: clock::ticks(), txn }
    }

    /// Returns an age that depends on the number alone.
    #[cfg(test)]
    pub(super) fn of(txn: u64) -> Self {
        Self { began: 0, txn: TxnId::new(txn) }
    }
}

/// The locks of one transaction, and those that its agent keeps for the next one. The agent must
/// pass it to [`super::LockManager::release_all`] when the transaction ends, and to
/// [`super::LockManager::disinherit`] before dropping it.
#[derive(Debug)]
pub(crate) struct TxnLocks {
    txn: TxnId,
    age: Age,
    owner: Arc<Owner>,
    /// A copy of the owner's thread.
    thread: u64,
    /// Whether the owner names the transaction.
    is_open: bool,
    held: Vec<(LockId, LockMode)>,
    /// Positions in `held`; either empty or complete.
    index: HashMap<LockId, u32, BuildNumberHasher>,
    /// Created at the first wait: most transactions never wait.
    waiter: Option<Arc<Waiter>>,
    tickets: u64,
    /// The latest commit that has released locks early to this transaction.
    seen: Gsn,
    /// How long each of its requests may wait, if not as long as the manager's limit says.
    wait_limit: Option<Option<Duration>>,
    inherited: Vec<Inherited>,
}

impl TxnLocks {
    /// Creates the locks of a transaction that holds none yet. The id must be unique at the lock
    /// manager.
    pub(crate) fn new(txn: TxnId) -> Self {
        Self {
            txn,
            age: Age { began: 0, txn },
            owner: Arc::default(),
            thread: 0,
            is_open: false,
            held: Vec::new(),
            index: HashMap::default(),
            waiter: None,
            tickets: 0,
            seen: Gsn::ZERO,
            wait_limit: None,
            inherited: Vec::new(),
        }
    }

    /// Reuses the memory for another transaction.
    ///
    /// # Panics
    /// If locks are still held.
    pub(crate) fn renew(&mut self, txn: TxnId) {
        assert!(self.held.is_empty(), "the locks of {} were released", self.txn);
        self.txn = txn;
        self.age = Age { began: 0, txn };
        self.seen = Gsn::ZERO;
        self.wait_limit = None;
    }

    /// Limits the wait of each later request, instead of the manager's limit; `None` is no limit.
    pub(crate) fn set_wait_limit(&mut self, limit: Option<Duration>) {
        self.wait_limit = Some(limit);
    }

    /// Returns the limit that [`Self::set_wait_limit`] has set.
    pub(super) fn wait_limit(&self) -> Option<Option<Duration>> {
        self.wait_limit
    }

    /// Records that the calling thread uses the transaction.
    #[inline]
    pub(super) fn use_by_thread(&mut self, owners: &Owners) {
        if self.thread != thread::id() {
            self.thread = thread::id();
            owners.enter(&self.owner);
        }
        if !self.is_open {
            self.is_open = true;
            self.owner.set_txn(self.txn);
        }
    }

    /// Records that the transaction no longer holds any lock.
    #[inline]
    pub(super) fn end_use(&mut self) {
        self.is_open = false;
        self.owner.set_txn(TxnId::ZERO);
    }

    /// Sets when the transaction began; an earlier attempt at the same transaction gives its age.
    /// By default the age follows from the id.
    #[inline]
    pub(crate) fn set_age(&mut self, age: Age) {
        self.age = age;
    }

    /// Returns the transaction's age.
    pub(crate) fn age(&self) -> Age {
        self.age
    }

    /// Records that the transaction may have seen the changes of the commit at `gsn`.
    #[inline]
    pub(crate) fn saw(&mut self, gsn: Gsn) {
        self.seen = self.seen.max(gsn);
    }

    /// Returns what must be hardened before the application may act on what the transaction has
    /// read. Zero for nothing.
    pub(crate) fn seen(&self) -> Gsn {
        self.seen
    }

    /// Uses an inherited lock; returns `false` if there is none that covers `mode`. Forgets a lock
    /// that has been revoked.
    #[inline]
    pub(super) fn use_inherited(&mut self, id: LockId, mode: LockMode) -> bool {
        let Some(at) = self.inherited.iter().position(|lock| lock.id == id) else { return false };
        let lock = &mut self.inherited[at];
        if lock.in_use || !lock.mode.covers(mode) {
            return lock.in_use && lock.mode.covers(mode);
        }
        lock.in_use = lock.agent.take(self.txn);
        let (in_use, pre_committed) = (lock.in_use, lock.pre_committed);
        if in_use {
            self.saw(pre_committed);
        } else {
            self.inherited.swap_remove(at);
        }
        in_use
    }

    /// Takes out an inherited lock that the transaction has not used, if the list is full: locks in
    /// use take precedence.
    pub(super) fn take_unused_if_full(&mut self) -> Option<Inherited> {
        if self.may_inherit() {
            return None;
        }
        let at = self.inherited.iter().position(|lock| !lock.in_use)?;
        Some(self.inherited.remove(at))
    }

    /// Returns whether one more lock may be inherited.
    pub(super) fn may_inherit(&self) -> bool {
        self.inherited.len() < INHERITED
    }

    pub(super) fn inherit(&mut self, inherited: Inherited) {
        debug_assert!(self.inherited.iter().all(|lock| lock.id != inherited.id), "a lock is inherited once");
        self.inherited.push(inherited);
    }

    /// Takes out the inherited lock with this id.
    pub(super) fn take_inherited(&mut self, id: LockId) -> Option<Inherited> {
        let at = self.inherited.iter().position(|lock| lock.id == id)?;
        Some(self.inherited.swap_remove(at))
    }

    /// Gives inherited locks back for the next transaction; returns the first one that must be
    /// given back to its head instead.
    #[inline]
    pub(super) fn give_back_inherited(&mut self) -> Option<Inherited> {
        let txn = self.txn;
        let refused = self.inherited.iter_mut().position(|lock| {
            let refused = lock.in_use && !lock.agent.give_back(txn);
            lock.in_use = refused;
            refused
        })?;
        Some(self.inherited.swap_remove(refused))
    }

    /// Takes out any inherited lock.
    pub(super) fn pop_inherited(&mut self) -> Option<Inherited> {
        self.inherited.pop()
    }

    /// Returns the id of the transaction.
    #[inline]
    pub(crate) fn txn(&self) -> TxnId {
        self.txn
    }

    /// Returns the number of locks held.
    #[cfg(test)]
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns whether no lock is held.
    #[cfg(test)]
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the mode in which the lock is held.
    #[inline]
    pub(crate) fn held(&self, id: LockId) -> Option<LockMode> {
        match self.position(id) {
            Some(at) => Some(self.held[at].1),
            None if id.is_coarse() => {
                self.inherited.iter().find(|lock| lock.in_use && lock.id == id).map(|lock| lock.mode)
            }
            None => None,
        }
    }

    #[inline]
    fn position(&self, id: LockId) -> Option<usize> {
        if self.held.len() <= UNINDEXED {
            self.held.iter().position(|&(held, _)| held == id)
        } else {
            self.index.get(&id).map(|&at| at as usize)
        }
    }

    /// Records that the lock is now held in `mode`, whether or not it was held before.
    #[inline]
    pub(super) fn note(&mut self, id: LockId, mode: LockMode) {
        match self.position(id) {
            Some(at) => self.held[at].1 = mode,
            None => self.push(id, mode),
        }
    }

    /// Records a lock as [`Self::note`] does; the lock was not held before.
    #[inline]
    pub(super) fn push(&mut self, id: LockId, mode: LockMode) {
        self.held.push((id, mode));
        if self.held.len() > UNINDEXED {
            self.index_last();
        }
    }

    #[cold]
    fn index_last(&mut self) {
        // The index may have been emptied while the transaction held few locks.
        for at in self.index.len()..self.held.len() {
            self.index.insert(self.held[at].0, u32::try_from(at).expect("a transaction holds less than 2^32 locks"));
        }
    }

    /// Forgets the lock; returns the mode in which it was held.
    pub(super) fn forget(&mut self, id: LockId) -> Option<LockMode> {
        let at = self.position(id)?;
        let (_, mode) = self.held.swap_remove(at);
        if self.held.len() <= UNINDEXED {
            self.index.clear();
        } else {
            self.index.remove(&id);
            if let Some(&(moved, _)) = self.held.get(at) {
                self.index.insert(moved, at as u32);
            }
        }
        Some(mode)
    }

    /// Returns the exclusive locks that the transaction holds.
    pub(super) fn exclusive(&self) -> impl Iterator<Item = LockId> {
        self.held.iter().filter(|(_, mode)| *mode == LockMode::Exclusive).map(|(id, _)| *id)
    }

    /// Forgets every lock that is not on a table or the set of tables, and calls `release` with
    /// each of them, the last taken first.
    pub(super) fn retain_coarse(&mut self, mut release: impl FnMut(TxnId, LockId, LockMode)) {
        let txn = self.txn;
        self.index.clear();
        for &(id, mode) in self.held.iter().rev().filter(|(id, _)| !id.is_coarse()) {
            release(txn, id, mode);
        }
        self.held.retain(|(id, _)| id.is_coarse());
        if self.held.len() > UNINDEXED {
            self.index_last();
        }
    }

    /// Removes and returns the last lock of the list.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(LockId, LockMode)> {
        self.held.pop()
    }

    /// Clears the index after the last [`Self::pop`].
    pub(super) fn clear_index(&mut self) {
        debug_assert!(self.held.is_empty());
        if self.index.capacity() > KEPT_INDEX {
            self.index = HashMap::default();
            self.held = Vec::new();
        } else if !self.index.is_empty() {
            self.index.clear();
        }
    }

    /// Begins a wait: returns its ticket, and the waiter with a pending outcome.
    pub(super) fn begin_wait(&mut self) -> (u64, Arc<Waiter>) {
        self.tickets += 1;
        let waiter = self.waiter.get_or_insert_default();
        waiter.set(Outcome::Pending);
        (self.tickets, Arc::clone(waiter))
    }
}

#[cfg(test)]
mod tests {
    use duramen_types::TableId;

    use super::{LockId, LockMode, TxnId, TxnLocks, UNINDEXED};

    fn id(number: usize) -> LockId {
        LockId::record(TableId::new(1), &number.to_le_bytes())
    }

    #[test]
    fn many_locks_are_found_noted_and_forgotten() {
        let mut locks = TxnLocks::new(TxnId::new(1));
        for round in 0..3 {
            for number in 0..5 * UNINDEXED {
                assert_eq!(locks.held(id(number)), None);
                locks.note(id(number), LockMode::Shared);
                locks.note(id(number), LockMode::Exclusive);
                assert_eq!(locks.len(), number + 1);
            }
            for number in (0..5 * UNINDEXED).step_by(round + 2) {
                assert_eq!(locks.forget(id(number)), Some(LockMode::Exclusive));
                assert_eq!(locks.forget(id(number)), None);
            }
            for number in 0..5 * UNINDEXED {
                let expected = (!number.is_multiple_of(round + 2)).then_some(LockMode::Exclusive);
                assert_eq!(locks.held(id(number)), expected);
                let _ = locks.forget(id(number));
            }
            assert!(locks.is_empty() && locks.index.is_empty());
        }
    }
}
