//! LMDB (through `heed`): a memory-mapped copy-on-write B+-tree with one writer at a time, which
//! its own mutex makes the others wait for.
//!
//! Durable is its default: a commit writes its pages, calls `fdatasync`, and writes the meta page
//! through a descriptor with `O_DSYNC`. Relaxed is `MDB_NOSYNC`.

use std::ops::{Bound, ControlFlow};
use std::path::Path;

use duramen_workloads::store::{Access, Connection, ScanRange, Transaction};
use duramen_workloads::{Error, Result, Store};
use heed::types::Bytes;
use heed::{AnyTls, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, RwTxn, WithTls};

use super::{Durability, Info, Isolation, Peer, foreign, is_empty};

const NAME: &str = "lmdb";
/// Most that the database can grow to; the file grows as it is used.
const MAP_BYTES: usize = 32 << 30;
const MOST_READERS: u32 = 2_048;
const MOST_TABLES: u32 = 64;

/// A table.
pub type LmdbTable = Database<Bytes, Bytes>;

/// A database of LMDB.
#[derive(Clone)]
pub struct LmdbStore(Env<WithTls>);

fn failed(error: heed::Error) -> Error {
    foreign(NAME, false, error.to_string())
}

impl Peer for LmdbStore {
    const INFO: Info = Info {
        isolation: Isolation::Serializable,
        use_: "one writer at a time; durable: its default, relaxed: MDB_NOSYNC",
    };

    fn open_with(home: &Path, durability: Durability, _: usize) -> Result<Self> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_readers(MOST_READERS).max_dbs(MOST_TABLES);
        if durability == Durability::Relaxed {
            // SAFETY: the flag endangers the database when the system crashes; that is what relaxed
            // means here.
            unsafe { options.flags(EnvFlags::NO_SYNC) };
        }
        // SAFETY: nobody else touches the files: the directory is this measurement's own.
        Ok(Self(unsafe { options.open(home) }.map_err(failed)?))
    }

    fn delete_range(&self, table: &LmdbTable, start: &[u8], end: &[u8]) -> Result<()> {
        let mut txn = self.0.write_txn().map_err(failed)?;
        let range = (Bound::Included(start), Bound::Excluded(end));
        table.delete_range(&mut txn, &range).map_err(failed)?;
        txn.commit().map_err(failed)
    }

    fn close(self) -> Result<()> {
        self.0.force_sync().map_err(failed)?;
        self.0.prepare_for_closing().wait();
        Ok(())
    }
}

impl Store for LmdbStore {
    type Table = LmdbTable;
    type Connection = LmdbConnection;

    fn engine(&self) -> &'static str {
        NAME
    }

    fn find_table(&self, name: &str) -> Result<Option<LmdbTable>> {
        let txn = self.0.read_txn().map_err(failed)?;
        let table = self.0.open_database(&txn, Some(name)).map_err(failed)?;
        // A handle outlives the transaction that opened it only if that commits.
        txn.commit().map_err(failed)?;
        Ok(table)
    }

    fn make_table(&self, name: &str) -> Result<LmdbTable> {
        let mut txn = self.0.write_txn().map_err(failed)?;
        let table = self.0.create_database(&mut txn, Some(name)).map_err(failed)?;
        txn.commit().map_err(failed)?;
        Ok(table)
    }

    fn connect(&self) -> Result<LmdbConnection> {
        Ok(LmdbConnection(self.0.clone()))
    }

    fn quiesce(&self) -> Result<()> {
        self.0.force_sync().map_err(failed)
    }
}

/// A client.
pub struct LmdbConnection(Env<WithTls>);

impl Connection for LmdbConnection {
    type Table = LmdbTable;
    type Transaction<'c> = LmdbTransaction<'c>;

    #[inline]
    fn begin(&mut self, access: Access) -> Result<LmdbTransaction<'_>> {
        Ok(match access {
            Access::ReadWrite => LmdbTransaction::Write(self.0.write_txn().map_err(failed)?),
            Access::ReadOnly | Access::ReadCommitted => LmdbTransaction::Read(self.0.read_txn().map_err(failed)?),
        })
    }
}

/// A transaction.
pub enum LmdbTransaction<'c> {
    /// Reads only.
    Read(RoTxn<'c, WithTls>),
    /// Reads and writes.
    Write(RwTxn<'c>),
}

impl<'c> LmdbTransaction<'c> {
    #[inline]
    fn reader(&self) -> &RoTxn<'c, AnyTls> {
        match self {
            Self::Read(txn) => txn,
            Self::Write(txn) => txn,
        }
    }

    #[inline]
    fn writer(&mut self) -> &mut RwTxn<'c> {
        match self {
            Self::Write(txn) => txn,
            Self::Read(_) => panic!("a transaction that only reads was told to write"),
        }
    }
}

impl Transaction for LmdbTransaction<'_> {
    type Table = LmdbTable;

    #[inline]
    fn get<R>(&mut self, table: &LmdbTable, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        Ok(table.get(self.reader(), key).map_err(failed)?.map(read))
    }

    fn get_for_update<R>(&mut self, table: &LmdbTable, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.get(table, key, read)
    }

    fn insert(&mut self, table: &LmdbTable, key: &[u8], row: &[u8]) -> Result<bool> {
        Ok(table.get_or_put(self.writer(), key, row).map_err(failed)?.is_none())
    }

    fn put(&mut self, table: &LmdbTable, key: &[u8], row: &[u8]) -> Result<()> {
        table.put(self.writer(), key, row).map_err(failed)
    }

    fn update(&mut self, table: &LmdbTable, key: &[u8], row: &[u8]) -> Result<bool> {
        if table.get(self.reader(), key).map_err(failed)?.is_none() {
            return Ok(false);
        }
        self.put(table, key, row)?;
        Ok(true)
    }

    fn delete(&mut self, table: &LmdbTable, key: &[u8]) -> Result<bool> {
        table.delete(self.writer(), key).map_err(failed)
    }

    fn scan(
        &mut self,
        table: &LmdbTable,
        range: ScanRange<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        if is_empty(&range) {
            return Ok(());
        }
        // It has no empty keys, and refuses to look for one.
        let start = if range.start.is_empty() { Bound::Unbounded } else { Bound::Included(range.start) };
        let bounds = (start, range.end.map_or(Bound::Unbounded, Bound::Excluded));
        let mut each = |entry: heed::Result<(&[u8], &[u8])>| {
            let (key, row) = entry.map_err(failed)?;
            Ok::<_, Error>(visit(key, row))
        };
        if range.backward {
            for entry in table.rev_range(self.reader(), &bounds).map_err(failed)?.take(range.limit) {
                if each(entry)?.is_break() {
                    break;
                }
            }
        } else {
            for entry in table.range(self.reader(), &bounds).map_err(failed)?.take(range.limit) {
                if each(entry)?.is_break() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn modify<R>(
        &mut self,
        table: &LmdbTable,
        key: &[u8],
        change: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Result<Option<R>> {
        let Some(mut row) = self.get(table, key, <[u8]>::to_vec)? else { return Ok(None) };
        let result = change(&mut row);
        self.put(table, key, &row)?;
        Ok(Some(result))
    }

    fn commit(self) -> Result<()> {
        match self {
            Self::Read(txn) => txn.commit().map_err(failed),
            Self::Write(txn) => txn.commit().map_err(failed),
        }
    }

    fn abort(self) -> Result<()> {
        Ok(())
    }
}
