//! Commit and abort.
//!
//! The life of a commit under early lock release (Aether, section 3): the commit record enters the
//! log buffer, which fixes its place in the order; the locks on records and gaps go; the ghosts and
//! pages that the transaction left behind are cleared away; the locks on tables go; then the caller
//! waits until the record is hardened. Whoever sees the changes in between commits behind it in the
//! log. One that only reads has no record: it waits for the pre-committed transactions that it has
//! seen instead, which its locks tell it (`lock/table.rs`). So does one that is aborted by choice,
//! since its caller may act on what it has read; one that has to run again tells nobody anything.

use duramen_sync::cost::{self, Category};
use duramen_sync::probe::{Probe, reach};
use duramen_types::{Gsn, LogAddress, planted};

use super::Txn;
use super::commit::Commit;
use super::write::is_unlocked;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::options::CommitMode;
use crate::record::{DeferredFree, Tree};
use crate::sim_cost;
use crate::timestamp::Timestamp;
use crate::txn_state::context_pool::Context;
use crate::txn_state::log::Mark;
use crate::txn_state::undo::undo_to;

impl Txn {
    /// Makes the transaction's changes permanent and visible. When this returns, they survive any
    /// crash (not so under [`CommitMode::Async`]).
    ///
    /// # Errors
    /// [`crate::Error::MustAbort`] when an operation failed before: the transaction is rolled back.
    /// [`crate::Error::Io`] and [`crate::Error::Poisoned`] when the log could not be hardened:
    /// whether the transaction is committed shows when the database is reopened.
    pub fn commit(self) -> Result<()> {
        let mode = self.engine.options.commit;
        self.commit_in(mode)
    }

    /// As [`Txn::commit`], and durable in every mode.
    pub(crate) fn commit_durably(self) -> Result<()> {
        self.commit_in(CommitMode::Sync)
    }

    fn commit_in(mut self, mode: CommitMode) -> Result<()> {
        let unhardened = self.pre_commit(mode)?;
        self.harden(unhardened)
    }

    /// As [`Txn::commit`], but under [`CommitMode::Pipelined`] it does not wait: the changes are
    /// visible when this returns, and durable when what it returns says so. In the other modes that
    /// is done already.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// # let db = duramen::Db::open(home.path(), duramen::Options::default())?;
    /// # let table = db.create_table("t")?;
    /// let mut commits = Vec::new();
    /// for number in 0..100_u32 {
    ///     let mut txn = db.begin();
    ///     txn.put(&table, &number.to_be_bytes(), b"many in flight, on one thread")?;
    ///     commits.push(txn.commit_async());
    /// }
    /// for commit in commits {
    ///     commit.wait()?; // or `.await` it
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn commit_async(mut self) -> Commit {
        let mode = self.engine.options.commit;
        match self.pre_commit(mode) {
            Ok(unhardened) => self.harden_async(unhardened),
            Err(error) => Commit::done(Err(error)),
        }
    }

    /// As [`Txn::abort`], but under [`CommitMode::Pipelined`] it does not wait: the changes are
    /// gone when this returns, and what the transaction has read may be acted on when what it
    /// returns says so.
    pub fn abort_async(mut self) -> Commit {
        let seen = self.seen_by_choice();
        match self.abort_now() {
            Ok(()) => self.harden_async(Unhardened::seen(seen)),
            Err(error) => Commit::done(Err(error)),
        }
    }

    fn harden_async(self, unhardened: Unhardened) -> Commit {
        let is_pipelined = self.engine.options.commit == CommitMode::Pipelined;
        let Unhardened { gsn, own } = unhardened;
        if is_pipelined && !gsn.is_zero() && !self.engine.scheme().is_hardened(gsn) {
            Commit::hardening(self.engine.scheme().request_hardening(gsn, own), self)
        } else {
            Commit::done(self.harden(unhardened))
        }
    }

    /// Commits but for the last wait; returns what has to be hardened before anybody is told.
    fn pre_commit(&mut self, mode: CommitMode) -> Result<Unhardened> {
        if let Err(error) = self.check_usable() {
            let _ = self.abort_now();
            return Err(error);
        }
        let _commit = cost::scope(Category::Commit);
        cost::work(sim_cost::COMMIT);
        let mut context = self.context.take().expect("the transaction is not over");
        self.engine.locks.adopt(&mut context.locks);
        match commit(&self.engine, &mut context, mode) {
            Ok(unhardened) => {
                self.engine.contexts.recycle(context, &self.engine.locks);
                Ok(unhardened)
            }
            Err(error) => Err(self.engine.note(error)),
        }
    }

    fn harden(&self, Unhardened { gsn, own }: Unhardened) -> Result<()> {
        if gsn.is_zero() || self.engine.scheme().is_hardened(gsn) {
            return Ok(());
        }
        self.engine.scheme().harden(gsn, own).map_err(|error| self.engine.note(error))
    }

    /// Takes all changes of the transaction back. As after a commit, what the transaction has read
    /// may be acted on when this returns: it is hardened. (Dropping a transaction takes its changes
    /// back, too, and waits for nothing.)
    ///
    /// # Errors
    /// [`crate::Error::Io`] and others when the rollback could not be completed; the database is
    /// out of service then, and reopening it completes the rollback.
    pub fn abort(mut self) -> Result<()> {
        self.engine.health.check_process()?;
        let seen = self.seen_by_choice();
        if !seen.is_zero() && !self.engine.scheme().is_hardened(seen) {
            reach(Probe::AbortWaitedForWriter);
        }
        self.abort_now()?;
        self.harden(Unhardened::seen(seen))
    }

    /// What has to be hardened before the application may act on an abort. A transaction that has
    /// failed and is to run again learns nothing from this attempt.
    fn seen_by_choice(&self) -> Gsn {
        if self.must_abort || planted!(AbortAcknowledgedEarly) {
            Gsn::ZERO
        } else {
            seen(self.context(), self.engine.options.commit)
        }
    }

    pub(super) fn abort_now(&mut self) -> Result<()> {
        let mut context = self.context.take().expect("the transaction is not over");
        if let Err(error) = self.engine.health.check_process() {
            std::mem::forget(context);
            return Err(error);
        }
        self.engine.locks.adopt(&mut context.locks);
        self.engine.counters.aborted();
        if let Err(error) = self.engine.health.check() {
            // Recovery will undo. The locks stay: nobody may see what has not been taken back.
            self.engine.locks.close();
            if !context.log.has_written() {
                self.engine.locks.release_all(&mut context.locks);
            }
            return Err(error);
        }
        match abort(&self.engine, &mut context) {
            Ok(()) => {
                self.engine.contexts.recycle(context, &self.engine.locks);
                Ok(())
            }
            Err(error) => {
                self.engine.failures().fail(&format!("a rollback could not be completed: {error}"));
                Err(error)
            }
        }
    }
}

/// What must be hardened before a transaction is acknowledged.
#[derive(Clone, Copy, Debug)]
struct Unhardened {
    /// Everything up to the commit at this GSN; zero for nothing.
    gsn: Gsn,
    /// Where that commit is, if it is the transaction's own.
    own: Option<LogAddress>,
}

impl Unhardened {
    const NOTHING: Self = Self { gsn: Gsn::ZERO, own: None };

    /// What another transaction has to harden.
    fn seen(gsn: Gsn) -> Self {
        Self { gsn, own: None }
    }
}

/// Ends the transaction but for the last wait; returns what must be hardened before it is
/// acknowledged.
fn commit(engine: &Engine, context: &mut Context, mode: CommitMode) -> Result<Unhardened> {
    if !context.log.has_written() {
        let seen = seen(context, mode);
        if !seen.is_zero() && !engine.scheme().is_hardened(seen) {
            reach(Probe::ReaderWaitedForWriter);
        }
        engine.locks.release_all(&mut context.locks);
        context.log.finish(engine.scheme(), &engine.txns);
        engine.counters.committed();
        return Ok(Unhardened::seen(seen));
    }
    let mut frees = Vec::new();
    context.log.for_each_deferred_free(|item| frees.push(item));
    let mut ghosts = Vec::new();
    context.log.for_each_ghost(|tree, key| ghosts.push((tree, key.to_vec())));

    if planted!(LocksReleasedBeforeCommit) && mode != CommitMode::Sync {
        engine.locks.release_fine(&mut context.locks, Gsn::ZERO);
    }
    // For restoring to a time: nothing else asks for it.
    let time = engine.options.archive.is_some().then(Timestamp::now);
    let committed = context.log.commit(engine.scheme(), !frees.is_empty(), time);
    let unhardened = if mode == CommitMode::Sync {
        // On failure the locks stay: nobody may build on what may be lost.
        engine.scheme().harden(committed.gsn, Some(committed.address()))?;
        Unhardened::NOTHING
    } else {
        engine.pre_commit(committed.gsn);
        Unhardened { gsn: committed.gsn, own: Some(committed.address()) }
    };
    engine.locks.release_fine(&mut context.locks, unhardened.gsn);
    clear_away(engine, context, &ghosts, frees);
    engine.locks.release_all(&mut context.locks);
    engine.counters.committed();
    engine.checkpointer.wake_if_due(committed.end_gsn());
    if mode == CommitMode::Async {
        engine.scheme().before_blocking();
        return match engine.scheme().failure() {
            Some(reason) => Err(Error::Poisoned { reason }),
            None => engine.health.check().map(|()| Unhardened::NOTHING),
        };
    }
    Ok(unhardened)
}

/// What must be hardened before anybody may act on what the transaction has read: the commits of
/// those that released their locks early to it. A transaction that has written commits behind all
/// of them and needs not care.
fn seen(context: &Context, mode: CommitMode) -> Gsn {
    match mode {
        _ if planted!(ReaderAcknowledgedEarly) => Gsn::ZERO,
        CommitMode::Elr | CommitMode::Pipelined => context.locks.seen(),
        CommitMode::Sync | CommitMode::Async => Gsn::ZERO,
    }
}

/// Removes the ghosts and gives back the pages that a transaction leaves behind, then takes it out
/// of the tables. Its locks on records are gone by now; those on tables keep the trees in place.
/// The outcome of the transaction does not depend on it: what fails here is done later. Ghosts for
/// which the log has no room stay: who needs their place takes it.
fn clear_away(engine: &Engine, context: &mut Context, ghosts: &[(Tree, Vec<u8>)], frees: Vec<DeferredFree>) {
    for (tree, key) in ghosts {
        if let Err(error) = engine.reserve_log(&mut context.log, 0) {
            engine.note(error);
            break;
        }
        let mut logged = 0;
        let purged = engine.store.purge(*tree, key, |key| is_unlocked(engine, *tree, key), &mut logged);
        context.log.charge(logged);
        if let Err(error) = purged {
            engine.note(error.into());
        }
    }
    if !frees.is_empty() {
        let log = std::mem::take(&mut context.log);
        // A failure is noted; the clean-up is tried again later.
        let _ = engine.freeing().free_and_end(log, frees);
        return;
    }
    context.log.finish(engine.scheme(), &engine.txns);
}

fn abort(engine: &Engine, context: &mut Context) -> Result<()> {
    let mut ghosts = Vec::new();
    undo_to(&engine.store, context, Mark::default(), &mut |tree, key| ghosts.push((tree, key.to_vec())))?;
    if context.log.has_written() {
        let ended = context.log.end(engine.scheme());
        engine.checkpointer.wake_if_due(ended.end_gsn());
    }
    engine.locks.release_fine(&mut context.locks, Gsn::ZERO);
    clear_away(engine, context, &ghosts, Vec::new());
    engine.scheme().before_blocking();
    engine.locks.release_all(&mut context.locks);
    Ok(())
}
