//! Buffers that direct I/O accepts.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use duramen_types::BLOCK_SIZE;

/// Zeroed memory whose address and length are multiples of [`BLOCK_SIZE`].
#[derive(Debug)]
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
}

/// From this size on, a buffer is a mapping of its own: it takes memory as it is used, and gives
/// it back to the system.
const LARGE: usize = 128 << 10;

// SAFETY: the buffer owns its memory and lends it under the usual borrow rules. What users of
// `start` do is unsafe, and theirs to justify.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Allocates `len` zero bytes, rounded up to whole blocks (at least one).
    pub fn zeroed(len: usize) -> Self {
        Self::try_zeroed(len).unwrap_or_else(|| handle_alloc_error(Self::layout(len.next_multiple_of(BLOCK_SIZE))))
    }

    /// Does the same, but returns `None` when the system cannot provide the memory.
    pub fn try_zeroed(len: usize) -> Option<Self> {
        let len = len.max(1).checked_next_multiple_of(BLOCK_SIZE).filter(|len| *len <= isize::MAX as usize)?;
        let memory = if len >= LARGE {
            map(len)
        } else {
            // SAFETY: the layout has a non-zero size.
            unsafe { alloc_zeroed(Self::layout(len)) }
        };
        Some(Self { start: NonNull::new(memory)?, len })
    }

    /// Returns the address of the first byte, for users that share the memory by their own rules.
    /// It is valid as long as the buffer, which such users do not dereference.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, BLOCK_SIZE).expect("buffers are far smaller than the address space")
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
        if self.len >= LARGE {
            // SAFETY: mapped in `try_zeroed` with this length; the borrow rules, or those of the
            // users of `start`, ensure that no reference into it is left.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        } else {
            // SAFETY: allocated in `try_zeroed` with this very layout; the rest as above.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) }
        }
    }
}

/// Maps `len` bytes of zeros; returns null when there is no memory. A page of the system is a block
/// or a multiple of one.
fn map(len: usize) -> *mut u8 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping where the system likes; the result is checked.
    let memory =
        unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    if memory == libc::MAP_FAILED { std::ptr::null_mut() } else { memory.cast() }
}
