//! The only place of Duramen that names threads, atomics, locks and time.
//!
//! The rest of the workspace takes them from here, so that the very code that ships can be built in other worlds:
//!
//! | build | chosen by | what the facade is |
//! |---|---|---|
//! | *native* | default | `std` atomics and threads, `parking_lot` locks |
//! | *loom* | `--cfg loom` | `loom`'s models, which try every interleaving the memory model allows |
//!
//! A third build, a simulated machine that charges virtual time for each operation, fits behind the same interface:
//! that is why spawning, parking, spinning, the clock and the processor query are all here.
//!
//! Rules for users: no `static` atomics that a model would have to see; waiting is done by [`Mutex`], [`Condvar`],
//! [`thread::Parker`], [`Backoff`] or [`Retry`], never by a bare loop; shared plain memory goes through [`cell::UnsafeCell`].

mod backoff;
pub mod clock;
#[cfg(loom)]
#[path = "loom.rs"]
mod imp;
#[cfg(not(loom))]
#[path = "native.rs"]
mod imp;
pub mod usage;

pub use backoff::{Backoff, Retry, random};
pub use crossbeam_utils::CachePadded;
pub use imp::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, cell, cpu, thread};
pub use std::sync::{Arc, OnceLock, Weak};
