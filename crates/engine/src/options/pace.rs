//! When checkpoints are due.

use std::time::Duration;

use duramen_types::Gsn;

/// The log that recovery is assumed to read and redo in a second, in bytes. `docs/recovery.md` has
/// measurements; two threads are mostly faster than this.
const RECOVERED_PER_SECOND: u64 = 192 << 20;

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

    /// Returns the position in `logs` logs at which the next checkpoint is due. Recovery would
    /// begin at `redo` now; the last checkpoint lasted while the log grew from `begun` to `end`.
    ///
    /// GSNs grow with the bytes of the busiest log; the others may grow as much.
    pub(crate) fn next_due(self, redo: Gsn, begun: Gsn, end: Gsn, logs: u64) -> Gsn {
        let per_log = self.interval().div_ceil(logs);
        let Self::Leaves(_) = self else { return Gsn::new(end.get().saturating_add(per_log)) };
        // The log that recovery would read grows until the next checkpoint has ended, too.
        let growth = end.get().saturating_sub(begun.get());
        let wanted = redo.get().saturating_add(per_log.saturating_mul(2)).saturating_sub(growth);
        // A disk that is too slow for the load must not be kept busy with checkpoints alone.
        Gsn::new(wanted.max(end.get().saturating_add(per_log / 4)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_leaves_what_the_target_allows() {
        let pace = Pace::within(Duration::from_secs(1), 1 << 30);
        assert_eq!((pace, pace.interval()), (Pace::Leaves(192 << 20), 96 << 20));
        let due = |redo: u64, begun: u64, end: u64, logs| {
            let at = |mib| Gsn::new(mib << 20);
            pace.next_due(at(redo), at(begun), at(end), logs).get() >> 20
        };
        assert_eq!(due(1000, 1000, 1000, 1), 1192, "nothing is left to redo: two intervals");
        assert_eq!(due(1000, 1100, 1120, 1), 1172, "as much less as a checkpoint lasts");
        assert_eq!(due(1000, 1200, 1300, 1), 1324, "a quarter of an interval, whatever is left");
        assert_eq!(due(1000, 1000, 1000, 4), 1048, "four logs grow as much together");
        assert_eq!(Pace::Every(5).next_due(Gsn::new(1), Gsn::new(7), Gsn::new(9), 2), Gsn::new(12));
    }

    #[test]
    fn extreme_paces_overflow_nothing() {
        let within = |target| Pace::within(target, u64::MAX);
        for pace in [within(Duration::MAX), Pace::Every(u64::MAX), within(Duration::ZERO)] {
            let end = Gsn::new(1 << 40);
            assert!(pace.next_due(Gsn::new(1 << 39), end, end, 1) >= end);
        }
    }
}
