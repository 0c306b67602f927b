//! Virtual time.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in virtual time, or a length of it, in picoseconds. Whole numbers give the same results
/// on every host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time(u64);

impl Time {
    /// The start of a run; no time at all.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const NEVER: Self = Self(u64::MAX);

    /// From picoseconds.
    pub const fn from_picos(picos: u64) -> Self {
        Self(picos)
    }

    /// From nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos.saturating_mul(1000))
    }

    /// In picoseconds.
    pub const fn picos(self) -> u64 {
        self.0
    }

    /// In nanoseconds, rounded down.
    pub const fn nanos(self) -> u64 {
        self.0 / 1000
    }

    /// This much less, or zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns so many times this length.
    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }
}

impl From<Duration> for Time {
    fn from(duration: Duration) -> Self {
        Self::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Add for Time {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Time {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}
