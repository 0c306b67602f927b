//! Pages that lack changes which the log has, where the database was opened before redo came to
//! them.
//!
//! Such a page is redone by whoever reads it into the pool, for whatever purpose, under the
//! exclusive latch with which the frame was claimed. So nobody ever sees it without its changes,
//! and nobody has to ask whether it has them: a page that is in the pool does. If it cannot be
//! redone it leaves the pool again as it is on disk, and who asked for it gets the error.

use duramen_sync::Arc;
use duramen_sync::probe::{Probe, reach};
use duramen_types::{Gsn, PageId, planted};

use super::{Exclusive, Pool, PoolError};

/// Changes in the log that pages on disk lack.
pub(crate) trait RedoOnFetch: Send + Sync {
    /// Whether there are any for the page. When there are none, there never will be.
    fn lacks(&self, page: PageId) -> bool;

    /// Repeats them; from then on there are none for the page. Waits for no latch.
    ///
    /// # Errors
    /// [`PoolError::Corrupt`] when page and log do not belong together. The page may have a part of
    /// the changes.
    fn redo(&self, page: &mut Exclusive<'_>) -> Result<(), PoolError>;

    /// All pages for which there are some, with the GSN of the first.
    fn pages(&self) -> Vec<(PageId, Gsn)>;
}

impl Pool {
    /// From now on, redoes pages when they are read in. None of them is in the pool, and the data
    /// file has room for all.
    pub(crate) fn redo_on_fetch(&self, unredone: Arc<dyn RedoOnFetch>) {
        assert!(self.unredone.set(unredone).is_ok(), "recovery runs once");
    }

    /// The pages that have not been redone yet, with the GSN of the first record that each may
    /// lack.
    pub(crate) fn unredone_pages(&self) -> Vec<(PageId, Gsn)> {
        self.unredone.get().map_or_else(Vec::new, |unredone| unredone.pages())
    }

    /// What the page lacks on disk, if it does.
    #[inline]
    pub(super) fn lacking(&self, id: PageId) -> Option<&dyn RedoOnFetch> {
        let unredone = self.unredone.get()?;
        (unredone.lacks(id) && !planted!(PageNotRedoneOnTouch)).then_some(&**unredone)
    }

    /// Redoes a page that has just been read into its frame, and lets go of it.
    pub(super) fn redo_loaded(&self, page: Exclusive<'_>, unredone: &dyn RedoOnFetch) -> Result<(), PoolError> {
        let mut loaded = Loaded(Some(page));
        loaded.0.as_mut().map_or(Ok(()), |page| unredone.redo(page))?;
        reach(Probe::PageRedoneOnTouch);
        // It has all its changes: it stays.
        drop(loaded.0.take());
        Ok(())
    }
}

/// A page that leaves the pool again unless it is taken out: when it cannot be redone, also by a
/// panic.
struct Loaded<'a>(Option<Exclusive<'a>>);

impl Drop for Loaded<'_> {
    fn drop(&mut self) {
        if let Some(page) = self.0.take() {
            page.discard();
        }
    }
}
