//! What can go wrong with a region.

use crate::guarantee::{Guarantee, Survive};

/// Why there is no region.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PmemError {
    /// The file is not there.
    #[error("the region `{location}` does not exist; create it, or check the path")]
    Missing {
        /// Where it was looked for.
        location: String,
    },

    /// Something already exists where a region was to be made.
    #[error("`{location}` exists already; open it, remove it, or choose another path")]
    AlreadyExists {
        /// What is there.
        location: String,
    },

    /// The file or device is smaller than the region asked for.
    #[error("the region `{location}` has {len} bytes, {wanted} are needed; name a larger one, or ask for less")]
    TooSmall {
        /// Which one.
        location: String,
        /// Bytes it has.
        len: u64,
        /// Bytes asked for.
        wanted: u64,
    },

    /// Another process or database has the region.
    #[error("the region `{location}` is in use; close the program or the database that has it open")]
    Busy {
        /// Which one.
        location: String,
    },

    /// What is stored there would not survive what it has to.
    #[error(
        "what is stored in `{location}` would not survive {wanted}: {reason} ({guarantee}); use a file on a DAX \
         file system with persistent memory, accept less with `RegionOptions::survive`, or, if the platform does \
         guarantee it, say so with `RegionOptions::stated`"
    )]
    NotDurable {
        /// Which one.
        location: String,
        /// What it has to survive.
        wanted: Survive,
        /// What the platform guarantees.
        guarantee: Guarantee,
        /// Why it does not guarantee more.
        reason: String,
    },

    /// An option has a value that cannot work.
    #[error("option `{option}` of the region is invalid: {reason}")]
    InvalidOption {
        /// Its name.
        option: &'static str,
        /// What is allowed.
        reason: String,
    },

    /// The operating system refused.
    #[error("cannot {operation} the region `{location}`: {reason}")]
    System {
        /// What was being done.
        operation: &'static str,
        /// To which region.
        location: String,
        /// What the system said.
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
