//! redb: a copy-on-write B+-tree with one writer at a time, which `begin_write` makes the others
//! wait for.
//!
//! Durable is `Durability::Immediate`; relaxed is `Durability::None`. Commits are not grouped: each
//! writes its pages and the header, and syncs.

use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

use duramen_workloads::store::{Access, Connection, ScanRange, Transaction};
use duramen_workloads::{Error, Result, Store};
use redb::{
    Database, Durability as Immediacy, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, Table,
    TableDefinition, TableError, TableHandle, WriteTransaction,
};

use super::{Durability, Info, Isolation, Peer, foreign, is_empty};

const NAME: &str = "redb";

type Row = &'static [u8];

/// A database of redb.
#[derive(Clone)]
pub struct RedbStore {
    db: Arc<Database>,
    immediacy: Immediacy,
}

fn failed(error: impl Into<redb::Error>) -> Error {
    foreign(NAME, false, error.into())
}

fn definition(name: &str) -> TableDefinition<'_, Row, Row> {
    TableDefinition::new(name)
}

impl Peer for RedbStore {
    const INFO: Info = Info {
        isolation: Isolation::Serializable,
        use_: "one writer at a time; durable: `Durability::Immediate`, relaxed: `Durability::None`",
    };

    fn open_with(home: &Path, durability: Durability, cache: usize) -> Result<Self> {
        let db = Database::builder().set_cache_size(cache).create(home.join("data.redb")).map_err(failed)?;
        let immediacy = match durability {
            Durability::Durable => Immediacy::Immediate,
            Durability::Relaxed => Immediacy::None,
        };
        Ok(Self { db: Arc::new(db), immediacy })
    }

    fn delete_range(&self, table: &Arc<str>, start: &[u8], end: &[u8]) -> Result<()> {
        let mut txn = self.db.begin_write().map_err(failed)?;
        txn.set_durability(self.immediacy).map_err(|error| foreign(NAME, false, error.to_string()))?;
        txn.open_table(definition(table))
            .map_err(failed)?
            .retain_in::<&[u8], _>(start..end, |_, _| false)
            .map_err(failed)?;
        txn.commit().map_err(failed)
    }

    fn close(self) -> Result<()> {
        // What was committed without durability is made durable by the next commit that is not.
        self.db.begin_write().map_err(failed)?.commit().map_err(failed)
    }
}

impl Store for RedbStore {
    type Table = Arc<str>;
    type Connection = RedbConnection;

    fn engine(&self) -> &'static str {
        NAME
    }

    fn find_table(&self, name: &str) -> Result<Option<Arc<str>>> {
        match self.db.begin_read().map_err(failed)?.open_table(definition(name)) {
            Ok(_) => Ok(Some(name.into())),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn make_table(&self, name: &str) -> Result<Arc<str>> {
        let txn = self.db.begin_write().map_err(failed)?;
        txn.open_table(definition(name)).map_err(failed)?;
        txn.commit().map_err(failed)?;
        Ok(name.into())
    }

    fn connect(&self) -> Result<RedbConnection> {
        Ok(RedbConnection(self.clone()))
    }

    fn quiesce(&self) -> Result<()> {
        Ok(())
    }
}

/// A client.
pub struct RedbConnection(RedbStore);

impl Connection for RedbConnection {
    type Table = Arc<str>;
    type Transaction<'c> = RedbTransaction;

    fn begin(&mut self, access: Access) -> Result<RedbTransaction> {
        Ok(match access {
            Access::ReadWrite => {
                let mut txn = self.0.db.begin_write().map_err(failed)?;
                txn.set_durability(self.0.immediacy).map_err(|error| foreign(NAME, false, error.to_string()))?;
                RedbTransaction::Write(Writer { tables: Vec::new(), txn: Box::new(txn) })
            }
            Access::ReadOnly | Access::ReadCommitted => {
                let txn = self.0.db.begin_read().map_err(failed)?;
                RedbTransaction::Read { tables: Vec::new(), txn }
            }
        })
    }
}

/// A transaction, with the tables that it has opened so far.
pub enum RedbTransaction {
    /// Reads only.
    #[expect(missing_docs, reason = "as for all")]
    Read { tables: Vec<ReadOnlyTable<Row, Row>>, txn: ReadTransaction },
    /// Reads and writes.
    Write(Writer),
}

/// A transaction that writes. Opening a table costs several lookups, and a table can be open only
/// once at a time, so that it stays open until the transaction ends.
pub struct Writer {
    /// They borrow from `txn`, and so come first: fields are dropped in order.
    tables: Vec<Table<'static, Row, Row>>,
    txn: Box<WriteTransaction>,
}

impl Writer {
    fn table(&mut self, name: &str) -> Result<&mut Table<'static, Row, Row>> {
        let at = match self.tables.iter().position(|table| table.name() == name) {
            Some(at) => at,
            None => {
                // SAFETY: the transaction lies in a box that is dropped, or moved out of, after all
                // tables are dropped (`Writer::end` and the order of the fields), and is reached by
                // shared references only until then.
                let txn: &'static WriteTransaction = unsafe { &*std::ptr::from_ref(&*self.txn) };
                self.tables.push(txn.open_table(definition(name)).map_err(failed)?);
                self.tables.len() - 1
            }
        };
        Ok(&mut self.tables[at])
    }

    /// Closes the tables.
    fn end(self) -> WriteTransaction {
        let Self { tables, txn } = self;
        drop(tables);
        *txn
    }
}

fn bounds<'k>(range: &ScanRange<'k>) -> (Bound<&'k [u8]>, Bound<&'k [u8]>) {
    (Bound::Included(range.start), range.end.map_or(Bound::Unbounded, Bound::Excluded))
}

fn scan_in(
    table: &impl ReadableTable<Row, Row>,
    range: ScanRange<'_>,
    mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<()> {
    if is_empty(&range) {
        return Ok(());
    }
    let mut rows = table.range::<&[u8]>(bounds(&range)).map_err(failed)?;
    for _ in 0..range.limit {
        let Some(entry) = (if range.backward { rows.next_back() } else { rows.next() }) else { break };
        let (key, row) = entry.map_err(failed)?;
        if visit(key.value(), row.value()).is_break() {
            break;
        }
    }
    Ok(())
}

impl RedbTransaction {
    fn writer(&mut self) -> &mut Writer {
        match self {
            Self::Write(writer) => writer,
            Self::Read { .. } => panic!("a transaction that only reads was told to write"),
        }
    }

    fn reader<'t>(
        tables: &'t mut Vec<ReadOnlyTable<Row, Row>>,
        txn: &ReadTransaction,
        name: &str,
    ) -> Result<&'t ReadOnlyTable<Row, Row>> {
        let at = match tables.iter().position(|table| table.name() == name) {
            Some(at) => at,
            None => {
                tables.push(txn.open_table(definition(name)).map_err(failed)?);
                tables.len() - 1
            }
        };
        Ok(&tables[at])
    }
}

impl Transaction for RedbTransaction {
    type Table = Arc<str>;

    fn get<R>(&mut self, table: &Arc<str>, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let found = match self {
            Self::Read { tables, txn } => ReadableTable::get(Self::reader(tables, txn, table)?, key),
            Self::Write(writer) => ReadableTable::get(writer.table(table)?, key),
        };
        Ok(found.map_err(failed)?.map(|row| read(row.value())))
    }

    fn get_for_update<R>(&mut self, table: &Arc<str>, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.get(table, key, read)
    }

    fn insert(&mut self, table: &Arc<str>, key: &[u8], row: &[u8]) -> Result<bool> {
        let table = self.writer().table(table)?;
        if ReadableTable::get(table, key).map_err(failed)?.is_some() {
            return Ok(false);
        }
        table.insert(key, row).map_err(failed)?;
        Ok(true)
    }

    fn put(&mut self, table: &Arc<str>, key: &[u8], row: &[u8]) -> Result<()> {
        self.writer().table(table)?.insert(key, row).map_err(failed)?;
        Ok(())
    }

    fn update(&mut self, table: &Arc<str>, key: &[u8], row: &[u8]) -> Result<bool> {
        let table = self.writer().table(table)?;
        if ReadableTable::get(table, key).map_err(failed)?.is_none() {
            return Ok(false);
        }
        table.insert(key, row).map_err(failed)?;
        Ok(true)
    }

    fn delete(&mut self, table: &Arc<str>, key: &[u8]) -> Result<bool> {
        Ok(self.writer().table(table)?.remove(key).map_err(failed)?.is_some())
    }

    fn scan(
        &mut self,
        table: &Arc<str>,
        range: ScanRange<'_>,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        match self {
            Self::Read { tables, txn } => scan_in(Self::reader(tables, txn, table)?, range, visit),
            Self::Write(writer) => scan_in(writer.table(table)?, range, visit),
        }
    }

    fn modify<R>(&mut self, table: &Arc<str>, key: &[u8], change: impl FnOnce(&mut Vec<u8>) -> R) -> Result<Option<R>> {
        let Some(mut row) = self.get(table, key, <[u8]>::to_vec)? else { return Ok(None) };
        let result = change(&mut row);
        self.put(table, key, &row)?;
        Ok(Some(result))
    }

    fn commit(self) -> Result<()> {
        match self {
            Self::Read { .. } => Ok(()),
            Self::Write(writer) => writer.end().commit().map_err(failed),
        }
    }

    fn abort(self) -> Result<()> {
        match self {
            Self::Read { .. } => Ok(()),
            Self::Write(writer) => writer.end().abort().map_err(failed),
        }
    }
}
