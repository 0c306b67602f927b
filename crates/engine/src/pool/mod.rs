//! The buffer pool: it keeps pages in memory, and reads and writes them in a store.
//!
//! # Purpose
//! A fixed number of frames holds the pages in use. An array maps page numbers to frames
//! (`page_table`). A thread reads a page without a latch (`latch`, [`Optimistic`]) or under a latch
//! ([`Shared`], [`Exclusive`]). The pool loads a missing page and replaces pages by a clock
//! (`fetch`).
//!
//! # Stores
//! The pages that are not in a frame are in a [`PageStore`] (`page_store`). If the store has a
//! [`PageWriter`](page_store::PageWriter), changed pages are dirty in their frames, and the pool
//! writes them back in batches (`write_back`, `batch`). The background cleaner (`cleaner`),
//! checkpoints and threads that need a frame start such writes. If the store has none, the thread
//! that changes a page makes the change durable in the store under the exclusive latch. No page is
//! then ever dirty, eviction drops any frame that is not latched, and the parts of the pool that
//! write back have nothing to do. Or the store is staged: changed lines wait in their frames, which
//! are dirty, until a batch takes them (`staging`; `gate` is its closed door).
//!
//! Such a store may have its pages in memory ([`PageStore::memory`]). Then the frames are the pages
//! themselves, each in its place, and none is ever evicted. Readers read the store; a writer
//! changes a copy in a scratch page, which is stored before it releases the latch.
//!
//! [`FilePages`] (`file_pages`) is the data file. It has a writer with a double-write area
//! (`doublewrite`), grows ahead of the pages (`growth`) and knows the lowest version of each page
//! (`versions`). A page tier may stand above it (`tier`).
//!
//! # Invariants
//! - A page is in at most one frame. A frame's page changes only under the frame's exclusive latch,
//!   in a section that increments the latch's version. So a guard that found its page in the frame
//!   after taking the version (or the latch) has the right page as long as the version stands (or
//!   the latch is held).
//! - WAL rule: a page is written back only after the log has been hardened past the page's GSN.
//! - A page in the data file is overwritten in place only after its changed lines are durable in
//!   the double-write area, and that area is reused only after they are durable in place. So at any
//!   moment the page is whole in place, or becomes whole with the lines in the area. A page that
//!   was formatted anew since it was last durable is overwritten without: redo makes it whole.
//! - The page in a frame differs from the one that is durable in the store only in the frame's
//!   changed lines, and in those of a copy that is being written (`changed_lines`). What was read
//!   may not be durable if an earlier process wrote it; redo visits such a page and then counts all
//!   of its lines as changed.
//! - A page's recovery GSN is not above the GSN of any record whose change to the page may be
//!   missing in the store.
//! - A frame is reused only when its page is clean.
//! - The GSN of a page never decreases, also when the page is formatted anew without being read
//!   ([`PageStore::last_gsn`]).
//! - A page in the pool has every change that the log had for it when the database was opened
//!   (`on_fetch`).
//! - Pages are written only within the space that the store has reserved. So a full disk is an
//!   error of [`Pool::reserve_page`] and never of a write-back.
//!
//! # Latch order
//! The pool imposes no order on page latches; the B+-tree does. While the pool holds a page latch
//! or one of its own locks, it never waits for another page latch, except for the latch of the
//! requested page. Threads that hold exclusive latches take the write-back lock, so the holder of
//! that lock only tries latches. The locks taken after it are those of the store, `free` (a leaf
//! lock) or the parking lot's slots (leaf locks). A store takes no latch. A thread that holds
//! latches may wait in the pool for the store and for the log's [`WalRule::harden`], which
//! therefore must not need a page latch. A thread must not wait for *log space* under a latch if
//! only flushing pages frees that space. No thread may latch a page twice. Each thread may hold a
//! few latches while it requests another page. The latches of all threads together must leave
//! frames to work with.
//!
//! # Failure
//! A failed read returns its error to the caller and leaves the page out of the pool. After a
//! failed write or sync, the contents of the store are unknown. The pool is then *poisoned*: it
//! writes nothing more and fails every request to write. Reads continue as long as an eighth of the
//! frames are clean, and at least sixteen. A full disk is reported by [`Pool::reserve_page`] and
//! poisons nothing. A page that fails its check gives [`PoolError::Corrupt`], with file and offset.
//! The data file gives the same error for a page that this pool has not written and whose GSN is
//! larger than the log's end when the pool was made: the log or the page is then not the original
//! one. It also gives it for a page that is older than the version that was last written
//! (`versions.rs`).

mod batch;
mod changed_lines;
mod cleaner;
mod doublewrite;
mod error;
mod fetch;
mod file_pages;
mod frames;
mod gate;
mod growth;
mod guard;
mod headers;
mod latch;
mod on_fetch;
mod page_store;
mod page_table;
mod recovery_gsn;
mod staging;
mod stamp;
mod tier;
mod versions;
mod write_back;

#[cfg(all(test, duramen_loom))]
mod models;
#[cfg(all(test, not(duramen_loom)))]
mod tests;

use std::time::Duration;

use duramen_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use duramen_sync::{Arc, CachePadded, Mutex, OnceLock};
use duramen_types::{PAGE_SIZE, PageId, planted};

pub(crate) use batch::{BATCH_PAGES, Batch};
pub(crate) use doublewrite::FoundArea;
pub(crate) use error::{Damage, Interrupt, PoolError, Restart, broken};
pub(crate) use file_pages::FilePages;
pub(crate) use guard::{Exclusive, Optimistic, Shared};
pub(crate) use on_fetch::RedoOnFetch;
pub(crate) use page_store::{PageStore, PageTier, PageWriter, TupleStore, WalRule};
pub(crate) use staging::{ACTION_BYTES, Staging, Taken};
pub(crate) use stamp::{REMEDY, Stamp};
pub(crate) use tier::{FoundTier, Medium, Slots, TieredPages};
pub(crate) use versions::Versions;

use cleaner::CleanerState;
use frames::{FrameId, Frames};
use latch::ParkingLot;
use page_table::PageTable;
use write_back::WriteBack;

use crate::metrics::TierMetrics;
use crate::pre_block_hook::PreBlockHook;

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
    /// Number of dirty pages that the cleaner aims at, instead of that share.
    pub(crate) dirty_pages: Option<usize>,
    /// Interval at which the cleaner runs when no thread wakes it.
    pub(crate) cleaner_interval: Duration,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            frames: 32 * 1024,
            max_dirty_percent: 75,
            cleaner_pages_per_second: 0,
            dirty_pages: None,
            cleaner_interval: Duration::from_millis(100),
        }
    }
}

/// Counts since the pool was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolMetrics {
    /// Requests for a page that was not in the pool.
    pub(crate) misses: u64,
    /// Pages read from the store.
    pub(crate) reads: u64,
    /// Pages written back.
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

/// The buffer pool over one store.
pub(crate) struct Pool {
    table: PageTable,
    frames: Frames,
    lot: ParkingLot,
    /// Frames that were taken for a page and have none now, which no thread has latched; those that
    /// were never taken come after them ([`Frames::take_unused`]).
    free: Mutex<Vec<FrameId>>,
    /// The clock's hand: the number of frames that it has passed.
    hand: CachePadded<AtomicUsize>,
    /// Number of dirty frames.
    dirty: CachePadded<AtomicUsize>,
    counters: CachePadded<Counters>,
    /// The state of write-back, unless pages are never dirty.
    write_back: Option<WriteBack>,
    /// The state of staging, if the store is staged.
    staging: Option<Staging>,
    cleaner: CleanerState,
    /// Changes that pages in the store lack, if the database was opened before redo reached them.
    unredone: OnceLock<Arc<dyn RedoOnFetch>>,
    poisoned: AtomicBool,
    poison_reason: OnceLock<String>,
    config: PoolConfig,
    store: Arc<dyn PageStore>,
}

impl Pool {
    /// Smallest number of frames that a pool can work with.
    pub(crate) const MIN_FRAMES: usize = if cfg!(duramen_loom) { 1 } else { 64 };

    /// Makes a pool over `store`. A thread calls `before_blocking` before it waits for a latch or
    /// for a missing page. This starts no thread: see [`Pool::start_cleaner`].
    ///
    /// # Errors
    /// [`PoolError::TooSmall`] or [`PoolError::NoMemory`].
    pub(crate) fn new(
        config: PoolConfig,
        store: Arc<dyn PageStore>,
        before_blocking: PreBlockHook,
    ) -> Result<Arc<Self>, PoolError> {
        if config.frames < Self::MIN_FRAMES {
            return Err(PoolError::TooSmall { frames: config.frames, minimum: Self::MIN_FRAMES });
        }
        let count = if store.memory().is_some() { store.pages() as usize } else { config.frames };
        assert!(count < PageTable::FRAME_LIMIT, "frames are counted in 31 bits");
        let frames = match store.memory() {
            // SAFETY: the pool keeps the store, and lets only holders of exclusive latches change
            // pages.
            Some(memory) => unsafe { Frames::over(memory, count) },
            None => Frames::new(count),
        };
        let frames = frames.ok_or(PoolError::NoMemory { frames: count })?;
        Ok(Arc::new(Self {
            table: PageTable::new(),
            frames,
            lot: ParkingLot::new().with_pre_block_hook(before_blocking),
            free: Mutex::default(),
            hand: CachePadded::new(AtomicUsize::new(0)),
            dirty: CachePadded::new(AtomicUsize::new(0)),
            counters: CachePadded::default(),
            write_back: store.writer().map(|_| WriteBack::new()),
            staging: store.most_staged().map(|bytes| Staging::new(bytes, config.frames)),
            cleaner: CleanerState::new(),
            unredone: OnceLock::new(),
            poisoned: AtomicBool::new(false),
            poison_reason: OnceLock::new(),
            config,
            store,
        }))
    }

    /// Returns the number of frames.
    pub(crate) fn frames(&self) -> usize {
        self.frames.count()
    }

    /// Returns whether each page was compared with its checksum when it came into the pool. The
    /// pages of a heap have none.
    pub(crate) fn has_page_checksums(&self) -> bool {
        self.store.has_checksums()
    }

    /// Makes sure that the store has space for the page, so that a later write of the page cannot
    /// run out of space.
    ///
    /// # Errors
    /// Those of the store; that of a full disk when there is no space. The pool keeps working.
    pub(crate) fn reserve_page(&self, id: PageId) -> Result<(), PoolError> {
        self.check_limit(id)?;
        self.store.reserve(id)
    }

    /// Checks that the store still has its name.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn verify_file(&self) -> Result<(), PoolError> {
        self.store.verify_name()
    }

    /// Returns the name of the store in messages.
    pub(crate) fn location(&self) -> String {
        self.store.location()
    }

    /// Returns what has records of leaves that are not in frames, if there is such a thing.
    pub(crate) fn tuples(&self) -> Option<&dyn TupleStore> {
        self.store.tuples()
    }

    /// Returns the store's tier, if it has one that has not been drained.
    fn tier(&self) -> Option<&dyn PageTier> {
        self.store.tier().filter(|tier| !tier.is_drained())
    }

    /// Returns whether the store has a tier that has not been drained.
    pub(crate) fn has_tier(&self) -> bool {
        self.tier().is_some()
    }

    /// Returns the counters of the tier that the store has, or had when it was opened.
    pub(crate) fn tier_metrics(&self) -> Option<TierMetrics> {
        self.store.tier().map(PageTier::metrics)
    }

    /// Takes the store's tier out of use ([`PageTier::drain`]); returns whether it had one.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) for a damaged page in the tier. Those of the disk
    /// and of `remove`; the pool is then poisoned.
    pub(crate) fn drain_tier(&self, remove: &mut dyn FnMut() -> crate::Result<()>) -> crate::Result<bool> {
        self.alone(|| {
            // Another thread may have done it meanwhile.
            let Some(tier) = self.tier() else { return Ok(false) };
            tier.drain(remove).inspect_err(|error| {
                if !matches!(error, crate::Error::Corrupt { .. }) {
                    self.poison(&error.to_string());
                }
            })?;
            Ok(true)
        })
    }

    /// Returns the number of pages that the store has space for at this moment.
    pub(crate) fn pages_in_store(&self) -> u64 {
        self.store.pages()
    }

    /// Fills `buffer` with the pages from `first` on as they are in the store, each of them whole
    /// (`PageWriter::read_whole`), to copy the store while it is in use. Returns the number of
    /// pages that were read again because they were being written.
    ///
    /// A page is checked as it is for readers, because the copy will not have what an older or a
    /// newer page is recognized by. A page that was never written is blank.
    ///
    /// # Errors
    /// [`PoolError::Corrupt`] for a damaged page; those of the store.
    ///
    /// # Panics
    /// When the store has no writer: a copy of such a store needs a log to be brought up to date,
    /// and there is none.
    pub(crate) fn read_whole_pages(&self, first: PageId, buffer: &mut [u8]) -> Result<u64, PoolError> {
        let writer = self.store.writer().expect("only a database with a log is copied while it is open");
        let again = writer.read_whole(first, buffer)?;
        for (id, page) in (first.get()..).map(PageId::new).zip(buffer.chunks_exact_mut(PAGE_SIZE)) {
            if planted!(BackupKeepsTornPages) || self.check_copied(id, page).is_ok() {
                continue;
            }
            // A batch may have been writing it, and notes what it has written at its end.
            self.alone(|| {
                writer.read_whole(id, page)?;
                self.check_copied(id, page)
            })?;
        }
        Ok(again)
    }

    fn check_copied(&self, id: PageId, page: &[u8]) -> Result<(), PoolError> {
        match self.store.verify(id, self.table.is_written(id), page) {
            Err(PoolError::Corrupt { damage: Damage::Blank, .. }) => Ok(()),
            checked => checked,
        }
    }

    /// Stops all writes, after a failure that leaves the contents of the store unknown. Keeps the
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
        f.debug_struct("Pool")
            .field("store", &self.store)
            .field("config", &self.config)
            .field("metrics", &self.metrics())
            .finish_non_exhaustive()
    }
}
