//! Records that the log must not have.

use duramen_types::LogAddress;
use duramen_wal::WalError;

use crate::error::{Error, Result};
use crate::record::Malformed;

/// What came of reading a record that another one names.
pub(super) fn read_in_chain<T>(place: LogAddress, read: Result<T, WalError>) -> Result<T> {
    match read {
        // Nothing in an intact log names a place beyond its end.
        Err(WalError::OutOfRange { .. }) => Err(malformed(place)),
        Err(WalError::InLog { error, .. }) if matches!(*error, WalError::OutOfRange { .. }) => Err(malformed(place)),
        read => Ok(read?),
    }
}

/// A record whose checksum is right and whose contents make no sense.
pub(super) fn malformed(place: LogAddress) -> Error {
    let log = if place.log().is_zero() { "the log".into() } else { place.log().to_string() };
    let reason = format!("{Malformed} (the place is an LSN)");
    Error::Corrupt { file: log, offset: place.lsn().get(), page: None, reason }
}
