//! Grows the data file ahead of the pages in it.

use duramen_sync::Mutex;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_types::{PAGE_SIZE, PageId};

use super::{Pool, PoolError};

/// Bytes by which the file grows at once. This keeps a device busy for about a millisecond, and
/// commits wait for it.
const STEP: u64 = 1 << 20;

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
}

impl Pool {
    /// Checks that the data file still has its name.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn verify_file(&self) -> Result<(), PoolError> {
        Ok(self.data.verify_name()?)
    }

    /// Makes sure that the data file has space for the page, so that a later write of the page
    /// cannot run out of space. While there is space, the file grows in steps; on a nearly full
    /// disk, it grows only as much as needed.
    ///
    /// # Errors
    /// Those of the disk; that of a full disk when there is no space. The pool keeps working.
    pub(crate) fn reserve_page(&self, id: PageId) -> Result<(), PoolError> {
        self.check_limit(id)?;
        let needed = (id.get() + 1) * PAGE_SIZE as u64;
        if needed <= self.growth.reserved.load(Ordering::Acquire) {
            return Ok(());
        }
        self.wal_rule.before_blocking();
        let _growing = self.growth.growing.lock();
        let reserved = self.growth.reserved.load(Ordering::Relaxed);
        if needed <= reserved {
            return Ok(());
        }
        let generous = needed.max(reserved - reserved % PAGE_SIZE as u64 + STEP);
        let grown = match self.data.allocate(generous) {
            Ok(()) => generous,
            Err(error) if error.is_full() && generous > needed => {
                self.data.allocate(needed)?;
                needed
            }
            Err(error) => return Err(error.into()),
        };
        self.growth.reserved.store(grown, Ordering::Release);
        Ok(())
    }
}
