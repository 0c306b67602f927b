//! Commit and abort.
//!
//! A commit under early lock release (Aether, section 3) has these steps. The commit record enters
//! the log buffer, which fixes its place in the commit order. The transaction releases its locks on
//! records and gaps. It clears away the ghosts and pages that it left behind, and releases its
//! locks on tables. Then the caller waits until the record is hardened. A transaction that sees the
//! changes before that commits behind the record in the log.
//!
//! A transaction that only reads has no commit record. Instead it waits for the pre-committed
//! transactions that it has seen; its locks record their GSN (`lock/table.rs`). A transaction that
//! is aborted by choice waits in the same way, because its caller may act on what it has read. A
//! transaction that must run again waits for nothing.

use duramen_sync::cost::{self, Category};
use duramen_sync::probe::{Probe, reach};
use duramen_types::{Gsn, LogAddress, planted};

use super::Txn;
use super::commit::Commit;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::lock::{LockId, LockMode};
use crate::options::CommitMode;
use crate::pool::PoolError;
use crate::record::DeferredFree;
use crate::sim_cost;
use crate::timestamp::Timestamp;
use crate::txn_state::context_pool::Context;
use crate::txn_state::log::{Mark, TxnLog};
use crate::txn_state::purging::Locked;
use crate::txn_state::undo::undo_to;
use crate::version::{Cleanup, Due, Ghost};

/// Leaves in which a commit purges the ghosts of a range.
const MOST_LEAVES: usize = 16;

impl Txn {
    /// Makes the transaction's changes permanent and visible. When this returns, they survive any
    /// crash (except under [`CommitMode::Async`]).
    ///
    /// ```
    /// # use duramen::{Db, Options};
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// # let db = Db::open(home.path(), Options::small())?;
    /// # let films = db.create_table("films")?;
    /// let mut txn = db.begin();
    /// txn.put(&films, b"Metropolis", b"1927")?;
    /// txn.commit()?;
    /// drop(db); // without `Db::close`, as after a crash
    ///
    /// let db = Db::open(home.path(), Options::small())?;
    /// let films = db.open_table("films")?;
    /// assert_eq!(db.begin().get(&films, b"Metropolis")?, Some(b"1927".to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::MustAbort`] if an earlier operation failed: the transaction is rolled back.
    /// [`crate::Error::Closed`] if the database was closed: the next opening takes it back.
    /// [`crate::Error::Io`] and [`crate::Error::Poisoned`] if the log could not be hardened: the
    /// next opening of the database determines whether the transaction is committed.
    pub fn commit(mut self) -> Result<()> {
        let mode = self.engine.options.commit;
        let Unhardened { gsn, own } = self.pre_commit(mode)?;
        self.engine.scheme().harden(gsn, own).map_err(|error| self.engine.note(error))
    }

    /// Commits as [`Txn::commit`] does, durably in every mode.
    pub(crate) fn commit_durably(mut self) -> Result<()> {
        // In this mode the commit is hardened before the locks are released.
        self.pre_commit(CommitMode::Sync).map(|_| ())
    }

    /// Commits as [`Txn::commit`] does, but does not wait under [`CommitMode::Pipelined`]: the
    /// changes are visible when this returns, and durable when the returned [`Commit`] is done. In
    /// the other modes the returned commit is done already.
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

    /// Aborts as [`Txn::abort`] does, but does not wait under [`CommitMode::Pipelined`]: the
    /// changes are gone when this returns, and the caller may act on what the transaction has read
    /// when the returned [`Commit`] is done.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let stock = db.table("stock")?;
    /// # db.run(|txn| txn.put(&stock, b"bolts", b"40"))?;
    /// let mut txn = db.begin();
    /// let before = txn.get_for_update(&stock, b"bolts")?;
    /// txn.put(&stock, b"bolts", b"0")?;
    /// let aborted = txn.abort_async();
    /// assert_eq!(db.begin().get(&stock, b"bolts")?, before);
    /// aborted.wait()?; // from now on, others may be told of `before`
    /// # Ok(())
    /// # }
    /// ```
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
        if !is_pipelined || gsn.is_zero() {
            return Commit::done(self.engine.scheme().harden(gsn, own).map_err(|error| self.engine.note(error)));
        }
        match self.engine.scheme().request_hardening(gsn) {
            Some(hardened) => Commit::hardening(hardened, self),
            None => Commit::done(Ok(())),
        }
    }

    /// Commits up to the final wait; returns what must be hardened before the commit is
    /// acknowledged.
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

    /// Takes back all changes of the transaction. As after a commit, the caller may act on what the
    /// transaction has read when this returns: it is hardened. (Dropping a transaction takes its
    /// changes back, too, and waits for nothing.)
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let accounts = db.table("accounts")?;
    /// db.run(|txn| txn.put(&accounts, b"alice", b"100"))?;
    ///
    /// let mut txn = db.begin();
    /// txn.put(&accounts, b"alice", b"0")?;
    /// txn.put(&accounts, b"bob", b"100")?;
    /// txn.abort()?;
    ///
    /// let mut txn = db.begin();
    /// assert_eq!(txn.get(&accounts, b"alice")?, Some(b"100".to_vec()));
    /// assert_eq!(txn.get(&accounts, b"bob")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Io`] and others if the rollback could not be completed; then the database is
    /// out of service, and reopening it completes the rollback.
    pub fn abort(mut self) -> Result<()> {
        self.engine.health.check_process()?;
        let seen = self.seen_by_choice();
        if !seen.is_zero() && !self.engine.scheme().is_hardened(seen) {
            reach(Probe::AbortWaitedForWriter);
        }
        self.abort_now()?;
        self.engine.scheme().harden(seen, None).map_err(|error| self.engine.note(error))
    }

    /// Returns what must be hardened before the application may act on an abort. Nothing for a
    /// transaction that has failed and must run again: the application uses no result of this
    /// attempt.
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
            // Recovery will undo the changes. The locks stay: no transaction may see changes that
            // have not been taken back.
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
                self.engine.failures().fail(&format!("a rollback failed: {error}"));
                Err(error)
            }
        }
    }
}

/// What must be hardened before a transaction is acknowledged.
#[derive(Clone, Copy, Debug)]
struct Unhardened {
    /// The GSN of the last commit that must be hardened; zero for none.
    gsn: Gsn,
    /// The log address of that commit, if it is the transaction's own.
    own: Option<LogAddress>,
}

impl Unhardened {
    const NOTHING: Self = Self { gsn: Gsn::ZERO, own: None };

    /// Waits for the commit of another transaction, whose log address is unknown.
    fn seen(gsn: Gsn) -> Self {
        Self { gsn, own: None }
    }
}

/// Ends the transaction up to the final wait; returns what must be hardened before it is
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
    let ghosts = ghosts(&context.log);

    if planted!(LocksReleasedBeforeCommit) && mode != CommitMode::Sync {
        engine.locks.release_fine(&mut context.locks, Gsn::ZERO);
    }
    // Only restoring to a point in time uses the commit time.
    let time = engine.options.archive.is_some().then(Timestamp::now);
    if engine.scheme().log().is_some() {
        // With several logs, only this makes commits that change the same record have their GSNs in
        // the order of the changes, as versions need it.
        context.log.come_after(context.locks.seen());
    }
    engine.versions.begin_commit(&context.versions);
    let committed = context.log.commit(engine.scheme(), !frees.is_empty(), time);
    let at = engine.versions.commit(&mut context.versions, committed.gsn, context.log.first());
    let unhardened = if mode == CommitMode::Sync {
        // On failure the locks stay: no transaction may depend on changes that may be lost.
        engine.scheme().hurry_hardening(committed.gsn);
        engine.scheme().harden(committed.gsn, Some(committed.address))?;
        Unhardened::NOTHING
    } else {
        engine.pre_commit(committed.gsn);
        Unhardened { gsn: committed.gsn, own: Some(committed.address) }
    };
    engine.locks.release_fine(&mut context.locks, unhardened.gsn);
    if engine.versions.is_on() {
        retire(engine, context, at, ghosts, frees);
    } else {
        clear_away(engine, context, &ghosts, frees);
    }
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

/// Returns what must be hardened before the application may act on what the transaction has read:
/// the commits of the transactions that released their locks early to this one. A transaction that
/// has written does not need this value, because its commit record lies behind all of them.
fn seen(context: &Context, mode: CommitMode) -> Gsn {
    match mode {
        _ if planted!(ReaderAcknowledgedEarly) => Gsn::ZERO,
        CommitMode::Elr | CommitMode::Pipelined => context.locks.seen(),
        CommitMode::Sync | CommitMode::Async => Gsn::ZERO,
    }
}

/// Returns the ghosts that a transaction leaves. Those of the leaves of a range that was deleted as
/// one become one: all leaves between them have been visited.
fn ghosts(log: &TxnLog) -> Vec<Ghost> {
    let (mut ghosts, mut before): (Vec<Ghost>, _) = (Vec::new(), None);
    log.for_each_ghost(|tree, key, last, deletion| {
        if let (Some(last), Some(Ghost { last: Some(end), .. })) = (last, ghosts.last_mut())
            && before == Some((tree, deletion))
            && &end[..] < key
        {
            last.clone_into(end);
            return;
        }
        before = Some((tree, deletion));
        ghosts.push(Ghost { tree, key: key.to_vec(), last: last.map(<[u8]>::to_vec) });
    });
    ghosts
}

/// Removes the ghosts and frees the pages that a transaction leaves behind, then takes it out of
/// the transaction table. The locks on records are already released; the locks on tables keep the
/// trees in place. The outcome of the transaction does not depend on this clean-up: a step that
/// fails is done later. Ghosts for which the log has no space stay until an insertion needs their
/// space in the leaf, and those that other transactions have locked until this thread, or a
/// checkpoint, finds them unlocked.
fn clear_away(engine: &Engine, context: &mut Context, ghosts: &[Ghost], frees: Vec<DeferredFree>) {
    engine.deferred_frees.note_dropped(&frees);
    if !ghosts.is_empty() {
        let due = engine.versions.collect(2 * ghosts.len());
        if !due.ghosts.is_empty() {
            engine.purging().purge(&mut context.locks, due.ghosts, MOST_LEAVES);
        }
        if due.has_frees {
            engine.versions.postpone_frees();
        }
    }
    for ghost in ghosts {
        if let Err(error) = purge(engine, context, ghost) {
            let is_full = matches!(error, Error::Full { .. });
            engine.note(error);
            if is_full {
                break;
            }
        }
    }
    if !frees.is_empty() {
        let log = std::mem::take(&mut context.log);
        // `free_and_end` records a failure, and the clean-up is tried again later.
        let _ = engine.freeing().free_and_end(log, frees);
        return;
    }
    context.log.finish(engine.scheme(), &engine.txns);
}

/// Purges a ghost, or those of a range, leaf by leaf, and then merges the leaves of the range.
fn purge(engine: &Engine, context: &mut Context, ghost: &Ghost) -> Result<()> {
    let (store, Ghost { tree, key, last }, locked) = (&engine.store, ghost, Locked::default());
    // Then no other transaction has a lock in the table, or waits for one.
    let has_table = context.locks.held(LockId::table(tree.table)) == Some(LockMode::Exclusive);
    let is_purgeable = |key: &[u8]| match has_table {
        true => engine.purging().is_unneeded(*tree, key),
        false => engine.purging().is_purgeable_now(*tree, key, &locked),
    };
    let mut step = |work: &mut dyn FnMut(&mut u64) -> std::result::Result<(), PoolError>| {
        engine.reserve_log(&mut context.log, 0)?;
        let mut logged = 0;
        let done = work(&mut logged);
        context.log.charge(logged);
        done.map_err(Error::from)
    };
    let Some(last) = last else {
        step(&mut |logged| store.purge(*tree, key, is_purgeable, logged))?;
        locked.into_ghost(*tree).into_iter().for_each(|ghost| engine.versions.postpone_locked([ghost]));
        return Ok(());
    };
    let (mut next, mut sparse) = (Some(key.clone()), Vec::new());
    while let Some(key) = next.take() {
        step(&mut |logged| {
            let (is_sparse, behind) = store.purge_run(*tree, &key, last, is_purgeable, logged)?;
            next = behind;
            if is_sparse {
                sparse.push(key.clone());
            }
            Ok(())
        })?;
    }
    // Once all of them are empty, because a merge with a full leaf would log that leaf.
    sparse.iter().try_for_each(|key| step(&mut |logged| store.merge(*tree, key, logged)))?;
    locked.into_ghost(*tree).into_iter().for_each(|ghost| engine.versions.postpone_locked([ghost]));
    Ok(())
}

/// Leaves to the version store what snapshots may still need of a transaction that committed at
/// position `at`, takes the transaction out of the transaction table, and clears away what earlier
/// transactions of this thread have left there and no snapshot needs any more.
fn retire(engine: &Engine, context: &mut Context, at: Gsn, ghosts: Vec<Ghost>, frees: Vec<DeferredFree>) {
    /// Ghosts that a commit purges even if it has deleted nothing.
    const PURGED: usize = 32;
    let most = PURGED.max(2 * ghosts.len());
    let cleanup = Cleanup { at, first: context.log.first(), ghosts, has_frees: !frees.is_empty() };
    engine.deferred_frees.note_dropped(&frees);
    let is_time = engine.versions.retire(&mut context.versions, cleanup);
    let due = if is_time { engine.versions.collect(most) } else { Due::default() };
    if !due.ghosts.is_empty() {
        engine.purging().purge(&mut context.locks, due.ghosts, MOST_LEAVES);
    }
    let mut has_tables = false;
    if frees.is_empty() {
        context.log.finish(engine.scheme(), &engine.txns);
    } else {
        let log = std::mem::take(&mut context.log);
        has_tables |= engine.freeing().free_when_due(log, frees, at);
    }
    has_tables |= due.has_frees && engine.freeing().free_some();
    if has_tables {
        // Its thread frees dropped tables.
        engine.checkpointer.wake();
    }
}

fn abort(engine: &Engine, context: &mut Context) -> Result<()> {
    let mut ghosts = Vec::new();
    let mut add = |tree, key: &[u8]| ghosts.push(Ghost { tree, key: key.to_vec(), last: None });
    context.log.for_each_left_behind(&mut add);
    undo_to(&engine.store, context, Mark::default(), &mut add)?;
    engine.versions.abort(&context.versions);
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
