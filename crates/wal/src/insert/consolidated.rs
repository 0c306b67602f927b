//! `consolidated` (C): consolidation array (Aether, section 5.1, algorithms 2 and 4).
//!
//! A thread first tries the insertion lock. If it gets the lock, it does all three steps under it,
//! as in `mutex`. If the lock is taken, the thread joins a group of the [`ConsolidationArray`]
//! instead. The group's leader acquires space for the whole group, and the members fill in their
//! parts in parallel while the lock remains held. The last member to finish releases the space of
//! the whole group, frees the slot and unlocks the insertion lock that the leader locked; the
//! leader may have returned before that.
//!
//! So the order of the lock is the order of releases, and groups are filled in one after the other:
//! one large record delays all later groups. Decoupling removes this delay in `hybrid`. A member
//! that loses its processor while it fills in its part holds the lock up, as the lock's holder does
//! in `mutex`.

use duramen_types::Lsn;

use super::array::ConsolidationArray;
use super::steps::{try_under_lock, under_lock};
use super::{Fill, Insertion, Shape};
use crate::buffer::positions::{InsertionGuard, Space};

/// The consolidated design.
#[derive(Debug)]
pub(crate) struct ConsolidatedInsertion {
    array: ConsolidationArray,
}

impl ConsolidatedInsertion {
    fn insert_in_group(&self, space: &Space, bytes: u64, fill: impl Fill) -> Lsn {
        let part = self.array.part(space, bytes, || {}, |guard, _| InsertionGuard::entrust(guard));
        let lsn = part.lsn();
        fill.fill(lsn);
        if let Some(group) = part.leave() {
            // SAFETY: the leader has entrusted its lock to the group, and only one member is the
            // last to leave.
            let guard = unsafe { space.entrusted_lock() };
            space.release_in_order(group.lsn, group.end());
            group.slot.free();
            drop(guard);
        }
        lsn
    }
}

impl Insertion for ConsolidatedInsertion {
    fn new(shape: Shape) -> Self {
        Self { array: ConsolidationArray::new(shape) }
    }

    #[inline(always)]
    fn try_insert(&self, space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn> {
        try_under_lock(space, bytes, fill)
    }

    fn insert(&self, space: &Space, bytes: u64, tried: bool, fill: impl Fill) -> Lsn {
        match self.array.lock_alone(space, bytes, tried) {
            Some(guard) => under_lock(space, guard, bytes, fill),
            None => self.insert_in_group(space, bytes, fill),
        }
    }

    fn consolidated(&self) -> u64 {
        self.array.consolidated()
    }
}
