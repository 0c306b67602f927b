//! What the users of a log and its background threads share.

use std::cell::Cell;
use std::time::Duration;

use duramen_io::AlignedBuf;
use duramen_pmem::Domain;
use duramen_sync::cost::{self, Category};
use duramen_sync::{Arc, Mutex, OnceLock, thread};
use duramen_types::planted::{Bug, is_on};
use duramen_types::{EarlyCrc, Gsn, Lsn, PageId, Place, TxnId};

use crate::buffer::clock::{Clock, CommonFloor};
use crate::buffer::positions::{Hardening, Space};
use crate::buffer::ring::Ring;
use crate::error::{Result, WalError};
use crate::format::record::{
    HEADER_BYTES, MAX_RECORD_BYTES, NewRecord, SMALL_PAYLOAD, checksum_instructions, encode, record_bytes,
};
use crate::format::segment::BLOCK;
use crate::group_commit::flush::Flusher;
use crate::group_commit::queue::{CommitQueue, is_settled};
use crate::group_commit::requests::Ask;
use crate::group_commit::work_signal::Bell;
use crate::insert::{AnyInsertion, Fill, Shape};
use crate::nvm::destage::Stalled;
use crate::nvm::passive::Passive;
use crate::nvm::ring::Found as InRing;
use crate::options::{GroupCommit, LogDevice, Sealing, WalOptions};
use crate::segments::archive::{Archive, ArchiveInUse, Archiver};
use crate::segments::files::{OpenFiles, SegmentFiles};
use crate::segments::pool::{Limits, Segments};
use crate::stream::daemon::FailOnPanic;

/// An open log.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: WalOptions,
    pub(crate) files: Arc<SegmentFiles>,
    pub(crate) segments: Segments,
    pub(crate) space: Space,
    pub(crate) insertion: AnyInsertion,
    pub(crate) queue: CommitQueue,
    pub(crate) flusher: Flusher,
    pub(crate) daemon: Arc<Bell>,
    pub(crate) teller: Arc<Bell>,
    pub(crate) keeper: Bell,
    /// Where the log ended when it was opened.
    pub(crate) opened_at: Lsn,
    pub(crate) max_payload: usize,
    quick: Quick,
    pub(crate) ring: Ring,
    /// The right to de-stage a ring in persistent memory. In other logs it is the commit queue that says who flushes.
    pub(crate) destaging: Mutex<()>,
    /// With a ring in persistent memory and volatile caches, or if it is hardened together with other logs.
    pub(crate) passive: Option<Arc<Passive>>,
    /// What the daemon saw last of a ring in persistent memory.
    pub(crate) stalled: Stalled,
    /// If the log is archived.
    pub(crate) archiver: Option<Archiver>,
    failure: OnceLock<WalError>,
}

/// Pause after the system has refused to open a segment that is to be written to.
const REFUSED: Duration = Duration::from_millis(1);

/// Threads that may share rings without a fence for each record.
const MAX_THREADS: usize = 1024;

/// What the streams of a log have in common. A log with one stream needs no clock: there the LSN of a record is its GSN.
#[derive(Debug)]
pub(crate) struct Common {
    /// What threads know to be durable, if that is left to them.
    passive: Option<Arc<Passive>>,
    /// If the log is archived.
    archive: Option<Arc<ArchiveInUse>>,
    /// Of several streams: no record from now on gets a GSN below the first. Their clocks share a floor if the streams are
    /// hardened together.
    clocks: Option<(Gsn, Option<CommonFloor>)>,
}

impl Common {
    /// For streams with these options, whose further records may not get GSNs below `floor`.
    pub(crate) fn new(options: &WalOptions, floor: Gsn) -> Result<Self> {
        let are_several = options.logs > 1;
        let passive = match &options.device {
            LogDevice::Nvm(nvm)
                if nvm.domain == Domain::VolatileCache || are_several && options.shared_synchronizations =>
            {
                Some(Arc::new(Passive::new(MAX_THREADS, nvm.drain)))
            }
            _ => None,
        };
        let archive = options.archive.as_ref().map(Archive::take).transpose()?;
        let clocks = are_several.then(|| (floor, passive.as_ref().map(|_| CommonFloor::default())));
        Ok(Self { passive, archive, clocks })
    }

    /// The clock of a stream that ends at `end`.
    fn clock(&self, end: Lsn) -> Option<Clock> {
        self.clocks.as_ref().map(|(floor, common)| Clock::new(end, *floor).with_common(common.clone()))
    }
}

/// A log buffer in persistent memory, and what was found there.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) ring: Ring,
    pub(crate) found: InRing,
}

/// The limits that segments are made by, if the end of the log is in the ring with this number.
pub(crate) fn limits(options: &WalOptions, ring: u64) -> Limits {
    Limits {
        max_bytes: options.max_bytes,
        spare_segments: options.spare_segments,
        ring_bytes: options.ring_bytes as u64,
        ring,
    }
}

/// The beginning of the block in which the log ends, for the buffer: the next flush writes that block again.
pub(crate) fn last_block(files: &SegmentFiles, end: Lsn) -> Result<Vec<u8>> {
    let start = end.get() / BLOCK * BLOCK;
    let mut block = AlignedBuf::zeroed(BLOCK as usize);
    let len = (end.get() - start) as usize;
    if len > 0 {
        files.read(start, &mut block)?;
    }
    Ok(block[..len].to_vec())
}

impl Shared {
    /// A log in `files` that is to go on at `end`, with a `buffer` in persistent memory if it is to have one.
    pub(crate) fn new(
        home: Arc<OpenFiles>,
        options: WalOptions,
        files: Arc<SegmentFiles>,
        start: Lsn,
        end: Lsn,
        common: &Common,
        buffer: Option<Buffer>,
    ) -> Result<Self> {
        let clock = common.clock(end);
        let archive = common.archive.clone();
        let archiver = archive.map(|archive| Archiver::open(archive, &files, start, end)).transpose()?;
        let limits = limits(&options, buffer.as_ref().map_or(0, |buffer| buffer.found.number));
        let is_persistent = buffer.is_some();
        let ring = match buffer {
            Some(Buffer { ring, found }) => {
                if let Some(nvm) = ring.nvm() {
                    nvm.take(&files.identity, &found, end, &last_block(&files, end)?);
                }
                ring
            }
            None => Self::volatile_ring(&options, &files, end)?,
        };
        let (sealing, policy) = if is_persistent {
            // What is released is hardened: nobody waits for company. Bytes are for de-staging.
            let half = options.ring_bytes / 2;
            (Sealing::AtInsertion, GroupCommit { transactions: 1, bytes: half, time: Duration::ZERO })
        } else {
            (options.sealing, options.group_commit)
        };
        let hardening = match ring.nvm() {
            None => Hardening::Flushed,
            Some(nvm) if nvm.streams() => Hardening::Told,
            Some(_) => Hardening::Released,
        };
        let (daemon, teller) = (Arc::new(Bell::new()), Arc::new(Bell::new()));
        let capacity = options.ring_bytes as u64;
        let shape = Shape {
            places: options.array_slots,
            arrays: options.arrays,
            pool: options.slot_pool,
            capacity,
            smallest: HEADER_BYTES as u64,
        };
        let is_clocked = clock.is_some();
        let space = Space::new(capacity, BLOCK, policy.bytes as u64, end, Arc::clone(&daemon), hardening);
        files.write_from(files.geometry.segment_of(end.get()));
        let segments = Segments::new(home, Arc::clone(&files), start, limits);
        if let Some(archiver) = &archiver {
            segments.retention.archived(archiver.admits());
        }
        Ok(Self {
            segments,
            space: space.with_clock(clock),
            insertion: AnyInsertion::new(options.insert, shape),
            queue: CommitQueue::new(policy, Arc::clone(&daemon), Arc::clone(&teller)),
            flusher: Flusher::new(Arc::clone(&files), sealing),
            daemon,
            teller,
            keeper: Bell::new(),
            opened_at: end,
            max_payload: options.max_payload(),
            quick: if is_clocked || is_persistent { Quick::Never } else { Quick::new(sealing) },
            ring,
            destaging: Mutex::new(()),
            passive: common.passive.clone(),
            stalled: Stalled::default(),
            archiver,
            failure: OnceLock::new(),
            options,
            files,
        })
    }

    fn volatile_ring(options: &WalOptions, files: &SegmentFiles, end: Lsn) -> Result<Ring> {
        let ring = Ring::new(options.ring_bytes).map_err(|error| WalError::System {
            what: format!("{} bytes of memory for the log buffer", options.ring_bytes),
            reason: format!("{error}; ask for a smaller one"),
        })?;
        let block = last_block(files, end)?;
        let start = Lsn::new(end.get() - block.len() as u64);
        // SAFETY: nobody else has the ring yet.
        unsafe { ring.bytes_mut(start, block.len()) }.copy_from_slice(&block);
        Ok(ring)
    }

    /// Inserts a record into a database's only log; returns where it starts and ends.
    #[inline]
    pub(crate) fn insert(&self, record: NewRecord<'_>) -> (Lsn, Lsn) {
        let _log = cost::scope(Category::Log);
        let NewRecord { kind, flags, txn, page, prev, after, payload } = record;
        let quick = if payload.len() <= SMALL_PAYLOAD { self.quick } else { Quick::Never };
        let tried = match quick {
            Quick::Never => None,
            Quick::Unsealed => self.try_insert_unsealed([kind, flags], txn, page, prev, payload),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has the instructions: see `Quick::new`.
            Quick::Sealed => unsafe { self.try_insert_sealed([kind, flags], txn, page, prev, payload) },
        };
        let lsn =
            tried.unwrap_or_else(|| self.insert_any([kind, flags], txn, page, prev, payload, quick != Quick::Never));
        debug_assert!(lsn.get() > after.get(), "a change comes after what it changes");
        (lsn, lsn.advance(record_bytes(payload.len()) as u64))
    }

    /// Inserts a small record, unless anything stands in the way. A flush will seal it.
    ///
    /// Nothing here calls a function before all is done, and the fields are handed over in registers. Both save writing
    /// registers to memory; an atomic operation waits for all that has been written before. Nor are fields that have just
    /// been written read two at once, as the compiler sees fit to do; that takes as long as all the rest.
    #[inline(never)]
    fn try_insert_unsealed(
        &self,
        kinds: [u8; 2],
        txn: TxnId,
        page: PageId,
        prev: Place,
        payload: &[u8],
    ) -> Option<Lsn> {
        let [kind, flags] = kinds;
        let record = NewRecord { kind, flags, txn, page, prev, after: Gsn::ZERO, payload };
        let bytes = record_bytes(payload.len());
        self.insertion.try_insert(&self.space, bytes as u64, Small { shared: self, bytes, record, crc: |_, _, _| 0 })
    }

    /// As [`Self::try_insert_unsealed`], but seals it.
    #[cfg(target_arch = "x86_64")]
    #[inline(never)]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn try_insert_sealed(&self, kinds: [u8; 2], txn: TxnId, page: PageId, prev: Place, payload: &[u8]) -> Option<Lsn> {
        let [kind, flags] = kinds;
        let record = NewRecord { kind, flags, txn, page, prev, after: Gsn::ZERO, payload };
        let bytes = record_bytes(payload.len());
        // What does not depend on the place, before the lock is taken.
        let early = EarlyCrc::new([txn.get(), prev.get(), page.get()], payload);
        let crc = |lsn, first, fifth| early.finish(self.files.identity.seed_at(lsn), bytes as u32, first, fifth);
        self.insertion.try_insert(&self.space, bytes as u64, Small { shared: self, bytes, record, crc })
    }

    /// Inserts any record.
    #[cold]
    fn insert_any(&self, kinds: [u8; 2], txn: TxnId, page: PageId, prev: Place, payload: &[u8], tried: bool) -> Lsn {
        assert!(
            payload.len() <= self.max_payload,
            "a payload of {} bytes is more than the log buffer admits ({})",
            payload.len(),
            self.max_payload
        );
        let [kind, flags] = kinds;
        let record = NewRecord { kind, flags, txn, page, prev, after: Gsn::ZERO, payload };
        let bytes = record_bytes(payload.len());
        self.insertion.insert(&self.space, bytes as u64, tried, Any { shared: self, bytes, record })
    }

    /// Inserts any record into one of several logs. When its place and GSN are known, `complete` gets the GSN and gives the
    /// record its last `tail` bytes of payload. Returns where it starts and ends, and its GSN.
    pub(crate) fn insert_in_time(
        &self,
        record: NewRecord<'_>,
        tail: usize,
        complete: impl FnOnce(Gsn, &mut [u8]),
    ) -> (Lsn, Lsn, Gsn) {
        let _log = cost::scope(Category::Log);
        let payload = record.payload.len() + tail;
        assert!(
            payload <= self.max_payload,
            "a payload of {payload} bytes is more than the log buffer admits ({})",
            self.max_payload
        );
        let bytes = record_bytes(payload);
        let gsn = Cell::new(Gsn::ZERO);
        let timed = Timed { shared: self, bytes, record, tail, complete, gsn: &gsn };
        let lsn = self.insertion.insert(&self.space, bytes as u64, false, timed);
        (lsn, lsn.advance(bytes as u64), gsn.get())
    }

    /// Sets disk space for `bytes` of records aside.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<()> {
        self.segments.reserve(bytes, || self.space.end(), || self.fence())
    }

    /// Flushes what is released; returns whether that was anything. The caller has the right to (see [`CommitQueue`]).
    pub(crate) fn flush(&self) -> bool {
        if self.space.has_failed() {
            return false;
        }
        self.insertion.collect(&self.space);
        if self.ring.nvm().is_some() {
            return self.look_after_ring();
        }
        self.write_out()
    }

    /// Writes what is released to the segments; returns whether that was anything. One thread at a time.
    pub(crate) fn write_out(&self) -> bool {
        match self.flusher.flush(&self.space, &self.ring, &self.segments) {
            Ok(progress) => {
                if progress && self.segments.wants_more(self.space.end()) {
                    self.keeper.ring();
                }
                self.call_archiver();
                progress
            }
            Err(error) if error.is_passing() => {
                // Whoever waits for the flush waits until a file can be opened.
                thread::sleep(REFUSED);
                false
            }
            Err(error) => {
                self.fail(error);
                false
            }
        }
    }

    /// Stops the log for good. The first reason stays.
    pub(crate) fn fail(&self, reason: WalError) {
        // Before the flag: who sees the flag finds the reason.
        let _ = self.failure.set(reason);
        self.space.fail();
        self.queue.wake_settled(&self.space);
    }

    /// What stopped the log.
    pub(crate) fn failure(&self) -> Option<WalError> {
        self.failure.get().cloned()
    }

    /// The error that users of a stopped log get.
    pub(crate) fn refusal(&self) -> WalError {
        match self.failure() {
            Some(WalError::Closed) | None => WalError::Closed,
            Some(first) => WalError::Failed { first: Box::new(first) },
        }
    }

    /// Asks for everything up to `lsn` to be hardened some time, if it is not.
    pub(crate) fn request(&self, lsn: Lsn) -> Result<()> {
        if !self.is_settled(lsn) {
            self.fence();
        }
        if self.is_settled(lsn) {
            return Ok(());
        }
        self.check_inserted(lsn)?;
        self.queue.request(&self.space, lsn);
        Ok(())
    }

    /// Blocks until the durable position is beyond `lsn`.
    pub(crate) fn wait(&self, lsn: Lsn, ask: Ask) -> Result<()> {
        if self.ring.nvm().is_some() {
            self.wait_in_ring(lsn);
            return self.outcome(lsn);
        }
        self.queue.wait(&self.space, lsn, ask, || {
            let _guard = FailOnPanic(self);
            self.flush();
        });
        self.outcome(lsn)
    }

    /// Checks that there is a record at or behind `lsn` to wait for.
    pub(crate) fn check_inserted(&self, lsn: Lsn) -> Result<()> {
        let end = self.space.end();
        if lsn < end { Ok(()) } else { Err(WalError::OutOfRange { lsn, start: self.segments.start(), end }) }
    }

    /// The outcome of waiting for `lsn`, which is settled.
    pub(crate) fn outcome(&self, lsn: Lsn) -> Result<()> {
        if self.space.hardened() > lsn { Ok(()) } else { Err(self.refusal()) }
    }

    /// Whether waiting for `lsn` is over.
    pub(crate) fn is_settled(&self, lsn: Lsn) -> bool {
        is_settled(&self.space, lsn) || is_on(Bug::AcknowledgeBeforeFlush) || self.is_settled_in_ring(lsn)
    }
}

/// A small record on its way into the buffer. What is filled in is not beyond where `Space` has looked for room.
struct Small<'a, C> {
    shared: &'a Shared,
    bytes: usize,
    record: NewRecord<'a>,
    /// The checksum of the record at an LSN, from the two words that [`encode`] tells.
    crc: C,
}

impl<C: FnOnce(Lsn, u64, u64) -> u32> Fill for Small<'_, C> {
    #[inline(always)]
    fn fill(self, lsn: Lsn) {
        let Self { shared, bytes, record, crc } = self;
        // SAFETY: the insertion design has handed `[lsn, lsn + bytes)` to this thread alone, the flusher touches nothing
        // behind what has been released, and there is room, so what lay there before is on the device.
        let space = unsafe { shared.ring.bytes_mut(lsn, bytes) };
        let crc = |first, fifth| crc(lsn, first, fifth);
        encode::<SMALL_PAYLOAD>(space, &record, lsn, Gsn::new(lsn.get()), shared.space.durable(), crc);
        filled(&record, space);
        if shared.options.sealing == Sealing::AtInsertion {
            cost::work(checksum_instructions(bytes));
        }
    }
}

/// What can be done quickly with small records, if nothing stands in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Quick {
    Never,
    Unsealed,
    #[cfg(target_arch = "x86_64")]
    Sealed,
}

impl Quick {
    fn new(sealing: Sealing) -> Self {
        match sealing {
            Sealing::AtFlush => Self::Unsealed,
            #[cfg(target_arch = "x86_64")]
            Sealing::AtInsertion if EarlyCrc::is_supported() => Self::Sealed,
            Sealing::AtInsertion => Self::Never,
        }
    }
}

/// Tells a simulated machine that a record has been copied.
#[inline(always)]
pub(crate) fn filled(record: &NewRecord<'_>, space: &[u8]) {
    cost::read(record.payload.as_ptr(), record.payload.len());
    cost::write(space.as_ptr(), space.len());
}

/// A record of any kind on its way into the buffer.
struct Any<'a> {
    shared: &'a Shared,
    bytes: usize,
    record: NewRecord<'a>,
}

impl Fill for Any<'_> {
    #[inline(never)]
    fn fill(self, lsn: Lsn) {
        let Self { shared, bytes, record } = self;
        let Some(durable) = shared.space.durable_if_room(lsn.advance(bytes as u64)) else { return };
        if let Some(nvm) = shared.ring.nvm() {
            return shared.fill_in_ring(nvm, lsn, bytes, &record, Gsn::new(lsn.get()));
        }
        // SAFETY: as for a small record; `durable_if_room` says that what lay there before is on the device.
        let space = unsafe { shared.ring.bytes_mut(lsn, bytes) };
        encode::<MAX_RECORD_BYTES>(space, &record, lsn, Gsn::new(lsn.get()), durable, |_, _| 0);
        filled(&record, space);
        shared.flusher.inserted(space, lsn);
    }
}

/// A record on its way into one of several logs.
struct Timed<'a, C> {
    shared: &'a Shared,
    bytes: usize,
    record: NewRecord<'a>,
    tail: usize,
    complete: C,
    gsn: &'a Cell<Gsn>,
}

impl<C: FnOnce(Gsn, &mut [u8])> Fill for Timed<'_, C> {
    fn fill(self, lsn: Lsn) {
        let Self { shared, bytes, record, tail, complete, gsn } = self;
        gsn.set(shared.space.gsn(lsn));
        let Some(durable) = shared.space.durable_if_room(lsn.advance(bytes as u64)) else { return };
        let mut completed = Vec::new();
        let mut record = record;
        if tail > 0 {
            completed.extend_from_slice(record.payload);
            completed.resize(record.payload.len() + tail, 0);
            complete(gsn.get(), &mut completed[record.payload.len()..]);
            record.payload = &completed;
        }
        if let Some(nvm) = shared.ring.nvm() {
            return shared.fill_in_ring(nvm, lsn, bytes, &record, gsn.get());
        }
        // SAFETY: as for a small record; `durable_if_room` says that what lay there before is on the device.
        let space = unsafe { shared.ring.bytes_mut(lsn, bytes) };
        encode::<MAX_RECORD_BYTES>(space, &record, lsn, gsn.get(), durable, |_, _| 0);
        filled(&record, space);
        shared.flusher.inserted(space, lsn);
    }
}
