//! Buffers that direct I/O accepts.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use duramen_types::BLOCK_SIZE;

/// Zeroed heap memory whose address and length are multiples of [`BLOCK_SIZE`].
#[derive(Debug)]
pub struct AlignedBuf {
    memory: NonNull<u8>,
    /// The first address in `memory` with the alignment.
    start: NonNull<u8>,
    len: usize,
}

/// From this size on, a buffer takes memory as it is used.
const LARGE: usize = 128 << 10;

// SAFETY: the buffer owns its memory and lends it under the usual borrow rules.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Allocates `len` zero bytes, rounded up to whole blocks (at least one).
    pub fn zeroed(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(BLOCK_SIZE);
        let layout = Self::layout(len);
        // SAFETY: the layout has a non-zero size.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        // SAFETY: less than a block is skipped, and if anything is, the memory is a block longer.
        let start = unsafe { memory.add(memory.as_ptr().align_offset(BLOCK_SIZE)) };
        Self { memory, start, len }
    }

    /// Returns what is allocated for `len` bytes. With an alignment, the allocator would write the
    /// zeros; without one, it takes fresh zero pages from the system.
    fn layout(len: usize) -> Layout {
        let layout = match len >= LARGE {
            true => Layout::array::<u8>(len + BLOCK_SIZE).ok(),
            false => Layout::from_size_align(len, BLOCK_SIZE).ok(),
        };
        layout.expect("buffers are far smaller than the address space")
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `len` initialised bytes that this buffer owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this very layout.
        unsafe { dealloc(self.memory.as_ptr(), Self::layout(self.len)) }
    }
}
