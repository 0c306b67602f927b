//! When checkpoints are due.

use std::time::Duration;

/// The log that recovery is assumed to read and redo in a second, in bytes. `docs/recovery.md` has
/// measurements; two threads are mostly faster than this.
const RECOVERED_PER_SECOND: u64 = 64 << 20;

/// How far apart checkpoints are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// This many bytes of log lie between two of them.
    Every(u64),
    /// A crash leaves about this many bytes of log to recover from, at most.
    Leaves(u64),
}

impl Pace {
    /// Returns the pace at which recovery takes at most about `target`, and finds at most `most`
    /// bytes of log.
    pub(crate) fn within(target: Duration, most: u64) -> Self {
        let bytes = target.as_secs_f64() * RECOVERED_PER_SECOND as f64;
        Self::Leaves((bytes as u64).min(most))
    }

    /// Returns the usual number of bytes of log between two checkpoints.
    ///
    /// A checkpoint writes the pages that have been dirty since before the last one. So a crash
    /// just before the next checkpoint leaves the log of two intervals.
    pub(crate) fn interval(self) -> u64 {
        match self {
            Self::Every(bytes) => bytes,
            Self::Leaves(bytes) => bytes / 2,
        }
    }

    /// Returns the bytes by which the busiest of `logs` logs grows until the next checkpoint is
    /// due. Recovery would read the last `left` bytes of it now, and it grew by `growth` bytes
    /// during the last checkpoint. The other logs may grow as much.
    pub(crate) fn bytes_to_next(self, left: u64, growth: u64, logs: u64) -> u64 {
        let per_log = self.interval().div_ceil(logs);
        let Self::Leaves(_) = self else { return per_log };
        // The log that recovery would read grows until the next checkpoint has ended, too.
        let wanted = per_log.saturating_mul(2).saturating_sub(left).saturating_sub(growth);
        // A disk that is too slow for the load must not be kept busy with checkpoints alone.
        wanted.max(per_log / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_leaves_what_the_target_allows() {
        let pace = Pace::within(Duration::from_secs(1), 1 << 30);
        assert_eq!((pace, pace.interval()), (Pace::Leaves(64 << 20), 32 << 20));
        let due = |left: u64, growth: u64, logs| pace.bytes_to_next(left << 20, growth << 20, logs) >> 20;
        assert_eq!(due(0, 0, 1), 64, "nothing is left to redo: two intervals");
        assert_eq!(due(30, 20, 1), 14, "as much less as a checkpoint lasts");
        assert_eq!(due(300, 100, 1), 8, "a quarter of an interval, whatever is left");
        assert_eq!(due(0, 0, 4), 16, "four logs grow as much together");
        assert_eq!(Pace::Every(5).bytes_to_next(8, 2, 2), 3);
    }

    #[test]
    fn extreme_paces_overflow_nothing() {
        let within = |target| Pace::within(target, u64::MAX);
        for pace in [within(Duration::MAX), Pace::Every(u64::MAX), within(Duration::ZERO)] {
            pace.bytes_to_next(1 << 39, u64::MAX, 1);
        }
    }
}
