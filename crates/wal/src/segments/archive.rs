//! The log archive: whole segments are copied to another directory before they may be recycled.
//!
//! A segment is copied when the log is hardened beyond its end; nothing in it changes any more. The
//! copy gets the name of a segment only when all of it is durable, and the archive has it only when
//! the name is durable, too:
//!
//! 1. write `log/<number>.copy`, sync it;
//! 2. rename it to `log/<number>.log`, sync the directory;
//! 3. from then on the log may start in the next segment ([`crate::segments::retention`]).
//!
//! So a file with a segment's name is a whole segment, whatever a crash left, and the log's start
//! never passes what the archive lacks. A copy has the header of a segment, made anew, and the
//! segment's bytes as they are: every record in it has its checksum. The layout is that of a
//! database's logs, so [`crate::LogReader`] reads an archive, too.
//!
//! Of several logs, a segment is copied when all of them are complete up to whatever is in it: see
//! [`crate::several::archiving`].
//!
//! # Failure
//! The archive is on another disk than the log, as a rule. If it cannot be written, the log goes
//! on, keeps what is not archived, and tries again; when its limit is reached, reservations get
//! [`WalError::Full`], which names the archive. Nothing is ever recycled unarchived, and nothing is
//! lost.
//!
//! # What belongs together
//! A log is archived from the segment on in which it starts when the archive is empty, else from
//! where the archive ends. An archive is refused that is another log's, lacks a segment that the
//! log has recycled already, or is ahead of the log or not like it in its last segment, as after a
//! database was put back from a copy.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use duramen_io::{AlignedBuf, Disk, DiskError, DiskLock, File, OpenMode, RealDisk, RealDiskOptions};
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Arc, Mutex};
use duramen_types::{LogId, Lsn, planted};

use crate::address::FIRST_LSN;
use crate::error::{Result, WalError};
use crate::format::segment::{BLOCK, LogFile, SegmentHeader, classify, directory, segment_name};
use crate::segments::files::{CHUNK_BYTES, SegmentFiles, copy_range, names};
use crate::wake_event::WakeEvent;

/// Pause after a copy that has failed.
pub(crate) const RETRY: Duration = Duration::from_millis(200);

/// How often somebody who waits for the archive looks.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

/// Where the logs of a database are archived: a directory of its own, on another device than theirs
/// at best.
#[derive(Clone, Debug)]
pub struct Archive(LogAddress);

#[derive(Clone, Debug)]
enum LogAddress {
    Disk(Arc<dyn Disk>),
    /// Not opened yet.
    Directory(PathBuf),
}

impl Archive {
    /// The archive in `disk`.
    pub fn on(disk: Arc<dyn Disk>) -> Self {
        Self(LogAddress::Disk(disk))
    }

    /// The archive in the directory `path`, which is made when the log is opened, if it is not
    /// there.
    ///
    /// # Errors
    /// [`WalError::InvalidOption`] for an empty path.
    pub fn at(path: impl AsRef<Path>) -> Result<Self> {
        // As it is meant now, wherever the process goes.
        let path = std::path::absolute(path)
            .map_err(|error| WalError::InvalidOption { option: "archive", reason: error.to_string() })?;
        Ok(Self(LogAddress::Directory(path)))
    }

    /// Its directory in the operating system, if it has one.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        match &self.0 {
            LogAddress::Disk(disk) => disk.directory(),
            LogAddress::Directory(path) => Some(path.clone()),
        }
    }

    /// The archive with its directory, which is made if it is not there.
    ///
    /// # Errors
    /// [`WalError::Disk`].
    pub fn made(&self) -> Result<Self> {
        Ok(Self::on(self.disk()?))
    }

    fn disk(&self) -> Result<Arc<dyn Disk>> {
        Ok(match &self.0 {
            LogAddress::Disk(disk) => Arc::clone(disk),
            LogAddress::Directory(path) => Arc::new(RealDisk::open(path, RealDiskOptions::default())?),
        })
    }

    /// Keeps others from writing to it.
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
            (LogAddress::Disk(one), LogAddress::Disk(other)) => Arc::ptr_eq(one, other),
            (LogAddress::Directory(one), LogAddress::Directory(other)) => one == other,
            _ => false,
        }
    }
}

impl Eq for Archive {}

/// What the name of a copy under way ends with.
const COPY: &str = ".copy";

fn copy_name(log: LogId, number: u64) -> String {
    format!("{}/{number:016x}{COPY}", directory(log))
}

/// An archive that nobody else writes to, with one event that wakes whoever archives
/// all logs that go there.
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

    /// Numbers of the segments of `log` in the archive, in order, and names of copies that were not
    /// completed.
    fn contents(&self, log: LogId) -> Result<(Vec<u64>, Vec<String>)> {
        let (mut numbers, mut half) = (Vec::new(), Vec::new());
        for name in names(&*self.disk, log)? {
            match classify(&name) {
                LogFile::Segment(number) => numbers.push(number),
                _ if name.ends_with(COPY) => half.push(format!("{}/{name}", directory(log))),
                _ => {}
            }
        }
        numbers.sort_unstable();
        Ok((numbers, half))
    }
}

/// Copies an open log's segments.
#[derive(Debug)]
pub(crate) struct Archiver {
    archive: Arc<ArchiveInUse>,
    files: Arc<SegmentFiles>,
    /// Number of the next segment to be copied.
    next: AtomicU64,
    /// Why the latest attempt failed, until one succeeds.
    failure: Mutex<Option<WalError>>,
    copied: AtomicU64,
    failures: AtomicU64,
    /// Counts the parts of segments that have been copied.
    parts: AtomicU64,
}

impl Archiver {
    /// Goes on with `archive` for the log in `files`, which starts at `start` and is hardened up to
    /// `end`.
    pub(crate) fn open(archive: Arc<ArchiveInUse>, files: &Arc<SegmentFiles>, start: Lsn, end: Lsn) -> Result<Self> {
        let log = files.identity.log;
        let directory = directory(log);
        let (numbers, half) = archive.contents(log)?;
        if !archive.disk.exists(&directory)? {
            archive.disk.create_directory(&directory)?;
            archive.disk.sync_directory("")?;
        }
        let first = files.span().map_or_else(|| files.geometry.segment_of(start.get()), |(first, _)| first);
        let next = match numbers.last() {
            None => first,
            Some(&last) => {
                check_last(&archive, files, last, end)?;
                if last + 1 < first {
                    return Err(archive.refuse(format!(
                        "it ends with segment {last:016x}, and the log begins with {first:016x}: what lies between was \
                         recycled while nothing was archived; archive to an empty directory and take a new backup"
                    )));
                }
                last + 1
            }
        };
        for name in &half {
            archive.disk.remove(name)?;
        }
        // Also for the last segment's name, which whoever archived it may not have made durable.
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

    /// What whoever copies sleeps at.
    pub(crate) fn event(&self) -> &WakeEvent {
        &self.archive.event
    }

    /// Number of the next segment to be copied, and where it ends.
    pub(crate) fn next(&self) -> (u64, Lsn) {
        let next = self.next.load(Ordering::Relaxed);
        (next, Lsn::new(self.files.geometry.base(next + 1)))
    }

    /// Everything below is in the archive, or was recycled before there was one.
    pub(crate) fn archived(&self) -> Lsn {
        Lsn::new(self.files.geometry.base(self.next.load(Ordering::Acquire)))
    }

    /// Where the log may start at the latest: in the first segment that is not archived yet.
    pub(crate) fn admits(&self) -> Lsn {
        Lsn::new(self.files.geometry.base(self.next.load(Ordering::Acquire) + 1) - 1)
    }

    /// Whether a log that is hardened up to `durable` has a segment to be copied.
    #[inline]
    pub(crate) fn is_due(&self, durable: Lsn) -> bool {
        durable >= self.next().1
    }

    /// Segments copied, and attempts that failed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.copied.load(Ordering::Relaxed), self.failures.load(Ordering::Relaxed))
    }

    /// A number that grows while segments are copied.
    pub(crate) fn parts(&self) -> u64 {
        self.parts.load(Ordering::Relaxed)
    }

    /// Why the latest attempt failed.
    pub(crate) fn failure(&self) -> Option<WalError> {
        self.failure.lock().clone()
    }

    /// Copies the next segment.
    pub(crate) fn copy_next(&self) -> Result<()> {
        let (number, _) = self.next();
        self.copy(number)?;
        *self.failure.lock() = None;
        self.copied.fetch_add(1, Ordering::Relaxed);
        self.parts.fetch_add(1, Ordering::Relaxed);
        self.next.store(number + 1, Ordering::Release);
        Ok(())
    }

    /// Takes note of why the next segment cannot be copied at present.
    pub(crate) fn fail(&self, reason: WalError) {
        *self.failure.lock() = Some(reason);
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    fn copy(&self, number: u64) -> Result<()> {
        let (disk, log) = (&self.archive.disk, self.files.identity.log);
        let lsn = Lsn::new(self.files.geometry.base(number));
        let from = self.files.file(number, lsn)?;
        // What has been put in the archive's place lacks what came before.
        disk.verify_home()?;
        let name = copy_name(log, number);
        if disk.exists(&name)? {
            disk.remove(&name)?;
        }
        let to = disk.open(&name, OpenMode::CreateNew)?;
        let written = self.copy_segment(&*from, &*to, number);
        if let Err(error) = written {
            // What is left of it would only take up space.
            let _ = disk.remove(&name);
            return Err(error);
        }
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
        // Where the log starts is no business of the archive's.
        SegmentHeader::of_copy(&self.files.identity, number, FIRST_LSN, segment_bytes).write(to)?;
        copy_range(from, to, BLOCK..segment_bytes, segment_bytes, |_| {
            self.parts.fetch_add(1, Ordering::Relaxed);
        })
    }
}

/// Checks that the archive's last segment is the log's, and that the log goes on behind it.
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
        return Err(archive.refuse(format!("its segments have {} bytes", header.segment_bytes)));
    }
    let other = || {
        archive.refuse(format!(
            "its segment {last:016x} is not this log's: the database was put back to an earlier state, and has gone on \
             otherwise; choose an empty directory and take a new backup"
        ))
    };
    if files.geometry.base(last + 1) > end.get() {
        return Err(other());
    }
    if files.has(last) {
        let own = files.file(last, Lsn::new(files.geometry.base(last)))?;
        // Where histories part, everything behind is different, so the end of the segment tells.
        let len = (segment_bytes - BLOCK).min(CHUNK_BYTES);
        let (mut one, mut two) = (AlignedBuf::zeroed(len as usize), AlignedBuf::zeroed(len as usize));
        own.read_at(&mut one, segment_bytes - len)?;
        copy.read_at(&mut two, segment_bytes - len)?;
        if one[..] != two[..] {
            return Err(other());
        }
    }
    Ok(())
}
