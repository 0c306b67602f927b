//! The cache lines of a page that wait in its frame for a batch.

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_types::planted;

use crate::page::Lines;

/// The lines of a page that wait in its frame. They change while the frame is held exclusively, or
/// while the gate is closed.
#[derive(Debug, Default)]
pub(super) struct StagedLines([AtomicU64; 2]);

impl StagedLines {
    pub(super) fn get(&self) -> Lines {
        let [low, high] = [0, 1].map(|half: usize| u128::from(self.0[half].load(Ordering::Relaxed)));
        Lines::from_bits(low | high << 64)
    }

    pub(super) fn set(&self, lines: Lines) {
        self.0[0].store(lines.bits() as u64, Ordering::Relaxed);
        self.0[1].store((lines.bits() >> 64) as u64, Ordering::Relaxed);
    }

    pub(super) fn take(&self) -> Lines {
        let lines = self.get();
        self.set(Lines::NONE);
        lines
    }

    /// Forgets the lines: only for the planted bug that does so.
    pub(super) fn forget(&self) {
        if planted!(StagedPageDropped) {
            self.set(Lines::NONE);
        }
    }
}
