//! One opener at a time, by an advisory lock on a file of its own.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use duramen_sync::Process;

use super::sys;
use crate::{DiskError, DiskLock, Result};

/// Name of the lock file in the home. [`Disk::list`](crate::Disk::list) does not show it.
pub(super) const LOCK_FILE: &str = "lock";

/// Holds the lock. The lock belongs to the open file, so a second opener in this process is kept out, too, and the
/// system releases it when the process ends, however it ends. The file stays: removing it would race with an opener
/// that has opened it but not locked it yet. A forked child shares the open file: it leaves the lock alone, and does not keep
/// it when the parent gives it up.
struct Held(File, Process);

impl Drop for Held {
    fn drop(&mut self) {
        if self.1.is_current() {
            // The number would mislead once nobody holds the lock. A failure is harmless: the number is only a hint.
            let _ = self.0.set_len(0);
            sys::unlock(self.0.as_fd());
        }
    }
}

/// Takes the lock of the home `directory`.
pub(super) fn acquire(directory: &Path) -> Result<DiskLock> {
    let path = directory.join(LOCK_FILE);
    let named = path.display().to_string();
    let fail = |error: Error| DiskError::system("lock", &named, &error);
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(fail)?;
    match sys::try_lock_exclusive(file.as_fd()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            return Err(DiskError::new("lock", &named, holder(&mut file), ErrorKind::ResourceBusy));
        }
        Err(error) => return Err(fail(error)),
    }
    // From here on dropping `held` releases the lock.
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(fail)?;
    Ok(DiskLock::new(Held(file, Process::current())))
}

/// Says who has the lock, as far as the lock file tells.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let pid = match file.take(32).read_to_string(&mut text) {
        Ok(_) => text.trim().parse::<u32>().ok(),
        Err(_) => None,
    };
    match pid {
        Some(pid) if pid == std::process::id() => "the database is already open in this process".to_owned(),
        Some(pid) => format!("the database is already open in process {pid}"),
        None => "the database is already open elsewhere".to_owned(),
    }
}
