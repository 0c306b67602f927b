//! Transactions.
//!
//! `read.rs` and `scan.rs` find records, `write.rs` changes them, `savepoint.rs` takes changes
//! back, `finish.rs` commits and aborts, and `commit.rs` reports the outcome of a commit that is
//! not hardened yet. This file holds their shared parts. The state that the database keeps of a
//! transaction is in `txn_state`.
//!
//! # Serializability
//! Transactions use strict two-phase locking on keys and on the gaps between them. A transaction
//! locks a key before it searches the tree, so that it holds no page latch while it waits. A gap
//! can be named only after the search: the transaction locks it after a first search and then
//! searches again; only what it sees while it holds the lock counts.

mod bulk_load;
mod commit;
mod delete_range;
mod finish;
mod key_range;
mod read;
mod savepoint;
mod scan;
mod write;

pub use commit::Commit;
pub use key_range::KeyRange;
pub use scan::{Scan, TxnCursor};

use std::time::Duration;

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
/// [`Error::ForeignTable`] or [`Error::NoSuchSavepoint`] the transaction can only be aborted; every
/// other call returns [`Error::MustAbort`].
#[derive(Debug)]
pub struct Txn {
    engine: Reference<Engine>,
    /// Present until the transaction is over.
    context: Option<Box<Context>>,
    isolation: Isolation,
    must_abort: bool,
    waited_for_own_thread: bool,
    /// Number of savepoints made so far, which is the number of the next one.
    savepoints: u64,
    /// Savepoints that have not been rolled back over: number and undo position.
    valid_savepoints: Vec<(u64, Mark)>,
}

/// A point in a transaction that [`Txn::rollback_to`] returns to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Savepoint {
    /// Transactions of two databases may have the same id.
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

    /// Returns whether the transaction was refused a lock for which it would have to wait as long
    /// as another transaction of the same thread is open.
    pub(crate) fn waited_for_own_thread(&self) -> bool {
        self.waited_for_own_thread
    }

    /// Returns the transaction's age.
    pub(crate) fn age(&self) -> Age {
        self.context().locks.age()
    }

    /// Sets the age to that of an earlier attempt at the same transaction.
    pub(crate) fn set_age(&mut self, age: Age) {
        self.context.as_mut().expect("the transaction is not over").locks.set_age(age);
    }

    /// Returns the transaction's id. No other transaction of this opening has it, nor has any other
    /// transaction that has written something.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duramen::Error;
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let stock = db.table("stock")?;
    /// let mut writer = db.begin();
    /// writer.put(&stock, b"bolts", b"40")?;
    /// let mut reader = db.begin();
    /// assert_ne!(reader.id(), writer.id());
    ///
    /// // Errors name the transaction.
    /// reader.set_lock_wait_limit(Some(Duration::ZERO));
    /// let error = reader.get(&stock, b"bolts").unwrap_err();
    /// assert!(matches!(error, Error::LockTimeout { txn, .. } if txn == reader.id()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn id(&self) -> TxnId {
        self.context().locks.txn()
    }

    /// Limits how long each later operation of this transaction waits for a lock, instead of
    /// [`crate::Options::lock_wait_limit`]. With `Some(Duration::ZERO)` operations do not wait at
    /// all (`NOWAIT`); `None` is no limit. An operation that reaches the limit returns
    /// [`Error::LockTimeout`]. [`crate::Db::run`] runs the transaction again then, but not if it
    /// does not wait at all and the calling thread has another transaction open.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duramen::{Db, Error, Options};
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// # let db = Db::open(home.path(), Options::default())?;
    /// let stock = db.create_table("stock")?;
    /// let mut first = db.begin();
    /// first.put(&stock, b"bolts", b"40")?;
    ///
    /// let mut second = db.begin();
    /// second.set_lock_wait_limit(Some(Duration::ZERO));
    /// assert!(matches!(second.get(&stock, b"bolts"), Err(Error::LockTimeout { .. })));
    /// # drop(second);
    /// # first.commit()
    /// # }
    /// ```
    pub fn set_lock_wait_limit(&mut self, limit: Option<Duration>) {
        self.context.as_mut().expect("the transaction is not over").locks.set_wait_limit(limit);
    }

    /// Returns the isolation level.
    ///
    /// ```
    /// # use duramen::Isolation;
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let txn = db.begin(); // of the level that the options say
    /// assert_eq!(txn.isolation(), Isolation::Serializable);
    /// let txn = db.begin_with(Isolation::ReadCommitted);
    /// assert_eq!(txn.isolation(), Isolation::ReadCommitted);
    /// # Ok(())
    /// # }
    /// ```
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    fn context(&self) -> &Context {
        self.context.as_ref().expect("the transaction is not over")
    }

    /// Borrows the parts that operations work with side by side.
    fn parts(&mut self) -> (&Engine, &Store, &mut Context) {
        (&self.engine, &self.engine.store, self.context.as_mut().expect("the transaction is not over"))
    }

    /// Returns an error if the transaction can only be aborted, or the database is out of service.
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.must_abort {
            self.engine.health.check_process().and(Err(Error::MustAbort))
        } else {
            self.engine.health.check()
        }
    }

    /// Records what an error means for the transaction and for the database.
    fn record_outcome<T>(&mut self, result: Result<T>) -> Result<T> {
        result.map_err(|error| {
            let harmless = matches!(
                error,
                Error::KeyExists
                    | Error::KeyNotFound
                    | Error::KeyNotAscending
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
                self.waited_for_own_thread |=
                    matches!(error, LockError::Deadlock { cycle: 0 | 1 } | LockError::Refused { of_own_thread: true });
                Err(error_of_txn)
            }
        }
    }

    /// Returns whether the transaction holds the lock in `mode` or a stronger one.
    fn holds(&self, id: LockId, mode: LockMode) -> bool {
        self.context().locks.held(id).is_some_and(|held| held.covers(mode))
    }

    /// Locks the table as a whole in an intention mode, and checks that it still exists.
    fn enter_table(&mut self, table: &Table, mode: LockMode) -> Result<Tree> {
        let tree = table.tree(&self.engine.tables)?;
        self.lock(LockId::table(tree.table), mode)?;
        table.check_not_dropped()?;
        Ok(tree)
    }

    /// Runs `work` for the database's own transactions on its catalog, which hold a lock on the
    /// catalog as a whole.
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

    /// Returns the id of the lock on the gap below `next`, or below the end of the table.
    fn gap(tree: Tree, next: Option<&[u8]>) -> LockId {
        match next {
            Some(key) => LockId::gap(tree.table, key),
            None => LockId::gap_end(tree.table),
        }
    }
}

pub(crate) fn check_key(key: &[u8]) -> Result<()> {
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
            // recovery will undo the changes.
            let _ = self.abort_now();
        }
        if self.engine.health.is_forked() {
            std::mem::forget(self.engine.clone());
        }
    }
}
