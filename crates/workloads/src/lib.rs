//! Standard transaction benchmarks over Duramen's public interface, with audits.
//!
//! A [`Workload`] populates a database, runs its transactions and proves afterwards that the
//! database is consistent; [`run`] drives any workload with many clients and measures it. All
//! workloads are written against the traits of [`store`], so the same code drives Duramen and the
//! engines that it is compared with. They use only the public interface of an engine, as an
//! application does.
//!
//! Invariants:
//! - [`Workload::load`] notices and completes a population that was cut off, for example by a
//!   crash.
//! - A transaction is counted only after its commit was acknowledged; a retried one is counted
//!   once, its failed attempts as aborts, and its latency runs from its first attempt.
//! - Given a seed, each client draws the same inputs in every run.
//!
//! # Parts
//! | module | what it does |
//! |---|---|
//! | `store` | the traits `Store`, `Connection`, `Transaction`, dispatched statically; `duramen` implements them, every engine must pass `conformance` |
//! | `workload`, `selection` | what a workload is; workloads by name, and the audit of everything that a database holds |
//! | `runner`, `measurement`, `run_state` | drives clients and measures; how a run is made and what it reports; what its threads share |
//! | `agent`, `client`, `run_queue` | a thread that carries one client or many; a client; clients that wait for a thread |
//! | `population` | loads with many threads, in portions, resumable, with a marker row that states size and completeness |
//! | `random` | distributions over rows |
//! | `regions` | the micro-benchmarks of atomic regions, over any memory that has them |
//! | `tpcb`, `tatp`, `tpcc`, `ycsb` | each with its rows' bytes (`row`), size (`scale`), population (`load`), transactions (`session`) and consistency conditions (`audit`); `tpcb::ledger` records what was acknowledged |

mod agent;
mod audit;
mod client;
mod error;
mod histogram;
mod layout;
mod measurement;
mod population;
mod random;
pub mod regions;
mod run_queue;
mod run_state;
mod runner;
pub mod selection;
pub mod store;
pub mod tatp;
pub mod tpcb;
pub mod tpcc;
mod workload;
pub mod ycsb;

pub use audit::AuditReport;
pub use error::{Error, Result};
pub use histogram::Latencies;
pub use measurement::{Limit, Progress, RunOptions, RunReport, Tally};
pub use population::{Marker, Parameters};
pub use random::{Chooser, Zipf};
pub use runner::run;
pub use selection::Request;
pub use store::Store;
pub use tatp::Tatp;
pub use tpcb::Tpcb;
pub use tpcc::Tpcc;
pub use workload::{Done, Executed, LoadOutcome, LoadProgress, Session, Workload};
pub use ycsb::Ycsb;
