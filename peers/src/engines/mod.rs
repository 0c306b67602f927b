//! The engines, and what is common to their adapters.

pub mod duramen;
pub mod fjall;
pub mod lmdb;
mod prefix;
pub mod redb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
pub mod sqlite;
pub mod surrealkv;

use std::error::Error as StdError;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::str::FromStr;

use duramen_workloads::store::{Access, Connection, ScanRange, Transaction};
use duramen_workloads::{Error, Result, Store};

/// Memory that each engine may use for its cache of pages or blocks, where it has such an option.
pub const CACHE_BYTES: usize = 256 << 20;

/// What holds when a commit returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Its changes survive a loss of power.
    Durable,
    /// Nothing but what the engine promises when it does not sync commits.
    Relaxed,
}

impl Durability {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Relaxed => "relaxed",
        }
    }
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        [Self::Durable, Self::Relaxed]
            .into_iter()
            .find(|durability| durability.name() == name)
            .ok_or_else(|| "`durable` or `relaxed`".to_owned())
    }
}

/// How transactions that read and write are isolated, in the way that the adapter uses the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    /// As if they had run one after another, phantoms included.
    Serializable,
    /// Rows that are read for update are locked; phantoms, and rows that change after they were
    /// merely read, are possible.
    RowLocks,
    /// Each reads a snapshot, and of two that write the same row one fails: write skew and phantoms
    /// are possible.
    Snapshot,
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Serializable => "serializable",
            Self::RowLocks => "row locks, no protection from phantoms",
            Self::Snapshot => "snapshot isolation, write skew possible",
        })
    }
}

/// What reports say about an engine.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Isolation of its transactions.
    pub isolation: Isolation,
    /// How it is used: what keeps writers apart, and what each durability means.
    pub use_: &'static str,
}

/// What an engine counts itself.
#[derive(Clone, Copy, Debug)]
pub struct OwnCounts {
    /// How often it has made something durable.
    pub syncs: u64,
    /// Bytes written.
    pub written: u64,
}

/// An engine that can be measured.
pub trait Peer: Store {
    /// What to say about it.
    const INFO: Info;

    /// Opens the database in the directory `home`, which exists, and makes one if there is none.
    /// Its cache of pages or blocks has `cache` bytes, where the engine has such an option.
    ///
    /// # Errors
    /// The engine's.
    fn open_with(home: &Path, durability: Durability, cache: usize) -> Result<Self>;

    /// Opens a database as [`Peer::open_with`] does, with the usual cache.
    ///
    /// # Errors
    /// The engine's.
    fn open(home: &Path, durability: Durability) -> Result<Self> {
        Self::open_with(home, durability, CACHE_BYTES)
    }

    /// Opens a database, durable, whose readers shall not hold writers up ([`Peer::read_range`]).
    ///
    /// # Errors
    /// The engine's.
    fn open_for_readers(home: &Path, cache: usize) -> Result<Self> {
        Self::open_with(home, Durability::Durable, cache)
    }

    /// Closes the database. No connection is left.
    ///
    /// # Errors
    /// The engine's.
    fn close(self) -> Result<()>;

    /// Calls `visit` with all rows from `start` up to, not including, `end`, as they are at one
    /// moment: by the means that the engine recommends for reading without holding writers up.
    ///
    /// # Errors
    /// The engine's.
    fn read_range(&self, table: &Self::Table, start: &[u8], end: &[u8], mut visit: impl FnMut(&[u8])) -> Result<()> {
        let mut connection = self.connect()?;
        let mut txn = connection.begin(Access::ReadOnly)?;
        txn.scan(table, ScanRange::new(start, end), |_, row| {
            visit(row);
            ControlFlow::Continue(())
        })?;
        txn.commit()
    }

    /// Deletes all rows from `start` up to, not including, `end`, in one transaction: by the means
    /// that the engine has for it, or one by one.
    ///
    /// # Errors
    /// The engine's.
    fn delete_range(&self, table: &Self::Table, start: &[u8], end: &[u8]) -> Result<()> {
        let mut connection = self.connect()?;
        let mut txn = connection.begin(Access::ReadWrite)?;
        let mut keys = Vec::new();
        txn.scan(table, ScanRange::new(start, end), |key, _| {
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        })?;
        for key in keys {
            txn.delete(table, &key)?;
        }
        txn.commit()
    }

    /// Makes a table of rows in the order of their keys, by the means that the engine has for
    /// loading; `None` if it has none.
    ///
    /// # Errors
    /// The engine's.
    fn load_sorted(&self, name: &str, rows: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<Option<()>> {
        let _ = (name, rows);
        Ok(None)
    }

    /// How often the engine has made something durable, and how many bytes it has written, by its
    /// own count: for an engine that does it by other means than the C library's functions.
    fn own_counts(&self) -> Option<OwnCounts> {
        None
    }
}

/// An engine by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// Duramen; a few threads carry all clients and do not wait for their commits.
    Duramen,
    /// Duramen; a thread for each client, which waits for each commit.
    DuramenThreads,
    /// RocksDB.
    Rocksdb,
    /// SurrealKV.
    Surrealkv,
    /// LMDB.
    Lmdb,
    /// redb.
    Redb,
    /// fjall.
    Fjall,
    /// SQLite.
    Sqlite,
}

/// What to do with an engine once its type is known.
pub trait Visit {
    /// What comes of it.
    type Output;

    /// Does it.
    fn visit<P: Peer>(self) -> Self::Output;
}

impl Engine {
    /// All that this program was built with.
    pub const ALL: &[Self] = &[
        Self::Duramen,
        Self::DuramenThreads,
        #[cfg(feature = "rocksdb")]
        Self::Rocksdb,
        Self::Surrealkv,
        Self::Lmdb,
        Self::Redb,
        Self::Fjall,
        Self::Sqlite,
    ];

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Duramen => "duramen",
            Self::DuramenThreads => "duramen-threads",
            Self::Rocksdb => "rocksdb",
            Self::Surrealkv => "surrealkv",
            Self::Lmdb => "lmdb",
            Self::Redb => "redb",
            Self::Fjall => "fjall",
            Self::Sqlite => "sqlite",
        }
    }

    /// Engines that share a database's files: the same engine, driven in another way.
    pub fn family(self) -> &'static str {
        match self {
            Self::DuramenThreads => Self::Duramen.name(),
            other => other.name(),
        }
    }

    /// Number of threads that carry `clients` clients.
    pub fn threads(self, clients: u32) -> u32 {
        match self {
            Self::Duramen => std::thread::available_parallelism().map_or(1, |n| n.get() as u32).min(clients),
            _ => clients,
        }
    }

    /// Calls `visit` with the engine's type.
    pub fn visit<V: Visit>(self, visit: V) -> V::Output {
        match self {
            Self::Duramen | Self::DuramenThreads => visit.visit::<::duramen::Db>(),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => visit.visit::<rocksdb::RocksdbStore>(),
            #[cfg(not(feature = "rocksdb"))]
            Self::Rocksdb => unreachable!("it cannot be named"),
            Self::Surrealkv => visit.visit::<surrealkv::SurrealkvStore>(),
            Self::Lmdb => visit.visit::<lmdb::LmdbStore>(),
            Self::Redb => visit.visit::<redb::RedbStore>(),
            Self::Fjall => visit.visit::<fjall::FjallStore>(),
            Self::Sqlite => visit.visit::<sqlite::SqliteStore>(),
        }
    }

    /// What to say about it.
    pub fn info(self) -> Info {
        struct Tell;
        impl Visit for Tell {
            type Output = Info;
            fn visit<P: Peer>(self) -> Info {
                P::INFO
            }
        }
        let info = self.visit(Tell);
        match self {
            Self::DuramenThreads => Info { use_: duramen::USE_OF_THREADS, ..info },
            _ => info,
        }
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        if let Some(engine) = Self::ALL.iter().find(|engine| engine.name() == name) {
            return Ok(*engine);
        }
        if name == Self::Rocksdb.name() {
            return Err("build with `--features rocksdb` for it".to_owned());
        }
        let names: Vec<&str> = Self::ALL.iter().map(|engine| engine.name()).collect();
        Err(format!("one of {}", names.join(", ")))
    }
}

/// An engine's answer as an error of the workloads.
fn foreign(engine: &'static str, retryable: bool, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
    Error::Foreign { engine, retryable, source: source.into() }
}

/// Whether nothing can lie in the range. Some engines do not like to be asked for such.
fn is_empty(range: &ScanRange<'_>) -> bool {
    range.limit == 0 || range.end.is_some_and(|end| end <= range.start)
}
