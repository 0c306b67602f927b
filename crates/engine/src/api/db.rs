//! The database handle.

use std::path::Path;

use duramen_io::{Disk, MemoryDisk, RealDisk};
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
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// # let path = home.path();
    /// let db = duramen::Db::open(path, duramen::Options::default())?;
    /// let films = db.create_table("films")?;
    /// db.run(|txn| txn.put(&films, b"Alien", b"1979"))?;
    /// drop(db); // without a close, so the next opening recovers
    ///
    /// let db = duramen::Db::open(path, duramen::Options::default())?;
    /// let films = db.open_table("films")?;
    /// assert_eq!(db.begin().get(&films, b"Alien")?.as_deref(), Some(&b"1979"[..]));
    /// # Ok(())
    /// # }
    /// ```
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
        let disk =
            RealDisk::open(path, open::files::access(&options)).map_err(|error| Error::from(error).in_opening(path))?;
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
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// use std::sync::Arc;
    ///
    /// use duramen::{Db, Options};
    /// use duramen_io::{CrashChoice, SimDisk};
    ///
    /// let disk = SimDisk::new(1);
    /// let db = Db::open_on(Arc::new(disk.clone()), Options::small())?;
    /// db.create_table("orders")?;
    ///
    /// // A power cut leaves at least what is durable.
    /// let left = disk.crash_image(&CrashChoice::Nothing);
    /// let db = Db::open_on(Arc::new(left), Options::small())?;
    /// assert_eq!(db.list()?, ["orders"]);
    /// # Ok(())
    /// # }
    /// ```
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
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let stock = db.table("stock")?;
    /// let mut txn = db.begin();
    /// txn.put(&stock, b"chairs", b"4")?;
    /// txn.commit()?;
    ///
    /// let mut txn = db.begin();
    /// txn.put(&stock, b"chairs", b"3")?;
    /// drop(txn); // without a commit, nothing of it is done
    /// assert_eq!(db.begin().get(&stock, b"chairs")?.as_deref(), Some(&b"4"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin(&self) -> Txn {
        self.begin_with(self.engine().options.isolation)
    }

    /// Begins a transaction of a given isolation level.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let prices = db.table("prices")?;
    /// let mut reader = db.begin_with(duramen::Isolation::ReadCommitted);
    /// assert_eq!(reader.get(&prices, b"bread")?, None);
    ///
    /// // A serializable reader would keep this transaction waiting.
    /// db.run(|txn| txn.put(&prices, b"bread", b"2.80"))?;
    /// assert_eq!(reader.get(&prices, b"bread")?.as_deref(), Some(&b"2.80"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin_with(&self, isolation: Isolation) -> Txn {
        Txn::begin(self.0.engine.take(), isolation)
    }

    /// Opens a snapshot: the database as it is now, without what is not durable yet. Everything
    /// that was acknowledged before is in it.
    ///
    /// After a crash under [`Options::instant_recovery`] it waits until all in-doubt transactions
    /// are rolled back.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # use duramen::{Db, Options};
    /// let db = Db::in_memory(Options { snapshots: true, ..Options::small() })?;
    /// let rooms = db.table("rooms")?;
    /// db.run(|txn| txn.put(&rooms, b"101", b"free"))?;
    /// let mut booking = db.begin();
    /// booking.put(&rooms, b"101", b"taken")?;
    ///
    /// let snapshot = db.snapshot()?; // does not wait for the booking
    /// booking.commit()?;
    /// assert_eq!(snapshot.get(&rooms, b"101")?.as_deref(), Some(&b"free"[..]));
    /// assert_eq!(db.snapshot()?.get(&rooms, b"101")?.as_deref(), Some(&b"taken"[..]));
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// # let path = home.path();
    /// # let db = duramen::Db::open(path, duramen::Options::small())?;
    /// let events = db.create_table("events")?;
    /// db.run(|txn| (0..100_u8).try_for_each(|day| txn.put(&events, &[day], b"...")))?;
    /// db.checkpoint()?;
    /// drop(db); // without a close, so the next opening recovers
    ///
    /// let db = duramen::Db::open(path, duramen::Options::small())?;
    /// assert_eq!(db.metrics().recovery.redone, 0);
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// use duramen::{Db, Options, TierOptions};
    ///
    /// # let home = tempfile::tempdir().unwrap();
    /// # let path = home.path();
    /// let page_tier = Some(TierOptions::at_home(1 << 20));
    /// Db::open(path, Options { page_tier, ..Options::small() })?.close()?;
    ///
    /// let db = Db::open(path, Options::small())?;
    /// assert!(db.metrics().page_tier.is_some()); // the database remembers it
    /// assert!(db.drain_page_tier()?);
    /// db.close()?;
    ///
    /// let db = Db::open(path, Options::small())?;
    /// assert!(db.metrics().page_tier.is_none());
    /// # Ok(())
    /// # }
    /// ```
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
    /// of the kind of memory that the log's ring ([`crate::LogDevice::Nvm`]), a page tier in
    /// memory, a heap or the memory of `pcm-logging` uses.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// use duramen::pmem::{Domain, Source, Survive};
    /// use duramen::{Db, LogDevice, NvmOptions, Options};
    ///
    /// # let home = tempfile::tempdir().unwrap();
    /// # let at = |name: &str| home.path().join(name);
    /// // An ordinary file instead of persistent memory survives the process only.
    /// let nvm = NvmOptions::new(Source::File(at("ring")), Domain::DurableCache);
    /// let log_device = LogDevice::Nvm(NvmOptions { survive: Survive::Process, ..nvm });
    /// let db = Db::open(at("db"), Options { log_device, ..Options::small() })?;
    /// let warning = db.log_shortfall().expect("the file is no persistent memory");
    /// assert!(warning.contains("not a power cut"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn log_shortfall(&self) -> Option<String> {
        self.engine().log_shortfall.clone()
    }

    /// Returns the reason why the log cannot be archived at present ([`Options::archive`]). The
    /// database stays in service, keeps the log that is not archived, and tries again; when the log
    /// reaches its limit, transactions get [`Error::Full`].
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// use duramen::{Archive, Db, Options};
    /// use duramen_io::{Fault, SimDisk};
    ///
    /// # use std::sync::Arc;
    /// let (disk, archive_disk) = (SimDisk::new(1), SimDisk::new(2));
    /// let archive = Some(Archive::on(Arc::new(archive_disk.clone())));
    /// let db = Db::open_on(Arc::new(disk), Options { archive, ..Options::small() })?;
    /// assert_eq!(db.archive_failure(), None);
    ///
    /// archive_disk.fail_at(archive_disk.operations(), Fault::Eio, true);
    /// let films = db.create_table("films")?;
    /// db.run(|txn| txn.put(&films, b"Alien", &[7; 2 << 20]))?; // more than a segment of the log
    /// db.await_archive();
    /// assert!(db.archive_failure().is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn archive_failure(&self) -> Option<String> {
        if let Err(error) = self.engine().health.check_process() {
            return Some(error.to_string());
        }
        self.engine().scheme().log()?.archive_failure()
    }

    /// Waits until all whole segments of the log are in the archive, or cannot be archived.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// use duramen::{Archive, Db, Options};
    ///
    /// # let home = tempfile::tempdir().unwrap();
    /// # let at = |name: &str| home.path().join(name);
    /// let archive = Some(Archive::at(at("archive"))?);
    /// let db = Db::open(at("db"), Options { archive, ..Options::small() })?;
    /// let films = db.create_table("films")?;
    /// db.run(|txn| txn.put(&films, b"Alien", &[7; 2 << 20]))?; // more than a segment of the log
    /// db.await_archive();
    /// assert!(db.metrics().log.segments_archived > 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn await_archive(&self) {
        if let Some(log) = self.engine().scheme().log()
            && !self.engine().health.is_forked()
        {
            log.await_archive();
        }
    }

    /// Returns what the database has done since it was opened; in a forked process, zeros.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let orders = db.create_table("orders")?;
    /// let before = db.metrics();
    /// db.run(|txn| txn.put(&orders, b"1", b"two chairs"))?;
    /// db.begin().abort()?;
    /// let after = db.metrics();
    /// assert_eq!((after.commits - before.commits, after.aborts - before.aborts), (1, 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn metrics(&self) -> Metrics {
        if self.engine().health.is_forked() {
            return Metrics::default();
        }
        metrics::of(self.engine())
    }

    /// Examines everything: every page of every table, every overflow value, and that each page is
    /// used exactly once. No transaction may write during the check.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let accounts = db.create_table("accounts")?;
    /// db.run(|txn| txn.put(&accounts, b"alice", b"100"))?;
    /// let report = db.check()?;
    /// assert_eq!((report.tables, report.records), (1, 1));
    /// assert!(report.problems.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] if the disk fails, [`Error::Closed`]. Damage is not an error of the check: the
    /// report lists it.
    pub fn check(&self) -> Result<CheckReport> {
        crate::check::check(self.engine())
    }

    /// Closes the database: writes everything out, so that the next opening has nothing to recover
    /// but transactions that have not ended: it takes their changes back. Their later calls get
    /// [`Error::Closed`].
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// # let path = home.path();
    /// let db = duramen::Db::open(path, duramen::Options::default())?;
    /// let orders = db.create_table("orders")?;
    /// let mut late = db.begin();
    /// db.close()?;
    /// let refused = late.put(&orders, b"1", b"two chairs");
    /// assert!(matches!(refused, Err(duramen::Error::Closed)));
    /// drop(late);
    ///
    /// let db = duramen::Db::open(path, duramen::Options::default())?;
    /// assert!(!db.metrics().recovery.was_needed());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Poisoned`]; the database is closed in any case, and everything
    /// acknowledged is kept. [`Error::Closed`] if it was closed before.
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
