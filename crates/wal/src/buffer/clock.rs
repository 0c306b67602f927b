//! The clock of one of several logs: it maps the log's LSNs to GSNs.
//!
//! A log has a Lamport clock (Aether, section 7.3; Scalable logging through NVM, section 3.1): each
//! record gets a GSN that is higher than the GSN of the record before it in the log, of the page
//! that it changes, and of the transaction's previous record. Here the time of a log advances with
//! its bytes: a record's GSN is its LSN plus the log's *GSN offset*. The offset grows when the
//! clock must be advanced, and never shrinks, so the GSNs of a log's records ascend. A database
//! with one log needs no clock: its offset is always zero.
//!
//! A thread advances the clock by raising the *floor* ([`Clock::raise`]), without any lock. The
//! offset follows when space is next handed out ([`Clock::pass`]): the holder of the insertion lock
//! updates it after it has moved the log's end. So a thread that raises the floor and then reads
//! the end of the log finds one of two cases for each record: the end includes the record, or the
//! record's GSN is not below the floor. Both sides execute a fence between their two steps; without
//! the fences each could miss the other's first step.
//!
//! # Epochs
//! The clocks of several logs share another floor, which divides time into *epochs*. A thread ends
//! an epoch ([`end_epoch`]) by raising this floor above a GSN that no record has reached, the
//! *boundary*. A record whose space is handed out afterwards gets a GSN above the boundary. Records
//! whose space was handed out before may get up to the boundary: it is chosen so far ahead that
//! they do not reach it, which the thread checks. So if one record is inserted after another, in
//! any two logs, it is not in an earlier epoch, whatever their GSNs. The records up to a boundary
//! are therefore a consistent prefix of all logs, and commits need not advance any clock. (Silo
//! orders transactions by epochs in the same way: Tu et al., SOSP 2013.)
//!
//! Why no record of the old epoch reaches the boundary: the shared floor does not change between
//! the moment at which the thread reads it and the moment at which it replaces it. So a record gets
//! its GSN from a record before it in its log, from one in another log that it follows, or from a
//! floor that was there before. All these GSNs grow from the highest clock by at most the bytes
//! that all logs together have handed out meanwhile.
//!
//! A thread learns the GSN of its record when it fills the record in, which may be long after it
//! acquired the space. So offsets that have been replaced meanwhile are kept until everything
//! before them is released.

use std::collections::VecDeque;

use duramen_sync::atomic::{AtomicU64, Ordering, fence};
use duramen_sync::{Arc, Backoff, CachePadded, Mutex};
use duramen_types::{Gsn, Lsn, planted};

/// Earlier offsets that are kept before some are checked for removal.
const KEPT: usize = 64;

/// How far the boundary of an epoch lies ahead of all records, in bytes. If more is inserted while
/// the epoch ends, its end is repeated with twice the distance.
const AHEAD: u64 = if cfg!(duramen_loom) { 16 } else { 4 << 10 };

/// A floor that several clocks share.
pub(crate) type CommonFloor = Arc<CachePadded<AtomicU64>>;

/// The clock of a log.
#[derive(Debug)]
pub(crate) struct Clock {
    /// No record that gets its space from now on has a lower GSN.
    floor: CachePadded<AtomicU64>,
    /// The same bound, for all logs that share this floor.
    common: CommonFloor,
    offset: CachePadded<GsnOffset>,
    /// Earlier offsets, each with the LSN from which it was in force.
    earlier: Mutex<VecDeque<(u64, u64)>>,
}

/// The offset in force. The holder of the insertion lock writes it; a reader compares the versions
/// before and after.
#[derive(Debug)]
struct GsnOffset {
    /// Odd while the other fields are being changed.
    version: AtomicU64,
    from: AtomicU64,
    offset: AtomicU64,
}

impl Clock {
    /// Makes the clock of a log that ends at `end` and in which no record may get a GSN below
    /// `floor`. It shares `common` with the clocks of the other logs.
    pub(crate) fn new(end: Lsn, floor: Gsn, common: CommonFloor) -> Self {
        let offset = floor.get().saturating_sub(end.get());
        Self {
            floor: CachePadded::new(AtomicU64::new(floor.get())),
            common,
            offset: CachePadded::new(GsnOffset {
                version: AtomicU64::new(0),
                from: AtomicU64::new(0),
                offset: AtomicU64::new(offset),
            }),
            earlier: Mutex::new(VecDeque::new()),
        }
    }

    /// Ensures that space handed out from now on gets no GSN below `floor`. A read of the log's end
    /// after this call covers every record with a lower GSN.
    pub(crate) fn raise(&self, floor: Gsn) {
        if self.floor.load(Ordering::Relaxed) < floor.get() {
            self.floor.fetch_max(floor.get(), Ordering::AcqRel);
        }
        fence(Ordering::SeqCst);
    }

    /// Updates the offset after space has been handed out at `lsn`; everything below `released` has
    /// been filled in. The caller holds the insertion lock and has moved the end of the log.
    #[inline]
    pub(crate) fn pass(&self, lsn: Lsn, released: impl FnOnce() -> Lsn) {
        fence(Ordering::SeqCst);
        let floor = self.floor.load(Ordering::Relaxed).max(self.common.load(Ordering::Relaxed));
        // Only the holder of the insertion lock writes the offset.
        let offset = self.offset.offset.load(Ordering::Relaxed);
        if lsn.get() + offset < floor {
            self.leap(lsn, floor - lsn.get(), released());
        }
    }

    #[cold]
    fn leap(&self, lsn: Lsn, offset: u64, released: Lsn) {
        let now = &*self.offset;
        {
            let mut earlier = self.earlier.lock();
            earlier.push_back((now.from.load(Ordering::Relaxed), now.offset.load(Ordering::Relaxed)));
            if earlier.len() > KEPT {
                while earlier.get(1).is_some_and(|(from, _)| *from <= released.get()) {
                    earlier.pop_front();
                }
            }
        }
        let version = now.version.load(Ordering::Relaxed);
        now.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        now.from.store(lsn.get(), Ordering::Relaxed);
        now.offset.store(offset, Ordering::Relaxed);
        now.version.store(version + 2, Ordering::Release);
    }

    /// Returns the first LSN for which the offset in force applies, and the offset.
    #[inline]
    fn offset(&self) -> (u64, u64) {
        let now = &*self.offset;
        let mut backoff = Backoff::new();
        loop {
            let version = now.version.load(Ordering::Acquire);
            let offset = (now.from.load(Ordering::Relaxed), now.offset.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && now.version.load(Ordering::Relaxed) == version {
                return offset;
            }
            backoff.snooze();
        }
    }

    /// Returns the GSN of the record at `lsn`, whose space the caller has acquired and not released
    /// yet.
    #[inline]
    pub(crate) fn gsn(&self, lsn: Lsn) -> Gsn {
        let (from, offset) = self.offset();
        if lsn.get() >= from { Gsn::new(lsn.get() + offset) } else { self.earlier_gsn(lsn) }
    }

    #[cold]
    fn earlier_gsn(&self, lsn: Lsn) -> Gsn {
        let earlier = self.earlier.lock();
        let offset = earlier.iter().rev().find(|(from, _)| *from <= lsn.get()).map(|(_, offset)| offset);
        Gsn::new(lsn.get() + offset.expect("offsets are kept until what is before them has been released"))
    }

    /// Returns the lowest GSN that a record may get from now on, in a log that ends at `end`.
    pub(crate) fn now(&self, end: Lsn) -> Gsn {
        let (_, offset) = self.offset();
        let floor = self.floor.load(Ordering::Acquire).max(self.common.load(Ordering::Acquire));
        Gsn::new((end.get() + offset).max(floor))
    }
}

/// Ends the epoch of all logs; returns its boundary. `logs` yields the clock of each log, which
/// share a floor, and a function that returns the log's present end. Records inserted later have
/// GSNs above the boundary. For each log, all records up to the boundary lie before its place in
/// `tails`, and all others behind its place in `begun`.
pub(crate) fn end_epoch<'a, E: Fn() -> Lsn>(
    logs: impl Iterator<Item = (&'a Clock, E)> + Clone,
    begun: &mut Vec<Lsn>,
    tails: &mut Vec<Lsn>,
) -> Gsn {
    let (first, _) = logs.clone().next().expect("there is a log");
    let sum = |ends: &[Lsn]| ends.iter().map(|end| end.get()).sum::<u64>();
    let mut ahead = AHEAD;
    loop {
        let floor = first.common.load(Ordering::Acquire);
        begun.clear();
        begun.extend(logs.clone().map(|(_, end)| end()));
        let highest = logs.clone().zip(&*begun).map(|((clock, _), end)| clock.now(*end).get()).max();
        let boundary = highest.expect("there is a log").max(floor) + ahead;
        if planted!(EpochNotEnded) {
            tails.clone_from(begun);
            return Gsn::new(boundary);
        }
        if first.common.compare_exchange(floor, boundary + 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            continue;
        }
        // Pairs with the fence in `pass`.
        fence(Ordering::SeqCst);
        tails.clear();
        tails.extend(logs.clone().map(|(_, end)| end()));
        if sum(tails) - sum(begun) < ahead {
            return Gsn::new(boundary);
        }
        ahead *= 2;
    }
}

#[cfg(test)]
#[path = "clock_tests.rs"]
mod tests;
