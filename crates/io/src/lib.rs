//! All disk access of Duramen: one [`Disk`] trait, real and simulated.

mod buffer;
mod disk;

pub use buffer::AlignedBuf;
pub use disk::{Disk, DiskCounters, DiskError, DiskLock, File, OpenMode, Result};
