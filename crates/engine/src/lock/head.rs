//! The head of one lock: its holders, its queue of waiting requests, and the rule by which requests
//! are granted. Everything here runs under the mutex of the lock's bucket and never waits.
//!
//! # The grant rule
//! A *conversion* (the transaction already holds the lock, and wants a stronger mode) is granted if
//! no other holder conflicts with it. A *fresh* request is granted if no holder and no request
//! ahead of it in the queue conflicts with it. Conversions queue ahead of fresh requests, each kind
//! in order of arrival.
//!
//! No request starves. A fresh request overtakes another one only if the two are compatible, and
//! then does not delay it. A conversion waits only for transactions that already hold the lock.
//! These are finitely many, because requests that conflict with a queued conversion are no longer
//! admitted. Agents that hold the lock for their next transaction (`inherit.rs`) count as holders;
//! an idle agent that blocks a request is revoked.

use duramen_sync::Arc;
use duramen_sync::probe::{Probe, reach};
use duramen_types::TxnId;

use super::id::LockId;
use super::inherit::Agent;
use super::mode::{LockMode, ModeSet};
use super::txn::{Outcome, Waiter};

/// Number of holders kept in the head itself.
const INLINE_HOLDERS: usize = 2;

#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub(super) txn: TxnId,
    pub(super) mode: LockMode,
}

/// A queued request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) txn: TxnId,
    /// The mode in which the transaction would hold the lock once granted.
    pub(super) mode: LockMode,
    /// The mode in which the transaction holds the lock while it waits: present in conversions
    /// only.
    pub(super) held: Option<LockMode>,
    /// Distinguishes this wait from every other wait of the same transaction.
    pub(super) ticket: u64,
    pub(super) waiter: Arc<Waiter>,
}

#[derive(Debug)]
pub(super) struct Head {
    pub(super) id: LockId,
    /// Number of transactions that hold the lock; the first [`INLINE_HOLDERS`] are in `inline`, the
    /// others in `more`.
    holders: usize,
    inline: [Holder; INLINE_HOLDERS],
    more: Vec<Holder>,
    /// Agents that hold the lock, whichever transaction they run.
    agents: Vec<(Arc<Agent>, LockMode)>,
    /// Number of holders of both kinds in each mode, so that admission to a lock with many holders
    /// need not read each of them.
    counts: [u32; LockMode::ALL.len()],
    pub(super) queue: Vec<Request>,
}

impl Head {
    pub(super) fn new(id: LockId) -> Self {
        let nobody = Holder { txn: TxnId::ZERO, mode: LockMode::IntentShared };
        Self {
            id,
            holders: 0,
            inline: [nobody; INLINE_HOLDERS],
            more: Vec::new(),
            agents: Vec::new(),
            counts: [0; LockMode::ALL.len()],
            queue: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn is_dead(&self) -> bool {
        self.holders == 0 && self.agents.is_empty() && self.queue.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = Holder> {
        let agents = self.agents.iter().filter_map(|(agent, mode)| Some(Holder { txn: agent.user()?, mode: *mode }));
        self.inline[..self.holders.min(INLINE_HOLDERS)].iter().chain(&self.more).copied().chain(agents)
    }

    /// Returns whether one transaction holds the lock. Idle agents do not count; their next
    /// transactions see what the caller has done before.
    pub(super) fn has_one_holder(&self) -> bool {
        self.holders + self.agents.iter().filter(|(agent, _)| !agent.is_unused()).count() == 1
    }

    /// Returns the modes held by all holders except a transaction that holds `held`.
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

    /// Returns whether a request that came now would be granted at once. If not, conflicting agents
    /// have been revoked or marked, and the request may enter the queue.
    #[inline]
    pub(super) fn is_grantable(&mut self, held: Option<LockMode>, mode: LockMode) -> bool {
        self.is_permitted(held, mode) || self.revoke(mode) && self.is_permitted(held, mode)
    }

    /// Applies the grant rule to a request that would be the last of its kind in the queue.
    #[inline]
    fn is_permitted(&self, held: Option<LockMode>, mode: LockMode) -> bool {
        let conflicts = mode.conflicts();
        !conflicts.intersects(self.held_by_others(held))
            && (held.is_some() || !self.queue.iter().any(|ahead| conflicts.intersects(ahead.mode.set())))
    }

    /// Grants a fresh request or a conversion if it need not wait, and returns whether it did.
    #[inline]
    pub(super) fn try_grant(&mut self, txn: TxnId, held: Option<LockMode>, mode: LockMode) -> bool {
        if held.is_some() && !self.agents.is_empty() {
            self.adopt(txn);
        }
        if !self.is_grantable(held, mode) {
            return false;
        }
        match held {
            None => self.add(Holder { txn, mode }),
            Some(held) => self.convert(txn, held, mode),
        }
        true
    }

    /// Revokes the idle agents that conflict with `mode`, and marks the busy ones; returns whether
    /// any agent was removed.
    fn revoke(&mut self, mode: LockMode) -> bool {
        let (conflicts, counts, before) = (mode.conflicts(), &mut self.counts, self.agents.len());
        self.agents.retain(|(agent, mode)| {
            let stays = !conflicts.intersects(mode.set()) || !agent.revoke();
            counts[mode.index()] -= u32::from(!stays);
            stays
        });
        self.agents.len() < before
    }

    /// If `txn` uses an inherited lock, turns it into an ordinary holder, so that the lock can be
    /// converted.
    #[cold]
    fn adopt(&mut self, txn: TxnId) {
        if let Some(at) = self.agents.iter().position(|(agent, _)| agent.user() == Some(txn)) {
            let (agent, mode) = self.agents.swap_remove(at);
            agent.retire();
            self.counts[mode.index()] -= 1;
            self.add(Holder { txn, mode });
        }
    }

    /// Puts a request that [`Self::is_grantable`] refused into the queue.
    pub(super) fn enqueue(&mut self, request: Request) {
        let position = match request.held {
            Some(_) => self.queue.iter().take_while(|ahead| ahead.held.is_some()).count(),
            None => self.queue.len(),
        };
        self.queue.insert(position, request);
    }

    #[inline]
    pub(super) fn add(&mut self, holder: Holder) {
        if self.holders < INLINE_HOLDERS {
            self.inline[self.holders] = holder;
        } else {
            self.more.push(holder);
        }
        self.holders += 1;
        self.counts[holder.mode.index()] += 1;
    }

    /// Makes `txn` hold the lock in `mode`, which may be weaker or stronger than `held`.
    pub(super) fn convert(&mut self, txn: TxnId, held: LockMode, mode: LockMode) {
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
    pub(super) fn remove(&mut self, txn: TxnId, mode: LockMode) {
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

    /// Replaces the holder `txn`, which ends, by an idle agent, unless a request waits for the
    /// lock.
    pub(super) fn bequeath(&mut self, txn: TxnId, mode: LockMode) -> Option<Arc<Agent>> {
        if !self.queue.is_empty() {
            return None;
        }
        self.remove(txn, mode);
        let agent = Agent::idle();
        self.agents.push((Arc::clone(&agent), mode));
        self.counts[mode.index()] += 1;
        Some(agent)
    }

    /// Removes an agent, if it has not been revoked or adopted; returns whether it was there.
    pub(super) fn dismiss(&mut self, agent: &Arc<Agent>) -> bool {
        let Some(at) = self.agents.iter().position(|(other, _)| Arc::ptr_eq(other, agent)) else { return false };
        let (_, mode) = self.agents.swap_remove(at);
        agent.retire();
        self.counts[mode.index()] -= 1;
        true
    }

    /// Grants the requests that the rule allows, in queue order.
    pub(super) fn grant_waiters(&mut self, granted: &mut Vec<Arc<Waiter>>) {
        let mut ahead = ModeSet::EMPTY;
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
            let Request { txn, waiter, .. } = self.queue.remove(at);
            match held {
                Some(held) => {
                    reach(Probe::LockConverted);
                    self.convert(txn, held, mode);
                }
                None => self.add(Holder { txn, mode }),
            }
            waiter.set(Outcome::Granted);
            granted.push(waiter);
        }
    }

    /// Adds to `blockers` the transactions that `txn` waits for in the wait `ticket`; returns
    /// whether that wait still lasts.
    ///
    /// Omits requests ahead that conflict with no more modes than this one does: this request waits
    /// for everything that they wait for here.
    pub(super) fn blockers(&self, txn: TxnId, ticket: u64, blockers: &mut Vec<TxnId>) -> bool {
        let waits = |request: &Request| request.txn == txn && request.ticket == ticket;
        let Some(position) = self.queue.iter().position(waits) else { return false };
        let request = &self.queue[position];
        let conflicts = request.mode.conflicts();
        let holders = self.iter().filter(|holder| holder.txn != txn && conflicts.intersects(holder.mode.set()));
        blockers.extend(holders.map(|holder| holder.txn));
        if request.held.is_none() {
            let ahead = self.queue[..position]
                .iter()
                .filter(|ahead| conflicts.intersects(ahead.mode.set()) && !conflicts.contains(ahead.mode.conflicts()));
            blockers.extend(ahead.map(|ahead| ahead.txn));
        }
        true
    }
}
