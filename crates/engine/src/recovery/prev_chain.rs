//! Reads the records of one transaction backwards: from the latest one, along the address that each
//! record names.

use duramen_types::{Gsn, LogAddress, TxnId};
use duramen_wal::ReadBack;

use super::malformed::{Medium, malformed, read_in_chain};
use crate::error::Result;
use crate::record::{Kind, undo_next};
use crate::txn_state::log::PastRecord;
use crate::txn_state::table::TxnEntry;

/// Reads records that other records name.
pub(super) trait ReadRecords {
    /// Reads the record at `address`.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if no record of the engine is there.
    fn read(&mut self, address: LogAddress) -> Result<PastRecord<'_>>;

    /// Returns where the records are.
    fn medium(&self) -> Medium;
}

/// The transactions that a crash has interrupted.
pub(super) trait Resumable: Send + Sync {
    fn entries(&self) -> Vec<TxnEntry>;

    /// Returns what reads their records. Each thread uses its own.
    fn reader(&self) -> Box<dyn ReadRecords + '_>;
}

impl ReadRecords for ReadBack<'_> {
    fn read(&mut self, address: LogAddress) -> Result<PastRecord<'_>> {
        let record = read_in_chain(address, ReadBack::read(self, address))?;
        let kind = Kind::from_u8(record.kind).ok_or_else(|| malformed(address))?;
        let (txn, prev) = (Some(record.txn), record.prev);
        Ok(PastRecord { address, txn, prev, gsn: record.gsn, kind, payload: record.payload })
    }

    fn medium(&self) -> Medium {
        Medium::Log
    }
}

/// The records of a transaction, read backwards. They may be in several logs.
pub(super) struct PrevChain {
    txn: TxnId,
    next: LogAddress,
    /// GSN of the record returned last. It must fall, or the chain might never end.
    gsn: Gsn,
}

impl PrevChain {
    pub(super) fn new(entry: &TxnEntry) -> Self {
        Self { txn: entry.txn, next: entry.last, gsn: Gsn::MAX }
    }

    pub(super) fn next<'r>(&mut self, records: &'r mut dyn ReadRecords) -> Result<Option<PastRecord<'r>>> {
        if self.next.is_zero() {
            return Ok(None);
        }
        let medium = records.medium();
        let record = records.read(self.next)?;
        if record.gsn >= self.gsn || record.txn.is_some_and(|txn| txn != self.txn) {
            return Err(medium.malformed(record.address));
        }
        self.gsn = record.gsn;
        self.next = match record.kind {
            Kind::Compensation => undo_next(record.payload).map_err(|_| medium.malformed(record.address))?,
            _ => record.prev,
        };
        Ok(Some(record))
    }
}
