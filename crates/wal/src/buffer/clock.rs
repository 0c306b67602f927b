//! The clock of one of several logs: which GSN belongs to which of its LSNs.
//!
//! A log has a Lamport clock (Aether, section 7.3; Scalable logging through NVM, section 3.1): each
//! record gets a GSN that is higher than that of the record before it in the log, of the page that
//! it changes, and of the transaction's record before. Here time in a log passes with its bytes: a
//! record's GSN is its LSN plus the log's *offset*. The offset grows when the log has to be brought
//! forward, and never shrinks, so the records of a log are in the order of their GSNs. A database
//! with one log needs no clock: its offset is zero for ever.
//!
//! Who wants the clock brought forward raises the *floor* ([`Clock::raise`]), without any lock. The
//! offset follows when space is next handed out ([`Clock::pass`]), in the turn of whoever does that
//! and after the log's end has been moved. So there are only two cases for somebody who raises the
//! floor and then looks at the end of the log: the end includes a record, or the record's GSN is
//! not below the floor. Both sides have a fence between their two steps, or each could miss the
//! other's.
//!
//! Where clocks are brought forward for every commit, logs can share one floor
//! ([`Clock::with_common`]): then one word is raised instead of one for each log, and looked at by
//! everybody. Both do: the log's own floor is for what concerns it alone.
//!
//! A thread learns the GSN of its record when it fills it in, which may be long after; offsets that
//! have been replaced meanwhile are kept until everything before them is released.

use std::collections::VecDeque;

use duramen_sync::atomic::{AtomicU64, Ordering, fence};
use duramen_sync::{Arc, Backoff, CachePadded, Mutex};
use duramen_types::{Gsn, Lsn};

/// Leads that are kept before it is looked whether some are not needed any more.
const KEPT: usize = 64;

/// A floor that several clocks share.
pub(crate) type CommonFloor = Arc<CachePadded<AtomicU64>>;

/// The clock of a log.
#[derive(Debug)]
pub(crate) struct Clock {
    /// No record that gets its space from now on has a lower GSN.
    floor: CachePadded<AtomicU64>,
    /// Nor in any of the logs that share this.
    common: Option<CommonFloor>,
    offset: CachePadded<GsnOffset>,
    /// Earlier offsets, and from which LSN on each was in force.
    earlier: Mutex<VecDeque<(u64, u64)>>,
}

/// The offset in force. Written by the thread whose turn it is; readers look at the version before
/// and after.
#[derive(Debug)]
struct GsnOffset {
    /// Odd while the others are changed.
    version: AtomicU64,
    from: AtomicU64,
    offset: AtomicU64,
}

impl Clock {
    /// For a log that ends at `end`, where no record may have a GSN below `floor`.
    pub(crate) fn new(end: Lsn, floor: Gsn) -> Self {
        let offset = floor.get().saturating_sub(end.get());
        Self {
            floor: CachePadded::new(AtomicU64::new(floor.get())),
            common: None,
            offset: CachePadded::new(GsnOffset {
                version: AtomicU64::new(0),
                from: AtomicU64::new(0),
                offset: AtomicU64::new(offset),
            }),
            earlier: Mutex::new(VecDeque::new()),
        }
    }

    /// The same with a floor that it shares with other clocks.
    pub(crate) fn with_common(self, common: Option<CommonFloor>) -> Self {
        Self { common, ..self }
    }

    /// As [`Clock::raise`], of all logs that share their floor with this one; returns whether it
    /// does that.
    pub(crate) fn raise_all(&self, floor: Gsn) -> bool {
        let Some(common) = &self.common else { return false };
        if common.load(Ordering::Relaxed) < floor.get() {
            common.fetch_max(floor.get(), Ordering::AcqRel);
        }
        fence(Ordering::SeqCst);
        true
    }

    fn common(&self, ordering: Ordering) -> u64 {
        self.common.as_ref().map_or(0, |common| common.load(ordering))
    }

    /// Sees to it that space handed out from now on gets no GSN below `floor`. A look at the log's
    /// end after this finds everything that got a lower one.
    pub(crate) fn raise(&self, floor: Gsn) {
        if self.floor.load(Ordering::Relaxed) < floor.get() {
            self.floor.fetch_max(floor.get(), Ordering::AcqRel);
        }
        fence(Ordering::SeqCst);
    }

    /// Takes note of space that has been handed out at `lsn`; everything below `released` has been
    /// filled in. It is the caller's turn, and the end of the log has been moved.
    #[inline]
    pub(crate) fn pass(&self, lsn: Lsn, released: impl FnOnce() -> Lsn) {
        fence(Ordering::SeqCst);
        let floor = self.floor.load(Ordering::Relaxed).max(self.common(Ordering::Relaxed));
        // Only who has the turn writes it.
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

    /// The offset in force and from where on.
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

    /// The GSN of the record at `lsn`, which the caller has got and not released yet.
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

    /// The lowest GSN that a record may get from now on, in a log that ends at `end`.
    pub(crate) fn now(&self, end: Lsn) -> Gsn {
        let (_, offset) = self.offset();
        let floor = self.floor.load(Ordering::Acquire).max(self.common(Ordering::Acquire));
        Gsn::new((end.get() + offset).max(floor))
    }
}

#[cfg(test)]
#[path = "clock_tests.rs"]
mod tests;
