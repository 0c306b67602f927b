//! The lines of a page that changed in its frame and are not in the store yet.
//!
//! # Pages that need no copy before they are written
//! A page needs the double-write area if a torn write would destroy what cannot be had otherwise. A
//! page that was formatted anew since it was last durable in place is no such page: the record that
//! formatted it has all its bytes, and as the page was not durable since, its recovery GSN is not
//! above that record. So redo reads the record, and it replaces the page as a whole, whatever a
//! crash has left in its place. Redo may also find changes from before, of what the page was
//! earlier; it skips them if the page cannot be read ([`repeat`](crate::recovery)).

use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_types::planted;

use crate::page::Lines;

/// The lines in which the page in a frame may differ from what its store has, or is about to get
/// from a copy that was made. Of a store without a writer: the lines that wait for a batch.
///
/// Threads add lines while they hold the frame exclusively. A thread takes them while it copies the
/// page, when nobody holds it exclusively: under the shared latch, or while the gate is closed. If
/// the copy was not written, the lines are added again before the next copy is made. Meanwhile the
/// page is dirty and keeps its frame.
#[derive(Debug, Default)]
pub(super) struct ChangedLines {
    halves: [AtomicU64; 2],
    /// Whether the page was formatted anew.
    anew: AtomicBool,
}

impl ChangedLines {
    pub(super) fn get(&self) -> Lines {
        let [low, high] = [0, 1].map(|half: usize| u128::from(self.halves[half].load(Ordering::Relaxed)));
        Lines::from_bits(low | high << 64)
    }

    /// Adds lines; returns those that were there before. Most changes of a page are in lines that
    /// have changed already, so that this mostly reads.
    #[inline]
    pub(super) fn add(&self, lines: Lines) -> Lines {
        let before = self.get();
        if before | lines != before {
            self.halves[0].fetch_or(lines.bits() as u64, Ordering::Relaxed);
            self.halves[1].fetch_or((lines.bits() >> 64) as u64, Ordering::Relaxed);
        }
        before
    }

    /// Notes that the page was formatted anew; all its lines are added, too.
    pub(super) fn note_anew(&self) {
        self.anew.store(true, Ordering::Relaxed);
    }

    /// Removes all lines and returns them, and whether the page was formatted anew. No other thread
    /// adds lines meanwhile.
    pub(super) fn take(&self) -> (Lines, bool) {
        let taken = (self.get(), self.anew.load(Ordering::Relaxed));
        self.clear();
        if planted!(WrittenPageTakenForNew) && taken.1 {
            self.note_anew();
        }
        taken
    }

    /// Removes all lines: the caller holds a frame exclusively whose page is in the store, or gone.
    pub(super) fn clear(&self) {
        self.halves.iter().for_each(|half| half.store(0, Ordering::Relaxed));
        self.anew.store(false, Ordering::Relaxed);
    }

    /// Forgets the lines: only for the planted bug that does so.
    pub(super) fn forget(&self) {
        if planted!(StagedPageDropped) {
            self.clear();
        }
    }
}
