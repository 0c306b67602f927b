//! Reading the records of a transaction backwards from its latest record. Each record holds the
//! address of the one before it, in any log.

use duramen_types::{LogAddress, LogId, Lsn};

use crate::address::FIRST_LSN;
use crate::error::{Result, WalError};
use crate::format::record::RecordRef;
use crate::segments::scan::BackScanner;
use crate::stream::Stream;

/// Reads hardened records in any order. Reading is fast if each record lies before the one last
/// read from the same log: the log is read in parts of up to a megabyte, and a part is kept until a
/// record lies outside it. The records must not be recycled during the reading.
#[derive(Debug)]
pub struct ReadBack<'l> {
    streams: &'l [Stream],
    /// For each log, its scanner, created on first use.
    scanners: Box<[Option<BackScanner>]>,
}

impl<'l> ReadBack<'l> {
    pub(crate) fn new(streams: &'l [Stream]) -> Self {
        Self { streams, scanners: streams.iter().map(|_| None).collect() }
    }

    /// Reads one record, which is borrowed until the next call.
    ///
    /// # Errors
    /// As [`crate::Log::read`].
    pub fn read(&mut self, place: LogAddress) -> Result<RecordRef<'_>> {
        let log: LogId = place.log();
        let number = usize::from(log.get());
        let (Some(stream), Some(scanner)) = (self.streams.get(number), self.scanners.get_mut(number)) else {
            return Err(WalError::OutOfRange { lsn: place.lsn(), start: FIRST_LSN, end: Lsn::new(0) });
        };
        let scanner = scanner.get_or_insert_with(|| stream.back_scanner(self.streams.len() as u16));
        stream.read_back(scanner, place.lsn()).map_err(|error| error.in_log(log))
    }
}
