//! Waits for another thread that should finish in well under a microsecond.

use std::time::Duration;

use crate::clock::Instant;
use crate::imp::{pause, thread};

/// Spins with growing pauses, then yields the processor, so that a waiting thread never starves the
/// thread for which it waits.
#[derive(Debug, Default)]
pub struct Backoff {
    step: u32,
}

impl Backoff {
    /// After this number of rounds of `2^step` pauses each wait is a yield.
    const SPIN_STEPS: u32 = 6;
    /// After this number of waits, which is some tenths of a second, each one is a sleep: the
    /// awaited thread waits for something itself, perhaps for a device that hangs.
    const YIELDS: u32 = 1 << 20;
    /// How long a sleep is.
    const SLEEP: Duration = Duration::from_micros(50);

    /// Starts a fresh wait.
    pub const fn new() -> Self {
        Self { step: 0 }
    }

    /// Waits a little; longer each time.
    pub fn snooze(&mut self) {
        match self.step {
            Self::YIELDS.. if !cfg!(duramen_loom) => thread::sleep(Self::SLEEP),
            0..=Self::SPIN_STEPS if !cfg!(duramen_loom) => pause(1 << self.step),
            _ => thread::yield_now(),
        }
        self.step = self.step.saturating_add(1);
    }

    /// Waits as [`Backoff::snooze`] does, but after many waits sleeps for fractions of a
    /// millisecond.
    pub fn rest(&mut self) {
        /// Number of waits before sleeps.
        const LONG: u32 = 64;
        if cfg!(duramen_loom) || self.step < LONG {
            self.snooze();
        } else {
            thread::sleep(Self::SLEEP);
        }
    }

    /// Returns whether the next wait is a short spin; after that it is a yield.
    pub const fn is_spinning(&self) -> bool {
        !cfg!(duramen_loom) && self.step <= Self::SPIN_STEPS
    }

    /// Returns whether the wait has lasted so long that blocking would be better than spinning.
    pub const fn is_long(&self) -> bool {
        self.step > Self::SPIN_STEPS + 4
    }
}

/// Waits for a random moment of up to 16 pauses, before another attempt to change a word that
/// another thread has just changed.
///
/// Threads that fail together and try again together fail again, all but one, and each attempt
/// takes the word's cache line from the one that succeeds.
pub fn stagger() {
    const MOST: u64 = 16;
    if cfg!(duramen_loom) {
        return thread::yield_now();
    }
    // One by one: on the simulated machine a longer pause ends when the word changes, for all
    // threads at once.
    (0..=thread::random() % MOST).for_each(|_| pause(1));
}

/// Pauses between attempts to acquire something that other threads constantly acquire and release
/// within nanoseconds.
///
/// An attempt takes the contended cache line away from the thread that works with it. A pause that
/// is long compared with the work lets one thread get much done with the line in its cache. Pauses
/// that grow do so for any number of threads, and random pauses keep threads from colliding again
/// and again. The first pauses last half a microsecond to one microsecond. Pauses of several
/// microseconds and more begin with a yield, in case the awaited thread has lost its processor.
/// When that has not helped for a while, the thread sleeps: its attempts are then fractions of a
/// millisecond apart.
#[derive(Debug)]
pub struct Retry {
    attempts: u32,
    /// The largest number of times that a pause is doubled.
    doubled: u32,
    /// Number of pauses after which the thread sleeps.
    sleeps_from: u32,
}

impl Retry {
    /// The maximum length of the first pause in nanoseconds; each pause lasts at least half of its
    /// maximum.
    const FIRST: u64 = 1024;
    /// Pauses doubled this many times begin with a yield.
    const YIELDS_FROM: u32 = 3;
    /// The maximum length of a sleep in nanoseconds.
    const SLEEP: u64 = 100_000;

    /// Starts before the first attempt, where any number of threads may try: pauses grow to 16
    /// microseconds.
    pub const fn among_many() -> Self {
        Self { attempts: 0, doubled: 4, sleeps_from: 8 }
    }

    /// Starts before the first attempt, where at most a handful of threads try: pauses do not grow,
    /// and after `limit` pauses they become sleeps.
    pub const fn among_few(limit: u32) -> Self {
        Self { attempts: 0, doubled: 0, sleeps_from: limit }
    }

    /// Returns the number of failed attempts so far, one before each pause.
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Pauses after a failed attempt.
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
