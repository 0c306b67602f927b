//! The log manager of Duramen: a write-ahead log to which many threads append at once. It can be
//! used alone; see `examples/standalone.rs`.
//!
//! # Use
//! [`Log::insert`] copies a record into a buffer in memory and returns its address.
//! [`Log::wait_hardened`] blocks until the record is durable; [`Log::harden`] only requests this
//! and returns a [`Hardened`] to wait for or await. [`Log::scan`] and [`Log::read_back`] read
//! durable records. [`Log::recycle_below`] gives up the beginning of the log. [`LogReader`] reads a
//! closed log without changing it. The log does not interpret its records.
//!
//! # Addresses
//! A log sequence number ([`Lsn`]) is a byte offset in an endless stream that starts at
//! [`FIRST_LSN`]. A global sequence number ([`Gsn`]) orders records across several logs; with one
//! log it equals the record's LSN. A record is hardened when the durable position,
//! [`Extent::durable`], is at or beyond the record's end.
//!
//! # Bytes
//! Records follow each other in the stream without gaps. `format/header.rs` and `format/record.rs`
//! define their format and the rule that makes a record valid: plausible lengths, and a checksum
//! seeded with its LSN and the identity of the log. The stream is cut into segment files,
//! `log/<number>.log` (`format/segment.rs`). A reader starts at a known record, or at the log's
//! start, the highest start named in any segment's header, and reads on until a record is not
//! valid: there the log ends.
//!
//! # Parts
//! | folder | what it is |
//! |---|---|
//! | `format` | bytes on disk: records, headers of segment files |
//! | `buffer` | memory of the log's tail: ring, positions, insertion lock, clocks and epochs of several logs |
//! | `insert` | the insertion designs, and what they share |
//! | `segments` | segment files: making, reading, recovering, recycling and archiving them |
//! | `group_commit` | the policy, the queue of committers, its wake-up protocol |
//! | `device` | makes records durable: flushes to segments, or a ring in persistent memory |
//! | `stream` | one stream of records: shared state, background threads |
//! | `several` | the log: one stream, or several as one |
//!
//! `measure` measures the insertion designs with nothing behind the buffer. `examples/nvm.rs` shows
//! a log with its end in persistent memory.
//!
//! # Persistent memory
//! With [`LogDevice::Nvm`] the buffer itself is durable: a commit is a fence and a read of
//! positions. Below, "durable" and "flushed" then refer to the segments, which are written when the
//! buffer fills up. `device/nvm/ring.rs` states the rules that make ring and segments one log.
//!
//! # Invariants
//! 1. `start <= durable <= released <= end`, and all but `start` are ends of records at all times.
//! 2. The filled part of the buffer extends at most one buffer size beyond the start of the block
//!    that contains `durable`.
//! 3. A flush starts only when the previous flush is durable. So after a crash only the last flush
//!    can have holes, everything hardened lies before them, and recovery stops at the first hole.
//! 4. Before a recovered log accepts a record, recovery durably overwrites everything beyond the
//!    log's end that could pass for a record.
//! 5. A file with a segment's name durably has that segment's header before it gets a record.
//! 6. The durable start lies in a segment that exists: it moves before segments are recycled.
//! 7. `end` plus the reserved bytes is within the segments if reservations cover all insertions.
//!
//! # Locks
//! A thread that holds one of these locks takes only later ones. During a disk operation it holds
//! none of them but *growth* (with *refill*, if a segment is made for a reservation) and *flush*. A
//! flush takes *growth* only if a reservation did not cover an insertion.
//!
//! 0. *rounds* (`several/commit_rounds/fenced`), then *reserved* (`several/log_set`): the right to
//!    harden several logs, and to insert sync records into the first of them; then *refill*
//!    (`several/reservation`): the right to move log reservations between the logs and the shards;
//! 1. *flush* (`device/flush`): the right to write the buffer to the segments, and the scratch
//!    block. Threads wait for it only with a buffer in persistent memory, where readers de-stage;
//! 2. *growth* (`segments/pool`): the right to make and recycle segments;
//! 3. *insertion lock* (`buffer/insertion_lock`): the right to hand out space in the buffer, held
//!    for about ten instructions, or until there is room;
//! 4. *room* (`buffer/positions`): the lock under which threads wait for room in the buffer;
//! 5. *commit queue* (`group_commit/queue`);
//! 6. *ahead* (`buffer/epochs`), also under an insertion lock: the right to end an epoch; *live*
//!    (`segments/files`), *state* (`segments/retention`), *failure* (`segments/archive`), and the
//!    locks inside the notifier, wake events and waiters: leaves.
//!
//! With the device `file`, the commit queue's flag `is_flushing` keeps flushes apart: no thread
//! blocks on it without being woken.
//!
//! # Failure
//! After one failed write or sync of log data the content of the device is unknown, so the log
//! stops. Nothing is hardened any more, every waiting thread gets [`WalError::Failed`] with the
//! first failure, and reopening the log recovers what was hardened. Insertions into a stopped log
//! neither fail nor block; their records are discarded. A full disk does not stop the log:
//! [`Log::reserve`] reports [`WalError::Full`]. Opening refuses a log that has detectably lost
//! hardened records, with [`WalError::Corrupt`] or [`WalError::MissingSegment`].
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
mod threads;
mod wake_event;

pub use address::{FIRST_LSN, Inserted};
pub use error::{Result, WalError};
pub use format::record::{NewRecord, RecordRef};
pub use format::segment::segment_name;
pub use insert::InsertDesign;
pub use observer::ReadObserver;
pub use options::{GroupCommit, LogDevice, MAX_LOGS, NvmOptions, Sealing, WalOptions};
pub use segments::archive::Archive;
pub use segments::log_pieces::{Cut, LogPart, LogPieces, Pieces};
pub use segments::reader::LogReader;
pub use segments::retention::Retainer;
pub use segments::scan::Scanner;
pub use several::hardened::Hardened;
pub use several::hold::LogHold;
pub use several::log::Log;
pub use several::log_pieces::complete_up_to;
pub use several::log_placement::log_of_cpu;
pub use several::open::{FoundLog, Known};
pub use several::read_back::ReadBack;
pub use stats::{Extent, WalStats};
