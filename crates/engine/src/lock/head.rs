//! The head of one lock: who holds it, who waits, and the rule by which requests are granted.
//! Everything here runs under the mutex of the lock's bucket and never waits.
//!
//! # The grant rule
//! A *conversion* (the transaction holds the lock already, and wants a stronger mode) is granted
//! when no other holder conflicts with it. A *fresh* request is granted when no holder and no
//! request ahead of it in the queue conflicts with it. Conversions queue ahead of fresh requests,
//! each kind in order of arrival.
//!
//! Nobody starves: a fresh request passes another one only where the two are compatible, and then
//! does not delay it; and a conversion waits for transactions that hold the lock already, which are
//! finitely many, because what conflicts with a queued conversion is not admitted any more. Agents
//! that hold the lock for their next transaction (`inherit.rs`) count as holders; an idle one that
//! is in the way is revoked.

use duramen_sync::Arc;
use duramen_sync::probe::{Probe, reach};
use duramen_types::TxnId;

use super::id::LockId;
use super::inherit::Agent;
use super::mode::{LockMode, ModeSet};
use super::txn::{Outcome, Waiter};

/// Holders kept in the head itself.
const INLINE_HOLDERS: usize = 2;

#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub(super) txn: TxnId,
    pub(super) mode: LockMode,
}

/// Why a transaction waits, as it stands in the queue.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) txn: TxnId,
    /// The mode that the transaction would hold once granted.
    pub(super) mode: LockMode,
    /// The mode that the transaction holds while it waits: present in conversions only.
    pub(super) held: Option<LockMode>,
    /// Tells this wait from every other wait of the same transaction.
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
    /// Agents that hold the lock for whichever transaction they run.
    agents: Vec<(Arc<Agent>, LockMode)>,
    /// Holders of both kinds by mode, so that admission to a lock with many holders need not look
    /// at each.
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

    /// Whether a request that came now would be granted at once. Otherwise agents in its way have
    /// been revoked, or marked: it may go into the queue.
    #[inline]
    pub(super) fn is_grantable(&mut self, held: Option<LockMode>, mode: LockMode) -> bool {
        self.is_permitted(held, mode) || self.revoke(mode) && self.is_permitted(held, mode)
    }

    /// The grant rule for a request that would stand last of its kind in the queue.
    #[inline]
    fn is_permitted(&self, held: Option<LockMode>, mode: LockMode) -> bool {
        let conflicts = mode.conflicts();
        !conflicts.intersects(self.held_by_others(held))
            && (held.is_some() || !self.queue.iter().any(|ahead| conflicts.intersects(ahead.mode.set())))
    }

    /// Grants a fresh request or a conversion if that needs no waiting, and says whether it did.
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

    /// Revokes the idle agents that stand in the way of `mode`, and marks the others; returns
    /// whether any is gone.
    fn revoke(&mut self, mode: LockMode) -> bool {
        let (conflicts, counts, before) = (mode.conflicts(), &mut self.counts, self.agents.len());
        self.agents.retain(|(agent, mode)| {
            let stays = !conflicts.intersects(mode.set()) || !agent.revoke();
            counts[mode.index()] -= u32::from(!stays);
            stays
        });
        self.agents.len() < before
    }

    /// Makes `txn`, if it uses an inherited lock, a holder like others, so that it can be
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

    /// Makes `txn` hold the lock in `mode`, weaker or stronger than `held`.
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

    /// Turns the hold of `txn`, which ends, into one of an idle agent, unless somebody waits for
    /// the lock.
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

    /// Grants what the rule allows, in queue order.
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

    /// Replaces `blockers` by those whom `txn` waits for in the wait `ticket`, and says whether
    /// that wait still lasts.
    ///
    /// Left out are requests ahead that conflict with no more than this one does: whatever they
    /// wait for here, this one waits for as well.
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
