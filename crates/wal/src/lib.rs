//! The log manager of Duramen: a write-ahead log that many threads append to at once. Usable alone,
//! see `examples/standalone.rs`.
//!
//! # Use
//! [`Log::insert`] puts a record into a buffer in memory and returns its place.
//! [`Log::wait_hardened`] blocks until it is durable; [`Log::harden`] only asks for that and
//! returns a [`Hardened`] to wait for or to await. [`Log::scan`] and [`Log::read`] read what is
//! durable, [`Log::recycle_below`] gives up the beginning. [`LogReader`] reads a log that nobody
//! has open, without changing it. The log does not know what its records mean.
//!
//! # Places
//! A log sequence number ([`Lsn`]) is a byte offset in an endless stream that starts at
//! [`FIRST_LSN`]. A global sequence number ([`Gsn`]) orders records across several logs; with one
//! log it is the record's LSN. A record is hardened when the durable position, [`Extent::durable`],
//! is beyond it.
//!
//! # Bytes
//! Records follow each other in the stream without gaps; `record.rs` has their format and the rule
//! that makes one valid: sane lengths, and a checksum that is seeded with the record's LSN and the
//! identity of the log. The stream is cut into segment files, `log/<number>.log`; `segment.rs` has
//! their format. A reader starts at a known record, or at the log's start, which is the highest one
//! named in any segment's header, and goes on until a record is not valid: there the log ends.
//!
//! # Parts
//! | folder | what it is |
//! |---|---|
//! | `format` | bytes on disk: records, headers of segment files |
//! | `buffer` | memory of the log's tail: ring, positions, insertion lock, clock of several logs |
//! | `insert` | the insertion designs, one file each, and what they share |
//! | `segments` | segment files: making, reading, recovering, recycling and archiving them |
//! | `group_commit` | the policy, the queue of committers, its wake-up protocol |
//! | `device` | what makes records durable: flushes to the segments, or a ring in persistent memory |
//! | `stream` | one stream of records: shared state, background threads, requests to harden it |
//! | `several` | the log: one stream, or several as one |
//!
//! # Persistent memory
//! With [`LogDevice::Nvm`] the buffer itself is durable: a commit is a fence, and a look at
//! positions. What the rest of this page calls durable and flushed is then about the segments,
//! which are written when the buffer fills up; `device/nvm/ring.rs` has the rules for both being
//! one log.
//!
//! # Invariants
//! 1. `start <= durable <= released <= end`, and all but `start` are ends of records at all times.
//! 2. What is filled in is at most one buffer size ahead of the block in which `durable` lies.
//! 3. A flush starts only when the one before is durable. So after a crash holes are in the last
//!    flush at most, everything hardened lies before them, and recovery stops at the first.
//! 4. Before a recovered log accepts a record, everything behind its end that could pass for a
//!    record is overwritten, durably.
//! 5. A file with a segment's name has that segment's header, durably, before a record is written
//!    to it.
//! 6. The start that is durable on disk lies in a segment that exists: it moves before segments are
//!    recycled.
//! 7. `end` plus what is reserved is within the segments, as long as all insertions are covered by
//!    reservations.
//!
//! # Locks
//! In this order; a thread that holds one takes only later ones. No lock but *growth* (with
//! *refill*, if a segment is made for it) and, with a buffer in persistent memory, *destaging* is
//! held during a disk operation, and growth is not taken to flush, unless an insertion was not
//! covered by a reservation.
//! 0. *rounds* (`group`), then *room* (`together`): the right to harden several logs, and to
//!    synchronize them; then *refill* (`room`): the right to move space that is set aside between
//!    the logs and the shards;
//! 1. *destaging* (`device/nvm`): the right to write a buffer in persistent memory to the segments;
//! 2. *growth* (`segments`): making and recycling segments;
//! 3. *turn* (`space`): the right to hand out space in the buffer, held for some ten instructions,
//!    or until there is room;
//! 4. *room* (`space`): waiting for room;
//! 5. *commit queue* (`commit`);
//! 6. *live* (`files`), *state* (`retention`), *failure* (`archive`), the wake events' and the
//!    waiters' own locks: leaves.
//!
//! Whoever flushes is alone by the commit queue's `is_flushing`, which is no lock: nobody waits for
//! it blindly.
//!
//! # Failure
//! After one failed write or sync of log data it is unknown what the device has, so the log stops:
//! nothing is hardened any more, everyone who waits gets [`WalError::Failed`] with the first
//! failure, and reopening the log recovers what was hardened. Insertions never fail and never block
//! on a stopped log; their records go nowhere. A disk without space is not a failure of that kind:
//! [`Log::reserve`] reports [`WalError::Full`] and the log goes on. Opening refuses a log that has
//! lost hardened records, as far as that can be told, with [`WalError::Corrupt`] or
//! [`WalError::MissingSegment`].
//!
//! # Where it comes from
//! Insertion, consolidation and group commit follow Johnson et al., *Scalability of write-ahead
//! logging on multicore and multisocket hardware* (VLDB Journal 2012, "Aether"), sections 3 to 5
//! and appendix A.
//!
//! [`Lsn`]: duramen_types::Lsn
//! [`Gsn`]: duramen_types::Gsn

mod address;
mod buffer;
mod device;
mod error;
mod format;
mod group_commit;
mod insert;
#[cfg(not(duramen_loom))]
pub mod measure;
mod observer;
mod options;
mod regions;
mod segments;
mod several;
mod stats;
mod stream;
#[cfg(test)]
mod test_support;
mod wake_event;

pub use address::{FIRST_LSN, Inserted};
pub use error::{Result, WalError};
pub use format::record::{NewRecord, Record, RecordRef};
pub use format::segment::segment_name;
pub use insert::InsertDesign;
pub use observer::ReadObserver;
pub use options::{GroupCommit, LogDevice, MAX_LOGS, NvmOptions, Sealing, WalOptions};
pub use segments::archive::Archive;
pub use segments::log_pieces::{Cut, LogChain, LogPart, Pieces};
pub use segments::reader::LogReader;
pub use segments::retention::Retainer;
pub use segments::scan::Scanner;
pub use several::hardened::Hardened;
pub use several::hold::LogHold;
pub use several::log::Log;
pub use several::log_pieces::complete_up_to;
pub use several::log_placement::log_of_cpu;
pub use several::merge::MergedScanner;
pub use several::open::{FoundLog, Known};
pub use several::read_back::ReadBack;
pub use stats::{Extent, WalStats};
