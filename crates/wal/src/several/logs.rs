//! Several logs of one database that work as one (Aether, section 7; Scalable logging through NVM, section 3).
//!
//! Each log is a [`Wal`] with buffer, flush daemon and segments of its own. What makes them one is time: every record has a
//! GSN, by which records of different logs are ordered (`clock.rs`), and a log's records are in the order of their GSNs.
//!
//! # Synchronization
//! After a crash one log may have lost its last records and another not; what depends on a lost record must not survive. A
//! record's GSN is higher than that of everything it depends on, so a database is whole if it has, of each log, exactly the
//! records up to some GSN. To know one after a crash, a commit and whatever else is acted on outside is a *synchronization*
//! ([`Logs::insert_synchronized`]): with the GSN `g` at hand the inserter raises the clocks of all other logs beyond `g` and
//! then notes where each of them ends, its tail. All records up to `g` lie before these tails, and no later one gets a GSN
//! so low. The tails are part of the record. It is acknowledged when every log is hardened up to its tail.
//!
//! Opening finds the end of each log and then the synchronization with the highest GSN whose tails all lie within the logs
//! found; each log is cut behind that GSN (`logs_open.rs`). Everything acknowledged is before the cut, and nothing before the
//! cut lacks anything. (The papers' recovery takes the last complete synchronization of each log and cuts each log at the
//! highest timestamp among them; here that is one GSN for all logs.)
//!
//! # Hardened together
//! Where the logs end in rings behind volatile caches, or by [`WalOptions::shared_synchronizations`], commits are not
//! synchronizations. Their clocks share a floor, which a
//! commit raises beyond its GSN, and one synchronization after the other is inserted for all who wait: see [`crate::several::commit_round`].
//!
//! # One log
//! needs none of this. A database's only log has the LSN for its GSN, no clock, no synchronizations, and the bytes on disk
//! that it always had. `Logs` with one log only passes calls on.

use std::collections::BTreeMap;
use std::path::Path;

use duramen_io::Disk;
use duramen_pmem::Source;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Arc, CachePadded, References};
use duramen_types::{Gsn, LogId, Lsn, Place, planted};

use crate::buffer::clock::Clock;
use crate::buffer::positions::Space;
use crate::device::nvm::passive::Passive;
use crate::device::nvm::ring::NvmRing;
use crate::error::{Result, WalError};
use crate::format::record::{Identity, NewRecord, Record, record_bytes, tails_bytes};
use crate::group_commit::requests::Ask;
use crate::insert::InsertDesign;
use crate::options::{LogDevice, WalOptions};
use crate::place::{FIRST_LSN, Inserted};
use crate::segments::archive::Archive;
use crate::segments::files::OpenFiles;
use crate::segments::scan::Scanner;
use crate::several::archiving::Archiving;
use crate::several::commit_round::Group;
use crate::several::log_set::Together;
use crate::several::merge::MergedScanner;
use crate::several::read_back::ReadBack;
use crate::stats::WalStats;
use crate::stream::copy::LogsHold;
use crate::stream::hardened::{Hardened, Part};
use crate::stream::inner::{OneOf, Shared, common_floor};
use crate::stream::log::Wal;

/// Most logs of a database.
pub const MAX_LOGS: u16 = 24;

/// Up to which GSN all logs are known to be hardened.
#[derive(Debug)]
pub(crate) struct Complete(AtomicU64);

impl Complete {
    pub(crate) fn new(gsn: Gsn) -> Self {
        Self(AtomicU64::new(gsn.get()))
    }

    /// Takes note of a synchronization at `gsn` that has been hardened, with all logs up to their tails.
    pub(crate) fn note(&self, gsn: Gsn) {
        if self.get() < gsn {
            self.0.fetch_max(gsn.get(), Ordering::AcqRel);
        }
    }

    pub(crate) fn get(&self) -> Gsn {
        Gsn::new(self.0.load(Ordering::Acquire))
    }
}

/// Positions in a log by GSN: records behind the LSN have a higher GSN than the key, those before do not.
pub(crate) type Marks = BTreeMap<u64, u64>;

/// One or more logs of a database. Shared by reference between threads.
#[derive(Debug)]
pub struct Logs {
    logs: Box<[Wal]>,
    together: Arc<Together>,
    complete: References<Complete>,
    /// If they are hardened together.
    group: Option<References<Group>>,
    /// If they are archived.
    archiving: Option<Archiving>,
    waits: CachePadded<AtomicU64>,
    own_waits: AtomicU64,
}

impl Logs {
    /// Makes `count` empty logs, as [`Wal::create`] makes one: in the subdirectories `log`, `log1` and so on. The options
    /// are those of each log.
    ///
    /// # Errors
    /// As [`Wal::create`]; [`WalError::InvalidOption`] for a count that cannot be.
    pub fn create(disk: &Arc<dyn Disk>, options: &WalOptions, count: u16, database: [u8; 16]) -> Result<Self> {
        check(options, count)?;
        if let Some(home) = disk.directory() {
            options.check_places(&home, &[], count)?;
        }
        let passive = Passive::of(options, false);
        let common = common_floor(passive.as_deref());
        // One log takes it itself.
        let archive = options.archive.as_ref().filter(|_| count > 1).map(Archive::take).transpose()?;
        let home = OpenFiles::of(Arc::clone(disk));
        let create = |log| {
            let identity = Identity::one_of(database, LogId::new(log), count);
            let clock = || Clock::new(FIRST_LSN, Gsn::new(FIRST_LSN.get())).with_common(common.clone());
            let one_of =
                (count > 1).then(|| OneOf { clock: clock(), passive: passive.clone(), archive: archive.clone() });
            Wal::create_one_of(Arc::clone(&home), options.clone(), identity, one_of)
                .map_err(|error| error.in_log(LogId::new(log)))
        };
        let logs = (0..count).map(create).collect::<Result<Vec<_>>>()?;
        Self::new(logs, Gsn::ZERO, Vec::new())
    }

    /// Checks, before anything is made, that the regions which are there for the rings of `count` new logs can be
    /// taken.
    ///
    /// # Errors
    /// [`WalError::Region`], [`WalError::WrongRing`].
    pub fn check_regions(options: &WalOptions, count: u16) -> Result<()> {
        check(options, count)?;
        let LogDevice::Nvm(nvm) = &options.device else { return Ok(()) };
        for log in (0..count).map(LogId::new) {
            let nvm = nvm.of_log(log)?;
            // A file without length is what an interrupted creation has left.
            let is_there =
                |path: &Path| path.metadata().is_ok_and(|metadata| !metadata.is_file() || metadata.len() > 0);
            if matches!(&nvm.source, Source::File(path) if is_there(path)) {
                NvmRing::open(&nvm, options.ring_bytes, 0, true)?.find(&Identity::one_of([0; 16], log, count), 0)?;
            }
        }
        Ok(())
    }

    pub(crate) fn new(logs: Vec<Wal>, complete: Gsn, marks: Vec<Marks>) -> Result<Self> {
        let together = Arc::new(Together::new(logs.iter().map(|log| Arc::clone(&log.shared)).collect(), marks));
        let complete = Arc::new(Complete::new(complete));
        let passive = logs[0].shared.device.passive().filter(|_| logs.len() > 1);
        let group =
            passive.map(|passive| Group::new(Arc::clone(&together), Arc::clone(passive), Arc::clone(&complete)));
        let group = group.map(|group| References::new(Arc::new(group)));
        let archiving = (logs.len() > 1).then(|| Archiving::of(&together, &complete, group.as_deref())).flatten();
        let logs = Self {
            logs: logs.into(),
            together,
            complete: References::new(complete),
            group,
            archiving,
            waits: CachePadded::new(AtomicU64::new(0)),
            own_waits: AtomicU64::new(0),
        };
        logs.group.as_deref().map_or(Ok(()), Group::start)?;
        logs.archiving.as_ref().map_or(Ok(()), Archiving::start)?;
        Ok(logs)
    }

    /// How many there are.
    #[inline]
    pub fn count(&self) -> u16 {
        self.logs.len() as u16
    }

    /// The only log, if there is one.
    #[inline]
    fn only(&self) -> Option<&Wal> {
        match &*self.logs {
            [only] => Some(only),
            _ => None,
        }
    }

    pub(crate) fn log(&self, log: LogId) -> &Wal {
        &self.logs[usize::from(log.get())]
    }

    pub(crate) fn all(&self) -> &[Arc<Shared>] {
        self.together.all()
    }

    /// Bytes that the logs count as set aside and nobody is promised.
    pub(crate) fn unpromised(&self) -> u64 {
        self.together.shelves.unpromised()
    }

    /// Gives the logs back what nobody is promised.
    #[cfg(test)]
    pub(crate) fn give_back(&self) {
        self.together.shelves.give_back(self.all());
    }

    fn space(&self, log: usize) -> &Space {
        self.together.space(log)
    }

    /// Inserts a record into `log`. Its GSN is higher than `record.after` and than those of all earlier records of the log.
    /// Otherwise as [`Wal::insert`].
    ///
    /// # Panics
    /// When the payload is longer than [`Logs::max_payload`], or uses the log's own flag.
    #[inline]
    pub fn insert(&self, log: LogId, record: NewRecord<'_>) -> Inserted {
        match self.only() {
            Some(wal) => wal.insert(record),
            None => self.together.insert(log, record, None),
        }
    }

    /// As [`Logs::insert`], and makes it a synchronization of all logs: [`Logs::wait_hardened`] for it has everything up to
    /// its GSN survive any crash, whatever log it is in; and whatever is inserted afterwards, into any log, has a higher GSN.
    /// Where other logs ended goes to `tails`, if somebody wants to know; with one log, where the record is. Logs that are
    /// hardened together insert synchronizations by themselves: there this is one only if somebody wants to know.
    pub fn insert_synchronized(&self, log: LogId, record: NewRecord<'_>, tails: Option<&mut Vec<Lsn>>) -> Inserted {
        match self.only() {
            Some(wal) => {
                let inserted = wal.insert(record);
                if let Some(tails) = tails {
                    tails.push(inserted.lsn);
                }
                inserted
            }
            None if self.group.is_some() && tails.is_none() => self.together.insert_commit(log, record),
            None => {
                let mut noted = Vec::new();
                let inserted = self.together.insert(log, record, Some(&mut noted));
                if let Some(tails) = tails {
                    // A log that has failed takes no record.
                    noted.resize(self.logs.len(), FIRST_LSN);
                    noted[usize::from(log.get())] = inserted.lsn;
                    tails.append(&mut noted);
                }
                inserted
            }
        }
    }

    /// For each log, a position before which all records have GSNs below `gsn`.
    pub fn positions_before(&self, gsn: Gsn) -> Vec<Lsn> {
        if let Some(wal) = self.only() {
            return vec![Lsn::new(gsn.get()).max(wal.start())];
        }
        let position = |(log, wal): (usize, &Wal)| {
            let marks = self.together.marks[log].lock();
            let mark = marks.range(..gsn.get()).next_back().map_or(0, |(_, lsn)| *lsn);
            Lsn::new(mark).max(wal.start())
        };
        self.logs.iter().enumerate().map(position).collect()
    }

    /// For each log, where its records below `gsn` end, all of which are hardened: no record at or above it lies before that.
    /// With one log, where everything ends that is hardened.
    ///
    /// # Errors
    /// [`WalError::Corrupt`], [`WalError::Disk`], or what stopped the log.
    pub fn ends_before(&self, gsn: Gsn) -> Result<Vec<Lsn>> {
        if let Some(wal) = self.only() {
            return Ok(vec![wal.shared.destage()?]);
        }
        let end = |(log, from): (usize, Lsn)| {
            let mut scanner = self.logs[log].scan(from);
            while let Some(record) = scanner.next().map_err(|error| error.in_log(LogId::new(log as u16)))? {
                if record.gsn >= gsn {
                    return Ok(record.lsn);
                }
            }
            Ok(scanner.position())
        };
        self.positions_before(gsn).into_iter().enumerate().map(end).collect()
    }

    /// Whether everything up to and including `gsn` survives a crash, as far as is known.
    #[inline]
    pub fn is_hardened(&self, gsn: Gsn) -> bool {
        match self.only() {
            Some(wal) => wal.is_hardened(gsn),
            None => self.complete.get() >= gsn,
        }
    }

    /// Sets room for [`Logs::synchronize`] aside, as far as there is room.
    pub fn set_room_aside(&self) {
        if self.count() > 1 {
            self.together.set_room_aside();
        }
    }

    /// Inserts a synchronization that is about nothing else, of several logs, for everything up to `gsn`. There is room for it,
    /// if need be beyond the limit of the log: it may be what has to happen before the log can become smaller.
    ///
    /// # Errors
    /// [`WalError::Full`] when not even the disk has room, [`WalError::Disk`].
    pub fn synchronize(&self, gsn: Gsn) -> Result<Inserted> {
        self.together.synchronize(gsn, &mut Vec::new())
    }

    /// Whether [`Logs::wait_hardened`] and the like need no synchronization: the logs insert them by themselves, one for all
    /// who wait.
    pub fn are_hardened_together(&self) -> bool {
        self.group.is_some()
    }

    /// Blocks until everything up to and including `gsn` survives a crash. That is the GSN of a synchronization, at `own`
    /// if the caller knows, or, with one log and with logs that are hardened together, of any record.
    ///
    /// # Errors
    /// As [`Wal::wait_hardened`].
    pub fn wait_hardened(&self, gsn: Gsn, own: Option<Place>) -> Result<()> {
        match self.only() {
            Some(wal) => wal.wait_hardened(gsn),
            None => self.wait(gsn, own, Ask::Grouped),
        }
    }

    /// As [`Logs::wait_hardened`], without waiting for company.
    ///
    /// # Errors
    /// As [`Wal::wait_hardened`].
    pub fn harden_at_once(&self, gsn: Gsn, own: Option<Place>) -> Result<()> {
        match self.only() {
            Some(wal) => wal.harden_at_once(gsn),
            None => self.wait(gsn, own, Ask::AtOnce),
        }
    }

    /// Asks for everything up to and including `gsn` to survive a crash; see [`Logs::wait_hardened`]. Does not block.
    pub fn harden(&self, gsn: Gsn, own: Option<Place>) -> Hardened {
        if let Some(wal) = self.only() {
            return wal.harden(gsn);
        }
        if let Some(group) = &self.group {
            if !self.is_hardened(gsn) {
                group.request(gsn);
            }
            return Hardened::together(group.take(), gsn);
        }
        let mut parts = self.unhardened(own);
        // Position zero, where nothing is missing: it is before everything that any log holds.
        let last = parts.pop().unwrap_or((0, Lsn::ZERO));
        let request = |(log, lsn): (usize, Lsn)| Part::request(&self.logs[log].shared, lsn);
        let others = parts.into_iter().map(request).collect();
        Hardened::of_several(request(last), others, self.complete.take(), gsn)
    }

    fn wait(&self, gsn: Gsn, own: Option<Place>, ask: Ask) -> Result<()> {
        if self.is_hardened(gsn) || planted!(AcknowledgeBeforeFlush) {
            return Ok(());
        }
        if let Some(group) = &self.group {
            group.request(gsn);
            return group.wait(gsn);
        }
        let mut parts = self.unhardened(own);
        // This thread may do the flush of one log itself; the daemons of the others are at work meanwhile.
        if let Some((log, lsn)) = parts.pop() {
            let others: Vec<Part> =
                parts.into_iter().map(|(log, lsn)| Part::request(&self.logs[log].shared, lsn)).collect();
            self.logs[log].shared.wait(lsn, ask).map_err(|error| error.in_log(LogId::new(log as u16)))?;
            others.iter().try_for_each(|part| part.wait(Ask::Requested))?;
        }
        self.complete.note(gsn);
        Ok(())
    }

    /// What of each log is not hardened of what has been inserted by now, as the last byte that has to be; what is known to be
    /// needed of the own log comes last. What a synchronization that has been inserted has noted of others is included.
    fn unhardened(&self, own: Option<Place>) -> Vec<(usize, Lsn)> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        let mut parts = Vec::with_capacity(self.logs.len());
        let own_number = own.map(|own| usize::from(own.log().get()));
        for log in (0..self.logs.len()).filter(|log| Some(*log) != own_number) {
            let end = self.space(log).end();
            if self.space(log).hardened() < end && !(own.is_some() && planted!(OwnLogHardenedOnly)) {
                parts.push((log, Lsn::new(end.get() - 1)));
            }
        }
        if parts.is_empty() {
            self.own_waits.fetch_add(1, Ordering::Relaxed);
        }
        if let (Some(own), Some(number)) = (own, own_number)
            && self.space(number).hardened() <= own.lsn()
        {
            parts.push((number, own.lsn()));
        }
        parts
    }

    /// As [`Wal::settle`], for all logs.
    #[inline]
    pub fn settle(&self) {
        match &self.group {
            Some(group) => group.fence(),
            None => self.logs.iter().for_each(Wal::settle),
        }
    }

    /// As [`Wal::shortfall`], of the first log that has one.
    pub fn shortfall(&self) -> Option<String> {
        self.logs.iter().find_map(Wal::shortfall)
    }

    /// As [`Wal::hold`], for all logs.
    pub fn hold(&self) -> LogsHold {
        LogsHold::new(self.logs.iter().map(Wal::hold).collect())
    }

    /// As [`Wal::await_archive`].
    pub fn await_archive(&self) {
        // The archive may have to wait for what this thread has inserted.
        self.settle();
        match &self.archiving {
            Some(archiving) => archiving.await_all(),
            None => self.logs.iter().for_each(Wal::await_archive),
        }
    }

    /// As [`Wal::archive_failure`].
    pub fn archive_failure(&self) -> Option<WalError> {
        self.logs.iter().find_map(Wal::archive_failure)
    }

    /// No record from now on, in any log, gets a GSN below this.
    pub fn earliest(&self) -> Gsn {
        match self.only() {
            Some(wal) => Gsn::new(wal.end().get()),
            None => (0..self.logs.len()).map(|log| self.together.now(log)).min().expect("there is a log"),
        }
    }

    /// The GSN of every record inserted by now is below this.
    pub fn latest(&self) -> Gsn {
        match self.only() {
            Some(wal) => Gsn::new(wal.end().get()),
            None => self.together.latest(),
        }
    }

    /// Sets disk space for `bytes` aside in every log: which of them takes the records need not be known. See
    /// [`Wal::reserve`]. The calling thread settles if it has to wait.
    ///
    /// # Errors
    /// As [`Wal::reserve`]; nothing is set aside then.
    #[inline]
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        self.together.shelves.reserve(self.together.all(), bytes, || self.settle())
    }

    /// As [`Logs::reserve`], even if the logs exceed their limits by it, as long as the disk has room.
    ///
    /// # Errors
    /// As [`Wal::reserve`]; nothing is set aside then.
    pub fn reserve_beyond_limit(&self, bytes: u64) -> Result<()> {
        self.settle();
        self.together.shelves.reserve_exactly(self.together.all(), bytes, |lifted| self.lift_limit(lifted))
    }

    /// Gives `bytes` that [`Logs::reserve`] set aside back.
    #[inline]
    pub fn unreserve(&self, bytes: u64) {
        self.together.shelves.unreserve(self.together.all(), bytes);
    }

    /// As [`Logs::unreserve`], of bytes that no record has taken.
    #[inline]
    pub fn unreserve_unused(&self, bytes: u64) {
        self.together.shelves.unreserve_unused(self.together.all(), bytes);
    }

    /// As [`Wal::lift_limit`], for all logs.
    pub fn lift_limit(&self, lifted: bool) {
        self.logs.iter().for_each(|log| log.lift_limit(lifted));
    }

    /// Reads one hardened record.
    ///
    /// # Errors
    /// As [`Wal::read`].
    pub fn read(&self, place: Place) -> Result<Record> {
        if usize::from(place.log().get()) >= self.logs.len() {
            return Err(WalError::OutOfRange { lsn: place.lsn(), start: FIRST_LSN, end: FIRST_LSN });
        }
        self.log(place.log()).read(place.lsn()).map_err(|error| error.in_log(place.log()))
    }

    /// For reading the records of transactions, the latest first.
    pub fn read_back(&self) -> ReadBack<'_> {
        ReadBack::new(self)
    }

    /// Reads the records of all logs in the order of their GSNs, of each from the position given, to where it is hardened
    /// at this moment.
    pub fn scan(&self, from: &[Lsn]) -> MergedScanner {
        MergedScanner::new(self.logs.iter().zip(from).map(|(log, from)| log.scan(*from)).collect())
    }

    /// As [`Wal::scan`], of one log.
    pub fn scan_one(&self, log: LogId, from: Lsn) -> Scanner {
        self.log(log).scan(from)
    }

    /// Gives up the records below `gsn`, as far as whole segments hold nothing else. See [`Wal::recycle_below`].
    ///
    /// # Errors
    /// As [`Wal::recycle_below`].
    pub fn recycle_below(&self, gsn: Gsn) -> Result<()> {
        if let Some(wal) = self.only() {
            return wal.recycle_below(Lsn::new(gsn.get()));
        }
        for (log, position) in self.positions_before(gsn).into_iter().enumerate() {
            self.logs[log].recycle_below(position).map_err(|error| error.in_log(LogId::new(log as u16)))?;
            let mut marks = self.together.marks[log].lock();
            while marks.len() > 1 && marks.values().nth(1).is_some_and(|lsn| *lsn <= position.get()) {
                marks.pop_first();
            }
        }
        Ok(())
    }

    /// Longest payload that a record can have, in bytes.
    pub fn max_payload(&self) -> usize {
        self.logs[0].max_payload() - self.tail()
    }

    /// Bytes that a record with a payload of `payload` bytes takes at most.
    pub fn record_bytes(&self, payload: usize) -> u64 {
        record_bytes(payload + self.tail()) as u64
    }

    fn tail(&self) -> usize {
        if self.only().is_some() { 0 } else { tails_bytes(self.count()) }
    }

    /// Where each log starts, and where it ends.
    pub fn extents(&self) -> Vec<(Lsn, Lsn)> {
        self.logs.iter().map(|log| (log.start(), log.end())).collect()
    }

    /// The rings in persistent memory belong to this generation of the database from now on, durably: before the database
    /// names it as the one that counts. See [`WalOptions::generation`].
    pub fn stamp_rings(&self, generation: u64) {
        self.logs.iter().for_each(|log| log.shared.device.set_generation(generation));
    }

    /// Counts since the logs were opened, of all together. The LSNs are those of the first log.
    pub fn stats(&self) -> WalStats {
        let mut sum = self.logs[0].stats();
        for log in &self.logs[1..] {
            let stats = log.stats();
            sum.records += stats.records;
            sum.bytes += stats.bytes;
            sum.consolidated += stats.consolidated;
            sum.ring_full_waits += stats.ring_full_waits;
            sum.flushes += stats.flushes;
            sum.inline_flushes += stats.inline_flushes;
            sum.flushed_bytes += stats.flushed_bytes;
            sum.hardening_waits += stats.hardening_waits;
            sum.fences += stats.fences;
            sum.drains += stats.drains;
            sum.drain_signals += stats.drain_signals;
            sum.segments_live += stats.segments_live;
            sum.segments_created += stats.segments_created;
            sum.segments_recycled += stats.segments_recycled;
            sum.segments_archived += stats.segments_archived;
            sum.archive_failures += stats.archive_failures;
        }
        if self.count() > 1 {
            (sum.hardened_gsn, sum.end_gsn) = (next(self.complete.get()), self.together.latest());
        }
        sum.reserved_bytes = sum.reserved_bytes.saturating_sub(self.together.shelves.unpromised());
        let mut waits = self.waits.load(Ordering::Relaxed);
        if let Some(passive) = self.group.as_ref().and_then(|_| self.logs[0].shared.device.passive()) {
            // The same for all of them.
            (sum.drains, sum.drain_signals, sum.fences) = passive.counts();
            waits += passive.requests();
        }
        sum.synchronizations = self.together.synchronizations.load(Ordering::Relaxed);
        sum.waits_for_logs = waits;
        sum.waits_for_own_log = self.own_waits.load(Ordering::Relaxed);
        sum
    }

    /// What stopped one of the logs. See [`Wal::failure`].
    pub fn failure(&self) -> Option<WalError> {
        self.logs.iter().find_map(Wal::failure)
    }

    /// Hardens everything and stops the logs' threads. See [`Wal::close`].
    ///
    /// # Errors
    /// As [`Wal::close`], after all have been stopped.
    pub fn close(&self) -> Result<()> {
        // It may insert synchronizations.
        if let Some(archiving) = &self.archiving {
            archiving.stop();
        }
        if let Some(group) = &self.group {
            // Those who wait for what has been inserted are told so. The outcome is that of the logs.
            let _ = group.wait(Gsn::new(self.latest().get() - 1));
            group.stop();
        }
        let outcomes: Vec<Result<()>> = self.logs.iter().map(Wal::close).collect();
        outcomes.into_iter().collect()
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        if let Some(archiving) = &self.archiving {
            archiving.stop();
        }
        if let Some(group) = &self.group {
            group.stop();
        }
    }
}

/// The GSN behind this.
pub(crate) fn next(gsn: Gsn) -> Gsn {
    Gsn::new(gsn.get() + 1)
}

/// Bytes from one mark to the next: recycling gives up segments, and recovery starts to read, at a mark.
pub(crate) fn mark_step(options: &WalOptions) -> u64 {
    (options.segment_bytes / 16).clamp(4 << 10, 256 << 10)
}

/// Refuses what several logs cannot be.
pub(crate) fn check(options: &WalOptions, count: u16) -> Result<()> {
    let invalid = |option, reason: String| Err(WalError::InvalidOption { option, reason });
    if !(1..=MAX_LOGS).contains(&count) {
        return invalid("logs", format!("it must be from 1 to {MAX_LOGS}"));
    }
    if count > 1 && options.insert == InsertDesign::Reserved {
        let reason = "`reserved` hands out space in no particular turn, and several logs need one to keep their records in \
                      the order of their GSNs; choose another design or one log";
        return invalid("insert", reason.to_owned());
    }
    options.validate()
}
