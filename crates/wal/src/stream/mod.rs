//! One open stream of records. This file creates, reads and recycles it.

pub(crate) mod archiver;
pub(crate) mod copy;
pub(crate) mod daemon;
pub(crate) mod inner;

use std::collections::BTreeMap;

use duramen_sync::{Arc, References};
use duramen_types::{Lsn, planted};

use crate::address::FIRST_LSN;
use crate::device::nvm::open::FoundRing;
use crate::error::{Result, WalError};
use crate::format::identity::Identity;
use crate::format::record::RecordRef;
use crate::format::segment::{Geometry, directory};
use crate::group_commit::queue::Counts;
use crate::group_commit::requests::Ask;
use crate::options::WalOptions;
use crate::segments::archive::Archiver;
use crate::segments::files::{OpenFiles, SegmentFiles};
use crate::segments::recover::{self, Found};
use crate::segments::scan::{BackScanner, Scanner};
use crate::stats::{Extent, WalStats};
use crate::stream::inner::{Common, StreamInner};
use crate::threads::Threads;

/// One stream of records: a log by itself, or one of the streams of a log. Dropping it stops its
/// threads and hardens nothing, like a crash; see [`Stream::close`].
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) shared: References<StreamInner>,
    threads: Threads,
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
        // An interrupted creation leaves spares: the log uses them up, or its opening removes them.
        disk.create_directory(&directory(identity.log))?;
        disk.sync_directory("")?;
        let geometry = Geometry { segment_bytes: options.segment_bytes };
        let files = Arc::new(SegmentFiles::new(identity, geometry, BTreeMap::new(), 0));
        let ring = FoundRing::for_new(&options, &identity)?;
        let shared = StreamInner::new(home, options, files, FIRST_LSN, FIRST_LSN, common, ring)?;
        shared.segments.ensure(FIRST_LSN.get() + 1, geometry.segment_bytes)?;
        Self::start_threads(shared)
    }

    /// Opens a log that has been found and that has nothing behind `end`.
    pub(crate) fn start(
        options: WalOptions,
        found: &Found,
        end: Lsn,
        common: &Common,
        ring: Option<FoundRing>,
    ) -> Result<Self> {
        let Found { home, files, start, .. } = found;
        // A process that has ended since may have created a file or set its length without making
        // the name or the length durable.
        files.sync()?;
        home.disk().sync_directory(&directory(files.identity.log))?;
        let shared = StreamInner::new(Arc::clone(home), options, Arc::clone(files), *start, end, common, ring)?;
        shared.segments.take_over(&found.spares, &found.stale)?;
        for number in found.writable(end).filter(|number| files.has(*number)) {
            shared.segments.renew_header(number)?;
        }
        Self::start_threads(shared)
    }

    fn start_threads(shared: StreamInner) -> Result<Self> {
        let stream = Self { shared: References::new(Arc::new(shared)), threads: Threads::default() };
        daemon::start(&stream.shared, &stream.threads)?;
        Ok(stream)
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

    /// Checks that a hardened record starts at `lsn`.
    fn check(&self, lsn: Lsn) -> Result<()> {
        let Extent { start, durable, .. } = self.readable(lsn)?;
        self.shared.destage()?;
        let mut scanner = Scanner::one(Arc::clone(&self.shared.files), lsn, Some(durable));
        scanner.next()?.map(drop).ok_or(WalError::OutOfRange { lsn, start, end: durable })
    }

    /// Reads one hardened record; fast for records each of which lies before the one read last.
    pub(crate) fn read_back<'s>(&self, scanner: &'s mut BackScanner, lsn: Lsn) -> Result<RecordRef<'s>> {
        let Extent { start, durable, .. } = self.readable(lsn)?;
        if !scanner.has(lsn) {
            self.shared.destage()?;
        }
        scanner.read(lsn, start, durable)?.ok_or(WalError::OutOfRange { lsn, start, end: durable })
    }

    /// Reads the records from `from`, the start of a record, to the present hardened end, after
    /// de-staging a ring. If the log has failed, the scan ends at the de-staged position.
    pub(crate) fn scan(&self, from: Lsn) -> Scanner {
        self.shared.device.harden_released(self.shared.tail());
        let durable = self.shared.destage().unwrap_or_else(|_| self.shared.space.durable());
        Scanner::hardened(Arc::clone(&self.shared.files), from.max(FIRST_LSN).min(durable), durable)
    }

    /// Makes `lsn`, the start of a hardened record or the hardened end, the start of the log,
    /// durably. Recycles the segments wholly below it once no archive or backup needs them.
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
            // In this order: the segments must always have a place for the start, which insertions
            // may not have reserved, and for what the ring holds from the de-staged position on.
            segments.ensure_beyond_limit(lsn.get())?;
            self.shared.forget_below(lsn);
            return segments.recycle_below(lsn);
        }
        if lsn != durable
            // The next recovery depends on this record: it is better to find damage now.
            && let Err(error) = self.check(lsn)
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
        let (flushes, flushed_bytes) = shared.device.writer.counts();
        let (drains, drain_signals, fences) =
            shared.device.passive.as_ref().map_or((0, 0, 0), |passive| passive.counts());
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

    /// Hardens everything inserted before this call, and writes it to the segments.
    pub(crate) fn harden_all(&self) -> Result<()> {
        let Extent { durable, end, .. } = self.extent();
        if end > durable {
            self.shared.wait(Lsn::new(end.get() - 1), Ask::AtOnce)?;
        }
        self.shared.destage().map(|_| ())
    }

    /// Hardens everything inserted so far and stops the log's threads. A second call does nothing.
    pub(crate) fn close(&self) -> Result<()> {
        let was_closed = matches!(self.shared.failure(), Some(WalError::Closed));
        let outcome = self.harden_all();
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
        daemon::stop(&self.shared, &self.threads);
        // A committer may still be flushing; it must not write when the log is opened again.
        drop(self.shared.device.writer.lock());
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stop();
    }
}
