//! Time.

use std::time::Duration;

use crate::OnceLock;

/// A point on the monotonic clock, in nanoseconds since an arbitrary start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Instant(u64);

impl Instant {
    /// Returns the present.
    pub fn now() -> Self {
        Self(now_nanos())
    }

    /// Returns the nanoseconds since the clock's arbitrary start.
    pub fn nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since `self`; zero if `self` is in the future.
    pub fn elapsed(self) -> Duration {
        Self::now().since(self)
    }

    /// Returns the time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns this point moved forward.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }
}

fn now_nanos() -> u64 {
    #[cfg(duramen_machine)]
    if let Some(now) = duramen_machine::shared::now() {
        return now.nanos();
    }
    nanos(libc::CLOCK_MONOTONIC)
}

/// Returns the processor time that the calling thread has used.
pub fn thread_cpu_time() -> Duration {
    #[cfg(duramen_machine)]
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

/// Returns the wall-clock time in microseconds since 1970, for stamps that people read; never used
/// for ordering.
pub fn wall_micros() -> u64 {
    #[cfg(duramen_machine)]
    if let Some(now) = duramen_machine::shared::now() {
        return now.nanos() / 1000;
    }
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// A fine clock for delays of a few nanoseconds: the processor's cycle counter where there is one.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    /// Ticks in 2^20 nanoseconds.
    rate: u64,
}

/// Nanoseconds to which [`Ticks::rate`] refers.
const RATE_NANOS: u64 = 1 << 20;

impl Ticks {
    /// Returns the clock. The first call measures its rate, which takes some milliseconds.
    pub fn calibrated() -> Self {
        static NATIVE: OnceLock<u64> = OnceLock::new();
        let rate = if cfg!(duramen_machine) { RATE_NANOS } else { *NATIVE.get_or_init(measure_rate) };
        Self { rate }
    }

    /// Returns the present, in ticks.
    #[inline]
    pub fn now(&self) -> u64 {
        ticks()
    }

    /// Returns the ticks in `nanos`, rounded up.
    pub fn of_nanos(&self, nanos: u64) -> u64 {
        u64::try_from((u128::from(nanos) * u128::from(self.rate)).div_ceil(u128::from(RATE_NANOS))).unwrap_or(u64::MAX)
    }

    /// Keeps the processor until `end`, in ticks. Models have no time.
    #[inline]
    pub fn wait_until(&self, end: u64) {
        #[cfg(duramen_machine)]
        duramen_machine::cost::busy(duramen_machine::Time::from_nanos(end.saturating_sub(ticks())));
        #[cfg(not(any(duramen_loom, duramen_machine)))]
        while ticks() < end {
            std::hint::spin_loop();
        }
        #[cfg(duramen_loom)]
        let _ = end;
    }
}

fn measure_rate() -> u64 {
    const LENGTH: u64 = 2_000_000;
    // The shortest of a few measurements, in which the thread has not lost its processor at either
    // end.
    let one = || {
        let (nanos, ticks_then) = (now_nanos(), ticks());
        while now_nanos() - nanos < LENGTH {}
        let (passed, ticked) = (now_nanos() - nanos, ticks() - ticks_then);
        (passed, u64::try_from(u128::from(ticked) * u128::from(RATE_NANOS) / u128::from(passed)).unwrap_or(RATE_NANOS))
    };
    let rate = [one(), one(), one()].into_iter().min().map_or(RATE_NANOS, |(_, rate)| rate);
    rate.max(1)
}

/// Returns a number that grows with time, in units of [`Ticks`]: it shows what was earlier, and is
/// cheaper than [`Instant::now`]. The counters of two processors may differ by some ticks.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(any(duramen_loom, duramen_machine))))]
    // SAFETY: every processor of this architecture has the instruction.
    let now = unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(all(target_arch = "aarch64", not(any(duramen_loom, duramen_machine))))]
    let now = {
        let now: u64;
        // SAFETY: reads a register that programs may read, and changes nothing.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) now, options(nomem, nostack)) };
        now
    };
    #[cfg(any(duramen_loom, duramen_machine, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let now = now_nanos();
    now
}

#[cfg(all(test, not(any(duramen_loom, duramen_machine))))]
mod tests {
    use super::*;

    #[test]
    fn a_delay_takes_its_time() {
        let ticks = Ticks::calibrated();
        let begin = Instant::now();
        ticks.wait_until(ticks.now() + ticks.of_nanos(2_000_000));
        let took = begin.elapsed();
        assert!(took >= Duration::from_micros(1_900), "{took:?}");
        assert!(ticks.of_nanos(1) >= 1 && ticks.of_nanos(0) == 0);
    }
}
