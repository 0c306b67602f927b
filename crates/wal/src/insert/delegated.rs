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

use duramen_sync::probe::{Probe, reach};
use duramen_types::Lsn;

use super::array::{ConsolidationArray, random};
use super::release_queue::{Node, ReleaseQueue};
use super::slot::Slot;
use super::{Insertion, Shape};
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

    /// Releases the space of the slot at `index`, which has been filled in, or leaves that to another thread.
    #[inline]
    fn release(&self, space: &Space, index: usize) {
        if self.slot(index).node().delegate(random().is_multiple_of(PATIENT_ONE_IN)) {
            reach(Probe::ReleaseDelegated);
            return;
        }
        let mut granted = Some(index);
        while let Some(index) = granted {
            let slot = self.slot(index);
            let (lsn, bytes) = slot.group();
            space.release_in_order(lsn, lsn.advance(bytes));
            granted = slot.node().hand_off(self.node());
            slot.free();
        }
    }
}

impl Insertion for DelegatedInsertion {
    fn new(shape: Shape) -> Self {
        Self { array: ConsolidationArray::new(shape), queue: ReleaseQueue::default() }
    }

    #[inline]
    fn insert(&self, space: &Space, bytes: u64, fill: impl FnOnce(Lsn)) -> Lsn {
        if let Some(mut turn) = self.array.turn_alone(space, bytes) {
            let lsn = turn.acquire(bytes, 1);
            let index = self.array.take(|slot| slot.occupy(lsn, bytes));
            self.queue.join(index, self.node());
            drop(turn);
            fill(lsn);
            self.release(space, index);
            return lsn;
        }
        let part = self.array.part(space, bytes, |turn, index| {
            self.queue.join(index, self.node());
            drop(turn);
        });
        let lsn = part.lsn();
        fill(lsn);
        if let Some(group) = part.leave() {
            self.release(space, group.index);
        }
        lsn
    }

    fn consolidated(&self) -> u64 {
        self.array.consolidated()
    }
}
