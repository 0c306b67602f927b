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
//! hand out. The thread reads up to where each log has got its GSNs ([`Space::timed`]) and the
//! clock there. It puts the boundary a distance ahead of the highest clock, raises the floor, and
//! reads the ends of the logs, which may include a record that gets its GSN just now. If more bytes
//! than the distance lie in between, a record of the old epoch may have passed the boundary, and
//! the thread ends the next epoch, too, with twice the distance. The ends read last are the
//! *tails*: every record up to the boundary lies before them (see the header of `clock.rs`).
//!
//! [`Space::timed`]: crate::buffer::positions::Space::timed

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
    /// The right to raise the floor, and the distance of the next boundary. Its holder never waits.
    ahead: CachePadded<Mutex<u64>>,
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
    /// Begins the first epoch, in which no record gets a GSN below `floor`.
    pub(crate) fn new(floor: Gsn) -> Self {
        Self { floor: CachePadded::new(AtomicU64::new(floor.get())), ahead: CachePadded::new(Mutex::new(AHEAD)) }
    }

    #[inline]
    pub(crate) fn floor(&self, ordering: Ordering) -> u64 {
        self.floor.load(ordering)
    }

    /// Ends the present epoch. `timed` yields, for each log, the position below which all records
    /// have their GSNs, and the lowest GSN that a record there may get; `ends` yields its end.
    pub(crate) fn end<T: Iterator<Item = (Lsn, Gsn)>, E: Iterator<Item = Lsn>>(
        &self,
        mut timed: impl FnMut() -> T,
        mut ends: impl FnMut() -> E,
    ) -> EpochEnd {
        let mut ahead = self.ahead.lock();
        loop {
            let mut highest = self.floor(Ordering::Relaxed);
            let position_of = |(position, now): (Lsn, Gsn)| {
                highest = highest.max(now.get());
                position
            };
            let begun: Vec<_> = timed().map(position_of).collect();
            let boundary = highest + *ahead;
            if !planted!(EpochNotEnded) {
                self.floor.store(boundary + 1, Ordering::Release);
            }
            // Pairs with the fence in `Clock::pass`.
            fence(Ordering::SeqCst);
            let tails: Vec<_> = ends().collect();
            let passed: u64 = tails.iter().zip(&begun).map(|(tail, begun)| tail.get() - begun.get()).sum();
            if passed < *ahead {
                if passed < *ahead / 8 {
                    *ahead = AHEAD.max(*ahead / 2);
                }
                return EpochEnd { boundary: Gsn::new(boundary), begun, tails };
            }
            *ahead *= 2;
        }
    }
}

#[cfg(test)]
#[path = "epochs_tests.rs"]
mod tests;
