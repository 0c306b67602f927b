//! The log archive: whole segments are copied to another directory before they may be recycled.
//!
//! A segment is copied when the log is hardened beyond its end, so nothing in it changes any more.
//! The copy gets the name of a segment only when all of it is durable, and the segment counts as
//! archived only when the name is durable, too:
//!
//! 1. write `log/<number>.copy`, sync it;
//! 2. rename it to `log/<number>.log`, sync the directory;
//! 3. from then on the log may start in the next segment ([`crate::segments::retention`]).
//!
//! So a file with a segment's name is a whole segment, whatever a crash left, and the log's start
//! never passes a segment that the archive lacks. A copy has a new segment header and the segment's
//! bytes unchanged: every record in it has its checksum. The layout is that of a database's logs,
//! so [`crate::LogReader`] reads an archive, too.
//!
//! With several logs, a segment is copied when all logs are complete up to everything in it: see
//! [`crate::several::archiving`].
//!
//! # Failure
//! If the archive, normally on another disk, cannot be written, the log continues, keeps what is
//! not archived, and tries again. When the log reaches its size limit, reservations get
//! [`WalError::Full`], which names the archive. No segment is recycled before it is archived.
//!
//! # Which archive fits a log
//! Archiving begins with the segment in which the log starts, or continues where the archive ends.
//! An archive is refused if it belongs to another log, lacks a segment that the log has recycled,
//! is ahead of the log, or differs from the log in its last segment, as after a database was put
//! back from a copy.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use duramen_io::{AlignedBuf, Disk, DiskError, DiskLock, File, OpenMode, RealDisk, RealDiskOptions};
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Arc, Mutex};
use duramen_types::{Lsn, planted};

use crate::address::FIRST_LSN;
use crate::error::{Result, WalError};
use crate::format::segment::{BLOCK, LogFile, SegmentHeader, classify, directory, segment_name};
use crate::segments::files::{CHUNK_BYTES, SegmentFiles, are_same, copy_range, names};
use crate::wake_event::WakeEvent;

/// Pause after a failed copy.
pub(crate) const RETRY: Duration = Duration::from_millis(200);

/// How often a thread that waits for the archive checks it.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

/// Where the logs of a database are archived: a directory, preferably on a device of its own.
#[derive(Clone, Debug)]
pub struct Archive(Location);

#[derive(Clone, Debug)]
enum Location {
    Disk(Arc<dyn Disk>),
    /// Not opened yet.
    Directory(PathBuf),
}

impl Archive {
    /// Returns the archive in `disk`.
    pub fn on(disk: Arc<dyn Disk>) -> Self {
        Self(Location::Disk(disk))
    }

    /// Returns the archive in the directory `path`, which opening the log creates if necessary.
    ///
    /// # Errors
    /// [`WalError::InvalidOption`] for an empty path.
    pub fn at(path: impl AsRef<Path>) -> Result<Self> {
        // Resolved now, whatever directory the process changes to.
        let path = std::path::absolute(path).map_err(|error| WalError::invalid("archive", error.to_string()))?;
        Ok(Self(Location::Directory(path)))
    }

    /// Returns its directory in the operating system, if it has one.
    pub fn directory(&self) -> Option<PathBuf> {
        match &self.0 {
            Location::Disk(disk) => disk.directory(),
            Location::Directory(path) => Some(path.clone()),
        }
    }

    /// Returns the archive with its directory, which is created if it does not exist.
    ///
    /// # Errors
    /// [`WalError::Disk`].
    pub fn made(&self) -> Result<Self> {
        Ok(Self::on(self.disk()?))
    }

    fn disk(&self) -> Result<Arc<dyn Disk>> {
        Ok(match &self.0 {
            Location::Disk(disk) => Arc::clone(disk),
            Location::Directory(path) => Arc::new(RealDisk::open(path, RealDiskOptions::default())?),
        })
    }

    /// Prevents other processes from writing to the archive.
    pub(crate) fn take(&self) -> Result<Arc<ArchiveInUse>> {
        let disk = self.disk()?;
        let lock = disk.lock().map_err(|error| match error.kind {
            ErrorKind::ResourceBusy => {
                DiskError { reason: format!("the archive `{}` is in use ({})", disk.location(), error.reason), ..error }
            }
            _ => error,
        })?;
        Ok(Arc::new(ArchiveInUse { disk, event: WakeEvent::new(), lock }))
    }
}

/// Two are equal if they are the same handle, or have the same path.
impl PartialEq for Archive {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Location::Disk(one), Location::Disk(other)) => Arc::ptr_eq(one, other),
            (Location::Directory(one), Location::Directory(other)) => one == other,
            _ => false,
        }
    }
}

impl Eq for Archive {}

/// The end of the name of an unfinished copy.
const COPY: &str = ".copy";

/// An archive to which no other process writes, with an event for the thread that archives.
#[derive(Debug)]
pub(crate) struct ArchiveInUse {
    disk: Arc<dyn Disk>,
    pub(crate) event: WakeEvent,
    #[allow(dead_code, reason = "held for its drop")]
    lock: DiskLock,
}

impl ArchiveInUse {
    fn refuse(&self, reason: String) -> WalError {
        WalError::WrongArchive { location: self.disk.location(), reason }
    }
}

/// Copies an open log's segments.
#[derive(Debug)]
pub(crate) struct Archiver {
    archive: Arc<ArchiveInUse>,
    files: Arc<SegmentFiles>,
    /// Number of the next segment to be copied.
    next: AtomicU64,
    /// The error of the latest attempt, until one succeeds.
    failure: Mutex<Option<WalError>>,
    copied: AtomicU64,
    failures: AtomicU64,
    /// Grows while segments are copied.
    parts: AtomicU64,
}

impl Archiver {
    /// Continues `archive` for the log in `files`, from `start` and hardened up to `end`.
    pub(crate) fn open(archive: Arc<ArchiveInUse>, files: &Arc<SegmentFiles>, start: Lsn, end: Lsn) -> Result<Self> {
        let log = files.identity.log;
        let directory = directory(log);
        let (mut last, mut unfinished) = (None, Vec::new());
        for name in names(&*archive.disk, log)? {
            match classify(&name) {
                LogFile::Segment(number) => last = last.max(Some(number)),
                _ if name.ends_with(COPY) => unfinished.push(format!("{directory}/{name}")),
                _ => {}
            }
        }
        // If it is there, the process that created it may not have made its name durable.
        archive.disk.create_directory(&directory)?;
        archive.disk.sync_directory("")?;
        let first = files.span().map_or_else(|| files.geometry.segment_of(start.get()), |(first, _)| first);
        let next = match last {
            None => first,
            Some(last) => {
                check_last(&archive, files, last, end)?;
                if last + 1 < first {
                    return Err(archive.refuse(format!(
                        "it ends with segment {last:016x}, but the log begins with segment {first:016x}: the segments \
                         between them were recycled while nothing was archived; choose an empty directory and take a \
                         new backup"
                    )));
                }
                last + 1
            }
        };
        for name in &unfinished {
            archive.disk.remove(name)?;
        }
        // Also for the last segment's name, which may not be durable yet.
        archive.disk.sync_directory(&directory)?;
        Ok(Self {
            archive,
            files: Arc::clone(files),
            next: AtomicU64::new(next),
            failure: Mutex::new(None),
            copied: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            parts: AtomicU64::new(0),
        })
    }

    pub(crate) fn event(&self) -> &WakeEvent {
        &self.archive.event
    }

    /// Returns the number of the next segment to be copied, and where it ends.
    pub(crate) fn next(&self) -> (u64, Lsn) {
        let next = self.next.load(Ordering::Relaxed);
        (next, Lsn::new(self.files.geometry.base(next + 1)))
    }

    /// Returns the position below which all is archived, or was recycled before it could be.
    pub(crate) fn archived(&self) -> Lsn {
        Lsn::new(self.files.geometry.base(self.next.load(Ordering::Acquire)))
    }

    /// Returns the latest position at which the log may start: in the first unarchived segment.
    pub(crate) fn admits(&self) -> Lsn {
        Lsn::new(self.files.geometry.base(self.next.load(Ordering::Acquire) + 1) - 1)
    }

    /// Returns whether a log that is hardened up to `durable` has a segment to be copied.
    #[inline]
    pub(crate) fn is_due(&self, durable: Lsn) -> bool {
        durable >= self.next().1
    }

    /// Returns the number of segments copied and of failed attempts.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.copied.load(Ordering::Relaxed), self.failures.load(Ordering::Relaxed))
    }

    /// Returns a number that grows while segments are copied.
    pub(crate) fn parts(&self) -> u64 {
        self.parts.load(Ordering::Relaxed)
    }

    /// Returns the error of the latest attempt, if it failed.
    pub(crate) fn failure(&self) -> Option<WalError> {
        self.failure.lock().clone()
    }

    pub(crate) fn copy_next(&self) -> Result<()> {
        let (number, _) = self.next();
        self.copy(number)?;
        *self.failure.lock() = None;
        self.copied.fetch_add(1, Ordering::Relaxed);
        self.parts.fetch_add(1, Ordering::Relaxed);
        self.next.store(number + 1, Ordering::Release);
        Ok(())
    }

    /// Records why the next segment cannot be copied at present.
    pub(crate) fn fail(&self, reason: WalError) {
        *self.failure.lock() = Some(reason);
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    fn copy(&self, number: u64) -> Result<()> {
        let (disk, log) = (&self.archive.disk, self.files.identity.log);
        let from = self.files.file_at(self.files.geometry.base(number))?;
        // A directory put in the archive's place would lack the earlier segments.
        disk.verify_home()?;
        let name = format!("{}/{number:016x}{COPY}", directory(log));
        if disk.exists(&name)? {
            disk.remove(&name)?;
        }
        let to = disk.open(&name, OpenMode::CreateNew)?;
        self.copy_segment(&*from, &*to, number).inspect_err(|_| {
            // The unfinished copy would only take up space.
            let _ = disk.remove(&name);
        })?;
        if !planted!(ArchiveRenamedUnsynced) {
            to.sync()?;
        }
        drop(to);
        disk.rename(&name, &segment_name(log, number))?;
        Ok(disk.sync_directory(&directory(log))?)
    }

    /// Writes the header of segment `number`, and its bytes.
    fn copy_segment(&self, from: &dyn File, to: &dyn File, number: u64) -> Result<()> {
        let segment_bytes = self.files.geometry.segment_bytes;
        // The archive's headers do not state where the log starts.
        SegmentHeader::of_copy(&self.files.identity, number, FIRST_LSN, segment_bytes).write(to)?;
        copy_range(from, to, BLOCK..segment_bytes, segment_bytes, |_| {
            self.parts.fetch_add(1, Ordering::Relaxed);
        })
    }
}

/// Checks that the archive's last segment is the log's, and that the log continues behind it.
fn check_last(archive: &ArchiveInUse, files: &SegmentFiles, last: u64, end: Lsn) -> Result<()> {
    let name = segment_name(files.identity.log, last);
    let copy = archive.disk.open(&name, OpenMode::Existing)?;
    let mut block = AlignedBuf::zeroed(BLOCK as usize);
    copy.read_at(&mut block, 0)?;
    let header = SegmentHeader::decode(&block, last)
        .map_err(|error| archive.refuse(format!("its last segment cannot be read ({error})")))?;
    if !header.is_of(&files.identity) {
        return Err(archive.refuse("it belongs to another database; choose an empty directory".to_owned()));
    }
    let segment_bytes = files.geometry.segment_bytes;
    if header.segment_bytes != segment_bytes {
        return Err(archive.refuse(format!(
            "its segments have {} bytes, but those of the log have {segment_bytes}; choose an empty directory and take \
             a new backup",
            header.segment_bytes
        )));
    }
    let other = || {
        archive.refuse(format!(
            "its segment {last:016x} is not a segment of this log: the database was put back to an earlier state and \
             then continued differently; choose an empty directory and take a new backup"
        ))
    };
    if files.geometry.base(last + 1) > end.get() {
        return Err(other());
    }
    // Where histories diverge, all later bytes differ: comparing the end of the segment suffices.
    let compared = segment_bytes - (segment_bytes - BLOCK).min(CHUNK_BYTES)..segment_bytes;
    if files.has(last) && !are_same(&*files.file_at(files.geometry.base(last))?, &*copy, compared)? {
        return Err(other());
    }
    Ok(())
}
