//! Reads single records, each of which is before the one read last: the order in which a
//! transaction's records name each other.
//!
//! Reading each record by itself would cost one operation of the device. So this reads a window
//! that *ends* behind the record and most likely contains those before it. A window is small at
//! first and doubles as long as the next record is near the previous window; where records are far
//! apart, only their own blocks are read.

use duramen_io::AlignedBuf;
use duramen_sync::Arc;
use duramen_types::Lsn;

use super::{End, Scanner};
use crate::error::Result;
use crate::format::header::{Header, LEAST_HEADER_BYTES};
use crate::format::record::RecordRef;
use crate::format::segment::BLOCK;
use crate::segments::files::SegmentFiles;

/// Bytes of the first window, and of each window that is far from the previous one.
const LEAST: u64 = 2 * BLOCK;

/// Bytes of the largest window.
const MOST: u64 = 1 << 20;

/// The largest window of several logs: they share [`MOST`] bytes, but each has at least this many.
const LEAST_OF_SEVERAL: u64 = 64 << 10;

/// Reads records backwards, through a window.
#[derive(Debug)]
pub(crate) struct BackScanner {
    /// Its window is placed by this reader.
    scanner: Scanner,
    size: u64,
    most: u64,
}

impl BackScanner {
    /// Makes a reader for one of `logs` logs.
    pub(crate) fn new(files: Arc<SegmentFiles>, logs: u16) -> Self {
        let scanner = Scanner::new(files, Lsn::ZERO, End::Hardened(0), LEAST as usize, 0);
        let most = (MOST / u64::from(logs)).next_multiple_of(BLOCK).max(LEAST_OF_SEVERAL);
        Self { scanner, size: LEAST, most }
    }

    /// Returns whether the beginning of the record at `lsn` is in the window.
    pub(crate) fn has(&self, lsn: Lsn) -> bool {
        let is_below = matches!(self.scanner.end, End::Hardened(end) if lsn.get() < end);
        is_below && self.scanner.covers(lsn.get(), lsn.get() + LEAST_HEADER_BYTES as u64)
    }

    /// Reads the record at `lsn` in a log whose segments are hardened from `start` to `durable`.
    /// Returns `None` at the end of the log.
    pub(crate) fn read(&mut self, lsn: Lsn, start: Lsn, durable: Lsn) -> Result<Option<RecordRef<'_>>> {
        self.scanner.position = lsn.get();
        // `has` rejects bytes behind the end that was hardened when the window was read.
        if !self.has(lsn) {
            self.scanner.end = End::Hardened(durable.get());
            let before = (self.scanner.window_len > 0).then_some(self.scanner.window_start);
            self.size = next_size(lsn.get(), before, self.size, self.most);
            self.read_window(lsn.get() + BLOCK, start, durable)?;
        }
        let header = self.scanner.at(LEAST_HEADER_BYTES).and_then(Header::at);
        if let Some(end) = header.and_then(|header| Some(lsn.get() + header.length()? as u64))
            && !self.scanner.covers(lsn.get(), end)
            && end <= durable.get()
        {
            self.read_window(end, start, durable)?;
        }
        self.scanner.next()
    }

    /// Reads a window that contains the position and ends at `end`, or where the log does.
    fn read_window(&mut self, end: u64, start: Lsn, durable: Lsn) -> Result<()> {
        let scanner = &mut self.scanner;
        let end = end.min(durable.get()).next_multiple_of(BLOCK);
        let from = end.saturating_sub(self.size).max(start.get()).min(scanner.position) / BLOCK * BLOCK;
        let len = (end - from) as usize;
        if scanner.buffer.len() < len {
            scanner.buffer = AlignedBuf::zeroed(len);
        }
        scanner.load(from, len)
    }
}

/// Returns the bytes to read for `lsn`, after a window of `size` bytes that begins at `before`.
fn next_size(lsn: u64, before: Option<u64>, size: u64, most: u64) -> u64 {
    let is_near = before.is_some_and(|before| lsn < before && before - lsn <= most / 4);
    if is_near { (2 * size).min(most) } else { LEAST }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests;
