//! A simulated multi-socket computer on which Duramen's own sources run.
//!
//! Simulated threads are fibers on one host thread. Each has a virtual time of its own, and the
//! scheduler always resumes the thread with the smallest one, so simulated events happen in the
//! order of virtual time. Threads share data through `duramen-sync`, whose machine build calls this
//! crate before each atomic operation, lock, wait and reading of the clock. [`cost`] reports the
//! plain data touched and the instructions executed in between. A model charges both: that of the
//! processor's pipelines, caches, coherence and memory controllers (`memory`).
//!
//! A run depends on nothing but its [`Plan`] and the code: addresses are counted from where the
//! run's own heap begins ([`Allocator`]), a thread's own stack, which each compilation lays out
//! differently, is always in its cache, and no code takes time or randomness from the host. The
//! same plan gives the same figures on every host.
//!
//! # Parts
//! | module | what it does |
//! |---|---|
//! | `plan`, `run` | the interface: a plan in, a report out |
//! | `world`, `schedule` | the state of a run; the rule by which the next thread is chosen |
//! | `fiber`, `thread`, `futex` | simulated threads; waiting and waking |
//! | `shared`, `cost`, `threads` | what threads announce: operations on shared memory, the work between them; the computer as its threads see it |
//! | `memory`, `pipeline` | caches, coherence, memory controllers; processors |
//! | `description`, `machines/*.toml` | the computers, each parameter with its source |
//! | `arena`, `line` | a heap and cache-line numbers that are the same on every host |
//! | `breakdown`, `recorder`, `trace` | where the time went; a readable trace |
//! | `atom` | a model of its own beside these: hardware undo logging, event by event, with values in memory |

mod arena;
pub mod atom;
mod breakdown;
pub mod cost;
mod description;
mod fiber;
pub mod futex;
mod line;
mod memory;
mod number_map;
mod pipeline;
mod plan;
pub mod probe;
mod recorder;
mod run;
mod schedule;
pub mod shared;
mod thread;
pub mod threads;
mod time;
pub mod trace;
mod world;

pub use arena::Allocator;
pub use breakdown::{Breakdown, Category, Visits};
pub use description::{Description, DescriptionError};
pub use memory::Counters;
pub use plan::Plan;
pub use recorder::Tracing;
pub use run::{Outcome, Report, is_simulated, on_host, run};
pub use schedule::Schedule;
pub use time::Time;
