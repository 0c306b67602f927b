//! The only crate of Duramen that names threads, atomics, locks and time.
//!
//! The rest of the workspace takes them from here, so that the shipped code itself can be built for
//! other worlds:
//!
//! | build | chosen by | what the facade is |
//! |---|---|---|
//! | *native* | default | `std` atomics and threads, `parking_lot` locks |
//! | *loom* | `--cfg duramen_loom` | `loom`'s models, which try every interleaving that the memory model allows |
//! | *machine* | `--cfg duramen_machine` | simulated threads in virtual time on a simulated multi-socket computer |
//! | *trace* | `--cfg duramen_trace` | as native, and [`page_trace`] records which pages are visited |
//!
//! The annotations of [`cost`] charge the work between two operations on shared memory; they do
//! nothing in the other builds. Likewise [`trace`] writes lines in the trace of a simulated run,
//! and [`probe`] counts rare branches.
//!
//! Rules for users: no `static` atomics that a model would have to see. Waiting uses [`Mutex`],
//! [`Condvar`], [`SpinLock`], [`thread::Parker`], [`Backoff`] or [`Retry`], never a bare loop.
//! Shared plain memory goes through [`cell::UnsafeCell`].
//!
//! # Parts
//! | module | what it does |
//! |---|---|
//! | `native`, `loom`, `machine*` | the same interface in the three builds |
//! | `backoff` | waiting with growing pauses |
//! | `spin_lock` | a lock for data of one thread that others read now and then |
//! | `usage` | processor time and context switches of the process |
//! | `parallel` | threads that share one piece of work |
//! | `cpu_topology` | processors by their memory node |
//! | `stripe`, `references` | shared state in shards, of which each thread uses mostly one; reference counts kept in such shards |
//! | `clock`, `chance`, `split_mix` | time; random numbers and thread numbers; a generator with fixed sequences |
//! | `plain_cell`, `word` | shared plain memory that models can watch; words that none watches, also of mapped memory |
//! | `prefetch` | requests for cache lines that will be read |
//! | `process` | recognizing a forked child |
//! | `nesting` | how often a thread has entered what it may enter again |
//! | `page_trace` | which pages are visited, and which of their lines; empty except in the trace build |
//! | `cost`, `trace`, `probe` | annotations for simulated runs: work between two operations, trace lines, rare branches; empty natively |

mod backoff;
#[cfg(not(duramen_machine))]
mod chance;
pub mod clock;
pub mod cost;
mod cpu_topology;
#[cfg(duramen_loom)]
#[path = "loom.rs"]
mod imp;
#[cfg(duramen_machine)]
#[path = "machine.rs"]
mod imp;
#[cfg(not(any(duramen_loom, duramen_machine)))]
#[path = "native.rs"]
mod imp;
pub mod nesting;
pub mod page_trace;
pub mod parallel;
#[cfg(not(duramen_loom))]
mod plain_cell;
mod prefetch;
pub mod probe;
mod process;
mod references;
mod spin_lock;
mod split_mix;
mod stripe;
pub mod trace;
pub mod usage;
pub mod word;

pub use backoff::{Backoff, Retry, stagger};
pub use crossbeam_utils::CachePadded;
pub use imp::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, cell, cpu, thread};
pub use prefetch::prefetch;
pub use process::Process;
pub use references::{Reference, References};
pub use spin_lock::{SpinGuard, SpinLock};
pub use split_mix::SplitMix64;
pub use std::sync::{Arc, OnceLock, Weak};
pub use stripe::{Striped, stripe, stripe_of};

/// Returns the number of this process; the same in every run on the simulated machine.
pub fn process_id() -> u32 {
    if cfg!(duramen_machine) { 1 } else { std::process::id() }
}
