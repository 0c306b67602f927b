//! All disk access of Duramen: one [`Disk`] trait, real and simulated.

mod buffer;
mod checks;
mod counters;
mod disk;
mod real;
mod sim;

pub use buffer::AlignedBuf;
pub use disk::{Disk, DiskCounters, DiskError, DiskLock, File, OpenMode, Result};
pub use real::{Backend, RealDisk, RealDiskOptions};
pub use sim::{CrashChoice, Fault, SimDisk};
