//! `delegated` (CDE): consolidation, decoupled fill, delegated release (Aether, A.6, algorithm 5).
//!
//! As in `hybrid`, a thread that finds the insertion lock free acquires space for itself, other
//! threads acquire it in groups (the [`ConsolidationArray`]), and space is filled in outside the
//! lock. But before the lock is dropped, the space joins the [`ReleaseQueue`]. A thread that has
//! filled its space in (in a group, the last member) and finds its predecessor still at work
//! delegates the release to it and returns. So small records do not wait for a large one, and one
//! thread releases many spaces in a row. With probability 1/[`PATIENT_ONE_IN`] the thread first
//! waits briefly for its predecessor, so that a thread with delegations eventually finishes.
//!
//! A slot is also the queue's node, as the paper suggests. So a thread that inserts alone takes a
//! slot from the pool as well, although it never appears in the array. The thread that releases a
//! slot's space frees the slot. When all slots are in use, the holder of the lock waits for one:
//! the pool bounds the number of spaces that wait to be released, as the buffer bounds their bytes.
//!
//! A flush, or a thread that waits for a slot, finds a delegation that a predecessor has missed or
//! left by searching the pool ([`Insertion::collect`]).

use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Backoff, thread};
use duramen_types::{Lsn, planted};

use super::array::ConsolidationArray;
use super::release_queue::{Node, ReleaseQueue};
use super::slot::Slot;
use super::{Fill, Insertion, Shape};
use crate::buffer::positions::Space;

/// One in this number of spaces, on average, is not delegated at once.
const PATIENT_ONE_IN: u64 = 32;

/// The largest number of delegated spaces that a thread releases after its own. Each costs a line
/// from the cache of the thread that delegated it, which may insert faster than that. The rest is
/// left to a thread that finds all slots in use, or to a flush.
const HANDED_ON: usize = 16;

#[derive(Debug)]
pub(crate) struct DelegatedInsertion {
    array: ConsolidationArray,
    queue: ReleaseQueue,
}

impl DelegatedInsertion {
    #[inline]
    fn slot(&self, index: usize) -> &Slot {
        &self.array.pool[index]
    }

    /// Puts the slot at `index` at the end of the queue. The caller holds the insertion lock.
    #[inline]
    fn join(&self, index: usize) {
        self.queue.join(index, |index| &self.slot(index).node);
    }

    /// Occupies a slot for `bytes` that one thread has just acquired, and puts it in the queue. The
    /// caller holds the insertion lock.
    #[inline(always)]
    fn occupy(&self, space: &Space, bytes: u64) -> &Slot {
        let (index, slot) = self.array.take(|slot| slot.occupy(bytes), || self.collect(space));
        self.join(index);
        slot
    }

    fn insert_in_group(&self, space: &Space, bytes: u64, fill: impl Fill) -> Lsn {
        let acquired = |guard, index| {
            self.join(index);
            drop(guard);
        };
        let part = self.array.part(space, bytes, || self.collect(space), acquired);
        let lsn = part.lsn;
        fill.fill(lsn);
        if let Some(group) = part.leave() {
            self.finish(space, group.slot, group.lsn, group.end);
        }
        lsn
    }

    /// Finishes a space that has been filled in: releases it, or delegates the release.
    #[inline(always)]
    fn finish(&self, space: &Space, slot: &Slot, lsn: Lsn, end: Lsn) {
        let is_turn = || space.released() == lsn;
        if is_turn() || !leave_to_others(&slot.node, lsn, is_turn) {
            self.release(space, slot, end);
        }
    }

    /// Releases the space up to `end`, which is due, and the delegated spaces behind it.
    #[inline(always)]
    fn release(&self, space: &Space, slot: &Slot, end: Lsn) {
        if let Some(next) = release_one(space, slot, end)
            && !planted!(DelegatedReleaseForgotten)
        {
            self.release_delegated(space, next, end, HANDED_ON);
        }
    }

    /// Releases the space at `lsn`, if it belongs to the slot at `next` and has been delegated, and
    /// goes on with the space behind it.
    #[cold]
    fn release_delegated(&self, space: &Space, next: usize, lsn: Lsn, most: usize) {
        let (mut next, mut lsn) = (Some(next), lsn);
        for _ in 0..most {
            let Some(slot) = next.map(|next| self.slot(next)).filter(|slot| slot.node.take(lsn)) else { return };
            reach(Probe::DelegatedReleased);
            let end = lsn.advance(slot.bytes());
            next = release_one(space, slot, end);
            lsn = end;
        }
    }
}

#[cold]
fn leave_to_others(node: &Node, lsn: Lsn, is_turn: impl Fn() -> bool) -> bool {
    if thread::random().is_multiple_of(PATIENT_ONE_IN) {
        let mut backoff = Backoff::new();
        while backoff.is_spinning() {
            backoff.snooze();
            if is_turn() {
                return false;
            }
        }
    }
    let left = node.delegate(lsn, is_turn);
    if left {
        reach(Probe::ReleaseDelegated);
    }
    left
}

/// Releases the space up to `end`, which is due; returns the index of the slot behind it.
#[inline(always)]
fn release_one(space: &Space, slot: &Slot, end: Lsn) -> Option<usize> {
    space.release_due(end);
    let next = slot.node.next();
    slot.free();
    next
}

impl Insertion for DelegatedInsertion {
    fn new(shape: Shape) -> Self {
        Self { array: ConsolidationArray::new(shape), queue: ReleaseQueue::default() }
    }

    #[inline(always)]
    fn try_insert(&self, space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn> {
        let lsn = space.try_acquire(bytes)?;
        let slot = self.occupy(space, bytes);
        // SAFETY: `try_acquire` has taken the lock above.
        unsafe { space.unlock() };
        fill.fill(lsn);
        self.finish(space, slot, lsn, lsn.advance(bytes));
        Some(lsn)
    }

    fn insert(&self, space: &Space, bytes: u64, tried: bool, fill: impl Fill) -> Lsn {
        let Some(mut guard) = self.array.lock_alone(space, bytes, tried) else {
            return self.insert_in_group(space, bytes, fill);
        };
        let lsn = guard.acquire(bytes, 1);
        let slot = self.occupy(space, bytes);
        drop(guard);
        fill.fill(lsn);
        self.finish(space, slot, lsn, lsn.advance(bytes));
        lsn
    }

    fn collect(&self, space: &Space) {
        let due = space.released();
        if due == space.end() || planted!(DelegatedReleaseForgotten) {
            return;
        }
        let pool = &self.array.pool;
        if let Some(slot) = pool.iter().find(|slot| slot.node.take(due)) {
            let end = due.advance(slot.bytes());
            if let Some(next) = release_one(space, slot, end) {
                self.release_delegated(space, next, end, pool.len());
            }
        }
    }

    fn consolidated(&self) -> u64 {
        self.array.consolidated()
    }
}
