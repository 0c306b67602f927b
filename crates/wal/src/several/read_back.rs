//! Reading a transaction's records backwards: each holds the address of the one before, in any log.

use duramen_sync::Arc;
use duramen_types::{LogAddress, LogId, Lsn};

use crate::address::FIRST_LSN;
use crate::error::{Result, WalError};
use crate::format::record::RecordRef;
use crate::segments::scan::BackScanner;
use crate::stream::Stream;

/// Reads hardened records in any order, which must not be recycled meanwhile. Fast if each record
/// lies before the last one of the same log: parts of up to a megabyte are read and kept.
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
    /// [`WalError::OutOfRange`] when `place` is outside the hardened log, [`WalError::Corrupt`]
    /// when no valid record starts there, [`WalError::Disk`].
    pub fn read(&mut self, place: LogAddress) -> Result<RecordRef<'_>> {
        let log: LogId = place.log();
        let number = usize::from(log.get());
        let (Some(stream), Some(scanner)) = (self.streams.get(number), self.scanners.get_mut(number)) else {
            return Err(WalError::OutOfRange { lsn: place.lsn(), start: FIRST_LSN, end: Lsn::new(0) });
        };
        let create = || BackScanner::new(Arc::clone(&stream.shared.files), self.streams.len() as u16);
        let scanner = scanner.get_or_insert_with(create);
        stream.read_back(scanner, place.lsn()).map_err(|error| error.in_log(log))
    }
}
