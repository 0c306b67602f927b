//! Errors of persistent memory regions.

use crate::guarantee::{Guarantee, Survive};

/// Why a region could not be opened or created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PmemError {
    /// The file does not exist.
    #[error("the region `{location}` does not exist; create it, or check the path")]
    Missing {
        /// The path of the missing file.
        location: String,
    },

    /// [`crate::Mode::Create`] found an existing file.
    #[error("`{location}` already exists; open it, remove it, or choose another path")]
    AlreadyExists {
        /// The path of the existing file.
        location: String,
    },

    /// The file, the device or the simulated memory is smaller than the requested region.
    #[error(
        "the region `{location}` has {len} bytes, but {wanted} are needed; name a larger file or device, or request \
         fewer bytes"
    )]
    TooSmall {
        /// The region's location.
        location: String,
        /// Its size, in bytes.
        len: u64,
        /// The requested size, in bytes.
        wanted: u64,
    },

    /// Another process or database has the region open.
    #[error("the region `{location}` is in use; close the program or the database that has it open")]
    Busy {
        /// The region's location.
        location: String,
    },

    /// Data in the region would not survive the failures that [`crate::RegionOptions::survive`]
    /// requires.
    #[error(
        "data in `{location}` would not survive {wanted}: {reason} ({guarantee}); use a file on a DAX file system with \
         persistent memory, require less with `RegionOptions::survive`, or, if the platform guarantees more than it \
         reports, state that with `RegionOptions::stated`"
    )]
    NotDurable {
        /// The region's location.
        location: String,
        /// What the data must survive.
        wanted: Survive,
        /// What the platform guarantees.
        guarantee: Guarantee,
        /// How the guarantee was determined.
        reason: String,
    },

    /// An option has an invalid value.
    #[error("option `{option}` of the region is invalid: {reason}")]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// Which values are valid.
        reason: String,
    },

    /// The operating system refused an operation.
    #[error("cannot {operation} the region `{location}`: {reason}")]
    System {
        /// The operation, as a verb.
        operation: &'static str,
        /// The region's location.
        location: String,
        /// The system's message.
        reason: String,
    },
}

impl PmemError {
    pub(crate) fn system(operation: &'static str, location: &str) -> Self {
        let reason = std::io::Error::last_os_error().to_string();
        Self::System { operation, location: location.to_owned(), reason }
    }

    pub(crate) fn invalid(option: &'static str, reason: &str) -> Self {
        Self::InvalidOption { option, reason: reason.to_owned() }
    }
}

/// Result of an operation on regions.
pub type Result<T> = std::result::Result<T, PmemError>;
