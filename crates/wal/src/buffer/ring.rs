//! The log buffer's memory, ordinary or persistent: a ring that is mapped twice in a row, so that
//! no record ever wraps.
//!
//! The byte of an LSN is at `lsn mod size`. The same physical pages are mapped at `[0, size)` and
//! again at `[size, 2 size)`, so any range of up to `size` bytes is contiguous in memory wherever
//! it starts. The system provides the pages as they are first written.

use std::io;
use std::ptr::NonNull;

use duramen_pmem::Region;
use duramen_sync::{Arc, cost};
use duramen_types::Lsn;

/// Memory of the log buffer.
#[derive(Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    size: usize,
    /// The owner of the memory, if it is persistent.
    region: Option<Arc<Region>>,
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
        // SAFETY: the name is a valid C string; the result is checked.
        let memory = unsafe { libc::memfd_create(c"duramen-log-buffer".as_ptr(), libc::MFD_CLOEXEC) };
        if memory < 0 {
            return Err(io::Error::last_os_error());
        }
        let ring = Self::map(memory, size);
        // SAFETY: the descriptor is ours and is not used again; mappings outlive it.
        unsafe { libc::close(memory) };
        ring
    }

    /// Makes the ring in persistent memory that begins at `at`, where `region` has been mapped
    /// twice in a row. Its size in bytes is a power of two.
    pub(crate) fn in_region(region: Arc<Region>, at: u64, size: usize) -> Self {
        assert!(size.is_power_of_two() && size >= 4096, "a ring is a power of two of whole pages");
        // SAFETY: the slice ends at once; the contract of `bytes` and `bytes_mut` determines which
        // thread may access the ring, and when.
        let base = NonNull::from(unsafe { region.bytes_mut(at, size) }).cast();
        Self { base, size, region: Some(region) }
    }

    fn map(memory: libc::c_int, size: usize) -> io::Result<Self> {
        let len = libc::off_t::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: plain system call on a descriptor we own.
        if unsafe { libc::ftruncate(memory, len) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: reserves address space that nothing else uses; the result is checked.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), 2 * size, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).expect("the system never maps address zero unasked");
        // From here on the drop of `ring` unmaps the whole reservation, also when one of the
        // mappings fails.
        let ring = Self { base, size, region: None };
        for copy in 0..2 {
            // SAFETY: `copy * size` is within the reservation, which `MAP_FIXED` replaces page by
            // page.
            let mapped = unsafe {
                libc::mmap(
                    base.as_ptr().add(copy * size).cast(),
                    size,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_FIXED,
                    memory,
                    0,
                )
            };
            if mapped == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
        }
        cost::map(base.as_ptr(), size, 2);
        Ok(ring)
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

    /// Returns the size in bytes.
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
        // SAFETY: `at` checked the bounds; the memory is initialised (zeroed by the system); the
        // caller excludes writers.
        unsafe { std::slice::from_raw_parts(self.at(lsn, len), len) }
    }

    /// Returns the `len` bytes from `lsn` for writing.
    ///
    /// # Safety
    /// No other thread reads or writes the range, under either of its addresses, while the slice
    /// lives.
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

impl Drop for Ring {
    fn drop(&mut self) {
        if self.region.is_some() {
            return;
        }
        cost::unmap(self.base.as_ptr());
        // SAFETY: without persistent memory this is the reservation of `map`, and the borrow rules
        // ensure that no slice of it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), 2 * self.size) };
    }
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
