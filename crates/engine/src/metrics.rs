//! Counters for people and for machines.

mod named;

use duramen_io::DiskCounters;
use duramen_sync::Striped;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_wal::WalStats;

use crate::options::Partition;

/// What a database has done since it was opened. Made by [`crate::Db::metrics`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Transactions committed.
    pub commits: u64,
    /// Transactions aborted, explicitly or by dropping them.
    pub aborts: u64,
    /// Transactions that were the victim of a deadlock.
    pub deadlocks: u64,
    /// Transactions that have written and have not ended at this moment, including those that the
    /// last crash left in doubt, and without those whose pages are to be freed when no snapshot
    /// needs them.
    pub writing: u64,
    /// Lock requests that had to wait.
    pub lock_waits: u64,
    /// Lock requests that were not granted within the limit on waiting.
    pub lock_timeouts: u64,
    /// Time that all transactions together have spent waiting for locks, in nanoseconds.
    pub lock_wait_nanos: u64,
    /// Checkpoints taken.
    pub checkpoints: u64,
    /// Number of logs.
    pub logs: u16,
    /// Which of several logs takes a record.
    pub log_partition: Partition,
    /// Counters of the log, or of all logs together.
    pub log: WalStats,
    /// Counters of the heap, if pages are kept in persistent memory.
    pub heap: Option<HeapMetrics>,
    /// The PCM region, if the scheme has one.
    pub pcm: Option<PcmMetrics>,
    /// Counters of the page tier, if there was one when the database was opened.
    pub page_tier: Option<TierMetrics>,
    /// Counters of the disk.
    pub disk: DiskCounters,
    /// The disk backend in use: `io_uring`, `pwritev2`, `simulated`.
    pub backend: &'static str,
    /// Page frames of the buffer pool.
    pub pool_pages: u64,
    /// Pages whose contents differ from those on disk at this moment.
    pub dirty_pages: u64,
    /// Pages that recovery must still redo at this moment (see
    /// [`crate::Options::instant_recovery`]).
    pub unredone_pages: u64,
    /// Transactions that a crash left in doubt and that are not finished at this moment (see
    /// [`crate::Options::instant_recovery`]). If one of them cannot be finished, the database goes
    /// out of service, and the remaining ones stay for the next opening.
    pub interrupted: u64,
    /// Pages read into the pool.
    pub page_reads: u64,
    /// Pages written to the data file.
    pub page_writes: u64,
    /// Pages replaced to free frames of the pool.
    pub evictions: u64,
    /// Snapshots open at this moment.
    pub snapshots: u64,
    /// Snapshots that ended because the memory for versions was used up
    /// ([`crate::Options::version_bytes`]).
    pub snapshots_too_old: u64,
    /// Bytes of memory that versions for snapshots take at this moment. What transactions keep to
    /// themselves while no snapshot is open is not counted: at most some 16 KiB for each commit
    /// that is not hardened, and some tens of KiB for each thread.
    pub version_bytes: u64,
    /// The work that recovery did when the database was opened.
    pub recovery: RecoveryReport,
}

/// Counters of a page tier since the database was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TierMetrics {
    /// Pages that the tier has room for.
    pub slots: u64,
    /// Pages in the tier at this moment.
    pub pages: u64,
    /// Pages that were read from the tier.
    pub hits: u64,
    /// Pages that were read from the data file.
    pub misses: u64,
    /// Pages that were written to the tier.
    pub written: u64,
    /// Pages that left the tier for the data file.
    pub written_back: u64,
    /// Bytes that were written to the tier: pages, headers, and what erases old versions.
    pub bytes_written: u64,
}

/// What happened in a heap in persistent memory since it was opened ([`crate::Scheme::InPlace`],
/// [`crate::Scheme::NvramGroupCommit`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapMetrics {
    /// Changes of pages, each of which is in the heap or in the batch that has not ended.
    pub changes: u64,
    /// Barriers: waits until what a thread had stored was durable.
    pub barriers: u64,
    /// Pages that the heap has space for.
    pub pages: u64,
    /// Bytes of the transactions' journals.
    pub journal_bytes: u64,
    /// Bytes of journals that no transaction uses or has reserved at this moment.
    pub journal_bytes_free: u64,
    /// Batches that became durable ([`crate::Scheme::NvramGroupCommit`]; otherwise 0).
    pub batches: u64,
    /// Bytes of their records.
    pub batch_bytes: u64,
    /// Transactions under way at the end of a batch, summed over all batches.
    pub carried: u64,
}

/// The PCM region of [`crate::Scheme::PcmLogging`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PcmMetrics {
    /// Slots, each of which has space for a page.
    pub slots: u64,
    /// Slots that are free at this moment.
    pub slots_free: u64,
    /// Pages in the region at this moment.
    pub pages: u64,
    /// Tuples in the region at this moment that are later than their pages.
    pub tuples: u64,
    /// Slots with tuples at this moment.
    pub tuple_slots: u64,
    /// Pages that the pool read in the region.
    pub hits: u64,
    /// Reads of records that the region served as tuples, without their pages.
    pub tuple_hits: u64,
    /// Pages that the pool looked for in the region and read in the data file.
    pub misses: u64,
    /// Pages written to the region.
    pub written: u64,
    /// Tuples written to the region.
    pub tuples_written: u64,
    /// Dirty pages that were not written, because the region has their changes as tuples.
    pub left_to_tuples: u64,
    /// Pages written from the region to the data file.
    pub written_back: u64,
    /// Structure changes of several pages.
    pub structure_changes: u64,
    /// Bytes stored to the region.
    pub bytes_stored: u64,
    /// Barriers: waits until what a thread had stored was durable.
    pub barriers: u64,
}

/// The work that recovery did. After a clean shutdown it reads no more than the checkpoint's own
/// records, and repeats nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Torn pages restored from the double-write area.
    pub repaired: u64,
    /// Bytes of log behind the checkpoint that were read to find its end.
    pub log_end_bytes: u64,
    /// Threads that analysis and redo used.
    pub redo_threads: u64,
    /// Log records that analysis and redo read.
    pub records: u64,
    /// Bytes of log that analysis and redo read.
    pub bytes: u64,
    /// Windows of the log, each of which redo takes in at once (see
    /// [`crate::Options::redo_memory_bytes`]).
    pub windows: u64,
    /// Visits to pages, at most one for each page and window.
    pub pages: u64,
    /// Page operations that were repeated before the database was open.
    pub redone: u64,
    /// Pages whose redo was postponed until they are needed (see
    /// [`crate::Options::instant_recovery`]).
    pub left: u64,
    /// Transactions that had not committed and are rolled back.
    pub losers: u64,
    /// Transactions whose rollback, or whose deferred frees, were postponed until after the opening
    /// (see [`crate::Options::instant_recovery`]).
    pub transactions_left: u64,
    /// Time to find the end of the log, in microseconds.
    pub log_end_micros: u64,
    /// Time of analysis and redo, which read the log together, in microseconds.
    pub redo_micros: u64,
    /// The part of that time that threads spent reading logs, summed over all threads, in
    /// microseconds.
    pub redo_read_micros: u64,
    /// The part of that time that threads spent repeating changes, summed over all threads, in
    /// microseconds.
    pub redo_repeat_micros: u64,
    /// Time of the undo pass, in microseconds.
    pub undo_micros: u64,
    /// Time from the start of the opening until transactions could begin, in microseconds.
    pub open_micros: u64,
}

impl RecoveryReport {
    /// Returns the time of all passes together, in microseconds.
    ///
    /// ```
    /// # use duramen::{Db, Options};
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// # let db = Db::open(home.path(), Options::small())?;
    /// let visits = db.create_table("visits")?;
    /// db.run(|txn| txn.put(&visits, b"home", b"1"))?;
    /// drop(db); // without a clean shutdown
    ///
    /// let recovery = Db::open(home.path(), Options::small())?.metrics().recovery;
    /// assert!(recovery.micros() >= recovery.redo_micros);
    /// assert!(recovery.micros() <= recovery.open_micros);
    /// # Ok(())
    /// # }
    /// ```
    pub fn micros(&self) -> u64 {
        self.log_end_micros + self.redo_micros + self.undo_micros
    }

    /// Returns whether recovery had anything to repair, to repeat or to roll back.
    ///
    /// ```
    /// # use duramen::{Db, Options};
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// # let db = Db::open(home.path(), Options::small())?;
    /// let events = db.create_table("events")?;
    /// db.run(|txn| txn.put(&events, b"monday", b"rain"))?;
    /// drop(db); // without a clean shutdown
    ///
    /// let db = Db::open(home.path(), Options::small())?;
    /// assert!(db.metrics().recovery.was_needed());
    /// db.close()?;
    /// let db = Db::open(home.path(), Options::small())?;
    /// assert!(!db.metrics().recovery.was_needed());
    /// # db.close()
    /// # }
    /// ```
    pub fn was_needed(&self) -> bool {
        self.repaired > 0 || self.redone > 0 || self.left > 0 || self.losers > 0
    }
}

/// The counters that belong to no particular part.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    ended: Striped<Ended, 32>,
    checkpoints: AtomicU64,
}

/// Transactions that threads have ended.
#[derive(Debug, Default)]
struct Ended {
    commits: AtomicU64,
    aborts: AtomicU64,
}

impl Counters {
    pub(crate) fn committed(&self) {
        self.ended.own().1.commits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn aborted(&self) {
        self.ended.own().1.aborts.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of transactions committed.
    pub(crate) fn commits(&self) -> u64 {
        self.sum(|ended| &ended.commits)
    }

    /// Returns the number of transactions aborted.
    pub(crate) fn aborts(&self) -> u64 {
        self.sum(|ended| &ended.aborts)
    }

    /// Returns the number of checkpoints taken.
    pub(crate) fn checkpoints(&self) -> u64 {
        self.checkpoints.load(Ordering::Relaxed)
    }

    fn sum(&self, count: impl Fn(&Ended) -> &AtomicU64) -> u64 {
        self.ended.iter().map(|ended| count(ended).load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn checkpoint_taken(&self) {
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
    }
}
