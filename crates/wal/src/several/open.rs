//! Opening a log: finding the end of each of its streams, and the GSN up to which all of them are
//! complete.
//!
//! The first step finds the end of each log (`recover.rs`). Several logs need a second step. Among
//! all sync records that were read, it selects the one with the highest GSN whose tails lie within
//! the logs as found. Up to that GSN no log lacks a record. Behind it a log may lack some, so each
//! log is cut there. No acknowledged record is cut off, because a commit is acknowledged only when
//! all logs are hardened up to their tails.
//!
//! # A crash during the cut
//! Such a crash may leave one log cut and another one uncut. The tail that a sync record notes of
//! another log may lie a little behind that log's last record up to the GSN. Once that log is cut,
//! the sync record may look incomplete. Besides, the records behind the cut were hardened; in a log
//! that is not being cut, they would prove damage. Therefore the decision becomes durable first:
//! [`FoundLog::cut`] returns the GSN, and before [`FoundLog::open`] the caller makes two facts
//! durable: the logs are complete up to this GSN, and they are being cut there. If opening is
//! repeated, the caller passes both facts as [`Known`].

use duramen_io::Disk;
use duramen_sync::{Arc, Mutex, parallel};
use duramen_types::{Gsn, LogId, Lsn, planted};

use crate::address::FIRST_LSN;
use crate::device::nvm::open::FoundRing;
use crate::error::{Result, WalError};
use crate::format::identity::Identity;
use crate::format::record::RecordRef;
use crate::observer::Meter;
use crate::options::WalOptions;
use crate::segments::files::OpenFiles;
use crate::segments::recover::{self, End, Found};
use crate::segments::scan::Scanner;
use crate::segments::sync_records::SyncRecords;
use crate::several::durable_gsn::{GsnIndex, index_step, next};
use crate::several::log::Log;
use crate::stream::Stream;
use crate::stream::inner::Common;

/// Facts about the logs of a database that the caller has before opening them; none by default.
#[derive(Clone, Debug, Default)]
pub struct Known<'a> {
    /// For each log, the position where reading starts: the end of a record. Everything before it
    /// is complete. With one log, a record starts there. Without positions, logs are read from
    /// their starts.
    pub from: &'a [Lsn],
    /// A GSN and, for each log, an earlier position; all records of that log from the position on
    /// have higher GSNs.
    pub earlier: (Gsn, &'a [Lsn]),
    /// The logs are complete up to this GSN, and no sync record before `from` has a higher
    /// boundary: one less than what [`Log::hardened_below`] returned before the positions were
    /// determined.
    pub complete: Gsn,
    /// The logs were being cut behind that GSN.
    pub is_cutting: bool,
    /// This process has created the logs and closed them without an error: everything in them is
    /// durable, and nothing is behind their ends.
    pub is_new: bool,
}

/// The logs of a database as found on disk.
#[derive(Debug)]
pub struct FoundLog {
    options: WalOptions,
    logs: Vec<FoundStream>,
    complete: Gsn,
    /// The highest boundary of a sync record, complete or not. One that is not may lie before the
    /// cut. Later records get higher GSNs, so that it can never become complete with them.
    highest: Gsn,
    is_cutting: bool,
    is_new: bool,
}

#[derive(Debug)]
struct FoundStream {
    found: Found,
    ring: Option<FoundRing>,
    end: End,
    /// Where the records begin whose GSNs are higher than the complete GSN.
    cut: Lsn,
    /// The highest GSN.
    last: Gsn,
    gsn_index: GsnIndex,
}

/// The result of reading one log.
#[derive(Debug)]
struct Reading {
    found: Found,
    ring: Option<FoundRing>,
    /// Where reading started.
    from: Lsn,
    end: End,
    order: Order,
}

/// The order of the records of one log among several. A single log does not need it.
#[derive(Debug)]
struct Order {
    /// The highest GSN.
    last: Gsn,
    /// The highest boundary that a sync record states.
    boundary: Gsn,
    /// The first record whose GSN is not higher than the GSNs before it.
    disorder: Option<Lsn>,
    gsn_index: GsnIndex,
    /// The sync records of the log. The one at the GSN known to be complete is always kept.
    sync_records: SyncRecords,
}

impl Order {
    /// Notes the GSN of the next record, and its position if a GSN index entry is due.
    fn note(&mut self, record: &RecordRef<'_>, step: u64) {
        if record.gsn <= self.last {
            self.disorder = self.disorder.or(Some(record.lsn));
        }
        self.last = record.gsn;
        self.boundary = self.boundary.max(record.boundary().unwrap_or_default());
        if record.lsn.get() / step != record.end.get() / step {
            self.gsn_index.insert(record.gsn.get(), record.end.get());
        }
        self.sync_records.note(record);
    }
}

impl Log {
    /// Opens a log of one stream: finds its end and removes what a crash has left behind the end.
    /// `from` is the LSN of a record known to be hardened (a checkpoint), where reading starts;
    /// without it, reading starts at the start of the log. Afterwards [`Log::extents`] returns the
    /// end of the log, and everything before it is hardened.
    ///
    /// This function refuses a log that has lost hardened records if the remaining records prove
    /// the loss. They do not prove it when nothing was inserted after the lost records. A caller
    /// that has recorded how far the log was hardened compares its end with that position.
    ///
    /// # Errors
    /// - [`WalError::NoLog`], [`WalError::WrongDatabase`], [`WalError::WrongVersion`]: the log does
    ///   not exist, or is another log.
    /// - [`WalError::MissingSegment`], [`WalError::Corrupt`]: hardened records are lost. A log that
    ///   merely ends in the middle of a record, as after a crash, is valid.
    /// - [`WalError::RingNeeded`], [`WalError::WrongRing`], [`WalError::Region`]: the end of the
    ///   log is in persistent memory, and the ring there is missing or is another ring.
    /// - [`WalError::InvalidOption`], also for several streams, which may have to be cut: see
    ///   [`Log::find`].
    /// - [`WalError::Disk`], [`WalError::System`].
    pub fn open(disk: &Arc<dyn Disk>, options: &WalOptions, database: [u8; 16], from: Option<Lsn>) -> Result<Self> {
        if options.logs > 1 {
            let reason = "use `Log::find` for several logs, so that the position at which they are cut can be made \
                          durable before they are opened";
            return Err(WalError::InvalidOption { option: "logs", reason: reason.to_owned() });
        }
        let known = Known { from: from.as_slice(), ..Known::default() };
        Self::find(disk, options, database, &known, None)?.open()
    }

    /// Finds the logs in `disk` and determines how far they are complete. Changes nothing, except
    /// that it may make durable what is already there. `threads` threads read the logs in parallel;
    /// with `None`, large logs get several threads.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn find(
        disk: &Arc<dyn Disk>,
        options: &WalOptions,
        database: [u8; 16],
        known: &Known<'_>,
        threads: Option<usize>,
    ) -> Result<FoundLog> {
        options.validate()?;
        if let Some(home) = disk.directory() {
            options.check_places(&home, &[])?;
        }
        let count = usize::from(options.logs);
        assert!(known.from.is_empty() || known.from.len() == count, "each log is read from a position");
        if let Some(lsn) = known.from.iter().find(|from| **from < FIRST_LSN) {
            return Err(WalError::OutOfRange { lsn: *lsn, start: FIRST_LSN, end: FIRST_LSN });
        }
        // One log is never cut.
        let known = &Known { is_cutting: known.is_cutting && count > 1, ..known.clone() };
        let readings = read_all(disk, options, database, known, threads)?;
        let complete = complete_up_to(&readings, known)?;
        let (mut logs, mut highest) = (Vec::new(), complete);
        for (number, reading) in readings.into_iter().enumerate() {
            let Reading { found, ring, from, end, order: Order { last, boundary, gsn_index, .. } } = reading;
            highest = highest.max(boundary);
            let in_log = |error: WalError| error.in_log(LogId::new(number as u16));
            let (cut, last) = if last <= complete || planted!(HoleKept) {
                (end.end, last)
            } else {
                (first_after(&found, &gsn_index, from, complete).map_err(in_log)?, complete)
            };
            logs.push(FoundStream { found, ring, end, cut, last, gsn_index });
        }
        let (is_cutting, is_new) = (known.is_cutting, known.is_new);
        let found = FoundLog { options: options.clone(), logs, complete, highest, is_cutting, is_new };
        if found.cut().is_some() {
            // Records that count as complete from now on must not be lost.
            for (number, log) in found.logs.iter().enumerate() {
                log.end.make_durable(&log.found.files).map_err(|error| error.in_log(LogId::new(number as u16)))?;
            }
        }
        Ok(found)
    }
}

impl FoundLog {
    /// Returns the GSN behind which opening cuts the logs, if it cuts them.
    pub fn cut(&self) -> Option<Gsn> {
        let is_cut = self.logs.iter().any(|log| log.cut < log.end.end);
        (is_cut || self.is_cutting).then_some(self.complete)
    }

    /// Opens the logs: removes what lies behind the cut, or what a crash has left behind their
    /// ends.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn open(self) -> Result<Log> {
        let is_cut = self.cut().is_some();
        let last = self.logs.iter().map(|log| log.last).fold(self.highest, Gsn::max);
        let common = Common::new(&self.options, next(last))?;
        let (mut streams, mut gsn_index) = (Vec::new(), Vec::new());
        for (number, log) in self.logs.into_iter().enumerate() {
            let mut kept = log.gsn_index.clone();
            kept.retain(|_, lsn| *lsn <= log.cut.get());
            gsn_index.push(kept);
            let stream = log.start(&self.options, is_cut, self.is_new, &common);
            streams.push(stream.map_err(|error| error.in_log(LogId::new(number as u16)))?);
        }
        Log::new(streams, self.complete, gsn_index)
    }
}

impl FoundStream {
    /// Removes the part behind the cut or the end, and starts the stream.
    fn start(mut self, options: &WalOptions, is_cut: bool, is_new: bool, common: &Common) -> Result<Stream> {
        let files = &self.found.files;
        if is_cut {
            self.ring.as_mut().map_or(Ok(()), |ring| ring.empty(files))?;
            recover::truncate(files, self.cut)?;
        } else if !is_new {
            self.end.erase_behind(files)?;
        }
        Stream::start(options.clone(), &self.found, self.cut, is_new && !is_cut, common, self.ring)
    }
}

/// Reads all logs. One thread reads a whole log.
fn read_all(
    disk: &Arc<dyn Disk>,
    options: &WalOptions,
    database: [u8; 16],
    known: &Known<'_>,
    threads: Option<usize>,
) -> Result<Vec<Reading>> {
    let (home, count) = (OpenFiles::of(Arc::clone(disk)), options.logs);
    let (mut found, mut bytes) = (Vec::new(), 0);
    for log in (0..count).map(LogId::new) {
        let identity = Identity::one_of(database, log, count);
        let from = known.from.get(usize::from(log.get())).copied();
        let one = recover::find(&home, log, Some(identity), from).map_err(|error| error.in_log(log))?;
        bytes += one.bytes_behind(from.unwrap_or(one.start).get());
        found.push(one);
    }
    let threads = parallel::size_for(threads, bytes).min(found.len());
    let (disk, options) = (Arc::clone(disk), options.clone());
    let (from, earlier) = (known.from.to_vec(), (known.earlier.0, known.earlier.1.to_vec()));
    let (complete, is_cutting, is_new) = (known.complete, known.is_cutting, known.is_new);
    let rest = Mutex::new((0..count).map(LogId::new).zip(found).rev().collect::<Vec<_>>());
    let work = move || {
        let known = Known { from: &from, earlier: (earlier.0, &earlier.1), complete, is_cutting, is_new };
        let mut readings = Vec::new();
        loop {
            let next = rest.lock().pop();
            let Some((log, found)) = next else { return Ok(readings) };
            let identity = Identity::one_of(database, log, count);
            match read(&disk, &options, identity, &known, found) {
                Ok(reading) => readings.push((log, reading)),
                Err(error) => {
                    rest.lock().clear();
                    return Err(error.in_log(log));
                }
            }
        }
    };
    let parts = parallel::run(threads, "duramen-log-end", work).into_iter().collect::<Result<Vec<_>>>()?;
    let mut readings: Vec<_> = parts.into_iter().flatten().collect();
    readings.sort_by_key(|(log, _)| *log);
    Ok(readings.into_iter().map(|(_, reading)| reading).collect())
}

/// Reads one log from its known position to its end.
fn read(
    disk: &Arc<dyn Disk>,
    options: &WalOptions,
    identity: Identity,
    known: &Known<'_>,
    mut found: Found,
) -> Result<Reading> {
    let number = usize::from(identity.log.get());
    let needed = known.from.get(number).copied();
    let ring = FoundRing::find(disk, options, &identity, &mut found)?;
    let from = needed.unwrap_or(found.start);
    let (step, are_several) = (index_step(options), options.logs > 1);
    let sync_records = SyncRecords::keeping(known.complete);
    let mut order =
        Order { last: Gsn::ZERO, boundary: Gsn::ZERO, disorder: None, gsn_index: GsnIndex::new(), sync_records };
    if let Some(earlier) = known.earlier.1.get(number) {
        order.gsn_index.insert(known.earlier.0.get().saturating_sub(1), earlier.get());
    }
    let mut meter = Meter::new(options.read_observer.as_ref(), from);
    let expected = if known.is_cutting { known.complete } else { Gsn::MAX };
    let is_known = needed.is_some() && !are_several;
    let end = recover::find_end(&found, Some(from), is_known, expected, |record| {
        meter.pass(record);
        if are_several {
            order.note(record, step);
        }
    })?;
    if let Some(lsn) = order.disorder {
        return Err(found.files.geometry.corrupt(lsn.get(), "the GSNs of the log do not increase"));
    }
    // If the log has been cut already, its ring may still hold the end before the cut.
    if let Some(ring) = ring.as_ref().filter(|_| !known.is_cutting) {
        ring.check_end(end.end)?;
    }
    Ok(Reading { found, ring, from, end, order })
}

/// Returns the GSN up to which no log lacks a record.
fn complete_up_to(readings: &[Reading], known: &Known<'_>) -> Result<Gsn> {
    let ends: Vec<Lsn> = readings.iter().map(|reading| reading.end.end).collect();
    let mut complete = known.complete;
    let mut stated = Vec::new();
    for reading in readings {
        let sync_records = &reading.order.sync_records;
        let again = || Scanner::hardened(Arc::clone(&reading.found.files), reading.from, reading.end.end);
        complete = complete.max(sync_records.last_met(&ends, again)?.unwrap_or(Gsn::ZERO));
        stated.extend(sync_records.stated_is_met(&ends));
    }
    // The logs are still complete up to a GSN that was complete before, or records have been lost.
    // Only the sync record that is known to have been met proves a loss: another one may be older
    // and may have noted tails that no committer has waited for. Records of different logs may have
    // the same GSN, so this one may be any of those found.
    if let Some(Err(short)) = stated.into_iter().min()
        && !known.is_cutting
    {
        let reason = format!("hardened records are missing here: the log ends at {}", ends[short]);
        let corrupt = readings[short].found.files.geometry.corrupt(ends[short].get(), reason);
        return Err(corrupt.in_log(LogId::new(short as u16)));
    }
    Ok(complete)
}

/// Returns the start of the first record with a GSN above `gsn`. There is one.
fn first_after(found: &Found, gsn_index: &GsnIndex, from: Lsn, gsn: Gsn) -> Result<Lsn> {
    let indexed = gsn_index.range(..=gsn.get()).next_back().map_or(0, |(_, lsn)| *lsn);
    let mut scanner = Scanner::to_first_invalid(Arc::clone(&found.files), from.max(Lsn::new(indexed)));
    while let Some(record) = scanner.next()? {
        if record.gsn > gsn {
            return Ok(record.lsn);
        }
    }
    Ok(scanner.position())
}
