//! Reads pages as they are on disk, to copy the data file.

use duramen_types::{PAGE_SIZE, PageId, planted};

use super::error::Damage;
use super::{Pool, PoolError};
use crate::page::{self, PageDefect};

impl Pool {
    /// Returns the number of pages that fit into the data file at its present length.
    pub(crate) fn pages_on_disk(&self) -> u64 {
        self.growth.len() / PAGE_SIZE as u64
    }

    /// Fills `buffer` with the pages from `first` on as they are in the data file, each of them
    /// whole. Returns how many pages had to be read twice because they were being written. A blank
    /// page is returned as zeros.
    ///
    /// # Errors
    /// [`PoolError::Corrupt`] for a damaged page, [`PoolError::Disk`].
    pub(crate) fn read_whole_pages(&self, first: PageId, buffer: &mut [u8]) -> Result<u64, PoolError> {
        self.data.read_at(buffer, first.get() * PAGE_SIZE as u64)?;
        let mut again = 0;
        for (index, bytes) in buffer.chunks_exact_mut(PAGE_SIZE).enumerate() {
            let id = PageId::new(first.get() + index as u64);
            if is_whole(bytes, id).is_ok() || planted!(BackupKeepsTornPages) {
                continue;
            }
            again += 1;
            {
                // A thread that writes pages holds the batch's lock.
                let _nobody_writes = self.write_back.pause();
                self.data.read_at(bytes, id.get() * PAGE_SIZE as u64)?;
            }
            is_whole(bytes, id).map_err(|defect| self.corrupt(id, Damage::Other, defect.to_string()))?;
        }
        Ok(again)
    }
}

fn is_whole(bytes: &[u8], id: PageId) -> Result<(), PageDefect> {
    match page::verify(bytes, id) {
        Err(PageDefect::Blank) => Ok(()),
        other => other,
    }
}
