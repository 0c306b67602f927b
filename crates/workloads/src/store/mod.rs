//! The interface of engines for workloads.
//!
//! The workloads are written once, against these traits, and compiled for each engine: [`Store`] is
//! an open database, [`Connection`] what one client has of it (threads may take turns),
//! [`Transaction`] a unit of work. Everything is dispatched statically. The implementation for
//! Duramen is in `duramen.rs`; other engines implement the traits in a crate of their own, and
//! prove with [`conformance`] that they keep the promises.
//!
//! What every implementation promises:
//! - Transactions are serializable (but see [`Access::ReadCommitted`]), and a commit is durable
//!   when it returns, unless the database was opened otherwise. An engine that offers less must say
//!   so with its figures; what all workloads need is that no update is lost.
//! - A transaction that is dropped is rolled back.
//! - After an error the workload only drops the transaction; after a retryable one
//!   ([`crate::Error::is_retryable`]) it begins the same work anew.
//! - Keys are ordered as byte strings.

pub mod conformance;
mod duramen;

use std::ops::ControlFlow;

use crate::error::{Error, Result};

pub use self::duramen::{DuramenConnection, DuramenTransaction, Pending};

/// An open database. Clones are handles to the same one.
pub trait Store: Clone + Send + Sync + 'static {
    /// A handle to a table: an ordered map from byte keys to byte rows.
    type Table: Clone + Send + Sync + 'static;
    /// What one client has of the database.
    type Connection: Connection<Table = Self::Table>;

    /// Returns the engine's name, for reports.
    fn engine(&self) -> &'static str;

    /// Finds the table called `name`; `None` when there is none.
    ///
    /// # Errors
    /// The engine's.
    fn find_table(&self, name: &str) -> Result<Option<Self::Table>>;

    /// Finds the table called `name`, or makes it, durably.
    ///
    /// # Errors
    /// The engine's.
    fn make_table(&self, name: &str) -> Result<Self::Table>;

    /// Connects a client.
    ///
    /// # Errors
    /// The engine's.
    fn connect(&self) -> Result<Self::Connection>;

    /// Called when a population is complete: brings the files to rest, so that the work left over
    /// from loading is not measured. Engines without such a notion do nothing.
    ///
    /// # Errors
    /// The engine's.
    fn quiesce(&self) -> Result<()>;

    /// Finds a table that must be there.
    ///
    /// # Errors
    /// [`Error::MissingTable`]; the engine's.
    fn table(&self, name: &str) -> Result<Self::Table> {
        self.find_table(name)?.ok_or_else(|| Error::MissingTable { name: name.to_owned() })
    }
}

/// What a transaction is going to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads and writes.
    ReadWrite,
    /// Reads only.
    ReadOnly,
    /// Reads only, each row as it was committed last; two reads may differ. For transactions that
    /// the specifications allow to be less than serializable, and for audits, while no transaction
    /// writes: an engine that locks need not keep locks on what was read.
    ReadCommitted,
}

/// What one client has of a database: used by one thread at a time, for one transaction at a time.
pub trait Connection: Send + 'static {
    /// The store's handle to a table.
    type Table;
    /// A transaction of this connection.
    type Transaction<'c>: Transaction<Table = Self::Table>
    where
        Self: 'c;

    /// Begins a transaction.
    ///
    /// # Errors
    /// The engine's.
    fn begin(&mut self, access: Access) -> Result<Self::Transaction<'_>>;
}

/// A unit of work. Every operation may fail with the engine's error.
#[expect(clippy::missing_errors_doc, reason = "said for all of them at once")]
pub trait Transaction: Sized {
    /// The store's handle to a table.
    type Table;

    /// Calls `read` with the row under `key` and returns what it returns; `None` when there is no
    /// such row.
    fn get<R>(&mut self, table: &Self::Table, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>>;

    /// Calls `part` with the parts of the row under `key`, in order, as the engine lends them;
    /// returns whether there is such a row. For large rows.
    fn get_in_parts(&mut self, table: &Self::Table, key: &[u8], mut part: impl FnMut(&[u8])) -> Result<bool> {
        Ok(self.get(table, key, |row| part(row))?.is_some())
    }

    /// As [`Transaction::get`], for a row that the transaction is going to change: where engines
    /// lock, it is locked for writing at once.
    fn get_for_update<R>(
        &mut self,
        table: &Self::Table,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>>;

    /// Adds a row; false, and no change, when the key is there already.
    fn insert(&mut self, table: &Self::Table, key: &[u8], row: &[u8]) -> Result<bool>;

    /// Adds or replaces a row.
    fn put(&mut self, table: &Self::Table, key: &[u8], row: &[u8]) -> Result<()>;

    /// Replaces a row; false, and no change, when the key is not there.
    fn update(&mut self, table: &Self::Table, key: &[u8], row: &[u8]) -> Result<bool>;

    /// Removes a row; false when the key is not there.
    fn delete(&mut self, table: &Self::Table, key: &[u8]) -> Result<bool>;

    /// Calls `visit` with the rows of `range` in its order, until it breaks or the range's limit is
    /// reached.
    fn scan(
        &mut self,
        table: &Self::Table,
        range: ScanRange<'_>,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Reads the row under `key` for update, lets `change` alter it, and writes it back; returns
    /// what `change` returns, `None` when there is no such row.
    fn modify<R>(
        &mut self,
        table: &Self::Table,
        key: &[u8],
        change: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Result<Option<R>> {
        let Some(mut row) = self.get_for_update(table, key, <[u8]>::to_vec)? else { return Ok(None) };
        let result = change(&mut row);
        let there = self.update(table, key, &row)?;
        assert!(there, "a row that was read for update stays");
        Ok(Some(result))
    }

    /// Makes the changes take effect; they are durable on return unless the database was opened
    /// otherwise.
    fn commit(self) -> Result<()>;

    /// Takes the changes back.
    fn abort(self) -> Result<()>;

    /// As [`Transaction::commit`], but where the engine can tell later that the changes are durable
    /// it need not wait.
    fn commit_later(self) -> Result<Pending> {
        self.commit().map(|()| Pending::default())
    }

    /// As [`Transaction::abort`], but where the engine can tell later that what was read may be
    /// acted on it need not wait.
    fn abort_later(self) -> Result<Pending> {
        self.abort().map(|()| Pending::default())
    }

    /// Commits so that it is acknowledged as the caller wants.
    #[inline]
    fn commit_for(self, acknowledge: Acknowledge) -> Result<Pending> {
        match acknowledge {
            Acknowledge::OnReturn => self.commit().map(|()| Pending::default()),
            Acknowledge::Later => self.commit_later(),
        }
    }

    /// Aborts so that it is acknowledged as the caller wants.
    #[inline]
    fn abort_for(self, acknowledge: Acknowledge) -> Result<Pending> {
        match acknowledge {
            Acknowledge::OnReturn => self.abort().map(|()| Pending::default()),
            Acknowledge::Later => self.abort_later(),
        }
    }
}

/// When a client learns that its transaction is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acknowledge {
    /// When the call returns.
    OnReturn,
    /// When the engine says so, while the thread does something else (flush pipelining; Aether,
    /// section 4).
    Later,
}

/// Which rows a scan visits, and in which order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanRange<'k> {
    /// The least key.
    pub start: &'k [u8],
    /// The key behind the greatest; `None` when there is no end.
    pub end: Option<&'k [u8]>,
    /// From the greatest key to the least.
    pub backward: bool,
    /// The most rows to visit. An engine reads and locks no further than that.
    pub limit: usize,
}

impl<'k> ScanRange<'k> {
    /// All rows, upwards.
    pub const ALL: ScanRange<'static> = ScanRange { start: &[], end: None, backward: false, limit: usize::MAX };

    /// Returns the rows from `start` up to, not including, `end`, upwards.
    pub fn new(start: &'k [u8], end: &'k [u8]) -> Self {
        Self { start, end: Some(end), backward: false, limit: usize::MAX }
    }

    /// Returns all rows from `start` on, upwards.
    pub fn from(start: &'k [u8]) -> Self {
        Self { start, ..ScanRange::ALL }
    }

    /// Returns the same rows, downwards.
    #[must_use]
    pub fn backward(self) -> Self {
        Self { backward: true, ..self }
    }

    /// Only the first `limit` of the rows.
    #[must_use]
    pub fn limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }
}

/// Runs `work` as one transaction, again while it fails in a way that running it again can mend.
pub(crate) fn transact<C: Connection, R>(
    connection: &mut C,
    access: Access,
    mut work: impl FnMut(&mut C::Transaction<'_>) -> Result<R>,
) -> Result<R> {
    loop {
        let mut txn = connection.begin(access)?;
        match work(&mut txn).and_then(|result| txn.commit().map(|()| result)) {
            Err(error) if error.is_retryable() => duramen_sync::thread::yield_now(),
            other => return other,
        }
    }
}

/// Visits every row of `table`, upwards.
pub(crate) fn for_each<T: Transaction>(
    txn: &mut T,
    table: &T::Table,
    mut visit: impl FnMut(&[u8], &[u8]),
) -> Result<()> {
    txn.scan(table, ScanRange::ALL, |key, row| {
        visit(key, row);
        ControlFlow::Continue(())
    })
}
