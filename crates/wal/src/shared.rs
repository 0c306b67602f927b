//! What the users of a log and its background threads share.

use duramen_io::{AlignedBuf, Disk};
use duramen_sync::cost::{self, Category};
use duramen_sync::{Arc, OnceLock};
use duramen_types::planted::{Bug, is_on};
use duramen_types::{Gsn, Lsn};

use crate::bell::Bell;
use crate::commit::Ask;
use crate::commit::{CommitQueue, is_settled};
use crate::daemon::FailOnPanic;
use crate::error::{Result, WalError};
use crate::files::SegmentFiles;
use crate::flush::Flusher;
use crate::insert::{AnyInsertion, Shape};
use crate::options::WalOptions;
use crate::record::{HEADER_BYTES, NewRecord, encode, record_bytes};
use crate::ring::Ring;
use crate::segment::BLOCK;
use crate::segments::{Limits, Segments};
use crate::space::Space;

/// Instructions that the checksum of a record takes, besides one for every eight bytes.
const CHECKSUM_INSTRUCTIONS: u64 = 40;

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
    ring: Ring,
    failure: OnceLock<WalError>,
}

impl Shared {
    /// A log in `files` that is to go on at `end`.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        options: WalOptions,
        files: Arc<SegmentFiles>,
        start: Lsn,
        end: Lsn,
    ) -> Result<Self> {
        let ring = Ring::new(options.ring_bytes).map_err(|error| WalError::System {
            what: format!("{} bytes of memory for the log buffer", options.ring_bytes),
            reason: error.to_string(),
        })?;
        let limits = Limits {
            max_bytes: options.max_bytes,
            spare_segments: options.spare_segments,
            ring_bytes: options.ring_bytes as u64,
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
        let shared = Self {
            segments: Segments::new(disk, Arc::clone(&files), start, limits),
            space: Space::new(capacity, BLOCK, end, Arc::clone(&daemon)),
            insertion: AnyInsertion::new(options.insert, shape),
            queue: CommitQueue::new(options.group_commit, Arc::clone(&daemon), Arc::clone(&teller)),
            flusher: Flusher::new(Arc::clone(&files)),
            daemon,
            teller,
            keeper: Bell::new(),
            opened_at: end,
            ring,
            failure: OnceLock::new(),
            options,
            files,
        };
        shared.load_last_block(end)?;
        Ok(shared)
    }

    /// Brings the beginning of the block in which the log ends into the ring: the next flush writes that block again.
    fn load_last_block(&self, end: Lsn) -> Result<()> {
        let start = end.get() / BLOCK * BLOCK;
        let len = (end.get() - start) as usize;
        if len > 0 {
            let mut block = AlignedBuf::zeroed(BLOCK as usize);
            self.files.read(start, &mut block)?;
            // SAFETY: nobody else has the ring yet.
            unsafe { self.ring.bytes_mut(Lsn::new(start), len) }.copy_from_slice(&block[..len]);
        }
        Ok(())
    }

    /// Inserts a record; returns where it starts and ends.
    #[inline]
    pub(crate) fn insert(&self, record: &NewRecord<'_>) -> (Lsn, Lsn) {
        assert!(
            record.payload.len() <= self.options.max_payload(),
            "a payload of {} bytes is more than the log buffer admits ({})",
            record.payload.len(),
            self.options.max_payload()
        );
        let _log = cost::scope(Category::Log);
        let bytes = record_bytes(record.payload.len());
        let lsn = self.insertion.insert(&self.space, bytes as u64, |lsn| self.fill(lsn, bytes, record));
        let end = lsn.advance(bytes as u64);
        let durable = self.space.durable().get();
        let limit = self.options.group_commit.bytes as u64;
        // The record with which so much is unflushed rings; the daemon stays awake until it is less. In case that one saw
        // an old durable position, so does the next that crosses a multiple of the limit.
        if end.get().saturating_sub(durable) >= limit
            && (lsn.get().saturating_sub(durable) < limit || lsn.get() / limit != end.get() / limit)
        {
            self.daemon.ring();
        }
        (lsn, end)
    }

    #[inline]
    fn fill(&self, lsn: Lsn, bytes: usize, record: &NewRecord<'_>) {
        let Some(durable) = self.space.durable_if_room(lsn.advance(bytes as u64)) else { return };
        // SAFETY: the insertion design has handed `[lsn, lsn + bytes)` to this thread alone, and the flusher reads no
        // further than what has been released; `durable_if_room` says that what lay there before is on the device.
        let space = unsafe { self.ring.bytes_mut(lsn, bytes) };
        // With one log, a record's place in the global order is its place in the log.
        let gsn = Gsn::new(lsn.get());
        debug_assert!(gsn > record.after, "a change comes after what it changes");
        encode(space, record, &self.files.identity, lsn, gsn, durable);
        cost::read(record.payload.as_ptr(), record.payload.len());
        cost::write(space.as_ptr(), bytes);
        cost::work(CHECKSUM_INSTRUCTIONS + bytes as u64 / 8);
    }

    /// Flushes what is released; returns whether that was anything. The caller has the right to (see [`CommitQueue`]).
    pub(crate) fn flush(&self) -> bool {
        if self.space.has_failed() {
            return false;
        }
        self.insertion.collect(&self.space);
        match self.flusher.flush(&self.space, &self.ring, &self.segments) {
            Ok(progress) => {
                if progress && self.segments.wants_more(self.space.end()) {
                    self.keeper.ring();
                }
                progress
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

    /// Blocks until the durable position is beyond `lsn`.
    pub(crate) fn wait(&self, lsn: Lsn, ask: Ask) -> Result<()> {
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
        if self.space.durable() > lsn { Ok(()) } else { Err(self.refusal()) }
    }

    /// Whether waiting for `lsn` is over.
    pub(crate) fn is_settled(&self, lsn: Lsn) -> bool {
        is_settled(&self.space, lsn) || is_on(Bug::AcknowledgeBeforeFlush)
    }
}
