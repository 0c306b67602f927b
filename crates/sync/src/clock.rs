//! Time.

use std::time::Duration;

/// A point on the monotonic clock, in nanoseconds since an arbitrary start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Instant(u64);

impl Instant {
    /// The present.
    pub fn now() -> Self {
        Self(now_nanos())
    }

    /// Nanoseconds since the clock's arbitrary start.
    pub fn nanos(self) -> u64 {
        self.0
    }

    /// Time since `self`; zero when `self` lies ahead.
    pub fn elapsed(self) -> Duration {
        Self::now().since(self)
    }

    /// Time from `earlier` to `self`; zero when `earlier` is the later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This point moved forward.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }
}

fn now_nanos() -> u64 {
    #[cfg(machine)]
    if let Some(now) = duramen_machine::shared::now() {
        return now.nanos();
    }
    nanos(libc::CLOCK_MONOTONIC)
}

/// Time that the calling thread has had a processor for.
pub fn thread_cpu_time() -> Duration {
    #[cfg(machine)]
    if duramen_machine::is_simulated() {
        return Duration::from_nanos(duramen_machine::threads::processor_time().nanos());
    }
    Duration::from_nanos(nanos(libc::CLOCK_THREAD_CPUTIME_ID))
}

fn nanos(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable timespec.
    let rc = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(rc, 0, "these clocks are always there");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Wall-clock time in microseconds since 1970, for stamps that people read; never used for ordering.
pub fn wall_micros() -> u64 {
    #[cfg(machine)]
    if let Some(now) = duramen_machine::shared::now() {
        return now.nanos() / 1000;
    }
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
