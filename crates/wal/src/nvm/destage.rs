//! What a log does otherwise whose buffer is a ring in persistent memory: see [`crate::nvm::ring`].

use std::time::Duration;

use duramen_io::Disk;
use duramen_sync::Arc;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::cost;
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Backoff, thread};
use duramen_types::{Gsn, Lsn};

use crate::buffer::ring::Ring;
use crate::error::{Result, WalError};
use crate::format::record::{Identity, MAX_RECORD_BYTES, NewRecord, checksum_instructions, encode};
use crate::group_commit::flush::Flusher;
use crate::group_commit::queue::is_settled;
use crate::nvm::passive::Passive;
use crate::nvm::ring::NvmRing;
use crate::options::{LogDevice, Sealing, WalOptions};
use crate::segments::files::SegmentFiles;
use crate::segments::pool::Segments;
use crate::segments::recover::Found;
use crate::stream::daemon::FailOnPanic;
use crate::stream::inner::{Buffer, Shared, filled, last_block, limits};

/// Records up to this size are made on the stack.
const STACK_BYTES: usize = 512;

/// How long a waiter gives others to fill in and to fence what is before its own record. Then it drains processors, or, if
/// a record is still being filled in, whose thread has been descheduled, sleeps so long.
const PATIENCE: Duration = Duration::from_micros(60);

/// When nothing has been hardened for so long that could be, the daemon drains processors. Most transactions commit sooner.
const STALLED: Duration = Duration::from_micros(100);

/// What the daemon saw when it looked last.
#[derive(Debug, Default)]
pub(crate) struct Stalled {
    /// Everything below was hardened ...
    at: AtomicU64,
    /// ... since this time, in nanoseconds, and nothing else.
    since: AtomicU64,
}

/// The ring for a new log, if it is to have one.
pub(crate) fn new_buffer(options: &WalOptions, identity: &Identity) -> Result<Option<Buffer>> {
    let LogDevice::Nvm(nvm) = &options.device else { return Ok(None) };
    let ring = NvmRing::open(&nvm.of_log(identity.log)?, options.ring_bytes, options.generation, false)?;
    let found = ring.find(identity, 0)?;
    Ok(Some(Buffer { ring: Ring::persistent(ring), found }))
}

/// The ring for the log that has been found, if it is to have one; what it holds of the log is in the segments when this
/// returns.
pub(crate) fn find_buffer(
    disk: &Arc<dyn Disk>,
    options: &WalOptions,
    identity: &Identity,
    found: &mut Found,
) -> Result<Option<Buffer>> {
    let LogDevice::Nvm(nvm) = &options.device else {
        if found.ring != 0 {
            return Err(WalError::RingNeeded { location: disk.location(), number: found.ring });
        }
        return Ok(None);
    };
    let nvm = NvmRing::open(&nvm.of_log(identity.log)?, options.ring_bytes, options.generation, found.ring != 0)?;
    let in_ring = nvm.find(identity, found.ring)?;
    if let Some((from, to)) = in_ring.tail {
        // It is brought to the segments again if the power goes off soon, and must not be less then.
        nvm.settle(from, to);
    }
    let ring = Ring::persistent(nvm);
    if let Some((from, to)) = in_ring.tail
        && from < to
    {
        let limits = limits(options, in_ring.number);
        let segments = Segments::new(Arc::clone(&found.home), Arc::clone(&found.files), found.start, limits);
        // What is in the ring has been acknowledged: it must find room.
        segments.lift_limit(true);
        let writer = Flusher::new(Arc::clone(&found.files), Sealing::AtInsertion);
        let last = found.files.span().map(|(_, last)| last);
        writer.write(&ring, &segments, from.get(), to.get())?;
        // A segment that is made takes the place of a spare with its number.
        found.spares.retain(|spare| Some(*spare) <= last || !found.files.has(*spare));
    }
    Ok(Some(Buffer { ring, found: in_ring }))
}

/// Has the ring hold nothing, before the log is cut somewhere in the segments: what the ring holds now would otherwise be
/// brought there again, should the cutting be interrupted.
pub(crate) fn empty_ring(buffer: &mut Buffer, files: &SegmentFiles) -> Result<()> {
    if let (Some((from, to)), Some(nvm)) = (buffer.found.tail, buffer.ring.nvm())
        && from < to
    {
        nvm.take(&files.identity, &buffer.found, to, &last_block(files, to)?);
        buffer.found.tail = Some((to, to));
    }
    Ok(())
}

/// Refuses a ring that does not reach as far as the segments do: it is not as it was left.
pub(crate) fn check_end(buffer: &Buffer, end: Lsn) -> Result<()> {
    match (buffer.found.tail, buffer.ring.nvm()) {
        (Some((_, to)), Some(nvm)) if to != end => Err(nvm.refuse(format!(
            "the log ends at {to} there, and at {end} in the segments: the ring has lost hardened records"
        ))),
        _ => Ok(()),
    }
}

impl Shared {
    /// Fills a record in, durably. The space is the caller's alone, and there is room.
    pub(crate) fn fill_in_ring(&self, nvm: &NvmRing, lsn: Lsn, bytes: usize, record: &NewRecord<'_>, gsn: Gsn) {
        let hardened = self.space.hardened();
        let make = |space: &mut [u8]| {
            encode::<MAX_RECORD_BYTES>(space, record, lsn, gsn, hardened, |_, _| 0);
            self.flusher.inserted(space, lsn);
        };
        if !nvm.streams() {
            // SAFETY: the insertion design has handed `[lsn, lsn + bytes)` to this thread alone, and whoever de-stages reads
            // nothing behind what has been released.
            let space = unsafe { self.ring.bytes_mut(lsn, bytes) };
            make(space);
            filled(record, space);
            nvm.stored(lsn, bytes);
            return;
        }
        cost::read(record.payload.as_ptr(), record.payload.len());
        cost::work(checksum_instructions(bytes));
        if bytes <= STACK_BYTES {
            let mut space = [0; STACK_BYTES];
            make(&mut space[..bytes]);
            self.stream(nvm, lsn, gsn, &space[..bytes]);
        } else {
            let mut space = vec![0; bytes];
            make(&mut space);
            self.stream(nvm, lsn, gsn, &space);
        }
    }

    fn stream(&self, nvm: &NvmRing, lsn: Lsn, gsn: Gsn, record: &[u8]) {
        let passive = self.passive.as_ref().expect("records are streamed where caches are volatile");
        let writing = passive.begin(gsn, self.files.identity.log);
        nvm.put(lsn, record);
        passive.end(writing, nvm.region());
    }

    /// Makes what the calling thread has inserted durable, if that is left to it: it commits, or is about to wait for
    /// something else than the log.
    pub(crate) fn fence(&self) {
        if let (Some(passive), Some(nvm)) = (self.passive_alone(), self.ring.nvm()) {
            passive.fence(|_| nvm.region());
        }
    }

    /// The threads' cells, if they are about this log only. Several logs are hardened together: see [`crate::several::commit_round`].
    fn passive_alone(&self) -> Option<&Passive> {
        self.passive.as_deref().filter(|_| self.space.clock().is_none())
    }

    /// Looks how much of what is released is hardened.
    fn advance(&self) {
        self.insertion.collect(&self.space);
        if let Some(passive) = self.passive_alone()
            && let Some(released) = self.space.released_in_order()
            && released > self.space.hardened()
        {
            self.space.set_hardened(passive.bound(released));
        }
    }

    /// Makes all that is released hardened, though threads that have inserted it have not seen to that.
    fn drain(&self) {
        let streamed = self.ring.nvm().filter(|nvm| nvm.streams());
        if let (Some(passive), Some(nvm)) = (&self.passive, streamed) {
            let released = || {
                self.insertion.collect(&self.space);
                self.space.released_in_order().unwrap_or(Lsn::ZERO)
            };
            let drained = if self.passive_alone().is_some() {
                passive.drain([nvm.region()], released)
            } else {
                passive.drain_one(nvm.region(), released)
            };
            self.space.set_hardened(drained.unwrap_or(Lsn::ZERO));
        }
    }

    /// Hardens what is released of one of several logs that are hardened together, without the others, of which it learns only
    /// when somebody commits.
    pub(crate) fn harden_alone(&self) {
        if self.passive.is_some() && self.passive_alone().is_none() {
            self.insertion.collect(&self.space);
            if self.space.hardened() < self.space.released() {
                self.drain();
            }
        }
    }

    /// Blocks until waiting for `lsn` is over, which is when all records before it have been filled in and are durable.
    pub(crate) fn wait_in_ring(&self, lsn: Lsn) {
        self.fence();
        let mut backoff = Backoff::new();
        let mut began = None;
        while !self.is_settled_in_ring(lsn) {
            if backoff.is_spinning() {
                backoff.snooze();
            } else if began.get_or_insert_with(Instant::now).elapsed() < PATIENCE {
                thread::yield_now();
            } else if self.passive.is_some() && self.space.released() > lsn {
                self.drain();
            } else {
                reach(Probe::FlushWithoutProgress);
                thread::sleep(PATIENCE);
            }
        }
    }

    /// Whether waiting for `lsn` is over, in a log with a ring in persistent memory, once what has been put off is looked at.
    pub(crate) fn is_settled_in_ring(&self, lsn: Lsn) -> bool {
        if self.ring.nvm().is_none() {
            return false;
        }
        if !is_settled(&self.space, lsn) {
            self.advance();
        }
        is_settled(&self.space, lsn)
    }

    /// Does what the daemon has to do for those who wait without a thread, and de-stages if the ring is half full or somebody
    /// waits for room; returns whether that was anything.
    pub(crate) fn look_after_ring(&self) -> bool {
        let before = self.space.hardened();
        self.advance();
        if self.passive_alone().is_some() && self.has_stalled() {
            self.drain();
        }
        let progress = self.space.hardened() > before;
        let half = self.options.ring_bytes as u64 / 2;
        let full = self.space.end().get() - self.space.durable().get() >= half;
        if !full && self.space.waiting_for_room() == 0 {
            return progress;
        }
        if self.space.hardened().get() - self.space.durable().get() < half / 2 {
            self.drain();
        }
        let _turn = self.destaging.lock();
        self.write_out() || progress
    }

    /// Whether nobody has hardened anything for long, though there is something to harden. For the daemon.
    fn has_stalled(&self) -> bool {
        let hardened = self.space.hardened();
        let now = Instant::now().nanos();
        let (at, since) = (self.stalled.at.load(Ordering::Relaxed), self.stalled.since.load(Ordering::Relaxed));
        if at == hardened.get() && hardened < self.space.released() {
            return u128::from(now.saturating_sub(since)) >= STALLED.as_nanos();
        }
        self.stalled.at.store(hardened.get(), Ordering::Relaxed);
        self.stalled.since.store(now, Ordering::Relaxed);
        false
    }

    /// Writes everything that is hardened by now to the segments; returns up to where they hold the log. The same as the
    /// durable position, in a log whose buffer is not persistent.
    ///
    /// # Errors
    /// What stopped the log.
    pub(crate) fn destage(&self) -> Result<Lsn> {
        if self.ring.nvm().is_some() {
            self.advance();
            let hardened = self.space.hardened();
            let turn = self.destaging.lock();
            while self.space.durable() < hardened && !self.space.has_failed() {
                let _guard = FailOnPanic(self);
                self.write_out();
            }
            drop(turn);
            if self.space.durable() < hardened {
                return Err(self.refusal());
            }
        }
        Ok(self.space.durable())
    }

    /// Gives the ring up, if all that is hardened has been de-staged. The log has been stopped.
    pub(crate) fn give_up_ring(&self) -> Result<()> {
        if let Some(nvm) = self.ring.nvm()
            && self.space.hardened() == self.space.durable()
            // Somebody may have been told of a commit while the log was being closed.
            && self.space.released() == self.space.durable()
        {
            nvm.set_clean();
            self.segments.leave_ring()?;
        }
        Ok(())
    }
}
