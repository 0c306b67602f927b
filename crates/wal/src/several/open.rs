//! Opening several logs: how far each reaches, and up to which GSN all of them are whole.
//!
//! The end of each log is found as that of a single one is (`recover.rs`). Then comes what only several logs need: of all
//! synchronizations that have been read, the one with the highest GSN is looked for whose tails lie within the logs as found.
//! Up to that GSN no log lacks anything; behind it one may, so each log is cut there. What is cut off was acknowledged to
//! nobody: who acknowledges waits until all logs are hardened up to their tails.
//!
//! # A crash while the logs are being cut
//! may leave one log cut and another not. The tail that a synchronization notes of another log may lie a little behind that
//! log's last record up to the GSN; so, once that log is cut, the synchronization may look as if it lacked something. And what
//! is left behind the cut was hardened, and would prove damage in a log that is not being cut. Therefore the decision is
//! made durable first: [`FoundLogs::cut`] tells the GSN, and before [`FoundLogs::open`] the caller has to make durable that
//! the logs are complete up to it and being cut, and to give that back as [`Known`] should opening be repeated.

use duramen_io::Disk;
use duramen_sync::{Arc, Mutex, crew};
use duramen_types::{Gsn, LogId, Lsn, planted};

use crate::buffer::clock::Clock;
use crate::device::nvm::open::FoundRing;
use crate::device::nvm::passive::Passive;
use crate::error::{Result, WalError};
use crate::format::record::Identity;
use crate::observer::Meter;
use crate::options::WalOptions;
use crate::segments::archive::Archive;
use crate::segments::files::OpenFiles;
use crate::segments::recover::{self, End, Found};
use crate::segments::scan::Scanner;
use crate::segments::sync_records::Synchronizations;
use crate::several::logs::{Logs, Marks, check, mark_step};
use crate::stream::inner::{OneOf, common_floor};
use crate::stream::log::Wal;

/// What is known about the logs of a database before they are opened.
#[derive(Clone, Debug)]
pub struct Known<'a> {
    /// For each log, a position from which it is read: the end of a record. All before it is complete. With one log there is
    /// a record.
    pub from: &'a [Lsn],
    /// For each log, an earlier position, and a GSN below all records from there on.
    pub earlier: (Gsn, &'a [Lsn]),
    /// The logs are complete up to here.
    pub complete: Gsn,
    /// They were being cut behind that.
    pub is_cutting: bool,
}

/// The logs of a database as they have been found.
#[derive(Debug)]
pub struct FoundLogs {
    disk: Arc<dyn Disk>,
    options: WalOptions,
    single: Option<([u8; 16], Lsn)>,
    logs: Vec<FoundLog>,
    complete: Gsn,
    is_cutting: bool,
}

#[derive(Debug)]
struct FoundLog {
    found: Found,
    ring: Option<FoundRing>,
    end: End,
    /// Where records with a higher GSN than the complete one begin.
    cut: Lsn,
    /// The highest GSN.
    last: Gsn,
    marks: Marks,
}

/// What reading one log shows.
#[derive(Debug)]
struct Reading {
    found: Found,
    ring: Option<FoundRing>,
    end: End,
    last: Gsn,
    marks: Marks,
    /// What the one says that is known to have been met is kept.
    synchronizations: Synchronizations,
}

impl Logs {
    /// Finds `count` logs in `disk` and how far they are whole. Changes nothing but what makes durable what is there already.
    /// Logs are read by so many threads at the same time; without a number, by some if they are large.
    ///
    /// # Errors
    /// As [`Wal::open`].
    pub fn find(
        disk: &Arc<dyn Disk>,
        options: &WalOptions,
        count: u16,
        database: [u8; 16],
        known: &Known<'_>,
        threads: Option<usize>,
    ) -> Result<FoundLogs> {
        check(options, count)?;
        if let Some(home) = disk.directory() {
            options.check_places(&home, &[], count)?;
        }
        assert_eq!(known.from.len(), usize::from(count), "each log is read from a position");
        if count == 1 {
            return Ok(FoundLogs {
                disk: Arc::clone(disk),
                options: options.clone(),
                single: Some((database, known.from[0])),
                logs: Vec::new(),
                complete: known.complete,
                is_cutting: false,
            });
        }
        let readings = read_all(disk, options, count, database, known, threads)?;
        let complete = complete_up_to(&readings, known)?;
        let mut logs = Vec::new();
        for (number, reading) in readings.into_iter().enumerate() {
            let Reading { found, ring, end, last, marks, .. } = reading;
            let in_log = |error: WalError| error.in_log(LogId::new(number as u16));
            let (cut, last) = if last <= complete || planted!(HoleKept) {
                (end.end, last)
            } else {
                (first_after(&found, &marks, known.from[number], complete).map_err(in_log)?, complete)
            };
            logs.push(FoundLog { found, ring, end, cut, last, marks });
        }
        let found = FoundLogs {
            disk: Arc::clone(disk),
            options: options.clone(),
            single: None,
            logs,
            complete,
            is_cutting: known.is_cutting,
        };
        if found.cut().is_some() {
            // What counts as complete from now on must not get lost.
            for (number, log) in found.logs.iter().enumerate() {
                log.end.settle(&log.found.files).map_err(|error| error.in_log(LogId::new(number as u16)))?;
            }
        }
        Ok(found)
    }
}

impl FoundLogs {
    /// The GSN behind which the logs are cut when they are opened, if they are.
    pub fn cut(&self) -> Option<Gsn> {
        let is_cut = self.logs.iter().any(|log| log.cut < log.end.end);
        (is_cut || self.is_cutting).then_some(self.complete)
    }

    /// Opens them: removes what is behind the cut, or what a crash has left behind their ends.
    ///
    /// # Errors
    /// As [`Wal::open`].
    pub fn open(self) -> Result<Logs> {
        if let Some((database, from)) = self.single {
            let wal = Wal::open(self.disk, self.options, database, Some(from))?;
            return Logs::new(vec![wal], Gsn::ZERO, Vec::new());
        }
        let is_cut = self.cut().is_some();
        let last = self.logs.iter().map(|log| log.last).fold(self.complete, Gsn::max);
        let floor = Gsn::new(last.get() + 1);
        let (mut wals, mut marks) = (Vec::new(), Vec::new());
        let passive = Passive::of(&self.options, false);
        let common = common_floor(passive.as_deref());
        let archive = self.options.archive.as_ref().map(Archive::take).transpose()?;
        for (number, log) in self.logs.into_iter().enumerate() {
            let mut kept = log.marks.clone();
            kept.retain(|_, lsn| *lsn <= log.cut.get());
            marks.push(kept);
            let one_of = |clock: Clock| OneOf {
                clock: clock.with_common(common.clone()),
                passive: passive.clone(),
                archive: archive.clone(),
            };
            let wal = log.start(&self.options, is_cut, floor, one_of);
            wals.push(wal.map_err(|error| error.in_log(LogId::new(number as u16)))?);
        }
        Logs::new(wals, self.complete, marks)
    }
}

impl FoundLog {
    /// Removes what is not to be in the log any more and brings it into service, with GSNs from `floor` on.
    fn start(
        mut self,
        options: &WalOptions,
        is_cut: bool,
        floor: Gsn,
        one_of: impl FnOnce(Clock) -> OneOf,
    ) -> Result<Wal> {
        let files = &self.found.files;
        if is_cut {
            self.ring.as_mut().map_or(Ok(()), |ring| ring.empty(files))?;
            recover::truncate(files, self.cut)?;
        } else {
            self.end.erase_behind(files)?;
        }
        let one_of = one_of(Clock::new(self.cut, floor));
        Wal::start_found(options.clone(), &self.found, self.cut, Some(one_of), self.ring)
    }
}

/// Reads all logs, each by one thread.
fn read_all(
    disk: &Arc<dyn Disk>,
    options: &WalOptions,
    count: u16,
    database: [u8; 16],
    known: &Known<'_>,
    threads: Option<usize>,
) -> Result<Vec<Reading>> {
    let home = OpenFiles::of(Arc::clone(disk));
    let mut found = Vec::new();
    for log in (0..count).map(LogId::new) {
        let identity = Identity::one_of(database, log, count);
        let from = known.from[usize::from(log.get())];
        let one = recover::find(&home, log, Some(identity), Some(from)).map_err(|error| error.in_log(log))?;
        found.push(one);
    }
    let from = |log: u16| known.from[usize::from(log)].get();
    let bytes = (0..count).zip(&found).map(|(log, found)| found.bytes_behind(from(log))).sum();
    let threads = crew::size_for(threads, bytes).min(found.len());
    let (disk, options) = (Arc::clone(disk), options.clone());
    let (from, earlier) = (known.from.to_vec(), (known.earlier.0, known.earlier.1.to_vec()));
    let (complete, is_cutting) = (known.complete, known.is_cutting);
    let rest = Mutex::new((0..count).map(LogId::new).zip(found).rev().collect::<Vec<_>>());
    let work = move || {
        let known = Known { from: &from, earlier: (earlier.0, &earlier.1), complete, is_cutting };
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
    let parts = crew::run(threads, "duramen-log-end", work).into_iter().collect::<Result<Vec<_>>>()?;
    let mut readings: Vec<_> = parts.into_iter().flatten().collect();
    readings.sort_by_key(|(log, _)| *log);
    Ok(readings.into_iter().map(|(_, reading)| reading).collect())
}

/// Reads one log from where it is known to its end.
fn read(
    disk: &Arc<dyn Disk>,
    options: &WalOptions,
    identity: Identity,
    known: &Known<'_>,
    mut found: Found,
) -> Result<Reading> {
    let number = usize::from(identity.log.get());
    let from = known.from[number];
    let ring = FoundRing::find(disk, options, &identity, &mut found)?;
    let step = mark_step(options);
    let mut marks = Marks::new();
    if let Some(earlier) = known.earlier.1.get(number) {
        marks.insert(known.earlier.0.get().saturating_sub(1), earlier.get());
    }
    let mut synchronizations = Synchronizations::keeping(known.complete);
    let (mut last, mut disorder) = (Gsn::ZERO, None);
    let mut meter = Meter::new(options.read_observer.as_ref(), from);
    let expected = if known.is_cutting { known.complete } else { Gsn::MAX };
    let end = recover::find_end(&found, Some(from), false, expected, |record| {
        if record.gsn <= last {
            disorder = disorder.or(Some(record.lsn));
        }
        last = record.gsn;
        meter.pass(record);
        if record.lsn.get() / step != record.end.get() / step {
            marks.insert(record.gsn.get(), record.end.get());
        }
        synchronizations.note(record);
    })?;
    if let Some(lsn) = disorder {
        return Err(found.files.geometry.corrupt(lsn.get(), "the GSNs of the log do not grow"));
    }
    // Where a log has been cut already, its ring may not know of that yet.
    if let Some(ring) = ring.as_ref().filter(|_| !known.is_cutting) {
        ring.check_end(end.end)?;
    }
    Ok(Reading { found, ring, end, last, marks, synchronizations })
}

/// Up to which GSN no log lacks anything.
fn complete_up_to(readings: &[Reading], known: &Known<'_>) -> Result<Gsn> {
    let ends: Vec<Lsn> = readings.iter().map(|reading| reading.end.end).collect();
    let mut complete = known.complete;
    for reading in readings {
        let found = &reading.found;
        let from = known.from[usize::from(found.files.identity.log.get())];
        let again = || Scanner::hardened(Arc::clone(&found.files), from, reading.end.end);
        complete = complete.max(reading.synchronizations.last_met(&ends, again)?.unwrap_or(Gsn::ZERO));
        // What was complete before is so still, or it has got lost. Only of the very synchronization that is known to have been
        // met can that be said: another may be older and have noted tails that nobody has waited for.
        let short = reading.synchronizations.stated_is_short_of(&ends);
        if let Some(short) = short.filter(|_| !known.is_cutting) {
            let reason = format!("hardened records are missing here: the log ends at {}", ends[short]);
            let corrupt = readings[short].found.files.geometry.corrupt(ends[short].get(), reason);
            return Err(corrupt.in_log(LogId::new(short as u16)));
        }
    }
    Ok(complete)
}

/// Where the first record with a GSN above `gsn` starts. There is one.
fn first_after(found: &Found, marks: &Marks, from: Lsn, gsn: Gsn) -> Result<Lsn> {
    let mark = marks.range(..=gsn.get()).next_back().map_or(0, |(_, lsn)| *lsn);
    let mut scanner = Scanner::to_first_invalid(Arc::clone(&found.files), from.max(Lsn::new(mark)));
    while let Some(record) = scanner.next()? {
        if record.gsn > gsn {
            return Ok(record.lsn);
        }
    }
    Ok(scanner.position())
}
