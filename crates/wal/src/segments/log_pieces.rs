//! A log put together from a backup, the archive and what is left of the log itself; and part of it
//! made into another database's log.
//!
//! Of each segment, the archive's copy is taken if there is one, else the one in the log, else that
//! of the backup, the last of which ends where the backup does. Reading begins where the backup's
//! log does and goes on as far as segments follow each other. The end is the first position without
//! a valid record, as at recovery; but records that were hardened for certain, those before the end
//! of the backup and in whole segments, must be there.
//!
//! # Another database's log
//! A restored database goes on otherwise than the one that it was copied from, in the same
//! positions of the log. So that nobody ever takes the records of one for the other's, it is
//! another database: its log has the same records with the same LSNs and GSNs, and checksums that
//! are seeded with an identity of its own ([`LogChain::write_to`]).

use std::collections::BTreeMap;

use duramen_io::{AlignedBuf, Disk, OpenMode};
use duramen_sync::Arc;
use duramen_types::{LogId, Lsn};

use crate::error::{Result, WalError};
use crate::format::record::{HEADER_BYTES, Identity, RecordRef, seal};
use crate::format::segment::{BLOCK, Geometry, LogFile, SegmentHeader, classify, directory, segment_name};
use crate::segments::files::{OpenFiles, SegmentFiles, names};
use crate::segments::recover::open_segment;
use crate::segments::scan::Scanner;

/// Bytes written at a time, and up to a record more.
const WINDOW_BYTES: u64 = 1 << 20;

/// Where the pieces of logs are: each a directory with a subdirectory `log`, and `log1` and so on
/// with several logs.
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'a> {
    /// The backup.
    pub backup: &'a dyn Disk,
    /// The archive.
    pub archive: Option<&'a dyn Disk>,
    /// The database, closed or after a crash. Nobody has it open.
    pub log: Option<&'a dyn Disk>,
}

/// Which log it is, and what the backup has of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogPart {
    /// Its number.
    pub log: LogId,
    /// How many logs the database has.
    pub count: u16,
    /// Where the backup's part starts: at a record.
    pub start: Lsn,
    /// Where it ends.
    pub end: Lsn,
}

impl LogPart {
    /// Of a database with one log.
    pub fn only(start: Lsn, end: Lsn) -> Self {
        Self { log: LogId::ZERO, count: 1, start, end }
    }
}

/// A log put together.
#[derive(Debug)]
pub struct LogChain {
    pub(crate) files: Arc<SegmentFiles>,
    /// Where the backup's log starts and ends.
    backup: (Lsn, Lsn),
    /// Everything below was hardened.
    certain: u64,
    /// The first segment that is missing though later ones are there.
    gap: Option<u64>,
    /// The log itself was among the pieces.
    has_log: bool,
}

/// Where reading has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The start of the record that reading has ended at, or the end of the log.
    pub at: Lsn,
    /// Whether there is such a record.
    pub is_record: bool,
    /// The segment that is missing at the end, though later ones are there.
    pub gap: Option<u64>,
}

/// Segments by their numbers, and where they are.
type Found = BTreeMap<u64, (Arc<OpenFiles>, SegmentHeader)>;

/// What a piece has at its end, in one segment.
#[derive(Debug)]
struct Stretch<'p> {
    log: LogId,
    number: u64,
    home: &'p OpenFiles,
    from: u64,
    to: u64,
}

impl Stretch<'_> {
    /// Whether `log` has the same bytes, or has recycled them. Where histories part, all that
    /// follows is different.
    fn has_been_in(&self, log: &Found, geometry: Geometry) -> Result<bool> {
        let Some((home, _)) = log.get(&self.number) else {
            return Ok(log.first_key_value().is_some_and(|(first, _)| self.number < *first));
        };
        let (own, file) = (home.segment(self.log, self.number)?, self.home.segment(self.log, self.number)?);
        let (mut one, mut two) = (AlignedBuf::zeroed(WINDOW_BYTES as usize), AlignedBuf::zeroed(WINDOW_BYTES as usize));
        let mut window = self.from / BLOCK * BLOCK;
        while window < self.to {
            let len = (self.to.next_multiple_of(BLOCK) - window).min(WINDOW_BYTES) as usize;
            own.read_at(&mut one[..len], geometry.offset(window))?;
            file.read_at(&mut two[..len], geometry.offset(window))?;
            let compared = (self.from.max(window) - window) as usize..(self.to - window).min(len as u64) as usize;
            if one[compared.clone()] != two[compared] {
                return Ok(false);
            }
            window += len as u64;
        }
        Ok(true)
    }
}

/// The segments of `identity` in `disk`.
fn segments(disk: &dyn Disk, identity: &Identity) -> Result<Found> {
    let mut found = BTreeMap::new();
    let home = OpenFiles::of(disk.handle());
    for name in names(disk, identity.log)? {
        if let LogFile::Segment(number) = classify(&name) {
            let (file, header) = open_segment(disk, identity.log, number)?;
            if !header.is_of(identity) {
                return Err(WalError::WrongDatabase { file: file.path() });
            }
            found.insert(number, (Arc::clone(&home), header));
        }
    }
    Ok(found)
}

/// Takes out what an interrupted recycling has left below the log's start, as opening the log does:
/// other bytes may be in it already.
fn remove_stale(log: &mut Found, geometry: Geometry) {
    let start = log.values().map(|(_, header)| header.start).max();
    if let (Some(start), Some((&last, _))) = (start, log.last_key_value()) {
        // A log may start at the end of its last segment.
        let first = geometry.segment_of(start.get()).min(last);
        log.retain(|number, _| *number >= first);
    }
}

impl LogChain {
    /// Puts a log of `database` together, of which the backup has this `part`.
    ///
    /// # Errors
    /// [`WalError::NoLog`] and [`WalError::MissingSegment`] when the backup is not whole; of
    /// several logs, [`WalError::OlderLogs`] when they have not all that is in the archive and the
    /// backup; [`WalError::WrongDatabase`], [`WalError::Corrupt`] and [`WalError::WrongVersion`]
    /// for segments that cannot be used; [`WalError::RingNeeded`] when the end of the log is in
    /// persistent memory; [`WalError::Disk`].
    pub fn open(pieces: &Pieces<'_>, database: [u8; 16], part: LogPart) -> Result<Self> {
        Self::put_together(pieces, database, part).map_err(|error| error.in_log(part.log))
    }

    fn put_together(pieces: &Pieces<'_>, database: [u8; 16], part: LogPart) -> Result<Self> {
        let LogPart { log, count, start, end } = part;
        let identity = Identity::one_of(database, log, count);
        let mut backup = segments(pieces.backup, &identity)?;
        let Some((_, (_, header))) = backup.first_key_value() else {
            return Err(WalError::NoLog { location: pieces.backup.location() });
        };
        let geometry = Geometry { segment_bytes: header.segment_bytes };
        let of = |disk: Option<&dyn Disk>| disk.map(|disk| segments(disk, &identity)).transpose();
        let (mut archive, mut log) = (of(pieces.archive)?.unwrap_or_default(), of(pieces.log)?.unwrap_or_default());
        if let (Some(disk), Some((_, (_, header)))) = (pieces.log, log.last_key_value())
            && header.ring != 0
        {
            return Err(WalError::RingNeeded { location: disk.location(), number: header.ring });
        }
        for (number, (home, header)) in backup.iter().chain(&archive).chain(&log) {
            if header.segment_bytes != geometry.segment_bytes {
                let (location, name) = (home.disk().location(), segment_name(identity.log, *number));
                let reason = format!("`{location}/{name}` has {} bytes, others not", header.segment_bytes);
                return Err(WalError::Corrupt { segment: *number, offset: 0, reason });
            }
        }
        remove_stale(&mut log, geometry);
        if let Some(disk) = pieces.log.filter(|_| !log.is_empty() && count > 1) {
            let log_id = identity.log;
            let whole = archive.last_key_value().map(|(&number, (home, _))| {
                let (from, to) = (geometry.base(number), geometry.base(number + 1));
                ("archive", Stretch { log: log_id, number, home, from, to })
            });
            let number = geometry.segment_of(end.get().max(start.get() + 1) - 1);
            let cut = backup.get(&number).map(|(home, _)| {
                let from = geometry.base(number).max(start.get());
                ("backup", Stretch { log: log_id, number, home, from, to: end.get().max(from) })
            });
            for (than, stretch) in whole.into_iter().chain(cut) {
                if !stretch.has_been_in(&log, geometry)? {
                    let (location, log, segment) = (disk.location(), identity.log, stretch.number);
                    return Err(WalError::OlderLogs { location, than, log, segment });
                }
            }
        }
        let has_log = !log.is_empty();
        let last = [&backup, &archive, &log].into_iter().filter_map(|some| Some(*some.last_key_value()?.0)).max();
        let last = last.unwrap_or_default();
        let (mut live, mut gap, mut certain) = (BTreeMap::new(), None, end.get());
        let first = geometry.segment_of(start.get());
        for number in first..=last {
            let (is_archived, in_backup) = (archive.contains_key(&number), geometry.base(number) < end.get());
            let is_cut = in_backup && geometry.base(number + 1) > end.get();
            if let Some((home, _)) = archive.remove(&number).or_else(|| log.remove(&number)) {
                if is_archived {
                    certain = certain.max(geometry.base(number + 1));
                }
                live.insert(number, home);
                continue;
            }
            match backup.remove(&number) {
                Some((home, _)) if in_backup || number == first => {
                    live.insert(number, home);
                    if !is_cut {
                        continue;
                    }
                }
                _ if in_backup => {
                    let lsn = Lsn::new(geometry.base(number)).max(start);
                    return Err(WalError::MissingSegment { segment: number, lsn });
                }
                _ => {}
            }
            gap = (number < last).then_some(number);
            break;
        }
        // Of what lies behind a gap nothing is read.
        let limit = live.last_key_value().map_or(0, |(number, _)| geometry.base(number + 1));
        let certain = certain.min(limit);
        let files = Arc::new(SegmentFiles::new(identity, geometry, live));
        Ok(Self { files, backup: (start, end), certain, gap, has_log })
    }

    /// Which log it is.
    pub fn log(&self) -> LogId {
        self.files.identity.log
    }

    /// Where the backup's log starts, and reading begins.
    pub fn start(&self) -> Lsn {
        self.backup.0
    }

    /// The first segment that is missing though later ones are there.
    pub fn gap(&self) -> Option<u64> {
        self.gap
    }

    /// Whether the log itself was among the pieces.
    pub fn has_log(&self) -> bool {
        self.has_log
    }

    /// Whether it goes on to where the log itself ends, which was among the pieces.
    pub fn reaches_end(&self) -> bool {
        self.has_log && self.gap.is_none()
    }

    /// Size of a segment in bytes.
    pub fn segment_bytes(&self) -> u64 {
        self.files.geometry.segment_bytes
    }

    /// Reads from the start of the backup's log until `is_behind` says of a record that it and all
    /// that follow are behind what is asked for, or to the end.
    ///
    /// # Errors
    /// [`WalError::Corrupt`] when hardened records are damaged; [`WalError::Disk`].
    pub fn find_cut(&self, is_behind: impl FnMut(&RecordRef<'_>) -> bool) -> Result<Cut> {
        self.read_to(is_behind).map_err(|error| error.in_log(self.log()))
    }

    fn read_to(&self, mut is_behind: impl FnMut(&RecordRef<'_>) -> bool) -> Result<Cut> {
        let mut scanner = Scanner::to_first_invalid(Arc::clone(&self.files), self.backup.0);
        while let Some(record) = scanner.next()? {
            if is_behind(&record) {
                return Ok(Cut { at: record.lsn, is_record: true, gap: None });
            }
        }
        let at = scanner.position();
        // The last record of a whole segment may go on in one that is not there.
        let is_header_cut_off = at.get() + HEADER_BYTES as u64 > self.files.limit();
        let is_cut_off = (scanner.is_cut_off() || is_header_cut_off) && at >= self.backup.1;
        if at.get() < self.certain && !is_cut_off {
            let reason = scanner.stopped_because().unwrap_or("there is no record here");
            return Err(self.files.geometry.corrupt(at.get(), reason));
        }
        Ok(Cut { at, is_record: false, gap: self.gap })
    }

    /// Makes what is before `cut` the log of `database`, in its empty directory in `disk`, durably.
    ///
    /// # Errors
    /// [`WalError::Corrupt`], [`WalError::Disk`].
    pub fn write_to(&self, disk: &dyn Disk, database: [u8; 16], cut: Lsn, progress: impl FnMut(u64)) -> Result<()> {
        self.copy_to(disk, database, cut, progress).map_err(|error| error.in_log(self.log()))
    }

    fn copy_to(&self, disk: &dyn Disk, database: [u8; 16], cut: Lsn, mut progress: impl FnMut(u64)) -> Result<()> {
        let (own, geometry) = (self.files.identity, self.files.geometry);
        let identity = Identity::one_of(database, own.log, own.count);
        let directory = directory(own.log);
        let start = self.backup.0;
        disk.create_directory(&directory)?;
        disk.sync_directory("")?;
        let (home, mut made) = (OpenFiles::of(disk.handle()), BTreeMap::new());
        let numbers = geometry.segment_of(start.get())..=geometry.segment_of(cut.get().max(start.get() + 1) - 1);
        for number in numbers.clone() {
            let file = disk.open(&segment_name(own.log, number), OpenMode::CreateNew)?;
            if number == *numbers.start() || number == *numbers.end() {
                // The others are written from beginning to end.
                file.allocate(geometry.segment_bytes)?;
            }
            SegmentHeader::of_copy(&identity, number, start, geometry.segment_bytes).write(&*file)?;
            made.insert(number, Arc::clone(&home));
        }
        let made = SegmentFiles::new(identity, geometry, made);
        let mut scanner = Scanner::to_first_invalid(Arc::clone(&self.files), start);
        let mut buffer = AlignedBuf::zeroed((WINDOW_BYTES + 2 * BLOCK) as usize);
        // What has been sealed of the block in which the window begins.
        let mut sealed: Vec<u8> = vec![0; (start.get() % BLOCK) as usize];
        let mut at = start.get();
        while at < cut.get() {
            let window = at / BLOCK * BLOCK;
            while scanner.position().get() < (window + WINDOW_BYTES).min(cut.get()) {
                if scanner.next()?.is_none() {
                    return Err(geometry.corrupt(at, "records that were there are not any more"));
                }
            }
            let to = scanner.position().get();
            let (len, is_last) = ((to.next_multiple_of(BLOCK) - window) as usize, to >= cut.get());
            if len > buffer.len() {
                buffer = AlignedBuf::zeroed(len);
            }
            let bytes = &mut buffer[..len];
            self.files.read(window, bytes)?;
            bytes[..sealed.len()].copy_from_slice(&sealed);
            seal(&mut bytes[sealed.len()..(to - window) as usize], &identity, Lsn::new(at));
            bytes[(to - window) as usize..].fill(0);
            let whole = if is_last { window + len as u64 } else { to / BLOCK * BLOCK };
            for (from, behind) in made.pieces(window, whole) {
                let part = &bytes[(from - window) as usize..(behind - window) as usize];
                let file = made.file_at(from)?;
                file.write_at(&[part], geometry.offset(from))?;
                if behind == geometry.base(geometry.segment_of(from) + 1) {
                    // It is complete, and may be closed: whatever fails later would not be told
                    // here.
                    file.sync()?;
                }
            }
            sealed = bytes[(to / BLOCK * BLOCK - window) as usize..(to - window) as usize].to_vec();
            at = to;
            progress(at - start.get());
        }
        made.sync()?;
        Ok(disk.sync_directory(&directory)?)
    }
}
