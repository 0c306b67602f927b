//! What can go wrong in an experiment.

/// Result of the lab.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong in an experiment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A workload, or the engine below it, failed.
    #[error(transparent)]
    Workload(#[from] duramen_workloads::Error),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] duramen::Error),
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] duramen_io::DiskError),
    /// The database was found inconsistent after the experiment.
    #[error("the audit after the experiment failed: {0}")]
    Audit(String),
    /// A file of results cannot be written or read.
    #[error("cannot {operation} `{path}`: {reason}")]
    ResultFile {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The file.
        path: String,
        /// What the system said or what was found.
        reason: String,
    },
    /// A plot cannot be drawn.
    #[error("cannot draw `{figure}`: {reason}")]
    Plot {
        /// The figure.
        figure: String,
        /// Why.
        reason: String,
    },
    /// The log refused its options.
    #[error(transparent)]
    Log(#[from] duramen_wal::WalError),
    /// This is the native build.
    #[error(
        "a run on the simulated machine `{machine}` needs the machine build, which `cargo run --release -- \
         lab run` makes"
    )]
    NotSimulated {
        /// The machine.
        machine: &'static str,
    },
    /// This build takes no traces.
    #[error(
        "a trace of the pages that are visited needs the trace build (`--cfg duramen_trace`), which \
         `cargo run --release -- lab run` makes"
    )]
    NotTraced,
    /// A run on a simulated machine did not end normally.
    #[error("the simulated machine `{machine}`: {reason}")]
    Simulation {
        /// The machine.
        machine: &'static str,
        /// What happened.
        reason: String,
    },
}
