//! One open stream of records: its shared state, its background threads, and requests to harden it.
//! This file creates, reads and recycles the stream.

pub(crate) mod archiver;
pub(crate) mod copy;
pub(crate) mod daemon;
pub(crate) mod inner;
pub(crate) mod part;

use std::collections::BTreeMap;

use duramen_sync::{Arc, References};
use duramen_types::{Gsn, LogId, Lsn, planted};

use crate::address::{FIRST_LSN, Inserted};
use crate::device::nvm::open::FoundRing;
use crate::error::{Result, WalError};
use crate::format::identity::Identity;
use crate::format::record::{NewRecord, Record, RecordRef};
use crate::format::segment::{Geometry, directory};
use crate::group_commit::queue::Counts;
use crate::group_commit::requests::Ask;
use crate::options::WalOptions;
use crate::segments::archive::Archiver;
use crate::segments::files::{OpenFiles, SegmentFiles};
use crate::segments::recover::{self, Found};
use crate::segments::scan::{BackScanner, Scanner};
use crate::stats::{Extent, WalStats};
use crate::stream::daemon::Daemons;
use crate::stream::inner::{Common, StreamInner};

/// One stream of records: a log by itself, or one of the streams of a log.
///
/// Dropping the stream stops its threads and hardens nothing, like a crash; see [`Stream::close`].
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) shared: References<StreamInner>,
    daemons: Daemons,
}

impl Stream {
    /// Creates an empty log; it is durable when this function returns.
    pub(crate) fn create(
        home: Arc<OpenFiles>,
        options: WalOptions,
        identity: Identity,
        common: &Common,
    ) -> Result<Self> {
        let disk = &**home.disk();
        if recover::has_segments(disk, identity.log)? {
            return Err(WalError::AlreadyExists { location: disk.location() });
        }
        // An interrupted creation leaves spare segments. The log uses them up, or removes them when
        // it is first opened.
        disk.create_directory(&directory(identity.log))?;
        disk.sync_directory("")?;
        let geometry = Geometry { segment_bytes: options.segment_bytes };
        let files = Arc::new(SegmentFiles::new(identity, geometry, BTreeMap::new(), 0));
        let ring = FoundRing::for_new(&options, &identity)?;
        let shared = StreamInner::new(home, options, files, FIRST_LSN, FIRST_LSN, common, ring)?;
        shared.segments.ensure(FIRST_LSN.get() + 1, geometry.segment_bytes)?;
        Self::start_threads(shared)
    }

    /// Opens a log that has been found and that has nothing behind `end`. `is_new` says that this
    /// process has created it, so that all of it is durable.
    pub(crate) fn start(
        options: WalOptions,
        found: &Found,
        end: Lsn,
        is_new: bool,
        common: &Common,
        ring: Option<FoundRing>,
    ) -> Result<Self> {
        if !is_new {
            // A process that has ended since may have created a file or set its length without
            // making the name or the length durable.
            found.files.sync()?;
            found.home.disk().sync_directory(&directory(found.files.identity.log))?;
        }
        let shared = StreamInner::new(
            Arc::clone(&found.home),
            options,
            Arc::clone(&found.files),
            found.start,
            end,
            common,
            ring,
        )?;
        if is_new && !shared.segments.has_ring() {
            return Self::start_threads(shared);
        }
        shared.segments.take_over(&found.spares, &found.stale)?;
        for number in found.writable(end).filter(|number| shared.files.has(*number)) {
            shared.segments.write_header(&*shared.files.file(number, end)?, number)?;
        }
        Self::start_threads(shared)
    }

    fn start_threads(shared: StreamInner) -> Result<Self> {
        let shared = Arc::new(shared);
        let daemons = Daemons::start(&shared)?;
        Ok(Self { shared: References::new(shared), daemons })
    }

    /// Inserts a record into a database's only log.
    #[inline]
    pub(crate) fn insert(&self, record: NewRecord<'_>) -> Inserted {
        let (lsn, end) = self.shared.insert(record);
        Inserted { log: LogId::ZERO, lsn, end, gsn: Gsn::new(lsn.get()) }
    }

    /// Returns the start, the hardened end, and the position of the next record.
    pub(crate) fn extent(&self) -> Extent {
        let StreamInner { segments, space, .. } = &**self.shared;
        Extent { start: segments.start(), durable: space.hardened(), end: space.end() }
    }

    /// Returns the readable part of the log, if `lsn` lies in it.
    fn readable(&self, lsn: Lsn) -> Result<Extent> {
        let extent @ Extent { start, durable, .. } = self.extent();
        if lsn < start || lsn >= durable {
            return Err(WalError::OutOfRange { lsn, start, end: durable });
        }
        Ok(extent)
    }

    /// Reads one hardened record.
    pub(crate) fn read(&self, lsn: Lsn) -> Result<Record> {
        let Extent { start, durable, .. } = self.readable(lsn)?;
        self.shared.destage()?;
        let mut scanner = Scanner::one(Arc::clone(&self.shared.files), lsn, Some(durable));
        let record = scanner.next()?.map(|record: RecordRef<'_>| record.to_record());
        record.ok_or(WalError::OutOfRange { lsn, start, end: durable })
    }

    /// Returns a scanner for [`Stream::read_back`], for one of `logs` logs.
    pub(crate) fn back_scanner(&self, logs: u16) -> BackScanner {
        BackScanner::new(Arc::clone(&self.shared.files), logs)
    }

    /// Reads as [`Stream::read`] does; fast for records each of which lies before the one read
    /// last.
    pub(crate) fn read_back<'s>(&self, scanner: &'s mut BackScanner, lsn: Lsn) -> Result<RecordRef<'s>> {
        let Extent { start, durable, .. } = self.readable(lsn)?;
        if !scanner.has(lsn) {
            self.shared.destage()?;
        }
        scanner.read(lsn, start, durable)?.ok_or(WalError::OutOfRange { lsn, start, end: durable })
    }

    /// Reads the records from `from`, the start of a record, to the present hardened end of the
    /// log. The contents of a ring in persistent memory are de-staged first. If the log has failed,
    /// the scan ends at the de-staged position.
    pub(crate) fn scan(&self, from: Lsn) -> Scanner {
        self.shared.device.harden_released(self.shared.tail());
        let durable = self.shared.destage().unwrap_or_else(|_| self.shared.space.durable());
        Scanner::hardened(Arc::clone(&self.shared.files), from.max(FIRST_LSN).min(durable), durable)
    }

    /// Makes `lsn` the start of the log, durably; `lsn` is the start of a hardened record, or the
    /// end of the hardened log. Recycles the segments that lie wholly below it, as soon as no
    /// archive and no backup needs them.
    pub(crate) fn recycle_below(&self, lsn: Lsn) -> Result<()> {
        let Extent { start, durable, .. } = self.extent();
        let lsn = if planted!(RecycleTooEarly) { durable } else { lsn };
        if lsn <= start {
            return Ok(());
        }
        if self.shared.device.stays() {
            if lsn > durable {
                return Err(WalError::OutOfRange { lsn, start, end: durable });
            }
            let segments = &self.shared.segments;
            // In this order: the start must always have its place in the segments, which insertions
            // may not have reserved, and so must what the ring holds from the de-staged position
            // on.
            segments.ensure_beyond_limit(lsn.get())?;
            self.shared.forget_below(lsn);
            return segments.recycle_below(lsn);
        }
        if lsn != durable
            // The next recovery depends on this record: it is better to find damage now.
            && let Err(error) = self.read(lsn)
        {
            // Unless another thread has recycled more in the meantime.
            return if lsn < self.extent().start { Ok(()) } else { Err(error) };
        }
        // The start of the log has to lie in the segments.
        self.shared.destage()?;
        self.shared.segments.recycle_below(lsn)
    }

    /// Returns the counts since the log was opened, and its present extent.
    pub(crate) fn stats(&self) -> WalStats {
        let shared = &*self.shared;
        shared.insertion.collect(&shared.space);
        let (records, ring_full_waits) = shared.space.counts();
        let (flushes, flushed_bytes) = shared.device.writer().counts();
        let (drains, drain_signals, fences) = shared.device.passive().map_or((0, 0, 0), |passive| passive.counts());
        let Counts { waits: hardening_waits, inline_flushes, .. } = shared.queue.counts();
        let (segments_created, segments_recycled) = shared.segments.counts();
        let archiver = shared.archiver.as_ref();
        let (segments_archived, archive_failures) = archiver.map_or((0, 0), Archiver::counts);
        let Extent { start, durable, end } = self.extent();
        WalStats {
            records,
            bytes: end.get() - shared.opened_at.get(),
            consolidated: shared.insertion.consolidated(),
            ring_full_waits,
            flushes,
            inline_flushes,
            flushed_bytes,
            hardening_waits,
            fences,
            drains,
            drain_signals,
            segments_live: shared.files.count(),
            segments_created,
            segments_recycled,
            segments_archived,
            archive_failures,
            archived: archiver.map_or(Lsn::ZERO, Archiver::archived),
            reserved_bytes: shared.segments.reserved(),
            start,
            durable,
            end,
            ..WalStats::default()
        }
    }

    /// Returns the failure of a write or sync that stopped the log.
    pub(crate) fn failure(&self) -> Option<WalError> {
        self.shared.failure().filter(|failure| !matches!(failure, WalError::Closed))
    }

    /// Hardens everything inserted before this call and stops the log's threads. A second call does
    /// nothing.
    pub(crate) fn close(&self) -> Result<()> {
        let was_closed = matches!(self.shared.failure(), Some(WalError::Closed));
        let Extent { durable, end, .. } = self.extent();
        let outcome = if end > durable { self.shared.wait(Lsn::new(end.get() - 1), Ask::AtOnce) } else { Ok(()) };
        let outcome = outcome.and_then(|()| self.shared.destage()).map(|_| ());
        self.stop();
        if outcome.is_ok() && !was_closed {
            let StreamInner { segments, device, .. } = &**self.shared;
            // The ring has forgotten everything below the start that was last asked for.
            let has_start = !device.stays() || segments.recycle_admitted().is_ok();
            let gave_up = has_start && device.give_up(self.shared.tail());
            if gave_up {
                segments.leave_ring()?;
            }
            if gave_up || !segments.has_ring() {
                segments.shrink(self.extent().end)?;
            }
        }
        match outcome {
            Err(WalError::Closed) if was_closed => Ok(()),
            outcome => outcome,
        }
    }

    fn stop(&self) {
        self.shared.fail(WalError::Closed);
        self.daemons.stop(&self.shared);
        // A committer may still be flushing; it must not write when the log is opened again.
        drop(self.shared.device.writer().lock());
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stop();
    }
}
