//! Duramen as a [`Store`].

use std::ops::{Bound, ControlFlow};

use duramen::{Commit, Db, Error as EngineError, Isolation, Table, Txn};

use super::{Access, Connection, ScanRange, Store, Transaction};
use crate::error::Result;

impl Store for Db {
    type Table = Table;
    type Connection = DuramenConnection;

    fn engine(&self) -> &'static str {
        "duramen"
    }

    fn find_table(&self, name: &str) -> Result<Option<Table>> {
        match self.open_table(name) {
            Ok(table) => Ok(Some(table)),
            Err(EngineError::NoSuchTable { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn make_table(&self, name: &str) -> Result<Table> {
        match self.create_table(name) {
            Err(EngineError::TableExists { .. }) => Ok(self.open_table(name)?),
            other => Ok(other?),
        }
    }

    fn connect(&self) -> Result<DuramenConnection> {
        Ok(DuramenConnection(self.clone()))
    }

    fn quiesce(&self) -> Result<()> {
        Ok(self.checkpoint()?)
    }
}

/// A client of a Duramen database.
#[derive(Clone, Debug)]
pub struct DuramenConnection(Db);

impl Connection for DuramenConnection {
    type Table = Table;
    type Transaction<'c> = DuramenTransaction;

    #[inline]
    fn begin(&mut self, access: Access) -> Result<DuramenTransaction> {
        Ok(DuramenTransaction(match access {
            Access::ReadWrite | Access::ReadOnly => self.0.begin(),
            Access::ReadCommitted => self.0.begin_with(Isolation::ReadCommitted),
        }))
    }
}

/// A transaction of a Duramen database.
#[derive(Debug)]
pub struct DuramenTransaction(Txn);

impl Transaction for DuramenTransaction {
    type Table = Table;

    #[inline]
    fn get<R>(&mut self, table: &Table, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        Ok(self.0.get_with(table, key, read)?)
    }

    fn get_in_parts(&mut self, table: &Table, key: &[u8], mut part: impl FnMut(&[u8])) -> Result<bool> {
        let found = self.0.get_in_parts(table, key, |bytes| {
            part(bytes);
            ControlFlow::Continue(())
        });
        Ok(found?.is_some())
    }

    #[inline]
    fn get_for_update<R>(&mut self, table: &Table, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        Ok(self.0.get_for_update_with(table, key, read)?)
    }

    #[inline]
    fn insert(&mut self, table: &Table, key: &[u8], row: &[u8]) -> Result<bool> {
        match self.0.insert(table, key, row) {
            Ok(()) => Ok(true),
            Err(EngineError::KeyExists) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    #[inline]
    fn put(&mut self, table: &Table, key: &[u8], row: &[u8]) -> Result<()> {
        Ok(self.0.put(table, key, row)?)
    }

    #[inline]
    fn update(&mut self, table: &Table, key: &[u8], row: &[u8]) -> Result<bool> {
        match self.0.update(table, key, row) {
            Ok(()) => Ok(true),
            Err(EngineError::KeyNotFound) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    #[inline]
    fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        Ok(self.0.delete(table, key)?)
    }

    #[inline]
    fn scan(
        &mut self,
        table: &Table,
        range: ScanRange<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let bounds = (Bound::Included(range.start), range.end.map_or(Bound::Unbounded, Bound::Excluded));
        let mut cursor = if range.backward { self.0.cursor_rev(table, bounds) } else { self.0.cursor(table, bounds) };
        for _ in 0..range.limit {
            match cursor.next()? {
                Some((key, row)) if visit(key, row).is_continue() => {}
                _ => break,
            }
        }
        Ok(())
    }

    #[inline]
    fn modify<R>(&mut self, table: &Table, key: &[u8], change: impl FnOnce(&mut Vec<u8>) -> R) -> Result<Option<R>> {
        let Some(mut row) = self.0.get_for_update(table, key)? else { return Ok(None) };
        let result = change(&mut row);
        self.0.update(table, key, &row)?;
        Ok(Some(result))
    }

    #[inline]
    fn commit(self) -> Result<()> {
        Ok(self.0.commit()?)
    }

    #[inline]
    fn abort(self) -> Result<()> {
        Ok(self.0.abort()?)
    }

    #[inline]
    fn commit_later(self) -> Result<Pending> {
        Pending::of(self.0.commit_async())
    }

    #[inline]
    fn abort_later(self) -> Result<Pending> {
        Pending::of(self.0.abort_async())
    }
}

/// A pending acknowledgement, or none. Only Duramen has pending acknowledgements.
#[derive(Debug, Default)]
#[must_use = "the transaction is acknowledged when this says so"]
pub struct Pending(Option<Commit>);

impl Pending {
    #[inline]
    fn of(commit: Commit) -> Result<Self> {
        if commit.is_done() {
            commit.wait()?;
            return Ok(Self(None));
        }
        Ok(Self(Some(commit)))
    }

    /// Returns whether there was nothing to wait for.
    #[inline]
    pub fn is_nothing(&self) -> bool {
        self.0.is_none()
    }

    /// Returns whether [`Pending::wait`] would return at once.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.0.as_ref().is_none_or(Commit::is_done)
    }

    /// Blocks until the acknowledgement is there.
    ///
    /// # Errors
    /// The engine's.
    pub fn wait(self) -> Result<()> {
        Ok(self.0.map_or(Ok(()), Commit::wait)?)
    }
}
