//! Waiting for another thread that is expected to be done in well under a microsecond.

use crate::imp::{pause, thread};

/// Spins with growing pauses, then yields the processor, so that a waiter never starves the thread it waits for.
#[derive(Debug, Default)]
pub struct Backoff {
    step: u32,
}

impl Backoff {
    /// After this many rounds of `2^step` pauses each wait is a yield.
    const SPIN_STEPS: u32 = 6;

    /// A fresh wait.
    pub const fn new() -> Self {
        Self { step: 0 }
    }

    /// Waits a little; longer each time.
    pub fn snooze(&mut self) {
        if cfg!(loom) || self.step > Self::SPIN_STEPS {
            thread::yield_now();
        } else {
            pause(1 << self.step);
        }
        self.step = self.step.saturating_add(1);
    }

    /// Waits a little, longer each time up to a bound, and never yields: for locks that are held for nanoseconds. Returns
    /// whether it has waited; after about ten microseconds in all it does not, and it is time to sleep.
    pub fn spin(&mut self) -> bool {
        /// Waits of the longest kind.
        const LONGEST: u32 = 8;
        if cfg!(loom) || self.step > Self::SPIN_STEPS + LONGEST {
            return false;
        }
        pause(1 << self.step.min(Self::SPIN_STEPS));
        self.step += 1;
        true
    }

    /// Whether the next wait is a short spin; after that it is a yield.
    pub const fn is_spinning(&self) -> bool {
        !cfg!(loom) && self.step <= Self::SPIN_STEPS
    }

    /// Whether the wait has gone on so long that blocking would be better than spinning.
    pub const fn is_long(&self) -> bool {
        self.step > Self::SPIN_STEPS + 4
    }
}
