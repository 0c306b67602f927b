//! Growing the data file ahead of the pages in it.

use duramen_sync::Mutex;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_types::{PAGE_SIZE, PageId};

use super::{Pool, PoolError};

/// How far the file grows at once, in bytes: a device is busy with it for about a millisecond, for
/// which commits wait.
const STEP: u64 = 1 << 20;

/// How long the data file is.
#[derive(Debug)]
pub(super) struct Growth {
    /// Bytes that are reserved on disk.
    reserved: AtomicU64,
    /// Held by the thread that makes the file grow.
    growing: Mutex<()>,
}

impl Growth {
    /// A file of `len` bytes.
    pub(super) fn new(len: u64) -> Self {
        Self { reserved: AtomicU64::new(len), growing: Mutex::new(()) }
    }

    /// Length of the file in bytes.
    pub(super) fn len(&self) -> u64 {
        self.reserved.load(Ordering::Acquire)
    }
}

impl Pool {
    /// Checks that the data file still has its name.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn verify_file(&self) -> Result<(), PoolError> {
        Ok(self.data.verify_name()?)
    }

    /// Makes sure that the data file has a place for the page, so that writing it later cannot run
    /// out of space. The file grows in steps as long as there is space; on a nearly full disk by as
    /// little as needed.
    ///
    /// # Errors
    /// The disk's; of a full disk when there is no space. The pool goes on working.
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
