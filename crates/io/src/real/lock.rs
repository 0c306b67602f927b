//! Admits one opener at a time, by advisory locks.
//!
//! There are two locks: one of the directory itself, which no process can remove while the lock is
//! held, and one of the file `lock` in it, which contains the holder's process number and is what
//! earlier versions of this program lock. Each lock belongs to an open file, so it also excludes a
//! second opener in this process, and the system releases it when the process ends, however it
//! ends.
//!
//! The system may still carry out writes of a process that was killed. It keeps the directory's
//! lock until then ([`super::uring`]), and an opener waits for it.

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use duramen_sync::clock::Instant;
use duramen_sync::{Process, thread};

use super::home::Home;
use super::names::{self, FileId};
use super::sys;
use crate::{DiskError, Result};

/// Name of the lock file in the home. [`Disk::list`](crate::Disk::list) does not show it.
pub(super) const LOCK_FILE: &str = "lock";

/// Longest wait for the writes of a holder that seems to have ended, and the pause between two
/// looks. The holder may also be out of sight, in another container.
const LAST_WRITES: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(1);

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
    let find_holder = || {
        let listed = holder(&directory);
        // Opened without being created: the holder's file may have been removed.
        let named = || names::open(handle, LOCK_FILE, libc::O_RDONLY, 0).ok().and_then(|file| number_in(&file));
        Holder::of(listed, named)
    };
    if let Err(holder) = lock_in_time(|| try_lock(&directory), find_holder).map_err(fail)? {
        return Err(busy(home.path(), holder));
    }
    let mut file = names::open(handle, LOCK_FILE, libc::O_RDWR | libc::O_CREAT, 0o666).map_err(fail)?;
    if !try_lock(&file).map_err(fail)? {
        return Err(busy(home.path(), number_in(&file)));
    }
    // From here on dropping `held` releases the locks.
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(fail)?;
    Ok(Held { file, directory, process: Process::current() })
}

/// The process that has a lock, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    process: Option<u32>,
    /// Whether it may have ended, with writes that the system still carries out.
    may_have_ended: bool,
}

impl Holder {
    /// Returns the process that the system lists. One that it does not list may have ended, too:
    /// some systems list only those that run.
    pub(crate) fn listed(process: Option<u32>) -> Self {
        Self { process, may_have_ended: process.is_none_or(has_ended) }
    }

    /// Returns the process that the system lists, or the one that is named. If that one has the
    /// number of this process and is not listed, it ran before, in another container.
    pub(crate) fn of(listed: Option<u32>, named: impl FnOnce() -> Option<u32>) -> Self {
        if listed.is_some() {
            return Self::listed(listed);
        }
        let process = named();
        let may_have_ended = process.is_some_and(|process| process == std::process::id() || has_ended(process));
        Self { process, may_have_ended }
    }
}

/// Tries to lock until it succeeds. If a process that has not ended is the holder, or the system
/// takes too long to end the writes of one that has, returns the holder.
pub(crate) fn lock_in_time(
    mut attempt: impl FnMut() -> std::io::Result<bool>,
    find_holder: impl Fn() -> Holder,
) -> std::io::Result<std::result::Result<(), Option<u32>>> {
    let asked = Instant::now();
    while !attempt()? {
        let holder = find_holder();
        if !holder.may_have_ended || asked.elapsed() > LAST_WRITES {
            return Ok(Err(holder.process));
        }
        thread::sleep(LOOK);
    }
    Ok(Ok(()))
}

/// Returns whether there is no such process any more, or only its outcome is left.
fn has_ended(process: u32) -> bool {
    match fs::read_to_string(format!("/proc/{process}/stat")) {
        // Behind the name of the program, which may contain anything.
        Ok(stat) => stat.rsplit(") ").next().is_some_and(|state| state.starts_with(['Z', 'X'])),
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
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

/// Returns the process that has locked `file`, if the system reports it.
pub(crate) fn holder(file: &File) -> Option<u32> {
    let id = names::identity(file).ok()?;
    holder_in(&fs::read_to_string("/proc/locks").ok()?, id)
}

/// Finds the holder in the system's list of locks: lines such as
/// `1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF`.
fn holder_in(locks: &str, (device, number): FileId) -> Option<u32> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let file = format!("{major:02x}:{minor:02x}:{number}");
    let is_of_file = |line: &&str| line.contains("FLOCK") && line.split_whitespace().any(|word| word == file);
    locks.lines().find(is_of_file)?.split_whitespace().nth(4)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_ended_when_it_is_killed() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!has_ended(child.id()) && !has_ended(std::process::id()));
        child.kill().unwrap();
        let asked = Instant::now();
        while !has_ended(child.id()) {
            assert!(asked.elapsed() < Duration::from_secs(20), "nobody has asked for its outcome");
            thread::sleep(LOOK);
        }
        child.wait().unwrap();
        assert!(has_ended(child.id()));
    }

    #[test]
    fn the_systems_list_of_locks_names_the_holder() {
        let locks = "1: POSIX  ADVISORY  WRITE 12 08:01:131 0 EOF\n2: FLOCK  ADVISORY  WRITE 4711 08:11:131 0 EOF\n";
        assert_eq!(holder_in(locks, (libc::makedev(8, 0x11), 131)), Some(4711));
        assert_eq!(holder_in(locks, (libc::makedev(8, 1), 131)), None, "a lock of another kind");
        assert_eq!(holder_in(locks, (libc::makedev(8, 0x11), 13)), None);
        assert_eq!(holder_in("nonsense\n\n", (1, 2)), None);
    }
}
