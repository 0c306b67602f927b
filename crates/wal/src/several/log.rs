//! The log: one stream of records, or several streams that act as one (Aether, section 7; Scalable
//! logging through NVM, section 3).
//!
//! Each stream is a [`Stream`] with its own buffer, flush daemon and segments; if there are
//! several, each is called a log. Every record has a GSN, which orders the records of different
//! logs (`clock.rs`); the records of one log are in GSN order.
//!
//! # Sync records
//! A crash may cost one log its last records and spare those of another, but no record may survive
//! that depends on a lost one. So time is divided into *epochs* (`epochs.rs`): a record is never in
//! an earlier epoch than one inserted before it, in any log. A database is consistent if it has, of
//! each log, exactly the records up to the boundary of one epoch. A *sync record* makes such a
//! boundary known after a crash. The thread that inserts it ends the epoch, and notes the boundary
//! and the end of each log, its *tail*. Records up to the boundary lie before the tails; later ones
//! get GSNs above it. The sync record is complete when every log is hardened up to its tail.
//!
//! Opening a database cuts each log behind the highest boundary of a sync record whose tails all
//! lie within the logs as found (`open.rs`). Every acknowledged record lies before the cut, with
//! all records that it depends on. (Recovery in the papers takes the last complete sync record of
//! each log and cuts each log at the highest timestamp among them; here, one GSN cuts all logs.)
//!
//! A commit is acknowledged when a sync record with a boundary above it is complete. One at a time
//! is inserted for all waiting committers: see [`crate::several::commit_rounds`].
//!
//! # One log
//! A log of one stream needs no sync records and no clock: the LSN of a record is its GSN. Its
//! format on disk contains nothing that serves several logs.

use duramen_io::Disk;
use duramen_pmem::Source;
use duramen_sync::atomic::Ordering;
use duramen_sync::{Arc, References};
use duramen_types::{Gsn, LogAddress, LogId, Lsn, PageId, TxnId, planted};

use crate::address::{FIRST_LSN, Inserted};
use crate::buffer::epochs::EpochEnd;
use crate::device::nvm::ring::NvmRing;
use crate::error::{Result, WalError};
use crate::format::header::most_record_bytes;
use crate::format::identity::Identity;
use crate::format::record::NewRecord;
use crate::group_commit::requests::Ask;
use crate::options::{LogDevice, WalOptions};
use crate::segments::archive::Archiver;
use crate::segments::files::OpenFiles;
use crate::segments::scan::Scanner;
use crate::several::archiving::Archiving;
use crate::several::commit_rounds::CommitRounds;
use crate::several::durable_gsn::{DurableGsn, GsnIndex, next};
use crate::several::hardened::Hardened;
use crate::several::hold::LogHold;
use crate::several::log_set::LogSet;
use crate::several::read_back::ReadBack;
use crate::stats::{Extent, WalStats};
use crate::stream::Stream;
use crate::stream::inner::{Common, StreamInner};

/// A write-ahead log of one or more streams, which threads share by reference. Dropping it stops
/// its threads and hardens nothing, like a crash; see [`Log::close`].
#[derive(Debug)]
pub struct Log {
    streams: Box<[Stream]>,
    log_set: Arc<LogSet>,
    /// The state that makes several streams one log.
    several: Option<Several>,
    /// Present if the log is archived.
    archiving: Option<Arc<Archiving>>,
}

/// The state that several logs share: what is durable across them, and the rounds that serve them.
#[derive(Debug)]
struct Several {
    complete: Arc<DurableGsn>,
    rounds: References<CommitRounds>,
}

impl Log {
    /// Creates an empty log, durably, in the subdirectory `log` of `disk`, and in `log1` and so on
    /// if it has several streams. The caller ensures that no other process opens or creates the
    /// same log ([`Disk::lock`]). `database` enters every checksum.
    ///
    /// # Errors
    /// [`WalError::InvalidOption`], [`WalError::AlreadyExists`], [`WalError::Full`],
    /// [`WalError::Region`], [`WalError::WrongRing`], or the error of the disk.
    pub fn create(disk: &Arc<dyn Disk>, options: &WalOptions, database: [u8; 16]) -> Result<Self> {
        options.validate()?;
        if let Some(home) = disk.directory() {
            options.check_places(&home, &[])?;
        }
        let common = Common::new(options, Gsn::new(FIRST_LSN.get()))?;
        let home = OpenFiles::of(Arc::clone(disk));
        let create = |log| {
            let identity = Identity::one_of(database, log, options.logs);
            Stream::create(Arc::clone(&home), options.clone(), identity, &common).map_err(|error| error.in_log(log))
        };
        let streams = (0..options.logs).map(LogId::new).map(create).collect::<Result<Vec<_>>>()?;
        Self::new(streams, Gsn::ZERO, Vec::new())
    }

    /// Checks that a new log, before it is created, can take the existing regions for its rings.
    ///
    /// # Errors
    /// [`WalError::Region`], [`WalError::WrongRing`].
    pub fn check_regions(options: &WalOptions) -> Result<()> {
        options.validate()?;
        let LogDevice::Nvm(nvm) = &options.device else { return Ok(()) };
        for log in (0..options.logs).map(LogId::new) {
            let nvm = nvm.of_log(log)?;
            NvmRing::check_drain(&nvm)?;
            // An interrupted creation leaves a file of length zero.
            if let Source::File(path) = &nvm.source
                && path.metadata().is_ok_and(|metadata| !metadata.is_file() || metadata.len() > 0)
            {
                let identity = Identity::one_of([0; 16], log, options.logs);
                NvmRing::open(&nvm, options.ring_bytes, 0, true)?.find(&identity, 0)?;
            }
        }
        Ok(())
    }

    /// Combines `streams`, which are durable up to `complete`, into one log.
    pub(crate) fn new(streams: Vec<Stream>, complete: Gsn, gsn_index: Vec<GsnIndex>) -> Result<Self> {
        let log_set =
            Arc::new(LogSet::new(streams.iter().map(|stream| Arc::clone(&stream.shared)).collect(), gsn_index));
        let several = (streams.len() > 1).then(|| {
            let complete = Arc::new(DurableGsn::new(complete));
            let rounds = Arc::new(CommitRounds::new(Arc::clone(&log_set), Arc::clone(&complete)));
            Several { complete, rounds: References::new(rounds) }
        });
        let of_several = |several: &Several| (Arc::clone(&several.complete), Arc::clone(&several.rounds));
        let archiving = Archiving::of(&log_set, several.as_ref().map(of_several));
        let log = Self { streams: streams.into(), log_set, several, archiving };
        log.several.as_ref().map_or(Ok(()), |several| several.rounds.start())?;
        log.archiving.as_ref().map_or(Ok(()), Archiving::start)?;
        Ok(log)
    }

    /// Returns the number of streams.
    #[inline]
    pub fn count(&self) -> u16 {
        self.streams.len() as u16
    }

    pub(crate) fn all(&self) -> &[Arc<StreamInner>] {
        self.log_set.all()
    }

    /// Returns the bytes that the logs count as reserved and that no transaction holds.
    pub(crate) fn unassigned(&self) -> u64 {
        self.log_set.reservation.unassigned()
    }

    /// Gives back to the logs the bytes that no transaction holds.
    pub(crate) fn give_back(&self) {
        self.log_set.reservation.give_back(self.all());
    }

    /// Inserts a record into `log`. Its GSN is higher than `record.after` and than the GSNs of all
    /// earlier records of the log. Insertion never fails: a log that has failed discards the
    /// record, and hardening the record reports the failure. Blocks while the buffer is full.
    ///
    /// # Panics
    /// When the payload is longer than [`WalOptions::max_payload`], or uses the log's own flag; and
    /// when [`NewRecord::prev`] is not an earlier record that the log holds, unless the log may
    /// grow so large that headers do not depend on this.
    #[inline]
    pub fn insert(&self, log: LogId, record: NewRecord<'_>) -> Inserted {
        match &*self.streams {
            [only] => only.shared.insert(record),
            _ => {
                let NewRecord { kind, flags, txn, page, prev, after, payload } = record;
                self.insert_into_several(log, [kind, flags], txn, page, prev, after, payload)
            }
        }
    }

    /// Inserts a record into one of several logs. It takes the fields of the record one by one, so
    /// that callers do not build the structure in memory, where [`Log::insert`] does not need it if
    /// there is only one log.
    #[inline(never)]
    #[allow(clippy::too_many_arguments, reason = "see above")]
    fn insert_into_several(
        &self,
        log: LogId,
        [kind, flags]: [u8; 2],
        txn: TxnId,
        page: PageId,
        prev: LogAddress,
        after: Gsn,
        payload: &[u8],
    ) -> Inserted {
        self.log_set.insert(log, NewRecord { kind, flags, txn, page, prev, after, payload }, None)
    }

    /// Inserts a sync record, as [`Log::insert`] does: every later record, in any log, has a GSN
    /// above its [`crate::RecordRef::boundary`]. `begun` receives, for each log, a position behind
    /// which all records above the boundary lie; with one log, and in `log`, that of the record.
    pub fn insert_sync_record(&self, log: LogId, record: NewRecord<'_>, begun: &mut Vec<Lsn>) -> Inserted {
        let mut epoch = EpochEnd::default();
        let inserted = match &self.several {
            None => self.insert(log, record),
            Some(_) => self.log_set.insert(log, record, Some(&mut epoch)),
        };
        // A log that has failed takes no record.
        epoch.begun.resize(self.streams.len(), FIRST_LSN);
        epoch.begun[usize::from(log.get())] = inserted.lsn;
        begun.append(&mut epoch.begun);
        inserted
    }

    /// Returns, for each log, a position before which all records have GSNs below `gsn`.
    pub fn positions_before(&self, gsn: Gsn) -> Vec<Lsn> {
        (0..self.streams.len()).map(|log| self.log_set.position_before(log, gsn)).collect()
    }

    /// Returns, for each log, the end of its records below `gsn`. All of these are hardened, and no
    /// other record lies before it. With one log, a record starts at `gsn`, or the log ends there.
    ///
    /// # Errors
    /// [`WalError::Corrupt`], [`WalError::Disk`], or the error that stopped the log.
    pub fn ends_before(&self, gsn: Gsn) -> Result<Vec<Lsn>> {
        let end = |(log, from): (usize, Lsn)| {
            let mut scanner = self.streams[log].scan(from);
            while let Some(record) = scanner.next().map_err(|error| error.in_log(LogId::new(log as u16)))? {
                if record.gsn >= gsn {
                    return Ok(record.lsn);
                }
            }
            Ok(scanner.position())
        };
        self.positions_before(gsn).into_iter().enumerate().map(end).collect()
    }

    /// Returns a GSN such that every record below it is known to survive a crash, and every record
    /// that is inserted later has this GSN or a higher one.
    #[inline]
    pub fn hardened_below(&self) -> Gsn {
        match &self.several {
            None => Gsn::new(self.streams[0].shared.space.hardened().get()),
            Some(several) => next(several.complete.get()),
        }
    }

    /// Returns whether everything up to and including `gsn` is known to survive a crash.
    #[inline]
    pub fn is_hardened(&self, gsn: Gsn) -> bool {
        gsn < self.hardened_below()
    }

    /// Reserves disk space for [`Log::synchronize`], as far as there is any.
    pub fn reserve_for_sync_records(&self) {
        self.log_set.reserve_for_sync_records();
    }

    /// Inserts, into several logs, a sync record without other payload, beyond the limit of the log
    /// if necessary: the log may be unable to shrink before the record is hardened.
    ///
    /// # Errors
    /// [`WalError::Full`] when the disk itself has no space, [`WalError::Disk`].
    pub fn synchronize(&self) -> Result<Inserted> {
        self.log_set.synchronize(LogId::ZERO).map(|(inserted, _)| inserted)
    }

    /// Blocks until everything up to and including `gsn`, that of a record, survives a crash; `own`
    /// is its address, if known. Fastest for a thread with no other work, which may flush itself.
    ///
    /// # Errors
    /// [`WalError::Failed`] or [`WalError::Closed`] when the record will not be hardened; with one
    /// log, [`WalError::OutOfRange`] when there is no such record.
    pub fn wait_hardened(&self, gsn: Gsn, own: Option<LogAddress>) -> Result<()> {
        match &self.several {
            _ if self.is_hardened(gsn) || planted!(AcknowledgeBeforeFlush) => Ok(()),
            None => self.streams[0].shared.wait(Lsn::new(gsn.get()), Ask::Grouped),
            Some(several) => several.rounds.wait(own.map(LogAddress::log), gsn, Ask::Grouped),
        }
    }

    /// Waits as [`Log::wait_hardened`] does, for records that are not commits but may delay
    /// commits. It does not wait for a group to form as [`crate::GroupCommit`] configures it.
    ///
    /// # Errors
    /// As [`Log::wait_hardened`].
    pub fn harden_at_once(&self, gsn: Gsn, own: Option<LogAddress>) -> Result<()> {
        match &self.several {
            _ if self.is_hardened(gsn) => Ok(()),
            None => self.streams[0].shared.wait(Lsn::new(gsn.get()), Ask::AtOnce),
            Some(several) => several.rounds.wait(own.map(LogAddress::log), gsn, Ask::AtOnce),
        }
    }

    /// Requests, without blocking, that everything up to and including `gsn` be hardened.
    pub fn harden(&self, gsn: Gsn) -> Hardened {
        match &self.several {
            None => Hardened::of_one(&self.streams[0].shared, Lsn::new(gsn.get())),
            Some(several) => {
                if !self.is_hardened(gsn) {
                    several.rounds.request(gsn);
                }
                Hardened::of_several(&several.rounds, gsn)
            }
        }
    }

    /// Call this before waiting for anything but this log. Where threads fence rings in persistent
    /// memory, it fences this thread's records, for which other commits wait. Else it does nothing.
    #[inline]
    pub fn before_blocking(&self) {
        match &self.several {
            Some(several) => several.rounds.fence(),
            None => self.streams[0].shared.device.fence(),
        }
    }

    /// Returns a warning for operators if a ring's memory may lose hardened records in a power cut.
    pub fn shortfall(&self) -> Option<String> {
        self.streams.iter().find_map(|log| log.shared.device.region()?.shortfall())
    }

    /// Keeps everything from the present start of the log on, until the [`LogHold`] is dropped.
    pub fn hold(&self) -> LogHold {
        LogHold::new(self.all())
    }

    /// Gives back to the file system what the segment with the log's start holds before it, if that
    /// can be done, unless there is an archive. A backup that was taken before can no more be
    /// brought up to date with this log.
    pub fn discard_past(&self) {
        self.all().iter().for_each(|shared| shared.segments.discard_past());
    }

    /// Waits until all whole segments are in the archive, if there is one, or it cannot be written.
    pub fn await_archive(&self) {
        // The archiver may have to wait for records that this thread has inserted.
        self.before_blocking();
        self.archiving.iter().for_each(|archiving| archiving.await_all());
    }

    /// Returns why the latest segment could not be archived. The log keeps it and retries.
    pub fn archive_failure(&self) -> Option<WalError> {
        self.all().iter().find_map(|shared| shared.archiver.as_ref().and_then(Archiver::failure))
    }

    /// Returns a GSN below which no log will insert a record from now on.
    pub fn earliest(&self) -> Gsn {
        (0..self.streams.len()).map(|log| self.log_set.now(log)).min().expect("there is a log")
    }

    /// Returns a GSN that is higher than the GSN of every record inserted so far.
    pub fn latest(&self) -> Gsn {
        (0..self.streams.len()).map(|log| self.log_set.now(log)).max().expect("there is a log")
    }

    /// Reserves disk space for `bytes` of records in every log, so that flushing them cannot fail
    /// for lack of space and the caller need not choose the log in advance. Insertion does not
    /// consume the reservation: give it back with [`Log::unreserve`] *after* the insertions that it
    /// covers. If the thread has to wait, it first calls [`Log::before_blocking`].
    ///
    /// # Errors
    /// [`WalError::Full`] when the log may not or cannot grow, [`WalError::Disk`] when the disk
    /// fails otherwise. In both cases the log continues to work and nothing is reserved.
    #[inline]
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        let reservation = &self.log_set.reservation;
        reservation.reserve(reservation.here(), self.all(), bytes, || self.before_blocking())
    }

    /// Reserves as [`Log::reserve`] does, beyond the limits of the logs if the disk has space.
    ///
    /// # Errors
    /// As [`Log::reserve`]; nothing is reserved then.
    pub fn reserve_beyond_limit(&self, bytes: u64) -> Result<()> {
        self.before_blocking();
        self.log_set.reservation.reserve_exactly(self.all(), bytes, |lifted| self.lift_limit(lifted))
    }

    /// Gives back `bytes` that [`Log::reserve`] reserved.
    #[inline]
    pub fn unreserve(&self, bytes: u64) {
        let reservation = &self.log_set.reservation;
        reservation.unreserve(reservation.here(), self.all(), bytes);
    }

    /// Gives back reserved bytes as [`Log::unreserve`] does, if no record has taken them.
    #[inline]
    pub fn unreserve_unused(&self, bytes: u64) {
        let reservation = &self.log_set.reservation;
        reservation.unreserve_unused(reservation.here(), self.all(), bytes);
    }

    /// Lets the log grow beyond `max_bytes` while the disk has space, for records that let it
    /// shrink, or restores the limit. Each call that lifts it needs one that restores it.
    pub fn lift_limit(&self, lifted: bool) {
        self.all().iter().for_each(|shared| shared.segments.lift_limit(lifted));
    }

    /// Returns a reader for single records, as those of a transaction, the latest first.
    pub fn read_back(&self) -> ReadBack<'_> {
        ReadBack::new(&self.streams)
    }

    /// Reads the records of one log in order, from `from`, the start of a record, to the current
    /// hardened end. A position at or beyond it yields none. Do not recycle that part meanwhile.
    pub fn scan(&self, log: LogId, from: Lsn) -> Scanner {
        self.streams[usize::from(log.get())].scan(from)
    }

    /// Discards the records below `gsn`, durably, and recycles the segments that hold nothing else.
    /// With one log, `gsn` is the start of a hardened record or the end of the hardened log.
    /// Segments that the archive or a backup still needs are recycled later.
    ///
    /// # Errors
    /// [`WalError::OutOfRange`] when `gsn` is beyond the hardened log, [`WalError::Corrupt`] when
    /// no record starts there, [`WalError::Disk`]. Nothing is lost; the next opening resumes it.
    pub fn recycle_below(&self, gsn: Gsn) -> Result<()> {
        for (log, position) in self.positions_before(gsn).into_iter().enumerate() {
            self.streams[log].recycle_below(position).map_err(|error| error.in_log(LogId::new(log as u16)))?;
            self.log_set.truncate_gsn_index(log, position);
        }
        Ok(())
    }

    /// Returns the maximum size, in bytes, of a record with a payload of `payload` bytes.
    pub fn record_bytes(&self, payload: usize) -> u64 {
        most_record_bytes(payload + self.log_set.tail()) as u64
    }

    /// Returns the start, the durable position and the end of each log.
    pub fn extents(&self) -> Vec<Extent> {
        self.streams.iter().map(Stream::extent).collect()
    }

    /// Assigns the rings in persistent memory to this generation of the database, durably, before
    /// the database records it as the current one. See [`WalOptions::generation`].
    pub fn stamp_rings(&self, generation: u64) {
        self.streams.iter().for_each(|log| log.shared.device.set_generation(generation));
    }

    /// Returns the counts since opening, summed over all logs. The LSNs are those of the first log.
    pub fn stats(&self) -> WalStats {
        let mut sum = self.streams[0].stats();
        self.streams[1..].iter().for_each(|log| sum.add(&log.stats()));
        (sum.hardened_gsn, sum.end_gsn) = (self.hardened_below(), self.latest());
        sum.reserved_bytes = sum.reserved_bytes.saturating_sub(self.unassigned());
        sum.sync_records = self.log_set.sync_records.load(Ordering::Relaxed);
        if let Some(several) = &self.several {
            several.rounds.count(&mut sum);
        }
        sum
    }

    /// Returns the failure of a write or sync that stopped the log for everything but reading.
    pub fn failure(&self) -> Option<WalError> {
        self.streams.iter().find_map(Stream::failure)
    }

    /// Hardens everything inserted before this call and stops the threads of the log. Later records
    /// are discarded. Segments that are not archived yet are archived when the log is next open. A
    /// ring in persistent memory is written to the segments and released; its region is free once
    /// the log has been dropped. A second call does nothing.
    ///
    /// # Errors
    /// [`WalError::Failed`] when not everything could be hardened; the threads have stopped anyway.
    pub fn close(&self) -> Result<()> {
        match &self.several {
            // The archiver of one stream inserts nothing, and its disk may be slow.
            None => drop(self.streams[0].harden_all()),
            Some(several) => {
                self.archiving.iter().for_each(|archiving| archiving.stop());
                // Notifies all waiters of records inserted so far. The streams report the outcome.
                let _ = several.rounds.wait(None, Gsn::new(self.latest().get() - 1), Ask::AtOnce);
            }
        }
        self.stop();
        // The files need not have space for it when they are opened again.
        self.give_back();
        let outcomes: Vec<Result<()>> = self.streams.iter().map(Stream::close).collect();
        outcomes.into_iter().collect()
    }

    /// Stops the threads that serve all streams, before the streams: they may insert sync records.
    fn stop(&self) {
        self.archiving.iter().for_each(|archiving| archiving.stop());
        self.several.iter().for_each(|several| several.rounds.stop());
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if self.several.is_none() {
            self.streams[0].shared.fail(WalError::Closed);
        }
        self.stop();
    }
}
