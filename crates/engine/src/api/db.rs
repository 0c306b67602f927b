//! The database handle.

use std::path::Path;

use duramen_io::{Backend, Disk, MemoryDisk, RealDisk, RealDiskOptions};
use duramen_sync::{Arc, OnceLock, Reference, References};

use super::answerer::Answerer;
use super::metrics;
use crate::check::CheckReport;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::open;
use crate::options::{Isolation, Options};
use crate::snapshot::Snapshot;
use crate::txn::Txn;

use duramen_types::span;

/// An open database. Cheap to clone; shared by any number of threads.
///
/// It belongs to the process that opened it. In a child that this process forks, every call returns
/// [`Error::Forked`]; dropping the inherited handles has no effect on the database and frees no
/// memory. (This holds for children that the C library's `fork` makes, not for those of a bare
/// system call.) The directory stays locked as long as the process that opened it has it open; if
/// this process is killed, the lock lasts as long as one of its children lives that has not started
/// another program. A child must not open any database if its parent had one open at the fork:
/// threads that exist only in the parent may hold locks of this process's libraries in the child's
/// memory. Fork first, or start another program.
///
/// Dropping the last handle without [`Db::close`] stops the database without a clean shutdown;
/// nothing acknowledged is lost, and the next opening recovers.
#[derive(Clone, Debug)]
pub struct Db(Arc<Opened>);

/// Stops the background threads when the last handle is dropped.
#[derive(Debug)]
struct Opened {
    /// Gives its name back before the database can be opened again.
    answerer: OnceLock<Answerer>,
    engine: References<Engine>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.engine.health.is_forked() {
            // When dropped, the parts of the database would write, and would wait for threads that
            // do not exist in this process.
            std::mem::forget(self.answerer.take());
            return std::mem::forget(Arc::clone(&self.engine));
        }
        self.engine.stop();
        if let Some(answerer) = self.answerer.get() {
            answerer.stop();
        }
    }
}

impl Db {
    /// Opens the database in the directory `path`, or creates one if the directory is empty or
    /// missing. Recovers the database if it was not closed.
    ///
    /// # Errors
    /// [`Error::AlreadyOpen`] if another opener has the database open; [`Error::NotADatabase`],
    /// [`Error::WrongVersion`] and [`Error::Corrupt`] if the directory cannot be opened as a
    /// database; [`Error::InvalidOption`], [`Error::OpenFailed`].
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        options.validate()?;
        let path = open::named(path.as_ref())?;
        // Checked before the directory is created.
        open::check_places(path, &options.clone().resolved())?;
        if !options.create && !path.exists() {
            return Err(Error::NotADatabase { path: path.into(), reason: "the directory does not exist".into() });
        }
        let backend = if options.io_uring { Backend::Auto } else { Backend::Syscalls };
        let disk = RealDisk::open(path, RealDiskOptions { backend, direct: options.direct_io })
            .map_err(|error| Error::from(error).in_opening(path))?;
        Self::open_on(Arc::new(disk), options)
    }

    /// Creates an empty database in memory, for tests and caches: it vanishes with its last handle
    /// and its last transaction. It behaves as one on disk, with the same locks, logs and errors.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let table = db.table("t")?;
    /// db.run(|txn| txn.put(&table, b"key", b"value"))
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidOption`], also if the options name persistent memory, an archive, or a page
    /// tier in a directory; [`Error::OpenFailed`].
    pub fn in_memory(options: Options) -> Result<Self> {
        Self::open_on(Arc::new(MemoryDisk::empty()), options)
    }

    /// Opens the database as [`Db::open`] does, on any kind of disk.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Self> {
        let (path, home) = (disk.location(), disk.directory().filter(|_| options.answers_questions));
        let engine = References::new(open::open(disk, options).map_err(|error| error.in_opening(path))?);
        let db = Self(Arc::new(Opened { engine, answerer: OnceLock::new() }));
        if let Some(answerer) = home.and_then(|home| Answerer::start(&home, Arc::downgrade(db.engine()))) {
            db.0.answerer.set(answerer).expect("there is no other one yet");
        }
        Ok(db)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0.engine
    }

    pub(super) fn begin_reference(&self) -> Reference<Engine> {
        self.0.engine.take()
    }

    /// Begins a transaction of the database's isolation level. The transaction takes no resources
    /// until it is used. (If the database cannot be used, the transaction's calls return the
    /// error.)
    pub fn begin(&self) -> Txn {
        self.begin_with(self.engine().options.isolation)
    }

    /// Begins a transaction of a given isolation level.
    pub fn begin_with(&self, isolation: Isolation) -> Txn {
        Txn::begin(self.0.engine.take(), isolation)
    }

    /// Opens a snapshot: the database as it is now, without what is not durable yet. Everything
    /// that was acknowledged before is in it.
    ///
    /// After a crash under [`Options::instant_recovery`] it waits until all in-doubt transactions
    /// are rolled back.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if [`Options::snapshots`] is off; [`Error::Closed`],
    /// [`Error::Poisoned`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::open(self.0.engine.take())
    }

    /// Takes a checkpoint now: writes dirty pages out and recycles the log. Transactions continue
    /// during the checkpoint.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Poisoned`].
    pub fn checkpoint(&self) -> Result<()> {
        self.engine().health.check_process()?;
        self.engine().checkpoint_clean()
    }

    /// Writes the pages of the page tier to the data file, and removes the tier
    /// ([`crate::Options::page_tier`]). Transactions continue, but no page is written for them
    /// meanwhile. Returns whether there was a tier.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the tier has a damaged page; the other pages are then in the data
    /// file, and the database stays in service. [`Error::Io`] and [`Error::Poisoned`]; the tier is
    /// then still needed.
    pub fn drain_page_tier(&self) -> Result<bool> {
        let engine = self.engine();
        engine.health.check_process()?;
        open::tier::drain(&engine.store.pool, &engine.disk, &engine.options, &engine.control)
    }

    /// Returns a warning for people if acknowledged commits survive less than a power cut, because
    /// of the kind of memory that the log's ring uses ([`crate::LogDevice::Nvm`]).
    pub fn log_shortfall(&self) -> Option<String> {
        self.engine().log_shortfall.clone()
    }

    /// Returns the reason why the log cannot be archived at present ([`Options::archive`]). The
    /// database stays in service, keeps the log that is not archived, and tries again; when the log
    /// reaches its limit, transactions get [`Error::Full`].
    pub fn archive_failure(&self) -> Option<String> {
        if let Err(error) = self.engine().health.check_process() {
            return Some(error.to_string());
        }
        self.engine().scheme().log()?.archive_failure()
    }

    /// Waits until all whole segments of the log are in the archive, or cannot be archived.
    pub fn await_archive(&self) {
        if let Some(log) = self.engine().scheme().log()
            && !self.engine().health.is_forked()
        {
            log.await_archive();
        }
    }

    /// Returns what the database has done since it was opened; in a forked process, zeros.
    pub fn metrics(&self) -> Metrics {
        if self.engine().health.is_forked() {
            return Metrics::default();
        }
        metrics::of(self.engine())
    }

    /// Examines everything: every page of every table, every overflow value, and that each page is
    /// used exactly once. No transaction may write during the check.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk fails, [`Error::Closed`]. Damage is not an error of the check: the
    /// report lists it.
    pub fn check(&self) -> Result<CheckReport> {
        crate::check::check(self.engine())
    }

    /// Closes the database: writes everything out, so that the next opening has nothing to recover.
    /// Transactions that have not ended lose their changes; their later calls get
    /// [`Error::Closed`].
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Poisoned`]; the database is closed in any case, and everything
    /// acknowledged is kept.
    pub fn close(self) -> Result<()> {
        let engine = self.engine();
        engine.health.check_process()?;
        if engine.health.is_closed() {
            return Err(Error::Closed);
        }
        let _span = span!("close", database = engine.disk.location());
        if let Some(answerer) = self.0.answerer.get() {
            answerer.close();
        }
        engine.versions.end_all();
        let written = engine.checkpoint_clean();
        engine.stop();
        if let Some(answerer) = self.0.answerer.get() {
            // It has the engine as long as it answers.
            answerer.stop();
        }
        written.and(engine.scheme().close())?;
        engine.generations().close()
    }
}
