//! The parts of a database, shared by its handle, its transactions and its background threads.
//!
//! The parts do not depend on the engine. Each has a folder of its own and keeps its state apart
//! from the code that works on this state; the code borrows only what it needs:
//!
//! | task | type that does it | where its state is |
//! |---|---|---|
//! | taking a checkpoint | [`Checkpoint`] | [`Checkpointer`], the control file |
//! | starting the next generation of files | [`Generations`] | the control file |
//! | reserving space in a full log | [`FullLog`] | [`LogQueue`] |
//! | freeing pages after a commit | [`Freeing`] | [`DeferredFrees`] |
//! | finishing in-doubt transactions | [`recovery`](crate::recovery) | [`BackgroundRecovery`] |
//! | going out of service | [`Failures`] | [`Health`] |
//!
//! A part that needs the work of another part calls the engine through [`Maintenance`].
//!
//! # Lock order
//! Transaction locks (a transaction waits for them without any latch) → page latches (a thread
//! waits only for its first latch of a tree page; bitmaps come last) → the mutexes of the log and
//! of the pool. The checkpoint mutex is taken before any latch. `docs/lock-order.md` has the whole
//! order.

use std::fmt;

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
use crate::options::{CommitMode, Options};
use crate::recovery::{BackgroundRecovery, RecoveryHost, UndoParts};
use crate::scheme::{LogService, StorageScheme};
use crate::storage::catalog::Handles;
use crate::storage::store::Store;
use crate::txn_state::context_pool::{Context, ContextPool};
use crate::txn_state::deferred_free::{DeferredFrees, Freeing};
use crate::txn_state::log::{Missing, TxnLog};
use crate::txn_state::purging::Purging;
use crate::txn_state::table::TxnTable;
use crate::version::{CommitOrder, VersionStore};
use crate::workers::Workers;

/// A database.
pub(crate) struct Engine {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) control: Mutex<ControlFile>,
    pub(crate) store: Store,
    pub(crate) locks: LockManager,
    pub(crate) txns: TxnTable,
    pub(crate) versions: VersionStore,
    pub(crate) contexts: ContextPool,
    pub(crate) tables: Handles,
    pub(crate) health: Health,
    pub(crate) counters: Counters,
    pub(crate) checkpointer: Checkpointer,
    /// The queue of transactions that found the log full.
    pub(crate) log_queue: LogQueue,
    /// The deferred frees that could not be carried out yet.
    pub(crate) deferred_frees: DeferredFrees,
    /// Held while ghosts are purged that committed transactions have left, and by a check, which
    /// needs the trees to stay as they are.
    pub(crate) sweeping: Mutex<()>,
    pub(crate) recovery: OnceLock<RecoveryReport>,
    pub(crate) background: BackgroundRecovery,
    pub(crate) workers: Arc<Workers>,
    /// The events that acknowledged commits do not survive, if these include less than a power cut.
    pub(crate) log_shortfall: Option<String>,
    /// The largest GSN of a commit whose locks were released before it was hardened.
    pub(crate) pre_committed: CachePadded<AtomicU64>,
    /// Keeps other openers out; released when the last user of the database is gone.
    #[allow(dead_code, reason = "held for its drop")]
    home: DiskLock,
}

impl fmt::Debug for Engine {
    /// Without the frames and lock buckets, which would take gigabytes of text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("home", &self.disk.location()).finish_non_exhaustive()
    }
}

impl Engine {
    /// Creates an engine that has done nothing yet.
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
        let versions = versions(&options, &store.scheme);
        Self {
            disk,
            versions,
            workers: Workers::new(options.run_async_threads),
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
            sweeping: Mutex::default(),
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

    /// Returns working memory with a new transaction id for a new transaction. In a forked process,
    /// which cannot run transactions, the context has no id.
    pub(crate) fn context(&self) -> Box<Context> {
        if self.health.is_forked() {
            return Context::unused();
        }
        self.contexts.begin(|limit| self.scheme().note_txn_limit(limit))
    }

    /// Examines an error on its way to the caller: see [`Failures::note`].
    pub(crate) fn note(&self, error: Error) -> Error {
        self.failures().note(error)
    }

    /// Converts the error of a lock that was not granted.
    pub(crate) fn lock_error(&self, txn: TxnId, error: LockError) -> Error {
        match error {
            LockError::Deadlock { cycle } => Error::Deadlock { txn, of_own_thread: cycle == 1 },
            LockError::Timeout => Error::LockTimeout { txn, of_own_thread: false },
            LockError::Refused { of_own_thread } => Error::LockTimeout { txn, of_own_thread },
            LockError::Closed => self.health.check().err().unwrap_or(Error::Closed),
        }
    }

    /// Records a commit that is visible to other transactions before it is hardened.
    pub(crate) fn pre_commit(&self, gsn: Gsn) {
        self.pre_committed.fetch_max(gsn.get(), Ordering::AcqRel);
    }

    /// Reserves log space for an operation; see [`TxnLog::reserve_log`].
    #[inline]
    pub(crate) fn reserve_log(&self, log: &mut TxnLog, bytes: usize) -> Result<()> {
        let has_line = || self.log_queue.has_line();
        if log.reserve_log(self.scheme(), bytes, has_line, |missing| self.reserve_in_full_log(missing))? {
            // Long transactions grow the log, too. Reading the end of every log would cost a cache
            // miss or two for each log.
            self.checkpointer.wake_if_due(log.latest());
        }
        Ok(())
    }

    #[cold]
    fn reserve_in_full_log(&self, missing: Missing) -> Result<()> {
        match self.scheme().log() {
            Some(log) => self.full_log(log).reserve(missing),
            None => self.scheme().reserve(missing.bytes),
        }
    }

    /// Takes a checkpoint after finishing the work that recovery has left and writing every dirty
    /// page out. Recovery from this checkpoint would have nothing to redo, and the log can be
    /// recycled up to the oldest transaction. The checkpoint is taken even if a page cannot be
    /// redone.
    pub(crate) fn checkpoint_clean(&self) -> Result<()> {
        let never = AtomicBool::new(false);
        self.sweep();
        let finished = self.finish_in_doubt(&never);
        let redone = self.finish_redo(&never);
        self.new_checkpoint().map_or(Ok(()), |checkpoint| checkpoint.take_of_clean_pages()).and(finished).and(redone)
    }

    /// Ends service: background threads stop, and later calls of transactions get
    /// [`Error::Closed`].
    pub(crate) fn stop(&self) {
        self.health.close();
        self.locks.close();
        self.checkpointer.stop();
        self.background.stop();
        self.workers.close();
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
            versions: &self.versions,
            failures: self.failures(),
            maintenance: self,
        }
    }

    pub(crate) fn purging(&self) -> Purging<'_> {
        Purging { store: &self.store, locks: &self.locks, versions: &self.versions, deferred: &self.deferred_frees }
    }

    /// Clears away all that committed transactions have left and that no snapshot needs any more.
    /// Waits for a check. Called without latches.
    pub(crate) fn sweep(&self) {
        let due = self.versions.collect_all();
        if !due.ghosts.is_empty() {
            let _held = self.sweeping.lock();
            let mut context = self.context();
            self.purging().purge(&mut context.locks, due.ghosts, usize::MAX);
            self.locks.release_all(&mut context.locks);
            self.contexts.recycle(context, &self.locks);
        }
        self.freeing().retry_deferred_frees();
    }

    fn full_log<'e>(&'e self, log: &'e dyn LogService) -> FullLog<'e> {
        FullLog {
            queue: &self.log_queue,
            scheme: self.scheme(),
            log,
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

    /// Takes the checkpoint that ends an opening ([`Checkpoint::take_at_opening`]).
    pub(crate) fn checkpoint_at_opening(&self) -> Result<()> {
        self.sweep();
        self.new_checkpoint().map_or(Ok(()), |checkpoint| checkpoint.take_at_opening())
    }

    /// Returns what takes a checkpoint, if there is a log to recover from.
    fn new_checkpoint(&self) -> Option<Checkpoint<'_>> {
        Some(Checkpoint {
            disk: &*self.disk,
            log: self.scheme().log()?,
            control: &self.control,
            store: &self.store,
            txns: &self.txns,
            contexts: &self.contexts,
            failures: self.failures(),
            counters: &self.counters,
            checkpointer: &self.checkpointer,
            pace: self.options.checkpoint_pace(self.store.pool.has_tier()),
            limit: self.options.log_max_bytes,
        })
    }
}

impl Maintenance for Engine {
    fn checkpoint(&self) -> Result<()> {
        self.sweep();
        self.new_checkpoint().map_or(Ok(()), |checkpoint| checkpoint.take())
    }

    fn checkpoint_if_due(&self) -> Result<()> {
        self.sweep();
        self.new_checkpoint().map_or(Ok(()), |checkpoint| checkpoint.take_if_due())
    }

    fn checkpoint_to_free_log(&self) -> Result<()> {
        let _ = self.finish_redo(&AtomicBool::new(false));
        self.new_checkpoint().map_or(Ok(()), |checkpoint| checkpoint.take_of_clean_pages())
    }

    fn finish_in_doubt(&self, stop: &AtomicBool) -> Result<()> {
        self.background.finish_transactions(&self.undo_parts(), stop)
    }

    fn finish_redo(&self, stop: &AtomicBool) -> Result<()> {
        self.background.finish_redo(self.failures(), stop)
    }

    fn free_log_of_deferred_frees(&self) {
        self.freeing().free_full_log();
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

/// Creates the store of versions that the options ask for.
fn versions(options: &Options, scheme: &Arc<dyn StorageScheme>) -> VersionStore {
    if !options.snapshots {
        return VersionStore::off();
    }
    let order = if options.commit == CommitMode::Async || scheme.hardened_commits().is_none() {
        CommitOrder::count()
    } else {
        let scheme = Arc::clone(scheme);
        let are_shared = scheme.commits_share_gsns();
        CommitOrder::gsns(are_shared, move || scheme.hardened_commits().expect("it depends on the scheme alone"))
    };
    VersionStore::new(order, options.version_memory() as u64, scheme.keeps_values_of_ghosts())
}
