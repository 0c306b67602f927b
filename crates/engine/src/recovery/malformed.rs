//! Errors for records that an intact log cannot have.

use duramen_types::LogAddress;
use duramen_wal::WalError;

use crate::error::{Error, Result};
use crate::record::Malformed;

/// Turns the result of reading a record that another record names into recovery's error.
pub(super) fn read_in_chain<T>(place: LogAddress, read: Result<T, WalError>) -> Result<T> {
    match read {
        // No record in an intact log names an address beyond the log's end.
        Err(WalError::OutOfRange { .. }) => Err(malformed(place)),
        Err(WalError::InLog { error, .. }) if matches!(*error, WalError::OutOfRange { .. }) => Err(malformed(place)),
        read => Ok(read?),
    }
}

/// Returns the error for a record whose checksum is right and whose contents are impossible.
pub(super) fn malformed(place: LogAddress) -> Error {
    let log = if place.log().is_zero() { "the log".into() } else { place.log().to_string() };
    let reason = format!("{Malformed} (the byte is an LSN)");
    Error::Corrupt { file: log, offset: place.lsn().get(), page: None, reason }
}
