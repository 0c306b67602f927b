//! Redo on demand: the database is open, and pages are redone when they are first needed, or in the
//! background (Sauer, Graefe, Härder: Instant restore and restart after a failure).
//!
//! Redo keeps its last window, sorted by page, instead of repeating it ([`Kept`]). Transactions
//! begin. The pool redoes each page of the window that it reads in ([`crate::pool::RedoOnFetch`]),
//! while a background thread visits the pages in the order of the data file. The thread that loads
//! a page redoes it, once: it first enters the page into the dirty page table, and only then
//! removes it from the pages that are left. So a checkpoint that reads the remaining pages before
//! the dirty page table misses none, and the log is kept from the first record that any of them
//! lacks.
//!
//! A page that cannot be redone stays as it is, and a thread that needs it gets the error. The log
//! keeps the page's changes, and the next opening tries again.

use std::collections::BTreeMap;

use duramen_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use duramen_sync::{Arc, Mutex};
use duramen_types::{Gsn, PageId};

use super::repeat::{Repeated, Visit, repeat_changes, was_unreadable};
use super::window::Kept;
use crate::pool::{Exclusive, Pool, PoolError, RedoOnFetch};

/// Largest number of pages that the background thread reads together.
const BATCH: usize = 64;

/// The state of a page that has not been redone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lacking {
    /// The first record that it may lack and needs.
    pub(super) first: Gsn,
    /// What redo knows of the page.
    pub(super) visit: Visit,
}

/// The pages that have not been redone.
#[derive(Debug)]
pub(crate) struct Unredone {
    /// The number of these pages.
    count: AtomicUsize,
    left: Mutex<Left>,
}

#[derive(Debug)]
struct Left {
    pages: BTreeMap<PageId, Lacking>,
    /// The changes that the pages lack; dropped with the last of the pages.
    kept: Option<Arc<Kept>>,
}

impl Unredone {
    pub(super) fn new(kept: Kept, pages: Vec<(PageId, Lacking)>) -> Self {
        let kept = (!pages.is_empty()).then(|| Arc::new(kept));
        let pages: BTreeMap<_, _> = pages.into_iter().collect();
        Self { count: AtomicUsize::new(pages.len()), left: Mutex::new(Left { pages, kept }) }
    }

    /// Returns the number of pages.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed) as u64
    }

    /// Records that a page has been redone.
    fn remove(&self, page: PageId) {
        let mut left = self.left.lock();
        left.pages.remove(&page);
        self.count.store(left.pages.len(), Ordering::Release);
        if left.pages.is_empty() {
            left.kept = None;
        }
    }

    /// Returns the next pages, from this one on.
    fn next(&self, from: PageId, most: usize) -> Vec<PageId> {
        self.left.lock().pages.range(from..).map(|(page, _)| *page).take(most).collect()
    }

    /// Redoes the remaining pages until `stop` is set. Skips damaged pages, and returns the error
    /// of the first.
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
                // The page has been redone meanwhile, or the thread that loads it redoes it; then
                // this waits for that thread.
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
        match repeat_changes(page, kept.of_page(id), lacking.visit)? {
            Repeated::Redone(_) => {
                self.remove(id);
                Ok(())
            }
            Repeated::Skipped => Err(page.was_unreadable().cloned().unwrap_or_else(|| was_unreadable(id))),
        }
    }

    fn pages(&self) -> Vec<(PageId, Gsn)> {
        self.left.lock().pages.iter().map(|(page, lacking)| (*page, lacking.first)).collect()
    }
}
