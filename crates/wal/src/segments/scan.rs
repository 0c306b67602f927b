//! Reads the log in order.

use std::ops::Range;

use duramen_io::AlignedBuf;
use duramen_sync::Arc;
use duramen_types::Lsn;

use crate::error::Result;
use crate::format::header::{Header, LEAST_HEADER_BYTES, MOST_HEADER_BYTES};
use crate::format::record::{RecordRef, decode, is_intact};
use crate::format::segment::BLOCK;
use crate::segments::files::SegmentFiles;
use crate::segments::read_ahead::{HEADROOM, ReadAhead};

mod back;

pub(crate) use back::BackScanner;

/// Bytes read at a time by a scan.
const WINDOW_BYTES: usize = 1 << 20;

/// Number of consecutive windows before reading ahead: most logs that are opened are shorter.
const WINDOWS_BEFORE: u32 = 4;

/// Reads records in order, each lent until the next call.
///
/// A scanner of an open log covers what was hardened when it was made; an invalid record in this
/// range is an error. A scanner of a [`crate::LogReader`] ends at the first position without a
/// valid record, as recovery does. The scanned part of the log must not be recycled meanwhile.
#[derive(Debug)]
pub struct Scanner {
    files: Arc<SegmentFiles>,
    position: u64,
    end: End,
    /// The window is a part of this buffer. It begins behind the buffer's headroom, or in it.
    buffer: AlignedBuf,
    window_at: usize,
    /// LSN of the first byte of the window, and the number of its bytes that have been read.
    window_start: u64,
    window_len: usize,
    /// Consecutive windows read so far, up to [`WINDOWS_BEFORE`].
    in_a_row: u32,
    /// What follows the window, while it is being read.
    ahead: Option<ReadAhead>,
    /// The buffer for it, while nothing is being read.
    spare: Option<AlignedBuf>,
    /// Whether windows may be read ahead: there can be a thread, and it pays.
    may_read_ahead: bool,
    /// Room in the buffer for the rest of the previous window, in bytes: none without read-ahead.
    headroom: usize,
    /// Where in the buffer the record lent last is.
    last: Range<usize>,
    /// Why the scan ended.
    stopped: Option<String>,
    /// Whether the scan ended in a record whose rest should be in a missing segment.
    pub(crate) is_cut_off: bool,
}

/// Where a scan ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// At this position; everything before it must be valid.
    Hardened(u64),
    /// At the first invalid record.
    FirstInvalid,
}

impl Scanner {
    /// Scans `[from, durable)`, all of it hardened.
    pub(crate) fn hardened(files: Arc<SegmentFiles>, from: Lsn, durable: Lsn) -> Self {
        Self::new(files, from, End::Hardened(durable.get()), WINDOW_BYTES, HEADROOM)
    }

    /// Scans from `from` to the first invalid record.
    pub(crate) fn to_first_invalid(files: Arc<SegmentFiles>, from: Lsn) -> Self {
        Self::new(files, from, End::FirstInvalid, WINDOW_BYTES, HEADROOM)
    }

    /// Scans one record at `from`: reads little.
    pub(crate) fn one(files: Arc<SegmentFiles>, from: Lsn, durable: Option<Lsn>) -> Self {
        let end = durable.map_or(End::FirstInvalid, |durable| End::Hardened(durable.get()));
        Self::new(files, from, end, 2 * BLOCK as usize, 0)
    }

    fn new(files: Arc<SegmentFiles>, from: Lsn, end: End, window: usize, headroom: usize) -> Self {
        Self {
            files,
            position: from.get(),
            end,
            buffer: AlignedBuf::zeroed(headroom + window),
            window_at: headroom,
            window_start: 0,
            window_len: 0,
            in_a_row: 0,
            ahead: None,
            spare: None,
            may_read_ahead: headroom > 0,
            headroom,
            last: 0..0,
            stopped: None,
            is_cut_off: false,
        }
    }

    /// Returns where the next record would start: after the end, the end of the log.
    pub fn position(&self) -> Lsn {
        Lsn::new(self.position)
    }

    /// Returns why no record is at [`Scanner::position`], if a scan to the first invalid one ended.
    pub fn stopped_because(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    /// Returns the next record, or `None` at the end.
    ///
    /// # Errors
    /// [`crate::WalError::Disk`] if reading fails; only then can another call continue the scan.
    /// [`crate::WalError::Corrupt`] if a hardened record is not valid,
    /// [`crate::WalError::MissingSegment`] if the scan starts in a missing segment.
    #[allow(clippy::should_implement_trait, reason = "the record is lent, which `Iterator` cannot express")]
    pub fn next(&mut self) -> Result<Option<RecordRef<'_>>> {
        if self.stopped.is_some() || self.end == End::Hardened(self.position) {
            return Ok(None);
        }
        let at_hand = if self.fill(MOST_HEADER_BYTES)? { MOST_HEADER_BYTES } else { LEAST_HEADER_BYTES };
        if !self.fill(at_hand)? {
            return self.invalid("the log's segments end here");
        }
        let (lsn, identity) = (self.position(), self.files.identity);
        let header = self.at(at_hand).and_then(Header::at);
        let beginning = header.and_then(|header| Some((header.length()?, header.is_in_place(&identity, lsn))));
        let Some((length, in_place)) = beginning else {
            return self.invalid("there is no record here");
        };
        if !self.fill(length)? {
            // Segments are made before any record that reaches into them is written.
            self.is_cut_off = in_place;
            return self.invalid("the record extends past the last segment");
        }
        if !self.at(length).is_some_and(|bytes| is_intact(bytes, &identity, lsn)) {
            return self.invalid("the checksum of the record is wrong, or its GSN does not match its position");
        }
        if matches!(self.end, End::Hardened(end) if end < lsn.get() + length as u64) {
            return self.invalid("the record extends past the hardened end of the log");
        }
        if self.at(length).and_then(|bytes| decode(bytes, &identity, lsn)).is_none() {
            return self.invalid("the record is too short for its contents");
        }
        self.last = self.range(length);
        self.position += length as u64;
        Ok(self.again())
    }

    /// Returns the record that [`Scanner::next`] has returned last.
    pub fn again(&self) -> Option<RecordRef<'_>> {
        let lsn = Lsn::new(self.position - self.last.len() as u64);
        decode(self.buffer.get(self.last.clone())?, &self.files.identity, lsn)
    }

    fn at(&self, len: usize) -> Option<&[u8]> {
        self.buffer.get(self.range(len))
    }

    /// Returns where in the buffer the `len` bytes from the position are.
    fn range(&self, len: usize) -> Range<usize> {
        let start = self.window_at + (self.position - self.window_start) as usize;
        start..start + len
    }

    /// Reads `len` bytes from the position; returns whether the segments hold this many.
    fn fill(&mut self, len: usize) -> Result<bool> {
        let end = self.position + len as u64;
        if self.covers(self.position, end) {
            return Ok(true);
        }
        if !self.go_on_ahead() || !self.covers(self.position, end) {
            self.read(end)?;
        }
        self.read_ahead();
        Ok(self.covers(self.position, end))
    }

    fn covers(&self, from: u64, end: u64) -> bool {
        from >= self.window_start && end <= self.window_end()
    }

    fn window_end(&self) -> u64 {
        self.window_start + self.window_len as u64
    }

    /// Reads a window that begins at the position, and reaches `end` if the log does.
    fn read(&mut self, end: u64) -> Result<()> {
        let start = self.position / BLOCK * BLOCK;
        let needed = (end - start).next_multiple_of(BLOCK) as usize;
        if self.headroom + needed > self.buffer.len() {
            self.buffer = AlignedBuf::zeroed(self.headroom + needed);
            // The spare buffer is smaller, and such records are read again instead of assembled.
            (self.may_read_ahead, self.spare) = (false, None);
        }
        let is_next = start <= self.window_end() && self.window_len > 0;
        self.in_a_row = if is_next { (self.in_a_row + 1).min(WINDOWS_BEFORE) } else { 0 };
        self.load(start, self.useful(start, end))
    }

    /// Reads the window of `len` bytes from `start`.
    fn load(&mut self, start: u64, len: usize) -> Result<()> {
        // Invalid while it is being read.
        self.window_len = 0;
        self.window_len = self.files.read(start, &mut self.buffer[self.headroom..][..len])?;
        (self.window_at, self.window_start) = (self.headroom, start);
        Ok(())
    }

    /// Returns the bytes to read from `start`, at least up to `end`: no more than the buffer holds,
    /// and none behind the hardened end, where a flush may be writing.
    fn useful(&self, start: u64, end: u64) -> usize {
        let most = self.buffer.len() - self.headroom;
        let End::Hardened(hardened) = self.end else { return most };
        let useful = hardened.max(end).next_multiple_of(BLOCK).saturating_sub(start);
        most.min(usize::try_from(useful).unwrap_or(usize::MAX))
    }

    /// Continues with the bytes read ahead, behind the unprocessed rest of the present window;
    /// returns whether that was possible.
    fn go_on_ahead(&mut self) -> bool {
        let Some((mut buffer, len)) = self.ahead.take().and_then(ReadAhead::finish) else { return false };
        let (start, next) = (self.position / BLOCK * BLOCK, self.window_end());
        let rest = next.saturating_sub(start) as usize;
        let is_near = len > 0 && start <= next && rest <= HEADROOM;
        if is_near {
            let behind = self.window_at + self.window_len;
            buffer[HEADROOM - rest..HEADROOM].copy_from_slice(&self.buffer[behind - rest..behind]);
            std::mem::swap(&mut self.buffer, &mut buffer);
            (self.window_at, self.window_start, self.window_len) = (HEADROOM - rest, start, rest + len);
        }
        self.spare = Some(buffer);
        is_near
    }

    /// Begins to read the bytes behind the window, if the scan is long enough to justify a thread.
    fn read_ahead(&mut self) {
        let next = self.window_end();
        let len = self.useful(next, next);
        if !self.may_read_ahead || self.in_a_row < WINDOWS_BEFORE || len == 0 || next >= self.files.limit() {
            return;
        }
        let spare = self.spare.take().unwrap_or_else(|| AlignedBuf::zeroed(self.buffer.len()));
        self.ahead = ReadAhead::start(&self.files, next, len, spare);
        self.may_read_ahead = self.ahead.is_some();
    }

    fn invalid(&mut self, reason: &str) -> Result<Option<RecordRef<'_>>> {
        match self.end {
            End::FirstInvalid => {
                self.stopped = Some(reason.to_owned());
                Ok(None)
            }
            End::Hardened(_) => Err(self.files.geometry.corrupt(self.position, reason)),
        }
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests;
