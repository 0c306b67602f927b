//! Reading the records of a transaction from its latest on, as they name each other, in any number
//! of logs.

use duramen_types::{LogAddress, LogId, Lsn};

use crate::address::FIRST_LSN;
use crate::error::{Result, WalError};
use crate::format::record::RecordRef;
use crate::segments::scan::BackScanner;
use crate::stream::Stream;

/// Reads hardened records in no order at all, and fast if each lies before the one read last of its
/// log: the log is read in parts of up to a megabyte, and a part is kept until a record lies
/// outside. What is read must not be recycled meanwhile.
#[derive(Debug)]
pub struct ReadBack<'l> {
    streams: &'l [Stream],
    /// Of each log, once it has been needed.
    scanners: Box<[Option<BackScanner>]>,
}

impl<'l> ReadBack<'l> {
    pub(crate) fn new(streams: &'l [Stream]) -> Self {
        Self { streams, scanners: streams.iter().map(|_| None).collect() }
    }

    /// Reads one record, which is lent until the next call.
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
