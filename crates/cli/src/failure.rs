//! How the command fails.

use std::process::ExitCode;

use duramen_io::DiskError;

/// The exit codes, for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  success; for `bench`, the run and its audit
  1  the run failed
  2  the command line is invalid
  3  an audit or a check found damage";

/// Result of a subcommand.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why the command ends with another exit code than 0.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The run failed.
    Run(String),
    /// The command line asks for something that cannot be had.
    Usage(String),
    /// Stored data is damaged.
    Damage(String),
    /// The reader of the output has closed it, so no message is printed.
    OutputClosed,
}

impl Failure {
    /// Returns what to tell the user.
    pub(crate) fn sentence(&self) -> Option<&str> {
        match self {
            Self::Run(sentence) | Self::Usage(sentence) | Self::Damage(sentence) => Some(sentence),
            Self::OutputClosed => None,
        }
    }

    /// Returns what to tell the calling program.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Run(_) | Self::OutputClosed => 1,
            Self::Usage(_) => 2,
            Self::Damage(_) => 3,
        })
    }
}

impl From<duramen::Error> for Failure {
    fn from(error: duramen::Error) -> Self {
        let sentence = error.to_string();
        match error {
            duramen::Error::InvalidOption { .. } => Self::Usage(sentence),
            duramen::Error::Corrupt { .. } => Self::Damage(sentence),
            _ => Self::Run(sentence),
        }
    }
}

impl From<duramen_workloads::Error> for Failure {
    fn from(error: duramen_workloads::Error) -> Self {
        use duramen_workloads::Error;
        let sentence = error.to_string();
        match error {
            Error::Engine(error) => error.into(),
            Error::WrongScale { .. } | Error::InvalidParameter { .. } => Self::Usage(sentence),
            error if error.is_damage() => Self::Damage(sentence),
            _ => Self::Run(sentence),
        }
    }
}

impl From<duramen_lab::Error> for Failure {
    fn from(error: duramen_lab::Error) -> Self {
        use duramen_lab::Error;
        let sentence = error.to_string();
        match error {
            Error::Workload(error) => error.into(),
            Error::Engine(error) => error.into(),
            Error::Audit(_) => Self::Damage(sentence),
            _ => Self::Run(sentence),
        }
    }
}

impl From<DiskError> for Failure {
    fn from(error: DiskError) -> Self {
        Self::Run(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Run(format!("cannot write to standard output: {error}")),
        }
    }
}
