//! The log: one stream of records, or several that work as one (Aether, section 7; Scalable logging
//! through NVM, section 3).
//!
//! Each stream is a [`Stream`] with buffer, flush daemon and segments of its own; where there are
//! several, each is called a log. What makes them one is time: every record has a GSN, by which
//! records of different logs are ordered (`clock.rs`), and a log's records are in the order of
//! their GSNs.
//!
//! # Synchronization
//! After a crash one log may have lost its last records and another not; what depends on a lost
//! record must not survive. A record's GSN is higher than that of everything it depends on, so a
//! database is whole if it has, of each log, exactly the records up to some GSN. To know one after
//! a crash, a commit and whatever else is acted on outside is a *synchronization*
//! ([`Log::insert_synchronized`]): with the GSN `g` at hand the inserter raises the clocks of all
//! other logs beyond `g` and then notes where each of them ends, its tail. All records up to `g`
//! lie before these tails, and no later one gets a GSN so low. The tails are part of the record. It
//! is acknowledged when every log is hardened up to its tail.
//!
//! Opening finds the end of each log and then the synchronization with the highest GSN whose tails
//! all lie within the logs found; each log is cut behind that GSN (`open.rs`). Everything
//! acknowledged is before the cut, and nothing before the cut lacks anything. (The papers' recovery
//! takes the last complete synchronization of each log and cuts each log at the highest timestamp
//! among them; here that is one GSN for all logs.)
//!
//! # Hardened together
//! Where the logs end in rings behind volatile caches, or by
//! [`WalOptions::shared_synchronizations`], commits are not synchronizations. Their clocks share a
//! floor, which a commit raises beyond its GSN, and one synchronization after the other is inserted
//! for all who wait: see [`crate::several::commit_rounds`].
//!
//! # One log
//! needs none of this. A database's only log has the LSN for its GSN, no clock, no
//! synchronizations, and the bytes on disk that it always had.

use std::path::Path;

use duramen_io::Disk;
use duramen_pmem::Source;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Arc, CachePadded, References};
use duramen_types::{Gsn, LogAddress, LogId, Lsn, planted};

use crate::address::{FIRST_LSN, Inserted};
use crate::buffer::positions::Space;
use crate::device::nvm::ring::NvmRing;
use crate::error::{Result, WalError};
use crate::format::record::{Identity, NewRecord, Record, record_bytes};
use crate::group_commit::requests::Ask;
use crate::options::{LogDevice, WalOptions};
use crate::segments::archive::Archiver;
use crate::segments::files::OpenFiles;
use crate::segments::scan::Scanner;
use crate::several::archiving::Archiving;
use crate::several::commit_rounds::CommitRounds;
use crate::several::complete::{DurableGsn, GsnIndex, next};
use crate::several::hardened::Hardened;
use crate::several::hold::LogHold;
use crate::several::log_set::LogSet;
use crate::several::merge::MergedScanner;
use crate::several::read_back::ReadBack;
use crate::stats::{Extent, WalStats};
use crate::stream::Stream;
use crate::stream::copy::StreamHold;
use crate::stream::inner::{Common, StreamInner};
use crate::stream::part::{Hardens, Part};

/// A write-ahead log, of one or more streams. StreamInner by reference between threads.
///
/// Dropping it stops its threads without hardening anything, like a crash; see [`Log::close`].
#[derive(Debug)]
pub struct Log {
    streams: Box<[Stream]>,
    log_set: Arc<LogSet>,
    /// What it takes for several to be one.
    several: Option<Several>,
}

/// How far several logs are one, and what makes them so.
#[derive(Debug)]
struct Several {
    complete: References<DurableGsn>,
    /// If they are hardened log_set.
    group: Option<References<CommitRounds>>,
    /// If they are archived.
    archiving: Option<Archiving>,
    waits: CachePadded<AtomicU64>,
    own_waits: AtomicU64,
}

impl Several {
    /// Adds what has been waited for to the sum of what the logs have counted.
    fn count_waits(&self, sum: &mut WalStats) {
        sum.waits_for_logs = self.waits.load(Ordering::Relaxed);
        sum.waits_for_own_log = self.own_waits.load(Ordering::Relaxed);
        if let Some(group) = &self.group {
            group.count(sum);
        }
    }

    /// Hardens what is hardened together, and stops.
    fn close(&self, latest: impl FnOnce() -> Gsn) {
        self.archiving.iter().for_each(Archiving::stop);
        if let Some(group) = &self.group {
            // Those who wait for what has been inserted are told so. The outcome is that of the
            // logs.
            let _ = group.wait(Gsn::new(latest().get() - 1), Ask::AtOnce);
        }
        self.stop();
    }

    /// Stops the threads, before those of the logs: they may insert synchronizations.
    fn stop(&self) {
        self.archiving.iter().for_each(Archiving::stop);
        self.group.iter().for_each(|group| group.stop());
    }
}

impl Log {
    /// Makes an empty log in the subdirectory `log` of `disk`, and `log1` and so on if it has
    /// several streams; it is durable when this returns. Whoever opens or creates a log sees to it
    /// that nobody else does ([`Disk::lock`]). `database` is mixed into every checksum.
    ///
    /// # Errors
    /// [`WalError::InvalidOption`], [`WalError::AlreadyExists`], [`WalError::Full`],
    /// [`WalError::Region`], [`WalError::WrongRing`], or what the disk says.
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

    /// Checks, before anything is made, that the regions which are there for the rings of a new log
    /// can be taken.
    ///
    /// # Errors
    /// [`WalError::Region`], [`WalError::WrongRing`].
    pub fn check_regions(options: &WalOptions) -> Result<()> {
        options.validate()?;
        let LogDevice::Nvm(nvm) = &options.device else { return Ok(()) };
        for log in (0..options.logs).map(LogId::new) {
            let nvm = nvm.of_log(log)?;
            // A file without length is what an interrupted creation has left.
            let is_there =
                |path: &Path| path.metadata().is_ok_and(|metadata| !metadata.is_file() || metadata.len() > 0);
            if matches!(&nvm.source, Source::File(path) if is_there(path)) {
                let identity = Identity::one_of([0; 16], log, options.logs);
                NvmRing::open(&nvm, options.ring_bytes, 0, true)?.find(&identity, 0)?;
            }
        }
        Ok(())
    }

    /// Of these, which are complete up to a GSN.
    pub(crate) fn new(streams: Vec<Stream>, complete: Gsn, gsn_index: Vec<GsnIndex>) -> Result<Self> {
        let log_set =
            Arc::new(LogSet::new(streams.iter().map(|stream| Arc::clone(&stream.shared)).collect(), gsn_index));
        let several = (streams.len() > 1).then(|| {
            let complete = Arc::new(DurableGsn::new(complete));
            let group = streams[0].shared.device.passive().map(|passive| {
                References::new(Arc::new(CommitRounds::new(
                    Arc::clone(&log_set),
                    Arc::clone(passive),
                    Arc::clone(&complete),
                )))
            });
            Several {
                archiving: Archiving::of(&log_set, &complete, group.as_deref()),
                complete: References::new(complete),
                group,
                waits: CachePadded::new(AtomicU64::new(0)),
                own_waits: AtomicU64::new(0),
            }
        });
        let log = Self { streams: streams.into(), log_set, several };
        if let Some(Several { group, archiving, .. }) = &log.several {
            group.as_deref().map_or(Ok(()), CommitRounds::start)?;
            archiving.as_ref().map_or(Ok(()), Archiving::start)?;
        }
        Ok(log)
    }

    /// How many streams it has.
    #[inline]
    pub fn count(&self) -> u16 {
        self.streams.len() as u16
    }

    fn stream(&self, log: LogId) -> &Stream {
        &self.streams[usize::from(log.get())]
    }

    pub(crate) fn all(&self) -> &[Arc<StreamInner>] {
        self.log_set.all()
    }

    /// Bytes that the logs count as set aside and nobody is promised.
    pub(crate) fn unpromised(&self) -> u64 {
        self.log_set.reservation.unpromised()
    }

    /// Gives the logs back what nobody is promised.
    #[cfg(test)]
    pub(crate) fn give_back(&self) {
        self.log_set.reservation.give_back(self.all());
    }

    fn group(&self) -> Option<&References<CommitRounds>> {
        self.several.as_ref()?.group.as_ref()
    }

    /// Inserts a record into `log`. Its GSN is higher than `record.after` and than those of all
    /// earlier records of the log. Never fails: on a log that has failed the record goes nowhere,
    /// and hardening it reports the failure. Blocks while the buffer is full.
    ///
    /// # Panics
    /// When the payload is longer than [`Log::max_payload`], or uses the log's own flag.
    #[inline]
    pub fn insert(&self, log: LogId, record: NewRecord<'_>) -> Inserted {
        match &*self.streams {
            [only] => only.insert(record),
            _ => self.log_set.insert(log, record, None),
        }
    }

    /// As [`Log::insert`], and makes it a synchronization of all logs: [`Log::wait_hardened`] for
    /// it has everything up to its GSN survive any crash, whatever log it is in; and whatever is
    /// inserted afterwards, into any log, has a higher GSN. Where other logs ended goes to `tails`,
    /// if somebody wants to know; with one log, where the record is. Logs that are hardened
    /// together insert synchronizations by themselves: there this is one only if somebody wants to
    /// know.
    pub fn insert_synchronized(&self, log: LogId, record: NewRecord<'_>, tails: Option<&mut Vec<Lsn>>) -> Inserted {
        let mut noted = Vec::new();
        let inserted = match &self.several {
            None => self.insert(log, record),
            Some(Several { group: Some(_), .. }) if tails.is_none() => self.log_set.insert_commit(log, record),
            Some(_) => self.log_set.insert(log, record, Some(&mut noted)),
        };
        if let Some(tails) = tails {
            // A log that has failed takes no record.
            noted.resize(self.streams.len(), FIRST_LSN);
            noted[usize::from(log.get())] = inserted.lsn;
            tails.append(&mut noted);
        }
        inserted
    }

    /// For each log, a position before which all records have GSNs below `gsn`.
    pub fn positions_before(&self, gsn: Gsn) -> Vec<Lsn> {
        (0..self.streams.len()).map(|log| self.log_set.position_before(log, gsn)).collect()
    }

    /// For each log, where its records below `gsn` end, all of which are hardened: no record at or
    /// above it lies before that.
    ///
    /// # Errors
    /// [`WalError::Corrupt`], [`WalError::Disk`], or what stopped the log.
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

    /// Every record below this GSN survives a crash, as far as is known.
    #[inline]
    fn hardened_below(&self) -> Gsn {
        match &self.several {
            None => Gsn::new(self.streams[0].shared.space.hardened().get()),
            Some(several) => next(several.complete.get()),
        }
    }

    /// Whether everything up to and including `gsn` survives a crash, as far as is known.
    #[inline]
    pub fn is_hardened(&self, gsn: Gsn) -> bool {
        gsn < self.hardened_below()
    }

    /// Sets room for [`Log::synchronize`] aside, as far as there is room.
    pub fn set_room_aside(&self) {
        self.log_set.set_room_aside();
    }

    /// Inserts a synchronization that is about nothing else, of several logs, for everything up to
    /// `gsn`. There is room for it, if need be beyond the limit of the log: it may be what has to
    /// happen before the log can become smaller.
    ///
    /// # Errors
    /// [`WalError::Full`] when not even the disk has room, [`WalError::Disk`].
    pub fn synchronize(&self, gsn: Gsn) -> Result<Inserted> {
        self.log_set.synchronize(gsn, &mut Vec::new())
    }

    /// Whether [`Log::wait_hardened`] and the like need a synchronization. One log needs none, and
    /// several that are hardened together insert them by themselves, one for all who wait.
    pub fn needs_synchronizations(&self) -> bool {
        self.several.as_ref().is_some_and(|several| several.group.is_none())
    }

    /// Blocks until everything up to and including `gsn` survives a crash. That is the GSN of a
    /// synchronization, at `own` if the caller knows, or, where none is needed
    /// ([`Log::needs_synchronizations`]), of any record. The fast way for a thread that has nothing
    /// else to do: it may do the flush itself.
    ///
    /// # Errors
    /// [`WalError::Failed`] or [`WalError::Closed`] when it will not; [`WalError::OutOfRange`] when
    /// there is no such record.
    pub fn wait_hardened(&self, gsn: Gsn, own: Option<LogAddress>) -> Result<()> {
        self.wait(gsn, own, Ask::Grouped)
    }

    /// As [`Log::wait_hardened`], for what is no commit and what commits may have to wait for: it
    /// does not wait for the company that [`crate::GroupCommit`] asks for.
    ///
    /// # Errors
    /// As [`Log::wait_hardened`].
    pub fn harden_at_once(&self, gsn: Gsn, own: Option<LogAddress>) -> Result<()> {
        self.wait(gsn, own, Ask::AtOnce)
    }

    /// Asks for everything up to and including `gsn` to survive a crash; see
    /// [`Log::wait_hardened`]. Does not block.
    pub fn harden(&self, gsn: Gsn, own: Option<LogAddress>) -> Hardened {
        if let Some(group) = self.group() {
            if !self.is_hardened(gsn) {
                group.request(gsn);
            }
            return Hardened::of_rounds(group.take(), gsn);
        }
        let (last, others) = self.unhardened(gsn, own);
        // Position zero, where nothing is missing: it is before everything that any log holds.
        let (log, lsn) = last.unwrap_or((0, Lsn::ZERO));
        let last = Part::request(&self.streams[log].shared, lsn);
        let complete = self.several.as_ref().map(|several| (several.complete.take(), gsn));
        Hardened::of_parts(last, others, complete)
    }

    fn wait(&self, gsn: Gsn, own: Option<LogAddress>, ask: Ask) -> Result<()> {
        if self.is_hardened(gsn) || planted!(AcknowledgeBeforeFlush) {
            return Ok(());
        }
        if let Some(group) = self.group() {
            group.request(gsn);
            return group.wait(gsn, ask);
        }
        // This thread may do the flush of one log itself; the daemons of the others are at work
        // meanwhile.
        if let (Some((log, lsn)), others) = self.unhardened(gsn, own) {
            let shared = &self.streams[log].shared;
            let waited = shared.check_inserted(lsn).and_then(|()| shared.wait(lsn, ask));
            waited.map_err(|error| error.in_log(LogId::new(log as u16)))?;
            others.iter().try_for_each(|part| part.wait(Ask::Requested))?;
        }
        if let Some(several) = &self.several {
            several.complete.note(gsn);
        }
        Ok(())
    }

    /// What has to be hardened for everything up to `gsn` to survive a crash. With one log that is
    /// the record itself. With several it is what of each has been inserted by now, which includes
    /// what a synchronization has noted; of the own log no more than is known to be needed. The
    /// last of them is returned by itself, as the last byte of a log; the others have been
    /// requested.
    fn unhardened(&self, gsn: Gsn, own: Option<LogAddress>) -> (Option<(usize, Lsn)>, Vec<Part>) {
        let Some(several) = &self.several else { return (Some((0, Lsn::new(gsn.get()))), Vec::new()) };
        several.waits.fetch_add(1, Ordering::Relaxed);
        let space = |log: usize| -> &Space { &self.streams[log].shared.space };
        let mut parts = Vec::with_capacity(self.streams.len());
        let own_number = own.map(|own| usize::from(own.log().get()));
        for log in (0..self.streams.len()).filter(|log| Some(*log) != own_number) {
            let end = space(log).end();
            if space(log).hardened() < end && !(own.is_some() && planted!(OwnLogHardenedOnly)) {
                parts.push((log, Lsn::new(end.get() - 1)));
            }
        }
        if parts.is_empty() {
            several.own_waits.fetch_add(1, Ordering::Relaxed);
        }
        let own = own.filter(|own| space(usize::from(own.log().get())).hardened() <= own.lsn());
        let last = own.map(|own| (usize::from(own.log().get()), own.lsn())).or_else(|| parts.pop());
        let request = |(log, lsn): (usize, Lsn)| Part::request(&self.streams[log].shared, lsn);
        (last, parts.into_iter().map(request).collect())
    }

    /// The calling thread is about to wait for something else than this log. Others' commits wait
    /// until what it has inserted into rings in persistent memory is durable, which it sees to; in
    /// other logs nothing happens.
    #[inline]
    pub fn before_blocking(&self) {
        match self.group() {
            Some(group) => group.fence(),
            None => self.streams.iter().for_each(|log| log.shared.device.fence()),
        }
    }

    /// A warning for people, if hardened records survive less than a power cut, because of what a
    /// ring is made of.
    pub fn shortfall(&self) -> Option<String> {
        self.streams.iter().find_map(|log| log.shared.device.shortfall())
    }

    /// Keeps everything from the log's present start on. A log that is held may grow up to its
    /// limit, and reservations then get [`WalError::Full`].
    pub fn hold(&self) -> LogHold {
        LogHold::new(self.all().iter().map(|shared| StreamHold::new(Arc::clone(shared))).collect())
    }

    /// Waits until all whole segments are in the archive, if there is one, or until it cannot be
    /// written.
    pub fn await_archive(&self) {
        // The archive may have to wait for what this thread has inserted.
        self.before_blocking();
        match &self.several {
            Some(several) => several.archiving.iter().for_each(Archiving::await_all),
            None => self.streams[0].shared.await_archive(),
        }
    }

    /// Why the latest segment could not be copied to the archive. The log keeps it and tries again.
    pub fn archive_failure(&self) -> Option<WalError> {
        self.all().iter().find_map(|shared| shared.archiver.as_ref().and_then(Archiver::failure))
    }

    /// No record from now on, in any log, gets a GSN below this.
    pub fn earliest(&self) -> Gsn {
        (0..self.streams.len()).map(|log| self.log_set.now(log)).min().expect("there is a log")
    }

    /// The GSN of every record inserted by now is below this.
    pub fn latest(&self) -> Gsn {
        self.log_set.latest()
    }

    /// Sets disk space for `bytes` of records aside, so that flushing them cannot fail for want of
    /// space: in every log, as which of them takes the records need not be known. Inserting does
    /// not use the reservation up: give it back with [`Log::unreserve`] *after* the insertions it
    /// was for. The calling thread settles if it has to wait.
    ///
    /// # Errors
    /// [`WalError::Full`] when the log may not or cannot grow, [`WalError::Disk`] when the disk
    /// fails otherwise. The log goes on working either way, and nothing is set aside.
    #[inline]
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        self.log_set.reservation.reserve(self.log_set.all(), bytes, || self.before_blocking())
    }

    /// As [`Log::reserve`], even if the logs exceed their limits by it, as long as the disk has
    /// room.
    ///
    /// # Errors
    /// As [`Log::reserve`]; nothing is set aside then.
    pub fn reserve_beyond_limit(&self, bytes: u64) -> Result<()> {
        self.before_blocking();
        self.log_set.reservation.reserve_exactly(self.log_set.all(), bytes, |lifted| self.lift_limit(lifted))
    }

    /// Gives `bytes` that [`Log::reserve`] set aside back.
    #[inline]
    pub fn unreserve(&self, bytes: u64) {
        self.log_set.reservation.unreserve(self.log_set.all(), bytes);
    }

    /// As [`Log::unreserve`], of bytes that no record has taken.
    #[inline]
    pub fn unreserve_unused(&self, bytes: u64) {
        self.log_set.reservation.unreserve_unused(self.log_set.all(), bytes);
    }

    /// Lets the log grow beyond `max_bytes`, as long as the disk has room, or ends that: for what
    /// must be logged so that the log can become smaller again. As often as it is lifted, it has to
    /// be put back.
    pub fn lift_limit(&self, lifted: bool) {
        self.all().iter().for_each(|shared| shared.segments.lift_limit(lifted));
    }

    /// Reads one hardened record.
    ///
    /// # Errors
    /// [`WalError::OutOfRange`] when `place` is outside the hardened log, [`WalError::Corrupt`]
    /// when no valid record starts there, [`WalError::Disk`].
    pub fn read(&self, place: LogAddress) -> Result<Record> {
        let Some(log) = self.streams.get(usize::from(place.log().get())) else {
            return Err(WalError::OutOfRange { lsn: place.lsn(), start: FIRST_LSN, end: FIRST_LSN });
        };
        log.read(place.lsn()).map_err(|error| error.in_log(place.log()))
    }

    /// For reading the records of transactions, the latest first.
    pub fn read_back(&self) -> ReadBack<'_> {
        ReadBack::new(&self.streams)
    }

    /// Reads the records of all logs in the order of their GSNs, of each from the position given,
    /// which is the start of a record, to where it is hardened at this moment. From the end or
    /// beyond there are none. That part of the log must not be recycled meanwhile.
    pub fn scan(&self, from: &[Lsn]) -> MergedScanner {
        MergedScanner::new(self.streams.iter().zip(from).map(|(log, from)| log.scan(*from)).collect())
    }

    /// As [`Log::scan`], of one log.
    pub fn scan_one(&self, log: LogId, from: Lsn) -> Scanner {
        self.stream(log).scan(from)
    }

    /// Gives up the records below `gsn`, durably, and recycles the segments that hold nothing else.
    /// With one log, that is the start of a hardened record, or the end of the hardened log. As
    /// long as the archive or a backup needs some of that, it is put off.
    ///
    /// # Errors
    /// [`WalError::OutOfRange`] when `gsn` is beyond the hardened log, [`WalError::Corrupt`] when
    /// no record starts there, [`WalError::Disk`]. Nothing is lost by a failure; what could not be
    /// recycled is when the log is next opened.
    pub fn recycle_below(&self, gsn: Gsn) -> Result<()> {
        for (log, position) in self.positions_before(gsn).into_iter().enumerate() {
            self.streams[log].recycle_below(position).map_err(|error| error.in_log(LogId::new(log as u16)))?;
            self.log_set.forget_marks(log, position);
        }
        Ok(())
    }

    /// Longest payload that a record can have, in bytes.
    pub fn max_payload(&self) -> usize {
        self.streams[0].shared.max_payload - self.log_set.tail()
    }

    /// Bytes that a record with a payload of `payload` bytes takes at most.
    pub fn record_bytes(&self, payload: usize) -> u64 {
        record_bytes(payload + self.log_set.tail()) as u64
    }

    /// Where each log stands.
    pub fn extents(&self) -> Vec<Extent> {
        self.streams.iter().map(Stream::extent).collect()
    }

    /// The rings in persistent memory belong to this generation of the database from now on,
    /// durably: before the database names it as the one that counts. See
    /// [`WalOptions::generation`].
    pub fn stamp_rings(&self, generation: u64) {
        self.streams.iter().for_each(|log| log.shared.device.set_generation(generation));
    }

    /// Counts since the logs were opened, of all log_set. The LSNs are those of the first log.
    pub fn stats(&self) -> WalStats {
        let mut sum = self.streams[0].stats();
        self.streams[1..].iter().for_each(|log| sum.add(&log.stats()));
        (sum.hardened_gsn, sum.end_gsn) = (self.hardened_below(), self.latest());
        sum.reserved_bytes = sum.reserved_bytes.saturating_sub(self.unpromised());
        sum.synchronizations = self.log_set.synchronizations.load(Ordering::Relaxed);
        if let Some(several) = &self.several {
            several.count_waits(&mut sum);
        }
        sum
    }

    /// What stopped the log: the failure of a write or sync. Everything but reading is refused
    /// then.
    pub fn failure(&self) -> Option<WalError> {
        self.streams.iter().find_map(Stream::failure)
    }

    /// Hardens everything inserted before and stops the log's threads. What is not archived yet is
    /// when the log is open again. Records inserted afterwards go nowhere. A ring in persistent
    /// memory is given up, with all it holds in the segments; its region is free when the log has
    /// been dropped. Nothing happens the second time.
    ///
    /// # Errors
    /// [`WalError::Failed`] when not everything could be hardened; all threads have been stopped
    /// then, too.
    pub fn close(&self) -> Result<()> {
        if let Some(several) = &self.several {
            several.close(|| self.latest());
        }
        let outcomes: Vec<Result<()>> = self.streams.iter().map(Stream::close).collect();
        outcomes.into_iter().collect()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.several.iter().for_each(Several::stop);
    }
}
