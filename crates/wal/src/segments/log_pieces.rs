//! A log assembled from a backup, the archive and what is left of the log itself; and a part of it
//! written as another database's log.
//!
//! Each segment comes from the archive if it is there, else from the log, else from the backup,
//! whose last segment ends where the backup ends. Reading begins where the backup's log begins and
//! continues as far as segments follow each other. The end is the first position without a valid
//! record, as in recovery. But records that were certainly hardened must be present: those before
//! the end of the backup and those in archived segments. If all there is was asked for
//! ([`LogPieces::to_the_end`]), nothing may follow the end of the log itself that a crash cannot
//! explain, as when it is opened ([`crate::segments::recover`]), and it must have what its owner
//! knows to be hardened.
//!
//! # Another database's log
//! A restored database continues differently from its original, at the same positions of the log.
//! So that the records of one are never taken for the other's, it is another database: its log has
//! the same records with the same LSNs and GSNs, but their checksums are seeded with a new identity
//! ([`LogPieces::write_to`]).

use std::collections::BTreeMap;
use std::ops::Range;

use duramen_io::{AlignedBuf, Disk, OpenMode};
use duramen_sync::Arc;
use duramen_types::{Gsn, LogId, Lsn};

use crate::error::{Result, WalError};
use crate::format::header::LEAST_HEADER_BYTES;
use crate::format::identity::Identity;
use crate::format::record::{RecordRef, seal};
use crate::format::segment::{BLOCK, Geometry, SegmentHeader, damaged, directory, segment_name};
use crate::segments::files::{CHUNK_BYTES, OpenFiles, SegmentFiles, are_same};
use crate::segments::recover::{Headers, check_for_damage, has_record, read_headers};
use crate::segments::scan::Scanner;

/// Where the pieces of the logs are: directories with a subdirectory `log`, and `log1` and so on.
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'a> {
    /// The backup.
    pub backup: &'a dyn Disk,
    /// The archive.
    pub archive: Option<&'a dyn Disk>,
    /// The database, closed or after a crash. No process has it open.
    pub log: Option<&'a dyn Disk>,
}

/// Identifies a log and the backup's part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogPart {
    /// Number of the log.
    pub log: LogId,
    /// Number of logs of the database.
    pub count: u16,
    /// Where the backup's part starts: at a record.
    pub start: Lsn,
    /// Where it ends.
    pub end: Lsn,
}

/// An assembled log.
#[derive(Debug)]
pub struct LogPieces {
    pub(crate) files: Arc<SegmentFiles>,
    /// Where the backup's log starts and ends.
    backup: (Lsn, Lsn),
    /// Everything below was hardened.
    certain: u64,
    /// The first missing segment that is followed by present ones.
    gap: Option<u64>,
    /// The headers of the log's own segments, if they are among the pieces.
    headers: Headers,
    expected: Option<Expected>,
}

/// What is known of the end of the log itself.
#[derive(Clone, Copy, Debug)]
struct Expected {
    /// Everything below was hardened.
    hardened: Lsn,
    /// Records with higher GSNs may be the rest of a cut.
    gsn: Gsn,
}

/// Where reading has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The start of the record at which reading has ended, or the end of the log.
    pub at: Lsn,
    /// Whether there is such a record.
    pub is_record: bool,
    /// The segment that is missing at the end although later ones are present.
    pub gap: Option<u64>,
}

/// Segments by number, with their directory and header.
type Found = BTreeMap<u64, (Arc<OpenFiles>, SegmentHeader)>;

/// The bytes at the end of a piece, in one segment.
#[derive(Debug)]
struct Stretch<'p> {
    number: u64,
    home: &'p OpenFiles,
    /// Offsets in the file of the segment.
    range: Range<u64>,
}

impl Stretch<'_> {
    /// Returns whether `log`, which has this `id`, has the same bytes or has recycled them. Where
    /// histories diverge, all later bytes differ.
    fn has_been_in(self, log: &Found, id: LogId) -> Result<bool> {
        let Self { number, home, range } = self;
        let Some((own, header)) = log.get(&number) else {
            return Ok(log.first_key_value().is_some_and(|(first, _)| number < *first));
        };
        Ok(range.is_empty()
            || range.end <= header.file_bytes
                && are_same(&*own.segment(id, number)?, &*home.segment(id, number)?, range)?)
    }
}

fn segments(disk: &dyn Disk, identity: &Identity) -> Result<Found> {
    let (home, (headers, _)) = (OpenFiles::of(disk.handle()), read_headers(disk, identity.log, Some(identity))?);
    Ok(headers.into_iter().map(|(number, header)| (number, (Arc::clone(&home), header))).collect())
}

/// Removes the segments that an interrupted recycling has left, as opening the log does: they may
/// already contain other bytes.
fn remove_stale(log: &mut Found, geometry: Geometry) {
    let start = log.values().map(|(_, header)| header.start).max();
    if let (Some(start), Some((&last, _))) = (start, log.last_key_value()) {
        // A log may start at the end of its last segment.
        let first = geometry.segment_of(start.get()).min(last);
        log.retain(|number, _| *number >= first);
    }
}

impl LogPieces {
    /// Assembles the log of `database` of which the backup has this `part`.
    ///
    /// # Errors
    /// [`WalError::NoLog`] and [`WalError::MissingSegment`] if the backup is not whole;
    /// [`WalError::OlderLogs`] if several logs lack something that is in the archive or the backup;
    /// [`WalError::WrongDatabase`], [`WalError::Corrupt`], [`WalError::WrongVersion`] for unusable
    /// segments; [`WalError::RingNeeded`] if the log's end is in a ring; [`WalError::Disk`].
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
                let reason = format!(
                    "the header of `{location}/{name}` says that segments have {} bytes, unlike the headers of other \
                     segments",
                    header.segment_bytes
                );
                return Err(damaged(*number, 0, reason));
            }
        }
        remove_stale(&mut log, geometry);
        if let Some(disk) = pieces.log.filter(|_| !log.is_empty() && count > 1) {
            let whole = archive.last_key_value().map(|(&number, (home, _))| {
                ("archive", Stretch { number, home, range: BLOCK..geometry.segment_bytes })
            });
            let segment = geometry.segment_of(end.get().max(start.get() + 1) - 1);
            let cut = backup.get(&segment).map(|(home, _)| {
                let from = geometry.base(segment).max(start.get());
                let (offset, bytes) = (geometry.offset(from), end.get().saturating_sub(from));
                ("backup", Stretch { number: segment, home, range: offset..offset + bytes })
            });
            for (than, stretch) in whole.into_iter().chain(cut) {
                let segment = stretch.number;
                if !stretch.has_been_in(&log, identity.log)? {
                    return Err(WalError::OlderLogs { location: disk.location(), than, log: identity.log, segment });
                }
            }
        }
        let headers = log.iter().map(|(number, (_, header))| (*number, *header)).collect();
        let last = backup.keys().chain(archive.keys()).chain(log.keys()).max().copied().unwrap_or_default();
        let (mut live, mut last_bytes) = (BTreeMap::new(), BLOCK);
        let (mut gap, mut certain) = (None, end.get());
        let first = geometry.segment_of(start.get());
        for number in first..=last {
            let (base, behind) = (geometry.base(number), geometry.base(number + 1));
            let in_backup = base < end.get();
            if archive.contains_key(&number) {
                certain = certain.max(behind);
            }
            let later = archive.remove(&number).or_else(|| log.remove(&number));
            let is_cut = match &later {
                // The last segment of the log: its file had to grow before the log could go on.
                Some((_, header)) => header.file_bytes < geometry.segment_bytes,
                None => in_backup && behind > end.get(),
            };
            let piece = later.or_else(|| backup.remove(&number).filter(|_| in_backup || number == first));
            if piece.is_none() && in_backup {
                return Err(WalError::MissingSegment { segment: number, lsn: Lsn::new(base).max(start) });
            }
            let has_piece = piece.is_some();
            if let Some((home, header)) = piece {
                last_bytes = header.file_bytes;
                live.insert(number, home);
            }
            if is_cut || !has_piece {
                // Nothing behind a gap is read.
                gap = (number < last).then_some(number);
                break;
            }
        }
        let files = Arc::new(SegmentFiles::new(identity, geometry, live, last_bytes));
        let certain = certain.min(files.limit());
        Ok(Self { files, backup: (start, end), certain, gap, headers, expected: None })
    }

    /// Makes damage at the end of the log itself an error, for a restore of all there is; it does
    /// not affect an earlier point. The log's owner knows that everything before `hardened` was
    /// hardened and, if a crash interrupted the cutting of several logs, the GSN of the `cut`.
    #[must_use]
    pub fn to_the_end(self, hardened: Lsn, cut: Option<Gsn>) -> Self {
        Self { expected: Some(Expected { hardened, gsn: cut.unwrap_or(Gsn::MAX) }), ..self }
    }

    /// Returns which log it is.
    pub fn log(&self) -> LogId {
        self.files.identity.log
    }

    /// Returns where the backup's log starts.
    pub fn start(&self) -> Lsn {
        self.backup.0
    }

    /// Returns the first missing segment that is followed by present ones.
    pub fn gap(&self) -> Option<u64> {
        self.gap
    }

    /// Returns whether the log itself was among the pieces.
    pub fn has_log(&self) -> bool {
        !self.headers.is_empty()
    }

    /// Returns whether the log itself was among the pieces, and its end is reached.
    pub fn reaches_end(&self) -> bool {
        self.has_log() && self.gap.is_none()
    }

    /// Reads from the start of the backup's log to the first record for which `is_behind` returns
    /// that it and all later ones are beyond the requested point, or to the end.
    ///
    /// # Errors
    /// [`WalError::Corrupt`] if hardened records are damaged; [`WalError::Disk`].
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
        // The last record of a whole segment may continue in a missing one.
        let is_header_cut_off = at.get() + LEAST_HEADER_BYTES as u64 > self.files.limit();
        let is_cut_off = (scanner.is_cut_off || is_header_cut_off) && at >= self.backup.1;
        let is_lost = at.get() < self.certain && (!is_cut_off || has_record(&self.files, at.get() + 8)?);
        let expected = self.expected.filter(|_| self.reaches_end());
        if is_lost || expected.is_some_and(|expected| at < expected.hardened) {
            let reason = scanner.stopped_because().unwrap_or("there is no record here");
            return Err(self.files.geometry.corrupt(at.get(), reason));
        }
        if let Some(expected) = expected {
            check_for_damage(&self.files, &self.headers, at, expected.gsn)?;
        }
        Ok(Cut { at, is_record: false, gap: self.gap })
    }

    /// Writes everything before `cut` durably as the log of `database`, in its empty directory in
    /// `disk`.
    ///
    /// # Errors
    /// [`WalError::Corrupt`], [`WalError::Disk`].
    pub fn write_to(&self, disk: &dyn Disk, database: [u8; 16], cut: Lsn, progress: impl FnMut(u64)) -> Result<()> {
        self.copy_to(disk, database, cut, progress).map_err(|error| error.in_log(self.log()))
    }

    fn copy_to(&self, disk: &dyn Disk, database: [u8; 16], cut: Lsn, mut progress: impl FnMut(u64)) -> Result<()> {
        let (own, geometry) = (self.files.identity, self.files.geometry);
        let identity = Identity::one_of(database, own.log, own.count);
        let (directory, start) = (directory(own.log), self.backup.0);
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
        let made = SegmentFiles::new(identity, geometry, made, geometry.segment_bytes);
        let mut scanner = Scanner::to_first_invalid(Arc::clone(&self.files), start);
        let mut buffer = AlignedBuf::zeroed((CHUNK_BYTES + 2 * BLOCK) as usize);
        // The sealed bytes of the block in which the window begins.
        let mut sealed: Vec<u8> = vec![0; (start.get() % BLOCK) as usize];
        let mut at = start.get();
        while at < cut.get() {
            let window = at / BLOCK * BLOCK;
            while scanner.position().get() < (window + CHUNK_BYTES).min(cut.get()) {
                if scanner.next()?.is_none() {
                    return Err(geometry.corrupt(at, "records that were read before are missing now"));
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
            seal(&mut bytes[sealed.len()..(to - window) as usize], &identity, Lsn::new(at), None);
            bytes[(to - window) as usize..].fill(0);
            let whole = if is_last { window + len as u64 } else { to / BLOCK * BLOCK };
            for (from, behind) in made.pieces(window, whole) {
                let part = &bytes[(from - window) as usize..(behind - window) as usize];
                let file = made.file_at(from)?;
                file.write_at(&[part], geometry.offset(from))?;
                if behind == geometry.base(geometry.segment_of(from) + 1) {
                    // The file may be closed now: a later failure would not be reported here.
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
