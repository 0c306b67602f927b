//! The lock heads of one bucket, and the rule by which requests are granted. Everything here runs under the bucket's
//! mutex and never waits.
//!
//! A head exists while its lock has a holder or a waiter. Its first holders lie in the head itself, further ones in a
//! vector. Heads are kept in one vector, the live ones first: a head that is removed is swapped behind them and stays
//! there with its vectors, so a warm bucket allocates nothing.
//!
//! # The grant rule
//! A *conversion* (the transaction holds the lock already, and wants a stronger mode) is granted when no other holder
//! conflicts with it. A *fresh* request is granted when no holder and no request ahead of it in the queue conflicts
//! with it. Conversions queue ahead of fresh requests, each kind in order of arrival.
//!
//! Nobody starves: a fresh request passes another one only where the two are compatible, and then does not delay it;
//! and a conversion waits for transactions that hold the lock already, which are finitely many, because what conflicts
//! with a queued conversion is not admitted any more.

use duramen_sync::Arc;
use duramen_types::TxnId;

use super::id::LockId;
use super::mode::{LockMode, ModeSet};
use super::txn::{Outcome, Waiter};

/// Holders kept in the head itself.
const INLINE_HOLDERS: usize = 2;

/// Dead heads that an empty bucket keeps for reuse.
const SPARE_HEADS: usize = 16;

/// The locks of one bucket.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// Live heads, then dead ones kept for their vectors.
    heads: Vec<Head>,
    live: usize,
    /// Locks granted without having existed in the transaction before, since the start.
    pub(super) acquisitions: u64,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    txn: TxnId,
    mode: LockMode,
}

/// Why a transaction waits, as it stands in the queue.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) txn: TxnId,
    /// The mode that the transaction would hold once granted.
    pub(super) mode: LockMode,
    /// The mode that the transaction holds while it waits: present in conversions only.
    pub(super) held: Option<LockMode>,
    /// Whether the lock shall only be seen to be grantable, not be held.
    pub(super) instant: bool,
    /// Tells this wait from every other wait of the same transaction.
    pub(super) ticket: u64,
    pub(super) waiter: Arc<Waiter>,
}

#[derive(Debug)]
struct Head {
    id: LockId,
    /// Number of holders; the first [`INLINE_HOLDERS`] are in `inline`, the others in `more`.
    holders: usize,
    inline: [Holder; INLINE_HOLDERS],
    more: Vec<Holder>,
    /// Holders by mode, so that admission to a lock with many holders need not look at each.
    counts: [u32; LockMode::ALL.len()],
    queue: Vec<Request>,
}

impl Bucket {
    #[inline]
    fn find(&self, id: LockId) -> Option<usize> {
        self.heads[..self.live].iter().position(|head| head.id == id)
    }

    /// Whether no lock of this bucket is held or waited for.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Whether the lock is held or waited for.
    pub(super) fn contains(&self, id: LockId) -> bool {
        self.find(id).is_some()
    }

    /// Number of requests that wait for the lock.
    #[cfg(test)]
    pub(super) fn queue_len(&self, id: LockId) -> usize {
        self.find(id).map_or(0, |at| self.heads[at].queue.len())
    }

    /// Whether a request that came now would be granted at once. `held` is what `txn` holds, `mode` covers it.
    #[inline]
    pub(super) fn is_grantable(&self, id: LockId, held: Option<LockMode>, mode: LockMode) -> bool {
        self.find(id).is_none_or(|at| self.heads[at].is_grantable(held, mode))
    }

    /// Grants the lock if that needs no waiting, and says whether it did. `held` and `mode` as in [`Self::is_grantable`].
    #[inline]
    pub(super) fn try_grant(&mut self, txn: TxnId, id: LockId, held: Option<LockMode>, mode: LockMode) -> bool {
        match self.find(id) {
            None => {
                assert!(held.is_none(), "a held lock has a head");
                self.revive(id).add(Holder { txn, mode });
            }
            Some(at) => {
                let head = &mut self.heads[at];
                if !head.is_grantable(held, mode) {
                    return false;
                }
                match held {
                    None => head.add(Holder { txn, mode }),
                    Some(held) => head.convert(txn, held, mode),
                }
            }
        }
        self.acquisitions += u64::from(held.is_none());
        true
    }

    /// Makes a head for `id`, which has none, without holders.
    fn revive(&mut self, id: LockId) -> &mut Head {
        if self.live == self.heads.len() {
            self.heads.push(Head::new(id));
        }
        let head = &mut self.heads[self.live];
        self.live += 1;
        debug_assert!(head.is_dead(), "a dead head is clean");
        head.id = id;
        head
    }

    /// Removes the head at `at` if nobody holds or waits any more.
    fn bury(&mut self, at: usize) {
        if !self.heads[at].is_dead() {
            return;
        }
        self.live -= 1;
        if at != self.live {
            self.heads.swap(at, self.live);
        }
        if self.live == 0 && self.heads.len() > 2 * SPARE_HEADS {
            self.heads.truncate(SPARE_HEADS);
            self.heads.shrink_to_fit();
        }
    }

    /// Puts a request that [`Self::is_grantable`] refused into the queue.
    pub(super) fn enqueue(&mut self, id: LockId, request: Request) {
        let at = self.find(id).expect("what refuses a request has a head");
        let queue = &mut self.heads[at].queue;
        let position = match request.held {
            Some(_) => queue.iter().take_while(|ahead| ahead.held.is_some()).count(),
            None => queue.len(),
        };
        queue.insert(position, request);
    }

    /// Takes the lock away from `txn`, which holds it in `mode`; whoever is granted by that goes to `granted`.
    #[inline]
    pub(super) fn release(&mut self, txn: TxnId, id: LockId, mode: LockMode, granted: &mut Vec<Arc<Waiter>>) {
        let at = self.find(id).expect("a held lock has a head");
        let head = &mut self.heads[at];
        head.remove(txn, mode);
        if !head.queue.is_empty() {
            self.acquisitions += head.grant_waiters(granted);
        }
        self.bury(at);
    }

    /// Takes the request of `txn` out of the queue, if it is still there, and says whether it was; whoever is granted
    /// by that goes to `granted`.
    pub(super) fn withdraw(&mut self, txn: TxnId, id: LockId, granted: &mut Vec<Arc<Waiter>>) -> bool {
        let Some(at) = self.find(id) else { return false };
        let head = &mut self.heads[at];
        let Some(position) = head.queue.iter().position(|request| request.txn == txn) else { return false };
        head.queue.remove(position);
        self.acquisitions += head.grant_waiters(granted);
        self.bury(at);
        true
    }

    /// Empties every queue; those who waited go to `evicted`, their outcome set to [`Outcome::Closed`].
    pub(super) fn evict_waiters(&mut self, evicted: &mut Vec<Arc<Waiter>>) {
        for at in (0..self.live).rev() {
            for request in self.heads[at].queue.drain(..) {
                request.waiter.set(Outcome::Closed);
                evicted.push(request.waiter);
            }
            self.bury(at);
        }
    }

    /// Replaces `blockers` by those whom `txn` waits for in the wait `ticket`, and says whether that wait still lasts.
    ///
    /// Left out are requests ahead that conflict with no more than this one does: whatever they wait for here, this one
    /// waits for as well.
    pub(super) fn blockers(&self, txn: TxnId, id: LockId, ticket: u64, blockers: &mut Vec<TxnId>) -> bool {
        blockers.clear();
        let Some(at) = self.find(id) else { return false };
        let head = &self.heads[at];
        let waits = |request: &Request| request.txn == txn && request.ticket == ticket;
        let Some(position) = head.queue.iter().position(waits) else { return false };
        let request = &head.queue[position];
        let conflicts = request.mode.conflicts();
        let holders = head.iter().filter(|holder| holder.txn != txn && conflicts.intersects(holder.mode.set()));
        blockers.extend(holders.map(|holder| holder.txn));
        if request.held.is_none() {
            let ahead = head.queue[..position]
                .iter()
                .filter(|ahead| conflicts.intersects(ahead.mode.set()) && !conflicts.contains(ahead.mode.conflicts()));
            blockers.extend(ahead.map(|ahead| ahead.txn));
        }
        true
    }
}

impl Head {
    fn new(id: LockId) -> Self {
        let nobody = Holder { txn: TxnId::ZERO, mode: LockMode::IntentShared };
        Self {
            id,
            holders: 0,
            inline: [nobody; INLINE_HOLDERS],
            more: Vec::new(),
            counts: [0; LockMode::ALL.len()],
            queue: Vec::new(),
        }
    }

    #[inline]
    fn is_dead(&self) -> bool {
        self.holders == 0 && self.queue.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = &Holder> {
        self.inline[..self.holders.min(INLINE_HOLDERS)].iter().chain(&self.more)
    }

    /// The modes held by anyone but a transaction that holds `held`.
    #[inline]
    fn held_by_others(&self, held: Option<LockMode>) -> ModeSet {
        let mut modes = ModeSet::EMPTY;
        for mode in LockMode::ALL {
            if self.counts[mode.index()] > u32::from(held == Some(mode)) {
                modes = modes.union(mode.set());
            }
        }
        modes
    }

    /// The grant rule for a request that would stand last of its kind in the queue.
    #[inline]
    fn is_grantable(&self, held: Option<LockMode>, mode: LockMode) -> bool {
        let conflicts = mode.conflicts();
        !conflicts.intersects(self.held_by_others(held))
            && (held.is_some() || !self.queue.iter().any(|ahead| conflicts.intersects(ahead.mode.set())))
    }

    #[inline]
    fn add(&mut self, holder: Holder) {
        if self.holders < INLINE_HOLDERS {
            self.inline[self.holders] = holder;
        } else {
            self.more.push(holder);
        }
        self.holders += 1;
        self.counts[holder.mode.index()] += 1;
    }

    fn convert(&mut self, txn: TxnId, held: LockMode, mode: LockMode) {
        let inline = self.holders.min(INLINE_HOLDERS);
        let holder = self.inline[..inline]
            .iter_mut()
            .chain(&mut self.more)
            .find(|holder| holder.txn == txn)
            .expect("a conversion is made by a holder");
        assert_eq!(holder.mode, held, "the transaction and the lock agree on the mode");
        holder.mode = mode;
        self.counts[held.index()] -= 1;
        self.counts[mode.index()] += 1;
    }

    #[inline]
    fn remove(&mut self, txn: TxnId, mode: LockMode) {
        let inline = self.holders.min(INLINE_HOLDERS);
        let removed = match self.inline[..inline].iter().position(|holder| holder.txn == txn) {
            Some(at) => {
                let removed = self.inline[at];
                self.inline[at] = self.more.pop().unwrap_or(self.inline[inline - 1]);
                removed
            }
            None => {
                let at = self.more.iter().position(|holder| holder.txn == txn);
                self.more.swap_remove(at.expect("a lock is released by a holder"))
            }
        };
        assert_eq!(removed.mode, mode, "the transaction and the lock agree on the mode");
        self.holders -= 1;
        self.counts[mode.index()] -= 1;
    }

    /// Grants what the rule allows, in queue order; returns how many of these are new holders.
    fn grant_waiters(&mut self, granted: &mut Vec<Arc<Waiter>>) -> u64 {
        let mut ahead = ModeSet::EMPTY;
        let mut new_holders = 0;
        let mut at = 0;
        while at < self.queue.len() {
            let Request { mode, held, .. } = self.queue[at];
            let mut against = self.held_by_others(held);
            if held.is_none() {
                against = against.union(ahead);
            }
            if mode.conflicts().intersects(against) {
                ahead = ahead.union(mode.set());
                at += 1;
                continue;
            }
            let Request { txn, instant, waiter, .. } = self.queue.remove(at);
            match held {
                _ if instant => {}
                Some(held) => self.convert(txn, held, mode),
                None => {
                    self.add(Holder { txn, mode });
                    new_holders += 1;
                }
            }
            waiter.set(Outcome::Granted);
            granted.push(waiter);
        }
        new_holders
    }
}
