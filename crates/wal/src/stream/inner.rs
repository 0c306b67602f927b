//! The state that the users of a log share with its background threads.

use std::cell::Cell;
use std::time::Duration;

use duramen_sync::cost::{self, Category};
use duramen_sync::{Arc, OnceLock, thread};
use duramen_types::{Gsn, LogAddress, LogId, Lsn, PageId, TxnId, planted};

use crate::address::Inserted;
use crate::buffer::clock::Clock;
use crate::buffer::epochs::Epochs;
use crate::buffer::positions::Space;
use crate::buffer::ring::Ring;
use crate::device::flush::fill_unsealed;
use crate::device::nvm::open::{FoundRing, limits};
use crate::device::nvm::passive::Passive;
use crate::device::{Device, Prepared, Purpose, Tail};
use crate::error::{Result, WalError};
use crate::format::header::{LEAST_HEADER_BYTES, Layout, Layouts, MAX_RECORD_BYTES};
use crate::format::record::{NewRecord, SMALL_PAYLOAD};
use crate::format::segment::BLOCK;
use crate::group_commit::notifier::Notifier;
use crate::group_commit::queue::CommitQueue;
use crate::group_commit::requests::Ask;
use crate::insert::{AnyInsertion, Fill, Shape};
use crate::options::{GroupCommit, WalOptions};
use crate::segments::archive::{Archive, ArchiveInUse, Archiver};
use crate::segments::files::{OpenFiles, SegmentFiles};
use crate::segments::pool::Segments;
use crate::wake_event::WakeEvent;

#[derive(Debug)]
pub(crate) struct StreamInner {
    pub(crate) options: WalOptions,
    pub(crate) files: Arc<SegmentFiles>,
    pub(crate) segments: Segments,
    pub(crate) space: Space,
    pub(crate) insertion: AnyInsertion,
    pub(crate) queue: CommitQueue,
    pub(crate) daemon: Arc<WakeEvent>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) preallocator: WakeEvent,
    /// Where the log ended when it was opened.
    pub(crate) opened_at: Lsn,
    pub(crate) max_payload: usize,
    layouts: Layouts,
    /// Whether a flush seals the records.
    unsealed: bool,
    /// A flush seals the records and there is no clock: small records may take the fast path.
    quick: bool,
    ring: Ring,
    /// Apart from the fields that insertions read, because each flush changes its counts.
    pub(crate) device: Box<Device>,
    /// Present if the log is archived.
    pub(crate) archiver: Option<Archiver>,
    failure: OnceLock<WalError>,
}

/// Pause after the system has refused to open a segment for writing.
const REFUSED: Duration = Duration::from_millis(1);

/// What the streams of a log have in common. One stream needs no clock: a record's LSN is its GSN.
#[derive(Debug)]
pub(crate) struct Common {
    /// What each thread has made durable; present if the threads themselves fence their records.
    passive: Option<Arc<Passive>>,
    /// Present if the log is archived.
    archive: Option<Arc<ArchiveInUse>>,
    /// With several streams: their epochs, and the least GSN that a further record may get.
    clocks: Option<(Gsn, Arc<Epochs>)>,
}

impl Common {
    /// Creates the state of streams whose further records may not get GSNs below `floor`.
    pub(crate) fn new(options: &WalOptions, floor: Gsn) -> Result<Self> {
        let are_several = options.logs > 1;
        let passive = Passive::of(options, !are_several);
        let archive = options.archive.as_ref().map(Archive::take).transpose()?;
        let clocks = are_several.then(|| (floor, Arc::new(Epochs::new(floor))));
        Ok(Self { passive, archive, clocks })
    }
}

impl StreamInner {
    /// Opens the log in `files`, which continues at `end`; `ring` is the ring found, if it has one.
    pub(crate) fn new(
        home: Arc<OpenFiles>,
        options: WalOptions,
        files: Arc<SegmentFiles>,
        start: Lsn,
        end: Lsn,
        common: &Common,
        ring: Option<FoundRing>,
    ) -> Result<Self> {
        let clock = common.clocks.as_ref().map(|(floor, epochs)| Clock::new(end, *floor, Arc::clone(epochs)));
        let archive = common.archive.clone();
        let archiver = archive.map(|archive| Archiver::open(archive, &files, start, end)).transpose()?;
        let limits = limits(&options, ring.as_ref());
        let (ring, device) = Device::start(&options, &files, end, ring, common.passive.clone(), clock.is_none())?;
        // With several streams, commits form groups where they wait: for rounds.
        let alone = GroupCommit { transactions: 1, ..options.group_commit };
        let policy = device.group_commit(if clock.is_none() { options.group_commit } else { alone });
        let (daemon, notifier) = (Arc::new(WakeEvent::new()), Arc::<Notifier>::default());
        let capacity = options.ring_bytes as u64;
        let shape = Shape {
            places: options.array_slots,
            arrays: options.arrays,
            pool: options.slot_pool,
            capacity,
            smallest: LEAST_HEADER_BYTES as u64,
        };
        let layouts = Layouts::of_log(files.identity.log, clock.is_none(), end, options.max_bytes);
        let unsealed = device.writer.seals_at_flush();
        let quick = unsealed && clock.is_none();
        let space = Space::new(capacity, BLOCK, policy.bytes as u64, end, Arc::clone(&daemon), device.hardening());
        files.write_from(files.geometry.segment_of(end.get()));
        let segments = Segments::new(home, Arc::clone(&files), (start, end), limits);
        if let Some(archiver) = &archiver {
            segments.retention.archived(archiver.admits());
        }
        Ok(Self {
            segments,
            space: space.with_clock(clock),
            insertion: AnyInsertion::new(options.insert, shape),
            queue: CommitQueue::new(policy, Arc::clone(&daemon), Arc::clone(&notifier)),
            daemon,
            notifier,
            preallocator: WakeEvent::new(),
            opened_at: end,
            max_payload: options.max_payload(),
            layouts,
            unsealed,
            quick,
            ring,
            device: Box::new(device),
            archiver,
            failure: OnceLock::new(),
            options,
            files,
        })
    }

    pub(crate) fn tail(&self) -> Tail<'_> {
        Tail { ring: &self.ring, space: &self.space, insertion: &self.insertion }
    }

    /// Inserts a record into a database's only log.
    #[inline]
    pub(crate) fn insert(&self, record: NewRecord<'_>) -> Inserted {
        let _log = cost::scope(Category::Log);
        let NewRecord { kind, flags, txn, page, prev, after, payload } = record;
        let kinds = [kind, flags];
        let is_short = self.layouts.is_short(txn, page, prev, payload.len());
        // Branches, rather than a value that selects the path: see `try_insert_small`.
        let lsn = if payload.len() > SMALL_PAYLOAD || !self.quick || !is_short {
            self.insert_any(kinds, txn, page, prev, payload, false)
        } else if let Some(lsn) = self.try_insert_small(kinds, txn, page, prev, payload) {
            lsn
        } else {
            self.insert_any(kinds, txn, page, prev, payload, true)
        };
        debug_assert!(lsn.get() > after.get(), "a change comes after what it changes");
        let layout = if is_short { Layout::Short } else { Layout::Full };
        let end = lsn.advance(layout.record_bytes(payload.len()) as u64);
        Inserted { log: LogId::ZERO, lsn, end, gsn: Gsn::new(lsn.get()) }
    }

    /// Inserts a small record with a short header if the fast path is free. A flush will seal it.
    ///
    /// This function calls no other function before it has finished its work, and the caller passes
    /// the fields in registers. Both avoid spilling registers to memory: an atomic operation waits
    /// for all earlier writes. The code also avoids reading two freshly written fields with one
    /// load, which the compiler would otherwise choose; such a load takes as long as all the rest.
    #[inline(never)]
    fn try_insert_small(
        &self,
        kinds: [u8; 2],
        txn: TxnId,
        page: PageId,
        prev: LogAddress,
        payload: &[u8],
    ) -> Option<Lsn> {
        let [kind, flags] = kinds;
        let record = NewRecord { kind, flags, txn, page, prev, after: Gsn::ZERO, payload };
        let bytes = Layout::Short.record_bytes(payload.len()) as u64;
        self.insertion.try_insert(&self.space, bytes, Small { shared: self, record })
    }

    /// Inserts any record. `tried` says that the fast path for small records has been tried before.
    #[cold]
    fn insert_any(
        &self,
        kinds: [u8; 2],
        txn: TxnId,
        page: PageId,
        prev: LogAddress,
        payload: &[u8],
        tried: bool,
    ) -> Lsn {
        let [kind, flags] = kinds;
        let record = NewRecord { kind, flags, txn, page, prev, after: Gsn::ZERO, payload };
        self.insert_in_time(record, 0, tried, |_, _| {}).0
    }

    /// Inserts any record. Once the LSN and GSN of the record are known, `complete` gets the GSN
    /// and fills the last `tail` bytes of the payload. `tried` is as for [`AnyInsertion::insert`].
    /// Returns the start and the end of the record, and its GSN.
    pub(crate) fn insert_in_time(
        &self,
        record: NewRecord<'_>,
        tail: usize,
        tried: bool,
        complete: impl FnOnce(Gsn, &mut [u8]),
    ) -> (Lsn, Lsn, Gsn) {
        let _log = cost::scope(Category::Log);
        let payload = record.payload.len() + tail;
        assert!(
            payload <= self.max_payload,
            "a payload of {payload} bytes is more than the log buffer admits ({})",
            self.max_payload
        );
        let layout = self.layouts.choose(record.txn, record.page, record.prev, payload);
        let bytes = layout.record_bytes(payload) as u64;
        let gsn = Cell::new(Gsn::ZERO);
        let any = Any { shared: self, layout, record, tail, complete, gsn: &gsn };
        let lsn = self.insertion.insert(&self.space, bytes, tried, any);
        (lsn, lsn.advance(bytes), gsn.get())
    }

    pub(crate) fn reserve(&self, bytes: u64) -> Result<()> {
        self.segments.reserve(bytes, || self.space.end(), || self.device.fence())
    }

    /// Writes what is due to the segments, durably; returns whether there was any work. Where a
    /// flush hardens records, the caller has the right to flush (see [`CommitQueue`]).
    pub(crate) fn flush(&self, purpose: Purpose) -> bool {
        let _guard = FailOnPanic::new(self);
        if self.space.has_failed() {
            return false;
        }
        self.insertion.collect(&self.space);
        let (tail, writer) = (self.tail(), &self.device.writer);
        let Prepared { is_due, progress } = self.device.prepare_flush(tail, purpose);
        if !is_due {
            return progress;
        }
        let mut scratch = writer.lock();
        let flushed = match writer.begin(tail, self.device.writable(tail)) {
            None => Ok(false),
            Some((from, to)) => writer.write(&self.ring, &self.segments, from, to, &mut scratch).map(|()| {
                self.device.note_written(to);
                writer.publish(&self.space, from, to);
                true
            }),
        };
        drop(scratch);
        self.after_flush(flushed) || progress
    }

    /// Releases the buffer below `lsn`, the end of a hardened record, although the segments do not
    /// hold it: the log begins there from now on.
    pub(crate) fn forget_below(&self, lsn: Lsn) {
        let writer = &self.device.writer;
        let _nobody_writes = writer.lock();
        let from = self.space.durable();
        if from < lsn && !self.space.has_failed() {
            self.device.forget_below(lsn);
            writer.publish(&self.space, from, lsn);
        }
    }

    /// Handles the outcome of a write to the segments; returns whether it has written anything.
    fn after_flush(&self, flushed: Result<bool>) -> bool {
        match flushed {
            Ok(progress) => {
                if progress && self.segments.wants_more(self.space.end()) {
                    self.preallocator.wake();
                }
                self.call_archiver();
                progress
            }
            Err(error) if error.is_passing() => {
                // Threads that wait for the flush wait until a file can be opened.
                thread::sleep(REFUSED);
                false
            }
            Err(error) => {
                self.fail(error);
                false
            }
        }
    }

    /// Stops the log permanently. The first reason stays.
    pub(crate) fn fail(&self, reason: WalError) {
        // Set before the flag, so that a thread that sees the flag finds the reason.
        let _ = self.failure.set(reason);
        self.space.fail();
        self.queue.wake_resolved(&self.space);
    }

    pub(crate) fn failure(&self) -> Option<WalError> {
        self.failure.get().cloned()
    }

    /// Returns the error for users of a stopped log.
    pub(crate) fn refusal(&self) -> WalError {
        match self.failure() {
            Some(WalError::Closed) | None => WalError::Closed,
            Some(first) => WalError::Failed { first: Box::new(first) },
        }
    }

    /// Requests that everything up to `lsn` be hardened, if it is not.
    pub(crate) fn request(&self, lsn: Lsn) -> Result<()> {
        if !self.is_resolved(lsn) {
            self.device.fence();
        }
        if self.is_resolved(lsn) {
            return Ok(());
        }
        self.check_inserted(lsn)?;
        self.queue.request(&self.space, lsn);
        Ok(())
    }

    /// Blocks until the hardened position is beyond `lsn`. The thread may flush by itself.
    pub(crate) fn wait(&self, lsn: Lsn, ask: Ask) -> Result<()> {
        self.check_inserted(lsn)?;
        if !self.device.wait(self.tail(), lsn) {
            let mut waiter = self.queue.waiter(lsn, ask);
            while self.queue.must_flush(&self.space, &mut waiter) {
                self.flush(Purpose::Requests);
            }
        }
        self.outcome(lsn)
    }

    /// Returns the outcome of waiting for `lsn`, which is resolved.
    pub(crate) fn outcome(&self, lsn: Lsn) -> Result<()> {
        if self.space.hardened() > lsn { Ok(()) } else { Err(self.refusal()) }
    }

    /// Returns whether waiting for `lsn` is over.
    pub(crate) fn is_resolved(&self, lsn: Lsn) -> bool {
        planted!(AcknowledgeBeforeFlush) || self.device.is_resolved(self.tail(), lsn)
    }

    /// Checks that there is a record at or behind `lsn` to wait for.
    pub(crate) fn check_inserted(&self, lsn: Lsn) -> Result<()> {
        let end = self.space.end();
        if lsn < end { Ok(()) } else { Err(WalError::OutOfRange { lsn, start: self.segments.start(), end }) }
    }

    /// Writes everything that is hardened at this moment to the segments; returns the position up
    /// to which they hold the log, or the reason why the log stopped.
    pub(crate) fn destage(&self) -> Result<Lsn> {
        self.device.look(self.tail());
        let hardened = self.space.hardened();
        while self.space.durable() < hardened && !self.space.has_failed() {
            self.flush(Purpose::Readers);
        }
        let durable = self.space.durable();
        if durable < hardened { Err(self.refusal()) } else { Ok(durable) }
    }
}

/// Fails the log when a thread that works for others panics, so that no thread waits for it for
/// ever. A thread that has been panicking before may harden the log as it unwinds.
pub(crate) struct FailOnPanic<'a, F: Fn() = fn()> {
    shared: &'a StreamInner,
    then: F,
    was_panicking: bool,
}

impl<'a> FailOnPanic<'a> {
    pub(crate) fn new(shared: &'a StreamInner) -> Self {
        Self::then(shared, || ())
    }
}

impl<'a, F: Fn()> FailOnPanic<'a, F> {
    /// Calls `then` after the log has failed.
    pub(crate) fn then(shared: &'a StreamInner, then: F) -> Self {
        Self { shared, then, was_panicking: thread::panicking() }
    }
}

impl<F: Fn()> Drop for FailOnPanic<'_, F> {
    fn drop(&mut self) {
        if thread::panicking() && !self.was_panicking {
            self.shared.fail(WalError::system("continue", "a thread of the log panicked"));
            (self.then)();
        }
    }
}

/// A small record to fill into the buffer, with a short header. The filled part does not extend
/// beyond the space that `Space` has found free.
struct Small<'a> {
    shared: &'a StreamInner,
    record: NewRecord<'a>,
}

impl Fill for Small<'_> {
    #[inline(always)]
    fn fill(self, lsn: Lsn) {
        let Self { shared, record } = self;
        let gsn = Gsn::new(lsn.get());
        // SAFETY: the insertion design has handed the space, which is free, to this thread alone.
        unsafe { fill_unsealed::<SMALL_PAYLOAD>(&shared.ring, lsn, Layout::Short, &record, gsn, None) };
    }
}

struct Any<'a, C> {
    shared: &'a StreamInner,
    layout: Layout,
    record: NewRecord<'a>,
    tail: usize,
    complete: C,
    gsn: &'a Cell<Gsn>,
}

impl<C: FnOnce(Gsn, &mut [u8])> Fill for Any<'_, C> {
    #[inline(never)]
    fn fill(self, lsn: Lsn) {
        let Self { shared, layout, record, tail, complete, gsn } = self;
        let mut record = record;
        let bytes = layout.record_bytes(record.payload.len() + tail) as u64;
        gsn.set(shared.space.gsn(lsn));
        let Some(durable) = shared.space.durable_if_room(lsn.advance(bytes)) else { return };
        let mut completed = Vec::new();
        if tail > 0 {
            completed.extend_from_slice(record.payload);
            completed.resize(record.payload.len() + tail, 0);
            complete(gsn.get(), &mut completed[record.payload.len()..]);
            record.payload = &completed;
        }
        // SAFETY: the insertion design has handed the space to this thread alone, and
        // `durable_if_room` has found room.
        unsafe {
            if shared.unsealed {
                fill_unsealed::<MAX_RECORD_BYTES>(&shared.ring, lsn, layout, &record, gsn.get(), None);
            } else {
                shared.device.fill(shared.tail(), lsn, layout, &record, gsn.get(), durable);
            }
        }
    }
}
