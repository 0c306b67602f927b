//! The log device `file`: the buffer is ordinary memory, and a flush to the segments hardens its
//! records.

use duramen_types::{Gsn, Lsn};

use crate::buffer::ring::Ring;
use crate::device::flush::Flusher;
use crate::device::{Device, Tail};
use crate::error::{Result, WalError};
use crate::format::header::Layout;
use crate::format::record::NewRecord;

/// The device that consists of the segments alone.
#[derive(Debug)]
pub(crate) struct FileDevice(pub(super) Flusher);

impl Device for FileDevice {
    fn writer(&self) -> &Flusher {
        &self.0
    }

    fn takes_unsealed(&self) -> bool {
        self.0.seals_at_flush()
    }

    unsafe fn fill(&self, tail: Tail<'_>, lsn: Lsn, layout: Layout, record: &NewRecord<'_>, gsn: Gsn, durable: Lsn) {
        // SAFETY: the caller guarantees the contract of `Flusher::fill`.
        unsafe { self.0.fill(tail, lsn, layout, record, gsn, durable) };
    }
}

/// Creates a buffer in ordinary memory for a log that ends at `end`, and fills in the beginning of
/// the last block of the log.
pub(super) fn buffer(bytes: usize, block: &[u8], end: Lsn) -> Result<Ring> {
    let ring = Ring::new(bytes).map_err(|error| WalError::System {
        what: format!("allocate {bytes} bytes of memory for the log buffer"),
        reason: format!("{error}; choose a smaller buffer"),
    })?;
    let start = Lsn::new(end.get() - block.len() as u64);
    // SAFETY: no other thread has the ring yet.
    unsafe { ring.bytes_mut(start, block.len()) }.copy_from_slice(block);
    Ok(ring)
}
