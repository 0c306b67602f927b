//! Processors without known instructions for persistent memory.

use duramen_sync::atomic::{Ordering, fence as full_fence};

/// Stands for the missing flush instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flush;

impl Flush {
    /// Returns the stand-in: there is no instruction to find.
    pub(crate) fn find() -> Self {
        Self
    }

    /// Returns the instruction's name.
    pub(crate) fn name(self) -> &'static str {
        "nothing"
    }

    /// Does nothing.
    ///
    /// # Safety
    /// The address is mapped.
    pub(crate) unsafe fn line(self, _line: *const u8) {}
}

/// Orders the caller's stores.
pub(crate) fn fence() {
    full_fence(Ordering::SeqCst);
}

/// Copies `from` to `to`.
///
/// # Safety
/// `to` is aligned to 8 bytes. The length of `from` is a multiple of 8, and as many bytes may be
/// written at `to`.
pub(crate) unsafe fn stream(to: *mut u8, from: &[u8], _flush: Flush) {
    for (at, word) in from.as_chunks::<8>().0.iter().enumerate() {
        // SAFETY: as the caller says.
        unsafe { duramen_sync::word::store(to.cast::<u64>().wrapping_add(at), u64::from_ne_bytes(*word)) };
    }
}
