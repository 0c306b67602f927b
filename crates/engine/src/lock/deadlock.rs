//! The search for deadlocks: cycles among transactions that wait for each other.
//!
//! The waits-for graph is never stored. A transaction that blocks *publishes* the lock that it
//! waits for. When the search reaches this wait, it reads the outgoing edges from the lock's
//! bucket: one to every holder that conflicts with the request, and, unless the request is a
//! conversion, one to every conflicting request ahead of it in the queue. This is exactly the grant
//! rule, so every blocked transaction has an edge.
//!
//! # Every deadlock is found
//! A transaction first queues, then publishes, then searches. Edges of the graph appear only when a
//! transaction queues: its outgoing edges, and, if it is a conversion that overtakes other
//! requests, some incoming ones. A grant makes no edge between two blocked transactions: it turns
//! an edge to a request into an edge to a holder that runs. Once all members of a cycle have
//! queued, none of them runs, so an edge can disappear only if a member withdraws. Therefore, when
//! the member that published last begins its search, all edges and all publications of the cycle
//! are in place, and stay so. The search visits everything reachable and returns to this member.
//! The member repeats the search until it finds no cycle: the end of a victim's wait breaks every
//! cycle through the victim, and makes no edge.
//!
//! # What is found is a deadlock
//! The search reads buckets one after the other, so the edges of a path need never have existed at
//! the same time. A cycle is therefore read twice. Every wait has its own ticket; a member that is
//! seen in the same wait both times was blocked in between. If this holds for all members, and all
//! edges exist in the second reading, then all of them existed when the second reading began,
//! because a blocked transaction acquires nothing. Otherwise a member has moved, and the search is
//! repeated.
//!
//! # Threads that wait for themselves
//! A thread that waits blocks every other transaction that it has open (`owners.rs`). These
//! transactions are published with the wait, before the search: an edge to one of them counts as an
//! edge to the transaction that waits. A transaction whose thread waits for another transaction of
//! the same thread is a cycle by itself.
//!
//! # Cost
//! The search omits the edge from a request p to a request q ahead of it if q conflicts with no
//! more modes than p does: everything that q waits for, p waits for too. A cycle that passes from p
//! over q to z has a shorter one beside it, from p to z, and so on until no such edge is left. z is
//! not p, because a fresh request holds nothing that q could wait for. So every deadlock keeps a
//! cycle, and a hot lock costs the length of its queue, not the square of it.

use std::collections::HashSet;

use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, CachePadded, Mutex, thread};
use duramen_types::TxnId;

use super::id::LockId;
use super::owners::{Carried, Owner};
use super::txn::Age;
use crate::hash::BuildNumberHasher;

const SHARDS: usize = if cfg!(duramen_loom) { 1 } else { 16 };

/// A transaction in a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    pub(super) txn: TxnId,
    /// The age in [`super::TxnLocks::age`].
    pub(super) age: Age,
    pub(super) lock: LockId,
    pub(super) ticket: u64,
}

/// A transaction that cannot proceed before a wait ends.
#[derive(Debug)]
struct Blocked {
    txn: TxnId,
    wait: Wait,
    /// Present if the transaction waits only because its thread does: the transaction's owner, and
    /// the thread.
    by_thread: Option<(Arc<Owner>, u64)>,
}

/// The published waits. A stale entry does no harm: the bucket determines whether the wait still
/// lasts.
#[derive(Debug)]
pub(super) struct Waits {
    shards: Box<[CachePadded<Mutex<Vec<Blocked>>>]>,
}

impl Waits {
    pub(super) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| CachePadded::new(Mutex::new(Vec::new()))).collect() }
    }

    fn shard(&self, txn: TxnId) -> &Mutex<Vec<Blocked>> {
        &self.shards[txn.get() as usize % SHARDS]
    }

    /// Publishes a wait of the calling thread, which has the transactions `carried` open beside the
    /// one that waits.
    pub(super) fn publish(&self, wait: Wait, carried: &[Carried]) {
        // The id of the calling thread, not of the thread that the owner names now: a transaction
        // that has moved to another thread since does not wait with this one.
        let thread = thread::id();
        for Carried { txn, owner } in carried {
            let by_thread = Some((Arc::clone(owner), thread));
            self.shard(*txn).lock().push(Blocked { txn: *txn, wait, by_thread });
        }
        self.shard(wait.txn).lock().push(Blocked { txn: wait.txn, wait, by_thread: None });
    }

    pub(super) fn withdraw(&self, wait: Wait, carried: &[Carried]) {
        for txn in carried.iter().map(|carried| carried.txn).chain([wait.txn]) {
            let mut shard = self.shard(txn).lock();
            let at = shard.iter().position(|blocked| blocked.txn == txn && blocked.wait == wait);
            shard.swap_remove(at.expect("a wait is published once and withdrawn once"));
        }
    }

    /// Returns the wait that must end before `txn` can proceed.
    fn find(&self, txn: TxnId) -> Option<Wait> {
        let shard = self.shard(txn).lock();
        let is_own = |blocked: &&Blocked| blocked.txn == txn && blocked.by_thread.is_none();
        let is_carried = |blocked: &&Blocked| {
            let stays = |(owner, thread): &(Arc<Owner>, u64)| owner.thread() == *thread;
            blocked.txn == txn && blocked.by_thread.as_ref().is_some_and(stays)
        };
        shard.iter().find(is_own).or_else(|| shard.iter().find(is_carried)).map(|blocked| blocked.wait)
    }
}

/// The memory of a search, kept for the next search.
#[derive(Debug, Default)]
pub(super) struct Detector {
    /// Waits in the order in which the search reached them, each with the position of the wait from
    /// which it was reached.
    reached: Vec<(Wait, usize)>,
    seen: HashSet<TxnId, BuildNumberHasher>,
    blockers: Vec<TxnId>,
    cycle: Vec<Member>,
}

/// A member of a deadlock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Member {
    pub(super) wait: Wait,
    /// Whether the previous member waits for this transaction itself, and not for another
    /// transaction of its thread. Only then would the deadlock not exist without this transaction.
    pub(super) is_waited_for: bool,
}

impl Detector {
    /// Searches for a deadlock that `start` is part of; returns its members.
    ///
    /// `blockers` reads the outgoing edges of a wait from its bucket, and returns whether the wait
    /// still lasts.
    pub(super) fn search(
        &mut self,
        start: Wait,
        waits: &Waits,
        mut blockers: impl FnMut(Wait, &mut Vec<TxnId>) -> bool,
    ) -> Option<&[Member]> {
        while self.find_cycle(start, waits, &mut blockers) {
            if self.confirm(waits, &mut blockers) {
                return Some(&self.cycle);
            }
            reach(Probe::DeadlockDissolved);
        }
        None
    }

    /// Searches breadth first, so that the cycle found is a shortest one; leaves it in
    /// `self.cycle`, last member first.
    fn find_cycle(
        &mut self,
        start: Wait,
        waits: &Waits,
        blockers: &mut impl FnMut(Wait, &mut Vec<TxnId>) -> bool,
    ) -> bool {
        self.seen.clear();
        self.reached.clear();
        self.reached.push((start, 0));
        let mut next = 0;
        while let Some(&(wait, _)) = self.reached.get(next) {
            if blockers(wait, &mut self.blockers) {
                if self.blockers.contains(&start.txn) {
                    self.trace(next);
                    return true;
                }
                for at in 0..self.blockers.len() {
                    if !self.seen.insert(self.blockers[at]) {
                        continue;
                    }
                    match waits.find(self.blockers[at]) {
                        // The thread of `start` has another transaction open that this wait waits
                        // for.
                        Some(wait) if wait == start => {
                            self.trace(next);
                            return true;
                        }
                        Some(wait) => self.reached.push((wait, next)),
                        None => {}
                    }
                }
            }
            next += 1;
        }
        false
    }

    fn trace(&mut self, mut at: usize) {
        self.cycle.clear();
        loop {
            let (wait, from) = self.reached[at];
            self.cycle.push(Member { wait, is_waited_for: false });
            if at == 0 {
                return;
            }
            at = from;
        }
    }

    /// Reads the cycle a second time.
    fn confirm(&mut self, waits: &Waits, blockers: &mut impl FnMut(Wait, &mut Vec<TxnId>) -> bool) -> bool {
        (0..self.cycle.len()).all(|at| {
            // Each member was reached from the one that follows it in `self.cycle`, and the last
            // one leads back to the start.
            let before = (at + self.cycle.len() - 1) % self.cycle.len();
            let target = self.cycle[before].wait;
            if !blockers(self.cycle[at].wait, &mut self.blockers) {
                return false;
            }
            self.cycle[before].is_waited_for = self.blockers.contains(&target.txn);
            self.cycle[before].is_waited_for || self.blockers.iter().any(|blocker| waits.find(*blocker) == Some(target))
        })
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::{Age, Detector, LockId, Member, TxnId, Wait, Waits};

    /// Searches while transactions 1 and 2 wait for each other; the outgoing edge of 2 exists only
    /// in its first `readings_of_second` readings.
    fn search(readings_of_second: usize) -> Option<usize> {
        let [first, second] =
            [1, 2].map(|txn| Wait { txn: TxnId::new(txn), age: Age::of(txn), lock: LockId::catalog(), ticket: 1 });
        let waits = Waits::new();
        waits.publish(first, &[]);
        waits.publish(second, &[]);
        let mut readings = 0;
        let mut detector = Detector::default();
        let cycle = detector.search(first, &waits, |wait, blockers| {
            blockers.clear();
            if wait == first {
                blockers.push(second.txn);
            } else {
                readings += 1;
                blockers.extend((readings <= readings_of_second).then_some(first.txn));
            }
            true
        });
        cycle.map(<[Member]>::len)
    }

    #[test]
    fn a_cycle_that_is_gone_when_read_again_is_no_deadlock() {
        assert_eq!(search(0), None);
        assert_eq!(search(1), None);
        assert_eq!(search(2), Some(2));
    }
}
