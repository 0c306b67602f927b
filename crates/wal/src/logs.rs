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
//! # One log
//! needs none of this. A database's only log has the LSN for its GSN, no clock, no synchronizations, and the bytes on disk
//! that it always had. `Logs` with one log only passes calls on.

use std::collections::BTreeMap;

use duramen_io::Disk;
use duramen_sync::atomic::{AtomicU64, Ordering, fence};
use duramen_sync::{Arc, CachePadded, Mutex};
use duramen_types::planted::{Bug, is_on};
use duramen_types::{Gsn, LogId, Lsn, Place};

use crate::clock::Clock;
use crate::commit::Ask;
use crate::copy::LogsHold;
use crate::error::{Result, WalError};
use crate::hardened::{Hardened, Part};
use crate::insert::InsertDesign;
use crate::merge::MergedScanner;
use crate::options::WalOptions;
use crate::record::{FLAG_SYNCHRONIZES, Identity, NewRecord, Record, record_bytes, tails_bytes};
use crate::scan::Scanner;
use crate::space::Space;
use crate::stats::WalStats;
use crate::wal::{FIRST_LSN, Inserted, Wal};

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

    fn get(&self) -> Gsn {
        Gsn::new(self.0.load(Ordering::Acquire))
    }
}

/// Positions in a log by GSN: records behind the LSN have a higher GSN than the key, those before do not.
pub(crate) type Marks = BTreeMap<u64, u64>;

/// One or more logs of a database. Shared by reference between threads.
#[derive(Debug)]
pub struct Logs {
    logs: Box<[Wal]>,
    complete: CachePadded<Arc<Complete>>,
    /// For each log, some of its places; only with several logs.
    marks: Box<[CachePadded<Mutex<Marks>>]>,
    synchronizations: CachePadded<AtomicU64>,
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
        let create = |log| {
            Wal::create_one_of(Arc::clone(disk), options.clone(), Identity::one_of(database, LogId::new(log), count))
                .map_err(|error| error.in_log(LogId::new(log)))
        };
        let logs = (0..count).map(create).collect::<Result<Vec<_>>>()?;
        Ok(Self::new(logs, Gsn::ZERO, Vec::new()))
    }

    pub(crate) fn new(logs: Vec<Wal>, complete: Gsn, mut marks: Vec<Marks>) -> Self {
        marks.resize_with(logs.len(), Marks::new);
        Self {
            logs: logs.into(),
            complete: CachePadded::new(Arc::new(Complete::new(complete))),
            marks: marks.into_iter().map(|marks| CachePadded::new(Mutex::new(marks))).collect(),
            synchronizations: CachePadded::new(AtomicU64::new(0)),
            waits: CachePadded::new(AtomicU64::new(0)),
            own_waits: AtomicU64::new(0),
        }
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

    fn log(&self, log: LogId) -> &Wal {
        &self.logs[usize::from(log.get())]
    }

    fn space(&self, log: usize) -> &Space {
        &self.logs[log].shared.space
    }

    fn clock(&self, log: usize) -> &Clock {
        self.space(log).clock().expect("each of several logs has a clock")
    }

    /// The lowest GSN that a record of this log may get from now on.
    fn now(&self, log: usize) -> Gsn {
        let end = self.space(log).end();
        self.clock(log).now(end)
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
            None => self.insert_in_time(log, record, None),
        }
    }

    /// As [`Logs::insert`], and makes it a synchronization of all logs: [`Logs::wait_hardened`] for it has everything up to
    /// its GSN survive any crash, whatever log it is in. Where other logs ended goes to `tails`, if somebody wants to know;
    /// with one log, where the record is.
    pub fn insert_synchronized(&self, log: LogId, record: NewRecord<'_>, tails: Option<&mut Vec<Lsn>>) -> Inserted {
        match self.only() {
            Some(wal) => {
                let inserted = wal.insert(record);
                if let Some(tails) = tails {
                    tails.push(inserted.lsn);
                }
                inserted
            }
            None => {
                let mut noted = Vec::new();
                let inserted = self.insert_in_time(log, record, Some(&mut noted));
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

    fn insert_in_time(&self, log: LogId, mut record: NewRecord<'_>, tails: Option<&mut Vec<Lsn>>) -> Inserted {
        assert!(record.flags & FLAG_SYNCHRONIZES == 0, "the flag is the log's own");
        let number = usize::from(log.get());
        if !is_on(Bug::PageTimeIgnored) && self.now(number) <= record.after {
            self.clock(number).raise(next(record.after));
        }
        let shared = &self.logs[number].shared;
        let (lsn, end, gsn) = match tails {
            None => shared.insert_in_time(record, 0, |_, _| {}),
            Some(tails) => {
                self.synchronizations.fetch_add(1, Ordering::Relaxed);
                record.flags |= FLAG_SYNCHRONIZES;
                let tail = tails_bytes(self.count());
                shared.insert_in_time(record, tail, |gsn, bytes| self.synchronize(number, gsn, bytes, tails))
            }
        };
        assert!(gsn > record.after || is_on(Bug::PageTimeIgnored), "a change comes after what it changes");
        self.mark(number, gsn, lsn, end);
        Inserted { log, lsn, end, gsn }
    }

    /// Sees to it that no other log has a record up to `gsn` behind the tail that is noted here. Takes no lock: the caller
    /// may have the turn of its own log.
    fn synchronize(&self, own: usize, gsn: Gsn, bytes: &mut [u8], tails: &mut Vec<Lsn>) {
        for log in (0..self.logs.len()).filter(|log| *log != own) {
            if self.clock(log).now(self.space(log).end()) <= gsn {
                self.clock(log).raise(next(gsn));
            }
        }
        // A tail is looked at when it is known that the clock is beyond: what got its place before it went there, whoever has
        // raised it, is seen then.
        fence(Ordering::SeqCst);
        for (log, field) in bytes.chunks_exact_mut(8).enumerate() {
            let tail = if log == own { Lsn::ZERO } else { self.space(log).end() };
            field.copy_from_slice(&tail.get().to_le_bytes());
            tails.push(tail);
        }
    }

    /// Remembers a place now and then.
    #[inline]
    fn mark(&self, log: usize, gsn: Gsn, lsn: Lsn, end: Lsn) {
        let step = self.mark_step();
        if lsn.get() / step != end.get() / step {
            self.marks[log].lock().insert(gsn.get(), end.get());
        }
    }

    fn mark_step(&self) -> u64 {
        mark_step(&self.logs[0].shared.options)
    }

    /// For each log, a position before which all records have GSNs below `gsn`.
    pub fn positions_before(&self, gsn: Gsn) -> Vec<Lsn> {
        if let Some(wal) = self.only() {
            return vec![Lsn::new(gsn.get()).max(wal.start())];
        }
        let position = |(log, wal): (usize, &Wal)| {
            let marks = self.marks[log].lock();
            let mark = marks.range(..gsn.get()).next_back().map_or(0, |(_, lsn)| *lsn);
            Lsn::new(mark).max(wal.start())
        };
        self.logs.iter().enumerate().map(position).collect()
    }

    /// Whether everything up to and including `gsn` survives a crash, as far as is known.
    #[inline]
    pub fn is_hardened(&self, gsn: Gsn) -> bool {
        match self.only() {
            Some(wal) => wal.is_hardened(gsn),
            None => self.complete.get() >= gsn,
        }
    }

    /// Blocks until everything up to and including `gsn` survives a crash. That is the GSN of a synchronization, at `own`
    /// if the caller knows, or with one log of any record.
    ///
    /// # Errors
    /// As [`Wal::wait_hardened`].
    pub fn wait_hardened(&self, gsn: Gsn, own: Option<Place>) -> Result<()> {
        match self.only() {
            Some(wal) => wal.wait_hardened(gsn),
            None => self.wait(gsn, own, Ask::InCompany),
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
        let mut parts = self.unhardened(own);
        // Position zero, where nothing is missing: it is before everything that any log holds.
        let last = parts.pop().unwrap_or((0, Lsn::ZERO));
        let request = |(log, lsn): (usize, Lsn)| Part::request(&self.logs[log].shared, lsn);
        let others = parts.into_iter().map(request).collect();
        Hardened::of_several(request(last), others, Arc::clone(&self.complete), gsn)
    }

    fn wait(&self, gsn: Gsn, own: Option<Place>, ask: Ask) -> Result<()> {
        if self.is_hardened(gsn) || is_on(Bug::AcknowledgeBeforeFlush) {
            return Ok(());
        }
        let mut parts = self.unhardened(own);
        // This thread may do the flush of one log itself; the daemons of the others are at work meanwhile.
        if let Some((log, lsn)) = parts.pop() {
            let others: Vec<Part> =
                parts.into_iter().map(|(log, lsn)| Part::request(&self.logs[log].shared, lsn)).collect();
            self.logs[log].shared.wait(lsn, ask).map_err(|error| error.in_log(LogId::new(log as u16)))?;
            others.iter().try_for_each(Part::wait)?;
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
            if self.space(log).hardened() < end && !(own.is_some() && is_on(Bug::OwnLogHardenedOnly)) {
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
        self.logs.iter().for_each(Wal::settle);
    }

    /// As [`Wal::shortfall`], of the first log that has one.
    pub fn shortfall(&self) -> Option<String> {
        self.logs.iter().find_map(Wal::shortfall)
    }

    /// As [`Wal::hold`], for all logs.
    pub fn hold(&self) -> LogsHold {
        LogsHold::new(self.logs.iter().map(Wal::hold).collect())
    }

    /// As [`Wal::await_archive`]. Several logs have no archive.
    pub fn await_archive(&self) {
        self.logs.iter().for_each(Wal::await_archive);
    }

    /// As [`Wal::archive_failure`].
    pub fn archive_failure(&self) -> Option<WalError> {
        self.logs.iter().find_map(Wal::archive_failure)
    }

    /// No record from now on, in any log, gets a GSN below this.
    pub fn earliest(&self) -> Gsn {
        match self.only() {
            Some(wal) => Gsn::new(wal.end().get()),
            None => (0..self.logs.len()).map(|log| self.now(log)).min().expect("there is a log"),
        }
    }

    /// The GSN of every record inserted by now is below this.
    pub fn latest(&self) -> Gsn {
        match self.only() {
            Some(wal) => Gsn::new(wal.end().get()),
            None => (0..self.logs.len()).map(|log| self.now(log)).max().expect("there is a log"),
        }
    }

    /// Sets disk space for `bytes` aside in every log: which of them takes the records need not be known. See
    /// [`Wal::reserve`].
    ///
    /// # Errors
    /// As [`Wal::reserve`]; nothing is set aside then.
    #[inline]
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        for (number, log) in self.logs.iter().enumerate() {
            if let Err(error) = log.reserve(bytes) {
                self.logs[..number].iter().for_each(|log| log.unreserve(bytes));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives `bytes` that [`Logs::reserve`] set aside back.
    #[inline]
    pub fn unreserve(&self, bytes: u64) {
        self.logs.iter().for_each(|log| log.unreserve(bytes));
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
            let mut marks = self.marks[log].lock();
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

    /// Counts since the logs were opened, of all together. The positions are those of the first log.
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
        }
        sum.synchronizations = self.synchronizations.load(Ordering::Relaxed);
        sum.waits_for_logs = self.waits.load(Ordering::Relaxed);
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
        let outcomes: Vec<Result<()>> = self.logs.iter().map(Wal::close).collect();
        outcomes.into_iter().collect()
    }
}

fn next(gsn: Gsn) -> Gsn {
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
    if count > 1 && options.archive.is_some() {
        let reason = "several logs cannot be archived; leave it out, or make a database with one log";
        return invalid("archive", reason.to_owned());
    }
    options.validate()
}
