//! The log buffer's memory, ordinary or persistent: a ring mapped twice in a row; no record wraps.
//!
//! The byte of an LSN is at `lsn mod size`. The same physical pages are mapped at `[0, size)` and
//! again at `[size, 2 size)`, so any range of up to `size` bytes is contiguous in memory. The
//! system provides the pages as they are first written.

use std::fmt::Debug;
use std::io;
use std::ptr::NonNull;

use duramen_pmem::{Mapping, Region};
use duramen_sync::Arc;
use duramen_types::Lsn;

#[derive(Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    /// In bytes.
    size: usize,
    /// Unmaps the memory when it is dropped.
    _owner: Arc<dyn Debug + Send + Sync>,
}

// SAFETY: the ring is plain memory; the contract of `bytes` and `bytes_mut` determines which thread
// may access which part of it, and when.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// Maps a ring of `size` bytes, a power of two and a multiple of the system's page size.
    pub(crate) fn new(size: usize) -> io::Result<Self> {
        assert!(size.is_power_of_two() && size >= 4096, "a ring is a power of two of whole pages");
        probe(size)?;
        let mapping = Mapping::twice(c"duramen-log-buffer", size).map_err(io::Error::other)?;
        Ok(Self { base: mapping.start(), size, _owner: Arc::new(mapping) })
    }

    /// Makes the ring in persistent memory that begins at `at`, where `region` has been mapped
    /// twice in a row. Its size in bytes is a power of two.
    pub(crate) fn in_region(region: Arc<Region>, at: u64, size: usize) -> Self {
        assert!(size.is_power_of_two() && size >= 4096, "a ring is a power of two of whole pages");
        // SAFETY: the slice ends at once; the contract of `bytes` and `bytes_mut` determines which
        // thread may access the ring, and when.
        let base = NonNull::from(unsafe { region.bytes_mut(at, size) }).cast();
        Self { base, size, _owner: region }
    }

    /// Has the system provide all pages of a new ring now, for measurements.
    #[cfg(not(duramen_loom))]
    pub(crate) fn touched(self) -> Self {
        for at in (0..2 * self.size).step_by(4096) {
            // SAFETY: within the two mappings, and nothing else has the ring.
            unsafe { self.base.as_ptr().add(at).write_volatile(0) };
        }
        self
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    #[inline(always)]
    fn at(&self, lsn: Lsn, len: usize) -> *mut u8 {
        assert!(len <= self.size, "{len} bytes are more than the ring holds");
        let offset = lsn.get() as usize & (self.size - 1);
        // SAFETY: offset < size and len <= size, so the range ends within the two mappings.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Returns the `len` bytes from `lsn`.
    ///
    /// # Safety
    /// No thread writes to the range while the slice lives.
    pub(crate) unsafe fn bytes(&self, lsn: Lsn, len: usize) -> &[u8] {
        // SAFETY: `at` checked the bounds; the system zeroed the memory; the caller excludes
        // writers.
        unsafe { std::slice::from_raw_parts(self.at(lsn, len), len) }
    }

    /// Returns the `len` bytes from `lsn` for writing.
    ///
    /// # Safety
    /// No other thread accesses the range, under either of its addresses, while the slice lives.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the contract makes the range exclusive")]
    pub(crate) unsafe fn bytes_mut(&self, lsn: Lsn, len: usize) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the caller excludes all other accesses.
        unsafe { std::slice::from_raw_parts_mut(self.at(lsn, len), len) }
    }
}

/// Fails if the system would not provide `size` bytes. The system refuses reserved memory at once;
/// shared memory it provides page by page, and ends the process when there is no more.
fn probe(size: usize) -> io::Result<()> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping where the system likes; the result is checked.
    let memory =
        unsafe { libc::mmap(std::ptr::null_mut(), size, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it has just been mapped, and no other code has its address.
    unsafe { libc::munmap(memory, size) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_over_the_seam_is_contiguous() {
        let ring = Ring::new(65536).unwrap();
        let lsn = Lsn::new(7 * 65536 - 3);
        // SAFETY: the test is the only user.
        unsafe {
            ring.bytes_mut(lsn, 6).copy_from_slice(b"abcdef");
            assert_eq!(ring.bytes(lsn, 6), b"abcdef");
            assert_eq!(ring.bytes(Lsn::new(0), 3), b"def");
            assert_eq!(ring.bytes(Lsn::new(65533), 3), b"abc");
        }
    }
}
