//! Addresses in a log: the LSN at which a log begins, and the address of an inserted record.

use duramen_types::{Gsn, LogAddress, LogId, Lsn};

/// LSN of the first record of every log. LSN (or GSN) zero means "never logged".
pub const FIRST_LSN: Lsn = Lsn::new(4096);

/// The address of an inserted record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inserted {
    /// The log that contains the record.
    pub log: LogId,
    /// Where the record starts.
    pub lsn: Lsn,
    /// Where the record ends.
    pub end: Lsn,
    /// The record's position in the global order, with which the page that it changes is stamped.
    pub gsn: Gsn,
}

impl Inserted {
    /// Returns the record's log and its start.
    pub fn address(&self) -> LogAddress {
        LogAddress::of(self.log, self.lsn)
    }

    /// Returns the size of the record in bytes.
    pub fn bytes(&self) -> u64 {
        self.end.get() - self.lsn.get()
    }

    /// Returns the GSN to which the record advances its log's clock.
    pub fn end_gsn(&self) -> Gsn {
        Gsn::new(self.gsn.get() + self.bytes())
    }
}
