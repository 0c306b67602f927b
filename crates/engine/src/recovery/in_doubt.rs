//! In-doubt transactions: the transactions that the crash interrupted, rebuilt as they were.
//!
//! A loser gets its undo buffer back from the log, and is rolled back like any other transaction.
//! If other transactions run before that (`undo_queue.rs`), the loser also gets back the locks on
//! its changes, and the log space that the rollback takes. It does not need its locks on records
//! that it only read, nor on gaps: it will not act on its reads any more.

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_types::planted;

use super::parts::UndoParts;
use super::prev_chain::{PrevChain, ReadRecords};
use crate::error::{Error, Result};
use crate::lock::{LockId, LockMode};
use crate::record::{DeferredFree, Kind, Malformed, Undo, inverse};
use crate::storage::catalog::CATALOG;
use crate::txn_state::context_pool::Context;
use crate::txn_state::log::Mark;
use crate::txn_state::table::{TxnEntry, TxnState};
use crate::txn_state::undo::undo_to;
use crate::version::Ghost;

/// Changes that a rollback undoes before it checks whether it has to stop.
const PORTION: usize = 1000;

/// How often in a row a rollback waits in vain for a frame of the pool before it gives up.
const MOST_ATTEMPTS: u32 = 6;

/// Ghosts of one rolled back transaction that are purged.
const MOST_GHOSTS: usize = 1_000;

/// A transaction that is still to be finished.
#[derive(Debug)]
pub(crate) enum InDoubt {
    /// A transaction that had not committed: it is rolled back.
    Loser(Box<Context>),
    /// A transaction that had committed: its deferred frees are done.
    Winner(Box<Context>, Vec<DeferredFree>),
}

impl InDoubt {
    /// Enters the transaction into the transaction table.
    pub(super) fn resume(parts: &UndoParts<'_>, entry: TxnEntry) -> Box<Context> {
        let mut context = parts.contexts.take();
        context.locks.renew(entry.txn);
        context.log.resume(&*parts.store.scheme, parts.txns, entry);
        context
    }

    /// Reads from its records what the transaction still has to do.
    pub(super) fn bring_back(
        parts: &UndoParts<'_>,
        records: &mut dyn ReadRecords,
        entry: TxnEntry,
        mut context: Box<Context>,
    ) -> Result<Self> {
        let medium = records.medium();
        let mut chain = PrevChain::new(&entry);
        if entry.state == TxnState::Committed {
            let mut frees = Vec::new();
            while let Some(record) = chain.next(records)? {
                match record.kind {
                    Kind::FreeOnCommit => {
                        frees.push(DeferredFree::decode(record.payload).map_err(|_| medium.malformed(record.address))?);
                    }
                    Kind::Compensation | Kind::Update | Kind::Commit => {}
                    _ => return Err(medium.malformed(record.address)),
                }
            }
            return Ok(Self::Winner(context, frees));
        }
        while let Some(record) = chain.next(records)? {
            let malformed = |_| medium.malformed(record.address);
            match record.kind {
                Kind::Compensation => {}
                Kind::Update => {
                    let undo = inverse(record.payload).map_err(malformed)?;
                    if parts.instant_recovery && !planted!(LoserUnlocked) {
                        lock(parts, &mut context, undo).map_err(|Contested| malformed(Malformed))?;
                    }
                    context.log.recall_update(&*parts.store.scheme, &record, undo);
                }
                Kind::FreeOnCommit => {
                    let free = DeferredFree::decode(record.payload).map_err(malformed)?;
                    context.log.recall_deferred_free(&*parts.store.scheme, &record, free);
                }
                _ => return Err(malformed(Malformed)),
            }
        }
        context.log.end_recall();
        Ok(Self::Loser(context))
    }

    /// Reserves the log space that the transaction needs if other transactions use the rest of the
    /// log meanwhile. Returns whether there is enough space.
    pub(super) fn reserve_all(&mut self, parts: &UndoParts<'_>) -> Result<bool> {
        match self.context().log.reserve_for_rollback(&*parts.store.scheme) {
            Err(Error::Full { .. }) => Ok(false),
            reserved => reserved.map(|()| true),
        }
    }

    /// Reserves some log space, if there is any. The transaction's own reservation from before the
    /// crash should be free; if it is not, the log grows.
    pub(super) fn reserve_some(&mut self, parts: &UndoParts<'_>) {
        let _ = self.context().log.reserve_for_recovery(&*parts.store.scheme);
    }

    /// Returns how much work is left. Losers sort before winners, because other transactions may
    /// wait for losers only.
    pub(super) fn effort(&self) -> (bool, Mark) {
        match self {
            Self::Loser(context) => (false, context.log.mark()),
            Self::Winner(context, _) => (true, context.log.mark()),
        }
    }

    fn context(&mut self) -> &mut Context {
        let (Self::Loser(context) | Self::Winner(context, _)) = self;
        context
    }

    /// Finishes the transaction. A rollback that is stopped stays as it is, and the next opening
    /// continues it.
    pub(super) fn finish(self, parts: &UndoParts<'_>, stop: &AtomicBool) -> Result<()> {
        match self {
            Self::Loser(context) => roll_back(parts, context, stop),
            Self::Winner(mut context, frees) => {
                let mut log = std::mem::take(&mut context.log);
                parts.contexts.recycle(context, parts.locks);
                if planted!(ForgetDeferredFrees) {
                    log.end(&*parts.store.scheme);
                    log.finish(&*parts.store.scheme, parts.txns);
                    return Ok(());
                }
                let finished = parts.freeing.free_and_end(log, frees);
                parts.store.scheme.before_blocking();
                match finished {
                    Err(error @ (Error::Io { .. } | Error::Poisoned { .. })) => Err(error),
                    // The database can be used without these pages; the clean-up is tried again
                    // later.
                    _ => Ok(()),
                }
            }
        }
    }
}

/// Another loser has the lock.
struct Contested;

/// Gives a loser back the locks under which it made a change. No other transaction can hold them:
/// the same locks kept the transactions apart.
fn lock(parts: &UndoParts<'_>, context: &mut Context, undo: Undo<'_>) -> Result<(), Contested> {
    let (tree, keys) = match undo {
        Undo::Insert { tree, key } | Undo::Change { tree, key, .. } => (tree, vec![key.to_vec()]),
        Undo::Delete { tree, keys } => (tree, keys.to_vec().into_iter().map(|(key, _)| key).collect()),
        Undo::Allocate { .. } => return Ok(()),
    };
    let mut take = |id, mode| parts.locks.try_acquire(&mut context.locks, id, mode);
    let taken = if tree.table == CATALOG.table {
        take(LockId::catalog(), LockMode::Exclusive)
    } else {
        take(LockId::table(tree.table), LockMode::IntentExclusive)
            && keys.iter().all(|key| take(LockId::record(tree.table, key), LockMode::Exclusive))
    };
    if taken { Ok(()) } else { Err(Contested) }
}

fn roll_back(parts: &UndoParts<'_>, mut context: Box<Context>, stop: &AtomicBool) -> Result<()> {
    let log = &mut context.log;
    if planted!(SkipUndo) {
        log.finish(&*parts.store.scheme, parts.txns);
        parts.locks.release_all(&mut context.locks);
        return Ok(());
    }
    let (mut attempts, mut ghosts) = (0, Vec::new());
    // Those of a long transaction stay until insertions need their space in the leaves.
    let mut add = |tree, key: &[u8]| {
        if ghosts.len() < MOST_GHOSTS {
            ghosts.push(Ghost { tree, key: key.to_vec(), last: None });
        }
    };
    while context.log.is_above(Mark::default()) {
        if stop.load(Ordering::Acquire) {
            return Ok(());
        }
        parts.failures.health.check()?;
        let mark = context.log.mark_before(PORTION);
        let before = context.log.mark();
        match undo_to(parts.store, &mut context, mark, &mut add) {
            // Other threads may use the pool meanwhile. The rollback has waited for a frame, and
            // has already forgotten the changes that it has undone.
            Err(Error::PoolExhausted { .. }) if attempts < MOST_ATTEMPTS => {
                attempts = if context.log.mark() < before { 0 } else { attempts + 1 };
            }
            undone => undone?,
        }
    }
    context.log.end(&*parts.store.scheme);
    context.log.finish(&*parts.store.scheme, parts.txns);
    parts.store.scheme.before_blocking();
    parts.locks.release_all(&mut context.locks);
    parts.contexts.recycle(context, parts.locks);
    // The first checkpoint purges them.
    parts.freeing.versions.postpone(ghosts);
    reach(Probe::UndoneInRecovery);
    Ok(())
}
