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
//! All logs share a second floor ([`Epochs`]), which orders records of different logs. Both kinds
//! of floor apply: the log's own floor serves what concerns this log alone.
//!
//! A thread learns the GSN of its record when it fills the record in, perhaps long after it
//! acquired the space. So replaced offsets are kept until everything before them is released.

use std::collections::VecDeque;

use duramen_sync::atomic::{AtomicU64, Ordering, fence};
use duramen_sync::{Arc, Backoff, CachePadded, Mutex};
use duramen_types::{Gsn, Lsn};

use crate::buffer::epochs::Epochs;

/// Earlier offsets that are kept before some are checked for removal.
const KEPT: usize = 64;

#[derive(Debug)]
pub(crate) struct Clock {
    /// No record that gets its space from now on has a lower GSN.
    floor: CachePadded<AtomicU64>,
    /// The floor of all logs.
    epochs: Arc<Epochs>,
    offset: CachePadded<GsnOffset>,
    /// Earlier offsets, each with the LSN from which it was in force.
    earlier: Mutex<VecDeque<(u64, u64)>>,
}

/// The offset, written with the insertion lock held; readers compare versions before and after.
#[derive(Debug)]
struct GsnOffset {
    /// Odd while the other fields are being changed.
    version: AtomicU64,
    from: AtomicU64,
    offset: AtomicU64,
}

impl Clock {
    /// Makes the clock of a log that ends at `end` and in which no record may get a GSN below
    /// `floor`. It shares `epochs` with the clocks of the other logs.
    pub(crate) fn new(end: Lsn, floor: Gsn, epochs: Arc<Epochs>) -> Self {
        let offset = floor.get().saturating_sub(end.get());
        Self {
            floor: CachePadded::new(AtomicU64::new(floor.get())),
            epochs,
            offset: CachePadded::new(GsnOffset {
                version: AtomicU64::new(0),
                from: AtomicU64::new(0),
                offset: AtomicU64::new(offset),
            }),
            earlier: Mutex::new(VecDeque::new()),
        }
    }

    pub(crate) fn epochs(&self) -> &Epochs {
        &self.epochs
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
        let floor = self.floor.load(Ordering::Relaxed).max(self.epochs.floor(Ordering::Relaxed));
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

    /// Returns the GSN of the record at `lsn`, which the caller has acquired and not released.
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
        let floor = self.floor.load(Ordering::Acquire).max(self.epochs.floor(Ordering::Acquire));
        Gsn::new((end.get() + offset).max(floor))
    }
}

#[cfg(test)]
#[path = "clock_tests.rs"]
mod tests;
