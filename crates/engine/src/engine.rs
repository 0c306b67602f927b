//! What a database is made of, shared by its handle, its transactions and its background threads.
//!
//! # Lock order
//! Transaction locks (waited for without any latch) → page latches (of tree pages only the first is
//! waited for; bitmaps last) → the log's and the pool's own mutexes. The checkpoint mutex is taken before any latch. `docs/lock-order.md`
//! has the whole order.

use duramen_io::{Disk, DiskLock};
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Arc, CachePadded, Mutex, OnceLock};
use duramen_types::{Gsn, TxnId};

use crate::api::metrics::{Counters, RecoveryReport};
use crate::api::options::Options;
use crate::btree::Store;
use crate::error::{Error, Result};
use crate::full_log::FullLog;
use crate::health::Health;
use crate::lock::{LockError, LockManager};
use crate::recovery::BackgroundRecovery;
use crate::recovery::checkpoint::Checkpointer;
use crate::recovery::control::ControlFile;
use crate::scheme::StorageScheme;
use crate::storage::catalog::Handles;
use crate::txn::context_pool::{Context, Contexts};
use crate::txn::deferred_free::Deferred;
use crate::txn::log::TxnLog;
use crate::txn::table::ActiveTxns;

/// A database.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) control: Mutex<ControlFile>,
    pub(crate) store: Store,
    pub(crate) locks: LockManager,
    pub(crate) active: ActiveTxns,
    pub(crate) tables: Handles,
    pub(crate) health: Health,
    pub(crate) counters: Counters,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) full_log: FullLog,
    /// Clean-up that could not be done yet.
    pub(crate) deferred: Mutex<Vec<Deferred>>,
    pub(crate) recovery: OnceLock<RecoveryReport>,
    pub(crate) background: BackgroundRecovery,
    /// What acknowledged commits do not survive, if that is less than a power cut.
    pub(crate) log_shortfall: Option<String>,
    pub(crate) next_txn: CachePadded<AtomicU64>,
    /// The largest GSN of a commit whose locks were released before it was hardened.
    pub(crate) pre_committed: CachePadded<AtomicU64>,
    pub(crate) contexts: Contexts,
    /// Keeps others out; released when the last user of the database is gone.
    #[allow(dead_code, reason = "held for its drop")]
    pub(crate) home: DiskLock,
}

impl Core {
    pub(crate) fn scheme(&self) -> &dyn StorageScheme {
        &*self.store.scheme
    }

    /// Working memory for a new transaction, which gets its number. In a forked process, where it can do nothing, it has none.
    pub(crate) fn context(&self) -> Box<Context> {
        if self.health.is_forked() {
            return Context::unused();
        }
        self.contexts.begin(&self.next_txn)
    }

    /// Takes the working memory of a finished transaction back.
    pub(crate) fn recycle(&self, mut context: Box<Context>) {
        const LARGEST_VALUE: usize = 1 << 20;
        // One whose clean-up failed stays in the transaction table and cannot be used again.
        if context.value.capacity() <= LARGEST_VALUE && !context.log.has_written() {
            match self.contexts.keep(context) {
                None => return,
                Some(refused) => context = refused,
            }
        }
        self.locks.disinherit(&mut context.locks);
    }

    /// Looks at an error on its way to the caller: after a failure of the disk the database is out of service.
    pub(crate) fn note(&self, error: Error) -> Error {
        match &error {
            Error::Io { reason } | Error::Poisoned { reason } if !self.health.is_closed() => self.fail(reason),
            _ => {}
        }
        error
    }

    /// Puts the database out of service. Waiting transactions are woken: what they wait for may never be released.
    pub(crate) fn fail(&self, reason: &str) {
        self.store.pool.poison(reason);
        let first = self.health.fail(reason);
        // Once: a transaction may meet the failure again and again, and to close the locks is to look at all of them.
        if first {
            self.locks.close();
        }
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

    /// Sets log space aside for an operation; see [`TxnLog::make_room`].
    #[inline]
    pub(crate) fn make_room(&self, log: &mut TxnLog, bytes: usize) -> Result<()> {
        let has_line = || self.full_log.has_line();
        if log.make_room(self.scheme(), bytes, has_line, |missing| self.set_aside_in_full_log(missing))? {
            // Long transactions grow the log, too. To look where all logs end would be a cache miss or two for each of them.
            self.checkpoint_if_due(log.latest());
        }
        Ok(())
    }
}
