//! `mutex`: the baseline (Aether, algorithm 1).
//!
//! A thread holds one mutex through all three steps, so records are filled in one at a time and
//! released in LSN order. The design is simple and, with one thread, as fast as any design with a
//! lock. A large record delays all other threads.

use duramen_types::Lsn;

use super::steps::{try_under_lock, under_lock};
use super::{Fill, Insertion, Shape};
use crate::buffer::positions::Space;

/// The baseline design.
#[derive(Debug)]
pub(crate) struct MutexInsertion;

impl Insertion for MutexInsertion {
    fn new(_shape: Shape) -> Self {
        Self
    }

    #[inline(always)]
    fn try_insert(&self, space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn> {
        try_under_lock(space, bytes, fill)
    }

    fn insert(&self, space: &Space, bytes: u64, tried: bool, fill: impl Fill) -> Lsn {
        under_lock(space, space.lock(tried), bytes, fill)
    }
}
