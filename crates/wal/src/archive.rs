//! The log archive: whole segments are copied to another directory before they may be recycled.
//!
//! A segment is copied when the log is hardened beyond its end; nothing in it changes any more. The copy gets the name of a
//! segment only when all of it is durable, and the archive has it only when the name is durable, too:
//!
//! 1. write `log/<number>.copy`, sync it;
//! 2. rename it to `log/<number>.log`, sync the directory;
//! 3. from then on the log may start in the next segment ([`crate::retention`]).
//!
//! So a file with a segment's name is a whole segment, whatever a crash left, and the log's start never passes what the
//! archive lacks. A copy has the header of a segment, made anew, and the segment's bytes as they are: every record in it has
//! its checksum. The layout is that of a database's log, so [`crate::LogReader`] reads an archive, too.
//!
//! # Failure
//! The archive is on another disk than the log, as a rule. If it cannot be written, the log goes on, keeps what is not
//! archived, and tries again; when its limit is reached, reservations get [`WalError::Full`], which names the archive.
//! Nothing is ever recycled unarchived, and nothing is lost.
//!
//! # What belongs together
//! A log is archived from the segment on in which it starts when the archive is empty, else from where the archive ends. An
//! archive is refused that is another log's, lacks a segment that the log has recycled already, or is ahead of the log or
//! not like it in its last segment, as after a database was put back from a copy.

use std::path::Path;
use std::time::Duration;

use duramen_io::{AlignedBuf, Disk, DiskLock, File, OpenMode, RealDisk, RealDiskOptions};
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::thread;
use duramen_sync::{Arc, Mutex};
use duramen_types::planted::{Bug, is_on};
use duramen_types::{LogId, Lsn};

use crate::bell::Bell;
use crate::error::{Result, WalError};
use crate::files::SegmentFiles;
use crate::segment::{BLOCK, DIRECTORY, LogFile, SegmentHeader, classify, segment_name};
use crate::shared::Shared;
use crate::wal::FIRST_LSN;

/// Bytes copied at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// Pause after a copy that has failed.
const RETRY: Duration = Duration::from_millis(200);

/// How often somebody who waits for the archive looks.
const LOOK: Duration = Duration::from_millis(1);

/// Where a log is archived: a directory of its own, on another device than the log's at best.
#[derive(Clone, Debug)]
pub struct Archive {
    disk: Arc<dyn Disk>,
}

impl Archive {
    /// The archive in `disk`.
    pub fn on(disk: Arc<dyn Disk>) -> Self {
        Self { disk }
    }

    /// The archive in the directory `path`, which is made if it is not there.
    ///
    /// # Errors
    /// [`WalError::Disk`].
    pub fn at(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self::on(Arc::new(RealDisk::open(path.as_ref(), RealDiskOptions::default())?)))
    }

    /// Where it is.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    fn refuse(&self, reason: String) -> WalError {
        WalError::WrongArchive { location: self.disk.location(), reason }
    }

    /// Numbers of the segments in the archive, in order, and names of copies that were not completed.
    fn contents(&self) -> Result<(Vec<u64>, Vec<String>)> {
        let (mut numbers, mut half) = (Vec::new(), Vec::new());
        if self.disk.exists(DIRECTORY)? {
            for name in self.disk.list(DIRECTORY)? {
                match classify(&name) {
                    LogFile::Segment(number) => numbers.push(number),
                    _ if name.ends_with(COPY) => half.push(format!("{DIRECTORY}/{name}")),
                    _ => {}
                }
            }
        }
        numbers.sort_unstable();
        Ok((numbers, half))
    }
}

/// Two are equal if they are the same handle.
impl PartialEq for Archive {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.disk, &other.disk)
    }
}

impl Eq for Archive {}

/// What the name of a copy under way ends with.
const COPY: &str = ".copy";

fn copy_name(number: u64) -> String {
    format!("{DIRECTORY}/{number:016x}{COPY}")
}

/// Copies an open log's segments.
#[derive(Debug)]
pub(crate) struct Archiver {
    archive: Archive,
    files: Arc<SegmentFiles>,
    /// Number of the next segment to be copied.
    next: AtomicU64,
    /// What it sleeps at.
    pub(crate) bell: Bell,
    /// Why the latest attempt failed, until one succeeds.
    failure: Mutex<Option<WalError>>,
    copied: AtomicU64,
    failures: AtomicU64,
    #[allow(dead_code, reason = "held for its drop")]
    lock: DiskLock,
}

impl Archiver {
    /// Goes on with `archive` for the log in `files`, which starts at `start` and is hardened up to `end`.
    pub(crate) fn open(archive: &Archive, files: &Arc<SegmentFiles>, start: Lsn, end: Lsn) -> Result<Self> {
        let lock = archive.disk.lock()?;
        let (numbers, half) = archive.contents()?;
        if !archive.disk.exists(DIRECTORY)? {
            archive.disk.create_directory(DIRECTORY)?;
            archive.disk.sync_directory("")?;
        }
        let first = files.span().map_or_else(|| files.geometry.segment_of(start.get()), |(first, _)| first);
        let next = match numbers.last() {
            None => first,
            Some(&last) => {
                check_last(archive, files, last, end)?;
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
        archive.disk.sync_directory(DIRECTORY)?;
        Ok(Self {
            archive: archive.clone(),
            files: Arc::clone(files),
            next: AtomicU64::new(next),
            bell: Bell::new(),
            failure: Mutex::new(None),
            copied: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            lock,
        })
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
        durable.get() >= self.files.geometry.base(self.next.load(Ordering::Relaxed) + 1)
    }

    /// Segments copied, and attempts that failed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.copied.load(Ordering::Relaxed), self.failures.load(Ordering::Relaxed))
    }

    /// Why the latest attempt failed.
    pub(crate) fn failure(&self) -> Option<WalError> {
        self.failure.lock().clone()
    }

    /// Copies the next segment.
    fn copy_next(&self) -> Result<()> {
        let number = self.next.load(Ordering::Relaxed);
        let copied = self.copy(number);
        *self.failure.lock() = copied.as_ref().err().cloned();
        match copied {
            Ok(()) => {
                self.copied.fetch_add(1, Ordering::Relaxed);
                self.next.store(number + 1, Ordering::Release);
                Ok(())
            }
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    fn copy(&self, number: u64) -> Result<()> {
        let disk = &self.archive.disk;
        let lsn = Lsn::new(self.files.geometry.base(number));
        let from = self.files.file(number).ok_or(WalError::MissingSegment { segment: number, lsn })?;
        let name = copy_name(number);
        if disk.exists(&name)? {
            disk.remove(&name)?;
        }
        let to = disk.open(&name, OpenMode::CreateNew)?;
        let written = copy_segment(&self.files, &*from, &*to, number);
        if let Err(error) = written {
            // What is left of it would only take up space.
            let _ = disk.remove(&name);
            return Err(error);
        }
        if !is_on(Bug::ArchiveRenamedUnsynced) {
            to.sync()?;
        }
        drop(to);
        disk.rename(&name, &segment_name(LogId::ZERO, number))?;
        Ok(disk.sync_directory(DIRECTORY)?)
    }
}

/// Writes the header of segment `number`, and its bytes.
fn copy_segment(files: &SegmentFiles, from: &dyn File, to: &dyn File, number: u64) -> Result<()> {
    let segment_bytes = files.geometry.segment_bytes;
    // Where the log starts is no business of the archive's.
    SegmentHeader::of_copy(&files.identity, number, FIRST_LSN, segment_bytes).write(to)?;
    let mut chunk = AlignedBuf::zeroed(CHUNK_BYTES as usize);
    let mut at = BLOCK;
    while at < segment_bytes {
        let len = (segment_bytes - at).min(CHUNK_BYTES) as usize;
        from.read_at(&mut chunk[..len], at)?;
        to.write_at(&[&chunk[..len]], at)?;
        at += len as u64;
    }
    Ok(())
}

/// Checks that the archive's last segment is the log's, and that the log goes on behind it.
fn check_last(archive: &Archive, files: &SegmentFiles, last: u64, end: Lsn) -> Result<()> {
    let name = segment_name(LogId::ZERO, last);
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
    if let Some(own) = files.file(last) {
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

impl Shared {
    /// Wakes the archiver if there is a whole segment for it.
    #[inline]
    pub(crate) fn call_archiver(&self) {
        if let Some(archiver) = &self.archiver
            && archiver.is_due(self.space.durable())
        {
            archiver.bell.ring();
        }
    }

    /// What the archiver's thread does.
    pub(crate) fn archive(&self) {
        let Some(archiver) = &self.archiver else { return };
        while !archiver.bell.is_stopped() {
            if self.space.has_failed() || !archiver.is_due(self.space.durable()) {
                archiver.bell.wait(None);
                continue;
            }
            if let Err(error) = archiver.copy_next() {
                self.segments.retention.archive_failed(Some(error.to_string()));
                archiver.bell.wait(Some(RETRY));
                continue;
            }
            self.segments.retention.archive_failed(None);
            self.recycle_archived(archiver);
        }
    }

    /// Recycles what has been archived.
    fn recycle_archived(&self, archiver: &Archiver) {
        self.segments.retention.archived(archiver.admits());
        if let Err(error) = self.segments.recycle_admitted() {
            self.fail(error);
        }
    }

    /// Waits until everything that can be archived is, or the archive fails.
    pub(crate) fn await_archive(&self) {
        let Some(archiver) = &self.archiver else { return };
        while archiver.is_due(self.space.durable()) && archiver.failure().is_none() && !self.space.has_failed() {
            archiver.bell.ring();
            thread::sleep(LOOK);
        }
        // The archiver may not have come to it yet.
        if !self.space.has_failed() {
            self.recycle_archived(archiver);
        }
    }
}
