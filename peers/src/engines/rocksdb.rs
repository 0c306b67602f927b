//! RocksDB (`TransactionDB`): a log-structured merge tree with pessimistic transactions and a group
//! commit of its log.
//!
//! Rows that are read for update are locked, with deadlock detection; transactions that only read
//! have a snapshot. Durable is `WriteOptions::sync`; relaxed is its default. Tables are key
//! prefixes.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use duramen_workloads::store::{Access, Connection, ScanRange, Transaction};
use duramen_workloads::{Error, Result, Store};
use rocksdb::{
    BlockBasedOptions, Cache, DBAccess, DBRawIteratorWithThreadMode, ErrorKind, Options, ReadOptions,
    SnapshotWithThreadMode, TransactionDB, TransactionDBOptions, TransactionOptions, WriteOptions,
};

use super::prefix::{self, Number};
use super::{Durability, Info, Isolation, Peer, foreign, is_empty};

const NAME: &str = "rocksdb";
/// Longest wait for a lock, in milliseconds; deadlocks are found at once.
const LOCK_WAIT_MILLIS: i64 = 10_000;
const WRITE_BUFFER_BYTES: usize = 64 << 20;

/// A database of RocksDB.
#[derive(Clone)]
pub struct RocksdbStore {
    db: Arc<TransactionDB>,
    durability: Durability,
}

fn failed(error: rocksdb::Error) -> Error {
    let retryable = matches!(error.kind(), ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain);
    foreign(NAME, retryable, error)
}

impl Peer for RocksdbStore {
    const INFO: Info =
        Info { isolation: Isolation::RowLocks, use_: "TransactionDB; durable: `WriteOptions::sync`, relaxed: without" };

    fn open_with(home: &Path, durability: Durability, cache: usize) -> Result<Self> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_write_buffer_size(WRITE_BUFFER_BYTES);
        options.increase_parallelism(std::thread::available_parallelism().map_or(1, |n| n.get() as i32));
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(cache));
        blocks.set_bloom_filter(10.0, false);
        options.set_block_based_table_factory(&blocks);
        let mut locks = TransactionDBOptions::default();
        locks.set_txn_lock_timeout(LOCK_WAIT_MILLIS);
        locks.set_default_lock_timeout(LOCK_WAIT_MILLIS);
        let db = TransactionDB::open(&options, &locks, home).map_err(failed)?;
        Ok(Self { db: Arc::new(db), durability })
    }

    fn close(self) -> Result<()> {
        self.db.flush_wal(true).map_err(failed)
    }
}

impl RocksdbStore {
    fn begin(&self, access: Access) -> RocksdbTransaction<'_> {
        let kind = match access {
            Access::ReadWrite => {
                let mut write = WriteOptions::default();
                write.set_sync(self.durability == Durability::Durable);
                let mut options = TransactionOptions::default();
                options.set_deadlock_detect(true);
                Kind::Write(self.db.transaction_opt(&write, &options))
            }
            Access::ReadOnly | Access::ReadCommitted => Kind::Read(self.db.snapshot()),
        };
        RocksdbTransaction { kind, key: Vec::new() }
    }
}

impl Store for RocksdbStore {
    type Table = Number;
    type Connection = RocksdbConnection;

    fn engine(&self) -> &'static str {
        NAME
    }

    fn find_table(&self, name: &str) -> Result<Option<Number>> {
        let mut txn = self.begin(Access::ReadOnly);
        Ok(txn.get(&prefix::TABLES, name.as_bytes(), prefix::number)?.flatten())
    }

    fn make_table(&self, name: &str) -> Result<Number> {
        if let Some(number) = self.find_table(name)? {
            return Ok(number);
        }
        let mut txn = self.begin(Access::ReadWrite);
        let mut tables = 0;
        txn.scan(&prefix::TABLES, ScanRange::ALL, |_, _| {
            tables += 1;
            ControlFlow::Continue(())
        })?;
        let number: Number = tables + 1;
        txn.put(&prefix::TABLES, name.as_bytes(), &number.to_be_bytes())?;
        txn.commit()?;
        Ok(number)
    }

    fn connect(&self) -> Result<RocksdbConnection> {
        Ok(RocksdbConnection(self.clone()))
    }

    fn quiesce(&self) -> Result<()> {
        self.db.flush().map_err(failed)
    }
}

/// A client.
pub struct RocksdbConnection(RocksdbStore);

impl Connection for RocksdbConnection {
    type Table = Number;
    type Transaction<'c> = RocksdbTransaction<'c>;

    fn begin(&mut self, access: Access) -> Result<RocksdbTransaction<'_>> {
        Ok(self.0.begin(access))
    }
}

/// A transaction.
pub struct RocksdbTransaction<'c> {
    kind: Kind<'c>,
    /// Where keys are put together.
    key: Vec<u8>,
}

enum Kind<'c> {
    Read(SnapshotWithThreadMode<'c, TransactionDB>),
    Write(rocksdb::Transaction<'c, TransactionDB>),
}

impl<'c> RocksdbTransaction<'c> {
    fn writer(&self) -> &rocksdb::Transaction<'c, TransactionDB> {
        match &self.kind {
            Kind::Write(txn) => txn,
            Kind::Read(_) => panic!("a transaction that only reads was told to write"),
        }
    }
}

fn scan_with<D: DBAccess>(
    mut rows: DBRawIteratorWithThreadMode<'_, D>,
    (start, end): (&[u8], &[u8]),
    range: &ScanRange<'_>,
    mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<()> {
    if range.backward {
        rows.seek_for_prev(end);
        if rows.key() == Some(end) {
            rows.prev();
        }
    } else {
        rows.seek(start);
    }
    for _ in 0..range.limit {
        let Some((key, row)) = rows.item() else { break };
        if !(start..end).contains(&key) || visit(&key[prefix::LEN..], row).is_break() {
            break;
        }
        if range.backward { rows.prev() } else { rows.next() }
    }
    rows.status().map_err(failed)
}

impl Transaction for RocksdbTransaction<'_> {
    type Table = Number;

    fn get<R>(&mut self, table: &Number, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let key = prefix::key(&mut self.key, *table, key);
        let row = match &self.kind {
            Kind::Read(snapshot) => snapshot.get_pinned(key),
            Kind::Write(txn) => txn.get_pinned(key),
        };
        Ok(row.map_err(failed)?.map(|row| read(&row)))
    }

    fn get_for_update<R>(&mut self, table: &Number, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        prefix::key(&mut self.key, *table, key);
        let row = self.writer().get_pinned_for_update(&self.key, true).map_err(failed)?;
        Ok(row.map(|row| read(&row)))
    }

    fn insert(&mut self, table: &Number, key: &[u8], row: &[u8]) -> Result<bool> {
        let free = self.get_for_update(table, key, |_| ())?.is_none();
        if free {
            self.put(table, key, row)?;
        }
        Ok(free)
    }

    fn put(&mut self, table: &Number, key: &[u8], row: &[u8]) -> Result<()> {
        prefix::key(&mut self.key, *table, key);
        self.writer().put(&self.key, row).map_err(failed)
    }

    fn update(&mut self, table: &Number, key: &[u8], row: &[u8]) -> Result<bool> {
        let there = self.get_for_update(table, key, |_| ())?.is_some();
        if there {
            self.put(table, key, row)?;
        }
        Ok(there)
    }

    fn delete(&mut self, table: &Number, key: &[u8]) -> Result<bool> {
        let there = self.get_for_update(table, key, |_| ())?.is_some();
        if there {
            self.writer().delete(&self.key).map_err(failed)?;
        }
        Ok(there)
    }

    fn scan(
        &mut self,
        table: &Number,
        range: ScanRange<'_>,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        if is_empty(&range) {
            return Ok(());
        }
        let (start, end) = prefix::bounds(*table, &range);
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(start.clone());
        options.set_iterate_upper_bound(end.clone());
        match &self.kind {
            Kind::Read(snapshot) => scan_with(snapshot.raw_iterator_opt(options), (&start, &end), &range, visit),
            Kind::Write(txn) => scan_with(txn.raw_iterator_opt(options), (&start, &end), &range, visit),
        }
    }

    fn modify<R>(&mut self, table: &Number, key: &[u8], change: impl FnOnce(&mut Vec<u8>) -> R) -> Result<Option<R>> {
        let Some(mut row) = self.get_for_update(table, key, <[u8]>::to_vec)? else { return Ok(None) };
        let result = change(&mut row);
        self.put(table, key, &row)?;
        Ok(Some(result))
    }

    fn commit(self) -> Result<()> {
        match self.kind {
            Kind::Read(_) => Ok(()),
            Kind::Write(txn) => txn.commit().map_err(failed),
        }
    }

    fn abort(self) -> Result<()> {
        match self.kind {
            Kind::Read(_) => Ok(()),
            Kind::Write(txn) => txn.rollback().map_err(failed),
        }
    }
}
