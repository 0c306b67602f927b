//! Admits one opener at a time, by advisory locks.
//!
//! There are two locks: one of the directory itself, which no process can remove while the lock is
//! held, and one of the file `lock` in it, which contains the holder's process number and is what
//! earlier versions of this program lock. Each lock belongs to an open file, so it also excludes a
//! second opener in this process, and the system releases it when the process ends, however it
//! ends.
//!
//! The system may still carry out writes of a process that was killed. It keeps the directory's
//! lock until then ([`super::uring`]), and an opener waits for it ([`super::holder`]).

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use duramen_sync::Process;

use super::holder::{Holder, lock_in_time};
use super::home::Home;
use super::names;
use super::sys;
use crate::{DiskError, Result};

/// Name of the lock file in the home. [`Disk::list`](crate::Disk::list) does not show it.
pub(super) const LOCK_FILE: &str = "lock";

/// Holds the locks. They belong to the open files, so they also exclude a second opener in this
/// process, and the system releases them when the process ends, however it ends. The file stays:
/// removing it would race with an opener that has opened it but not locked it yet. A forked child
/// shares the open files: it does not unlock them, and does not keep the locks when the parent
/// releases them.
pub(super) struct Held {
    file: File,
    directory: File,
    process: Process,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.process.is_current() {
            // The number would mislead when no process holds the lock. A failure is harmless: the
            // number is only a hint.
            let _ = self.file.set_len(0);
            sys::unlock(self.file.as_fd());
            sys::unlock(self.directory.as_fd());
        }
    }
}

impl Held {
    /// Returns another handle of the locked directory, which shares the lock.
    pub(super) fn directory(&self) -> std::io::Result<File> {
        self.directory.try_clone()
    }
}

/// Takes the locks of `home`.
pub(super) fn acquire(home: &Home) -> Result<Held> {
    let fail = |error: Error| DiskError::system("lock", home.path_of(LOCK_FILE).display().to_string(), &error);
    let handle = home.handle().as_fd();
    // A separate handle, with which the lock ends.
    let directory = names::open_directory(handle, ".").map_err(fail)?;
    // Opened without being created: the holder's file may have been removed.
    let named = || names::open(handle, LOCK_FILE, libc::O_RDONLY, 0).ok().and_then(|file| number_in(&file));
    let find_holder = || Holder::of(&directory, named);
    if let Err(holder) = lock_in_time(|| try_lock(&directory), find_holder).map_err(fail)? {
        return Err(busy(home.path(), holder));
    }
    let mut file = names::open(handle, LOCK_FILE, libc::O_RDWR | libc::O_CREAT, 0o666).map_err(fail)?;
    if !try_lock(&file).map_err(fail)? {
        return Err(busy(home.path(), number_in(&file)));
    }
    // From here on dropping `held` releases the locks.
    // A full disk has no room for the number, which is only a hint for others.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(Held { file, directory, process: Process::current() })
}

/// Locks an open file of a home for as long as it is open; returns false if another opener has
/// locked it.
pub(super) fn try_lock(file: &File) -> std::io::Result<bool> {
    match sys::try_lock_exclusive(file.as_fd()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the error of a second opener of `path`.
pub(super) fn busy(path: &Path, holder: Option<u32>) -> DiskError {
    let reason = match holder {
        Some(pid) if pid == std::process::id() => "it is already open in this process".to_owned(),
        Some(pid) => format!("it is already open in process {pid}"),
        None => "it is already open elsewhere".to_owned(),
    };
    let reason = format!("{reason}; only one opener can use it at a time, and removing files does not change that");
    DiskError::new("lock", path.display().to_string(), reason, ErrorKind::ResourceBusy)
}

/// Returns the number that the holder has left in the lock file.
fn number_in(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
