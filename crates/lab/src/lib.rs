//! The experiments of the papers that Duramen is built on, repeated with Duramen.
//!
//! An [`Experiment`] states which figure of which paper it repeats, what the paper found there, and
//! when the finding counts as reproduced. Running it gives an [`Outcome`]: the measured series, and
//! for each part of the finding a [`Check`] of a measured number against a bound. The verdict
//! follows from the checks and from nothing else. [`save`] writes an outcome as JSON, CSV, SVG and
//! a page, and an overview of all saved outcomes.
//!
//! All experiments run the database as an application would, through its public interface. None
//! leaves out the log or its flushes, except for the series of asynchronous commit. The latency of
//! a log device is injected ([`duramen_io::DelayDisk`]) over files in a memory file system, which
//! has no latency of its own. After an experiment the database is audited; a failed audit fails the
//! experiment.
//!
//! A further experiment is a file in `experiments/` and a line in [`EXPERIMENTS`].
//!
//! # Parts
//! | module | what it does |
//! |---|---|
//! | `experiment`, `run`, `experiments` | what an experiment is, and running it; a file for each, with the TPC-B database (`bank`) and comparisons of systems over numbers of clients (`sweep`) |
//! | `bed` | a database in a memory file system with a log device of a chosen latency |
//! | `contender`, `nvm_bed`, `nvm_disk`, `timed`, `experiments/nvram` | the schemes for persistent memory beside each other: their options, their databases on either machine, a disk of modelled persistent memory, latencies, and the experiments |
//! | `experiments/traced`, `lru` | experiments on traces of the pages that are visited, which the trace build takes |
//! | `with_work` | workloads whose transactions have more work, for controlled runs |
//! | `kept` | results that several experiments judge |
//! | `experiments/simulated`, `simulation` | experiments on simulated machines, of the log buffer alone and of the whole engine |
//! | `experiments/atom` | hardware undo logging on the event-driven model of `duramen_machine::atom` |
//! | `experiments/pcm`, `pcm` | PCMLogging, on a simulator of DRAM, PCM and disk that replays a trace of TPC-C |
//! | `experiments/several_logs` | several logs alone, on either machine |
//! | `bounds`, `calibration` | when a finding counts as reproduced; how far the model deviates |
//! | `figure`, `plot`, `document`, `outcome`, `result_files` | series and CSV, SVG, the page, what is kept of a run |

mod bed;
mod bounds;
mod calibration;
mod contender;
mod document;
mod error;
mod experiment;
mod experiments;
mod figure;
mod kept;
#[cfg_attr(not(any(duramen_trace, test)), allow(dead_code, reason = "used by the trace build"))]
mod lru;
mod machine;
mod nvm_bed;
mod nvm_disk;
mod outcome;
mod pcm;
mod plot;
mod result_files;
mod run;
#[cfg(duramen_machine)]
mod simulation;
mod timed;
#[cfg_attr(not(duramen_machine), allow(dead_code, reason = "used by the machine build"))]
mod with_work;

#[cfg(duramen_machine)]
pub use duramen_machine::Allocator;

pub use calibration::{Calibrated, calibrate, distance};

pub use bounds::{Bound, Check, Verdict};
pub use error::{Error, Result};
pub use experiment::{About, Context, EVENT_MODEL, Effort, Experiment, Findings, SIMULATED, Step, TRACED};
pub use experiments::{EXPERIMENTS, find};
pub use figure::{Axis, Figure, Series, Shape};
pub use machine::Machine;
pub use outcome::{Conditions, Outcome};
pub use result_files::{load_all, save, save_plots};
pub use run::run;
