//! A transaction that the crash has interrupted, brought back as it was.
//!
//! A loser gets its undo buffer again, from the log, and is rolled back as any transaction is. If others are to run before that
//! (`unfinished.rs`) it also gets its locks on what it has changed, and the log space that the rollback takes. Locks on what it has
//! only read, and on gaps, it needs no more: nobody will act on what it has read.

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_types::Place;
use duramen_types::planted::{Bug, is_on};
use duramen_wal::Logs;

use super::chain::Chain;
use super::malformed;
use crate::active::{TxnEntry, TxnState};
use crate::catalog::CATALOG;
use crate::contexts::Context;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::lock::{LockId, LockMode};
use crate::record::{Garbage, Kind, Undo};
use crate::txn::rollback::undo_to;
use crate::txn_log::{Mark, Recalled};

/// Changes that a rollback takes back before it looks whether it is to stop.
const PORTION: usize = 1000;

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
    pub(super) fn bring_back(core: &Core, logs: &Logs, entry: TxnEntry, mut context: Box<Context>) -> Result<Self> {
        let mut chain = Chain::new(entry.last);
        if entry.state == TxnState::Committed {
            let mut garbage = Vec::new();
            while let Some(record) = chain.next(logs)? {
                match Kind::from_u8(record.kind) {
                    Some(Kind::FreeOnCommit) => {
                        garbage.push(Garbage::decode(&record.payload).map_err(|_| malformed(record.place()))?);
                    }
                    Some(Kind::Compensation | Kind::Update | Kind::Commit) => {}
                    _ => return Err(malformed(record.place())),
                }
            }
            return Ok(Self::Winner(context, garbage));
        }
        let mut recalled = Vec::new();
        while let Some(record) = chain.next(logs)? {
            if Kind::from_u8(record.kind) != Some(Kind::Compensation) {
                let malformed = || malformed(record.place());
                let entry = Recalled::from_record(core.scheme(), &record).map_err(|_| malformed())?;
                recalled.push(entry.ok_or_else(malformed)?);
            }
        }
        if core.options.open_early && !is_on(Bug::LoserUnlocked) {
            recalled
                .iter()
                .filter_map(Recalled::undo)
                .try_for_each(|undo| lock(core, &mut context, undo, entry.last))?;
        }
        context.log.recall(recalled);
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
                if is_on(Bug::ForgetDeferredFrees) {
                    log.end(core.scheme());
                    log.finish(core.scheme(), &core.active);
                    return Ok(());
                }
                match core.finish_garbage(log, garbage) {
                    // The database can be used without these pages; the clean-up is tried again later.
                    Err(Error::Full { .. } | Error::Corrupt { .. }) => Ok(()),
                    finished => finished,
                }
            }
        }
    }
}

/// Has a loser hold the locks again under which it made a change. Nobody else can have them: they kept the transactions apart.
fn lock(core: &Core, context: &mut Context, undo: Undo<'_>, last: Place) -> Result<()> {
    let (Undo::Insert { tree, key } | Undo::Change { tree, key, .. }) = undo else { return Ok(()) };
    let mut take = |id, mode| core.locks.try_acquire(&mut context.locks, id, mode);
    let taken = if tree.table == CATALOG.table {
        take(LockId::catalog(), LockMode::Exclusive)
    } else {
        take(LockId::table(tree.table), LockMode::IntentExclusive)
            && take(LockId::record(tree.table, key), LockMode::Exclusive)
    };
    if taken { Ok(()) } else { Err(malformed(last)) }
}

fn roll_back(core: &Core, mut context: Box<Context>, stop: &AtomicBool) -> Result<()> {
    let log = &mut context.log;
    if is_on(Bug::SkipUndo) {
        log.finish(core.scheme(), &core.active);
        core.locks.release_all(&mut context.locks);
        return Ok(());
    }
    while context.log.is_above(Mark::default()) {
        if stop.load(Ordering::Acquire) {
            return Ok(());
        }
        let mark = context.log.mark_before(PORTION);
        undo_to(core, &mut context, mark, &mut |_, _| {})?;
    }
    context.log.end(core.scheme());
    context.log.finish(core.scheme(), &core.active);
    core.scheme().settle();
    core.locks.release_all(&mut context.locks);
    core.recycle(context);
    reach(Probe::UndoneInRecovery);
    Ok(())
}
