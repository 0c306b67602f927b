//! Files of the operating system, with direct I/O or through the system's page cache.
//!
//! Single transfers are `pread` and `pwritev`, durable writes `pwritev2` with `RWF_DSYNC` (one
//! device command on disks that can write through their cache); batches go through `io_uring` where
//! the kernel has it, but for writes through the page cache. This module never uses memory mapping:
//! its errors are signals, and the kernel determines its write-back order.
//!
//! Names are resolved relative to handles of the directory and its subdirectories that stay open
//! ([`home`]): files that are put in their place are never touched.

mod file;
mod holder;
mod home;
mod lock;
mod names;
mod sys;
#[cfg(test)]
mod tests;
mod uring;

use std::io::{Error, ErrorKind};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::{Arc, OnceLock, Process};
use duramen_types::planted;

use crate::checks::{assert_directory_name, assert_name, directory_of};
use crate::counters::Counters;
use crate::{AlignedBuf, Disk, DiskCounters, DiskError, DiskLock, File, OpenMode, Result};
use file::RealFile;
pub(crate) use holder::{Holder, lock_in_time};
use home::Home;
use lock::LOCK_FILE;
use uring::RingPool;

/// How batches of reads and writes are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// `io_uring` where the kernel has it, otherwise system calls.
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
    /// Whether to bypass the page cache (`O_DIRECT`). A file system that refuses this is used
    /// through its cache; see [`RealDisk::is_direct`].
    pub direct: bool,
    /// Names of files that are used through the page cache in any case.
    pub cached: &'static [&'static str],
}

impl Default for RealDiskOptions {
    fn default() -> Self {
        Self { backend: Backend::Auto, direct: true, cached: &[] }
    }
}

/// A directory of the operating system; clones are handles of the same disk.
#[derive(Clone, Debug)]
pub struct RealDisk {
    home: Arc<Home>,
    direct: bool,
    cached: &'static [&'static str],
    note: Option<String>,
    shared: Arc<Shared>,
}

/// The state that the open files share.
#[derive(Debug)]
struct Shared {
    counters: Counters,
    rings: Option<RingPool>,
    /// Whether `RWF_DSYNC` works, as far as is known.
    dsync: AtomicBool,
    /// The process that opened the disk. A forked child changes no file: its copy of the disk's
    /// state is soon out of date.
    process: Process,
    /// What files are extended with. It is kept because the system would look at each page of a new
    /// buffer again.
    zeros: OnceLock<AlignedBuf>,
}

impl Shared {
    fn check_process(&self, operation: &str, path: &Path) -> Result<()> {
        if self.process.is_current() {
            return Ok(());
        }
        Err(describe(operation, path, &Error::other("this process is a fork of the process that opened it")))
    }
}

impl RealDisk {
    /// Opens the directory `path`; creates it durably if it does not exist.
    ///
    /// # Errors
    /// The system's; of kind [`ErrorKind::Unsupported`] if `io_uring` was requested and is not
    /// available.
    pub fn open(path: &Path, options: RealDiskOptions) -> Result<Self> {
        let home = Home::open(path)?;
        let named = home.path().display().to_string();
        let rings = match options.backend {
            Backend::Syscalls => None,
            Backend::Auto => RingPool::probe().ok(),
            Backend::IoUring => Some(RingPool::probe().map_err(|error| {
                let reason = format!("the kernel does not offer io_uring: {error}");
                DiskError::new("use io_uring for", &named, reason, ErrorKind::Unsupported)
            })?),
        };
        // Tried with the lock file, which is needed anyway.
        let direct = options.direct
            && names::accepts_direct(home.handle(), LOCK_FILE)
                .map_err(|error| describe("open", &home.path_of(LOCK_FILE), &error))?;
        let note = (options.direct && !direct)
            .then(|| format!("the file system of `{named}` does not support direct I/O; I/O uses the page cache"));
        let shared = Shared {
            counters: Counters::default(),
            rings,
            dsync: AtomicBool::new(true),
            process: Process::current(),
            zeros: OnceLock::new(),
        };
        Ok(Self { home: Arc::new(home), direct, cached: options.cached, note, shared: Arc::new(shared) })
    }

    /// Returns whether files bypass the page cache, but for those that are named as cached.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Returns what the user should know about how the disk was opened, if anything: that direct
    /// I/O was refused.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }
}

impl Disk for RealDisk {
    fn handle(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        assert_name(name);
        let (operation, made) = match mode {
            OpenMode::CreateNew => ("create", libc::O_CREAT | libc::O_EXCL),
            OpenMode::Existing => ("open", 0),
        };
        let place = self.home.place(operation, name)?;
        self.shared.check_process(operation, &place.path)?;
        let is_direct = self.direct && !self.cached.contains(&name);
        let flags = libc::O_RDWR | made | if is_direct { libc::O_DIRECT } else { 0 };
        let file = names::open(place.directory.as_fd(), place.name, flags, 0o600);
        let file = file.map_err(|error| place.fail(operation, &error))?;
        Ok(Arc::new(RealFile {
            disk: Arc::clone(&self.shared),
            file,
            path: place.path,
            directory: place.directory,
            name: place.name.to_owned(),
            is_direct,
            is_locked: AtomicBool::new(false),
        }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        assert_name(name);
        let found = match self.home.place("look for", name) {
            Ok(place) => {
                names::find(place.directory.as_fd(), place.name).map_err(|error| place.fail("look for", &error))
            }
            Err(error) => Err(error),
        };
        match found {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        assert_directory_name(directory);
        let list = || -> std::io::Result<Vec<String>> {
            let handle = self.home.directory(directory)?;
            let mut files = Vec::new();
            for name in names::list(handle.as_fd())? {
                let is_lock = directory.is_empty() && name == LOCK_FILE;
                // A link that leads nowhere counts as something that exists, too.
                let is_directory = names::find(handle.as_fd(), &name).is_ok_and(|(_, is_directory)| is_directory);
                if !is_directory && !is_lock {
                    files.push(name);
                }
            }
            files.sort_unstable();
            Ok(files)
        };
        list().map_err(|error| describe("list", &self.home.path_of(directory), &error))
    }

    fn create_directory(&self, name: &str) -> Result<()> {
        assert_name(name);
        assert_directory_name(name);
        let (operation, path) = ("create the directory", self.home.path_of(name));
        match names::make_directory(self.home.handle().as_fd(), name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                match names::find(self.home.handle().as_fd(), name) {
                    Ok((_, true)) => Ok(()),
                    _ => Err(home::not_a_directory(&path)),
                }
            }
            done => done.map_err(|error| describe(operation, &path, &error)),
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        assert_name(name);
        let place = self.home.place("remove", name)?;
        self.shared.check_process("remove", &place.path)?;
        names::remove(place.directory.as_fd(), place.name).map_err(|error| place.fail("remove", &error))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        assert_name(from);
        assert_name(to);
        assert_eq!(directory_of(from), directory_of(to), "renames stay within their directory");
        let operation = format!("rename `{}` to", self.home.path_of(from).display());
        let (old, new) = (self.home.place(&operation, from)?, self.home.place(&operation, to)?);
        self.shared.check_process(&operation, &new.path)?;
        names::rename(old.directory.as_fd(), old.name, new.name).map_err(|error| new.fail(&operation, &error))
    }

    fn sync_directory(&self, directory: &str) -> Result<()> {
        assert_directory_name(directory);
        if planted!(SkipDirectorySync) {
            return Ok(());
        }
        let synced = self.home.directory(directory).and_then(|handle| names::sync(&handle));
        synced.map_err(|error| describe("sync the directory", &self.home.path_of(directory), &error).of_write())?;
        self.shared.counters.count_sync();
        Ok(())
    }

    fn verify_home(&self) -> Result<()> {
        self.home.verify()
    }

    fn lock(&self) -> Result<DiskLock> {
        let held = lock::acquire(&self.home)?;
        if let Some(rings) = &self.shared.rings {
            let directory = held.directory().map_err(|error| describe("lock", self.home.path(), &error))?;
            rings.keep_locked(directory);
        }
        Ok(DiskLock::new(held))
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
        self.home.path().display().to_string()
    }

    fn directory(&self) -> Option<PathBuf> {
        Some(self.home.path().to_owned())
    }
}

fn describe(operation: &str, path: &Path, error: &Error) -> DiskError {
    DiskError::system(operation, path.display().to_string(), error)
}
