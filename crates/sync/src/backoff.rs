//! Waiting for another thread that is expected to be done in well under a microsecond.

use std::time::Duration;

use crate::clock::Instant;
use crate::imp::{pause, thread};

/// Spins with growing pauses, then yields the processor, so that a waiter never starves the thread
/// it waits for.
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
        if cfg!(duramen_loom) || self.step > Self::SPIN_STEPS {
            thread::yield_now();
        } else {
            pause(1 << self.step);
        }
        self.step = self.step.saturating_add(1);
    }

    /// Waits as [`Backoff::snooze`] does, but when that has gone on for long, sleeps for fractions
    /// of a millisecond.
    pub fn rest(&mut self) {
        /// So many waits are no sleeps.
        const LONG: u32 = 64;
        if cfg!(duramen_loom) || self.step < LONG {
            self.snooze();
        } else {
            thread::sleep(Duration::from_micros(50));
        }
    }

    /// Whether the next wait is a short spin; after that it is a yield.
    pub const fn is_spinning(&self) -> bool {
        !cfg!(duramen_loom) && self.step <= Self::SPIN_STEPS
    }

    /// Whether the wait has gone on so long that blocking would be better than spinning.
    pub const fn is_long(&self) -> bool {
        self.step > Self::SPIN_STEPS + 4
    }
}

/// Waits for a random moment of up to 16 pauses, before another attempt to change a word that
/// another thread has just changed.
///
/// Threads that fail together and try again together fail again, all but one, and each attempt
/// takes the word's line from the one that succeeds.
pub fn stagger() {
    const MOST: u64 = 16;
    if cfg!(duramen_loom) {
        return thread::yield_now();
    }
    // One by one: on the simulated machine a longer pause ends when the word changes, for all at
    // once.
    (0..=thread::random() % MOST).for_each(|_| pause(1));
}

/// Pauses between attempts to get something that other threads take and give back within
/// nanoseconds, all the time.
///
/// An attempt takes the cache line that they fight for away from the thread that works with it. A
/// pause that is long beside the work lets one thread get much done with the line at hand; one that
/// is longer each time does so however many threads there are; a random one does not meet the
/// others' again and again. The first are of half a microsecond to one. From some microseconds on
/// they begin with a yield, in case that the one waited for has lost its processor, and when that
/// has not helped for a while, the thread sleeps: its attempts are then fractions of a millisecond
/// apart.
#[derive(Debug)]
pub struct Retry {
    attempts: u32,
    /// Times that a pause is doubled at most.
    doubled: u32,
    /// After so many pauses the thread sleeps.
    sleeps_from: u32,
}

impl Retry {
    /// Most nanoseconds of the first pause; each lasts half of its most at least.
    const FIRST: u64 = 1024;
    /// Pauses that are doubled so often begin with a yield.
    const YIELDS_FROM: u32 = 3;
    /// Most nanoseconds of a sleep.
    const SLEEP: u64 = 100_000;

    /// Before the first attempt, where any number of threads may try: pauses grow to 16
    /// microseconds.
    pub const fn among_many() -> Self {
        Self { attempts: 0, doubled: 4, sleeps_from: 8 }
    }

    /// Before the first attempt, where no more than a handful of threads try: pauses do not grow,
    /// and from the pause behind `patience` others on, they are sleeps.
    pub const fn among_few(patience: u32) -> Self {
        Self { attempts: 0, doubled: 0, sleeps_from: patience }
    }

    /// Attempts that have failed so far, one before each pause.
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Pauses after an attempt that has failed.
    pub fn pause(&mut self) {
        let attempt = self.attempts;
        self.attempts = attempt.saturating_add(1);
        if cfg!(duramen_loom) {
            return thread::yield_now();
        }
        let random = |most: u64| most / 2 + thread::random() % (most / 2);
        if attempt >= self.sleeps_from {
            return thread::sleep(Duration::from_nanos(random(Self::SLEEP)));
        }
        let start = Instant::now();
        let doubled = attempt.min(self.doubled);
        let nanos = random(Self::FIRST << doubled);
        if doubled >= Self::YIELDS_FROM {
            thread::yield_now();
        }
        while Instant::now().nanos() - start.nanos() < nanos {
            pause(1);
        }
    }
}
