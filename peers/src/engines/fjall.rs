//! fjall: a log-structured merge tree with optimistic transactions, which detect at their commits
//! what others have changed of what they have read.
//!
//! Durable is `PersistMode::SyncData` for each transaction; relaxed is `PersistMode::Buffer`.
//! Commits are checked and written one at a time.

use std::ops::{Bound, ControlFlow};
use std::path::Path;

use duramen_workloads::store::{Access, Connection, ScanRange, Transaction};
use duramen_workloads::{Error, Result, Store};
use fjall::{
    KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, OptimisticWriteTx, PersistMode, Readable,
    Snapshot,
};

use super::{Durability, Info, Isolation, Peer, foreign, is_empty};

const NAME: &str = "fjall";

/// A database of fjall.
#[derive(Clone)]
pub struct FjallStore {
    db: OptimisticTxDatabase,
    mode: PersistMode,
}

fn failed(error: fjall::Error) -> Error {
    foreign(NAME, false, error)
}

impl Peer for FjallStore {
    const INFO: Info = Info {
        isolation: Isolation::Serializable,
        use_: "optimistic transactions; durable: `PersistMode::SyncData`, relaxed: `PersistMode::Buffer`",
    };

    fn open_with(home: &Path, durability: Durability, cache: usize) -> Result<Self> {
        let db = OptimisticTxDatabase::builder(home).cache_size(cache as u64).open().map_err(failed)?;
        let mode = match durability {
            Durability::Durable => PersistMode::SyncData,
            Durability::Relaxed => PersistMode::Buffer,
        };
        Ok(Self { db, mode })
    }

    fn close(self) -> Result<()> {
        self.db.persist(PersistMode::SyncAll).map_err(failed)
    }
}

impl Store for FjallStore {
    type Table = OptimisticTxKeyspace;
    type Connection = FjallConnection;

    fn engine(&self) -> &'static str {
        NAME
    }

    fn find_table(&self, name: &str) -> Result<Option<OptimisticTxKeyspace>> {
        if self.db.keyspace_exists(name) { self.make_table(name).map(Some) } else { Ok(None) }
    }

    fn make_table(&self, name: &str) -> Result<OptimisticTxKeyspace> {
        self.db.keyspace(name, KeyspaceCreateOptions::default).map_err(failed)
    }

    fn connect(&self) -> Result<FjallConnection> {
        Ok(FjallConnection(self.clone()))
    }

    fn quiesce(&self) -> Result<()> {
        self.db.persist(PersistMode::SyncAll).map_err(failed)
    }
}

/// A client.
pub struct FjallConnection(FjallStore);

impl Connection for FjallConnection {
    type Table = OptimisticTxKeyspace;
    type Transaction<'c> = FjallTransaction;

    fn begin(&mut self, access: Access) -> Result<FjallTransaction> {
        Ok(match access {
            Access::ReadWrite => {
                let txn = self.0.db.write_tx().map_err(failed)?;
                FjallTransaction::Write(Box::new(txn.durability(Some(self.0.mode))))
            }
            Access::ReadOnly | Access::ReadCommitted => FjallTransaction::Read(self.0.db.read_tx()),
        })
    }
}

/// A transaction.
pub enum FjallTransaction {
    /// Reads only.
    Read(Snapshot),
    /// Reads and writes.
    Write(Box<OptimisticWriteTx>),
}

impl FjallTransaction {
    fn writer(&mut self) -> &mut OptimisticWriteTx {
        match self {
            Self::Write(txn) => txn,
            Self::Read(_) => panic!("a transaction that only reads was told to write"),
        }
    }

    fn is_there(&self, table: &OptimisticTxKeyspace, key: &[u8]) -> Result<bool> {
        match self {
            Self::Read(txn) => txn.contains_key(table, key),
            Self::Write(txn) => txn.contains_key(table, key),
        }
        .map_err(failed)
    }
}

impl Transaction for FjallTransaction {
    type Table = OptimisticTxKeyspace;

    fn get<R>(&mut self, table: &OptimisticTxKeyspace, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let row = match self {
            Self::Read(txn) => txn.get(table, key),
            Self::Write(txn) => txn.get(table, key),
        };
        Ok(row.map_err(failed)?.map(|row| read(&row)))
    }

    fn get_for_update<R>(
        &mut self,
        table: &OptimisticTxKeyspace,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.get(table, key, read)
    }

    fn insert(&mut self, table: &OptimisticTxKeyspace, key: &[u8], row: &[u8]) -> Result<bool> {
        let free = !self.is_there(table, key)?;
        if free {
            self.writer().insert(table, key, row);
        }
        Ok(free)
    }

    fn put(&mut self, table: &OptimisticTxKeyspace, key: &[u8], row: &[u8]) -> Result<()> {
        self.writer().insert(table, key, row);
        Ok(())
    }

    fn update(&mut self, table: &OptimisticTxKeyspace, key: &[u8], row: &[u8]) -> Result<bool> {
        let there = self.is_there(table, key)?;
        if there {
            self.writer().insert(table, key, row);
        }
        Ok(there)
    }

    fn delete(&mut self, table: &OptimisticTxKeyspace, key: &[u8]) -> Result<bool> {
        let there = self.is_there(table, key)?;
        if there {
            self.writer().remove(table, key);
        }
        Ok(there)
    }

    fn scan(
        &mut self,
        table: &OptimisticTxKeyspace,
        range: ScanRange<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        if is_empty(&range) {
            return Ok(());
        }
        let bounds = (Bound::Included(range.start), range.end.map_or(Bound::Unbounded, Bound::Excluded));
        let mut rows = match self {
            Self::Read(txn) => txn.range::<&[u8], _>(table, bounds),
            Self::Write(txn) => txn.range::<&[u8], _>(table, bounds),
        };
        for _ in 0..range.limit {
            let Some(entry) = (if range.backward { rows.next_back() } else { rows.next() }) else { break };
            let (key, row) = entry.into_inner().map_err(failed)?;
            if visit(&key, &row).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn modify<R>(
        &mut self,
        table: &OptimisticTxKeyspace,
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
            Self::Read(_) => Ok(()),
            Self::Write(txn) => txn.commit().map_err(failed)?.map_err(|conflict| foreign(NAME, true, conflict)),
        }
    }

    fn abort(self) -> Result<()> {
        if let Self::Write(txn) = self {
            txn.rollback();
        }
        Ok(())
    }
}
