//! Commit and abort.
//!
//! The life of a commit under early lock release (Aether, section 3): the commit record enters the log buffer, which
//! fixes its place in the order; the locks on records and gaps go; the ghosts and pages that the transaction left behind
//! are cleared away; the locks on tables go; then the caller waits until the record is hardened. Whoever sees the changes in between commits behind it in the log.
//! One that only reads has no record: it waits for the latest pre-committed transaction instead.

use duramen_sync::atomic::Ordering;
use duramen_types::Gsn;

use super::Txn;
use super::rollback::undo_to;
use super::write::is_unlocked;
use crate::btree::Tree;
use crate::core::{Context, Core};
use crate::error::{Error, Result};
use crate::options::CommitMode;
use crate::record::Garbage;
use crate::txn_log::Mark;

impl Txn {
    /// Makes the transaction's changes permanent and visible. When this returns, they survive any crash (not so under
    /// [`CommitMode::Async`]).
    ///
    /// # Errors
    /// [`crate::Error::MustAbort`] when an operation failed before: the transaction is rolled back.
    /// [`crate::Error::Io`] and [`crate::Error::Poisoned`] when the log could not be hardened: whether the transaction
    /// is committed shows when the database is reopened.
    pub fn commit(mut self) -> Result<()> {
        if let Err(error) = self.check_usable() {
            let _ = self.abort_now();
            return Err(error);
        }
        self.finish(self.core.options.commit)
    }

    /// As [`Txn::commit`], and durable in every mode.
    pub(crate) fn commit_durably(mut self) -> Result<()> {
        self.finish(CommitMode::Sync)
    }

    fn finish(&mut self, mode: CommitMode) -> Result<()> {
        let mut context = self.context.take().expect("the transaction is not over");
        let result = commit(&self.core, &mut context, mode);
        if result.is_ok() {
            self.core.recycle(context);
        }
        result.map_err(|error| self.core.note(error))
    }

    /// Takes all changes of the transaction back.
    ///
    /// # Errors
    /// [`crate::Error::Io`] and others when the rollback could not be completed; the database is out of service then,
    /// and reopening it completes the rollback.
    pub fn abort(mut self) -> Result<()> {
        self.abort_now()
    }

    pub(super) fn abort_now(&mut self) -> Result<()> {
        let mut context = self.context.take().expect("the transaction is not over");
        self.core.counters.aborted();
        if let Err(error) = self.core.health.check() {
            // Recovery will undo. The locks stay: nobody may see what has not been taken back.
            self.core.locks.close();
            if !context.log.has_written() {
                self.core.locks.release_all(&mut context.locks);
            }
            return Err(error);
        }
        match abort(&self.core, &mut context) {
            Ok(()) => {
                self.core.recycle(context);
                Ok(())
            }
            Err(error) => {
                self.core.fail(&format!("a rollback could not be completed: {error}"));
                Err(error)
            }
        }
    }
}

fn commit(core: &Core, context: &mut Context, mode: CommitMode) -> Result<()> {
    if !context.log.has_written() {
        return commit_read_only(core, context, mode);
    }
    let mut garbage = Vec::new();
    context.log.for_each_garbage(|item| garbage.push(item));
    let mut ghosts = Vec::new();
    context.log.for_each_ghost(|tree, key| ghosts.push((tree, key.to_vec())));

    let committed = context.log.commit(core.scheme(), !garbage.is_empty());
    if mode == CommitMode::Sync {
        // On failure the locks stay: nobody may build on what may be lost.
        core.scheme().harden(committed.gsn)?;
    } else {
        core.pre_commit(committed.gsn);
    }
    core.locks.release_fine(&mut context.locks);
    clear_away(core, context, &ghosts, garbage);
    core.locks.release_all(&mut context.locks);
    core.counters.committed();
    core.checkpoint_if_due(committed.end);
    match mode {
        CommitMode::Elr => core.scheme().harden(committed.gsn),
        CommitMode::Sync => Ok(()),
        CommitMode::Async => match core.scheme().failure() {
            Some(reason) => Err(Error::Poisoned { reason }),
            None => core.health.check(),
        },
    }
}

/// All that the transaction has read must be hardened, since its caller may act on it.
fn commit_read_only(core: &Core, context: &mut Context, mode: CommitMode) -> Result<()> {
    core.locks.release_all(&mut context.locks);
    context.log.finish(core.scheme(), &core.active);
    core.counters.committed();
    let seen = Gsn::new(core.pre_committed.load(Ordering::Acquire));
    if mode == CommitMode::Elr && !seen.is_zero() && !core.scheme().is_hardened(seen) {
        core.scheme().harden(seen)?;
    }
    Ok(())
}

/// Removes the ghosts and gives back the pages that a transaction leaves behind, then takes it out of the tables. Its
/// locks on records are gone by now; those on tables keep the trees in place. The outcome of the transaction does not
/// depend on it: what fails here is done later.
fn clear_away(core: &Core, context: &mut Context, ghosts: &[(Tree, Vec<u8>)], garbage: Vec<Garbage>) {
    for (tree, key) in ghosts {
        if let Err(error) = core.store.purge(*tree, key, |key| is_unlocked(core, *tree, key)) {
            core.note(error.into());
        }
    }
    if !garbage.is_empty() {
        let log = std::mem::take(&mut context.log);
        // A failure is noted; the clean-up is tried again later.
        let _ = core.finish_garbage(log, garbage);
        return;
    }
    context.log.finish(core.scheme(), &core.active);
}

fn abort(core: &Core, context: &mut Context) -> Result<()> {
    let mut ghosts = Vec::new();
    undo_to(core, context, Mark::default(), &mut |tree, key| ghosts.push((tree, key.to_vec())))?;
    if context.log.has_written() {
        let ended = context.log.end(core.scheme());
        core.checkpoint_if_due(ended.end);
    }
    core.locks.release_fine(&mut context.locks);
    clear_away(core, context, &ghosts, Vec::new());
    core.locks.release_all(&mut context.locks);
    Ok(())
}
