//! What a run counts.

/// Counts of a run, or of the part of it that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Operations that programs reported.
    pub operations: u64,
    /// Updates committed.
    pub commits: u64,
    /// Cycles that front ends were stopped because the store queue was full.
    pub queue_full: u64,
    /// Cycles that front ends waited for the store queue to drain.
    pub drain: u64,
    /// Cycles that front ends waited for loads.
    pub loads: u64,
    /// Cycles that front ends waited for locks that another core held.
    pub locks: u64,
    /// Stores that left the queues.
    pub stores: u64,
    /// Log entries.
    pub entries: u64,
    /// Log entries that the controller made of what it read.
    pub sourced: u64,
    /// Log lines written to memory: entries' values, or lines of a redo log.
    pub log_lines: u64,
    /// Record headers written to memory.
    pub headers: u64,
    /// Records that hold seven entries.
    pub full_records: u64,
    /// Log writes for records that hold seven entries.
    pub full_record_writes: u64,
    /// Data lines written to memory.
    pub data_writes: u64,
    /// Lines read from memory for cores.
    pub data_reads: u64,
    /// Log lines read back to retire redo logs.
    pub log_reads: u64,
    /// Reads answered out of a write queue.
    pub forwarded: u64,
    /// Data writes found locked.
    pub blocked: u64,
    /// Headers forced out before their record was full.
    pub forced: u64,
    /// Buckets allocated after the first of an update.
    pub bucket_switches: u64,
    /// Updates that had to wait for a slot.
    pub slot_waits: u64,
    /// Times that the operating system added buckets.
    pub log_growths: u64,
    /// Cycles that channels were busy, all together.
    pub channel_busy: u64,
}

impl Counters {
    /// Returns what was counted since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            operations: self.operations - before.operations,
            commits: self.commits - before.commits,
            queue_full: self.queue_full - before.queue_full,
            drain: self.drain - before.drain,
            loads: self.loads - before.loads,
            locks: self.locks - before.locks,
            stores: self.stores - before.stores,
            entries: self.entries - before.entries,
            sourced: self.sourced - before.sourced,
            log_lines: self.log_lines - before.log_lines,
            headers: self.headers - before.headers,
            full_records: self.full_records - before.full_records,
            full_record_writes: self.full_record_writes - before.full_record_writes,
            data_writes: self.data_writes - before.data_writes,
            data_reads: self.data_reads - before.data_reads,
            log_reads: self.log_reads - before.log_reads,
            forwarded: self.forwarded - before.forwarded,
            blocked: self.blocked - before.blocked,
            forced: self.forced - before.forced,
            bucket_switches: self.bucket_switches - before.bucket_switches,
            slot_waits: self.slot_waits - before.slot_waits,
            log_growths: self.log_growths - before.log_growths,
            channel_busy: self.channel_busy - before.channel_busy,
        }
    }
}
