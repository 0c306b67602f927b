//! All disk access of Duramen: one [`Disk`] trait, real and simulated.
//!
//! | disk | what it is for |
//! |---|---|
//! | [`RealDisk`] | a directory of the operating system, read and written with direct I/O |
//! | [`SimDisk`] | a directory in memory that crashes, tears, reorders, loses, corrupts, fills up and fails on request |
//! | [`ReadOnlyDisk`] | a directory of the operating system in which nothing is changed |
//! | [`DelayDisk`] | another disk, whose durable writes take longer |
//!
//! One conformance suite runs over the first three.
//!
//! # What a disk promises, and what not
//! - A completed [`File::sync`] makes all earlier writes to that file and its length durable.
//! - A completed [`File::write_durable`] makes its own bytes durable, and no others for certain.
//! - A name is created, renamed or removed durably by [`Disk::sync_directory`] of its directory,
//!   and by nothing else; a rename is atomic.
//! - At a power cut every un-synced write may be lost, kept, or kept in part; a part is a set of
//!   whole sectors ([`duramen_types::SECTOR_SIZE`]), and no sector is ever a mixture. Un-synced
//!   writes reach the medium in any order.
//! - Bytes may rot: what is read back may differ from what was written. Checksums are the caller's
//!   business.
//!
//! # Rules for callers
//! Reads and writes are whole, aligned blocks ([`duramen_types::BLOCK_SIZE`], [`AlignedBuf`]); this
//! is asserted. Ranges in flight at the same time must not overlap if their order matters, and
//! nobody writes behind the end of a file while it is being allocated or cut.
//!
//! # Failure
//! Every error says what was tried, on which file, where in it, and what the system said
//! ([`DiskError`]). Interrupted and short system calls are continued here and never seen outside. A
//! failed write may have written any of its blocks. After a failed sync nothing is known about the
//! writes it was for, and *syncing again proves nothing*: the system may have dropped them and
//! taken them for clean. The only safe answer is to stop writing and to recover from what is on the
//! medium. A batch that fails names one failed range; the others may or may not have been
//! transferred.
//!
//! # Locks
//! The counters are atomics. The simulated disk has one mutex, held for one operation at a time;
//! the real one has a mutex around its pool of idle rings, held to take or return one. No call
//! waits for another call's transfer, but in a directory that is only read, where one for each file
//! is held for a read (behind one for the names, never before it).

mod buffer;
mod checks;
mod counters;
mod delay;
mod disk;
mod huge_pages;
mod read_only;
mod real;
mod sim;
mod throttled_allocate;

pub use buffer::AlignedBuf;
pub use delay::DelayDisk;
pub use disk::{Disk, DiskCounters, DiskError, DiskLock, File, OpenMode, Result};
pub use huge_pages::{HUGE_PAGE, prefer_huge_pages};
pub use read_only::ReadOnlyDisk;
pub use real::{Backend, RealDisk, RealDiskOptions};
pub use sim::{CrashChoice, Fault, Pace, SimDisk};
pub use throttled_allocate::throttled_allocate;
