//! Online backup, and restoring a database from a backup.
//!
//! # Backup
//! A backup is a deferred crash: it holds the data file as it was at different moments, and the log
//! that turns this into the state of one moment. After a checkpoint, the backup reads the pages of
//! the data file while other threads write pages. A page that is caught in the middle of a write
//! fails its checksum and is read again while no thread writes. Then the backup hardens everything
//! logged so far and copies the log, from the beginning of the part that the checkpoint needs. By
//! the WAL rule no page in the copy has a change that is not in that log. So recovery from the
//! checkpoint produces the state at the end of that log, as after a crash at that moment.
//! Transactions run all the time; the log is not recycled meanwhile.
//!
//! The manifest comes last, by a rename. A directory without it is no backup.
//!
//! # Restore
//! See [`restore`].

mod manifest;
pub(crate) mod point;
pub(crate) mod restore;

use std::path::Path;

use duramen_io::{AlignedBuf, Disk, DiskError, OpenMode, RealDisk, RealDiskOptions};
use duramen_sync::atomic::AtomicBool;
use duramen_sync::clock::Instant;
use duramen_types::{Gsn, Lsn, PAGE_SIZE, PageId, planted, span};
use duramen_wal::{LogDevice, LogHold};

use crate::api::db::Db;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::maintenance::Maintenance;
use crate::open::files::{DATA, clear, first_log, named};
use crate::pool::PoolError;
use crate::scheme::LogService;
use crate::timestamp::Timestamp;
use manifest::{BACKUP, BACKUP_NEW, Manifest};

/// Number of pages copied at a time.
const CHUNK_PAGES: u64 = 128;

/// The progress of a backup or a restore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyProgress {
    /// Bytes of pages and log copied so far.
    pub copied: u64,
    /// Total bytes of pages. The bytes of the log come in addition.
    pub pages: u64,
}

/// The contents of a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BackupReport {
    /// The earliest point that the backup can be restored to: it includes all records before this
    /// GSN. With more log, any later point can be restored.
    pub end: Gsn,
    /// Pages copied.
    pub pages: u64,
    /// Pages that were read again because they were being written.
    pub read_again: u64,
    /// Bytes of log copied.
    pub log_bytes: u64,
    /// The times at which the backup was begun and complete.
    pub times: (Timestamp, Timestamp),
    /// Duration of the backup, in microseconds.
    pub micros: u64,
}

impl Db {
    /// Copies the database into the directory `path` while transactions run. The directory is
    /// created if necessary, and must otherwise be empty. Remains of an interrupted backup in it
    /// are replaced.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// use duramen::{Db, Options, Restore};
    ///
    /// # let home = tempfile::tempdir().unwrap();
    /// # let at = |name: &str| home.path().join(name);
    /// let db = Db::open(at("db"), Options::small())?;
    /// db.create_table("orders")?;
    /// db.backup(at("backup"), |_| {})?;
    /// db.create_table("invoices")?; // later than the backup
    ///
    /// Restore::from(at("backup"))?.into_directory(at("restored"), |_| {})?;
    /// let restored = Db::open(at("restored"), Options::small())?;
    /// assert_eq!(restored.list()?, ["orders"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for an empty path, and for schemes without a log in files;
    /// [`Error::NotEmpty`], [`Error::AlreadyOpen`] for the target; [`Error::CopyFailed`] when the
    /// copy cannot be written, which does not affect the database; [`Error::Corrupt`] for a damaged
    /// page; those of a checkpoint.
    pub fn backup(&self, path: impl AsRef<Path>, progress: impl FnMut(CopyProgress)) -> Result<BackupReport> {
        self.engine().health.check_process()?;
        log_to_copy(self.engine())?;
        let disk = RealDisk::open(named(path.as_ref())?, RealDiskOptions::default()).map_err(failed)?;
        self.backup_to(&disk, progress)
    }

    /// Copies the database as [`Db::backup`] does, to any kind of disk.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # use std::sync::Arc;
    /// use duramen_io::SimDisk;
    ///
    /// # let options = duramen::Options::small();
    /// # let db = duramen::Db::open_on(Arc::new(SimDisk::new(1)), options)?;
    /// let (backup, mut copied) = (SimDisk::new(2), 0);
    /// let report = db.backup_to(&backup, |progress| copied = progress.copied)?;
    /// assert!(report.pages > 0 && copied > 0);
    /// // The next backup needs an empty disk.
    /// let again = db.backup_to(&backup, |_| {});
    /// assert!(matches!(again, Err(duramen::Error::NotEmpty { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Db::backup`].
    pub fn backup_to(&self, disk: &dyn Disk, mut progress: impl FnMut(CopyProgress)) -> Result<BackupReport> {
        let (engine, started) = (&**self.engine(), Instant::now());
        let _span = span!("backup", to = disk.location());
        engine.health.check()?;
        let log = log_to_copy(engine)?;
        let _lock = disk.lock().map_err(failed)?;
        prepare(disk)?;
        let copier = Copier { engine, disk };
        let begun = Timestamp::now();
        // Redo may rebuild pages that cannot be read.
        engine.finish_redo(&AtomicBool::new(false))?;
        // Before the checkpoint, so that no log that the checkpoint needs is recycled.
        let hold = log.hold_logs();
        engine.checkpoint()?;
        let control = engine.control.lock().control;
        let from = log.positions_before(control.oldest);
        hold.keep_from(&from);
        let early = planted!(BackupForgetsLog).then(|| copier.copy_logs(log, &hold, &from, &mut |_| {}));
        let pages = engine.store.pool.pages_in_store();
        let data_bytes = pages * PAGE_SIZE as u64;
        let read_again = copier.copy_pages(pages, &mut |copied| {
            hold.note_progress();
            progress(CopyProgress { copied, pages: data_bytes });
        })?;
        let (end, ends) = early.unwrap_or_else(|| {
            let progress = &mut |copied| progress(CopyProgress { copied: data_bytes + copied, pages: data_bytes });
            copier.copy_logs(log, &hold, &from, progress)
        })?;
        drop(hold);
        let complete = Timestamp::now();
        let parts: Vec<(Lsn, Lsn)> = from.into_iter().zip(ends).collect();
        let log_bytes = parts.iter().map(|(from, end)| end.get() - from.get()).sum();
        let manifest = Manifest { control, end, data_bytes, begun, complete, parts };
        manifest.write(disk).map_err(of_copy)?;
        Ok(BackupReport {
            end: manifest.end,
            pages,
            read_again,
            log_bytes,
            times: (begun, complete),
            micros: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
        })
    }
}

/// Copies files of an open database into a directory.
struct Copier<'a> {
    engine: &'a Engine,
    disk: &'a dyn Disk,
}

impl Copier<'_> {
    /// Copies the pages that are in the data file; returns how many had to be read again.
    fn copy_pages(&self, pages: u64, progress: &mut dyn FnMut(u64)) -> Result<u64> {
        let copy = self.disk.open(DATA, OpenMode::CreateNew).map_err(failed)?;
        copy.set_len(pages * PAGE_SIZE as u64).map_err(failed)?;
        let mut buffer = AlignedBuf::zeroed(CHUNK_PAGES as usize * PAGE_SIZE);
        let (mut at, mut read_again) = (0, 0);
        while at < pages {
            self.engine.health.check()?;
            let count = CHUNK_PAGES.min(pages - at);
            let bytes = &mut buffer[..count as usize * PAGE_SIZE];
            read_again +=
                self.engine.store.pool.read_whole_pages(PageId::new(at), bytes).map_err(|error| match error {
                    PoolError::Disk(error) => failed(error),
                    other => other.into(),
                })?;
            // A page that was never written stays a hole.
            if bytes.iter().any(|byte| *byte != 0) {
                copy.write_at(&[bytes], at * PAGE_SIZE as u64).map_err(failed)?;
            }
            at += count;
            progress(at * PAGE_SIZE as u64);
        }
        copy.sync().map_err(failed)?;
        Ok(read_again)
    }

    /// Hardens everything logged so far and copies each log from its position on. Returns the GSN
    /// up to which records count, and the ends of the copies.
    fn copy_logs(
        &self,
        log: &dyn LogService,
        hold: &LogHold,
        from: &[Lsn],
        progress: &mut dyn FnMut(u64),
    ) -> Result<(Gsn, Vec<Lsn>)> {
        let last = log.harden_all().map_err(|error| self.engine.note(error))?;
        let end = Gsn::new(last.get() + 1);
        let ends = log.ends_before(end).map_err(|error| self.engine.note(error))?;
        hold.copy_to(self.disk, from, &ends, progress).map_err(|error| match of_copy(error.into()) {
            failed @ Error::CopyFailed { .. } => failed,
            other => self.engine.note(other),
        })?;
        Ok((end, ends))
    }
}

/// Returns the log of a database that can be copied while it is open.
fn log_to_copy(engine: &Engine) -> Result<&dyn LogService> {
    let refused = |reason: &str| Error::InvalidOption { option: "backup", reason: reason.to_owned() };
    if matches!(&engine.options.log_device, LogDevice::Nvm(nvm) if nvm.stays) {
        return Err(refused(
            "the log of `pcm-basic` stays in persistent memory, and has no segments to copy: close the database and \
             copy its directory together with its memory",
        ));
    }
    engine.scheme().log().ok_or_else(|| {
        refused(
            "a copy of an open database needs a log, which this storage scheme does not keep: close the database and \
             copy its directory together with its heap",
        )
    })
}

/// Marks the directory of a backup that is being taken. The directory must be empty, or hold the
/// remains of an interrupted backup.
fn prepare(disk: &dyn Disk) -> Result<()> {
    let prepared = || -> Result<()> {
        let log = first_log(disk)?;
        if disk.exists(BACKUP_NEW)? && !disk.exists(BACKUP)? {
            return clear(disk);
        }
        let mut found = disk.list("")?.into_iter().chain(log);
        if let Some(name) = found.next() {
            return Err(Error::NotEmpty { path: disk.location().into(), found: name });
        }
        disk.open(BACKUP_NEW, OpenMode::CreateNew)?;
        Ok(disk.sync_directory("")?)
    };
    prepared().map_err(of_copy)
}

/// Returns the error for a failed disk that a copy is read from or written to. The failure does not
/// affect the database.
fn failed(error: DiskError) -> Error {
    match Error::from(error) {
        Error::Io { reason } | Error::Full { reason } | Error::TooManyFiles { reason } => Error::CopyFailed { reason },
        other => other,
    }
}

/// Converts an error of the engine as [`failed`] converts an error of the disk.
fn of_copy(error: Error) -> Error {
    match error {
        Error::Io { reason } | Error::Full { reason } | Error::TooManyFiles { reason } => Error::CopyFailed { reason },
        other => other,
    }
}
