//! The lines of a page that changed in its frame and are not in the store yet.

use duramen_sync::atomic::{AtomicU64, Ordering};
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
pub(super) struct ChangedLines([AtomicU64; 2]);

impl ChangedLines {
    pub(super) fn get(&self) -> Lines {
        let [low, high] = [0, 1].map(|half: usize| u128::from(self.0[half].load(Ordering::Relaxed)));
        Lines::from_bits(low | high << 64)
    }

    /// Adds lines; returns those that were there before. Most changes of a page are in lines that
    /// have changed already, so that this mostly reads.
    #[inline]
    pub(super) fn add(&self, lines: Lines) -> Lines {
        let before = self.get();
        if before | lines != before {
            self.0[0].fetch_or(lines.bits() as u64, Ordering::Relaxed);
            self.0[1].fetch_or((lines.bits() >> 64) as u64, Ordering::Relaxed);
        }
        before
    }

    /// Removes all lines and returns them. No other thread adds lines meanwhile.
    pub(super) fn take(&self) -> Lines {
        let lines = self.get();
        self.clear();
        lines
    }

    /// Removes all lines: the caller holds a frame exclusively whose page is in the store, or gone.
    pub(super) fn clear(&self) {
        self.0.iter().for_each(|half| half.store(0, Ordering::Relaxed));
    }

    /// Forgets the lines: only for the planted bug that does so.
    pub(super) fn forget(&self) {
        if planted!(StagedPageDropped) {
            self.clear();
        }
    }
}
