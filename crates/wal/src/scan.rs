//! Reading the log in order.

use std::ops::Range;

use duramen_io::AlignedBuf;
use duramen_sync::Arc;
use duramen_types::Lsn;

use crate::error::{Result, WalError};
use crate::files::SegmentFiles;
use crate::record::{HEADER_BYTES, Header, RecordRef, decode, is_intact};
use crate::segment::BLOCK;

/// Bytes read at a time by a scan.
const WINDOW_BYTES: usize = 1 << 20;

/// Reads records in order, each lent until the next call.
///
/// A scanner of an open log covers what was hardened when it was made; a record there that does not pass its check is an
/// error. A scanner of a [`crate::LogReader`] ends at the first position that holds no valid record, as recovery does.
/// The part of the log being scanned must not be recycled meanwhile.
#[derive(Debug)]
pub struct Scanner {
    files: Arc<SegmentFiles>,
    position: u64,
    end: End,
    window: AlignedBuf,
    /// LSN of the first byte of the window, and how many of its bytes have been read.
    window_start: u64,
    window_len: usize,
    /// Where in the window the record is that was lent last.
    last: Range<usize>,
    /// Why the scan ended.
    stopped: Option<String>,
    /// The scan ended in a record whose rest should be in a segment that is not there.
    cut_off: bool,
}

/// Where a scan ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// At this position; everything before it is expected to be valid.
    Hardened(u64),
    /// At the first invalid record.
    FirstInvalid,
}

impl Scanner {
    /// Scans `[from, durable)`, all of it hardened.
    pub(crate) fn hardened(files: Arc<SegmentFiles>, from: Lsn, durable: Lsn) -> Self {
        Self::new(files, from, End::Hardened(durable.get()), WINDOW_BYTES)
    }

    /// Scans from `from` to the first invalid record.
    pub(crate) fn to_first_invalid(files: Arc<SegmentFiles>, from: Lsn) -> Self {
        Self::new(files, from, End::FirstInvalid, WINDOW_BYTES)
    }

    /// For one record at `from`: reads little.
    pub(crate) fn one(files: Arc<SegmentFiles>, from: Lsn, durable: Option<Lsn>) -> Self {
        let end = durable.map_or(End::FirstInvalid, |durable| End::Hardened(durable.get()));
        Self::new(files, from, end, 2 * BLOCK as usize)
    }

    fn new(files: Arc<SegmentFiles>, from: Lsn, end: End, window: usize) -> Self {
        let window = AlignedBuf::zeroed(window);
        Self {
            files,
            position: from.get(),
            end,
            window,
            window_start: 0,
            window_len: 0,
            last: 0..0,
            stopped: None,
            cut_off: false,
        }
    }

    /// Where the next record would start: after the end, the end of the log.
    pub fn position(&self) -> Lsn {
        Lsn::new(self.position)
    }

    /// Why no record is at [`Scanner::position`], once a scan that ends at the first invalid record has ended.
    pub fn stopped_because(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    /// Whether the scan has ended in a record that goes on in a segment that is not there.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// The next record, or `None` at the end.
    ///
    /// # Errors
    /// [`WalError::Disk`] when reading fails, [`WalError::Corrupt`] when a hardened record does not pass its check,
    /// [`WalError::MissingSegment`] when the scan starts in a segment that is not there. The scan can be continued with
    /// another call only after a failed read.
    #[allow(clippy::should_implement_trait, reason = "the record is lent, which `Iterator` cannot express")]
    pub fn next(&mut self) -> Result<Option<RecordRef<'_>>> {
        if self.stopped.is_some() || self.end == End::Hardened(self.position) {
            return Ok(None);
        }
        if !self.fill(HEADER_BYTES)? {
            return self.invalid("the log's segments end here");
        }
        let header = self.at(HEADER_BYTES).and_then(Header::at);
        let position = self.position();
        let beginning =
            header.and_then(|header| Some((header.length()?, header.is_in_place(&self.files.identity, position))));
        let Some((length, in_place)) = beginning else {
            return self.invalid("there is no record here");
        };
        if !self.fill(length)? {
            // Segments are made before anything is written that reaches into them.
            self.cut_off = in_place;
            return self.invalid("the record goes on behind the last segment");
        }
        let lsn = self.position();
        let identity = self.files.identity;
        if !self.at(length).is_some_and(|bytes| is_intact(bytes, &identity, lsn)) {
            return self.invalid("the checksum of the record is wrong, or its GSN is not its position");
        }
        if matches!(self.end, End::Hardened(end) if end < lsn.get() + length as u64) {
            return self.invalid("the record goes on behind the hardened end of the log");
        }
        self.position += length as u64;
        let start = (lsn.get() - self.window_start) as usize;
        self.last = start..start + length;
        if decode(&self.window[self.last.clone()], &identity, lsn).is_none() {
            return self.invalid("the record is shorter than what it must hold");
        }
        Ok(self.again())
    }

    /// The record that [`Scanner::next`] has given last, once more.
    pub fn again(&self) -> Option<RecordRef<'_>> {
        let lsn = Lsn::new(self.position - self.last.len() as u64);
        decode(self.window.get(self.last.clone())?, &self.files.identity, lsn)
    }

    fn at(&self, len: usize) -> Option<&[u8]> {
        let start = (self.position - self.window_start) as usize;
        self.window.get(start..start + len)
    }

    /// Reads until the window covers `len` bytes from the position; returns whether the segments hold so many.
    fn fill(&mut self, len: usize) -> Result<bool> {
        let end = self.position + len as u64;
        if self.position >= self.window_start && end <= self.window_start + self.window_len as u64 {
            return Ok(true);
        }
        let start = self.position / BLOCK * BLOCK;
        let needed = (end - start).next_multiple_of(BLOCK) as usize;
        if needed > self.window.len() {
            self.window = AlignedBuf::zeroed(needed);
        }
        // Not valid while it is being read.
        self.window_len = 0;
        let mut wanted = self.window.len();
        if let End::Hardened(hardened) = self.end {
            // No further than the hardened end: what lies behind is being written.
            let useful = hardened.max(end).next_multiple_of(BLOCK) - start;
            wanted = wanted.min(usize::try_from(useful).unwrap_or(usize::MAX));
        }
        self.window_len = self.files.read(start, &mut self.window[..wanted])?;
        self.window_start = start;
        Ok(end <= start + self.window_len as u64)
    }

    fn invalid(&mut self, reason: &str) -> Result<Option<RecordRef<'_>>> {
        match self.end {
            End::FirstInvalid => {
                self.stopped = Some(reason.to_owned());
                Ok(None)
            }
            End::Hardened(_) => Err(WalError::Corrupt {
                segment: self.files.geometry.segment_of(self.position),
                offset: self.files.geometry.offset(self.position),
                reason: reason.to_owned(),
            }),
        }
    }
}
