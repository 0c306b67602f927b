//! Opens a log: finds its end, and ensures that nothing is left behind the end.
//!
//! The end is the first position, from a known record on, at which no valid record starts. The
//! bytes behind it are not always zeros: the last flush before a crash may have reached the device
//! in part, with holes, and whole records behind the first hole are still valid in their places.
//! They were never acknowledged, but if new records fill the hole and end exactly where an old one
//! starts, the next recovery would take the old one for their successor. So opening overwrites all
//! of it with zeros, durably, before the log accepts new records. A crash during this leaves the
//! end where it is, and the next opening does it again.
//!
//! No flush reaches further than the size of the log buffer beyond the durable position, and every
//! segment's header states that size, so opening reads this much and no more. Before the log
//! accepts new records, the headers of the last segment and of those made ahead are written again,
//! with the size used from now on: a size that is read in them may come from a write that failed.
//!
//! A crash cannot destroy what was hardened. Two findings prove damage of another kind: a record
//! behind the end whose backlog (see [`crate::format::record`]) states that the log was durable
//! beyond the end, and any record too far away to belong to the last flush. The log then refuses to
//! open, rather than silently lose acknowledged work.

use std::collections::BTreeMap;

use duramen_io::{AlignedBuf, Disk, OpenMode};
use duramen_sync::Arc;
use duramen_types::{Gsn, LogId, Lsn};

use crate::error::{Result, WalError};
use crate::format::header::Header;
use crate::format::identity::Identity;
use crate::format::record::RecordRef;
use crate::format::segment::{BLOCK, Geometry, LogFile, SegmentHeader, classify, damaged, segment_name};
use crate::segments::files::{CHUNK_BYTES, OpenFiles, SegmentFiles, copy_range, names};
use crate::segments::scan::Scanner;

/// The segments found in a directory.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) home: Arc<OpenFiles>,
    pub(crate) files: Arc<SegmentFiles>,
    pub(crate) start: Lsn,
    /// Numbers in the names of spares.
    pub(crate) spares: Vec<u64>,
    /// Segments below the start, which an interrupted recycling left.
    pub(crate) stale: Vec<u64>,
    /// Number of the ring in persistent memory that holds the end of the log, or zero.
    pub(crate) ring: u64,
    headers: Headers,
}

/// The headers of a log's segments, by number.
pub(crate) type Headers = BTreeMap<u64, SegmentHeader>;

impl Found {
    /// Returns the bytes of log for which the segments have room behind `position`.
    pub(crate) fn bytes_behind(&self, position: u64) -> u64 {
        self.files.limit().saturating_sub(position)
    }

    /// Returns the segments whose headers must state the size of the log buffer used from now on:
    /// those that can still be written, and the last one if the log ends behind it.
    pub(crate) fn writable(&self, end: Lsn) -> impl Iterator<Item = u64> {
        let holder = self.files.geometry.segment_of(end.get());
        let last = self.headers.last_key_value().map_or(holder, |(number, _)| *number);
        self.headers.range(holder.min(last)..).map(|(number, _)| *number)
    }
}

pub(crate) fn has_segments(disk: &dyn Disk, log: LogId) -> Result<bool> {
    Ok(names(disk, log)?.iter().any(|name| matches!(classify(name), LogFile::Segment(_))))
}

/// Finds the segments of the log of `identity` (of any if `None`) and changes nothing. Checks their
/// headers, and that none is missing from the segment on that holds `from`, or the log's start.
pub(crate) fn find(home: &Arc<OpenFiles>, log: LogId, identity: Option<Identity>, from: Option<Lsn>) -> Result<Found> {
    let disk = &**home.disk();
    let (headers, spares) = read_headers(disk, log, identity.as_ref())?;
    let (Some((_, &first)), Some((&last, &SegmentHeader { ring, file_bytes: last_bytes, .. }))) =
        (headers.first_key_value(), headers.last_key_value())
    else {
        return Err(WalError::NoLog { location: disk.location() });
    };
    let identity = identity.unwrap_or_else(|| Identity::one_of(first.database, first.log, first.logs.max(1)));
    if let Some(stranger) = headers.values().find(|header| !header.is_of(&identity)) {
        return Err(WalError::WrongDatabase { file: segment_name(log, stranger.number) });
    }
    if let Some(other) = headers.values().find(|header| header.segment_bytes != first.segment_bytes) {
        let reason = format!(
            "the header says that segments have {} bytes, but other headers say {}",
            other.segment_bytes, first.segment_bytes
        );
        return Err(damaged(other.number, 0, reason));
    }
    let geometry = Geometry { segment_bytes: first.segment_bytes };
    let start = headers.values().map(|header| header.start).max().unwrap_or(first.start);
    // A log may start exactly at the end of its last segment.
    let holder = if start.get() == geometry.base(last + 1) { last } else { geometry.segment_of(start.get()) };
    let needed = from.filter(|from| *from < start).map_or(holder, |from| geometry.segment_of(from.get()));
    if let Some(segment) = (needed..=holder.max(last)).find(|number| !headers.contains_key(number)) {
        let lsn = Lsn::new(geometry.base(segment)).max(from.unwrap_or(start).min(start));
        return Err(WalError::MissingSegment { segment, lsn });
    }
    // A segment follows only one that is whole.
    if let Some((&segment, header)) =
        headers.range(needed..last).find(|(_, header)| header.file_bytes < geometry.segment_bytes)
    {
        return Err(too_short(segment, header.file_bytes, geometry.segment_bytes));
    }
    let live = headers.range(needed..).map(|(number, _)| (*number, Arc::clone(home))).collect();
    let stale = headers.range(..needed).map(|(number, _)| *number).collect();
    let files = Arc::new(SegmentFiles::new(identity, geometry, live, last_bytes));
    Ok(Found { home: Arc::clone(home), files, start, spares, stale, ring, headers })
}

fn too_short(segment: u64, len: u64, expected: u64) -> WalError {
    damaged(segment, len, format!("the file has {len} bytes instead of {expected}"))
}

/// Reads the headers of the segments of `log`, which must be those of `identity` if it is known.
/// Returns them, and the numbers in the names of spares.
pub(crate) fn read_headers(disk: &dyn Disk, log: LogId, identity: Option<&Identity>) -> Result<(Headers, Vec<u64>)> {
    let (mut headers, mut spares) = (Headers::new(), Vec::new());
    for name in names(disk, log)? {
        match classify(&name) {
            LogFile::Segment(number) => {
                headers.insert(number, read_header(disk, log, number, identity)?);
            }
            LogFile::Spare(number) => spares.push(number),
            LogFile::Foreign => {}
        }
    }
    Ok((headers, spares))
}

/// Reads the header of segment `number` of a log, with the size that the file really has.
fn read_header(disk: &dyn Disk, log: LogId, number: u64, identity: Option<&Identity>) -> Result<SegmentHeader> {
    let file = disk.open(&segment_name(log, number), OpenMode::Existing)?;
    let len = file.len()?;
    if len < BLOCK {
        return Err(damaged(number, len, "the file is shorter than a header"));
    }
    let mut block = AlignedBuf::zeroed(BLOCK as usize);
    file.read_at(&mut block, 0)?;
    let header = SegmentHeader::decode(&block, number)?;
    if len < header.file_bytes {
        return Err(too_short(number, len, header.file_bytes));
    }
    if identity.is_some_and(|identity| !header.is_of(identity)) {
        return Err(WalError::WrongDatabase { file: file.path() });
    }
    let file_bytes = len.min(header.segment_bytes) / BLOCK * BLOCK;
    Ok(SegmentHeader { file_bytes, ..header })
}

/// Returns the error that the log stops short at `lsn`: for this reason, or a segment is missing.
fn does_not_go_on(files: &SegmentFiles, lsn: Lsn, reason: &str) -> WalError {
    let segment = files.geometry.segment_of(lsn.get());
    if files.has(segment) {
        return files.geometry.corrupt(lsn.get(), reason);
    }
    WalError::MissingSegment { segment, lsn }
}

/// The result of reading the log to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// The first position without a valid record.
    pub(crate) end: Lsn,
    /// From here on the log was not durable yet when the last record was sealed.
    unsure: Lsn,
    /// The last flush reached at most this position.
    window: u64,
}

/// Finds the end of the log by reading it from `from`, and passes each record to `visit`. With
/// `known`, there must be a record at `from`. Records behind the end count as proof of damage if
/// their GSN is not above `expected`.
pub(crate) fn find_end(
    found: &Found,
    from: Lsn,
    known: bool,
    expected: Gsn,
    mut visit: impl FnMut(&RecordRef<'_>),
) -> Result<End> {
    let files = &found.files;
    let too_long = "the log is longer than its last file";
    if from.get() > files.limit() {
        return Err(does_not_go_on(files, from, too_long));
    }
    let mut scanner = Scanner::to_first_invalid(Arc::clone(files), from);
    let mut last = None;
    while let Some(record) = scanner.next()? {
        visit(&record);
        last = Some(record.durable_before);
    }
    let end = scanner.position();
    if scanner.is_cut_off {
        return Err(does_not_go_on(files, Lsn::new(files.limit()), too_long));
    }
    if end == from && known {
        // The caller knew of a record there.
        return Err(does_not_go_on(files, from, scanner.stopped_because().unwrap_or("there is no record here")));
    }
    if end < found.start && found.ring == 0 {
        return Err(does_not_go_on(files, end, "the log starts behind this position"));
    }
    let unsure = last.map_or(end, |durable_before| durable_before.unwrap_or(Lsn::ZERO));
    let window = check_for_damage(files, &found.headers, end, expected)?;
    // What is before the start is durable, or discarded.
    Ok(End { end, unsure: unsure.max(found.start.min(end)), window })
}

/// Refuses a log that holds records behind `end` that a crash cannot explain. Returns the end of
/// what the last flush may have written behind `end`.
pub(crate) fn check_for_damage(files: &Arc<SegmentFiles>, headers: &Headers, end: Lsn, expected: Gsn) -> Result<u64> {
    let geometry = files.geometry;
    // The size of the log buffer of the process that wrote the bytes around `end`.
    let header = headers.range(..=geometry.segment_of(end.get())).next_back();
    let buffer = header.map_or(0, |(_, header)| header.ring_bytes);
    // To the end of its last block, within the segments.
    let window = (end.get() + buffer).next_multiple_of(BLOCK).min(files.limit());
    let mut proof = first_record_in(files, end.get(), window, |record| {
        record.durable_before.is_some_and(|durable| durable > end) && record.gsn <= expected
    })?;
    // The rest of the window's last segment and the segments made ahead were never written, or the
    // log really is longer. Their beginnings show which: records have no gaps between them.
    let (last_of_window, last) = (geometry.segment_of(window - 1), files.span().map_or(0, |(_, last)| last));
    let bases = (last_of_window + 1..=last).map(|number| geometry.base(number));
    for from in std::iter::once(window).chain(bases) {
        let to = geometry.base(geometry.segment_of(from) + 1).min(from + CHUNK_BYTES).min(files.limit());
        let further = first_record_in(files, from, to, |record| record.gsn <= expected)?;
        proof = proof.or(further);
    }
    let Some(proof) = proof else { return Ok(window) };
    let reason = format!("hardened records are missing here: the log ends at {end}, but continues at {proof}");
    Err(geometry.corrupt(end.get(), reason))
}

/// Returns whether a valid record starts at `from` or behind it.
pub(crate) fn has_record(files: &Arc<SegmentFiles>, from: u64) -> Result<bool> {
    Ok(first_record_in(files, from, files.limit(), |_| true)?.is_some())
}

/// Returns the start of the first valid record in `[from, to)` that counts. The starts of records
/// are unknown, so every multiple of 8 is tried, except in blocks of zeros; a record's GSN
/// identifies it.
fn first_record_in(
    files: &Arc<SegmentFiles>,
    from: u64,
    to: u64,
    counts: impl Fn(&RecordRef<'_>) -> bool,
) -> Result<Option<Lsn>> {
    let mut chunk = AlignedBuf::zeroed((CHUNK_BYTES + BLOCK) as usize);
    let mut at = from.next_multiple_of(8);
    while at < to {
        let start = at / BLOCK * BLOCK;
        let len = files.read(start, &mut chunk)?;
        let next = (start + CHUNK_BYTES).min(to);
        while at < next {
            let Some(rest) = chunk[..len].get((at - start) as usize..) else { return Ok(None) };
            if at.is_multiple_of(BLOCK) && rest.starts_with(&[0; BLOCK as usize]) {
                // The first word of a header states a length, so it is not zero. Most of what is
                // behind the end is zeros.
                at += BLOCK;
                continue;
            }
            let Some(header) = Header::at(rest) else { return Ok(None) };
            if header.is_in_place(&files.identity, Lsn::new(at))
                && header.length().is_some()
                && let Some(record) = Scanner::one(Arc::clone(files), Lsn::new(at), None).next()?
                && counts(&record)
            {
                return Ok(Some(record.lsn));
            }
            at += 8;
        }
    }
    Ok(None)
}

/// Overwrites `[end, window)` with zeros and ensures that `[unsure, end)` is durable. All of it is
/// written: the process that wrote the bytes read there, zeros too, may have ended before the write
/// was durable, or seen it fail, and then syncing alone would not make it durable.
fn erase(files: &SegmentFiles, unsure: Lsn, end: Lsn, window: u64) -> Result<()> {
    for (from, to) in files.pieces(unsure.get() / BLOCK * BLOCK, window) {
        let (file, offset) = (files.file_at(from)?, files.geometry.offset(from));
        let kept = offset + end.get().saturating_sub(from);
        copy_range(&*file, &*file, offset..offset + (to - from), kept, |_| {})?;
        file.sync()?;
    }
    Ok(())
}

/// Erases everything from `cut` on.
pub(crate) fn truncate(files: &SegmentFiles, cut: Lsn) -> Result<()> {
    erase(files, cut, cut, files.limit())
}

impl End {
    /// Makes everything before the end durable.
    pub(crate) fn make_durable(&self, files: &SegmentFiles) -> Result<()> {
        erase(files, self.unsure, self.end, self.end.get().next_multiple_of(BLOCK))
    }

    /// Makes everything before the end durable; erases what the last flush may have left behind it.
    pub(crate) fn erase_behind(&self, files: &SegmentFiles) -> Result<()> {
        erase(files, self.unsure, self.end, self.window)
    }
}
