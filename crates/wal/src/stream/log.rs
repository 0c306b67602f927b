//! The log manager's face.

use duramen_io::Disk;
use duramen_sync::{Arc, References};
use duramen_types::{Gsn, LogId, Lsn, planted};
use std::collections::BTreeMap;

use crate::device::nvm::open::FoundRing;
use crate::error::{Result, WalError};
use crate::format::record::{Identity, NewRecord, Record, RecordRef, record_bytes};
use crate::format::segment::{Geometry, directory};
use crate::group_commit::requests::Ask;
use crate::observer::Meter;
use crate::options::WalOptions;
use crate::place::{FIRST_LSN, Inserted};
use crate::segments::archive::Archiver;
use crate::segments::files::{OpenFiles, SegmentFiles};
use crate::segments::recover::{self, Found};
use crate::segments::scan::{BackScanner, Scanner};
use crate::stats::WalStats;
use crate::stream::daemon::Daemons;
use crate::stream::hardened::Hardened;
use crate::stream::inner::{OneOf, Shared};

/// A write-ahead log. Shared by reference between threads.
///
/// Dropping it stops its threads without hardening anything, like a crash; see [`Wal::close`].
#[derive(Debug)]
pub struct Wal {
    pub(crate) shared: References<Shared>,
    daemons: Daemons,
}

impl Wal {
    /// Makes an empty log in the subdirectory `log` of `disk`; it is durable when this returns. Whoever opens or creates
    /// a log sees to it that nobody else does ([`Disk::lock`]). `database` is mixed into every checksum.
    ///
    /// # Errors
    /// [`WalError::InvalidOption`], [`WalError::AlreadyExists`], [`WalError::Full`], [`WalError::Region`],
    /// [`WalError::WrongRing`], or what the disk says.
    pub fn create(disk: Arc<dyn Disk>, options: WalOptions, database: [u8; 16]) -> Result<Self> {
        Self::create_one_of(OpenFiles::of(disk), options, Identity::new(database, LogId::ZERO), None)
    }

    /// Makes one of the logs of a database.
    pub(crate) fn create_one_of(
        home: Arc<OpenFiles>,
        options: WalOptions,
        identity: Identity,
        one_of: Option<OneOf>,
    ) -> Result<Self> {
        options.validate()?;
        let disk = &**home.disk();
        if recover::has_segments(disk, identity.log)? {
            return Err(WalError::AlreadyExists { location: disk.location() });
        }
        // What an interrupted creation has left, spares, is removed when the log is first opened, or used up before.
        disk.create_directory(&directory(identity.log))?;
        disk.sync_directory("")?;
        let geometry = Geometry { segment_bytes: options.segment_bytes };
        let files = Arc::new(SegmentFiles::new(identity, geometry, BTreeMap::new()));
        let ring = FoundRing::for_new(&options, &identity)?;
        let shared = Shared::new(home, options, files, FIRST_LSN, FIRST_LSN, one_of, ring)?;
        shared.segments.ensure(FIRST_LSN.get() + 1, geometry.segment_bytes)?;
        Self::start_threads(shared)
    }

    /// Opens the log in `disk`: finds its end and removes what a crash has left behind it. `from` is the LSN of a record
    /// known to be hardened (a checkpoint), from which the log is read; without it, it is read from its start. Afterwards
    /// [`Wal::end`] tells where the log ends, and everything before is hardened.
    ///
    /// A log that has lost hardened records is refused if that can be told from what is left. It cannot when nothing was
    /// inserted after them; a caller that knows how far the log was hardened compares [`Wal::end`] with it.
    ///
    /// # Errors
    /// - [`WalError::NoLog`], [`WalError::WrongDatabase`], [`WalError::WrongVersion`]: it is not there, or not that log.
    /// - [`WalError::MissingSegment`], [`WalError::Corrupt`]: hardened records are lost. A log that merely ends in the
    ///   middle of a record, as after a crash, is in order.
    /// - [`WalError::RingNeeded`], [`WalError::WrongRing`], [`WalError::Region`]: the end of the log is in persistent memory,
    ///   and it is not there, or not what is there.
    /// - [`WalError::InvalidOption`], [`WalError::Disk`], [`WalError::System`].
    pub fn open(disk: Arc<dyn Disk>, options: WalOptions, database: [u8; 16], from: Option<Lsn>) -> Result<Self> {
        options.validate()?;
        let identity = Identity::new(database, LogId::ZERO);
        if let Some(lsn) = from.filter(|from| *from < FIRST_LSN) {
            return Err(WalError::OutOfRange { lsn, start: FIRST_LSN, end: FIRST_LSN });
        }
        let mut found = recover::find(&OpenFiles::of(Arc::clone(&disk)), LogId::ZERO, Some(identity), from)?;
        let ring = FoundRing::find(&disk, &options, &identity, &mut found)?;
        let mut meter = Meter::new(options.read_observer.as_ref(), from.unwrap_or(found.start));
        let end = recover::find_end(&found, from, from.is_some(), Gsn::MAX, |record| meter.pass(record))?;
        ring.as_ref().map_or(Ok(()), |ring| ring.check_end(end.end))?;
        end.erase_behind(&found.files)?;
        Self::start_found(options, &found, end.end, None, ring)
    }

    /// Brings a log into service that has been found, and has nothing behind `end`.
    pub(crate) fn start_found(
        options: WalOptions,
        found: &Found,
        end: Lsn,
        one_of: Option<OneOf>,
        ring: Option<FoundRing>,
    ) -> Result<Self> {
        // A name or a length that is seen need not be durable yet, if the process that gave it has ended since.
        found.files.sync()?;
        found.home.disk().sync_directory(&directory(found.files.identity.log))?;
        let shared =
            Shared::new(Arc::clone(&found.home), options, Arc::clone(&found.files), found.start, end, one_of, ring)?;
        shared.segments.take_over(&found.spares, &found.stale)?;
        for number in found.writable(end).filter(|number| shared.files.has(*number)) {
            shared.segments.write_header(&*shared.files.file(number, end)?, number)?;
        }
        Self::start_threads(shared)
    }

    fn start_threads(shared: Shared) -> Result<Self> {
        let shared = Arc::new(shared);
        let daemons = Daemons::start(&shared)?;
        Ok(Self { shared: References::new(shared), daemons })
    }

    /// Inserts a record. Never fails: on a log that has failed the record goes nowhere, and hardening it reports the
    /// failure. Blocks while the buffer is full.
    ///
    /// # Panics
    /// When the payload is longer than [`Wal::max_payload`].
    #[inline]
    pub fn insert(&self, record: NewRecord<'_>) -> Inserted {
        let (lsn, end) = self.shared.insert(record);
        Inserted { log: LogId::ZERO, lsn, end, gsn: Gsn::new(lsn.get()) }
    }

    /// Asks for everything up to and including the record of `gsn` to be hardened. Does not block.
    pub fn harden(&self, gsn: Gsn) -> Hardened {
        Hardened::request(&self.shared, Lsn::new(gsn.get()))
    }

    /// Blocks until everything up to and including the record of `gsn` is hardened. The fast way for a thread that has
    /// nothing else to do: it may do the flush itself.
    ///
    /// # Errors
    /// [`WalError::Failed`] or [`WalError::Closed`] when it will not be hardened; [`WalError::OutOfRange`] when there is
    /// no such record.
    pub fn wait_hardened(&self, gsn: Gsn) -> Result<()> {
        if self.is_hardened(gsn) || planted!(AcknowledgeBeforeFlush) {
            return Ok(());
        }
        let lsn = Lsn::new(gsn.get());
        self.shared.check_inserted(lsn)?;
        self.shared.wait(lsn, Ask::Grouped)
    }

    /// As [`Wal::wait_hardened`], for what is no commit and what commits may have to wait for: it does not wait for the
    /// company that [`crate::GroupCommit`] asks for.
    ///
    /// # Errors
    /// As [`Wal::wait_hardened`].
    pub fn harden_at_once(&self, gsn: Gsn) -> Result<()> {
        if self.is_hardened(gsn) {
            return Ok(());
        }
        let lsn = Lsn::new(gsn.get());
        self.shared.check_inserted(lsn)?;
        self.shared.wait(lsn, Ask::AtOnce)
    }

    /// The calling thread is about to wait for something else than this log. Others' commits wait until what it has
    /// inserted into a ring in persistent memory is durable, which it sees to; in other logs nothing happens.
    #[inline]
    pub fn settle(&self) {
        self.shared.device.fence();
    }

    /// Everything below is hardened. Always the end of a record.
    #[inline]
    pub fn durable(&self) -> Lsn {
        self.shared.space.hardened()
    }

    /// Whether the record of `gsn` is hardened.
    #[inline]
    pub fn is_hardened(&self, gsn: Gsn) -> bool {
        self.durable().get() > gsn.get()
    }

    /// The LSN that the next record will get: a snapshot.
    pub fn end(&self) -> Lsn {
        self.shared.space.end()
    }

    /// Where the log starts: the position last given to [`Wal::recycle_below`].
    pub fn start(&self) -> Lsn {
        self.shared.segments.start()
    }

    /// Sets disk space for `bytes` of records aside, so that flushing them cannot fail for want of space. Inserting does
    /// not use the reservation up: give it back with [`Wal::unreserve`] *after* the insertions it was for.
    ///
    /// # Errors
    /// [`WalError::Full`] when the log may not or cannot grow, [`WalError::Disk`] when the disk fails otherwise. The log
    /// goes on working either way.
    #[inline]
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        self.shared.reserve(bytes)
    }

    /// Lets the log grow beyond `max_bytes`, as long as the disk has room, or ends that: for what must be logged so that
    /// the log can become smaller again. As often as it is lifted, it has to be put back.
    pub fn lift_limit(&self, lifted: bool) {
        self.shared.segments.lift_limit(lifted);
    }

    /// Gives `bytes` that [`Wal::reserve`] set aside back.
    ///
    /// # Panics
    /// When more is given back than was set aside.
    #[inline]
    pub fn unreserve(&self, bytes: u64) {
        self.shared.segments.unreserve(bytes);
    }

    /// Reads one hardened record.
    ///
    /// # Errors
    /// [`WalError::OutOfRange`] when `lsn` is outside the hardened log, [`WalError::Corrupt`] when no valid record starts
    /// there, [`WalError::Disk`].
    pub fn read(&self, lsn: Lsn) -> Result<Record> {
        let (start, durable) = (self.start(), self.durable());
        let outside = WalError::OutOfRange { lsn, start, end: durable };
        if lsn < start || lsn >= durable {
            return Err(outside);
        }
        self.shared.destage()?;
        let mut scanner = Scanner::one(Arc::clone(&self.shared.files), lsn, Some(durable));
        scanner.next()?.map(|record: RecordRef<'_>| record.to_record()).ok_or(outside)
    }

    /// For [`Wal::read_back`], of one of `logs` logs.
    pub(crate) fn back_scanner(&self, logs: u16) -> BackScanner {
        BackScanner::new(Arc::clone(&self.shared.files), logs)
    }

    /// As [`Wal::read`], for records each of which lies before the one read last.
    pub(crate) fn read_back<'s>(&self, scanner: &'s mut BackScanner, lsn: Lsn) -> Result<RecordRef<'s>> {
        let (start, durable) = (self.start(), self.durable());
        let outside = WalError::OutOfRange { lsn, start, end: durable };
        if lsn < start || lsn >= durable {
            return Err(outside);
        }
        if !scanner.has(lsn) {
            self.shared.destage()?;
        }
        scanner.read(lsn, start, durable)?.ok_or(outside)
    }

    /// Reads the records from `from`, which is the start of one, to where the log is hardened at this moment. From the
    /// end or beyond there are none. That part of the log must not be recycled meanwhile. What is in a ring in persistent
    /// memory is de-staged before; if the log has failed, the scan ends where that has got to.
    pub fn scan(&self, from: Lsn) -> Scanner {
        self.shared.device.harden_released(self.shared.tail());
        let durable = self.shared.destage().unwrap_or_else(|_| self.shared.space.durable());
        Scanner::hardened(Arc::clone(&self.shared.files), from.max(FIRST_LSN).min(durable), durable)
    }

    /// Makes `lsn`, the start of a hardened record (or the end of the hardened log), the start of the log, durably, and
    /// recycles the segments that lie wholly below it. A position below the present start changes nothing. As long as the
    /// archive or a backup needs some of that, it is put off.
    ///
    /// # Errors
    /// [`WalError::OutOfRange`] when `lsn` is beyond the hardened log, [`WalError::Corrupt`] when no record starts there,
    /// [`WalError::Disk`]. Nothing is lost by a failure; what could not be recycled is when the log is next opened.
    pub fn recycle_below(&self, lsn: Lsn) -> Result<()> {
        let durable = self.durable();
        let lsn = if planted!(RecycleTooEarly) { durable } else { lsn };
        if lsn <= self.start() {
            return Ok(());
        }
        if lsn != durable
            // The next recovery depends on it: better to find out now.
            && let Err(error) = self.read(lsn)
        {
            // Unless somebody has recycled more meanwhile.
            return if lsn < self.start() { Ok(()) } else { Err(error) };
        }
        // The start of the log lies in the segments.
        self.shared.destage()?;
        self.shared.segments.recycle_below(lsn)
    }

    /// Longest payload that a record of this log can have, in bytes.
    pub fn max_payload(&self) -> usize {
        self.shared.max_payload
    }

    /// Bytes that a record with a payload of `payload` bytes takes in the log.
    pub const fn record_bytes(payload: usize) -> u64 {
        record_bytes(payload) as u64
    }

    /// The options the log was opened with.
    pub fn options(&self) -> &WalOptions {
        &self.shared.options
    }

    /// Counts since the log was opened, and where it stands.
    pub fn stats(&self) -> WalStats {
        let shared = &*self.shared;
        shared.insertion.collect(&shared.space);
        let (records, ring_full_waits) = shared.space.counts();
        let (flushes, flushed_bytes) = shared.device.writer().counts();
        let (drains, drain_signals, fences) = shared.device.passive().map_or((0, 0, 0), |passive| passive.counts());
        let (hardening_waits, inline_flushes) = shared.queue.counts();
        let (segments_created, segments_recycled) = shared.segments.counts();
        let archiver = shared.archiver.as_ref();
        let (segments_archived, archive_failures) = archiver.map_or((0, 0), Archiver::counts);
        let (start, durable, end) = (self.start(), self.durable(), self.end());
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
            synchronizations: 0,
            waits_for_logs: 0,
            waits_for_own_log: 0,
            start,
            durable,
            end,
            hardened_gsn: Gsn::new(durable.get()),
            end_gsn: Gsn::new(end.get()),
        }
    }

    /// What stopped the log: the failure of a write or sync. Everything but reading is refused then.
    pub fn failure(&self) -> Option<WalError> {
        self.shared.failure().filter(|failure| !matches!(failure, WalError::Closed))
    }

    /// Why the latest segment could not be copied to the archive. The log keeps it and tries again.
    pub fn archive_failure(&self) -> Option<WalError> {
        self.shared.archiver.as_ref().and_then(Archiver::failure)
    }

    /// Waits until all whole segments are in the archive, if there is one, or until it cannot be written.
    pub fn await_archive(&self) {
        self.shared.await_archive();
    }

    /// A warning for people, if hardened records survive less than a power cut, because of what the ring is made of.
    pub fn shortfall(&self) -> Option<String> {
        self.shared.device.shortfall()
    }

    /// Hardens everything inserted before and stops the log's threads. What is not archived yet is when the log is open again. Records inserted afterwards go nowhere. A ring in
    /// persistent memory is given up, with all it holds in the segments; its region is free when the log has been dropped.
    /// Nothing happens the second time.
    ///
    /// # Errors
    /// [`WalError::Failed`] when not everything could be hardened.
    pub fn close(&self) -> Result<()> {
        let was_closed = matches!(self.shared.failure(), Some(WalError::Closed));
        let end = self.end();
        let outcome =
            if end > self.durable() { self.shared.wait(Lsn::new(end.get() - 1), Ask::AtOnce) } else { Ok(()) };
        let outcome = outcome.and_then(|()| self.shared.destage()).map(|_| ());
        self.stop();
        if outcome.is_ok() && !was_closed && self.shared.device.give_up(self.shared.tail()) {
            self.shared.segments.leave_ring()?;
        }
        match outcome {
            Err(WalError::Closed) if was_closed => Ok(()),
            outcome => outcome,
        }
    }

    fn stop(&self) {
        self.shared.fail(WalError::Closed);
        self.daemons.stop(&self.shared);
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        self.stop();
    }
}
