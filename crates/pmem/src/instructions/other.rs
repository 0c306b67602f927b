//! Processors without known instructions for persistent memory.

use duramen_sync::atomic::{Ordering, fence as full_fence};

/// How lines are flushed: not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flush;

impl Flush {
    /// There is no instruction to be found.
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

/// Orders what the caller stores.
pub(crate) fn fence() {
    full_fence(Ordering::SeqCst);
}

/// Copies `from` to `to`.
///
/// # Safety
/// `to` is aligned to 8 bytes, and as many bytes as `from` has, which is a multiple of 8, may be
/// written there.
pub(crate) unsafe fn stream(to: *mut u8, from: &[u8], _flush: Flush) {
    for (at, word) in from.as_chunks::<8>().0.iter().enumerate() {
        // SAFETY: as the caller says.
        unsafe { duramen_sync::word::store(to.cast::<u64>().wrapping_add(at), u64::from_ne_bytes(*word)) };
    }
}
