//! Errors for records that an intact log, or an intact heap, cannot have.

use duramen_types::LogAddress;
use duramen_wal::WalError;

use crate::error::{Error, Result};
use crate::record::Malformed;

/// Turns the result of reading a record that another record names into recovery's error.
pub(super) fn read_in_chain<T>(address: LogAddress, read: Result<T, WalError>) -> Result<T> {
    match read {
        // No record in an intact log names an address beyond the log's end.
        Err(WalError::OutOfRange { .. }) => Err(malformed(address)),
        Err(WalError::InLog { error, .. }) if matches!(*error, WalError::OutOfRange { .. }) => Err(malformed(address)),
        read => Ok(read?),
    }
}

/// Where the records of interrupted transactions are.
pub(super) enum Medium {
    /// In the log, or in one of several.
    Log,
    /// In the journals of a heap, which is here.
    Heap(String),
}

impl Medium {
    /// Returns the error for a record whose checksum is right and whose contents are impossible.
    pub(super) fn malformed(&self, address: LogAddress) -> Error {
        let (file, offset, byte) = match self {
            Self::Log if address.log().is_zero() => ("the log".into(), address.lsn().get(), " (the byte is an LSN)"),
            Self::Log => (address.log().to_string(), address.lsn().get(), " (the byte is an LSN)"),
            Self::Heap(location) => (location.clone(), address.get(), ", in a journal"),
        };
        Error::Corrupt { file, offset, page: None, reason: format!("{Malformed}{byte}") }
    }
}

/// Returns [`Medium::malformed`] of the log.
pub(super) fn malformed(address: LogAddress) -> Error {
    Medium::Log.malformed(address)
}

#[cfg(test)]
mod tests {
    use duramen_types::{LogId, Lsn};

    use super::*;

    #[test]
    fn the_error_names_what_holds_the_record() {
        let address = LogAddress::of(LogId::new(2), Lsn::new(4096));
        let of_log = malformed(address).to_string();
        assert!(of_log.contains(&LogId::new(2).to_string()) && of_log.contains("byte 4096"), "{of_log}");
        let address = LogAddress::of(LogId::ZERO, Lsn::new(8192));
        assert!(malformed(address).to_string().contains("the log"));
        let of_heap = Medium::Heap("/mnt/heap".into()).malformed(address).to_string();
        assert!(of_heap.contains("/mnt/heap") && of_heap.contains("journal"), "{of_heap}");
        assert!(!of_heap.contains("LSN") && !of_heap.contains("the log"), "{of_heap}");
    }
}
