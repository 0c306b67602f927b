//! PCMLogging against a page cache and a log in PCM, on the simulator of `crate::pcm`.

mod counted;
mod disk_ios;
mod measured;
mod miss_rate;
mod recovery;
mod setup;
mod write_traffic;

pub(super) use counted::Counted;
pub(super) use disk_ios::DiskIos;
pub(super) use miss_rate::MissRate;
pub(super) use recovery::Recovering;
pub(super) use write_traffic::WriteTraffic;

/// Where they run: the trace is taken natively, and the replay is the same everywhere.
const WORLD: &str = "trace-driven simulator";

/// Names of the schemes in figures.
const NO_PCM: &str = "NoPCM";
const BASIC: &str = "PCMBasic";
const LOGGING: &str = "PCMLogging";
const LOGGING_PAGES: &str = "PCMLogging, page granularity";
