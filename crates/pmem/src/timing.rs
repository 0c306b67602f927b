//! The timing model: ordinary memory made as slow as persistent memory that the machine does not
//! have.
//!
//! After Pelley et al., *Storage Management in the NVRAM Era* (PVLDB 7(2), 2013), section 4.2, and
//! Wang and Johnson, *Scalable Logging through Emerging Non-Volatile Memory* (PVLDB 7(10), 2014),
//! section 5.1: writes and barriers delay the calling thread in a loop on the processor's cycle
//! counter, and all writers of a region share its bandwidth. A writer reserves the time for its
//! bytes with a compare-and-swap on the time at which the device is next free, and waits until its
//! reservation ends.

use std::num::NonZeroU64;
use std::time::Duration;

use duramen_sync::CachePadded;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::clock::Ticks;

/// Times are rounded up to multiples of this, the length of one iteration of the waiting loop.
pub const STEP: Duration = Duration::from_nanos(20);

/// Delays of a modelled device, in addition to the times of the memory that stands in for it. A
/// delay of zero, the default, costs nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Timing {
    /// Delay of each call that writes, such as the insertion of a record into a log.
    pub write: Duration,
    /// Delay of each fence: the time until earlier writes are durable.
    pub barrier: Duration,
    /// Bytes per second that all writers of a region share; `None` is no limit.
    pub bandwidth: Option<NonZeroU64>,
    /// Delay of each call that reads.
    pub read: Duration,
}

impl Timing {
    /// No delays.
    pub const NONE: Self =
        Self { write: Duration::ZERO, barrier: Duration::ZERO, bandwidth: None, read: Duration::ZERO };

    /// Returns whether nothing is delayed.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

/// The model at work: a device whose writers share its bandwidth. A [`Region`](crate::Region) has
/// one; a program that models a device of another kind makes its own.
#[derive(Debug)]
pub struct Model {
    clock: Ticks,
    /// Delays, in ticks.
    write: u64,
    barrier: u64,
    read: u64,
    /// Time for one MiB; zero without a limit.
    mebibyte: u64,
    /// The time at which the device is next free.
    next_free: CachePadded<AtomicU64>,
}

const MEBIBYTE: u128 = 1 << 20;

impl Model {
    /// Returns a device with these delays, or `None` if all of them are zero.
    pub fn new(timing: &Timing) -> Option<Self> {
        if timing.is_none() {
            return None;
        }
        let clock = Ticks::calibrated();
        let ticks = |time: Duration| {
            let nanos = time.as_nanos().next_multiple_of(STEP.as_nanos());
            clock.of_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        };
        let mebibyte = timing.bandwidth.map_or(0, |bandwidth| {
            let nanos = MEBIBYTE * 1_000_000_000 / u128::from(bandwidth.get());
            clock.of_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).max(1)
        });
        Some(Self {
            clock,
            write: ticks(timing.write),
            barrier: ticks(timing.barrier),
            read: ticks(timing.read),
            mebibyte,
            next_free: CachePadded::new(AtomicU64::new(0)),
        })
    }

    /// Delays a caller that has written `bytes`.
    pub fn wrote(&self, bytes: u64) {
        let now = self.clock.now();
        let begin = self.reserve(now, bytes);
        self.clock.wait_until(begin.max(now + self.write));
    }

    /// Reserves the device for `bytes`; returns when the reservation ends.
    fn reserve(&self, now: u64, bytes: u64) -> u64 {
        if self.mebibyte == 0 {
            return now;
        }
        let ticks =
            u64::try_from((u128::from(bytes) * u128::from(self.mebibyte)).div_ceil(MEBIBYTE)).unwrap_or(u64::MAX);
        let mut next = self.next_free.load(Ordering::Relaxed);
        loop {
            let end = next.max(now).saturating_add(ticks);
            match self.next_free.compare_exchange_weak(next, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return end,
                Err(current) => next = current,
            }
        }
    }

    /// Delays a caller that waits until what it has written is durable.
    pub fn barrier(&self) {
        self.pause(self.barrier);
    }

    /// Delays a caller that reads.
    pub fn read(&self) {
        self.pause(self.read);
    }

    fn pause(&self, ticks: u64) {
        if ticks > 0 {
            self.clock.wait_until(self.clock.now() + ticks);
        }
    }
}

#[cfg(all(test, not(any(duramen_loom, duramen_machine))))]
mod tests {
    use super::*;
    use duramen_sync::clock::Instant;

    fn took(work: impl FnOnce()) -> Duration {
        let begin = Instant::now();
        work();
        begin.elapsed()
    }

    #[test]
    fn no_times_need_no_model() {
        assert!(Model::new(&Timing::default()).is_none());
    }

    #[test]
    fn each_operation_takes_its_time() {
        let us = Duration::from_micros;
        let timing = Timing { write: us(300), barrier: us(200), read: us(100), bandwidth: None };
        let model = Model::new(&timing).unwrap();
        for (work, least) in
            [(took(|| model.wrote(64)), 300), (took(|| model.barrier()), 200), (took(|| model.read()), 100)]
        {
            assert!(work >= us(least * 9 / 10), "{work:?} instead of {least} us");
        }
    }

    #[test]
    fn writers_share_the_bandwidth() {
        // 1 MiB in 10 ms: four writers of a quarter each take as long together as one of all.
        let timing = Timing { bandwidth: NonZeroU64::new(100 << 20), ..Timing::NONE };
        let model = duramen_sync::Arc::new(Model::new(&timing).unwrap());
        let all = took(|| {
            let writers: Vec<_> = (0..4)
                .map(|_| {
                    let model = duramen_sync::Arc::clone(&model);
                    duramen_sync::thread::spawn("writer", move || model.wrote(1 << 18)).unwrap()
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
        });
        assert!(all >= Duration::from_millis(9), "{all:?}");
    }
}
