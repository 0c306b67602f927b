//! Reads the records of one transaction backwards: from the latest one, along the address that each
//! record names.

use duramen_types::{Gsn, LogAddress};
use duramen_wal::{ReadBack, RecordRef};

use super::malformed::{malformed, read_in_chain};
use crate::error::Result;
use crate::record::{Kind, undo_next};

/// The records of a transaction, read backwards. They may be in several logs.
pub(super) struct PrevChain {
    next: LogAddress,
    /// GSN of the record returned last. It must fall, or the chain might never end.
    gsn: Gsn,
}

impl PrevChain {
    pub(super) fn new(last: LogAddress) -> Self {
        Self { next: last, gsn: Gsn::MAX }
    }

    pub(super) fn next<'r>(&mut self, logs: &'r mut ReadBack<'_>) -> Result<Option<RecordRef<'r>>> {
        if self.next.is_zero() {
            return Ok(None);
        }
        let record = read_in_chain(self.next, logs.read(self.next))?;
        if record.gsn >= self.gsn {
            return Err(malformed(record.address()));
        }
        self.gsn = record.gsn;
        self.next = match Kind::from_u8(record.kind) {
            Some(Kind::Compensation) => undo_next(record.payload).map_err(|_| malformed(record.address()))?,
            _ => record.prev,
        };
        Ok(Some(record))
    }
}
