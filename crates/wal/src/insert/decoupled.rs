//! `decoupled` (D): decoupled fill (Aether, section 5.2, algorithm 3).
//!
//! A thread holds the insertion lock only to acquire its space, and fills it in while others
//! acquire and fill in theirs. A large record holds nobody up at the lock any more. But release
//! must follow the order of LSNs, and has become a step of its own: [`Space::release`].
//!
//! The paper's thread waits there until its predecessor has released, however long that takes. This
//! one waits for a moment, which is enough while the predecessor is at work, and then leaves a note
//! of its space for whoever comes to it, if there is room for one ([`crate::buffer::released`]): a
//! predecessor that has lost its processor must not hold up the latches and locks of those behind
//! it. The number of threads that queue at the lock is not bounded, which is what the consolidation
//! array is for.

use duramen_types::Lsn;

use super::steps::{behind_turn, try_behind_turn};
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
        try_behind_turn(space, bytes, fill)
    }

    fn insert(&self, space: &Space, bytes: u64, tried: bool, fill: impl Fill) -> Lsn {
        behind_turn(space, space.turn(tried), bytes, fill)
    }

    fn collect(&self, space: &Space) {
        space.follow_notes();
    }
}
