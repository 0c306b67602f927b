//! A store in memory whose pages are never dirty.

use super::super::Stamp;
use super::super::error::Damage;
use super::*;

/// The pages, by number. A test puts a changed page here while it holds the page exclusively.
#[derive(Debug, Default)]
pub(super) struct MemoryPages {
    pages: Mutex<Vec<Option<Box<[u8]>>>>,
    pub(super) stamp: Mutex<Option<Stamp>>,
    /// Whether reads fail.
    pub(super) fails: AtomicBool,
}

impl MemoryPages {
    /// Replaces a page.
    pub(super) fn put(&self, page: &Exclusive<'_>) {
        self.pages.lock()[page.id().get() as usize] = Some(page.to_vec().into());
    }

    fn check(&self) -> Result<(), PoolError> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(PoolError::Log { reason: "the memory fails".into() });
        }
        Ok(())
    }
}

impl PageStore for MemoryPages {
    fn read(&self, id: PageId, was_written: bool, bytes: &mut [u8]) -> Result<(), PoolError> {
        self.read_batch(&mut [(id, &mut *bytes)])?;
        self.verify(id, was_written, bytes)
    }

    fn read_batch(&self, pages: &mut [(PageId, &mut [u8])]) -> Result<(), PoolError> {
        self.check()?;
        let stored = self.pages.lock();
        for (id, bytes) in pages {
            match stored.get(id.get() as usize) {
                Some(Some(page)) => bytes.copy_from_slice(page),
                _ => bytes.fill(0),
            }
        }
        Ok(())
    }

    fn verify(&self, id: PageId, was_written: bool, bytes: &[u8]) -> Result<(), PoolError> {
        assert!(!was_written, "the pool writes nothing here");
        if page::page_id(bytes) != id {
            return Err(PoolError::corrupt(id, Damage::Blank, "the page is blank".into(), self.location()));
        }
        Ok(())
    }

    fn last_gsn(&self, id: PageId) -> Result<Gsn, PoolError> {
        self.check()?;
        let pages = self.pages.lock();
        Ok(pages.get(id.get() as usize).and_then(Option::as_ref).map_or(Gsn::ZERO, |page| page::gsn(page)))
    }

    fn reserve(&self, id: PageId) -> Result<(), PoolError> {
        let mut pages = self.pages.lock();
        let needed = id.get() as usize + 1;
        if pages.len() < needed {
            pages.resize(needed, None);
        }
        Ok(())
    }

    fn pages(&self) -> u64 {
        self.pages.lock().len() as u64
    }

    fn location(&self) -> String {
        "memory".into()
    }

    fn stamp(&self, stamp: Stamp) -> Result<(), PoolError> {
        *self.stamp.lock() = Some(stamp);
        Ok(())
    }

    fn verify_name(&self) -> Result<(), PoolError> {
        Ok(())
    }
}
