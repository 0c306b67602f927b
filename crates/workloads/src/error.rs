//! What can go wrong while a workload runs.

use std::path::PathBuf;

/// Result of a workload operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong while a workload is loaded, run or audited.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Duramen's answer to an operation.
    #[error(transparent)]
    Engine(#[from] duramen::Error),
    /// Another engine's answer to an operation.
    #[error("{engine}: {source}")]
    Foreign {
        /// Its name.
        engine: &'static str,
        /// Whether the transaction only lost against another one, and running it again can succeed.
        retryable: bool,
        /// What it said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A table of the workload is not there.
    #[error("there is no table `{name}`: the database is not populated for this workload")]
    MissingTable {
        /// Its name.
        name: String,
    },
    /// A client met an error that running the transaction again does not mend.
    #[error("client {client}: {source}")]
    Client {
        /// Number of the client.
        client: u32,
        /// What it met.
        source: Box<Error>,
    },
    /// The database was populated for other parameters than the ones asked for.
    #[error("the database holds {found}, not {wanted}; choose the size that it holds, or another directory")]
    WrongScale {
        /// What the database holds.
        found: String,
        /// What was asked for.
        wanted: String,
    },
    /// A row that the population put there is missing or cannot be decoded.
    #[error("the database is damaged: {reason}")]
    Damaged {
        /// Which row, and what is wrong with it.
        reason: String,
    },
    /// The acknowledgement ledger cannot be used.
    #[error("cannot {operation} the ledger `{path}`: {reason}", path = path.display())]
    Ledger {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The ledger.
        path: PathBuf,
        /// What the system said or what was found.
        reason: String,
    },
    /// The parameters make no sense.
    #[error("{reason}")]
    InvalidParameter {
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The operating system has no thread to give.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl Error {
    /// Returns whether running the same transaction again can succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Engine(error) => error.is_retryable(),
            Self::Foreign { retryable, .. } => *retryable,
            _ => false,
        }
    }

    /// Duramen's error behind this one, if there is one.
    pub fn engine(&self) -> Option<&duramen::Error> {
        match self {
            Self::Engine(error) => Some(error),
            Self::Client { source, .. } => source.engine(),
            _ => None,
        }
    }

    /// Returns whether this says that stored data is damaged.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } | Self::Engine(duramen::Error::Corrupt { .. }) => true,
            Self::Client { source, .. } => source.is_damage(),
            _ => false,
        }
    }
}
