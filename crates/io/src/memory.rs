//! A disk in memory. What is written vanishes with the disk.
//!
//! It begins empty, or as a directory of the operating system that is only read, so that even a
//! database that needs recovery can be inspected where nothing can be written.
//!
//! A file is a *node*: the file of the directory as which it began, if any, and the changes since.
//! Blocks that were never written take no memory. Names that have been created or removed are
//! recorded beside. Nothing is created in the directory, not even a lock file. Its lock is shared,
//! so that any number of processes can read while none has the database open.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::{Error, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::{Arc, Mutex};
use duramen_types::BLOCK_SIZE;

use crate::checks::{assert_aligned, assert_directory_name, assert_name, assert_parts_aligned, directory_of};
use crate::counters::Counters;
use crate::disk::{Disk, DiskCounters, DiskError, DiskLock, File, OpenMode, Result};
use crate::real::{Holder, lock_in_time};

/// The file that a process locks when it has the directory for itself.
const LOCK_FILE: &str = "lock";

/// A disk in memory, which begins empty or as a directory of the operating system.
#[derive(Clone, Debug)]
pub struct MemoryDisk {
    /// The directory in which nothing is changed.
    home: Option<PathBuf>,
    is_locked: Arc<AtomicBool>,
    names: Arc<Mutex<Names>>,
    counters: Arc<Counters>,
    keeps_content: bool,
}

/// The differences from the directory.
#[derive(Debug, Default)]
struct Names {
    /// Files that have been opened, created or renamed; `None` for a removed one.
    files: BTreeMap<String, Option<Arc<Node>>>,
    directories: BTreeSet<String>,
}

/// A file.
#[derive(Debug)]
struct Node {
    /// The file as which it began.
    origin: Option<PathBuf>,
    contents: Mutex<Contents>,
}

/// The content of a file: the blocks that have been written, the rest of the original file, zeros
/// elsewhere.
#[derive(Default)]
struct Contents {
    len: u64,
    /// The first `original` bytes are the original file's, except for `blocks`.
    original: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, {} blocks written", self.len, self.blocks.len())
    }
}

impl MemoryDisk {
    /// Makes an empty disk.
    pub fn empty() -> Self {
        let (is_locked, names, counters) = (Arc::default(), Arc::default(), Arc::default());
        Self { home: None, is_locked, names, counters, keeps_content: true }
    }

    /// Makes an empty disk whose files have lengths and no content, for measurements: what was
    /// written is read as zeros.
    pub fn without_content() -> Self {
        Self { keeps_content: false, ..Self::empty() }
    }

    /// Makes a disk with the files of the directory `path`, which must exist.
    ///
    /// # Errors
    /// The system's error.
    pub fn over(path: &Path) -> Result<Self> {
        let home =
            path.canonicalize().map_err(|error| DiskError::system("find", path.display().to_string(), &error))?;
        Ok(Self { home: Some(home), ..Self::empty() })
    }

    /// Returns whether the system does not let this process write in the directory `path`.
    pub fn is_all_there_is(path: &Path) -> bool {
        let Ok(name) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
        // SAFETY: the name is a C string.
        unsafe { libc::access(name.as_ptr(), libc::W_OK) != 0 }
    }

    /// Returns the process that has left its number in the lock file.
    fn named(home: &Path) -> Option<u32> {
        let mut text = String::new();
        // The number is only a hint, so the file may be missing.
        let _ = fs::File::open(home.join(LOCK_FILE)).and_then(|file| file.take(32).read_to_string(&mut text));
        text.trim().parse().ok()
    }

    /// Makes the error of a reader while the database is open elsewhere.
    fn busy(home: &Path, holder: Option<u32>) -> DiskError {
        let reason = match holder {
            Some(process) => format!("it is open in process {process}"),
            None => "it is open elsewhere".to_owned(),
        };
        DiskError::new("lock", home.display().to_string(), reason, ErrorKind::ResourceBusy)
    }

    /// Returns the file or directory called `name` in the directory as which the disk began.
    fn origin(&self, name: &str) -> Option<PathBuf> {
        Some(self.home.as_ref()?.join(name))
    }

    /// Returns the name under which messages show a file.
    fn path(&self, name: &str) -> PathBuf {
        self.origin(name).unwrap_or_else(|| PathBuf::from(name))
    }

    fn fail(&self, operation: &str, name: &str, error: &Error) -> DiskError {
        DiskError::system(operation, self.path(name).display().to_string(), error)
    }

    /// Returns the node of the file called `name`.
    fn node(&self, names: &mut Names, name: &str, operation: &str) -> Result<Arc<Node>> {
        let found = match names.files.get(name) {
            Some(found) => found.clone(),
            None => {
                let not_found = || self.fail(operation, name, &ErrorKind::NotFound.into());
                let path = self.origin(name).ok_or_else(not_found)?;
                let metadata = fs::metadata(&path).map_err(|error| self.fail(operation, name, &error))?;
                let contents = Contents { len: metadata.len(), original: metadata.len(), blocks: BTreeMap::new() };
                let node = Arc::new(Node { origin: Some(path), contents: Mutex::new(contents) });
                names.files.insert(name.to_owned(), Some(Arc::clone(&node)));
                Some(node)
            }
        };
        found.ok_or_else(|| self.fail(operation, name, &ErrorKind::NotFound.into()))
    }

    fn has(&self, names: &Names, name: &str) -> Result<bool> {
        match names.files.get(name) {
            Some(found) => Ok(found.is_some()),
            None if names.directories.contains(name) => Ok(true),
            None => self
                .origin(name)
                .map_or(Ok(false), |path| path.try_exists())
                .map_err(|error| self.fail("look for", name, &error)),
        }
    }

    fn has_directory(&self, names: &Names, name: &str) -> bool {
        name.is_empty() || names.directories.contains(name) || self.origin(name).is_some_and(|path| path.is_dir())
    }
}

impl Disk for MemoryDisk {
    fn handle(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        assert_name(name);
        let mut names = self.names.lock();
        let node = match mode {
            OpenMode::Existing => self.node(&mut names, name, "open")?,
            OpenMode::CreateNew if self.has(&names, name)? => {
                return Err(self.fail("create", name, &ErrorKind::AlreadyExists.into()));
            }
            OpenMode::CreateNew if !self.has_directory(&names, directory_of(name)) => {
                return Err(self.fail("create", name, &ErrorKind::NotFound.into()));
            }
            OpenMode::CreateNew => {
                let node = Arc::new(Node { origin: None, contents: Mutex::default() });
                names.files.insert(name.to_owned(), Some(Arc::clone(&node)));
                node
            }
        };
        drop(names);
        let origin = node.origin.as_ref().map(fs::File::open).transpose();
        let origin = origin.map_err(|error| self.fail("open", name, &error))?;
        let (path, counters) = (self.path(name), Arc::clone(&self.counters));
        Ok(Arc::new(MemoryFile { node, origin, path, counters, keeps_content: self.keeps_content }))
    }

    fn forgets(&self) -> bool {
        true
    }

    fn exists(&self, name: &str) -> Result<bool> {
        assert_name(name);
        self.has(&self.names.lock(), name)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        assert_directory_name(directory);
        let fail = |error: Error| self.fail("list", directory, &error);
        let names = self.names.lock();
        let mut found = BTreeSet::new();
        let entries = match self.origin(directory) {
            Some(path) => fs::read_dir(path),
            None => Err(ErrorKind::NotFound.into()),
        };
        match entries {
            Err(_) if self.home.is_none() && directory.is_empty() => {}
            Err(_) if names.directories.contains(directory) => {}
            Err(error) => return Err(fail(error)),
            Ok(entries) => {
                for entry in entries {
                    let entry = entry.map_err(fail)?;
                    let is_lock = directory.is_empty() && entry.file_name() == LOCK_FILE;
                    if !entry.file_type().map_err(fail)?.is_dir() && !is_lock {
                        found.insert(entry.file_name().to_string_lossy().into_owned());
                    }
                }
            }
        }
        for (name, node) in names.files.iter().filter(|(name, _)| directory_of(name) == directory) {
            let leaf = name.rsplit_once('/').map_or(name.as_str(), |(_, leaf)| leaf);
            match node {
                Some(_) => found.insert(leaf.to_owned()),
                None => found.remove(leaf),
            };
        }
        Ok(found.into_iter().collect())
    }

    fn create_directory(&self, name: &str) -> Result<()> {
        assert_name(name);
        assert_directory_name(name);
        let mut names = self.names.lock();
        if !self.has_directory(&names, name) {
            if self.has(&names, name)? {
                return Err(self.fail("create the directory", name, &ErrorKind::AlreadyExists.into()));
            }
            names.directories.insert(name.to_owned());
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        assert_name(name);
        let mut names = self.names.lock();
        self.node(&mut names, name, "remove")?;
        names.files.insert(name.to_owned(), None);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        assert_name(from);
        assert_name(to);
        assert_eq!(directory_of(from), directory_of(to), "renames stay within their directory");
        let mut names = self.names.lock();
        let node = self.node(&mut names, from, "find").map_err(|error| {
            let operation = format!("rename `{}` to", self.path(from).display());
            DiskError { operation, file: self.path(to).display().to_string(), ..error }
        })?;
        names.files.insert(from.to_owned(), None);
        names.files.insert(to.to_owned(), Some(node));
        Ok(())
    }

    fn sync_directory(&self, directory: &str) -> Result<()> {
        assert_directory_name(directory);
        if !self.has_directory(&self.names.lock(), directory) {
            return Err(self.fail("sync the directory", directory, &ErrorKind::NotFound.into()));
        }
        self.counters.count_sync();
        Ok(())
    }

    fn lock(&self) -> Result<DiskLock> {
        let Some(home) = &self.home else {
            if self.is_locked.swap(true, Ordering::AcqRel) {
                let reason = "it is open already".to_owned();
                return Err(DiskError::new("lock", self.location(), reason, ErrorKind::ResourceBusy));
            }
            return Ok(DiskLock::new(Unlock(Arc::clone(&self.is_locked))));
        };
        // An opener locks the directory as well as the file, which may have been removed.
        let mut locked = Vec::new();
        for name in ["", LOCK_FILE] {
            let file = match fs::File::open(home.join(name)) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened.map_err(|error| self.fail("lock", name, &error))?,
            };
            let attempt = || match file.try_lock_shared() {
                Ok(()) => Ok(true),
                Err(fs::TryLockError::WouldBlock) => Ok(false),
                Err(fs::TryLockError::Error(error)) => Err(error),
            };
            let find_holder = || Holder::of(&file, || Self::named(home));
            match lock_in_time(attempt, find_holder).map_err(|error| self.fail("lock", name, &error))? {
                Ok(()) => locked.push(file),
                Err(holder) => return Err(Self::busy(home, holder)),
            }
        }
        Ok(DiskLock::new(locked))
    }

    fn counters(&self) -> DiskCounters {
        self.counters.snapshot()
    }

    fn backend(&self) -> &'static str {
        "memory"
    }

    fn location(&self) -> String {
        self.home.as_ref().map_or_else(|| "memory".to_owned(), |home| home.display().to_string())
    }

    fn directory(&self) -> Option<PathBuf> {
        self.home.clone()
    }
}

/// Unlocks a disk that began empty.
struct Unlock(Arc<AtomicBool>);

impl Drop for Unlock {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// An open file.
#[derive(Debug)]
struct MemoryFile {
    node: Arc<Node>,
    origin: Option<fs::File>,
    path: PathBuf,
    counters: Arc<Counters>,
    keeps_content: bool,
}

const BLOCK: u64 = BLOCK_SIZE as u64;

impl MemoryFile {
    fn write(&self, bytes: &[u8], offset: u64) {
        let mut contents = self.node.contents.lock();
        let kept = if self.keeps_content { bytes } else { &[] };
        for (at, block) in (offset..).step_by(BLOCK_SIZE).zip(kept.chunks_exact(BLOCK_SIZE)) {
            contents.blocks.insert(at, block.into());
        }
        contents.len = contents.len.max(offset + bytes.len() as u64);
    }
}

impl File for MemoryFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        assert_aligned(buf, offset);
        let contents = self.node.contents.lock();
        if offset + buf.len() as u64 > contents.len {
            return Err(DiskError::end_of_file(buf.len(), offset, self.path(), contents.len));
        }
        let original = usize::try_from(contents.original.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
        let (from_origin, zeros) = buf.split_at_mut(original);
        if let Some(origin) = self.origin.as_ref().filter(|_| original > 0) {
            let operation = format!("read {original} bytes at offset {offset} of");
            let read = origin.read_exact_at(from_origin, offset);
            read.map_err(|error| DiskError::system(operation, self.path(), &error))?;
        }
        zeros.fill(0);
        for (at, block) in contents.blocks.range(offset..offset + buf.len() as u64) {
            let start = (at - offset) as usize;
            buf[start..start + BLOCK_SIZE].copy_from_slice(block);
        }
        drop(contents);
        self.counters.count_read(buf.len());
        Ok(())
    }

    fn read_batch(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        for (offset, buf) in reads.iter() {
            assert_aligned(buf, *offset);
        }
        reads.iter_mut().try_for_each(|(offset, buf)| self.read_at(buf, *offset))
    }

    fn write_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        let bytes = assert_parts_aligned(parts, offset);
        let mut at = offset;
        for part in parts {
            self.write(part, at);
            at += part.len() as u64;
        }
        self.counters.count_write(bytes);
        Ok(())
    }

    fn write_durable(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.write_at(parts, offset)?;
        self.sync()
    }

    fn write_batch(&self, writes: &[(u64, &[u8])]) -> Result<()> {
        for (offset, buf) in writes {
            assert_aligned(buf, *offset);
        }
        writes.iter().try_for_each(|(offset, buf)| self.write_at(&[buf], *offset))
    }

    fn sync(&self) -> Result<()> {
        self.counters.count_sync();
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.node.contents.lock().len)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let mut contents = self.node.contents.lock();
        contents.len = contents.len.max(len.next_multiple_of(BLOCK));
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let mut contents = self.node.contents.lock();
        contents.original = contents.original.min(len);
        contents.blocks.split_off(&len);
        let (last, kept) = (len / BLOCK * BLOCK, (len % BLOCK) as usize);
        if let Some(block) = contents.blocks.get_mut(&last) {
            block[kept..].fill(0);
        }
        contents.len = len;
        Ok(())
    }

    fn path(&self) -> String {
        self.path.display().to_string()
    }
}
