//! The log device `nvm`: the buffer is a ring in persistent memory, which is itself durable.
//! [`ring`] describes its contents, and [`passive`] determines what is hardened where caches are
//! volatile.

pub(crate) mod open;
pub(crate) mod passive;
pub(crate) mod ring;

use std::time::Duration;

use duramen_pmem::Region;
use duramen_sync::clock::Instant;
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, Backoff, cost, thread};
use duramen_types::{Gsn, LogId, Lsn};

use crate::buffer::positions::Hardening;
use crate::buffer::ring::Ring;
use crate::device::flush::Flusher;
use crate::device::nvm::open::FoundRing;
use crate::device::nvm::passive::{Passive, Stalled};
use crate::device::nvm::ring::NvmRing;
use crate::device::{Device, Prepared, Tail};
use crate::format::header::{Layout, MAX_RECORD_BYTES};
use crate::format::record::{NewRecord, checksum_instructions, encode};
use crate::group_commit::progress::Progress;
use crate::options::{GroupCommit, Sealing};
use crate::segments::files::SegmentFiles;

/// Records up to this size, in bytes, are built on the stack.
const STACK_BYTES: usize = 512;

/// How long a waiter lets other threads fill in and fence the records before its own. After that it
/// drains processors. If a record is still being filled in, because its thread has been
/// descheduled, the waiter sleeps for this long instead.
const DRAIN_AFTER: Duration = Duration::from_micros(60);

/// A ring in use, and the segments behind it.
#[derive(Debug)]
pub(crate) struct NvmDevice {
    ring: NvmRing,
    log: LogId,
    writer: Flusher,
    /// Present where caches are volatile, or if the log shares commit rounds with others.
    passive: Option<Arc<Passive>>,
    /// Whether the threads' cells, if there are any, concern this log only. Several logs share
    /// commit rounds: see [`crate::several::commit_rounds`].
    only: bool,
    stalled: Stalled,
    /// Whether the log stays in the ring.
    stays: bool,
}

impl NvmDevice {
    /// Makes the ring that has been `found` the buffer of the log in `files`, which ends at `end`.
    /// `block` is the part of the log's last block before `end`. The other arguments are as for
    /// [`crate::device::start`].
    pub(crate) fn take(
        found: FoundRing,
        files: &Arc<SegmentFiles>,
        block: &[u8],
        end: Lsn,
        passive: Option<Arc<Passive>>,
        only: bool,
    ) -> (Ring, Self) {
        let FoundRing { ring, found, stays } = found;
        ring.take(&files.identity, &found, end, block);
        let buffer = ring.buffer();
        let device = Self {
            ring,
            log: files.identity.log,
            // A released record counts as hardened, so it has to be sealed at insertion.
            writer: Flusher::new(Arc::clone(files), Sealing::AtInsertion),
            passive,
            only,
            stalled: Stalled::default(),
            stays,
        };
        (buffer, device)
    }

    fn stream(&self, lsn: Lsn, gsn: Gsn, record: &[u8]) {
        let passive = self.passive.as_ref().expect("records are streamed where caches are volatile");
        let writing = passive.begin(gsn, self.log);
        self.ring.put(lsn, record);
        passive.end(writing, self.ring.region());
    }

    fn passive_alone(&self) -> Option<&Passive> {
        self.passive.as_deref().filter(|_| self.only)
    }

    /// Hardens everything that is released, even if the threads that inserted it have not fenced
    /// it.
    fn drain(&self, tail: Tail<'_>) {
        let Some(passive) = self.passive.as_deref().filter(|_| self.ring.streams()) else { return };
        let released = || {
            tail.collect();
            tail.space.released_in_order().unwrap_or(Lsn::ZERO)
        };
        let region = self.ring.region();
        let drained = if self.only { passive.drain([region], released) } else { passive.drain_one(region, released) };
        tail.space.set_hardened(drained.unwrap_or(Lsn::ZERO));
    }

    /// Returns whether waiting for `lsn` is over, after an update of the hardened position if
    /// necessary.
    fn is_resolved(&self, tail: Tail<'_>, lsn: Lsn) -> bool {
        tail.space.is_resolved(lsn) || {
            self.look(tail);
            tail.space.is_resolved(lsn)
        }
    }
}

impl Device for NvmDevice {
    fn writer(&self) -> &Flusher {
        &self.writer
    }

    fn hardening(&self) -> Hardening {
        if self.ring.streams() { Hardening::Told } else { Hardening::Released }
    }

    fn group_commit(&self, _chosen: GroupCommit, ring_bytes: usize) -> GroupCommit {
        // No committer waits for a group. The limit of bytes serves de-staging.
        let bytes = if self.stays { ring_bytes } else { ring_bytes / 2 };
        GroupCommit { transactions: 1, bytes, time: Duration::ZERO }
    }

    unsafe fn fill(&self, tail: Tail<'_>, lsn: Lsn, layout: Layout, record: &NewRecord<'_>, gsn: Gsn, _durable: Lsn) {
        let (bytes, hardened) = (layout.record_bytes(record.payload.len()), tail.space.hardened());
        if !self.ring.streams() {
            // SAFETY: the caller guarantees the contract of `fill`, and a thread that de-stages
            // reads nothing behind the released end.
            unsafe { self.writer.fill(tail, lsn, layout, record, gsn, hardened) };
            self.ring.stored(lsn, bytes);
            return;
        }
        cost::read(record.payload.as_ptr(), record.payload.len());
        cost::work(checksum_instructions(bytes));
        let make = |space: &mut [u8]| {
            encode::<MAX_RECORD_BYTES>(space, layout, record, lsn, gsn, hardened);
            self.writer.inserted(space, lsn);
        };
        if bytes <= STACK_BYTES {
            let mut space = [0; STACK_BYTES];
            make(&mut space[..bytes]);
            self.stream(lsn, gsn, &space[..bytes]);
        } else {
            let mut space = vec![0; bytes];
            make(&mut space);
            self.stream(lsn, gsn, &space);
        }
    }

    fn fence(&self) {
        if let Some(passive) = self.passive_alone() {
            passive.fence(|_| self.ring.region());
        }
    }

    fn look(&self, tail: Tail<'_>) {
        tail.collect();
        if let Some(passive) = self.passive_alone()
            && let Some(released) = tail.space.released_in_order()
            && released > tail.space.hardened()
        {
            tail.space.set_hardened(passive.bound(released));
        }
    }

    fn wait(&self, tail: Tail<'_>, lsn: Lsn) -> bool {
        self.fence();
        let mut backoff = Backoff::new();
        let mut began = None;
        while !self.is_resolved(tail, lsn) {
            if backoff.is_spinning() {
                backoff.snooze();
            } else if began.get_or_insert_with(Instant::now).elapsed() < DRAIN_AFTER {
                thread::yield_now();
            } else if self.passive.is_some() && tail.space.released() > lsn {
                self.drain(tail);
            } else {
                reach(Probe::FlushWithoutProgress);
                thread::sleep(DRAIN_AFTER);
            }
        }
        true
    }

    fn harden_released(&self, tail: Tail<'_>) {
        if self.passive.is_some() && !self.only {
            tail.collect();
            if tail.space.hardened() < tail.space.released() {
                self.drain(tail);
            }
        }
    }

    fn prepare_flush(&self, tail: Tail<'_>) -> Prepared {
        let space = tail.space;
        let before = space.hardened();
        self.look(tail);
        if self.passive_alone().is_some() && self.stalled.look(space.hardened(), space.released()) {
            self.drain(tail);
        }
        let progress = space.hardened() > before;
        let half = self.ring.bytes() / 2;
        let full = !self.stays && space.end().get().saturating_sub(space.durable().get()) >= half;
        let is_due = full || space.waiting_for_room() > 0;
        if is_due && space.hardened().get().saturating_sub(space.durable().get()) < half / 2 {
            self.drain(tail);
        }
        Prepared { is_due, progress }
    }

    fn writable(&self, tail: Tail<'_>) -> Lsn {
        // Records that other threads have streamed can be read once they are durable.
        tail.space.hardened()
    }

    fn stays(&self) -> bool {
        self.stays
    }

    fn forget_below(&self, lsn: Lsn) {
        self.ring.forget_below(lsn);
    }

    fn note_written(&self, to: Lsn) {
        self.ring.set_destaged(to);
    }

    fn give_up(&self, tail: Tail<'_>) -> bool {
        let durable = tail.space.durable();
        // A commit may have been acknowledged while the log was being closed.
        let is_destaged = tail.space.hardened() == durable && tail.space.released() == durable;
        if is_destaged {
            self.ring.set_clean();
        }
        is_destaged
    }

    fn set_generation(&self, generation: u64) {
        self.ring.set_generation(generation);
    }

    fn shortfall(&self) -> Option<String> {
        self.ring.shortfall()
    }

    fn passive(&self) -> Option<&Arc<Passive>> {
        self.passive.as_ref()
    }

    fn region(&self) -> Option<&Region> {
        Some(self.ring.region())
    }
}
