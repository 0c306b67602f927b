//! Files of the operating system, with direct I/O.
//!
//! Single transfers are `pread` and `pwritev`, durable writes `pwritev2` with `RWF_DSYNC` (one device command on disks
//! that can write through their cache), batches go through `io_uring` where the kernel has it. Memory mapping is never
//! used: its errors are signals and its write-back order is the kernel's.

mod file;
mod lock;
mod sys;
#[cfg(test)]
mod tests;
mod uring;

use std::fs::{self, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::{Arc, Process};
use duramen_types::planted::{Bug, is_on};

use crate::checks::{assert_directory_name, assert_name, directory_of};
use crate::counters::Counters;
use crate::{Disk, DiskCounters, DiskError, DiskLock, File, OpenMode, Result};
use file::RealFile;
use lock::LOCK_FILE;
use uring::RingPool;

/// How batches of reads and writes are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// `io_uring` where the kernel has it, else system calls.
    #[default]
    Auto,
    /// `io_uring`; opening the disk fails where the kernel does not have it.
    IoUring,
    /// One system call after another.
    Syscalls,
}

/// How a [`RealDisk`] is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RealDiskOptions {
    /// How batches are done.
    pub backend: Backend,
    /// Whether to bypass the page cache (`O_DIRECT`). A file system that refuses this is used through its cache; see
    /// [`RealDisk::is_direct`].
    pub direct: bool,
}

impl Default for RealDiskOptions {
    fn default() -> Self {
        Self { backend: Backend::Auto, direct: true }
    }
}

/// A directory of the operating system.
#[derive(Debug)]
pub struct RealDisk {
    home: PathBuf,
    direct: bool,
    note: Option<String>,
    shared: Arc<Shared>,
}

/// What the open files need.
#[derive(Debug)]
struct Shared {
    counters: Counters,
    rings: Option<RingPool>,
    /// Whether `RWF_DSYNC` works, as far as is known.
    dsync: AtomicBool,
    /// The one that opened the disk. A forked child changes no file: what it knows of them is soon out of date.
    process: Process,
}

impl Shared {
    fn check_process(&self, operation: &str, path: &Path) -> Result<()> {
        if self.process.is_current() {
            return Ok(());
        }
        Err(describe(operation, path, &Error::other("this process was forked from the one that opened it")))
    }
}

impl RealDisk {
    /// Opens the directory `path`; makes it, durably, if it does not exist.
    ///
    /// # Errors
    /// The system's; of kind [`ErrorKind::Unsupported`] if `io_uring` was asked for and cannot be had.
    pub fn open(path: &Path, options: RealDiskOptions) -> Result<Self> {
        let named = path.display().to_string();
        create_durably(path).map_err(|error| DiskError::system("create the directory", &named, &error))?;
        let home = path.canonicalize().map_err(|error| DiskError::system("find", &named, &error))?;
        let rings = match options.backend {
            Backend::Syscalls => None,
            Backend::Auto => RingPool::probe().ok(),
            Backend::IoUring => Some(RingPool::probe().map_err(|error| {
                let reason = format!("the kernel does not offer io_uring: {error}");
                DiskError::new("use io_uring for", &named, reason, ErrorKind::Unsupported)
            })?),
        };
        let direct = options.direct && accepts_direct(&home.join(LOCK_FILE))?;
        let note = (options.direct && !direct)
            .then(|| format!("the file system of `{}` refuses direct I/O; its cache is used", home.display()));
        let shared =
            Shared { counters: Counters::default(), rings, dsync: AtomicBool::new(true), process: Process::current() };
        Ok(Self { home, direct, note, shared: Arc::new(shared) })
    }

    /// Whether files bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// What the user should know about how the disk was opened, if anything: that direct I/O was refused.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }
}

/// Makes `path` and what it lies in, each of them durable in its parent.
fn create_durably(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    create_durably(parent)?;
    match fs::create_dir(path) {
        // Somebody else may be opening the same home.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
        done => done?,
    }
    fs::File::open(parent)?.sync_all()
}

/// Whether the file system lets files be opened for direct I/O. Tried with the lock file, which will be needed anyway.
fn accepts_direct(path: &Path) -> Result<bool> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).custom_flags(libc::O_DIRECT);
    match options.open(path) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(DiskError::system("open", path.display().to_string(), &error)),
    }
}

impl Disk for RealDisk {
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        assert_name(name);
        let path = self.path(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(mode == OpenMode::CreateNew).mode(0o600);
        if self.direct {
            options.custom_flags(libc::O_DIRECT);
        }
        let operation = if mode == OpenMode::CreateNew { "create" } else { "open" };
        self.shared.check_process(operation, &path)?;
        let file = options.open(&path).map_err(|error| describe(operation, &path, &error))?;
        Ok(Arc::new(RealFile { disk: Arc::clone(&self.shared), file, path }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        assert_name(name);
        let path = self.path(name);
        path.try_exists().map_err(|error| describe("look for", &path, &error))
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        assert_directory_name(directory);
        let path = self.path(directory);
        let fail = |error: Error| describe("list", &path, &error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let is_directory = entry.file_type().map_err(fail)?.is_dir();
            let is_lock = directory.is_empty() && entry.file_name() == LOCK_FILE;
            if !is_directory && !is_lock {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_directory(&self, name: &str) -> Result<()> {
        assert_name(name);
        assert_directory_name(name);
        let path = self.path(name);
        match fs::create_dir(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            done => done.map_err(|error| describe("create the directory", &path, &error)),
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        assert_name(name);
        let path = self.path(name);
        self.shared.check_process("remove", &path)?;
        fs::remove_file(&path).map_err(|error| describe("remove", &path, &error))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        assert_name(from);
        assert_name(to);
        assert_eq!(directory_of(from), directory_of(to), "renames stay within their directory");
        let path = self.path(from);
        self.shared.check_process("rename", &path)?;
        fs::rename(&path, self.path(to)).map_err(|error| describe(&format!("rename to `{to}`"), &path, &error))
    }

    fn sync_directory(&self, directory: &str) -> Result<()> {
        assert_directory_name(directory);
        if is_on(Bug::SkipDirectorySync) {
            return Ok(());
        }
        let path = self.path(directory);
        // An interrupted sync is repeated by the standard library.
        let synced = fs::File::open(&path).and_then(|directory| directory.sync_all());
        synced.map_err(|error| describe("sync the directory", &path, &error))?;
        self.shared.counters.count_sync();
        Ok(())
    }

    fn lock(&self) -> Result<DiskLock> {
        lock::acquire(&self.home)
    }

    fn counters(&self) -> DiskCounters {
        self.shared.counters.snapshot()
    }

    fn backend(&self) -> &'static str {
        match (&self.shared.rings, self.shared.dsync.load(Ordering::Relaxed)) {
            (Some(_), _) => "io_uring",
            (None, true) => "pwritev2",
            (None, false) => "pwritev and fdatasync",
        }
    }

    fn location(&self) -> String {
        self.home.display().to_string()
    }
}

fn describe(operation: &str, path: &Path, error: &Error) -> DiskError {
    DiskError::system(operation, path.display().to_string(), error)
}
