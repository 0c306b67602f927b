//! A simulator of database pages between DRAM, phase-change memory and a disk: PCMLogging and what
//! it is compared with (Gao et al., *PCMLogging: Reducing Transaction Logging Overhead with PCM*,
//! CIKM 2011).
//!
//! A trace of TPC-C is recorded once and replayed on each scheme in virtual time. The simulator
//! counts transfers; it moves no data. `docs/pcm-simulation.md` has the parameters and what the
//! paper leaves open.
//!
//! # Parts
//! | module | what it does |
//! |---|---|
//! | `trace`, `layout`, `record` | what transactions access; where rows are; taking a trace of the engine |
//! | `replay`, `locks` | clients in virtual time; two-phase locking with deadlocks |
//! | `devices` | the disk and the PCM: times and counts |
//! | `scheme`, `recency` | what a scheme does, frames in DRAM; numbers in the order of their use |
//! | `conventional` | NoPCM and PCMBasic |
//! | `logging` | PCMLogging |

mod conventional;
mod devices;
mod layout;
mod locks;
mod logging;
mod recency;
mod record;
mod replay;
mod scheme;
mod trace;

pub(crate) use conventional::{Conventional, Division};
pub(crate) use devices::{Counts, Devices, LINE_BYTES, Nanos};
pub(crate) use logging::{Granularity, Logging, Recovery};
pub(crate) use record::{Recording, record};
pub(crate) use replay::{Replayed, replay};
pub(crate) use scheme::{Scheme, Xid};
pub(crate) use trace::{Op, PAGE_BYTES, Trace, Tuple};
