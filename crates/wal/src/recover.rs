//! Opening a log: finding its end, and making sure that nothing is left behind the end.
//!
//! The end is the first position, from a known record on, at which no valid record starts. What lies behind it is not
//! always zeros: the last flush before a crash may have reached the device in part, with holes, and whole records behind
//! the first hole are still valid in their places. They were never acknowledged, but they are dangerous: when new records
//! have filled the hole and end just where an old one starts, the next recovery would take the old one for their
//! successor. So all of it is overwritten with zeros, durably, before the log accepts anything new. A crash during this
//! leaves the end where it is, and the next opening does it again.
//!
//! No flush reaches further than the size of the log buffer beyond the durable position, and every segment's header names
//! that size, so this much is looked at and no more. The size in the header of the last segment is brought up to date
//! before a log with another buffer size is used.
//!
//! A crash cannot destroy what was hardened. A record behind the end that says (by its backlog, see [`crate::record`])
//! that the log had been durable beyond the end when it was filled in proves damage of another kind, and so does any
//! record too far away to be of the last flush. The log then refuses to open, rather than to forget acknowledged work
//! silently.

use std::collections::BTreeMap;

use duramen_io::{AlignedBuf, Disk, File, OpenMode};
use duramen_sync::Arc;
use duramen_types::{Gsn, Lsn};

use crate::error::{Result, WalError};
use crate::files::SegmentFiles;
use crate::record::{Header, Identity};
use crate::scan::Scanner;
use crate::segment::{BLOCK, DIRECTORY, Geometry, LogFile, SegmentHeader, classify, segment_name, spare_name};

/// Bytes looked at at a time behind the end of the log.
const CHUNK_BYTES: u64 = 1 << 20;

/// The segments found in a directory.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) files: Arc<SegmentFiles>,
    /// The log's start.
    pub(crate) start: Lsn,
    /// Numbers in the names of spares.
    pub(crate) spares: Vec<u64>,
    /// Segments below the start, which an interrupted recycling left.
    pub(crate) stale: Vec<u64>,
    headers: BTreeMap<u64, SegmentHeader>,
}

/// Whether there is a segment in `disk`.
pub(crate) fn has_segments(disk: &dyn Disk) -> Result<bool> {
    Ok(disk.exists(DIRECTORY)?
        && disk.list(DIRECTORY)?.iter().any(|name| matches!(classify(name), LogFile::Segment(_))))
}

/// Finds the segments of the log of `identity` (or of whomever, if `None`), checks their headers and that none is missing
/// from the one that holds `from`, or the log's start, on. Changes nothing.
pub(crate) fn find(disk: &dyn Disk, identity: Option<Identity>, from: Option<Lsn>) -> Result<Found> {
    let (mut numbers, mut spares) = (Vec::new(), Vec::new());
    if disk.exists(DIRECTORY)? {
        for name in disk.list(DIRECTORY)? {
            match classify(&name) {
                LogFile::Segment(number) => numbers.push(number),
                LogFile::Spare(number) => spares.push(number),
                LogFile::Foreign => {}
            }
        }
    }
    let mut headers = BTreeMap::new();
    let mut live: BTreeMap<u64, Arc<dyn File>> = BTreeMap::new();
    for number in numbers {
        let (file, header) = open_segment(disk, number)?;
        if identity.is_some_and(|identity| !header.is_of(&identity)) {
            return Err(WalError::WrongDatabase { file: file.path() });
        }
        headers.insert(number, header);
        live.insert(number, file);
    }
    let Some((_, first)) = headers.first_key_value() else {
        return Err(WalError::NoLog { location: disk.location() });
    };
    let first = *first;
    let identity = identity.unwrap_or_else(|| Identity::new(first.database, first.log));
    if let Some(stranger) = headers.values().find(|header| !header.is_of(&identity)) {
        return Err(WalError::WrongDatabase { file: segment_name(stranger.number) });
    }
    if let Some(other) = headers.values().find(|header| header.segment_bytes != first.segment_bytes) {
        let reason = format!("the header says {} bytes, others {}", other.segment_bytes, first.segment_bytes);
        return Err(WalError::Corrupt { segment: other.number, offset: 0, reason });
    }
    let geometry = Geometry { segment_bytes: first.segment_bytes };
    let start = headers.values().map(|header| header.start).max().unwrap_or(first.start);
    let last = headers.last_key_value().map_or(0, |(number, _)| *number);
    // A log may start exactly at the end of its last segment.
    let start_segment = geometry.segment_of(start.get());
    let holder = if start.get() == geometry.base(last + 1) { last } else { start_segment };
    let needed = from.filter(|from| *from < start).map_or(holder, |from| geometry.segment_of(from.get()));
    if let Some(segment) = (needed..=holder.max(last)).find(|number| !live.contains_key(number)) {
        let lsn = Lsn::new(geometry.base(segment)).max(from.unwrap_or(start).min(start));
        return Err(WalError::MissingSegment { segment, lsn });
    }
    let kept = live.split_off(&needed);
    let stale = live.into_keys().collect();
    let files = Arc::new(SegmentFiles::new(identity, geometry, kept));
    Ok(Found { files, start, spares, stale, headers })
}

fn open_segment(disk: &dyn Disk, number: u64) -> Result<(Arc<dyn File>, SegmentHeader)> {
    let file = disk.open(&segment_name(number), OpenMode::Existing)?;
    let corrupt = |offset: u64, reason: String| WalError::Corrupt { segment: number, offset, reason };
    let len = file.len()?;
    if len < BLOCK {
        return Err(corrupt(len, "the file ends before its header does".to_owned()));
    }
    let mut block = AlignedBuf::zeroed(BLOCK as usize);
    file.read_at(&mut block, 0)?;
    let header = SegmentHeader::decode(&block, number)?;
    if len < header.segment_bytes {
        return Err(corrupt(len, format!("the file has {len} bytes instead of {}", header.segment_bytes)));
    }
    Ok((file, header))
}

/// Finds the end of the log by reading it from `from`, or its start.
pub(crate) fn find_end(files: &Arc<SegmentFiles>, start: Lsn, from: Option<Lsn>) -> Result<Lsn> {
    let from = from.unwrap_or(start);
    let mut scanner = Scanner::to_first_invalid(Arc::clone(files), from);
    while scanner.next()?.is_some() {}
    let end = scanner.position();
    if end == from && from != start {
        // The caller knew of a record there.
        let geometry = files.geometry;
        let segment = geometry.segment_of(from.get());
        if files.file(segment).is_none() {
            return Err(WalError::MissingSegment { segment, lsn: from });
        }
        let reason = scanner.stopped_because().unwrap_or("there is no record here").to_owned();
        return Err(WalError::Corrupt { segment, offset: geometry.offset(from.get()), reason });
    }
    Ok(end)
}

impl Found {
    /// Size of the log buffer of whoever wrote what is around `end`.
    fn ring_bytes(&self, end: Lsn) -> u64 {
        let segment = self.files.geometry.segment_of(end.get());
        self.headers.range(..=segment).next_back().map_or(0, |(_, header)| header.ring_bytes)
    }

    /// Numbers of the segments from `end` on whose headers name another size of the log buffer.
    pub(crate) fn with_other_ring(&self, end: Lsn, ring_bytes: u64) -> Vec<u64> {
        let segments = self.headers.range(self.files.geometry.segment_of(end.get())..);
        segments.filter(|(_, header)| header.ring_bytes != ring_bytes).map(|(number, _)| *number).collect()
    }
}

/// Refuses a log that holds records behind `end` which a crash cannot explain. `window` is the end of what the last flush
/// may have written.
fn check_for_damage(files: &Arc<SegmentFiles>, end: Lsn, window: u64) -> Result<()> {
    let damaged = |proof: Lsn| {
        Err(WalError::Corrupt {
            segment: files.geometry.segment_of(end.get()),
            offset: files.geometry.offset(end.get()),
            reason: format!("hardened records are missing here: the log ends at {end}, but goes on at {proof}"),
        })
    };
    let mut proof = None;
    for_each_record_in(files, end.get(), window, |lsn, durable_before| {
        if durable_before.is_some_and(|durable| durable > end) {
            proof = proof.or(Some(lsn));
        }
    })?;
    // Segments behind the window were made ahead and never written to, or the log really is longer.
    let geometry = files.geometry;
    let last = files.span().map_or(0, |(_, last)| last);
    for number in geometry.segment_of(window.max(end.get())) + 1..=last {
        let base = geometry.base(number);
        for_each_record_in(files, base, base + geometry.data_bytes().min(CHUNK_BYTES), |lsn, _| {
            proof = proof.or(Some(lsn));
        })?;
    }
    proof.map_or(Ok(()), damaged)
}

/// Calls `f` with the LSN of each valid record that starts in `[from, to)`, and up to where the log was durable before it.
/// Where records start is not known, so every multiple of 8 is tried; with one log, a record's GSN gives it away.
fn for_each_record_in(
    files: &Arc<SegmentFiles>,
    from: u64,
    to: u64,
    mut f: impl FnMut(Lsn, Option<Lsn>),
) -> Result<()> {
    let mut chunk = AlignedBuf::zeroed((CHUNK_BYTES + BLOCK) as usize);
    let mut at = from.next_multiple_of(8);
    while at < to {
        let start = at / BLOCK * BLOCK;
        let len = files.read(start, &mut chunk)?;
        let next = (start + CHUNK_BYTES).min(to);
        while at < next {
            let Some(header) = chunk[..len].get((at - start) as usize..).and_then(Header::at) else { return Ok(()) };
            if header.gsn() == Gsn::new(at) && header.length().is_some() {
                let lsn = Lsn::new(at);
                let durable_before = header.durable_before(lsn);
                if Scanner::one(Arc::clone(files), lsn, None).next()?.is_some() {
                    f(lsn, durable_before);
                }
            }
            at += 8;
        }
    }
    Ok(())
}

/// Overwrites `[end, window)` with zeros, durably, and makes sure that what lies below `end` is durable too: the process
/// that wrote it may have ended between a write and its sync.
fn erase(files: &SegmentFiles, end: Lsn, window: u64, ring_bytes: u64) -> Result<()> {
    let end = end.get();
    let geometry = files.geometry;
    let first = files.span().map_or(0, |(first, _)| geometry.base(first));
    let unsynced = end.saturating_sub(ring_bytes).max(first) / BLOCK * BLOCK;
    let mut chunk = AlignedBuf::zeroed(CHUNK_BYTES as usize);
    for (piece_start, piece_end) in files.pieces(unsynced, window.max(end)) {
        let file = files.file_at(piece_start)?;
        let mut at = piece_start.max(end / BLOCK * BLOCK);
        while at < piece_end {
            let len = (piece_end - at).min(CHUNK_BYTES) as usize;
            let offset = geometry.offset(at);
            let bytes = &mut chunk[..len];
            file.read_at(bytes, offset)?;
            let kept = end.saturating_sub(at).min(len as u64) as usize;
            if bytes[kept..].iter().any(|byte| *byte != 0) {
                bytes[kept..].fill(0);
                file.write_at(&[bytes], offset)?;
            }
            at += len as u64;
        }
        file.sync()?;
    }
    Ok(())
}

/// The end of the log, with all behind it checked and erased.
pub(crate) fn recover(found: &Found, from: Option<Lsn>) -> Result<Lsn> {
    let files = &found.files;
    let end = find_end(files, found.start, from)?;
    let ring_bytes = found.ring_bytes(end);
    // Of the last flush: to the end of its last block, within the segments.
    let window = (end.get() + ring_bytes).next_multiple_of(BLOCK).min(files.limit());
    check_for_damage(files, end, window)?;
    erase(files, end, window, ring_bytes)?;
    Ok(end)
}

/// Removes what an earlier run left that is of no use: incomplete spares, and segments below the start. Returns the spares
/// that can be used.
pub(crate) fn clean_up(disk: &dyn Disk, found: &Found, keep: usize) -> Result<Vec<u64>> {
    let segment_bytes = found.files.geometry.segment_bytes;
    let mut spares = Vec::new();
    let mut changed = false;
    for &spare in &found.spares {
        let name = spare_name(spare);
        if spares.len() < keep && disk.open(&name, OpenMode::Existing)?.len()? == segment_bytes {
            spares.push(spare);
        } else {
            disk.remove(&name)?;
            changed = true;
        }
    }
    for &stale in &found.stale {
        disk.remove(&segment_name(stale))?;
        changed = true;
    }
    if changed {
        disk.sync_directory(DIRECTORY)?;
    }
    Ok(spares)
}

/// Removes the spares that an interrupted creation of a log has left.
pub(crate) fn remove_spares(disk: &dyn Disk) -> Result<()> {
    for name in disk.list(DIRECTORY)? {
        if let LogFile::Spare(spare) = classify(&name) {
            disk.remove(&spare_name(spare))?;
        }
    }
    Ok(())
}
