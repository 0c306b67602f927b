//! What a log counts.

use duramen_types::{Gsn, Lsn};

/// The positions of a log. A snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Start of the first record.
    pub start: Lsn,
    /// Everything below this position is hardened. Always the end of a record.
    pub durable: Lsn,
    /// Start of the next record.
    pub end: Lsn,
}

/// Counts since the log was opened, and its positions. The numbers are read one after another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WalStats {
    /// Records inserted.
    pub records: u64,
    /// Bytes inserted, headers included.
    pub bytes: u64,
    /// Records inserted by joining another thread's group (consolidation).
    pub consolidated: u64,
    /// How many times an insertion waited because the buffer was full.
    pub ring_full_waits: u64,
    /// Flushes.
    pub flushes: u64,
    /// Flushes done by the thread that waited for them, without the daemon.
    pub inline_flushes: u64,
    /// Bytes flushed, in whole blocks: a block that fills up slowly counts each time.
    pub flushed_bytes: u64,
    /// Calls that waited for hardening and had to block.
    pub hardening_waits: u64,
    /// Times a thread made its own insertions durable in a ring where caches are volatile.
    pub fences: u64,
    /// Times all processors were drained there: a thread had not made its insertions durable.
    pub drains: u64,
    /// Signals sent for these drains, if signals are used.
    pub drain_signals: u64,
    /// Segments in use.
    pub segments_live: u64,
    /// Segment files created.
    pub segments_created: u64,
    /// Segment files reused.
    pub segments_recycled: u64,
    /// Segments copied to the archive.
    pub segments_archived: u64,
    /// Failed attempts to copy a segment to the archive.
    pub archive_failures: u64,
    /// Everything below this position is in the archive; zero if there is no archive.
    pub archived: Lsn,
    /// Bytes reserved by [`crate::Log::reserve`].
    pub reserved_bytes: u64,
    /// With several logs: sync records inserted.
    pub sync_records: u64,
    /// With several logs: requests to harden. One sync record serves many of them.
    pub waits_for_logs: u64,
    /// Start of the log.
    pub start: Lsn,
    /// Everything below this position is durable.
    pub durable: Lsn,
    /// Start of the next record.
    pub end: Lsn,
    /// Every record with a lower GSN survives a crash. Later records may have lower GSNs.
    pub hardened_gsn: Gsn,
    /// Every record inserted so far has a lower GSN. With several logs, later records may have a
    /// lower one, too: there `hardened_gsn` is the point to restore to.
    pub end_gsn: Gsn,
}

impl WalStats {
    /// Adds the counts of another log. Positions and reserved bytes stay those of the first log;
    /// each log reserves the same number of bytes.
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
