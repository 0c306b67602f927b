//! The locks of one bucket. Everything here runs under the bucket's mutex and never waits.
//!
//! Most locks have one holder and no waiters. Such a lock is a [`Lone`] entry in the bucket itself,
//! which has two of them: with its mutex a bucket fills one cache line, and taking and releasing an
//! uncontended lock touches nothing else. A lock that gets a second holder, a waiter or an agent
//! moves to a [`Head`] of its own and stays there until it has none of these.
//!
//! Heads are kept in one vector, the live ones first: a head that is removed is swapped behind the
//! live ones and stays there with its vectors, so a warm bucket allocates nothing.
//!
//! # What a reader depends on
//! Under early lock release a lock may be free although the transaction that released it is not
//! hardened yet. A transaction that takes the lock then depends on that transaction (Aether,
//! section 3.1). The bucket keeps the largest GSN of a commit that has released one of its locks
//! early, and reports it to each transaction that takes a lock of the bucket. Other locks of the
//! bucket may make the GSN larger than necessary, which costs a longer wait and no more.

use duramen_sync::Arc;
use duramen_types::{Gsn, TxnId, planted};

use super::head::{Head, Holder, Request};
use super::id::LockId;
use super::inherit::Agent;
use super::mode::LockMode;
use super::txn::{Outcome, Waiter};

/// Number of locks kept in the bucket itself.
const LONE: usize = 2;

/// Dead heads that an empty bucket keeps for reuse.
const SPARE_HEADS: usize = 4;

/// The locks of one bucket.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    lone: [Option<Lone>; LONE],
    /// The largest GSN of a commit that has released a lock of this bucket before it was hardened.
    pub(super) pre_committed: Gsn,
    /// Boxed, because most buckets have no heads and should fill one cache line.
    heads: Option<Box<Heads>>,
}

/// A lock with one holder.
#[derive(Clone, Copy, Debug)]
struct Lone {
    id: LockId,
    holder: PackedHolder,
}

// Zeros are an empty place.
const _: () = assert!(size_of::<Option<Lone>>() == size_of::<Lone>());

/// A holder in 8 bytes: the transaction above 3 bits for the mode. Never zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PackedHolder(std::num::NonZeroU64);

impl PackedHolder {
    #[inline]
    fn new(txn: TxnId, mode: LockMode) -> Self {
        let packed = txn.get() << 3 | (mode.index() as u64 + 1);
        Self(std::num::NonZeroU64::new(packed).expect("a mode is packed as a number above zero"))
    }

    #[inline]
    fn get(self) -> Holder {
        let packed = self.0.get();
        Holder { txn: TxnId::new(packed >> 3), mode: LockMode::ALL[(packed & 7) as usize - 1] }
    }
}

#[derive(Debug, Default)]
struct Heads {
    /// Live heads, then dead ones kept for their vectors.
    all: Vec<Head>,
    live: usize,
}

impl Heads {
    fn find(&mut self, id: LockId) -> Option<usize> {
        self.all[..self.live].iter().position(|head| head.id == id)
    }

    /// Returns an empty head for `id`, which has none.
    fn revive(&mut self, id: LockId) -> &mut Head {
        if self.live == self.all.len() {
            self.all.push(Head::new(id));
        }
        let head = &mut self.all[self.live];
        self.live += 1;
        debug_assert!(head.is_dead(), "a dead head is clean");
        head.id = id;
        head
    }

    /// Removes the head at `at` if it has no holders and no waiters.
    fn bury(&mut self, at: usize) {
        if !self.all[at].is_dead() {
            return;
        }
        self.live -= 1;
        if at != self.live {
            self.all.swap(at, self.live);
        }
        if self.live == 0 && self.all.len() > 2 * SPARE_HEADS {
            self.all.truncate(SPARE_HEADS);
            self.all.shrink_to_fit();
        }
    }
}

impl Bucket {
    #[inline]
    fn find_lone(&self, id: LockId) -> Option<usize> {
        self.lone.iter().position(|lone| lone.is_some_and(|lone| lone.id == id))
    }

    /// Returns the heads and the lock's position in them, if the lock has a head.
    #[inline]
    fn head(&mut self, id: LockId) -> Option<(&mut Heads, usize)> {
        let heads = self.heads.as_deref_mut()?;
        let at = heads.find(id)?;
        Some((heads, at))
    }

    /// Returns the lock's head; creates it if there is none.
    fn make_head(&mut self, id: LockId) -> &mut Head {
        let lone = self.find_lone(id).and_then(|at| self.lone[at].take());
        let heads = self.heads.get_or_insert_default();
        match (heads.find(id), lone) {
            (Some(at), None) => &mut heads.all[at],
            (None, lone) => {
                let head = heads.revive(id);
                if let Some(lone) = lone {
                    head.add(lone.holder.get());
                }
                head
            }
            (Some(_), Some(_)) => unreachable!("a lock is in one place"),
        }
    }

    /// Returns whether no lock of this bucket is held or waited for.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lone.iter().all(Option::is_none) && self.heads.as_ref().is_none_or(|heads| heads.live == 0)
    }

    /// Returns whether the lock is held or waited for.
    pub(super) fn contains(&mut self, id: LockId) -> bool {
        self.find_lone(id).is_some() || self.head(id).is_some()
    }

    /// Returns whether the lock, which is held, has only one holder.
    pub(super) fn is_held_alone(&mut self, id: LockId) -> bool {
        self.find_lone(id).is_some() || self.head(id).is_some_and(|(heads, at)| heads.all[at].has_one_holder())
    }

    /// Returns the number of requests that wait for the lock.
    #[cfg(test)]
    pub(super) fn queue_len(&mut self, id: LockId) -> usize {
        self.head(id).map_or(0, |(heads, at)| heads.all[at].queue.len())
    }

    /// Returns whether a request that came now would be granted at once. `held` is the mode that
    /// `txn` holds; `mode` covers it.
    #[inline]
    pub(super) fn is_grantable(&mut self, id: LockId, held: Option<LockMode>, mode: LockMode) -> bool {
        if let Some(at) = self.find_lone(id) {
            let holder = self.lone[at].expect("it was found there").holder.get();
            return held.is_some() || !mode.conflicts().intersects(holder.mode.set());
        }
        let Some((heads, at)) = self.head(id) else { return true };
        let grantable = heads.all[at].is_grantable(held, mode);
        // The only remaining entry may have been an idle agent, now revoked.
        heads.bury(at);
        grantable
    }

    /// Grants the lock if the request need not wait, and returns whether it did. `held` and `mode`
    /// are as in [`Self::is_grantable`].
    #[inline]
    pub(super) fn try_grant(&mut self, txn: TxnId, id: LockId, held: Option<LockMode>, mode: LockMode) -> bool {
        if let Some(at) = self.find_lone(id) {
            let holder = self.lone[at].expect("it was found there").holder.get();
            if holder.txn == txn {
                assert_eq!(held, Some(holder.mode), "the transaction and the lock agree on the mode");
                self.lone[at] = Some(Lone { id, holder: PackedHolder::new(txn, mode) });
                return true;
            }
            if mode.conflicts().intersects(holder.mode.set()) {
                return false;
            }
            self.make_head(id).add(Holder { txn, mode });
            return true;
        }
        if let Some((heads, at)) = self.head(id) {
            return heads.all[at].try_grant(txn, held, mode);
        }
        assert!(held.is_none(), "a held lock is in its bucket");
        match self.lone.iter_mut().find(|lone| lone.is_none()) {
            Some(free) => *free = Some(Lone { id, holder: PackedHolder::new(txn, mode) }),
            None => self.make_head(id).add(Holder { txn, mode }),
        }
        true
    }

    /// Puts a request that was refused into the queue.
    pub(super) fn enqueue(&mut self, id: LockId, request: Request) {
        self.make_head(id).enqueue(request);
    }

    /// Takes the lock away from `txn`, which holds it in `mode`; adds the waiters that this grants
    /// to `granted`.
    #[inline]
    pub(super) fn release(&mut self, txn: TxnId, id: LockId, mode: LockMode, granted: &mut Vec<Arc<Waiter>>) {
        if let Some(at) = self.find_lone(id) {
            let lone = self.lone[at].take();
            let holder = lone.map(|lone| lone.holder);
            assert_eq!(holder, Some(PackedHolder::new(txn, mode)), "a lock is released by its holder, as it is held");
            return;
        }
        let (heads, at) = self.head(id).expect("a held lock is in its bucket");
        heads.all[at].remove(txn, mode);
        heads.all[at].grant_waiters(granted);
        heads.bury(at);
    }

    /// Makes `txn` hold the lock in the weaker mode `mode`; adds the waiters that this grants to
    /// `granted`.
    pub(super) fn weaken(
        &mut self,
        txn: TxnId,
        id: LockId,
        held: LockMode,
        mode: LockMode,
        granted: &mut Vec<Arc<Waiter>>,
    ) {
        if let Some(at) = self.find_lone(id) {
            self.lone[at] = Some(Lone { id, holder: PackedHolder::new(txn, mode) });
            return;
        }
        let (heads, at) = self.head(id).expect("a held lock is in its bucket");
        heads.all[at].convert(txn, held, mode);
        heads.all[at].grant_waiters(granted);
    }

    /// Lets an agent keep the lock of `txn`, which ends; returns `None` if a request waits for the
    /// lock: then `txn` still holds it.
    pub(super) fn bequeath(&mut self, txn: TxnId, id: LockId, mode: LockMode) -> Option<Arc<Agent>> {
        self.make_head(id).bequeath(txn, mode)
    }

    /// Takes the lock away from an agent; returns `false` if the agent is no longer there.
    pub(super) fn dismiss(&mut self, id: LockId, agent: &Arc<Agent>, granted: &mut Vec<Arc<Waiter>>) -> bool {
        let Some((heads, at)) = self.head(id) else { return false };
        let dismissed = heads.all[at].dismiss(agent);
        heads.all[at].grant_waiters(granted);
        heads.bury(at);
        dismissed
    }

    /// Takes the request that `txn` made in the wait `ticket` out of the queue, if that wait still
    /// lasts; adds the waiters that this grants to `granted`.
    pub(super) fn withdraw(
        &mut self,
        txn: TxnId,
        id: LockId,
        ticket: u64,
        granted: &mut Vec<Arc<Waiter>>,
    ) -> Option<Request> {
        let (heads, at) = self.head(id)?;
        let head = &mut heads.all[at];
        let position = head.queue.iter().position(|request| request.txn == txn && request.ticket == ticket)?;
        let request = head.queue.remove(position);
        if !planted!(WaiterForgotten) {
            head.grant_waiters(granted);
        }
        heads.bury(at);
        Some(request)
    }

    /// Empties every queue; adds the waiters to `evicted`, with their outcome set to
    /// [`Outcome::Closed`].
    pub(super) fn evict_waiters(&mut self, evicted: &mut Vec<Arc<Waiter>>) {
        let Some(heads) = &mut self.heads else { return };
        for at in (0..heads.live).rev() {
            for request in heads.all[at].queue.drain(..) {
                request.waiter.set(Outcome::Closed);
                evicted.push(request.waiter);
            }
            heads.bury(at);
        }
    }

    /// Replaces `blockers` by the transactions that `txn` waits for in the wait `ticket`, and
    /// returns whether that wait still lasts.
    pub(super) fn blockers(&mut self, txn: TxnId, id: LockId, ticket: u64, blockers: &mut Vec<TxnId>) -> bool {
        blockers.clear();
        self.head(id).is_some_and(|(heads, at)| heads.all[at].blockers(txn, ticket, blockers))
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    #[test]
    fn a_bucket_fills_one_cache_line() {
        assert!(size_of::<duramen_sync::Mutex<super::Bucket>>() <= 64);
    }
}
