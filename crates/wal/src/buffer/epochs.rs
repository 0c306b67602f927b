//! Epochs: the order of records in different logs that no clock carries.
//!
//! The clocks of several logs ([`crate::buffer::clock`]) share a floor, which divides time into
//! *epochs*. A thread ends an epoch by raising the floor above a GSN that no record has reached,
//! the *boundary*. A record whose space is handed out afterwards gets a GSN above the boundary.
//! Records whose space was handed out before keep theirs. So if one record is inserted after
//! another, in any two logs, it is not in an earlier epoch, whatever their GSNs. The records up to
//! a boundary are therefore a consistent prefix of all logs, and commits need not advance any
//! clock. (Silo orders transactions by epochs in the same way: Tu et al., SOSP 2013.)
//!
//! # Where the boundary is
//! A record gets its GSN from the record before it in its log, from a record in another log that it
//! follows, or from the floor. So the highest GSN grows by at most the bytes that all logs together
//! have handed out: no record is above the floor plus the bytes handed out since the floor was
//! raised. The thread reads the ends of the logs, puts the boundary a distance ahead of that limit,
//! raises the floor, and reads the ends again. If more bytes than the distance have been handed out
//! in between, a record of the old epoch may have passed the boundary. The thread then ends the
//! next epoch, too, with twice the distance. The ends that it has read last are the *tails*: every
//! record up to the boundary lies before them (see the header of `clock.rs`).

use duramen_sync::atomic::{AtomicU64, Ordering, fence};
use duramen_sync::{CachePadded, Mutex};
use duramen_types::{Gsn, Lsn, planted};

/// The smallest distance of a boundary from the limit, in bytes.
const AHEAD: u64 = if cfg!(duramen_loom) { 16 } else { 4 << 10 };

/// The floor that the clocks of several logs share.
#[derive(Debug)]
pub(crate) struct Epochs {
    /// No record that gets its space from now on has a lower GSN.
    floor: CachePadded<AtomicU64>,
    /// The right to raise the floor. A leaf: its holder waits for nothing.
    last: CachePadded<Mutex<Last>>,
}

/// The end of the last epoch.
#[derive(Debug)]
struct Last {
    /// The sum of the ends of all logs, read before the floor was raised.
    bytes: u64,
    ahead: u64,
}

/// The end of an epoch. Empty if the log of its sync record has failed.
#[derive(Debug, Default)]
pub(crate) struct EpochEnd {
    /// Every record that gets its space from now on has a higher GSN.
    pub(crate) boundary: Gsn,
    /// For each log, a position before all records above the boundary.
    pub(crate) begun: Vec<Lsn>,
    /// For each log, a position behind all records up to the boundary.
    pub(crate) tails: Vec<Lsn>,
}

impl Epochs {
    /// Begins the first epoch, in which no record gets a GSN below `floor`, for logs whose ends sum
    /// up to `bytes`.
    pub(crate) fn new(floor: Gsn, bytes: u64) -> Self {
        Self {
            floor: CachePadded::new(AtomicU64::new(floor.get())),
            last: CachePadded::new(Mutex::new(Last { bytes, ahead: AHEAD })),
        }
    }

    /// Returns the floor.
    #[inline]
    pub(crate) fn floor(&self, ordering: Ordering) -> u64 {
        self.floor.load(ordering)
    }

    /// Ends the present epoch. `ends` yields the present end of each log.
    pub(crate) fn end<I: Iterator<Item = Lsn>>(&self, mut ends: impl FnMut() -> I) -> EpochEnd {
        let sum = |ends: &[Lsn]| ends.iter().map(|end| end.get()).sum::<u64>();
        let mut end = EpochEnd::default();
        let mut last = self.last.lock();
        loop {
            end.begun.clear();
            end.begun.extend(ends());
            let begun = sum(&end.begun);
            let boundary = self.floor.load(Ordering::Relaxed) + (begun - last.bytes) + last.ahead;
            end.boundary = Gsn::new(boundary);
            if !planted!(EpochNotEnded) {
                self.floor.store(boundary + 1, Ordering::Release);
            }
            // Pairs with the fence in `Clock::pass`.
            fence(Ordering::SeqCst);
            end.tails.clear();
            end.tails.extend(ends());
            last.bytes = begun;
            let passed = sum(&end.tails) - begun;
            if passed < last.ahead {
                if passed < last.ahead / 8 {
                    last.ahead = AHEAD.max(last.ahead / 2);
                }
                return end;
            }
            last.ahead *= 2;
        }
    }
}

#[cfg(test)]
#[path = "epochs_tests.rs"]
mod tests;
