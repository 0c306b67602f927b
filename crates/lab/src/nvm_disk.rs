//! A disk made of modelled persistent memory: *NVRAM Disk-Replacement*.
//!
//! After Pelley et al., *Storage Management in the NVRAM Era* (PVLDB 7(2), 2013), Figure 2: a
//! database with a write-ahead log keeps its files in persistent memory and reaches them through
//! the interface of a disk. All files share one timing model. Another disk, in a memory file
//! system, holds the bytes. What the persists would cost is charged to the calling thread:
//!
//! - *`persist_page`*, for each page written to the data file. The old page is copied to a page
//!   log, the log is marked valid, the new page is stored, and the log is marked invalid: **4
//!   barriers**. As in the paper, the unit of writing is a line of 64 bytes: only the lines that
//!   change are stored, each twice, and the two marks a line each.
//! - *`persist_wal`*, for everything else that is made durable: the log, and the few blocks of the
//!   control file. The bodies are stored, then what makes them valid: **2 barriers**. A sync
//!   charges those of the writes since the last one.
//!
//! A page is therefore whole at any moment without the double-write area. The engine writes the
//! area nevertheless, since it runs unchanged; those writes are not charged.

use std::collections::BTreeSet;
use std::path::PathBuf;

use duramen::pmem::{Model, Timing};
use duramen_io::{AlignedBuf, Disk, DiskCounters, DiskLock, File, OpenMode, Result};
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Arc, Mutex, RwLock};
use duramen_types::{BLOCK_SIZE, PAGE_SIZE};

const LINE: usize = 64;
/// The data file of a database, and its double-write area.
const DATA: &str = "data";
const DOUBLE_WRITE: &str = "doublewrite";

/// What has been persisted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Persists {
    /// Pages, each with 4 barriers.
    pub(crate) pages: u64,
    /// Flushes of the log, and of other files, each with 2 barriers.
    pub(crate) flushes: u64,
    /// Barriers.
    pub(crate) barriers: u64,
    /// Lines of 64 bytes stored.
    pub(crate) lines: u64,
}

impl Persists {
    /// Returns what was persisted since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            pages: self.pages - before.pages,
            flushes: self.flushes - before.flushes,
            barriers: self.barriers - before.barriers,
            lines: self.lines - before.lines,
        }
    }
}

/// Another disk, as fast as modelled persistent memory.
#[derive(Clone, Debug)]
pub(crate) struct NvmDisk {
    inner: Arc<dyn Disk>,
    device: Arc<Device>,
}

/// The memory that all files share.
#[derive(Debug, Default)]
struct Device {
    model: RwLock<Option<Model>>,
    pages: AtomicU64,
    flushes: AtomicU64,
    barriers: AtomicU64,
    lines: AtomicU64,
}

impl Device {
    /// Stores this many lines, and waits until they are durable.
    fn persist(&self, model: Option<&Model>, lines: u64) {
        self.lines.fetch_add(lines, Ordering::Relaxed);
        self.barriers.fetch_add(1, Ordering::Relaxed);
        if let Some(model) = model {
            model.wrote(lines * LINE as u64);
            model.barrier();
        }
    }

    /// Replaces a page, of which this many lines change.
    fn persist_page(&self, lines: u64, replace: impl FnOnce() -> Result<()>) -> Result<()> {
        let model = self.model.read();
        // The page log; its mark; the page; the mark again.
        self.persist(model.as_ref(), lines);
        self.persist(model.as_ref(), 1);
        replace()?;
        self.persist(model.as_ref(), lines);
        self.persist(model.as_ref(), 1);
        self.pages.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Makes records of this many lines durable, and then what makes them valid.
    fn persist_wal(&self, lines: u64) {
        let model = self.model.read();
        self.persist(model.as_ref(), lines);
        self.persist(model.as_ref(), 1);
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }
}

impl NvmDisk {
    /// Returns a disk whose files are those of `inner`; it takes no time until
    /// [`NvmDisk::set_timing`].
    pub(crate) fn new(inner: Arc<dyn Disk>) -> Self {
        Self { inner, device: Arc::default() }
    }

    /// Changes the times of what begins from now on.
    pub(crate) fn set_timing(&self, timing: &Timing) {
        *self.device.model.write() = Model::new(timing);
    }

    /// Returns what has been persisted since the disk was made.
    pub(crate) fn persists(&self) -> Persists {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Device { pages, flushes, barriers, lines, .. } = &*self.device;
        Persists { pages: get(pages), flushes: get(flushes), barriers: get(barriers), lines: get(lines) }
    }
}

impl Disk for NvmDisk {
    fn handle(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let inner = self.inner.open(name, mode)?;
        let device = Arc::clone(&self.device);
        Ok(match name {
            DOUBLE_WRITE => inner,
            DATA => Arc::new(PageFile { inner, device, scratch: Mutex::new(AlignedBuf::zeroed(PAGE_SIZE)) }),
            _ => Arc::new(LogFile { inner, device, unsynced: Mutex::default(), last: Mutex::default() }),
        })
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        self.inner.list(directory)
    }

    fn create_directory(&self, name: &str) -> Result<()> {
        self.inner.create_directory(name)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn sync_directory(&self, directory: &str) -> Result<()> {
        self.inner.sync_directory(directory)
    }

    fn lock(&self) -> Result<DiskLock> {
        self.inner.lock()
    }

    fn verify_home(&self) -> Result<()> {
        self.inner.verify_home()
    }

    fn counters(&self) -> DiskCounters {
        self.inner.counters()
    }

    fn backend(&self) -> &'static str {
        self.inner.backend()
    }

    fn location(&self) -> String {
        self.inner.location()
    }

    fn directory(&self) -> Option<PathBuf> {
        self.inner.directory()
    }
}

/// The methods of a file that the model does not concern.
macro_rules! as_inner {
    () => {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            self.inner.read_at(buf, offset)
        }

        fn read_batch(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
            self.inner.read_batch(reads)
        }

        fn len(&self) -> Result<u64> {
            self.inner.len()
        }

        fn allocate(&self, len: u64) -> Result<()> {
            self.inner.allocate(len)
        }

        fn set_len(&self, len: u64) -> Result<()> {
            self.inner.set_len(len)
        }

        fn verify_name(&self) -> Result<()> {
            self.inner.verify_name()
        }

        fn lock(&self) -> Result<()> {
            self.inner.lock()
        }

        fn path(&self) -> String {
            self.inner.path()
        }
    };
}

/// The data file: each page that is written is durable, and whole at any moment.
#[derive(Debug)]
struct PageFile {
    inner: Arc<dyn File>,
    device: Arc<Device>,
    /// The page log: what was in the place of the page that is being written.
    scratch: Mutex<AlignedBuf>,
}

impl PageFile {
    /// Persists the pages that `bytes`, from `offset` on, lie in.
    fn persist(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut log = self.scratch.lock();
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let left = PAGE_SIZE - (at % PAGE_SIZE as u64) as usize;
            let (page, behind) = rest.split_at(left.min(rest.len()));
            let old = &mut log[..page.len()];
            match self.inner.read_at(old, at) {
                Ok(()) => {}
                Err(error) if error.kind == std::io::ErrorKind::UnexpectedEof => old.fill(0),
                Err(error) => return Err(error),
            }
            let lines = changed_lines(old, page);
            self.device.persist_page(lines, || self.inner.write_at(&[page], at))?;
            at += page.len() as u64;
            rest = behind;
        }
        Ok(())
    }
}

/// Returns the number of lines in which the two differ.
fn changed_lines(old: &[u8], new: &[u8]) -> u64 {
    old.chunks(LINE).zip(new.chunks(LINE)).filter(|(old, new)| old != new).count() as u64
}

/// Returns the number of lines up to the last one that is not all zeros.
fn filled_lines(block: &[u8]) -> u64 {
    block.rchunks(LINE).skip_while(|line| line.iter().all(|byte| *byte == 0)).count() as u64
}

impl File for PageFile {
    as_inner!();

    fn write_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        let mut at = offset;
        for part in parts {
            self.persist(part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn write_durable(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.write_at(parts, offset)
    }

    fn write_batch(&self, writes: &[(u64, &[u8])]) -> Result<()> {
        writes.iter().try_for_each(|(offset, bytes)| self.persist(bytes, *offset))
    }

    /// Costs nothing more: pages are durable when they are written.
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
}

/// A file to which records are appended.
#[derive(Debug)]
struct LogFile {
    inner: Arc<dyn File>,
    device: Arc<Device>,
    /// Blocks written since the last sync.
    unsynced: Mutex<BTreeSet<u64>>,
    /// The block in which the last durable write ended, and its number.
    last: Mutex<(u64, Vec<u8>)>,
}

impl LogFile {
    fn note(&self, offset: u64, bytes: usize) {
        let mut unsynced = self.unsynced.lock();
        let blocks = offset / BLOCK_SIZE as u64..(offset + bytes as u64).div_ceil(BLOCK_SIZE as u64);
        unsynced.extend(blocks);
    }

    /// Returns the number of lines that a durable write stores: those of the block that the last
    /// one left half full only if they are new, and no padding behind the end.
    fn lines_of(&self, parts: &[&[u8]], offset: u64) -> u64 {
        let mut last = self.last.lock();
        let first = offset / BLOCK_SIZE as u64;
        let blocks = parts.iter().flat_map(|part| part.chunks(BLOCK_SIZE));
        let mut lines = 0;
        for (number, block) in (first..).zip(blocks) {
            lines += if number == last.0 && !last.1.is_empty() {
                changed_lines(&last.1, block)
            } else {
                filled_lines(block)
            };
            last.0 = number;
            last.1.clear();
            last.1.extend_from_slice(block);
        }
        lines
    }
}

fn total(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

impl File for LogFile {
    as_inner!();

    fn write_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.inner.write_at(parts, offset)?;
        self.note(offset, total(parts));
        Ok(())
    }

    fn write_durable(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.inner.write_durable(parts, offset)?;
        self.device.persist_wal(self.lines_of(parts, offset));
        Ok(())
    }

    fn write_batch(&self, writes: &[(u64, &[u8])]) -> Result<()> {
        self.inner.write_batch(writes)?;
        writes.iter().for_each(|(offset, bytes)| self.note(*offset, bytes.len()));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let blocks = std::mem::take(&mut *self.unsynced.lock()).len();
        self.inner.sync()?;
        if blocks > 0 {
            self.device.persist_wal((blocks * BLOCK_SIZE / LINE) as u64);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "nvm_disk_tests.rs"]
mod tests;
