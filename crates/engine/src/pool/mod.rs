//! The buffer pool: it keeps pages in memory, and reads and writes them on disk.
//!
//! # Purpose
//! A fixed number of frames holds the pages in use. An array maps page numbers to frames
//! (`page_table`). A thread reads a page without a latch (`latch`, [`Optimistic`]) or under a latch
//! ([`Shared`], [`Exclusive`]). The pool loads a missing page and replaces pages by a clock
//! (`fetch`). It writes pages in batches through a double-write area (`write_back`, `doublewrite`).
//! The background cleaner (`cleaner`), checkpoints and threads that need a frame start such writes.
//!
//! # Invariants
//! - A page is in at most one frame. A frame's page changes only under the frame's exclusive latch,
//!   in a section that increments the latch's version. So a guard that found its page in the frame
//!   after taking the version (or the latch) has the right page as long as the version stands (or
//!   the latch is held).
//! - WAL rule: a page goes to disk only after the log has been hardened past the page's GSN.
//! - A page is overwritten in place only after its new contents are durable in the double-write
//!   area, and that area is reused only after they are durable in place. So at any moment one of
//!   the two copies is whole.
//! - A page's recovery GSN is not above the GSN of any record whose change to the page may be
//!   missing in the data file.
//! - A frame is reused only when its page is clean.
//! - A page in the pool has every change that the log had for it when the database was opened
//!   (`on_fetch`).
//! - Pages are written only within the reserved length of the data file. So a full disk is an error
//!   of [`Pool::reserve_page`] and never of a write-back.
//!
//! # Latch order
//! The pool imposes no order on page latches; the B+-tree does. While the pool holds a page latch
//! or one of its own locks, it never waits for another page latch, except for the latch of the
//! requested page. Threads that hold exclusive latches take the write-back lock, so the holder of
//! that lock only tries latches. The locks taken after it are `free` (a leaf lock) or the parking
//! lot's slots (leaf locks). A thread that holds latches may wait in the pool for a disk operation
//! and for the log's [`WalRule::harden`], which therefore must not need a page latch. A thread must
//! not wait for *log space* under a latch if only flushing pages frees that space. No thread may
//! latch a page twice. Each thread may hold a few latches while it requests another page. The
//! latches of all threads together must leave frames to work with.
//!
//! # Failure
//! A failed read returns its error to the caller and leaves the page out of the pool. After a
//! failed write or sync, the contents of the disk are unknown. The pool is then *poisoned*: it
//! writes nothing more and fails every request to write. Reads continue as long as there are clean
//! frames. A full disk is reported by [`Pool::reserve_page`] and poisons nothing. A page that fails
//! its check gives [`PoolError::Corrupt`], with file and offset. The same error is given for a page
//! that this pool has not written and whose GSN is larger than the log's end when the pool was
//! made: the log or the page is then not the original one. It is also given for a page that is
//! older than the version that was last written (`versions.rs`).

mod cleaner;
mod copy;
mod doublewrite;
mod error;
mod fetch;
mod frames;
mod growth;
mod guard;
mod latch;
mod on_fetch;
mod page_table;
mod recovery_gsn;
mod stamp;
mod versions;
mod write_back;

#[cfg(all(test, duramen_loom))]
mod models;
#[cfg(all(test, not(duramen_loom)))]
mod tests;

use std::time::Duration;

use duramen_io::File;
use duramen_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use duramen_sync::{Arc, CachePadded, Mutex, OnceLock};
use duramen_types::Gsn;

pub(crate) use doublewrite::FoundArea;
pub(crate) use error::{Damage, Interrupt, PoolError, Restart, broken};
pub(crate) use guard::{Exclusive, Optimistic, Shared};
pub(crate) use on_fetch::RedoOnFetch;
pub(crate) use stamp::{REMEDY, Stamp};
pub(crate) use versions::Versions;

use cleaner::CleanerState;
use frames::{FrameId, Frames};
use growth::Growth;
use latch::ParkingLot;
use page_table::PageTable;
use write_back::WriteBack;

/// The pool's requirements on the log.
pub(crate) trait WalRule: Send + Sync {
    /// Makes the log durable past the record `gsn`. The pool calls this before it writes a page
    /// that carries `gsn`.
    ///
    /// # Errors
    /// [`PoolError::Log`] when the log cannot be hardened; the page is not written.
    fn harden(&self, gsn: Gsn) -> Result<(), PoolError>;

    /// Returns a GSN that is not larger than that of any record inserted from now on, and never
    /// zero. A thread that sees a record in the log must also see what its inserter did before (the
    /// insertion releases, `end` acquires): fuzzy checkpoints rest on this.
    fn end(&self) -> Gsn;

    /// Prepares for a wait for the disk or for another thread, perhaps a long one: no other thread
    /// should have to wait for what this thread has inserted.
    fn before_blocking(&self) {}
}

/// The configuration of a pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolConfig {
    /// Number of page frames, at least [`Pool::MIN_FRAMES`].
    pub(crate) frames: usize,
    /// Largest share of the frames that the cleaner leaves dirty, in percent; at most 90, so that a
    /// tenth can be reused at once.
    pub(crate) max_dirty_percent: u8,
    /// Largest number of pages that the background cleaner writes per second; 0 for no bound. The
    /// bound does not apply to other writers of pages.
    pub(crate) cleaner_pages_per_second: u64,
    /// Interval at which the cleaner runs when no thread wakes it.
    pub(crate) cleaner_interval: Duration,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            frames: 32 * 1024,
            max_dirty_percent: 75,
            cleaner_pages_per_second: 0,
            cleaner_interval: Duration::from_millis(100),
        }
    }
}

/// Counts since the pool was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolMetrics {
    /// Requests for a page that was not in the pool.
    pub(crate) misses: u64,
    /// Pages read from disk.
    pub(crate) reads: u64,
    /// Pages written in place.
    pub(crate) writes: u64,
    /// Pages replaced to free a frame.
    pub(crate) evictions: u64,
    /// Batches of pages written, by any thread.
    pub(crate) batches: u64,
    /// Rounds in which the background cleaner had something to write.
    pub(crate) cleaner_rounds: u64,
    /// How often a thread that needed a frame found no clean one.
    pub(crate) stalls: u64,
    /// Dirty pages at this moment.
    pub(crate) dirty: u64,
}

#[derive(Debug, Default)]
struct Counters {
    misses: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    evictions: AtomicU64,
    batches: AtomicU64,
    cleaner_rounds: AtomicU64,
    stalls: AtomicU64,
}

/// The buffer pool over one data file.
pub(crate) struct Pool {
    table: PageTable,
    frames: Frames,
    lot: ParkingLot,
    /// Frames without a page, which no thread has latched.
    free: Mutex<Vec<FrameId>>,
    /// The clock's hand: the number of frames that it has passed.
    hand: CachePadded<AtomicUsize>,
    /// Number of dirty frames.
    dirty: CachePadded<AtomicUsize>,
    counters: CachePadded<Counters>,
    write_back: WriteBack,
    growth: Growth,
    cleaner: CleanerState,
    /// Changes that pages on disk lack, if the database was opened before redo reached them.
    unredone: OnceLock<Arc<dyn RedoOnFetch>>,
    /// The lowest version that each page can have on disk, if the pool tracks versions.
    versions: Option<Versions>,
    /// End of the log when the pool was made: no page that was on disk then is newer.
    log_end: Gsn,
    poisoned: AtomicBool,
    poison_reason: OnceLock<String>,
    config: PoolConfig,
    data: Arc<dyn File>,
    wal_rule: Arc<dyn WalRule>,
}

impl Pool {
    /// Smallest number of frames that a pool can work with.
    pub(crate) const MIN_FRAMES: usize = if cfg!(duramen_loom) { 1 } else { 64 };

    /// Makes a pool over `data`, with `doublewrite` as its double-write area. The pages of that
    /// area must have been put back ([`FoundArea`]). This starts no thread: see
    /// [`Pool::start_cleaner`].
    ///
    /// # Errors
    /// [`PoolError::TooSmall`], [`PoolError::NoMemory`], or that of the disk when it cannot tell
    /// the length of `data`.
    pub(crate) fn new(
        config: PoolConfig,
        data: Arc<dyn File>,
        doublewrite: Arc<dyn File>,
        versions: Option<Versions>,
        wal_rule: Arc<dyn WalRule>,
    ) -> Result<Arc<Self>, PoolError> {
        if config.frames < Self::MIN_FRAMES {
            return Err(PoolError::TooSmall { frames: config.frames, minimum: Self::MIN_FRAMES });
        }
        assert!(config.frames < PageTable::FRAME_LIMIT, "frames are counted in 31 bits");
        let frames = Frames::new(config.frames).ok_or(PoolError::NoMemory { frames: config.frames })?;
        let mut free: Vec<FrameId> = frames.ids().collect();
        free.reverse();
        let rule = Arc::clone(&wal_rule);
        Ok(Arc::new(Self {
            table: PageTable::new(),
            frames,
            lot: ParkingLot::new().with_pre_block_hook(move || rule.before_blocking()),
            free: Mutex::new(free),
            hand: CachePadded::new(AtomicUsize::new(0)),
            dirty: CachePadded::new(AtomicUsize::new(0)),
            counters: CachePadded::default(),
            write_back: WriteBack::new(doublewrite)?,
            growth: Growth::new(data.len()?),
            cleaner: CleanerState::new(),
            unredone: OnceLock::new(),
            versions,
            log_end: wal_rule.end(),
            poisoned: AtomicBool::new(false),
            poison_reason: OnceLock::new(),
            config,
            data,
            wal_rule,
        }))
    }

    /// Returns the number of frames.
    pub(crate) fn frames(&self) -> usize {
        self.frames.count()
    }

    /// Stops all writes, after a failure that leaves the contents of the disk unknown. Keeps the
    /// first reason.
    pub(crate) fn poison(&self, reason: &str) {
        self.poison_reason.get_or_init(|| reason.to_owned());
        self.poisoned.store(true, Ordering::Release);
    }

    /// Fails when the pool is poisoned.
    ///
    /// # Errors
    /// [`PoolError::Poisoned`].
    pub(crate) fn check_poison(&self) -> Result<(), PoolError> {
        if self.poisoned.load(Ordering::Acquire) {
            let reason = self.poison_reason.get().cloned().unwrap_or_default();
            return Err(PoolError::Poisoned { reason });
        }
        Ok(())
    }

    /// Returns the pool's counters.
    pub(crate) fn metrics(&self) -> PoolMetrics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PoolMetrics {
            misses: get(&self.counters.misses),
            reads: get(&self.counters.reads),
            writes: get(&self.counters.writes),
            evictions: get(&self.counters.evictions),
            batches: get(&self.counters.batches),
            cleaner_rounds: get(&self.counters.cleaner_rounds),
            stalls: get(&self.counters.stalls),
            dirty: self.dirty.load(Ordering::Relaxed) as u64,
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("config", &self.config).field("metrics", &self.metrics()).finish_non_exhaustive()
    }
}
