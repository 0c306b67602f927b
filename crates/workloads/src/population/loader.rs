//! Writes the rows of one portion.
//!
//! Row `portion N` (N a big-endian u64) of the `meta` table, little-endian: number of the portion's
//! rows that are there u64, state u64 (0 being loaded, 1 complete).

use std::ops::Range;

use super::state::LoadState;
use crate::error::{Error, Result};
use crate::store::{Access, Store, Transaction, transact};

/// Takes the rows of a portion and writes them in batches, behind those that are there already.
pub(crate) struct Loader<'l, S: Store> {
    connection: S::Connection,
    meta: &'l S::Table,
    shared: &'l LoadState,
    portion: u64,
    /// Rows of the portion that are written, or that wait to be.
    given: u64,
    /// Rows of the portion that were there when its loading began.
    present: u64,
    bytes: Vec<u8>,
    batch: Vec<Pending<S::Table>>,
}

/// A row that waits to be written; its key and value lie in the loader's buffer.
struct Pending<T> {
    table: T,
    key: Range<usize>,
    end: usize,
}

impl<'l, S: Store> Loader<'l, S> {
    /// Rows written by one transaction.
    pub(super) const BATCH: usize = 1_000;

    pub(super) fn new(store: &S, meta: &'l S::Table, shared: &'l LoadState) -> Result<Self> {
        let (connection, bytes, batch) = (store.connect()?, Vec::new(), Vec::with_capacity(Self::BATCH));
        Ok(Self { connection, meta, shared, portion: 0, given: 0, present: 0, bytes, batch })
    }

    /// Begins a portion; false when all of it is there.
    pub(super) fn begin(&mut self, portion: u64) -> Result<bool> {
        let key = progress_key(portion);
        let found = transact(&mut self.connection, Access::ReadOnly, |txn| {
            txn.get(self.meta, &key, |row| <[u8; 16]>::try_from(row).ok())
        })?;
        let row = match found {
            None => [0; 16],
            Some(Some(row)) => row,
            Some(None) => {
                let reason = format!("the progress row of portion {portion} of the population has the wrong length");
                return Err(Error::Damaged { reason });
            }
        };
        let (numbers, _) = row.as_chunks::<8>();
        (self.portion, self.given, self.present) = (portion, 0, u64::from_le_bytes(numbers[0]));
        self.shared.found(self.present);
        Ok(u64::from_le_bytes(numbers[1]) == 0)
    }

    /// Adds a row.
    pub(crate) fn put(&mut self, table: &S::Table, key: &[u8], row: &[u8]) -> Result<()> {
        self.given += 1;
        if self.given <= self.present {
            return Ok(());
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let key = start..self.bytes.len();
        self.bytes.extend_from_slice(row);
        self.batch.push(Pending { table: table.clone(), key, end: self.bytes.len() });
        if self.batch.len() >= Self::BATCH { self.flush(false) } else { Ok(()) }
    }

    /// Writes what is left, and that the portion is complete.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.flush(true)
    }

    fn flush(&mut self, complete: bool) -> Result<()> {
        // Once another loader has failed, rows are dropped: what was written of the portion stays a
        // beginning of it.
        if !self.shared.stopped() {
            let (bytes, batch, meta) = (&self.bytes, &self.batch, self.meta);
            let mut progress = [0; 16];
            progress[..8].copy_from_slice(&self.given.to_le_bytes());
            progress[8] = u8::from(complete);
            let key = progress_key(self.portion);
            transact(&mut self.connection, Access::ReadWrite, |txn| {
                for Pending { table, key, end } in batch {
                    txn.put(table, &bytes[key.clone()], &bytes[key.end..*end])?;
                }
                txn.put(meta, &key, &progress)
            })?;
            self.shared.wrote(self.batch.len() as u64);
        }
        self.batch.clear();
        self.bytes.clear();
        Ok(())
    }
}

fn progress_key(portion: u64) -> [u8; 16] {
    let mut key = *b"portion         ";
    key[8..].copy_from_slice(&portion.to_be_bytes());
    key
}
