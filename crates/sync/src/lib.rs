//! The only place of Duramen that names threads, atomics, locks and time.
//!
//! The rest of the workspace takes them from here, so that the very code that ships can be built in
//! other worlds:
//!
//! | build | chosen by | what the facade is |
//! |---|---|---|
//! | *native* | default | `std` atomics and threads, `parking_lot` locks |
//! | *loom* | `--cfg duramen_loom` | `loom`'s models, which try every interleaving the memory model allows |
//! | *machine* | `--cfg duramen_machine` | simulated threads in virtual time on a simulated multi-socket computer |
//!
//! What code does between two operations on shared memory is charged by the annotations of
//! [`cost`], which are nothing in the other builds; so are [`trace`], what threads say for the
//! trace of a simulated run, and [`probe`], which counts rare branches.
//!
//! Rules for users: no `static` atomics that a model would have to see; waiting is done by
//! [`Mutex`], [`Condvar`], [`thread::Parker`], [`Backoff`] or [`Retry`], never by a bare loop;
//! shared plain memory goes through [`cell::UnsafeCell`].

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
pub mod parallel;
#[cfg(not(duramen_loom))]
mod plain_cell;
pub mod probe;
mod process;
mod references;
mod split_mix;
mod stripe;
pub mod trace;
pub mod usage;
pub mod word;

pub use backoff::{Backoff, Retry, stagger};
pub use crossbeam_utils::CachePadded;
pub use imp::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, cell, cpu, thread};
pub use process::Process;
pub use references::{Reference, References};
pub use split_mix::SplitMix64;
pub use std::sync::{Arc, OnceLock, Weak};
pub use stripe::{Striped, stripe, stripe_of};

/// Number of this process; the same in every run on the simulated machine.
pub fn process_id() -> u32 {
    if cfg!(duramen_machine) { 1 } else { std::process::id() }
}
