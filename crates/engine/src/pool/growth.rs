//! Grows the data file ahead of the pages in it.

use duramen_io::File;
use duramen_sync::Mutex;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_types::{PAGE_SIZE, PageId};

/// The file grows by at most this many bytes at once. Where a file system cannot reserve space and
/// zeros are written instead, this keeps a device busy for about a millisecond, and commits wait
/// for it. A small file grows by a half.
const STEP: u64 = 1 << 20;
const LEAST_STEP: u64 = 128 << 10;

/// The length of the data file.
#[derive(Debug)]
pub(super) struct Growth {
    /// Bytes reserved on disk.
    reserved: AtomicU64,
    /// Locked by the thread that makes the file grow.
    growing: Mutex<()>,
}

impl Growth {
    /// Creates the state of a file of `len` bytes.
    pub(super) fn new(len: u64) -> Self {
        Self { reserved: AtomicU64::new(len), growing: Mutex::new(()) }
    }

    /// Returns the length of the file in bytes.
    pub(super) fn len(&self) -> u64 {
        self.reserved.load(Ordering::Acquire)
    }

    /// Makes sure that `data`, the file, has space for the page, so that a later write of the page
    /// cannot run out of space. While there is space, the file grows in steps; on a nearly full
    /// disk, it grows only as much as needed. The call runs `before_blocking` before it waits.
    ///
    /// # Errors
    /// Those of the disk; that of a full disk when there is no space.
    pub(super) fn reserve(
        &self,
        id: PageId,
        data: &dyn File,
        before_blocking: impl FnOnce(),
    ) -> duramen_io::Result<()> {
        let needed = (id.get() + 1) * PAGE_SIZE as u64;
        if needed <= self.reserved.load(Ordering::Acquire) {
            return Ok(());
        }
        before_blocking();
        let _growing = self.growing.lock();
        let reserved = self.reserved.load(Ordering::Relaxed);
        if needed <= reserved {
            return Ok(());
        }
        let whole = reserved - reserved % PAGE_SIZE as u64;
        let step = (whole / 2).next_multiple_of(PAGE_SIZE as u64).clamp(LEAST_STEP, STEP);
        let generous = needed.max(whole + step);
        let grown = match data.reserve(generous) {
            Ok(()) => generous,
            Err(error) if error.is_full() && generous > needed => {
                data.reserve(needed)?;
                needed
            }
            Err(error) => return Err(error),
        };
        self.reserved.store(grown, Ordering::Release);
        Ok(())
    }
}
