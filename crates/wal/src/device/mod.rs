//! The log device, which makes the records in the log buffer durable.
//!
//! A [`Device`] writes the buffer of one log ([`crate::stream`]) to the segments. With the device
//! `file` the buffer is ordinary memory, and a flush to the segments hardens records. With `nvm` it
//! is a [ring](nvm) in persistent memory and records are hardened without a flush; the segments are
//! written when it is full (*de-staging*). Space is reused only when the segments hold it.
//!
//! One thread at a time writes to the segments: it holds the lock of the [`Flusher`]. With `file`
//! the commit queue ensures that no thread waits for this lock. Where a flush seals records, the
//! log calls [`fill_unsealed`](flush::fill_unsealed) in place of [`Device::fill`].

pub(crate) mod flush;
pub(crate) mod nvm;

use std::time::Duration;

use duramen_pmem::Region;
use duramen_sync::clock::Instant;
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, Backoff, cost, thread};
use duramen_types::{Gsn, LogId, Lsn};

use crate::buffer::positions::{Hardening, Space};
use crate::buffer::ring::Ring;
use crate::device::flush::{Flusher, fill_unsealed};
use crate::device::nvm::open::FoundRing;
use crate::device::nvm::passive::{Passive, Stalled};
use crate::device::nvm::ring::NvmRing;
use crate::error::{Result, WalError};
use crate::format::header::{Layout, MAX_RECORD_BYTES};
use crate::format::record::{NewRecord, checksum_instructions, encode};
use crate::group_commit::progress::Progress;
use crate::insert::AnyInsertion;
use crate::options::{GroupCommit, Sealing, WalOptions};
use crate::segments::files::SegmentFiles;

/// Records up to this size, in bytes, are built on the stack before they are streamed to a ring.
const STACK_BYTES: usize = 512;

/// How long a waiter lets other threads fill in and fence the records before its own. Then it
/// drains processors, or sleeps for this long if a descheduled thread is still filling in a record.
const DRAIN_AFTER: Duration = Duration::from_micros(60);

/// The end of one log in memory, as its device accesses it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail<'a> {
    pub(crate) ring: &'a Ring,
    pub(crate) space: &'a Space,
    pub(crate) insertion: &'a AnyInsertion,
}

impl Tail<'_> {
    /// Updates `Space::released`, if the insertion design leaves that to readers.
    pub(crate) fn collect(&self) {
        self.insertion.collect(self.space);
    }
}

/// Why a flush takes place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// To serve requests, and insertions that wait for space.
    Requests,
    /// To let readers find in the segments what is hardened.
    Readers,
}

/// What a flush has to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    /// Whether the segments have to be written.
    pub(crate) is_due: bool,
    /// Whether the preparation has already made progress.
    pub(crate) progress: bool,
}

/// The device of one log: the segments and, with the device `nvm`, the ring in front of them.
#[derive(Debug)]
pub(crate) struct Device {
    /// Writes the buffer to the segments.
    pub(crate) writer: Flusher,
    log: LogId,
    ring: Option<NvmRing>,
    /// What each thread has made durable in the ring, if the threads fence their own records: where
    /// caches are volatile, or if the log shares commit rounds with others.
    pub(crate) passive: Option<Arc<Passive>>,
    /// Whether `passive` concerns this log only, not several ([`crate::several::commit_rounds`]).
    only: bool,
    stalled: Stalled,
}

impl Device {
    /// Creates the device of the log in `files`, which continues at `end`, and the buffer, which
    /// holds the last block of the log up to `end`: in the ring that has been `found`, if any.
    /// `passive` comes from [`Passive::of`]. `only` says whether this is a database's only log.
    pub(crate) fn start(
        options: &WalOptions,
        files: &Arc<SegmentFiles>,
        end: Lsn,
        found: Option<FoundRing>,
        passive: Option<Arc<Passive>>,
        only: bool,
    ) -> Result<(Ring, Self)> {
        let block = files.last_block(end)?;
        let (buffer, ring, sealing) = match found {
            None => (in_memory(options.ring_bytes, &block, end)?, None, options.sealing),
            Some(FoundRing { ring, found }) => {
                ring.take(&files.identity, &found, end, &block);
                // A released record counts as hardened, so it has to be sealed at insertion.
                (ring.buffer(), Some(ring), Sealing::AtInsertion)
            }
        };
        let (writer, log) = (Flusher::new(Arc::clone(files), sealing), files.identity.log);
        Ok((buffer, Self { writer, log, ring, passive, only, stalled: Stalled::default() }))
    }

    /// Returns how `Space` learns what is hardened.
    pub(crate) fn hardening(&self) -> Hardening {
        match &self.ring {
            None => Hardening::Flushed,
            Some(ring) if ring.streams => Hardening::Told,
            Some(_) => Hardening::Released,
        }
    }

    /// Returns the limits that decide when the daemon and the committers flush: those `chosen` by
    /// the user, if committers wait for flushes.
    pub(crate) fn group_commit(&self, chosen: GroupCommit) -> GroupCommit {
        let Some(ring) = &self.ring else { return chosen };
        // No committer waits for a group. The limit of bytes serves de-staging.
        let bytes = if ring.stays { ring.ring_bytes } else { ring.ring_bytes / 2 };
        GroupCommit { transactions: 1, bytes: bytes as usize, time: Duration::ZERO }
    }

    /// Fills `record` in at `lsn`; the log is durable up to `durable`. The caller may then release
    /// it: with `file` it is in the buffer, with `nvm` it is durable; behind volatile caches it
    /// becomes durable with the next fence of this thread.
    ///
    /// # Safety
    /// The space of the record has been allocated to the caller alone and has not been released,
    /// and there is room for it.
    // Not inlined: its buffer would enlarge the stack frame of callers that do not need it.
    #[inline(never)]
    pub(crate) unsafe fn fill(
        &self,
        tail: Tail<'_>,
        lsn: Lsn,
        layout: Layout,
        record: &NewRecord<'_>,
        gsn: Gsn,
        durable: Lsn,
    ) {
        let hardened = if self.ring.is_some() { tail.space.hardened() } else { durable };
        let Some(ring) = self.ring.as_ref().filter(|ring| ring.streams) else {
            // SAFETY: the caller guarantees the contract; de-staging reads only what is released.
            let space =
                unsafe { fill_unsealed::<MAX_RECORD_BYTES>(tail.ring, lsn, layout, record, gsn, Some(hardened)) };
            self.writer.inserted(space, lsn);
            self.ring.iter().for_each(|ring| ring.stored(lsn, space.len()));
            return;
        };
        let bytes = layout.record_bytes(record.payload.len());
        cost::read(record.payload.as_ptr(), record.payload.len());
        cost::work(checksum_instructions(bytes));
        let stream = |space: &mut [u8]| {
            encode::<MAX_RECORD_BYTES>(space, layout, record, lsn, gsn, Some(hardened));
            self.writer.inserted(space, lsn);
            let passive = self.passive.as_ref().expect("records are streamed where caches are volatile");
            let writing = passive.begin(gsn, self.log);
            ring.put(lsn, space);
            passive.end(writing, &ring.region);
        };
        if bytes <= STACK_BYTES { stream(&mut [0; STACK_BYTES][..bytes]) } else { stream(&mut vec![0; bytes]) }
    }

    /// Returns the ring and what each thread has made durable in it, unless other logs share that.
    fn passive_alone(&self) -> Option<(&NvmRing, &Passive)> {
        self.ring.as_ref().zip(self.passive.as_deref()).filter(|_| self.only)
    }

    /// Makes the calling thread's records durable, if the threads do that themselves, so that no
    /// commit waits for them: at a commit, and before a wait for anything other than the log.
    pub(crate) fn fence(&self) {
        if let Some((ring, passive)) = self.passive_alone() {
            passive.fence(|_| &ring.region);
        }
    }

    /// Updates `Space::hardened`, where readers have to do that.
    pub(crate) fn look(&self, tail: Tail<'_>) {
        if self.ring.is_none() {
            return;
        }
        tail.collect();
        if let Some((_, passive)) = self.passive_alone()
            && let Some(released) = tail.space.released_in_order()
            && released > tail.space.hardened()
        {
            tail.space.set_hardened(passive.bound(released));
        }
    }

    /// Returns whether waiting for `lsn` is over, after a look at the device if necessary.
    pub(crate) fn is_resolved(&self, tail: Tail<'_>, lsn: Lsn) -> bool {
        tail.space.is_resolved(lsn) || {
            self.look(tail);
            tail.space.is_resolved(lsn)
        }
    }

    /// With `nvm`, blocks until waiting for `lsn` is over and returns true: the record and all
    /// before it are hardened, or the log has failed. With `file`, which needs a flush, returns
    /// false.
    pub(crate) fn wait(&self, tail: Tail<'_>, lsn: Lsn) -> bool {
        if self.ring.is_none() {
            return false;
        }
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

    /// Hardens the released part of one log among several with shared commit rounds, without the
    /// other logs. Otherwise such a log learns what is hardened only when a thread commits.
    pub(crate) fn harden_released(&self, tail: Tail<'_>) {
        if self.passive.is_some() && !self.only {
            tail.collect();
            if tail.space.hardened() < tail.space.released() {
                self.drain(tail);
            }
        }
    }

    /// Hardens everything released, even if the threads that inserted it have not fenced it.
    fn drain(&self, tail: Tail<'_>) {
        let streamed = self.ring.as_ref().filter(|ring| ring.streams);
        let Some((ring, passive)) = streamed.zip(self.passive.as_deref()) else { return };
        let released = || {
            tail.collect();
            tail.space.released_in_order().unwrap_or(Lsn::ZERO)
        };
        let region = &*ring.region;
        let drained = if self.only { passive.drain([region], released) } else { passive.drain_one(region, released) };
        tail.space.set_hardened(drained.unwrap_or(Lsn::ZERO));
    }

    /// Does the work for `purpose` up to the write to the segments. Requests without a waiting
    /// thread progress as far as that needs no write.
    pub(crate) fn prepare_flush(&self, tail: Tail<'_>, purpose: Purpose) -> Prepared {
        let Some(ring) = self.ring.as_ref().filter(|_| purpose == Purpose::Requests) else {
            return Prepared { is_due: true, progress: false };
        };
        let space = tail.space;
        let before = space.hardened();
        self.look(tail);
        if self.passive_alone().is_some() && self.stalled.look(space.hardened(), space.released()) {
            self.drain(tail);
        }
        let progress = space.hardened() > before;
        let half = ring.ring_bytes / 2;
        let full = !ring.stays && space.end().get().saturating_sub(space.durable().get()) >= half;
        let is_due = full || space.waiting_for_room() > 0;
        if is_due && space.hardened().get().saturating_sub(space.durable().get()) < half / 2 {
            self.drain(tail);
        }
        Prepared { is_due, progress }
    }

    /// Returns the position below which everything can be written to the segments.
    pub(crate) fn writable(&self, tail: Tail<'_>) -> Lsn {
        // Records that other threads have streamed can be read once they are durable.
        if self.ring.is_some() { tail.space.hardened() } else { tail.space.released() }
    }

    /// Notes that the segments hold everything below `to`, before the space is reused.
    pub(crate) fn note_written(&self, to: Lsn) {
        self.ring.iter().for_each(|ring| ring.set_destaged(to));
    }

    /// Releases the ring, if there is one and the segments hold everything, and so form the log
    /// alone; returns whether they need not name the ring any more. The log has been stopped.
    pub(crate) fn give_up(&self, tail: Tail<'_>) -> bool {
        let Some(ring) = &self.ring else { return false };
        let durable = tail.space.durable();
        // A commit may have been acknowledged while the log was being closed.
        let is_destaged = tail.space.hardened() == durable && tail.space.released() == durable;
        if is_destaged {
            ring.set_clean();
        }
        is_destaged
    }

    /// Assigns the ring to this generation; see [`WalOptions::generation`].
    pub(crate) fn set_generation(&self, generation: u64) {
        self.ring.iter().for_each(|ring| ring.set_generation(generation));
    }

    /// Returns whether the buffer keeps the log until it is recycled, and segments stay unwritten.
    pub(crate) fn stays(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.stays)
    }

    /// Records that a log that stays in its buffer begins at `lsn`.
    pub(crate) fn forget_below(&self, lsn: Lsn) {
        self.ring.iter().for_each(|ring| ring.forget_below(lsn));
    }

    /// Returns the persistent memory of the buffer.
    pub(crate) fn region(&self) -> Option<&Region> {
        self.ring.as_ref().map(|ring| &*ring.region)
    }
}

/// Creates a buffer in ordinary memory, with the beginning of the last block of the log.
fn in_memory(bytes: usize, block: &[u8], end: Lsn) -> Result<Ring> {
    let ring = Ring::new(bytes).map_err(|error| WalError::System {
        what: format!("allocate {bytes} bytes of memory for the log buffer"),
        reason: format!("{error}; choose a smaller buffer"),
    })?;
    let start = Lsn::new(end.get() - block.len() as u64);
    // SAFETY: no other thread has the ring yet.
    unsafe { ring.bytes_mut(start, block.len()) }.copy_from_slice(block);
    Ok(ring)
}
