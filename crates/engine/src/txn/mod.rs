//! Transactions.
//!
//! `read.rs` and `scan.rs` find records, `write.rs` changes them, `savepoint.rs` takes changes
//! back, `finish.rs` commits and aborts, `commit.rs` is what tells about a commit that is not
//! hardened yet. This file holds what they share. What the database keeps of a transaction is in
//! `txn_state`.
//!
//! # How serializability is kept
//! Strict two-phase locking on keys and on the gaps between them. The lock on a key is taken before
//! the tree is searched, so that no page latch is held while a transaction waits. The lock on a gap
//! can be named only after the search: it is taken after a first look, and then the tree is looked
//! at again; only what is seen while the lock is held counts.

mod commit;
mod finish;
mod read;
mod savepoint;
mod scan;
mod write;

pub use commit::Commit;
pub use scan::Scan;

use duramen_sync::Reference;
use duramen_types::{MAX_KEY_LEN, MAX_VALUE_LEN, TxnId};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::lock::{Age, LockError, LockId, LockMode};
use crate::options::Isolation;
use crate::record::Tree;
use crate::storage::catalog::{Opening, Table};
use crate::storage::store::Store;
use crate::txn_state::context_pool::Context;
use crate::txn_state::log::Mark;

/// A transaction. Dropping one that is neither committed nor aborted aborts it.
///
/// After an error other than [`Error::KeyExists`], [`Error::KeyNotFound`], [`Error::KeyTooLarge`],
/// [`Error::ValueTooLarge`], [`Error::TooManyLargeValues`], [`Error::NoSuchTable`],
/// [`Error::ForeignTable`] or [`Error::NoSuchSavepoint`] the transaction can only be aborted;
/// everything else gives [`Error::MustAbort`].
#[derive(Debug)]
pub struct Txn {
    engine: Reference<Engine>,
    /// Present until the transaction is over.
    context: Option<Box<Context>>,
    isolation: Isolation,
    must_abort: bool,
    waited_for_own_thread: bool,
    /// Savepoints made so far; each gets the next number.
    savepoints: u64,
    /// Savepoints that a rollback has not passed: number and place.
    valid_savepoints: Vec<(u64, Mark)>,
}

/// A point in a transaction that [`Txn::rollback_to`] returns to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Savepoint {
    /// Two databases may have transactions of one number.
    opening: Opening,
    txn: TxnId,
    number: u64,
}

impl Txn {
    pub(crate) fn begin(engine: Reference<Engine>, isolation: Isolation) -> Self {
        duramen_sync::cost::work(crate::sim_cost::BEGIN);
        Self {
            context: Some(engine.context()),
            engine,
            isolation,
            must_abort: false,
            waited_for_own_thread: false,
            savepoints: 0,
            valid_savepoints: Vec::new(),
        }
    }

    /// Whether it was refused a lock that another transaction of the same thread holds.
    pub(crate) fn waited_for_own_thread(&self) -> bool {
        self.waited_for_own_thread
    }

    /// When it has begun.
    pub(crate) fn age(&self) -> Age {
        self.context().locks.age()
    }

    /// Makes it as old as an earlier attempt at the same.
    pub(crate) fn set_age(&mut self, age: Age) {
        self.context.as_mut().expect("the transaction is not over").locks.set_age(age);
    }

    /// Its number. No other transaction of this opening has it, nor has any other that has written
    /// something.
    pub fn id(&self) -> TxnId {
        self.context().locks.txn()
    }

    /// What it sees of others.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    fn context(&self) -> &Context {
        self.context.as_ref().expect("the transaction is not over")
    }

    /// The parts that operations work with, borrowed side by side.
    fn parts(&mut self) -> (&Engine, &Store, &mut Context) {
        (&self.engine, &self.engine.store, self.context.as_mut().expect("the transaction is not over"))
    }

    /// Refuses operations of a transaction that can only be aborted, and all of a database that is
    /// out of service.
    fn check_usable(&self) -> Result<()> {
        if self.must_abort {
            self.engine.health.check_process().and(Err(Error::MustAbort))
        } else {
            self.engine.health.check()
        }
    }

    /// Remembers what an error means for the transaction and for the database.
    fn record_outcome<T>(&mut self, result: Result<T>) -> Result<T> {
        result.map_err(|error| {
            let harmless = matches!(
                error,
                Error::KeyExists
                    | Error::KeyNotFound
                    | Error::KeyTooLarge { .. }
                    | Error::ValueTooLarge { .. }
                    | Error::TooManyLargeValues { .. }
                    | Error::NoSuchTable { .. }
                    | Error::ForeignTable { .. }
                    | Error::NoSuchSavepoint
            );
            self.must_abort |= !harmless;
            self.engine.note(error)
        })
    }

    fn lock(&mut self, id: LockId, mode: LockMode) -> Result<()> {
        let (engine, _, context) = self.parts();
        match engine.locks.acquire(&mut context.locks, id, mode) {
            Ok(()) => Ok(()),
            Err(error) => {
                let error_of_txn = engine.lock_error(context.locks.txn(), error);
                self.waited_for_own_thread |= error == LockError::Deadlock { cycle: 1 };
                Err(error_of_txn)
            }
        }
    }

    /// Locks the table as a whole, by intention, and makes sure that it still exists.
    fn enter_table(&mut self, table: &Table, mode: LockMode) -> Result<Tree> {
        let tree = table.tree(&self.engine.tables)?;
        self.lock(LockId::table(tree.table), mode)?;
        table.check_not_dropped()?;
        Ok(tree)
    }

    /// For the database's own transactions on its catalog, which hold a lock on it as a whole.
    pub(crate) fn internal<T>(&mut self, work: impl FnOnce(&Engine, &mut Context) -> Result<T>) -> Result<T> {
        self.check_usable()?;
        let (engine, _, context) = self.parts();
        let result = work(engine, context);
        self.record_outcome(result)
    }

    pub(crate) fn lock_exclusively(&mut self, id: LockId) -> Result<()> {
        self.check_usable()?;
        let result = self.lock(id, LockMode::Exclusive);
        self.record_outcome(result)
    }

    /// The lock on the gap below `next`, or below the end of the table.
    fn gap(tree: Tree, next: Option<&[u8]>) -> LockId {
        match next {
            Some(key) => LockId::gap(tree.table, key),
            None => LockId::gap_end(tree.table),
        }
    }
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > MAX_KEY_LEN {
        return Err(Error::KeyTooLarge { len: key.len(), limit: MAX_KEY_LEN });
    }
    Ok(())
}

fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > MAX_VALUE_LEN {
        return Err(Error::ValueTooLarge { len: value.len(), limit: MAX_VALUE_LEN });
    }
    Ok(())
}

impl Drop for Txn {
    fn drop(&mut self) {
        if self.context.is_some() {
            // An error here has put the database out of service, or the database is closed:
            // recovery will undo.
            let _ = self.abort_now();
        }
        if self.engine.health.is_forked() {
            std::mem::forget(self.engine.clone());
        }
    }
}
