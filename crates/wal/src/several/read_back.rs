//! Reading the records of a transaction from its latest on, as they name each other, in any number of logs.

use duramen_types::{LogId, Lsn, Place};

use crate::error::{Result, WalError};
use crate::format::record::RecordRef;
use crate::place::FIRST_LSN;
use crate::segments::scan::BackScanner;
use crate::several::logs::Logs;

/// Reads hardened records in no order at all, and fast if each lies before the one read last of its log: the log is read in parts
/// of up to a megabyte, and a part is kept until a record lies outside. What is read must not be recycled meanwhile.
#[derive(Debug)]
pub struct ReadBack<'l> {
    logs: &'l Logs,
    /// Of each log, once it has been needed.
    scanners: Box<[Option<BackScanner>]>,
}

impl<'l> ReadBack<'l> {
    pub(crate) fn new(logs: &'l Logs) -> Self {
        Self { logs, scanners: (0..logs.count()).map(|_| None).collect() }
    }

    /// Reads one record, which is lent until the next call.
    ///
    /// # Errors
    /// As [`crate::Wal::read`].
    pub fn read(&mut self, place: Place) -> Result<RecordRef<'_>> {
        let log: LogId = place.log();
        let Some(scanner) = self.scanners.get_mut(usize::from(log.get())) else {
            return Err(WalError::OutOfRange { lsn: place.lsn(), start: FIRST_LSN, end: Lsn::new(0) });
        };
        let wal = self.logs.log(log);
        let scanner = scanner.get_or_insert_with(|| wal.back_scanner(self.logs.count()));
        wal.read_back(scanner, place.lsn()).map_err(|error| error.in_log(log))
    }
}
