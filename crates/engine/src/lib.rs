//! Duramen: an embeddable transactional storage engine for programs in which many threads commit
//! durably at the same time.
//!
//! A database is a directory. It holds tables of ordered byte keys with byte values. Transactions
//! are serializable, and a commit is durable when it returns.
//!
//! ```
//! # fn main() -> duramen::Result<()> {
//! # let home = tempfile::tempdir().unwrap();
//! # let path = home.path();
//! let db = duramen::Db::open(path, duramen::Options::default())?;
//! let accounts = db.create_table("accounts")?;
//!
//! let mut txn = db.begin();
//! txn.insert(&accounts, b"alice", b"100")?;
//! txn.insert(&accounts, b"bob", b"20")?;
//! txn.commit()?; // on disk now
//!
//! let mut txn = db.begin();
//! assert_eq!(txn.get(&accounts, b"alice")?.as_deref(), Some(&b"100"[..]));
//! txn.commit()?;
//! db.close()
//! # }
//! ```
//!
//! A transaction that conflicts with another one waits for it. When transactions wait for each
//! other, the youngest of them gets [`Error::Deadlock`]; it must be aborted and run again.
//! [`Db::run`] does this until the transaction commits:
//!
//! ```
//! # fn transfer(db: &duramen::Db, accounts: &duramen::Table) -> duramen::Result<()> {
//! db.run(|txn| {
//!     txn.put(accounts, b"alice", b"90")?;
//!     txn.put(accounts, b"bob", b"30")
//! })
//! # }
//! ```
//!
//! A loop around [`Db::begin`] that runs a transaction again if [`Error::is_retryable`] returns
//! true makes progress, too, in a thread that has no other transaction open. But each of its
//! attempts is a new, young transaction, so one thread may wait for a long time while other threads
//! proceed.
//!
//! An asynchronous program uses [`Db::run_async`], which holds no lock while the task is suspended.
//! A wait for a lock ends after [`Options::lock_wait_limit`] with [`Error::LockTimeout`], and
//! [`Txn::set_lock_wait_limit`] sets another limit. With [`Txn::scan_skip_locked`] workers share a
//! queue.
//!
//! With the feature `tracing`, subscribers of the `tracing` crate get spans for opening, recovery,
//! checkpoints, archiving, backup, restoring and closing, and events for what goes wrong; none for
//! single operations. Their target is `duramen`. [`Db::metrics`] counts everything else.
//!
//! A program gains by `lto = "thin"` and `codegen-units = 4` in its release profile: some functions
//! that are called for each record lie in crates below this one. Short transactions of two
//! benchmarks ran 1.16 and 1.28 times as often.
//!
//! # Promises
//! * What [`Txn::commit`] has acknowledged survives any crash: of the process, the system or the
//!   power supply.
//! * Serializable transactions are strictly serializable: they behave as if they had run one after
//!   another, without phantoms, in an order that respects real time ([`Isolation`] has the full
//!   definition).
//! * After a failed write or sync the database refuses further work until it is reopened; nothing
//!   acknowledged is lost.
//! * Damaged files are reported as [`Error::Corrupt`]; they never give wrong answers.
//!
//! # How it is built
//! No folder or file imports one that stands further down in this table, and the files of a folder
//! do not import each other in a circle.
//!
//! | folder or file | meaning |
//! |---|---|
//! | `page` | the bytes of pages |
//! | `pool` | pages in memory |
//! | `record` | what records of the log say |
//! | `region` | regions of persistent memory that belong to a database |
//! | `heap` | pages and journals in persistent memory |
//! | `pcm` | changed pages in persistent memory above a data file, which are the log, too |
//! | `scheme` | the seam to the way that changes become durable |
//! | `storage` | what trees are made of: mini-transactions, free space, large values, the catalog |
//! | `btree` | ordered keys |
//! | `lock` | the locks that transactions hold until they end |
//! | `version` | what records were before recent changes, for snapshots |
//! | `health` | whether the database is fit for use |
//! | `txn_state` | the state of each transaction: undo buffer, transaction table, deferred frees |
//! | `checkpoint` | fuzzy checkpoints, the control file that names them, generations of files |
//! | `recovery` | analysis, redo and undo after a crash |
//! | `full_log` | what a transaction does when the log has no space left |
//! | `workers` | threads that run transactions for asynchronous programs |
//! | `engine` | the parts of a database |
//! | `txn` | the operations of a transaction |
//! | `snapshot` | reading a state of the past without locks |
//! | `open` | opening or creating a database |
//! | `check` | the full structural check |
//! | `api` | the database handle |
//! | `backup`, `inspect` | backups and restoring them; inspection of a database's files, and questions to the process that has it open |
//!
//! Plain values that many of them use lie in the root: options, errors, counts; and large arrays of
//! zeros.

mod api;
mod backup;
mod btree;
mod check;
mod checkpoint;
mod engine;
mod error;
mod full_log;
mod hash;
mod health;
mod heap;
pub mod inspect;
mod lock;
mod maintenance;
mod metrics;
mod open;
mod options;
mod page;
mod pcm;
mod pool;
mod pre_block_hook;
mod progress;
mod record;
mod recovery;
mod region;
mod scheme;
mod sim_cost;
mod snapshot;
mod storage;
mod timestamp;
mod txn;
mod txn_state;
mod version;
mod workers;
mod zeroed;

pub use api::bulk_load::BulkLoad;
pub use api::compact::CompactProgress;
pub use api::db::Db;
pub use api::run_async::Running;
pub use api::tables::TableChanges;
pub use backup::point::RestoreTo;
pub use backup::restore::{Restore, RestoreReport};
pub use backup::{BackupReport, CopyProgress};
pub use check::CheckReport;
pub use error::{Error, Result};
pub use metrics::{HeapMetrics, Metrics, PcmMetrics, RecoveryReport, TierMetrics};
pub use options::{
    Archive, Barriers, BatchOptions, CommitMode, Granularity, HeapOptions, InsertDesign, Isolation, LogDevice,
    MAX_LOGS, NvmOptions, Options, Partition, PcmBasicOptions, PcmOptions, Residence, Scheme, SystemCache, TierMemory,
    TierOptions, TierPlace,
};
pub use progress::{RecoveryObserver, RecoveryPass, RecoveryProgress};
pub use snapshot::{Cursor, KeyBounds, Snapshot, SnapshotScan};
pub use storage::catalog::Table;
pub use timestamp::Timestamp;
pub use txn::{Commit, KeyRange, Savepoint, Scan, Txn, TxnCursor};

pub use duramen_io as io;
pub use duramen_pmem as pmem;
pub use duramen_types::{Gsn, LogId, Lsn, MAX_KEY_LEN, MAX_TABLE_NAME_LEN, MAX_VALUE_LEN, PageId, TableId, TxnId};
