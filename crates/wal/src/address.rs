//! Addresses in a log: where it begins, and where a record went.

use duramen_types::{Gsn, LogAddress, LogId, Lsn};

/// LSN of the first record of every log. No record has LSN (or GSN) zero, which means "never
/// logged".
pub const FIRST_LSN: Lsn = Lsn::new(4096);

/// Where a record went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inserted {
    /// The log that took it.
    pub log: LogId,
    /// Where it starts.
    pub lsn: Lsn,
    /// Where it ends.
    pub end: Lsn,
    /// Its place in the global order; the page it changed is stamped with it.
    pub gsn: Gsn,
}

impl Inserted {
    /// Where it starts, in which log.
    pub fn address(&self) -> LogAddress {
        LogAddress::of(self.log, self.lsn)
    }

    /// Bytes of the record.
    pub fn bytes(&self) -> u64 {
        self.end.get() - self.lsn.get()
    }

    /// How far it brings the clock of its log.
    pub fn end_gsn(&self) -> Gsn {
        Gsn::new(self.gsn.get() + self.bytes())
    }
}
