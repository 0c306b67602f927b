//! What a database is made of: shared by its handle, its transactions and its background threads.
//!
//! The parts do not know the engine. Each has a folder of its own and keeps its state apart from
//! the code that works on it; that code borrows just what it needs:
//!
//! | what is done | by | where its state is |
//! |---|---|---|
//! | a checkpoint | [`Checkpoint`] | [`Checkpointer`], the control file |
//! | going on to the next generation of files | [`Generations`] | the control file |
//! | reserving space in a full log | [`FullLog`] | [`LogQueue`] |
//! | freeing pages after a commit | [`Freeing`] | [`DeferredFrees`] |
//! | finishing what a crash has interrupted | [`recovery`](crate::recovery) | [`BackgroundRecovery`] |
//! | going out of service | [`Failures`] | [`Health`] |
//!
//! If one of them needs the work of another, it calls the engine through [`Maintenance`].
//!
//! # Lock order
//! Transaction locks (waited for without any latch) → page latches (of tree pages only the first is
//! waited for; bitmaps last) → the log's and the pool's own mutexes. The checkpoint mutex is taken
//! before any latch. `docs/lock-order.md` has the whole order.

use duramen_io::{Disk, DiskLock};
use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::{Arc, CachePadded, Mutex, OnceLock};
use duramen_types::{Gsn, TxnId};

use crate::checkpoint::control::ControlFile;
use crate::checkpoint::generation::Generations;
use crate::checkpoint::{Checkpoint, Checkpointer};
use crate::error::{Error, Result};
use crate::full_log::{FullLog, LogQueue};
use crate::health::{Failures, Health};
use crate::lock::{LockError, LockManager};
use crate::maintenance::Maintenance;
use crate::metrics::{Counters, RecoveryReport};
use crate::options::Options;
use crate::recovery::{BackgroundRecovery, RecoveryHost, UndoParts};
use crate::scheme::StorageScheme;
use crate::storage::catalog::Handles;
use crate::storage::store::Store;
use crate::txn_state::context_pool::{Context, ContextPool};
use crate::txn_state::deferred_free::{DeferredFrees, Freeing};
use crate::txn_state::log::{Missing, TxnLog};
use crate::txn_state::table::TxnTable;

/// A database.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) control: Mutex<ControlFile>,
    pub(crate) store: Store,
    pub(crate) locks: LockManager,
    pub(crate) txns: TxnTable,
    pub(crate) contexts: ContextPool,
    pub(crate) tables: Handles,
    pub(crate) health: Health,
    pub(crate) counters: Counters,
    pub(crate) checkpointer: Checkpointer,
    /// The transactions that find the log full.
    pub(crate) log_queue: LogQueue,
    /// Those that could not be done yet.
    pub(crate) deferred_frees: DeferredFrees,
    pub(crate) recovery: OnceLock<RecoveryReport>,
    pub(crate) background: BackgroundRecovery,
    /// What acknowledged commits do not survive, if that is less than a power cut.
    pub(crate) log_shortfall: Option<String>,
    /// The largest GSN of a commit whose locks were released before it was hardened.
    pub(crate) pre_committed: CachePadded<AtomicU64>,
    /// Keeps others out; released when the last user of the database is gone.
    #[allow(dead_code, reason = "held for its drop")]
    home: DiskLock,
}

impl Engine {
    /// One in which nothing has been done yet.
    pub(crate) fn new(
        (disk, home): (Arc<dyn Disk>, DiskLock),
        options: Options,
        control: ControlFile,
        store: Store,
        locks: LockManager,
        log_shortfall: Option<String>,
    ) -> Self {
        let contexts = ContextPool::default();
        contexts.set_next_txn(control.control.next_txn);
        Self {
            disk,
            options,
            control: Mutex::new(control),
            store,
            locks,
            txns: TxnTable::default(),
            contexts,
            tables: Handles::default(),
            health: Health::default(),
            counters: Counters::default(),
            checkpointer: Checkpointer::default(),
            log_queue: LogQueue::default(),
            deferred_frees: DeferredFrees::default(),
            recovery: OnceLock::new(),
            background: BackgroundRecovery::default(),
            log_shortfall,
            pre_committed: CachePadded::new(AtomicU64::new(0)),
            home,
        }
    }

    pub(crate) fn scheme(&self) -> &dyn StorageScheme {
        &*self.store.scheme
    }

    /// Working memory for a new transaction, which gets its number. In a forked process, where it
    /// can do nothing, it has none.
    pub(crate) fn context(&self) -> Box<Context> {
        if self.health.is_forked() { Context::unused() } else { self.contexts.begin() }
    }

    /// Looks at an error on its way to the caller: see [`Failures::note`].
    pub(crate) fn note(&self, error: Error) -> Error {
        self.failures().note(error)
    }

    /// The error for a lock that was not granted.
    pub(crate) fn lock_error(&self, txn: TxnId, error: LockError) -> Error {
        match error {
            LockError::Deadlock { .. } => Error::Deadlock { txn },
            LockError::Timeout => Error::LockTimeout { txn },
            LockError::Closed => self.health.check().err().unwrap_or(Error::Closed),
        }
    }

    /// Takes note of a commit that is visible to others before it is hardened.
    pub(crate) fn pre_commit(&self, gsn: Gsn) {
        self.pre_committed.fetch_max(gsn.get(), Ordering::AcqRel);
    }

    /// Reserves log space for an operation; see [`TxnLog::reserve_log`].
    #[inline]
    pub(crate) fn reserve_log(&self, log: &mut TxnLog, bytes: usize) -> Result<()> {
        let has_line = || self.log_queue.has_line();
        if log.reserve_log(self.scheme(), bytes, has_line, |missing| self.reserve_in_full_log(missing))? {
            // Long transactions grow the log, too. To look where all logs end would be a cache miss
            // or two for each of them.
            self.checkpointer.wake_if_due(log.latest());
        }
        Ok(())
    }

    #[cold]
    fn reserve_in_full_log(&self, missing: Missing) -> Result<()> {
        self.full_log().reserve(missing)
    }

    /// Takes a checkpoint after doing what recovery has left and writing every dirty page out:
    /// recovery would have nothing to redo, and the log can be recycled up to the oldest
    /// transaction. It is taken, too, if a page cannot be redone.
    pub(crate) fn checkpoint_clean(&self) -> Result<()> {
        let never = AtomicBool::new(false);
        let finished = self.finish_in_doubt(&never);
        let redone = self.finish_redo(&never);
        self.new_checkpoint().take_of_clean_pages().and(finished).and(redone)
    }

    /// Ends service: threads stop, later calls of transactions get [`Error::Closed`].
    pub(crate) fn stop(&self) {
        self.health.close();
        self.locks.close();
        self.checkpointer.stop();
        self.background.stop();
        self.store.pool.stop_cleaner();
    }

    pub(crate) fn failures(&self) -> Failures<'_> {
        Failures { health: &self.health, pool: &self.store.pool, locks: &self.locks }
    }

    pub(crate) fn generations(&self) -> Generations<'_> {
        Generations { control: &self.control, store: &self.store }
    }

    pub(crate) fn freeing(&self) -> Freeing<'_> {
        Freeing {
            store: &self.store,
            txns: &self.txns,
            deferred: &self.deferred_frees,
            failures: self.failures(),
            maintenance: self,
        }
    }

    fn full_log(&self) -> FullLog<'_> {
        FullLog {
            queue: &self.log_queue,
            scheme: self.scheme(),
            health: &self.health,
            control: &self.control,
            txns: &self.txns,
            deferred: &self.deferred_frees,
            background: &self.background,
            checkpointer: &self.checkpointer,
            limit: self.options.log_max_bytes,
            maintenance: self,
        }
    }

    fn new_checkpoint(&self) -> Checkpoint<'_> {
        Checkpoint {
            disk: &*self.disk,
            control: &self.control,
            store: &self.store,
            txns: &self.txns,
            contexts: &self.contexts,
            failures: self.failures(),
            counters: &self.counters,
            checkpointer: &self.checkpointer,
            every: self.options.checkpoint_bytes,
        }
    }
}

impl Maintenance for Engine {
    fn checkpoint(&self) -> Result<()> {
        self.retry_deferred_frees();
        self.new_checkpoint().take()
    }

    fn checkpoint_to_free_log(&self) -> Result<()> {
        let _ = self.finish_redo(&AtomicBool::new(false));
        self.new_checkpoint().take_of_clean_pages()
    }

    fn finish_in_doubt(&self, stop: &AtomicBool) -> Result<()> {
        self.background.finish_transactions(&self.undo_parts(), stop)
    }

    fn finish_redo(&self, stop: &AtomicBool) -> Result<()> {
        self.background.finish_redo(self.failures(), stop)
    }

    fn retry_deferred_frees(&self) {
        self.freeing().retry_deferred_frees();
    }
}

impl RecoveryHost for Engine {
    fn options(&self) -> &Options {
        &self.options
    }

    fn background(&self) -> &BackgroundRecovery {
        &self.background
    }

    fn undo_parts(&self) -> UndoParts<'_> {
        UndoParts {
            store: &self.store,
            locks: &self.locks,
            txns: &self.txns,
            contexts: &self.contexts,
            failures: self.failures(),
            freeing: self.freeing(),
            instant_recovery: self.options.recovers_instantly(),
        }
    }
}
