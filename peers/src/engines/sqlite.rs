//! SQLite (through `rusqlite`, bundled): a B-tree with a write-ahead log (WAL mode) and one writer
//! at a time.
//!
//! Used as its documentation advises programs with many threads to: one connection writes, and a
//! mutex hands it around, which keeps its page cache warm and spares the writers the pauses of the
//! busy handler; each client has a connection of its own to read. A table is
//! `(k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID`; statements are prepared once for each
//! connection. Durable is `synchronous=FULL`: a commit syncs the log. Relaxed is
//! `synchronous=NORMAL`: only checkpoints sync. The bundled library is built with HAVE_FDATASYNC.

use std::ops::{ControlFlow, Deref};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use duramen_workloads::store::{Access, Connection, ScanRange, Transaction};
use duramen_workloads::{Error, Result, Store};
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, ErrorCode, OptionalExtension, Row, params};

use super::{Durability, Info, Isolation, Peer, foreign, is_empty};

const NAME: &str = "sqlite";
/// Prepared statements that a connection keeps.
const STATEMENTS: usize = 256;
/// How long a connection waits for another one where the mutex does not keep them apart.
const BUSY: Duration = Duration::from_secs(10);

/// A database of SQLite.
#[derive(Clone)]
pub struct SqliteStore(Arc<Shared>);

struct Shared {
    file: PathBuf,
    durability: Durability,
    writer: Mutex<rusqlite::Connection>,
}

/// A table: the statements for it.
pub struct Statements {
    get: String,
    insert: String,
    put: String,
    update: String,
    delete: String,
    delete_range: String,
    /// Upwards and downwards, each without an end and with one.
    scan: [[String; 2]; 2],
}

impl Statements {
    fn of(table: &str) -> Arc<Self> {
        let scan = |order: &str, end: &str| {
            format!("SELECT k, v FROM \"{table}\" WHERE k >= ?1{end} ORDER BY k {order} LIMIT ?2")
        };
        Arc::new(Self {
            get: format!("SELECT v FROM \"{table}\" WHERE k = ?1"),
            insert: format!("INSERT INTO \"{table}\" (k, v) VALUES (?1, ?2) ON CONFLICT (k) DO NOTHING"),
            put: format!("INSERT INTO \"{table}\" (k, v) VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET v = excluded.v"),
            update: format!("UPDATE \"{table}\" SET v = ?2 WHERE k = ?1"),
            delete_range: format!("DELETE FROM \"{table}\" WHERE k >= ?1 AND k < ?2"),
            delete: format!("DELETE FROM \"{table}\" WHERE k = ?1"),
            scan: ["ASC", "DESC"].map(|order| ["", " AND k < ?3"].map(|end| scan(order, end))),
        })
    }
}

fn failed(error: rusqlite::Error) -> Error {
    let retryable = matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked));
    foreign(NAME, retryable, error)
}

impl Shared {
    fn open(file: &Path, durability: Durability) -> Result<rusqlite::Connection> {
        let connection = rusqlite::Connection::open(file).map_err(failed)?;
        connection.busy_timeout(BUSY).map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        let synchronous = match durability {
            Durability::Durable => "FULL",
            Durability::Relaxed => "NORMAL",
        };
        connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
        connection.pragma_update(None, "synchronous", synchronous).map_err(failed)?;
        // Readers share the system's cache through the map; a cache of their own is void after each
        // commit of another.
        connection.pragma_update(None, "mmap_size", 8i64 << 30).map_err(failed)?;
        Ok(connection)
    }

    fn writer(&self) -> MutexGuard<'_, rusqlite::Connection> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer for SqliteStore {
    const INFO: Info = Info {
        isolation: Isolation::Serializable,
        use_: "WAL; one writing connection behind a mutex; durable: synchronous=FULL, relaxed: NORMAL",
    };

    fn open_with(home: &Path, durability: Durability, cache: usize) -> Result<Self> {
        let file = home.join("data.sqlite");
        let writer = Shared::open(&file, durability)?;
        writer.pragma_update(None, "cache_size", -(cache as i64 / 1024)).map_err(failed)?;
        Ok(Self(Arc::new(Shared { file, durability, writer: Mutex::new(writer) })))
    }

    fn delete_range(&self, table: &Arc<Statements>, start: &[u8], end: &[u8]) -> Result<()> {
        self.0.writer().execute(&table.delete_range, [start, end]).map_err(failed)?;
        Ok(())
    }

    fn close(self) -> Result<()> {
        self.quiesce()
    }
}

impl Store for SqliteStore {
    type Table = Arc<Statements>;
    type Connection = SqliteConnection;

    fn engine(&self) -> &'static str {
        NAME
    }

    fn find_table(&self, name: &str) -> Result<Option<Arc<Statements>>> {
        let found = self
            .0
            .writer()
            .query_row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1", [name], |_| Ok(()))
            .optional();
        Ok(found.map_err(failed)?.map(|()| Statements::of(name)))
    }

    fn make_table(&self, name: &str) -> Result<Arc<Statements>> {
        let create =
            format!("CREATE TABLE IF NOT EXISTS \"{name}\" (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID");
        self.0.writer().execute(&create, []).map_err(failed)?;
        Ok(Statements::of(name))
    }

    fn connect(&self) -> Result<SqliteConnection> {
        let reader = Shared::open(&self.0.file, self.0.durability)?;
        Ok(SqliteConnection { shared: self.0.clone(), reader })
    }

    fn quiesce(&self) -> Result<()> {
        self.0.writer().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(failed)
    }
}

/// A client.
pub struct SqliteConnection {
    shared: Arc<Shared>,
    reader: rusqlite::Connection,
}

impl Connection for SqliteConnection {
    type Table = Arc<Statements>;
    type Transaction<'c> = SqliteTransaction<'c>;

    fn begin(&mut self, access: Access) -> Result<SqliteTransaction<'_>> {
        let (session, begin) = match access {
            Access::ReadWrite => (Session::Writer(self.shared.writer()), "BEGIN IMMEDIATE"),
            Access::ReadOnly | Access::ReadCommitted => (Session::Reader(&self.reader), "BEGIN DEFERRED"),
        };
        let txn = SqliteTransaction { session, open: true };
        txn.statement(begin)?.execute([]).map_err(failed)?;
        Ok(txn)
    }
}

/// The connection that a transaction uses.
enum Session<'c> {
    Writer(MutexGuard<'c, rusqlite::Connection>),
    Reader(&'c rusqlite::Connection),
}

impl Deref for Session<'_> {
    type Target = rusqlite::Connection;

    fn deref(&self) -> &rusqlite::Connection {
        match self {
            Self::Writer(connection) => connection,
            Self::Reader(connection) => connection,
        }
    }
}

/// A transaction.
pub struct SqliteTransaction<'c> {
    session: Session<'c>,
    /// Whether it is still to be committed or rolled back.
    open: bool,
}

impl SqliteTransaction<'_> {
    fn statement(&self, sql: &str) -> Result<CachedStatement<'_>> {
        self.session.prepare_cached(sql).map_err(failed)
    }

    /// Runs a statement that changes at most one row; whether it did.
    fn change(&self, sql: &str, key: &[u8], row: Option<&[u8]>) -> Result<bool> {
        let mut statement = self.statement(sql)?;
        let changed = match row {
            Some(row) => statement.execute(params![key, row]),
            None => statement.execute(params![key]),
        };
        Ok(changed.map_err(failed)? == 1)
    }
}

fn blob<'r>(row: &'r Row<'_>, column: usize) -> rusqlite::Result<&'r [u8]> {
    match row.get_ref(column)? {
        ValueRef::Blob(bytes) => Ok(bytes),
        other => Err(rusqlite::Error::InvalidColumnType(column, "a blob".into(), other.data_type())),
    }
}

impl Transaction for SqliteTransaction<'_> {
    type Table = Arc<Statements>;

    fn get<R>(&mut self, table: &Arc<Statements>, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let mut statement = self.statement(&table.get)?;
        let mut rows = statement.query(params![key]).map_err(failed)?;
        match rows.next().map_err(failed)? {
            Some(row) => Ok(Some(read(blob(row, 0).map_err(failed)?))),
            None => Ok(None),
        }
    }

    fn get_for_update<R>(
        &mut self,
        table: &Arc<Statements>,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.get(table, key, read)
    }

    fn insert(&mut self, table: &Arc<Statements>, key: &[u8], row: &[u8]) -> Result<bool> {
        self.change(&table.insert, key, Some(row))
    }

    fn put(&mut self, table: &Arc<Statements>, key: &[u8], row: &[u8]) -> Result<()> {
        self.change(&table.put, key, Some(row)).map(|_| ())
    }

    fn update(&mut self, table: &Arc<Statements>, key: &[u8], row: &[u8]) -> Result<bool> {
        self.change(&table.update, key, Some(row))
    }

    fn delete(&mut self, table: &Arc<Statements>, key: &[u8]) -> Result<bool> {
        self.change(&table.delete, key, None)
    }

    fn scan(
        &mut self,
        table: &Arc<Statements>,
        range: ScanRange<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        if is_empty(&range) {
            return Ok(());
        }
        let sql = &table.scan[usize::from(range.backward)][usize::from(range.end.is_some())];
        let limit = i64::try_from(range.limit).unwrap_or(i64::MAX);
        let mut statement = self.statement(sql)?;
        let rows = match range.end {
            Some(end) => statement.query(params![range.start, limit, end]),
            None => statement.query(params![range.start, limit]),
        };
        let mut rows = rows.map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            if visit(blob(row, 0).map_err(failed)?, blob(row, 1).map_err(failed)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn commit(mut self) -> Result<()> {
        self.statement("COMMIT")?.execute([]).map_err(failed)?;
        self.open = false;
        Ok(())
    }

    fn abort(mut self) -> Result<()> {
        self.open = false;
        self.statement("ROLLBACK")?.execute([]).map_err(failed)?;
        Ok(())
    }
}

impl Drop for SqliteTransaction<'_> {
    fn drop(&mut self) {
        // Nothing is open when the transaction could not begin, or when SQLite has rolled it back
        // by itself.
        if self.open && !self.session.is_autocommit() {
            let _ = self.session.execute_batch("ROLLBACK");
        }
    }
}
