//! The insertion designs: how threads share the one log buffer.
//!
//! Every design does the same three steps for a record: *acquire* the next bytes of the buffer, which are its LSN, *fill*
//! them in, *release* them to the flusher in LSN order. They differ in what happens under the lock and in how threads
//! help each other. All stand on [`Space`]; none knows what a record is.

mod hybrid;
mod mutex;
mod slot;

use duramen_types::Lsn;

use crate::options::InsertDesign;
use crate::space::Space;

pub(crate) use hybrid::HybridInsertion;
pub(crate) use mutex::MutexInsertion;

/// One way to share the log buffer.
pub(crate) trait Insertion {
    /// Acquires `bytes` in `space`, calls `fill` with their LSN, and releases them. When this returns, the bytes are
    /// released or will be by another thread without any further help from this one.
    fn insert(&self, space: &Space, bytes: u64, fill: impl FnOnce(Lsn)) -> Lsn;

    /// Records that joined another thread's group.
    fn consolidated(&self) -> u64;
}

/// The design in use.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one per log, and a box would cost every insertion a step")]
pub(crate) enum AnyInsertion {
    Mutex(MutexInsertion),
    Hybrid(HybridInsertion),
}

impl AnyInsertion {
    /// Sets `design` up for a buffer of `capacity` bytes.
    pub(crate) fn new(design: InsertDesign, array_slots: usize, capacity: u64) -> Self {
        match design {
            InsertDesign::Mutex => Self::Mutex(MutexInsertion),
            InsertDesign::Hybrid => Self::Hybrid(HybridInsertion::new(array_slots, capacity / 4)),
        }
    }
}

impl Insertion for AnyInsertion {
    #[inline]
    fn insert(&self, space: &Space, bytes: u64, fill: impl FnOnce(Lsn)) -> Lsn {
        match self {
            Self::Mutex(design) => design.insert(space, bytes, fill),
            Self::Hybrid(design) => design.insert(space, bytes, fill),
        }
    }

    fn consolidated(&self) -> u64 {
        match self {
            Self::Mutex(design) => design.consolidated(),
            Self::Hybrid(design) => design.consolidated(),
        }
    }
}

#[cfg(all(test, loom))]
mod loom_models;
