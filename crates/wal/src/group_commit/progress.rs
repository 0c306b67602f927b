//! What the [commit queue](crate::group_commit::queue) reads of the log that it serves.

use std::fmt::Debug;

use duramen_types::{Gsn, Lsn};

use crate::buffer::positions::Space;

/// A position to harden up to: an LSN in one log, a GSN in several that harden together.
pub(crate) trait Position: Copy + Ord + Default + Debug + Send + 'static {
    fn of(raw: u64) -> Self;
    fn raw(self) -> u64;
}

impl Position for Lsn {
    fn of(raw: u64) -> Self {
        Self::new(raw)
    }

    fn raw(self) -> u64 {
        self.get()
    }
}

impl Position for Gsn {
    fn of(raw: u64) -> Self {
        Self::new(raw)
    }

    fn raw(self) -> u64 {
        self.get()
    }
}

/// How far the log has been hardened.
pub(crate) trait Progress {
    type At: Position;

    /// Returns the position below which everything is hardened.
    fn hardened(&self) -> Self::At;

    /// Returns the position below which the flush in progress, or the last one, hardens everything.
    fn in_flush(&self) -> Self::At;

    /// Returns whether nothing more will be hardened.
    fn has_failed(&self) -> bool;

    /// Returns the bytes inserted and not flushed.
    fn unflushed(&self) -> u64;

    /// Returns whether insertions wait for a flush.
    fn is_short_of_room(&self) -> bool;

    /// Returns whether waiting for `at` has ended, with success or with failure.
    fn is_resolved(&self, at: Self::At) -> bool {
        self.hardened() > at || self.has_failed()
    }
}

impl Progress for Space {
    type At = Lsn;

    fn hardened(&self) -> Lsn {
        self.hardened()
    }

    fn in_flush(&self) -> Lsn {
        self.in_flush()
    }

    fn has_failed(&self) -> bool {
        self.has_failed()
    }

    fn unflushed(&self) -> u64 {
        // A reader of a ring may de-stage more than the end read before it.
        self.end().get().saturating_sub(self.durable().get())
    }

    fn is_short_of_room(&self) -> bool {
        self.waiting_for_room() > 0
    }
}
