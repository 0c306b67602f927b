//! `delegated` (CDE): consolidation array, decoupled fill and delegated release (Aether, section A.6, algorithm 5).
//!
//! As in `hybrid`, a thread that finds the insertion lock free acquires space for itself, others acquire it in groups
//! (the [`ConsolidationArray`]), and space is filled in outside the lock. But before the lock is dropped, the space joins
//! the [`ReleaseQueue`]. Who has filled its space in (of a group, the last) and finds a predecessor at work leaves the
//! release to it and goes; so small records do not wait for a large one before them, and one thread releases many spaces
//! in a row. With probability [`PATIENT_ONE_IN`] it waits for its predecessor a moment, so that a thread which releases
//! what others have delegated to it comes to an end.
//!
//! A slot is the queue's node, as the paper suggests, so a thread by itself takes a slot from the pool as well, though it
//! never stands in the array. A slot is freed by the thread that releases its space. When all are in use, the holder of
//! the lock waits for one to be freed: the pool bounds how many spaces can wait to be released, as the buffer bounds their
//! bytes.
//!
//! A delegation that a predecessor has missed is found by looking through the pool ([`Insertion::collect`]): by a flush, and
//! by who waits for a slot.

use duramen_sync::{Backoff, random};
use duramen_types::Lsn;

use super::array::ConsolidationArray;
use super::release_queue::{Node, ReleaseQueue};
use super::slot::Slot;
use super::{Fill, Insertion, Shape};
use crate::space::Space;

/// One in so many spaces, on average, is not delegated at once.
const PATIENT_ONE_IN: u32 = 32;

/// The delegated design.
#[derive(Debug)]
pub(crate) struct DelegatedInsertion {
    array: ConsolidationArray,
    queue: ReleaseQueue,
}

impl DelegatedInsertion {
    #[inline]
    fn slot(&self, index: usize) -> &Slot {
        &self.array.pool()[index]
    }

    #[inline]
    fn node<'a>(&'a self) -> impl Fn(usize) -> &'a Node {
        |index| self.slot(index).node()
    }

    fn insert_in_group(&self, space: &Space, bytes: u64, fill: impl Fill) -> Lsn {
        let acquired = |turn, index| {
            self.queue.join(index, self.node());
            drop(turn);
        };
        let part = self.array.part(space, bytes, || self.collect(space), acquired);
        let lsn = part.lsn();
        fill.fill(lsn);
        if let Some(group) = part.leave() {
            self.finish(space, group.index, group.lsn, group.bytes);
        }
        lsn
    }

    /// Finishes with the space at `lsn`, of `bytes`, of the slot at `index`, which has been filled in: releases it, or
    /// leaves that to another thread.
    #[inline(always)]
    fn finish(&self, space: &Space, index: usize, lsn: Lsn, bytes: u64) {
        let is_turn = || space.released() == lsn;
        if is_turn() || !self.leave_to_others(index, lsn, is_turn) {
            self.release(space, index, lsn, bytes);
        }
    }

    #[cold]
    fn leave_to_others(&self, index: usize, lsn: Lsn, is_turn: impl Fn() -> bool) -> bool {
        if random().is_multiple_of(PATIENT_ONE_IN) {
            let mut backoff = Backoff::new();
            while backoff.is_spinning() {
                backoff.snooze();
                if is_turn() {
                    return false;
                }
            }
        }
        self.slot(index).node().delegate(lsn, is_turn)
    }

    /// Releases the space at `lsn`, of `bytes`, of the slot at `index`, whose turn it is, and those behind it that have been
    /// delegated.
    #[inline(always)]
    fn release(&self, space: &Space, index: usize, lsn: Lsn, bytes: u64) {
        let end = lsn.advance(bytes);
        if let Some(next) = self.release_one(space, index, lsn, end) {
            self.release_delegated(space, next, end);
        }
    }

    /// Releases the space from `lsn` to `end` of the slot at `index`; returns the index of the slot behind it.
    #[inline(always)]
    fn release_one(&self, space: &Space, index: usize, lsn: Lsn, end: Lsn) -> Option<usize> {
        space.release_in_order(lsn, end);
        let slot = self.slot(index);
        let next = slot.node().next();
        slot.free();
        next
    }

    /// Releases the space at `lsn`, which may be that of the slot at `next`, if it has been delegated, and so on.
    #[cold]
    fn release_delegated(&self, space: &Space, next: usize, lsn: Lsn) {
        let (mut due, mut lsn) = (Some(next), lsn);
        while let Some(index) = due.filter(|index| self.slot(*index).node().take(lsn)) {
            let end = lsn.advance(self.slot(index).group().1);
            due = self.release_one(space, index, lsn, end);
            lsn = end;
        }
    }
}

impl Insertion for DelegatedInsertion {
    fn new(shape: Shape) -> Self {
        Self { array: ConsolidationArray::new(shape), queue: ReleaseQueue::default() }
    }

    #[inline(always)]
    fn try_insert(&self, space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn> {
        let mut index = 0;
        let lsn = space.try_acquire(bytes, |lsn| {
            index = self.array.take(|slot| slot.occupy(lsn, bytes), || self.collect(space));
            self.queue.join(index, self.node());
        })?;
        fill.fill(lsn);
        self.finish(space, index, lsn, bytes);
        Some(lsn)
    }

    fn insert(&self, space: &Space, bytes: u64, tried: bool, fill: impl Fill) -> Lsn {
        if let Some(mut turn) = self.array.turn_alone(space, bytes, tried) {
            let lsn = turn.acquire(bytes, 1);
            let index = self.array.take(|slot| slot.occupy(lsn, bytes), || self.collect(space));
            self.queue.join(index, self.node());
            drop(turn);
            fill.fill(lsn);
            self.finish(space, index, lsn, bytes);
            return lsn;
        }
        self.insert_in_group(space, bytes, fill)
    }

    fn collect(&self, space: &Space) {
        let due = space.released();
        // While it moves, somebody is at work who looks after those behind. So this is nearly always the end.
        if due == space.end() {
            return;
        }
        let pool = self.array.pool();
        if let Some(index) = (0..pool.len()).find(|index| pool[*index].node().take(due)) {
            let (lsn, bytes) = self.slot(index).group();
            self.release(space, index, lsn, bytes);
        }
    }

    fn consolidated(&self) -> u64 {
        self.array.consolidated()
    }
}
