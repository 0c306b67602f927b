//! Tracks the log record from which each page is dirty.
//!
//! Each frame has two words, both 0 while the page is clean. `rec` bounds from below the GSN of
//! every record whose change may not be durable in place. `fresh` does the same for the changes
//! that came after the last copy for writing was made.
//!
//! - *Before* a thread inserts a log record, while it holds the page exclusively, it sets whichever
//!   of the two words is 0 to the log's end (`rec` first). Redo sets them to the GSN of the record
//!   that it applies. It applies a page's records in order, so the first record is the bound.
//! - The thread that copies the page sets `fresh` to 0 under the shared latch. Every earlier change
//!   is in the copy, and every later one sets the word again.
//! - `rec` rises to `fresh` only when the copy is durable. Until then a checkpoint still sees the
//!   old bound.
//!
//! The last step competes with a thread that has just latched the page and is about to set `fresh`.
//! If `fresh` is not 0, it is final until the next copy, and `rec` can take its value without the
//! latch. If `fresh` is 0, `rec` takes that value only under the shared latch, when no thread can
//! be about to set `fresh`. If the shared latch is not free at once, `rec` keeps its low value.
//! That is safe: the page is written again later.
//!
//! A page that was copied stays dirty until this last step, and so it stays in its frame. One
//! thread at a time copies pages. So the words belong to the same page throughout.

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_types::{Gsn, planted};

use super::latch::{Latch, ParkingLot};

/// The two words of a frame.
#[derive(Debug)]
pub(super) struct RecoveryGsn {
    rec: AtomicU64,
    /// Not 0 only if `rec` is not 0.
    fresh: AtomicU64,
}

impl RecoveryGsn {
    /// Creates the words of a clean page.
    pub(super) fn new() -> Self {
        Self { rec: AtomicU64::new(0), fresh: AtomicU64::new(0) }
    }

    /// Returns the bound on the GSNs of changes that may not be durable; `None` when the page is
    /// clean.
    #[inline]
    pub(super) fn get(&self) -> Option<Gsn> {
        let rec = self.rec.load(Ordering::Acquire);
        (rec != 0).then_some(Gsn::new(rec))
    }

    /// Returns whether the page is dirty. The answer is a hint unless the latch is held.
    #[inline]
    pub(super) fn is_dirty(&self) -> bool {
        self.rec.load(Ordering::Relaxed) != 0
    }

    /// Returns whether a change now needs no [`RecoveryGsn::note`]. The caller holds the page
    /// exclusively.
    #[inline]
    pub(super) fn is_noted(&self) -> bool {
        self.fresh.load(Ordering::Relaxed) != 0
    }

    /// Records that the page changes by records from `bound` on. The caller holds the page
    /// exclusively. Returns whether the page was clean before.
    pub(super) fn note(&self, bound: Gsn) -> bool {
        assert!(!bound.is_zero(), "no log record has GSN 0");
        if self.is_noted() {
            return false;
        }
        let was_clean = !self.is_dirty();
        if was_clean {
            self.rec.store(bound.get(), Ordering::Release);
        }
        self.fresh.store(bound.get(), Ordering::Release);
        was_clean
    }

    /// Records that the page, which the caller holds shared, has been copied for writing.
    pub(super) fn copied(&self) {
        self.fresh.store(0, Ordering::Relaxed);
    }

    /// Records that the last copy is durable in place. Returns whether the page is clean now.
    pub(super) fn durable(&self, latch: &Latch, lot: &ParkingLot) -> bool {
        let fresh = self.fresh.load(Ordering::Acquire);
        if fresh != 0 {
            reach(Probe::ChangedWhileWritten);
            self.rec.store(fresh, Ordering::Release);
            return false;
        }
        if planted!(CleanedUnderWriter) {
            self.rec.store(0, Ordering::Release);
            return true;
        }
        if !latch.try_shared() {
            return false;
        }
        let fresh = self.fresh.load(Ordering::Relaxed);
        self.rec.store(fresh, Ordering::Release);
        latch.release_shared(lot);
        fresh == 0
    }

    /// Forgets every change. The caller has held the page exclusively since it was clean. Returns
    /// whether there was any change.
    pub(super) fn forget(&self) -> bool {
        self.fresh.store(0, Ordering::Relaxed);
        self.rec.swap(0, Ordering::Relaxed) != 0
    }
}

/// A model of one page, its log and its copy on disk.
#[cfg(all(test, duramen_loom))]
mod models {
    use duramen_sync::{Arc, Mutex, thread};

    use super::*;

    struct Page {
        latch: Latch,
        lot: ParkingLot,
        dirt: RecoveryGsn,
        /// GSN of the last change, in memory and on disk.
        memory: AtomicU64,
        disk: Mutex<u64>,
        log_end: AtomicU64,
    }

    impl Page {
        fn change(&self) {
            assert!(self.latch.exclusive(&self.lot, || true));
            if !self.dirt.is_noted() {
                self.dirt.note(Gsn::new(self.log_end.load(Ordering::Acquire)));
            }
            let gsn = self.log_end.fetch_add(1, Ordering::AcqRel);
            self.memory.store(gsn, Ordering::Relaxed);
            self.latch.release_exclusive(true, &self.lot);
        }

        fn write(&self) {
            if !self.dirt.is_dirty() || !self.latch.try_shared() {
                return;
            }
            let copy = self.memory.load(Ordering::Relaxed);
            self.dirt.copied();
            self.latch.release_shared(&self.lot);
            *self.disk.lock() = copy;
            self.dirt.durable(&self.latch, &self.lot);
        }

        /// Checks what a checkpoint relies on: the disk has every change from before the bound.
        fn check(&self) {
            let end = self.log_end.load(Ordering::Acquire);
            let bound = self.dirt.get().map_or(end, |bound| bound.get().min(end));
            let disk = *self.disk.lock();
            assert!(disk + 1 >= bound, "the disk has changes up to {disk}, and the bound is {bound}");
        }
    }

    #[test]
    fn the_bound_never_passes_a_change_that_is_not_on_disk() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let page = Arc::new(Page {
                latch: Latch::new(),
                lot: ParkingLot::new(),
                dirt: RecoveryGsn::new(),
                memory: AtomicU64::new(0),
                disk: Mutex::new(0),
                log_end: AtomicU64::new(1),
            });
            page.change();
            // The first thread only changes the page: loom finds conflicts best from the other
            // thread.
            let cleaner = {
                let page = Arc::clone(&page);
                thread::spawn("cleaner", move || {
                    page.write();
                    page.write();
                })
                .unwrap()
            };
            let checkpoint = {
                let page = Arc::clone(&page);
                thread::spawn("checkpoint", move || page.check()).unwrap()
            };
            page.change();
            cleaner.join().unwrap();
            checkpoint.join().unwrap();
            page.check();
        });
    }
}
