//! What a log counts.

use duramen_types::{Gsn, Lsn};

/// Where a log stands. A snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Its first record starts here.
    pub start: Lsn,
    /// Everything below is hardened. Always the end of a record.
    pub durable: Lsn,
    /// The next record will start here.
    pub end: Lsn,
}

/// Counts since the log was opened, and where it stands. A snapshot: the numbers are read one after
/// another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WalStats {
    /// Records inserted.
    pub records: u64,
    /// Bytes inserted, headers included.
    pub bytes: u64,
    /// Records inserted by joining another thread's group (consolidation).
    pub consolidated: u64,
    /// Times an insertion had to wait because the buffer was full.
    pub ring_full_waits: u64,
    /// Flushes.
    pub flushes: u64,
    /// Flushes done by the thread that waited for them, without a hand-over to the daemon.
    pub inline_flushes: u64,
    /// Bytes flushed: whole blocks, so a block that fills up slowly counts each time.
    pub flushed_bytes: u64,
    /// Waits for hardening that had to wait.
    pub hardening_waits: u64,
    /// Times that a thread made what it had inserted durable, in a ring in persistent memory where
    /// caches are volatile.
    pub fences: u64,
    /// Times that all processors were drained there, because of threads that did not.
    pub drains: u64,
    /// Signals that this took, if it is done by signals.
    pub drain_signals: u64,
    /// Segments in use.
    pub segments_live: u64,
    /// Segment files made anew.
    pub segments_created: u64,
    /// Segment files used again.
    pub segments_recycled: u64,
    /// Segments copied to the archive.
    pub segments_archived: u64,
    /// Attempts to copy one that have failed.
    pub archive_failures: u64,
    /// Everything below is in the archive; zero if there is none.
    pub archived: Lsn,
    /// Bytes set aside by [`crate::Log::reserve`].
    pub reserved_bytes: u64,
    /// With several logs: records that were synchronizations of all of them.
    pub synchronizations: u64,
    /// With several logs: requests to harden, each of which needs what all logs had by then. Logs
    /// that are hardened together need no synchronization for each of them
    /// ([`crate::Log::needs_synchronizations`]): one serves many.
    pub waits_for_logs: u64,
    /// Those of them that found all other logs hardened and waited for one log at most. None where
    /// logs are hardened together.
    pub waits_for_own_log: u64,
    /// Where the log starts.
    pub start: Lsn,
    /// Everything below is durable.
    pub durable: Lsn,
    /// The next record starts here.
    pub end: Lsn,
    /// Every record with a lower GSN survives a crash; records that are inserted from now on may
    /// have lower ones.
    pub hardened_gsn: Gsn,
    /// Every record inserted so far has a lower GSN. With one log, later records have no lower one.
    /// With several logs they may: there `hardened_gsn` is the point to restore to.
    pub end_gsn: Gsn,
}

impl WalStats {
    /// Adds what another log of the database has counted. Positions stay those of the first, and so
    /// does what is set aside: each has as much.
    pub(crate) fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.bytes += other.bytes;
        self.consolidated += other.consolidated;
        self.ring_full_waits += other.ring_full_waits;
        self.flushes += other.flushes;
        self.inline_flushes += other.inline_flushes;
        self.flushed_bytes += other.flushed_bytes;
        self.hardening_waits += other.hardening_waits;
        self.fences += other.fences;
        self.drains += other.drains;
        self.drain_signals += other.drain_signals;
        self.segments_live += other.segments_live;
        self.segments_created += other.segments_created;
        self.segments_recycled += other.segments_recycled;
        self.segments_archived += other.segments_archived;
        self.archive_failures += other.archive_failures;
    }
}
