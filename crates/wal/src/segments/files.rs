//! The segments in use, for threads that read and write them.
//!
//! A log may have thousands of segments, while a process may often open no more than a thousand
//! files. So these files are open:
//! - the segment to which the log is written and the next ones, as many as reservations normally
//!   take ([`AHEAD`]): a flush should not depend on whether a file can be opened;
//! - of the other segments the [`RECENT`] that were used last, of all logs of a database together.
//!
//! Any other segment is opened when it is needed. If too many files are open, the recent segments
//! are closed and the open is tried again. If the system still refuses, the operation fails with a
//! passing error ([`WalError::is_passing`]), and nothing has changed.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use duramen_io::{AlignedBuf, Disk, File, OpenMode};
use duramen_sync::{Arc, Mutex, RwLock};
use duramen_types::{LogId, Lsn};

use crate::error::{Result, WalError};
use crate::format::identity::Identity;
use crate::format::segment::{BLOCK, Geometry, directory, segment_name};

/// Most segments kept open without being written. A scan uses two, as it reads ahead.
const RECENT: usize = 4;

/// Number of segments kept open behind the one being written. A flush to a later segment opens it;
/// as long as the system refuses, the flush is postponed.
const AHEAD: u64 = 3;

/// Bytes copied, compared or searched at a time.
pub(crate) const CHUNK_BYTES: u64 = 1 << 20;

/// Copies a `range` of a file to the same offset of another file, or of the same one, with zeros
/// from `kept` on. Calls `progress` with the number of bytes of each part.
pub(crate) fn copy_range(
    from: &dyn File,
    to: &dyn File,
    range: Range<u64>,
    kept: u64,
    mut progress: impl FnMut(u64),
) -> Result<()> {
    let mut chunk = AlignedBuf::zeroed(CHUNK_BYTES as usize);
    for at in range.clone().step_by(CHUNK_BYTES as usize) {
        let len = (range.end - at).min(CHUNK_BYTES);
        let bytes = &mut chunk[..len as usize];
        let kept = kept.saturating_sub(at).min(len) as usize;
        if kept > 0 {
            from.read_at(bytes, at)?;
        }
        bytes[kept..].fill(0);
        to.write_at(&[bytes], at)?;
        progress(len);
    }
    Ok(())
}

/// Returns whether two files have the same bytes in a `range`.
pub(crate) fn are_same(one: &dyn File, other: &dyn File, range: Range<u64>) -> Result<bool> {
    let (mut ones, mut others) = (AlignedBuf::zeroed(CHUNK_BYTES as usize), AlignedBuf::zeroed(CHUNK_BYTES as usize));
    for at in (range.start / BLOCK * BLOCK..range.end).step_by(CHUNK_BYTES as usize) {
        let len = (range.end.next_multiple_of(BLOCK) - at).min(CHUNK_BYTES);
        let compared = (range.start.max(at) - at) as usize..(range.end - at).min(len) as usize;
        one.read_at(&mut ones[..len as usize], at)?;
        other.read_at(&mut others[..len as usize], at)?;
        if ones[compared.clone()] != others[compared] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the names of the files in the directory of `log`, if there is one.
pub(crate) fn names(disk: &dyn Disk, log: LogId) -> Result<Vec<String>> {
    let directory = directory(log);
    Ok(if disk.exists(&directory)? { disk.list(&directory)? } else { Vec::new() })
}

/// The log and the number of a segment.
type SegmentOf = (LogId, u64);

/// A directory with the segments of one or several logs.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    disk: Arc<dyn Disk>,
    /// Those used last; the latest is at the back.
    recent: Mutex<VecDeque<(SegmentOf, Arc<dyn File>)>>,
}

impl OpenFiles {
    pub(crate) fn of(disk: Arc<dyn Disk>) -> Arc<Self> {
        Arc::new(Self { disk, recent: Mutex::new(VecDeque::new()) })
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Opens a file of the directory for the caller alone.
    pub(crate) fn open(&self, name: &str, mode: OpenMode) -> duramen_io::Result<Arc<dyn File>> {
        match self.disk.open(name, mode) {
            Err(error) if error.is_passing() && self.close_recent() => self.disk.open(name, mode),
            opened => opened,
        }
    }

    /// Closes the recent segments; returns whether there were any.
    fn close_recent(&self) -> bool {
        !std::mem::take(&mut *self.recent.lock()).is_empty()
    }

    /// Returns segment `number` of `log`, open.
    pub(crate) fn segment(&self, log: LogId, number: u64) -> duramen_io::Result<Arc<dyn File>> {
        let (key, mut recent) = ((log, number), self.recent.lock());
        let known = recent.iter().find(|(segment, _)| *segment == key).map(|(_, file)| Arc::clone(file));
        let file = match known {
            Some(file) => file,
            None => {
                drop(recent);
                let file = self.open(&segment_name(log, number), OpenMode::Existing)?;
                recent = self.recent.lock();
                file
            }
        };
        recent.retain(|(segment, _)| *segment != key);
        recent.push_back((key, Arc::clone(&file)));
        while recent.len() > RECENT {
            recent.pop_front();
        }
        Ok(file)
    }

    fn forget(&self, log: LogId, number: u64) {
        self.recent.lock().retain(|(segment, _)| *segment != (log, number));
    }
}

/// The segments in use.
#[derive(Debug)]
pub(crate) struct SegmentFiles {
    pub(crate) identity: Identity,
    pub(crate) geometry: Geometry,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    live: BTreeMap<u64, Arc<OpenFiles>>,
    /// Size of the last segment's file: it may have to grow. All others are whole.
    last_bytes: u64,
    /// The segment being written, once the log is in service.
    written: Option<u64>,
    /// The files that stay open: the segment being written and the next ones.
    kept: BTreeMap<u64, Arc<dyn File>>,
}

impl SegmentFiles {
    /// Makes the set of the `live` segments, the last of which has a file of `last_bytes`.
    pub(crate) fn new(
        identity: Identity,
        geometry: Geometry,
        live: BTreeMap<u64, Arc<OpenFiles>>,
        last_bytes: u64,
    ) -> Self {
        let state = RwLock::new(State { live, last_bytes, written: None, kept: BTreeMap::new() });
        Self { identity, geometry, state }
    }

    /// Returns the file that holds `lsn`.
    pub(crate) fn file_at(&self, lsn: u64) -> Result<Arc<dyn File>> {
        let number = self.geometry.segment_of(lsn);
        let home = {
            let state = self.state.read();
            if let Some(file) = state.kept.get(&number) {
                return Ok(Arc::clone(file));
            }
            let home = state.live.get(&number).cloned();
            home.ok_or(WalError::MissingSegment { segment: number, lsn: Lsn::new(lsn) })?
        };
        Ok(home.segment(self.identity.log, number)?)
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        self.state.read().live.contains_key(&number)
    }

    pub(crate) fn sync(&self) -> Result<()> {
        let numbers: Vec<u64> = self.state.read().live.keys().copied().collect();
        for number in numbers {
            self.file_at(self.geometry.base(number))?.sync()?;
        }
        Ok(())
    }

    /// Adds a segment behind the others, whose file has `bytes`.
    pub(crate) fn insert(&self, number: u64, home: &Arc<OpenFiles>, file: Arc<dyn File>, bytes: u64) {
        let mut state = self.state.write();
        state.last_bytes = bytes;
        state.live.insert(number, Arc::clone(home));
        if state.written.is_some_and(|written| (written..=written + AHEAD).contains(&number)) {
            state.kept.insert(number, file);
        }
    }

    /// Moves the write position to segment `number`.
    pub(crate) fn write_from(&self, number: u64) {
        let mut state = self.state.write();
        state.written = Some(number);
        state.kept.retain(|kept, _| *kept >= number);
        for number in number..=number + AHEAD {
            if let Some(home) = state.live.get(&number).filter(|_| !state.kept.contains_key(&number)).cloned()
                // If it cannot be opened now, it is opened when it is written.
                && let Ok(file) = home.segment(self.identity.log, number)
            {
                home.forget(self.identity.log, number);
                state.kept.insert(number, file);
            }
        }
    }

    pub(crate) fn remove(&self, number: u64) {
        let mut state = self.state.write();
        state.kept.remove(&number);
        if let Some(home) = state.live.remove(&number) {
            home.forget(self.identity.log, number);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.state.read().live.len() as u64
    }

    /// Returns the numbers of the first and the last segment in use.
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        let live = &self.state.read().live;
        Some((*live.first_key_value()?.0, *live.last_key_value()?.0))
    }

    /// Returns the LSN behind the last segment's file.
    pub(crate) fn limit(&self) -> u64 {
        let state = self.state.read();
        state.live.last_key_value().map_or(0, |(last, _)| self.geometry.base(*last) + state.last_bytes - BLOCK)
    }

    /// Returns the LSN behind the last segment, once its file is whole; or the first LSN.
    pub(crate) fn reach(&self) -> u64 {
        self.geometry.base(self.span().map_or(0, |(_, last)| last + 1))
    }

    pub(crate) fn bytes_of(&self, number: u64) -> u64 {
        let state = self.state.read();
        let is_last = state.live.last_key_value().is_some_and(|(last, _)| *last == number);
        if is_last { state.last_bytes } else { self.geometry.segment_bytes }
    }

    pub(crate) fn is_whole(&self, number: u64) -> bool {
        self.bytes_of(number) == self.geometry.segment_bytes
    }

    pub(crate) fn set_last_bytes(&self, bytes: u64) {
        self.state.write().last_bytes = bytes;
    }

    /// Splits `[from, to)` into parts that are in one segment each.
    pub(crate) fn pieces(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let geometry = self.geometry;
        let first = move |at: u64| (at < to).then(|| (at, to.min(geometry.base(geometry.segment_of(at) + 1))));
        std::iter::successors(first(from), move |&(_, end)| first(end))
    }

    /// Fills `buf` with the log's bytes from `lsn`, as far as the files reach; returns how many.
    /// `lsn` and the length of `buf` are multiples of a block.
    pub(crate) fn read(&self, lsn: u64, buf: &mut [u8]) -> Result<usize> {
        let end = (lsn + buf.len() as u64).min(self.limit());
        if lsn >= end {
            return Ok(0);
        }
        for (from, to) in self.pieces(lsn, end) {
            let part = &mut buf[(from - lsn) as usize..(to - lsn) as usize];
            self.file_at(from)?.read_at(part, self.geometry.offset(from))?;
        }
        Ok((end - lsn) as usize)
    }

    /// Returns the beginning of the block in which the log ends: the next flush writes it again.
    pub(crate) fn last_block(&self, end: Lsn) -> Result<Vec<u8>> {
        let start = end.get() / BLOCK * BLOCK;
        let mut block = AlignedBuf::zeroed(BLOCK as usize);
        let len = (end.get() - start) as usize;
        if len > 0 {
            self.read(start, &mut block)?;
        }
        Ok(block[..len].to_vec())
    }
}
