//! Waiting for another thread that is expected to be done in well under a microsecond.

use crate::clock::Instant;
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

    /// Whether the next wait is a short spin; after that it is a yield.
    pub const fn is_spinning(&self) -> bool {
        !cfg!(loom) && self.step <= Self::SPIN_STEPS
    }

    /// Whether the wait has gone on so long that blocking would be better than spinning.
    pub const fn is_long(&self) -> bool {
        self.step > Self::SPIN_STEPS + 4
    }
}

/// Pauses between attempts to get something that other threads take and give back within nanoseconds, all the time.
///
/// An attempt takes the cache line that they fight for away from the thread that works with it. A pause that is long
/// beside the work lets one thread get much done with the line at hand; a random one does not meet the others' again and
/// again. Each is of half a microsecond to one.
#[derive(Debug, Default)]
pub struct Retry {
    attempts: u32,
}

impl Retry {
    /// Most nanoseconds of a pause; it lasts half of that at least.
    const LONGEST: u64 = 1024;

    /// Before the first attempt.
    pub const fn new() -> Self {
        Self { attempts: 0 }
    }

    /// Pauses, unless `attempts` have been made: then returns `false`, and it is time to wait in another way.
    pub fn pause(&mut self, attempts: u32) -> bool {
        if self.attempts >= if cfg!(loom) { 1 } else { attempts } {
            return false;
        }
        if cfg!(loom) {
            thread::yield_now();
        } else {
            let start = Instant::now();
            let nanos = Self::LONGEST / 2 + thread::random() % (Self::LONGEST / 2);
            while Instant::now().nanos() - start.nanos() < nanos {
                pause(1);
            }
        }
        self.attempts += 1;
        true
    }
}
