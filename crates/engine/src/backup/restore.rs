//! Restores a database from a backup, the log archive and the remaining log.
//!
//! A restore performs no recovery. It creates a directory that looks as if the database had crashed
//! when its log ended at the requested point: the backup's pages, the log up to the point, and a
//! control file that names the checkpoint before the backup. The first opening recovers this
//! database like any other: it repeats changes, and rolls back transactions that had not committed.
//!
//! The result is another database with an identity of its own, because its history differs from
//! that of the original from now on (`duramen_wal::LogPieces`). Neither database accepts the log of
//! the other, and the new one needs an archive of its own.
//!
//! The restore first finds the end of each log: see [`super::point`].
//!
//! # Interrupted
//! A file `restoring` marks the target; the control file comes last. A target without a control
//! file is no database, and the next restore starts over.

use std::path::Path;

use duramen_io::{AlignedBuf, Disk, MemoryDisk, OpenMode, RealDisk, RealDiskOptions};
use duramen_sync::Arc;
use duramen_types::{Gsn, LogId, Lsn, PAGE_SIZE, PageId, span};
use duramen_wal::{LogPart, LogPieces, Pieces, WalError};

use super::manifest::Manifest;
use super::point::{Point, RestoreTo};
use super::{CHUNK_PAGES, CopyProgress, of_copy};
use crate::checkpoint::control::{CONTROL, Control, ControlFile, SeveralLogs};
use crate::error::{Error, Result};
use crate::open::files::{DATA, DOUBLE_WRITE, LOG, clear, first_log, named, new_identity};
use crate::page::{self, DatabaseTag, PageDefect};
use crate::pool::Stamp;
use crate::timestamp::Timestamp;

/// Name of the file that marks a directory to which a database is being restored.
const RESTORING: &str = "restoring";

/// A restore to be carried out.
///
/// ```no_run
/// # fn main() -> duramen::Result<()> {
/// use duramen::{Db, Options, Restore, RestoreTo};
/// let to = RestoreTo::Time("2026-11-21T15:28:34Z".parse()?);
/// Restore::from("backup")?.archive("archive")?.to(to).into_directory("restored", |_| {})?;
/// let db = Db::open("restored", Options { create: false, ..Options::default() })?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Restore {
    backup: Arc<dyn Disk>,
    archive: Option<Arc<dyn Disk>>,
    log: Option<Arc<dyn Disk>>,
    to: RestoreTo,
}

/// The result of a restore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The end of the restored log: it has every record before this GSN.
    pub end: Gsn,
    /// Commits in the replayed log after the end of the backup.
    pub commits: u64,
    /// The time of the last commit, if the log has it.
    pub last_commit: Option<Timestamp>,
    /// Pages of the backup.
    pub pages: u64,
    /// Bytes of log.
    pub log_bytes: u64,
    /// The times at which the backup was begun and complete.
    pub backup: (Timestamp, Timestamp),
}

impl Restore {
    /// Prepares a restore of the backup in the directory `path`.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// use duramen::{Db, Error, Options, Restore};
    ///
    /// # let home = tempfile::tempdir().unwrap();
    /// # let at = |name: &str| home.path().join(name);
    /// # let db = Db::open(at("db"), Options::small())?;
    /// # db.create_table("films")?;
    /// db.backup(at("backup"), |_| {})?;
    /// Restore::from(at("backup"))?.into_directory(at("restored"), |_| {})?;
    /// let restored = Db::open(at("restored"), Options::small())?;
    /// assert_eq!(restored.list()?, ["films"]);
    ///
    /// assert!(matches!(Restore::from(at("nowhere")), Err(Error::NotABackup { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotABackup`] when there is no such directory; [`Error::InvalidOption`] for an empty
    /// path.
    pub fn from(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self::from_disk(existing(path.as_ref(), "backup")?))
    }

    /// Prepares a restore of the backup in `disk`.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # use std::sync::Arc;
    /// use duramen::{Db, Options, Restore};
    /// use duramen_io::SimDisk;
    ///
    /// # let db = Db::open_on(Arc::new(SimDisk::new(1)), Options::small())?;
    /// let (backup, target) = (SimDisk::new(2), SimDisk::new(3));
    /// db.create_table("films")?;
    /// db.backup_to(&backup, |_| {})?;
    /// Restore::from_disk(Arc::new(backup)).into_disk(&target, |_| {})?;
    ///
    /// let restored = Db::open_on(Arc::new(target), Options::small())?;
    /// assert_eq!(restored.list()?, ["films"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_disk(disk: Arc<dyn Disk>) -> Self {
        Self { backup: disk, archive: None, log: None, to: RestoreTo::End }
    }

    /// Adds the log archive in the directory `path`. The database may still write to the archive
    /// meanwhile.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// use duramen::{Archive, Db, Options, Restore};
    ///
    /// # let home = tempfile::tempdir().unwrap();
    /// # let at = |name: &str| home.path().join(name);
    /// let archive = Some(Archive::at(at("archive"))?);
    /// let db = Db::open(at("db"), Options { archive, ..Options::small() })?;
    /// # let films = db.create_table("films")?;
    /// db.backup(at("backup"), |_| {})?;
    /// db.create_table("events")?; // later than the backup
    /// # db.run(|txn| txn.put(&films, b"Alien", &[7; 2 << 20]))?;
    /// db.await_archive(); // the archive has whole segments of the log
    ///
    /// let restore = Restore::from(at("backup"))?.archive(at("archive"))?;
    /// restore.into_directory(at("restored"), |_| {})?;
    /// let restored = Db::open(at("restored"), Options::small())?;
    /// assert!(restored.list()?.contains(&"events".to_owned()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotABackup`] when there is no such directory; [`Error::InvalidOption`] for an empty
    /// path.
    pub fn archive(self, path: impl AsRef<Path>) -> Result<Self> {
        Ok(self.archive_on(existing(path.as_ref(), "archive")?))
    }

    /// Adds the log archive in `disk`.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # use std::sync::Arc;
    /// use duramen::{Archive, Db, Options, Restore};
    /// use duramen_io::SimDisk;
    ///
    /// let [disk, archive_disk, backup, target] = [1, 2, 3, 4].map(SimDisk::new);
    /// let archive = Some(Archive::on(Arc::new(archive_disk.clone())));
    /// let db = Db::open_on(Arc::new(disk), Options { archive, ..Options::small() })?;
    /// # let films = db.create_table("films")?;
    /// db.backup_to(&backup, |_| {})?;
    /// db.create_table("visits")?; // later than the backup
    /// # db.run(|txn| txn.put(&films, b"Alien", &[7; 2 << 20]))?;
    /// db.await_archive();
    ///
    /// let restore = Restore::from_disk(Arc::new(backup)).archive_on(Arc::new(archive_disk));
    /// restore.into_disk(&target, |_| {})?;
    /// let restored = Db::open_on(Arc::new(target), Options::small())?;
    /// assert!(restored.list()?.contains(&"visits".to_owned()));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn archive_on(self, disk: Arc<dyn Disk>) -> Self {
        Self { archive: Some(disk), ..self }
    }

    /// Adds the log that is left in the database's own directory `path`: it has the latest commits,
    /// which are not in the archive yet. No process may have the database open.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// use duramen::{Db, Options, Restore};
    ///
    /// # let home = tempfile::tempdir().unwrap();
    /// # let at = |name: &str| home.path().join(name);
    /// # let db = Db::open(at("db"), Options::small())?;
    /// db.backup(at("backup"), |_| {})?;
    /// db.create_table("orders")?; // later than the backup
    /// drop(db);
    /// std::fs::remove_file(at("db").join("data")).unwrap(); // the pages are lost, not the log
    ///
    /// let restore = Restore::from(at("backup"))?.log(at("db"))?;
    /// restore.into_directory(at("restored"), |_| {})?;
    /// let restored = Db::open(at("restored"), Options::small())?;
    /// assert_eq!(restored.list()?, ["orders"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotABackup`] when there is no such directory; [`Error::InvalidOption`] for an empty
    /// path.
    pub fn log(self, path: impl AsRef<Path>) -> Result<Self> {
        Ok(self.log_on(existing(path.as_ref(), "database")?))
    }

    /// Adds the remaining log as [`Restore::log`] does, from `disk`.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # use std::sync::Arc;
    /// use duramen::{Db, Options, Restore};
    /// use duramen_io::SimDisk;
    ///
    /// let [disk, backup, target] = [1, 2, 3].map(SimDisk::new);
    /// let db = Db::open_on(Arc::new(disk.clone()), Options::small())?;
    /// db.backup_to(&backup, |_| {})?;
    /// db.create_table("invoices")?; // later than the backup
    /// db.close()?;
    ///
    /// let restore = Restore::from_disk(Arc::new(backup)).log_on(Arc::new(disk));
    /// restore.into_disk(&target, |_| {})?;
    /// let restored = Db::open_on(Arc::new(target), Options::small())?;
    /// assert_eq!(restored.list()?, ["invoices"]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn log_on(self, disk: Arc<dyn Disk>) -> Self {
        Self { log: Some(disk), ..self }
    }

    /// Sets the point to restore to.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # use std::sync::Arc;
    /// # use duramen_io::SimDisk;
    /// use duramen::{Db, Options, Restore, RestoreTo};
    ///
    /// # let [disk, backup, target] = [1, 2, 3].map(SimDisk::new);
    /// # let db = Db::open_on(Arc::new(disk.clone()), Options::small())?;
    /// # db.backup_to(&backup, |_| {})?;
    /// db.create_table("accounts")?;
    /// let before = db.metrics().log.end_gsn;
    /// db.drop_table("accounts")?; // by mistake
    /// db.close()?;
    ///
    /// let restore = Restore::from_disk(Arc::new(backup)).log_on(Arc::new(disk));
    /// restore.to(RestoreTo::Gsn(before)).into_disk(&target, |_| {})?;
    /// let restored = Db::open_on(Arc::new(target), Options::small())?;
    /// assert_eq!(restored.list()?, ["accounts"]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn to(self, to: RestoreTo) -> Self {
        Self { to, ..self }
    }

    /// Creates the database in the directory `path`. The directory is created if necessary.
    /// Otherwise it must be empty, or hold the remains of an interrupted restore. The database
    /// exists when this returns; its first opening recovers it.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// use duramen::{Db, Error, Options, Restore};
    ///
    /// # let home = tempfile::tempdir().unwrap();
    /// # let at = |name: &str| home.path().join(name);
    /// # let db = Db::open(at("db"), Options::small())?;
    /// # db.backup(at("backup"), |_| {})?;
    /// let restore = Restore::from(at("backup"))?;
    /// restore.clone().into_directory(at("restored"), |_| {})?;
    /// Db::open(at("restored"), Options { create: false, ..Options::small() })?.close()?;
    ///
    /// // It does not replace a database.
    /// let again = restore.into_directory(at("restored"), |_| {});
    /// assert!(matches!(again, Err(Error::NotEmpty { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::NotABackup`], [`Error::NotEmpty`], [`Error::AlreadyOpen`]: the source or the
    ///   target cannot be used.
    /// - [`Error::BeforeBackup`], [`Error::BehindLog`], [`Error::LogGap`]: the point cannot be
    ///   restored from the available pieces.
    /// - [`Error::Corrupt`], [`Error::WrongVersion`], [`Error::NotADatabase`] for pieces that
    ///   cannot be used.
    /// - [`Error::CopyFailed`] when a disk fails or is full.
    pub fn into_directory(self, path: impl AsRef<Path>, progress: impl FnMut(CopyProgress)) -> Result<RestoreReport> {
        let disk =
            RealDisk::open(named(path.as_ref())?, RealDiskOptions::default()).map_err(|error| of_copy(error.into()))?;
        self.into_disk(&disk, progress)
    }

    /// Creates the database as [`Restore::into_directory`] does, on any kind of disk.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # use std::sync::Arc;
    /// use duramen::{Db, Options, Restore};
    /// use duramen_io::SimDisk;
    ///
    /// # let db = Db::open_on(Arc::new(SimDisk::new(1)), Options::small())?;
    /// let (backup, target) = (SimDisk::new(2), SimDisk::new(3));
    /// let copied = db.backup_to(&backup, |_| {})?;
    /// let restored = Restore::from_disk(Arc::new(backup)).into_disk(&target, |_| {})?;
    /// assert_eq!((restored.end, restored.commits), (copied.end, 0));
    ///
    /// let db = Db::open_on(Arc::new(target), Options { create: false, ..Options::small() })?;
    /// assert!(db.check()?.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Restore::into_directory`].
    pub fn into_disk(self, target: &dyn Disk, progress: impl FnMut(CopyProgress)) -> Result<RestoreReport> {
        self.run(target, progress).map_err(of_copy)
    }

    fn run(&self, target: &dyn Disk, mut progress: impl FnMut(CopyProgress)) -> Result<RestoreReport> {
        let _span = span!("restore", to = target.location());
        let _target = target.lock()?;
        check_target(target)?;
        let _log = self.log.as_ref().map(|log| log.lock()).transpose()?;
        let manifest = Manifest::read(&*self.backup)?;
        if let Some(archive) = &self.archive
            && !archive.exists(LOG)?
        {
            let reason =
                format!("it is no log archive, because it has no directory `{LOG}`: is its file system mounted?");
            return Err(Error::NotABackup { path: archive.location().into(), reason });
        }
        let pieces = Pieces { backup: &*self.backup, archive: self.archive.as_deref(), log: self.log.as_deref() };
        let control = manifest.control;
        let parts = (0..).zip(&manifest.parts).map(|(log, &(start, end))| LogPart {
            log: LogId::new(log),
            count: control.logs.count,
            start,
            end,
        });
        let left = self.control_of_log(&control)?;
        let cut = left.filter(|left| left.logs.is_cutting).map(|left| left.logs.complete);
        let chains = parts
            .map(|part| {
                let hardened = left.map_or(Lsn::ZERO, |left| left.hardened(part.log));
                let chain = LogPieces::open(&pieces, control.database, part).map_err(|error| self.explain(error))?;
                Ok(if self.to == RestoreTo::End { chain.to_the_end(hardened, cut) } else { chain })
            })
            .collect::<Result<Vec<_>>>()?;
        if let (Some(log), Some(missing)) = (&self.log, chains.iter().find(|chain| !chain.has_log())) {
            let reason =
                format!("it lacks {}; put it back, or restore without the log in this directory", missing.log());
            return Err(Error::NotADatabase { path: log.location().into(), reason });
        }
        // Before anything is written, so that a point that cannot be restored leaves no trace.
        let point = match &chains[..] {
            [only] => Point::of_one(only, manifest.end, self.to)?,
            several => Point::of_several(several, manifest.end, self.to, cut)?,
        };

        let total = manifest.data_bytes;
        check_pages(&*self.backup, total)?;

        mark(target)?;
        let stamp = Stamp { database: new_identity(target), generation: 1 };
        let tag = DatabaseTag::of(&stamp.database);
        copy_pages(&*self.backup, target, tag, total, |copied| progress(CopyProgress { copied, pages: total }))?;
        target.open(DOUBLE_WRITE, OpenMode::CreateNew)?;
        stamp.write(&*target.open(DATA, OpenMode::Existing)?)?;
        let Stamp { database, generation } = stamp;
        let mut before = total;
        for (chain, end) in chains.iter().zip(&point.ends) {
            let mut written = 0;
            chain.write_to(target, database, *end, |bytes| {
                written = bytes;
                progress(CopyProgress { copied: before + bytes, pages: total });
            })?;
            before += written;
        }
        target.sync_directory("")?;
        // Several logs have been cut, so opening must not expect the records after the cut that
        // sync records name.
        let logs = match control.logs.count {
            1 => control.logs,
            _ => SeveralLogs { complete: Gsn::new(point.end.get() - 1), is_cutting: true, ..control.logs },
        };
        // A backup has the pages of a tier in its copy of the data file.
        let restored = Control { database, logs, generation, is_clean: false, has_tier: false, ..control };
        ControlFile::create(target, restored)?;
        target.remove(RESTORING)?;
        target.sync_directory("")?;
        Ok(RestoreReport {
            end: point.end,
            commits: point.commits,
            last_commit: point.last_commit,
            pages: total / PAGE_SIZE as u64,
            log_bytes: before - total,
            backup: (manifest.begun, manifest.complete),
        })
    }

    /// Returns what the control file beside the given log says. With one log, the log can do
    /// without it.
    fn control_of_log(&self, of: &Control) -> Result<Option<Control>> {
        let Some(log) = &self.log else { return Ok(None) };
        let refuse = |reason: String| Err(Error::NotADatabase { path: log.location().into(), reason });
        if of.logs.count == 1 {
            let found = if log.exists(CONTROL)? { ControlFile::open(&**log).ok() } else { None };
            return Ok(found.map(|file| file.control).filter(|found| found.database == of.database));
        }
        if !log.exists(CONTROL)? {
            return refuse(format!(
                "the file `{CONTROL}`, which records where several logs end, is missing; put it back, or restore \
                 without the log in this directory"
            ));
        }
        let found = ControlFile::open(&**log)?.control;
        if found.database != of.database {
            return refuse("it is not the database that was backed up".to_owned());
        }
        Ok(Some(found))
    }

    fn explain(&self, error: WalError) -> Error {
        let is_of_backup = match &error {
            WalError::MissingSegment { .. } | WalError::NoLog { .. } => true,
            WalError::InLog { error, .. } => matches!(**error, WalError::MissingSegment { .. }),
            _ => false,
        };
        if is_of_backup {
            return Error::NotABackup { path: self.backup.location().into(), reason: error.to_string() };
        }
        error.into()
    }
}

fn existing(path: &Path, what: &str) -> Result<Arc<dyn Disk>> {
    if !named(path)?.is_dir() {
        let reason = format!("the directory of the {what} does not exist");
        return Err(Error::NotABackup { path: path.into(), reason });
    }
    // It is only read, perhaps from a file system on which nothing can be written.
    Ok(Arc::new(MemoryDisk::over(path).map_err(|error| of_copy(error.into()))?))
}

/// Checks that the backup has all of its pages, before the target is begun.
fn check_pages(backup: &dyn Disk, bytes: u64) -> Result<()> {
    if !backup.exists(DATA)? {
        return Err(Error::NotABackup {
            path: backup.location().into(),
            reason: format!("it lacks the file `{DATA}`"),
        });
    }
    let file = backup.open(DATA, OpenMode::Existing)?;
    let len = file.len()?;
    if len < bytes {
        let reason = format!("the file has {len} bytes instead of {bytes}");
        return Err(Error::Corrupt { file: file.path(), offset: len, page: None, reason });
    }
    Ok(())
}

/// Refuses a directory that holds anything but the remains of an interrupted restore.
fn check_target(target: &dyn Disk) -> Result<()> {
    let in_use = |found: &str| Err(Error::NotEmpty { path: target.location().into(), found: found.to_owned() });
    if target.exists(CONTROL)? {
        return in_use(CONTROL);
    }
    if target.exists(RESTORING)? {
        return Ok(());
    }
    if let Some(log) = first_log(target)? {
        return in_use(&log);
    }
    target.list("")?.first().map_or(Ok(()), |name| in_use(name))
}

/// Empties the target except for the marker.
fn mark(target: &dyn Disk) -> Result<()> {
    if target.exists(RESTORING)? {
        return clear(target);
    }
    target.open(RESTORING, OpenMode::CreateNew)?;
    Ok(target.sync_directory("")?)
}

/// Copies the backup's pages, checks each of them, and makes it one of the new database.
fn copy_pages(
    backup: &dyn Disk,
    target: &dyn Disk,
    database: DatabaseTag,
    bytes: u64,
    mut progress: impl FnMut(u64),
) -> Result<()> {
    let (from, to) = (backup.open(DATA, OpenMode::Existing)?, target.open(DATA, OpenMode::CreateNew)?);
    let mut buffer = AlignedBuf::zeroed(CHUNK_PAGES as usize * PAGE_SIZE);
    let mut at = 0;
    while at < bytes {
        let len = (bytes - at).min(buffer.len() as u64) as usize;
        let chunk = &mut buffer[..len];
        from.read_at(chunk, at)?;
        for (index, bytes) in chunk.chunks_exact_mut(PAGE_SIZE).enumerate() {
            let id = PageId::new(at / PAGE_SIZE as u64 + index as u64);
            match page::verify(bytes, id) {
                Ok(()) => page::seal(bytes, database),
                Err(PageDefect::Blank) => {}
                Err(defect) => {
                    let offset = id.get() * PAGE_SIZE as u64;
                    return Err(Error::Corrupt {
                        file: from.path(),
                        offset,
                        page: Some(id),
                        reason: defect.to_string(),
                    });
                }
            }
        }
        to.write_at(&[chunk], at)?;
        at += len as u64;
        progress(at);
    }
    Ok(to.sync()?)
}
