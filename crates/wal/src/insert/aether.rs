//! `mutex`, `consolidated` (C), `decoupled` (D) and `hybrid` (CD): the designs that Aether makes
//! from two independent ideas (sections 3 and 5, algorithms 1 to 4).
//!
//! With neither idea, a thread holds the insertion lock through all three steps: records are filled
//! in one at a time and released in LSN order, and a large record delays all other threads. With
//! one thread this baseline is as fast as any design with a lock.
//!
//! # Groups (section 5.1)
//! A thread that finds the insertion lock free inserts alone. One that finds it taken joins a group
//! of the [`ConsolidationArray`]: the leader acquires space for the whole group, the members fill
//! in their parts in parallel, and the last to finish releases the group's space and frees the
//! slot. Without groups, the number of threads that queue at the lock is not bounded.
//!
//! # Decoupled fill (section 5.2)
//! A thread, or a group's leader, drops the lock before the space is filled in, so a large record
//! no longer delays other threads at the lock. But releases must follow the order of LSNs and are
//! now a separate step: [`Space::release`]. In the paper, a thread waits in this step until its
//! predecessor has released, however long that takes. Here it waits only briefly, which suffices
//! while the predecessor is running. Then it leaves an early-release entry, if there is a free cell
//! ([`crate::buffer::released`]), and another thread releases the space: a predecessor that has
//! lost its processor must not hold up the latches and locks of the threads behind it.
//!
//! Without decoupling, the order of the lock is the order of releases. A group holds the lock until
//! all of it is filled in: the last member unlocks what the leader locked, and the leader may have
//! returned before that. So groups are filled in one after the other, and a member that loses its
//! processor holds the lock up.

use duramen_types::Lsn;

use super::array::ConsolidationArray;
use super::{Fill, Insertion, Shape};
use crate::buffer::positions::{InsertionGuard, Space};

/// A design with these of the two ideas.
#[derive(Debug)]
pub(crate) struct AetherInsertion<const GROUPS: bool, const DECOUPLED: bool> {
    array: Option<ConsolidationArray>,
}

impl<const GROUPS: bool, const DECOUPLED: bool> AetherInsertion<GROUPS, DECOUPLED> {
    fn insert_alone(space: &Space, mut guard: InsertionGuard<'_>, bytes: u64, fill: impl Fill) -> Lsn {
        let lsn = guard.acquire(bytes, 1);
        // Decoupled, this unlocks.
        let _held = (!DECOUPLED).then_some(guard);
        fill.fill(lsn);
        Self::release(space, lsn, lsn.advance(bytes));
        lsn
    }

    fn insert_in_group(array: &ConsolidationArray, space: &Space, bytes: u64, fill: impl Fill) -> Lsn {
        let part = array.part(space, bytes, || {}, |guard, _| if DECOUPLED { drop(guard) } else { guard.entrust() });
        let lsn = part.lsn;
        fill.fill(lsn);
        if let Some(group) = part.leave() {
            // SAFETY: unless decoupled, the leader has entrusted its lock to the group, and only
            // one member is the last to leave.
            let _held = (!DECOUPLED).then(|| unsafe { space.entrusted_lock() });
            Self::release(space, group.lsn, group.end);
            group.slot.free();
        }
        lsn
    }

    #[inline(always)]
    fn release(space: &Space, lsn: Lsn, end: Lsn) {
        if DECOUPLED {
            space.release(lsn, end);
        } else {
            space.release_in_order(lsn, end);
        }
    }
}

impl<const GROUPS: bool, const DECOUPLED: bool> Insertion for AetherInsertion<GROUPS, DECOUPLED> {
    fn new(shape: Shape) -> Self {
        Self { array: GROUPS.then(|| ConsolidationArray::new(shape)) }
    }

    #[inline(always)]
    fn try_insert(&self, space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn> {
        let lsn = space.try_acquire(bytes)?;
        if DECOUPLED {
            // SAFETY: `try_acquire` has taken the lock above.
            unsafe { space.unlock() };
        }
        fill.fill(lsn);
        Self::release(space, lsn, lsn.advance(bytes));
        if !DECOUPLED {
            // SAFETY: as above.
            unsafe { space.unlock() };
        }
        Some(lsn)
    }

    fn insert(&self, space: &Space, bytes: u64, tried: bool, fill: impl Fill) -> Lsn {
        let Some(array) = &self.array else { return Self::insert_alone(space, space.lock(tried), bytes, fill) };
        match array.lock_alone(space, bytes, tried) {
            Some(guard) => Self::insert_alone(space, guard, bytes, fill),
            None => Self::insert_in_group(array, space, bytes, fill),
        }
    }

    fn collect(&self, space: &Space) {
        if DECOUPLED {
            space.follow_notes();
        }
    }

    fn consolidated(&self) -> u64 {
        self.array.as_ref().map_or(0, ConsolidationArray::consolidated)
    }
}
