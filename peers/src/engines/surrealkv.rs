//! SurrealKV: a log-structured merge tree with snapshots, optimistic commits, and an asynchronous
//! commit pipeline that groups the syncs of its log.
//!
//! Durable is `Durability::Immediate`; relaxed is `Durability::Eventual`. The log is preallocated,
//! as Duramen's is. Each client is a thread that blocks on the future of its commit; the store has
//! a tokio runtime for the engine's own tasks. Tables are key prefixes.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use duramen_workloads::store::{Access, Connection, ScanRange, Transaction};
use duramen_workloads::{Error, Result, Store};
use surrealkv::{Durability as Immediacy, LSMIterator, Mode, Options, ReadOptions, Tree, TreeBuilder};
use tokio::runtime::{Builder, Runtime};

use super::prefix::{self, Number};
use super::{Durability, Info, Isolation, Peer, foreign, is_empty};

const NAME: &str = "surrealkv";
/// Threads for the engine's own tasks.
const RUNTIME_THREADS: usize = 2;

/// A database of SurrealKV.
#[derive(Clone)]
pub struct SurrealkvStore(Arc<Shared>);

struct Shared {
    tree: Tree,
    runtime: Runtime,
    immediacy: Immediacy,
}

fn failed(error: surrealkv::Error) -> Error {
    let retryable = matches!(error, surrealkv::Error::TransactionWriteConflict | surrealkv::Error::TransactionRetry);
    foreign(NAME, retryable, error)
}

impl Peer for SurrealkvStore {
    const INFO: Info = Info {
        isolation: Isolation::Snapshot,
        use_: "threads that block on their commits; durable: `Durability::Immediate`, relaxed: `Durability::Eventual`",
    };

    fn open_with(home: &Path, durability: Durability, cache: usize) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(RUNTIME_THREADS)
            .enable_all()
            .build()
            .map_err(|error| foreign(NAME, false, error))?;
        let immediacy = match durability {
            Durability::Durable => Immediacy::Immediate,
            Durability::Relaxed => Immediacy::Eventual,
        };
        let tree = {
            let _inside = runtime.enter();
            // Without the last one every commit would change the size of the log file, which costs
            // a second sync.
            let options = Options::new()
                .with_path(home.to_owned())
                .with_block_cache_capacity(cache as u64)
                .with_wal_preallocation(true);
            TreeBuilder::with_options(options).build().map_err(failed)?
        };
        Ok(Self(Arc::new(Shared { tree, runtime, immediacy })))
    }

    fn close(self) -> Result<()> {
        self.0.runtime.block_on(self.0.tree.close()).map_err(failed)
    }
}

impl SurrealkvStore {
    fn begin(&self, mode: Mode) -> Result<SurrealkvTransaction<'_>> {
        let _inside = self.0.runtime.enter();
        let txn = self.0.tree.begin_with_mode(mode).map_err(failed)?.with_durability(self.0.immediacy);
        Ok(SurrealkvTransaction { shared: &self.0, txn, writes: matches!(mode, Mode::ReadWrite), key: Vec::new() })
    }
}

impl Store for SurrealkvStore {
    type Table = Number;
    type Connection = SurrealkvConnection;

    fn engine(&self) -> &'static str {
        NAME
    }

    fn find_table(&self, name: &str) -> Result<Option<Number>> {
        let mut txn = self.begin(Mode::ReadOnly)?;
        Ok(txn.get(&prefix::TABLES, name.as_bytes(), prefix::number)?.flatten())
    }

    fn make_table(&self, name: &str) -> Result<Number> {
        if let Some(number) = self.find_table(name)? {
            return Ok(number);
        }
        let mut txn = self.begin(Mode::ReadWrite)?;
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

    fn connect(&self) -> Result<SurrealkvConnection> {
        Ok(SurrealkvConnection(self.clone()))
    }

    fn quiesce(&self) -> Result<()> {
        self.0.tree.flush_wal(true).map_err(failed)
    }
}

/// A client.
pub struct SurrealkvConnection(SurrealkvStore);

impl Connection for SurrealkvConnection {
    type Table = Number;
    type Transaction<'c> = SurrealkvTransaction<'c>;

    fn begin(&mut self, access: Access) -> Result<SurrealkvTransaction<'_>> {
        self.0.begin(match access {
            Access::ReadWrite => Mode::ReadWrite,
            Access::ReadOnly | Access::ReadCommitted => Mode::ReadOnly,
        })
    }
}

/// A transaction.
pub struct SurrealkvTransaction<'c> {
    shared: &'c Shared,
    txn: surrealkv::Transaction,
    writes: bool,
    /// Where keys are put together.
    key: Vec<u8>,
}

impl Transaction for SurrealkvTransaction<'_> {
    type Table = Number;

    fn get<R>(&mut self, table: &Number, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let key = prefix::key(&mut self.key, *table, key);
        Ok(self.txn.get(key).map_err(failed)?.map(|row| read(&row)))
    }

    fn get_for_update<R>(&mut self, table: &Number, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let key = prefix::key(&mut self.key, *table, key);
        Ok(self.txn.get_for_update(key).map_err(failed)?.map(|row| read(&row)))
    }

    fn insert(&mut self, table: &Number, key: &[u8], row: &[u8]) -> Result<bool> {
        let free = self.get(table, key, |_| ())?.is_none();
        if free {
            self.put(table, key, row)?;
        }
        Ok(free)
    }

    fn put(&mut self, table: &Number, key: &[u8], row: &[u8]) -> Result<()> {
        let key = prefix::key(&mut self.key, *table, key);
        self.txn.set(key, row).map_err(failed)
    }

    fn update(&mut self, table: &Number, key: &[u8], row: &[u8]) -> Result<bool> {
        let there = self.get(table, key, |_| ())?.is_some();
        if there {
            self.put(table, key, row)?;
        }
        Ok(there)
    }

    fn delete(&mut self, table: &Number, key: &[u8]) -> Result<bool> {
        let there = self.get(table, key, |_| ())?.is_some();
        if there {
            let key = prefix::key(&mut self.key, *table, key);
            self.txn.delete(key).map_err(failed)?;
        }
        Ok(there)
    }

    fn scan(
        &mut self,
        table: &Number,
        range: ScanRange<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        if is_empty(&range) {
            return Ok(());
        }
        let (start, end) = prefix::bounds(*table, &range);
        let mut options = ReadOptions::new();
        options.set_iterate_lower_bound(Some(start));
        options.set_iterate_upper_bound(Some(end));
        let mut rows = self.txn.range_with_options(&options).map_err(failed)?;
        if range.backward { rows.seek_last() } else { rows.seek_first() }.map_err(failed)?;
        for _ in 0..range.limit {
            if !rows.valid() {
                break;
            }
            let row = rows.value().map_err(failed)?;
            if visit(&rows.key().user_key()[prefix::LEN..], &row).is_break() {
                break;
            }
            if range.backward { rows.prev() } else { rows.next() }.map_err(failed)?;
        }
        Ok(())
    }

    fn modify<R>(&mut self, table: &Number, key: &[u8], change: impl FnOnce(&mut Vec<u8>) -> R) -> Result<Option<R>> {
        // What is written need not be marked as read: conflicts of writes are found anyway.
        let own = prefix::key(&mut self.key, *table, key);
        let Some(mut row) = self.txn.get(own).map_err(failed)? else { return Ok(None) };
        let result = change(&mut row);
        self.put(table, key, &row)?;
        Ok(Some(result))
    }

    fn commit(mut self) -> Result<()> {
        if !self.writes {
            return Ok(());
        }
        self.shared.runtime.block_on(self.txn.commit()).map_err(failed)
    }

    fn abort(mut self) -> Result<()> {
        self.txn.rollback();
        Ok(())
    }
}
