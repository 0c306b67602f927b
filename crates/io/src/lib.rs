//! All disk access of Duramen: one [`Disk`] trait, real and simulated.
//!
//! | disk | what it is |
//! |---|---|
//! | [`RealDisk`] | a directory of the operating system, with direct I/O or through the page cache |
//! | [`SimDisk`] | a directory in memory that crashes, tears, reorders, loses, corrupts, fills up and fails on request |
//! | [`MemoryDisk`] | memory; it begins empty, or as a directory in which nothing is changed |
//! | [`DelayDisk`] | another disk, whose durable writes take additional time |
//! | [`ArmDisk`] | another disk, whose random writes take additional time |
//!
//! One conformance suite runs over the first three.
//!
//! # What a disk promises, and what not
//! - A completed [`File::sync`] makes all earlier writes to that file and its length durable.
//! - A completed [`File::write_durable`] makes its own bytes durable, and no others for certain.
//! - Only [`Disk::sync_directory`] of its directory makes the creation, renaming or removal of a
//!   name durable; a rename is atomic.
//! - At a power cut every un-synced write may be lost, kept, or kept in part; a part is a set of
//!   whole sectors ([`duramen_types::SECTOR_SIZE`]), and no sector is ever a mixture. Un-synced
//!   writes reach the medium in any order.
//! - Bytes may rot: a read may return other bytes than were written. Checksums are the caller's
//!   responsibility.
//!
//! # Rules for callers
//! Reads and writes are whole, aligned blocks ([`duramen_types::BLOCK_SIZE`], [`AlignedBuf`]);
//! assertions check this. Ranges in flight at the same time must not overlap if their order
//! matters, and no thread may write behind the end of a file while it is being allocated or cut.
//!
//! # Failure
//! Every error states the operation, the file, the range and the system's message ([`DiskError`]).
//! This crate continues interrupted and short system calls, so callers never see them. A failed
//! write may have written any of its blocks. After a failed sync the state of the writes that it
//! covered is unknown, and *syncing again proves nothing*: the system may have dropped them and
//! marked them clean. The only safe answer is to stop writing and to recover from what is on the
//! medium. A batch that fails names one failed range; the others may or may not have been
//! transferred.
//!
//! # Locks
//! The counters are atomics. The simulated disk has one mutex, held for one operation at a time.
//! The real disk has a mutex around its pool of idle rings, held to take or return one. No call
//! waits for another call's transfer, with one exception: a read-only directory holds a mutex for
//! each file during a read (taken after the mutex of the names, never before it).
//!
//! # Parts
//! | module | what it does |
//! |---|---|
//! | `disk` | the traits and their promises |
//! | `real` | directories of the operating system: system calls continued until done (`sys`), batches through io_uring (`uring`), files (`file`), the directory and its names (`home`, `names`), its lock (`lock`) |
//! | `sim` | a directory in memory: what goes wrong and when (`plan`), how long operations take (`pace`), what a power cut leaves (`image`), durable and un-synced state (`content`, `inode`, `names`), the disk as a whole (`state`) |
//! | `delay`, `arm`, `count`, `memory` | another disk with slower durable or random writes, or with counts; a disk in memory |
//! | `local_socket` | how a process answers others about a directory |
//! | `throttled_allocate` | extending a file without delaying other writes |
//! | `buffer`, `checks`, `counters`, `huge_pages` | aligned memory; the rules that both disks assert; their counts; large pages |

mod arm;
mod buffer;
mod checks;
mod count;
mod counters;
mod delay;
mod disk;
mod huge_pages;
mod layer;
mod local_socket;
mod memory;
mod real;
mod sim;
mod throttled_allocate;

pub use arm::ArmDisk;
pub use buffer::AlignedBuf;
pub use count::CountingDisk;
pub use delay::DelayDisk;
pub use disk::{Disk, DiskCounters, DiskError, DiskLock, File, OpenMode, Result};
pub use huge_pages::{HUGE_PAGE, collapse_to_huge_pages, prefer_huge_pages};
pub use local_socket::{LocalListener, connect_locally, is_left};
pub use memory::MemoryDisk;
pub use real::{Backend, RealDisk, RealDiskOptions};
pub use sim::{CrashChoice, Fault, Pace, SimDisk};
pub use throttled_allocate::throttled_allocate;
