//! Opening a log: finding the end of each of its streams, and the GSN up to which all of them are
//! complete.
//!
//! The first step finds the end of each log (`recover.rs`). With several logs, a second step
//! selects, of all sync records read, the one with the highest GSN whose tails lie within the logs
//! as found. Up to that GSN no log lacks a record; behind it one may, so each log is cut there. No
//! acknowledged record is cut off: acknowledging a commit takes all logs hardened up to the tails.
//!
//! # A crash during the cut
//! Such a crash may leave one log cut and another uncut. The tail that a sync record notes of a log
//! may lie a little behind the log's last record up to the GSN: once that log is cut, the sync
//! record may look incomplete. Besides, the records behind the cut were hardened: unless the log is
//! being cut, they would prove damage. So the decision becomes durable first. [`FoundLog::cut`]
//! returns the GSN, and before [`FoundLog::open`] the caller makes durable that the logs are
//! complete up to it and are being cut there. A repeated opening gets both facts as [`Known`].

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
    /// For each log, where reading starts: the end of a record, with everything before it complete.
    /// With one log, a record starts there. Without positions, logs are read from their starts.
    pub from: &'a [Lsn],
    /// A GSN and, for each log, an earlier position; all records of that log from the position on
    /// have higher GSNs.
    pub earlier: (Gsn, &'a [Lsn]),
    /// The logs are complete up to this GSN, and no sync record before `from` has a higher
    /// boundary: one less than [`Log::hardened_below`] returned before the positions were chosen.
    pub complete: Gsn,
    /// The logs were being cut behind that GSN.
    pub is_cutting: bool,
}

/// The logs of a database as found on disk.
#[derive(Debug)]
pub struct FoundLog {
    options: WalOptions,
    logs: Vec<FoundStream>,
    complete: Gsn,
    is_cutting: bool,
}

#[derive(Debug)]
struct FoundStream {
    found: Found,
    ring: Option<FoundRing>,
    from: Lsn,
    end: End,
    /// Where the records begin whose GSNs are higher than the complete GSN; else the end.
    cut: Lsn,
    order: Order,
}

/// The order of the records of one log among several. A single log does not need it.
#[derive(Debug)]
struct Order {
    /// The highest GSN before the cut.
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
    /// Opens a log of one stream: finds its end and removes what a crash has left behind it.
    /// Reading starts at `from`, the LSN of a record known to be hardened (a checkpoint), or at the
    /// log's start. Afterwards everything before the log's end ([`Log::extents`]) is hardened.
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
            return Err(WalError::invalid("logs", reason));
        }
        let known = Known { from: from.as_slice(), ..Known::default() };
        Self::find(disk, options, database, &known, None)?.open()
    }

    /// Finds the logs in `disk` and how far they are complete. Changes nothing, but may make
    /// durable what is there. `threads` threads read the logs; with `None`, large logs get several.
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
        let mut logs = read_all(disk, options, database, known, threads)?;
        let complete = complete_up_to(&logs, known)?;
        for log in &mut logs {
            if log.order.last > complete && !planted!(HoleKept) {
                log.cut = log.first_after(complete).map_err(|error| error.in_log(log.id()))?;
                log.order.last = complete;
            }
        }
        let found = FoundLog { options: options.clone(), logs, complete, is_cutting: known.is_cutting };
        if found.cut().is_some() {
            // Records that count as complete from now on must not be lost.
            for log in &found.logs {
                log.end.make_durable(&log.found.files).map_err(|error| error.in_log(log.id()))?;
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

    /// Opens the logs: removes what lies behind the cut, or what a crash left behind their ends.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn open(self) -> Result<Log> {
        let is_cut = self.cut().is_some();
        // A sync record that is not complete may lie before the cut. Later records get GSNs above
        // its boundary, so that it can never become complete with them.
        let last = self.logs.iter().map(|log| log.order.last.max(log.order.boundary)).fold(self.complete, Gsn::max);
        let common = Common::new(&self.options, next(last))?;
        let (mut streams, mut gsn_index) = (Vec::new(), Vec::new());
        for mut log in self.logs {
            log.order.gsn_index.retain(|_, lsn| *lsn <= log.cut.get());
            gsn_index.push(std::mem::take(&mut log.order.gsn_index));
            let id = log.id();
            streams.push(log.start(&self.options, is_cut, &common).map_err(|error| error.in_log(id))?);
        }
        Log::new(streams, self.complete, gsn_index)
    }
}

impl FoundStream {
    fn id(&self) -> LogId {
        self.found.files.identity.log
    }

    /// Returns the start of the first record with a GSN above `gsn`. There is one.
    fn first_after(&self, gsn: Gsn) -> Result<Lsn> {
        let indexed = self.order.gsn_index.range(..=gsn.get()).next_back().map_or(0, |(_, lsn)| *lsn);
        let mut scanner = Scanner::to_first_invalid(Arc::clone(&self.found.files), self.from.max(Lsn::new(indexed)));
        while let Some(record) = scanner.next()? {
            if record.gsn > gsn {
                return Ok(record.lsn);
            }
        }
        Ok(scanner.position())
    }

    /// Removes the part behind the cut or the end, and starts the stream.
    fn start(mut self, options: &WalOptions, is_cut: bool, common: &Common) -> Result<Stream> {
        let files = &self.found.files;
        if is_cut {
            self.ring.as_mut().map_or(Ok(()), |ring| ring.empty(files))?;
            recover::truncate(files, self.cut)?;
        } else {
            self.end.erase_behind(files)?;
        }
        Stream::start(options.clone(), &self.found, self.cut, common, self.ring)
    }
}

/// Reads all logs. One thread reads a whole log.
fn read_all(
    disk: &Arc<dyn Disk>,
    options: &WalOptions,
    database: [u8; 16],
    known: &Known<'_>,
    threads: Option<usize>,
) -> Result<Vec<FoundStream>> {
    let home = OpenFiles::of(Arc::clone(disk));
    let (mut unread, mut bytes) = (Vec::new(), 0);
    for number in 0..options.logs {
        let (log, place) = (LogId::new(number), usize::from(number));
        let identity = Identity::one_of(database, log, options.logs);
        let from = known.from.get(place).copied();
        let found = recover::find(&home, log, Some(identity), from).map_err(|error| error.in_log(log))?;
        bytes += found.bytes_behind(from.unwrap_or(found.start).get());
        let earlier = known.earlier.1.get(place).map(|lsn| (known.earlier.0.get().saturating_sub(1), lsn.get()));
        let order = Order {
            last: Gsn::ZERO,
            boundary: Gsn::ZERO,
            disorder: None,
            gsn_index: earlier.into_iter().collect(),
            sync_records: SyncRecords::keeping(known.complete),
        };
        unread.push((found, from, order));
    }
    let threads = parallel::size_for(threads, bytes).min(unread.len());
    let (disk, options) = (Arc::clone(disk), options.clone());
    let cutting = known.is_cutting.then_some(known.complete);
    unread.reverse();
    let unread = Mutex::new(unread);
    let work = move || -> Result<Vec<FoundStream>> {
        let mut logs = Vec::new();
        loop {
            let next = unread.lock().pop();
            let Some((found, from, order)) = next else { return Ok(logs) };
            let log = found.files.identity.log;
            let read = read(&disk, &options, found, from, order, cutting).inspect_err(|_| unread.lock().clear());
            logs.push(read.map_err(|error| error.in_log(log))?);
        }
    };
    let parts = parallel::run(threads, "duramen-log-end", work).into_iter().collect::<Result<Vec<_>>>()?;
    let mut logs: Vec<_> = parts.into_iter().flatten().collect();
    logs.sort_by_key(FoundStream::id);
    Ok(logs)
}

/// Reads one log to its end, from the position that is `known` or from its start. `cutting` is the
/// GSN behind which the log was being cut.
fn read(
    disk: &Arc<dyn Disk>,
    options: &WalOptions,
    mut found: Found,
    known: Option<Lsn>,
    mut order: Order,
    cutting: Option<Gsn>,
) -> Result<FoundStream> {
    let identity = found.files.identity;
    let ring = FoundRing::find(disk, options, &identity, &mut found)?;
    let from = known.unwrap_or(found.start);
    let (step, are_several) = (index_step(options), options.logs > 1);
    let mut meter = Meter::new(options.read_observer.as_ref(), from);
    let is_known = known.is_some() && !are_several;
    let end = recover::find_end(&found, from, is_known, cutting.unwrap_or(Gsn::MAX), |record| {
        meter.pass(record);
        if are_several {
            order.note(record, step);
        }
    })?;
    if let Some(lsn) = order.disorder {
        return Err(found.files.geometry.corrupt(lsn.get(), "the GSNs of the log do not increase"));
    }
    // If the log has been cut already, its ring may still hold the end before the cut.
    if let Some(ring) = ring.as_ref().filter(|_| cutting.is_none()) {
        ring.check_end(end.end)?;
    }
    Ok(FoundStream { found, ring, from, end, cut: end.end, order })
}

/// Returns the GSN up to which no log lacks a record.
fn complete_up_to(logs: &[FoundStream], known: &Known<'_>) -> Result<Gsn> {
    let ends: Vec<Lsn> = logs.iter().map(|log| log.end.end).collect();
    let mut complete = known.complete;
    let mut stated = Vec::new();
    for log in logs {
        let sync_records = &log.order.sync_records;
        let again = || Scanner::hardened(Arc::clone(&log.found.files), log.from, log.end.end);
        complete = complete.max(sync_records.last_met(&ends, again)?.unwrap_or(Gsn::ZERO));
        stated.extend(sync_records.stated_is_met(&ends));
    }
    // Only the sync record that is known to have been met proves a loss of records: another one may
    // be older and may have noted tails that no committer has waited for. Records of different logs
    // may have the same GSN, so it may be any of those found.
    if let Some(Err(short)) = stated.into_iter().min()
        && !known.is_cutting
    {
        let reason = format!("hardened records are missing here: the log ends at {}", ends[short]);
        let corrupt = logs[short].found.files.geometry.corrupt(ends[short].get(), reason);
        return Err(corrupt.in_log(logs[short].id()));
    }
    Ok(complete)
}
