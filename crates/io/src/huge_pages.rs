//! Large memory for blocks of a disk, in large pages of the processor.

use std::ptr::NonNull;

/// Size of a huge page, in bytes.
pub const HUGE_PAGE: usize = 2 << 20;

/// `MADV_COLLAPSE`, which not every C library names.
const COLLAPSE: libc::c_int = 25;

/// Requests that the system back the `len` bytes at `start` with huge pages as they are first
/// touched, as far as whole huge pages fit. The processor then finds the translations of random
/// addresses more often. Linux does this unrequested only if it is configured so for all processes;
/// a system without huge pages continues as before.
pub fn prefer_huge_pages(start: NonNull<u8>, len: usize) {
    let skip = start.as_ptr().align_offset(HUGE_PAGE);
    let whole = len.saturating_sub(skip) / HUGE_PAGE * HUGE_PAGE;
    if whole > 0 {
        // SAFETY: the advice does not change the content of the memory, whichever code owns it; the
        // system refuses a range that is not mapped.
        unsafe { libc::madvise(start.as_ptr().wrapping_add(skip).cast(), whole, libc::MADV_HUGEPAGE) };
    }
}

/// Does what [`prefer_huge_pages`] does for memory that is in use: the system copies it to huge
/// pages now, if it can.
pub fn collapse_to_huge_pages(start: NonNull<u8>, len: usize) {
    prefer_huge_pages(start, len);
    let skip = start.as_ptr().align_offset(HUGE_PAGE);
    let whole = len.saturating_sub(skip) / HUGE_PAGE * HUGE_PAGE;
    if whole > 0 {
        // SAFETY: as in `prefer_huge_pages`.
        unsafe { libc::madvise(start.as_ptr().wrapping_add(skip).cast(), whole, COLLAPSE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuf;

    #[test]
    fn memory_is_as_it_was() {
        for len in [1, HUGE_PAGE, 3 * HUGE_PAGE + 1] {
            let mut memory = AlignedBuf::zeroed(len);
            memory[len - 1] = 7;
            prefer_huge_pages(NonNull::from(&mut memory[0]), memory.len());
            collapse_to_huge_pages(NonNull::from(&mut memory[0]), memory.len());
            assert_eq!((memory[0], memory[len - 1]), (if len == 1 { 7 } else { 0 }, 7));
        }
    }
}
