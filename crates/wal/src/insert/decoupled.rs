//! `decoupled` (D): decoupled fill (Aether, section 5.2, algorithm 3).
//!
//! A thread holds the insertion lock only to acquire its space. It fills the space in while other
//! threads acquire and fill in theirs, so a large record no longer delays other threads at the
//! lock. But releases must follow the order of LSNs and are now a separate step:
//! [`Space::release`].
//!
//! In the paper, a thread waits in this step until its predecessor has released, however long that
//! takes. Here it waits only briefly, which suffices while the predecessor is running. Then it
//! leaves an early-release entry for its space, if there is a free cell
//! ([`crate::buffer::released`]), and another thread releases the space: a predecessor that has
//! lost its processor must not hold up the latches and locks of the threads behind it. The number
//! of threads that queue at the lock is not bounded; the consolidation array bounds it in other
//! designs.

use duramen_types::Lsn;

use super::steps::{after_unlock, try_after_unlock};
use super::{Fill, Insertion, Shape};
use crate::buffer::positions::Space;

/// The decoupled design.
#[derive(Debug)]
pub(crate) struct DecoupledInsertion;

impl Insertion for DecoupledInsertion {
    fn new(_shape: Shape) -> Self {
        Self
    }

    #[inline(always)]
    fn try_insert(&self, space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn> {
        try_after_unlock(space, bytes, fill)
    }

    fn insert(&self, space: &Space, bytes: u64, tried: bool, fill: impl Fill) -> Lsn {
        after_unlock(space, space.lock(tried), bytes, fill)
    }

    fn collect(&self, space: &Space) {
        space.follow_notes();
    }
}
