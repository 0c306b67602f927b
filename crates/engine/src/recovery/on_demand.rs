//! Redo on demand: the database is open, and pages are redone when they are first needed, or in the
//! background (Sauer, Graefe, Härder: Instant restore and restart after a failure).
//!
//! Redo keeps its last window instead of repeating it, sorted by page ([`Kept`]). Transactions
//! begin; the pool redoes each page of the window that it reads in ([`crate::pool::RedoOnFetch`]),
//! while a thread goes through them in the order of the data file. A page is redone once, by who
//! loads it: it is entered into the dirty page table first, and only then taken from the pages that
//! are left. So a checkpoint that looks at the latter before the former misses none, and the log is
//! kept from the first record that any of them lacks.
//!
//! A page that cannot be redone stays as it is, and whoever needs it gets the error. The log keeps
//! its changes, and the next opening tries again.

use std::collections::BTreeMap;

use duramen_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use duramen_sync::{Arc, Mutex};
use duramen_types::{Gsn, PageId};

use super::repeat::repeat_changes;
use super::window::Kept;
use crate::pool::{Exclusive, Pool, PoolError, RedoOnFetch};

/// Most pages that the thread reads together.
const BATCH: usize = 64;

/// What is known about a page that has not been redone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lacking {
    /// The first record that it may lack.
    pub(super) first: Gsn,
    /// Whether redo has not met it before.
    pub(super) is_new: bool,
}

/// The pages that have not been redone.
#[derive(Debug)]
pub(crate) struct Unredone {
    /// How many there are.
    count: AtomicUsize,
    left: Mutex<Left>,
}

#[derive(Debug)]
struct Left {
    pages: BTreeMap<PageId, Lacking>,
    /// What they lack; gone with the last of them.
    kept: Option<Arc<Kept>>,
}

impl Unredone {
    pub(super) fn new(kept: Kept, pages: Vec<(PageId, Lacking)>) -> Self {
        let kept = (!pages.is_empty()).then(|| Arc::new(kept));
        let pages: BTreeMap<_, _> = pages.into_iter().collect();
        Self { count: AtomicUsize::new(pages.len()), left: Mutex::new(Left { pages, kept }) }
    }

    /// Number of pages.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed) as u64
    }

    /// Takes note that a page has been redone.
    fn remove(&self, page: PageId) {
        let mut left = self.left.lock();
        left.pages.remove(&page);
        self.count.store(left.pages.len(), Ordering::Release);
        if left.pages.is_empty() {
            left.kept = None;
        }
    }

    /// The next pages, from this one on.
    fn next(&self, from: PageId, most: usize) -> Vec<PageId> {
        self.left.lock().pages.range(from..).map(|(page, _)| *page).take(most).collect()
    }

    /// Redoes what is left, until it is told to stop. Damaged pages stay behind; the first of them
    /// is the error.
    pub(super) fn redo_all(&self, pool: &Pool, stop: &AtomicBool) -> Result<(), PoolError> {
        let batch = BATCH.min(pool.frames() / 8).max(1);
        let (mut from, mut damaged) = (PageId::ZERO, None);
        loop {
            let pages = self.next(from, batch);
            let Some(last) = pages.last() else { return damaged.map_or(Ok(()), Err) };
            from = PageId::new(last.get() + 1);
            pool.prefetch(&pages);
            for page in pages {
                if stop.load(Ordering::Acquire) {
                    return Ok(());
                }
                // It is redone by now, or is by whoever loads it; then that is waited for.
                match pool.shared(page) {
                    Ok(_) => {}
                    Err(error @ PoolError::Corrupt { .. }) => drop(damaged.get_or_insert(error)),
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

impl RedoOnFetch for Unredone {
    fn lacks(&self, page: PageId) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.left.lock().pages.contains_key(&page)
    }

    fn redo(&self, page: &mut Exclusive<'_>) -> Result<(), PoolError> {
        let id = page.id();
        let (lacking, kept) = {
            let left = self.left.lock();
            let (Some(lacking), Some(kept)) = (left.pages.get(&id), &left.kept) else { return Ok(()) };
            (*lacking, Arc::clone(kept))
        };
        repeat_changes(page, kept.of_page(id), lacking.is_new)?;
        self.remove(id);
        Ok(())
    }

    fn pages(&self) -> Vec<(PageId, Gsn)> {
        self.left.lock().pages.iter().map(|(page, lacking)| (*page, lacking.first)).collect()
    }
}
