//! A transaction that the crash has interrupted, brought back as it was.
//!
//! A loser gets its undo buffer again, from the log, and is rolled back as any transaction is. If others are to run before that
//! (`unfinished.rs`) it also gets its locks on what it has changed, and the log space that the rollback takes. Locks on what it has
//! only read, and on gaps, it needs no more: nobody will act on what it has read.

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_types::planted;
use duramen_wal::ReadBack;

use super::chain::Chain;
use super::malformed;
use crate::active::{TxnEntry, TxnState};
use crate::catalog::CATALOG;
use crate::contexts::Context;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::lock::{LockId, LockMode};
use crate::record::{Garbage, Kind, Malformed, Reader, Undo};
use crate::txn::rollback::undo_to;
use crate::txn_log::Mark;

/// Changes that a rollback takes back before it looks whether it is to stop.
const PORTION: usize = 1000;

/// So often a rollback waits in vain for a frame of the pool.
const MOST_ATTEMPTS: u32 = 6;

/// A transaction that is to be brought to its end.
#[derive(Debug)]
pub(crate) enum Interrupted {
    /// It had not committed, and is rolled back.
    Loser(Box<Context>),
    /// It had, and gives back the pages that it has promised to.
    Winner(Box<Context>, Vec<Garbage>),
}

impl Interrupted {
    /// Enters the transaction into the transaction table.
    pub(super) fn resume(core: &Core, entry: TxnEntry) -> Box<Context> {
        let mut context = core.contexts.take();
        context.locks.renew(entry.txn);
        context.log.resume(&core.active, entry);
        context
    }

    /// Learns from the log what the transaction has still to do.
    pub(super) fn bring_back(
        core: &Core,
        logs: &mut ReadBack<'_>,
        entry: TxnEntry,
        mut context: Box<Context>,
    ) -> Result<Self> {
        let mut chain = Chain::new(entry.last);
        if entry.state == TxnState::Committed {
            let mut garbage = Vec::new();
            while let Some(record) = chain.next(logs)? {
                match Kind::from_u8(record.kind) {
                    Some(Kind::FreeOnCommit) => {
                        garbage.push(Garbage::decode(record.payload).map_err(|_| malformed(record.place()))?);
                    }
                    Some(Kind::Compensation | Kind::Update | Kind::Commit) => {}
                    _ => return Err(malformed(record.place())),
                }
            }
            return Ok(Self::Winner(context, garbage));
        }
        while let Some(record) = chain.next(logs)? {
            let malformed = |_| malformed(record.place());
            match Kind::from_u8(record.kind) {
                Some(Kind::Compensation) => {}
                Some(Kind::Update) => {
                    let undo = Undo::decode(&mut Reader::new(record.payload)).map_err(malformed)?;
                    if core.options.open_early && !planted!(LoserUnlocked) {
                        lock(core, &mut context, undo).map_err(|Contested| malformed(Malformed))?;
                    }
                    context.log.recall_update(core.scheme(), &record, undo);
                }
                Some(Kind::FreeOnCommit) => {
                    let garbage = Garbage::decode(record.payload).map_err(malformed)?;
                    context.log.recall_promise(core.scheme(), &record, garbage);
                }
                _ => return Err(malformed(Malformed)),
            }
        }
        context.log.end_recall();
        Ok(Self::Loser(context))
    }

    /// Sets the log space aside that is needed if others take what is left of it meanwhile; returns whether there is so much.
    pub(super) fn reserve_all(&mut self, core: &Core) -> Result<bool> {
        match self.context().log.reserve_for_rollback(core.scheme()) {
            Err(Error::Full { .. }) => Ok(false),
            reserved => reserved.map(|()| true),
        }
    }

    /// Sets some log space aside, if there is some. What the transaction had set aside is there; when it is not, the log grows.
    pub(super) fn reserve_some(&mut self, core: &Core) {
        let _ = self.context().log.reserve_for_recovery(core.scheme());
    }

    /// How much there is to do. Others may wait for losers, and nobody for winners.
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

    /// Brings the transaction to its end. A rollback that is told to stop stays as it is: the next opening goes on with it.
    pub(super) fn finish(self, core: &Core, stop: &AtomicBool) -> Result<()> {
        match self {
            Self::Loser(context) => roll_back(core, context, stop),
            Self::Winner(mut context, garbage) => {
                let mut log = std::mem::take(&mut context.log);
                core.recycle(context);
                if planted!(ForgetDeferredFrees) {
                    log.end(core.scheme());
                    log.finish(core.scheme(), &core.active);
                    return Ok(());
                }
                let finished = core.finish_garbage(log, garbage);
                core.scheme().settle();
                match finished {
                    Err(error @ (Error::Io { .. } | Error::Poisoned { .. })) => Err(error),
                    // The database can be used without these pages; the clean-up is tried again later.
                    _ => Ok(()),
                }
            }
        }
    }
}

/// Another loser has the lock.
struct Contested;

/// Has a loser hold the locks again under which it made a change. Nobody else can have them: they kept the transactions apart.
fn lock(core: &Core, context: &mut Context, undo: Undo<'_>) -> Result<(), Contested> {
    let (Undo::Insert { tree, key } | Undo::Change { tree, key, .. }) = undo else { return Ok(()) };
    let mut take = |id, mode| core.locks.try_acquire(&mut context.locks, id, mode);
    let taken = if tree.table == CATALOG.table {
        take(LockId::catalog(), LockMode::Exclusive)
    } else {
        take(LockId::table(tree.table), LockMode::IntentExclusive)
            && take(LockId::record(tree.table, key), LockMode::Exclusive)
    };
    if taken { Ok(()) } else { Err(Contested) }
}

fn roll_back(core: &Core, mut context: Box<Context>, stop: &AtomicBool) -> Result<()> {
    let log = &mut context.log;
    if planted!(SkipUndo) {
        log.finish(core.scheme(), &core.active);
        core.locks.release_all(&mut context.locks);
        return Ok(());
    }
    let mut attempts = 0;
    while context.log.is_above(Mark::default()) {
        if stop.load(Ordering::Acquire) {
            return Ok(());
        }
        core.health.check()?;
        let mark = context.log.mark_before(PORTION);
        let before = context.log.mark();
        match undo_to(core, &mut context, mark, &mut |_, _| {}) {
            // Others may use the pool meanwhile. It has waited for a frame; what has been taken back is forgotten already.
            Err(Error::PoolExhausted { .. }) if attempts < MOST_ATTEMPTS => {
                attempts = if context.log.mark() < before { 0 } else { attempts + 1 };
            }
            undone => undone?,
        }
    }
    context.log.end(core.scheme());
    context.log.finish(core.scheme(), &core.active);
    core.scheme().settle();
    core.locks.release_all(&mut context.locks);
    core.recycle(context);
    reach(Probe::UndoneInRecovery);
    Ok(())
}
