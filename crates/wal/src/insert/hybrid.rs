//! `hybrid` (CD): consolidation array and decoupled fill (Aether, section 5.3, algorithms 2 to 4).
//!
//! A thread first tries the insertion lock. If it gets the lock, it acquires its space, drops the
//! lock *before* it fills the space in, and releases the space when everything before it has been
//! released. If the lock is taken, the thread joins a group of the [`ConsolidationArray`] instead.
//! The group's leader acquires space for the whole group and drops the lock, and each member fills
//! in its own part. The last member to finish releases the space of the whole group and frees the
//! slot.
//!
//! As in `decoupled`, a thread that comes too early to release waits only briefly and then leaves
//! an early-release entry ([`Space::release`]), where the paper's thread waits until its space is
//! due.

use duramen_types::Lsn;

use super::array::ConsolidationArray;
use super::steps::{after_unlock, try_after_unlock};
use super::{Fill, Insertion, Shape};
use crate::buffer::positions::Space;

/// The hybrid design.
#[derive(Debug)]
pub(crate) struct HybridInsertion {
    array: ConsolidationArray,
}

impl HybridInsertion {
    fn insert_in_group(&self, space: &Space, bytes: u64, fill: impl Fill) -> Lsn {
        let part = self.array.part(space, bytes, || {}, |guard, _| drop(guard));
        let lsn = part.lsn();
        fill.fill(lsn);
        if let Some(group) = part.leave() {
            space.release(group.lsn, group.end());
            group.slot.free();
        }
        lsn
    }
}

impl Insertion for HybridInsertion {
    fn new(shape: Shape) -> Self {
        Self { array: ConsolidationArray::new(shape) }
    }

    #[inline(always)]
    fn try_insert(&self, space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn> {
        try_after_unlock(space, bytes, fill)
    }

    fn insert(&self, space: &Space, bytes: u64, tried: bool, fill: impl Fill) -> Lsn {
        match self.array.lock_alone(space, bytes, tried) {
            Some(guard) => after_unlock(space, guard, bytes, fill),
            None => self.insert_in_group(space, bytes, fill),
        }
    }

    fn collect(&self, space: &Space) {
        space.follow_notes();
    }

    fn consolidated(&self) -> u64 {
        self.array.consolidated()
    }
}
