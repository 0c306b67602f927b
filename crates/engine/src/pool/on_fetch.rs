//! Pages that lack changes which the log has, because the database was opened before redo reached
//! them.
//!
//! The thread that reads such a page into the pool, for whatever purpose, redoes it under the
//! exclusive latch with which it claimed the frame. So no thread ever sees the page without its
//! changes, and no thread has to check for them: a page in the pool has them. If a page cannot be
//! redone, it leaves the pool again as it is on disk, and the thread that requested it gets the
//! error.

use duramen_sync::Arc;
use duramen_sync::probe::{Probe, reach};
use duramen_types::{Gsn, PageId, planted};

use super::{Exclusive, Pool, PoolError};

/// Changes in the log that pages in the store lack.
pub(crate) trait RedoOnFetch: Send + Sync {
    /// Returns whether the page lacks any changes. Once it lacks none, it never lacks any again.
    fn lacks(&self, page: PageId) -> bool;

    /// Repeats the changes; from then on the page lacks none. Waits for no latch.
    ///
    /// # Errors
    /// [`PoolError::Corrupt`] when the page and the log do not belong together. The page may then
    /// have a part of the changes.
    fn redo(&self, page: &mut Exclusive<'_>) -> Result<(), PoolError>;

    /// Returns all pages that lack changes, each with the GSN of the first.
    fn pages(&self) -> Vec<(PageId, Gsn)>;
}

impl Pool {
    /// From now on, redoes pages when they are read in. None of them may be in the pool yet, and
    /// the store must have space for all of them.
    pub(crate) fn redo_on_fetch(&self, unredone: Arc<dyn RedoOnFetch>) {
        assert!(self.unredone.set(unredone).is_ok(), "recovery runs once");
    }

    /// Returns the pages that have not been redone yet, each with the GSN of the first record that
    /// it may lack.
    pub(crate) fn unredone_pages(&self) -> Vec<(PageId, Gsn)> {
        self.unredone.get().map_or_else(Vec::new, |unredone| unredone.pages())
    }

    /// Returns the source of the changes that the page lacks in the store, if it lacks any.
    #[inline]
    pub(super) fn lacking(&self, id: PageId) -> Option<&dyn RedoOnFetch> {
        let unredone = self.unredone.get()?;
        (unredone.lacks(id) && !planted!(PageNotRedoneOnFetch)).then_some(&**unredone)
    }

    /// Redoes a page that was just read into its frame, and releases it.
    pub(super) fn redo_loaded(&self, page: Exclusive<'_>, unredone: &dyn RedoOnFetch) -> Result<(), PoolError> {
        let mut loaded = Loaded(Some(page));
        loaded.0.as_mut().map_or(Ok(()), |page| unredone.redo(page))?;
        reach(Probe::PageRedoneOnFetch);
        // The page has all its changes, so it stays in the pool.
        drop(loaded.0.take());
        Ok(())
    }
}

/// A page that leaves the pool again unless it is taken out of this value: when redo fails or
/// panics.
struct Loaded<'a>(Option<Exclusive<'a>>);

impl Drop for Loaded<'_> {
    fn drop(&mut self) {
        if let Some(page) = self.0.take() {
            page.discard();
        }
    }
}
