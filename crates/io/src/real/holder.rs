//! The holder of a lock that another opener wants: whether it is worth waiting for.
//!
//! A process that was killed may hold its lock a little longer, until the system has carried out
//! its last writes.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::time::Duration;

use duramen_sync::clock::Instant;
use duramen_sync::thread;

use super::names::{self, FileId};

/// Longest wait for the writes of a holder that seems to have ended, and the pause between two
/// looks. The holder may also be out of sight, in another container.
const LAST_WRITES: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(1);

/// The process that has a lock, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    process: Option<u32>,
    /// Whether it may have ended, with writes that the system still carries out.
    may_have_ended: bool,
}

impl Holder {
    /// Returns the holder of the lock of `file`, by what the system lists. A process that it does
    /// not list may have ended, too: some systems list only those that run.
    pub(crate) fn listed(file: &File) -> Self {
        let process = process_in_list(file);
        Self { process, may_have_ended: process.is_none_or(has_ended) }
    }

    /// Returns the holder of the lock of `file`: the process that the system lists, or the one that
    /// is named. If that one has the number of this process and is not listed, it ran before, in
    /// another container.
    pub(crate) fn of(file: &File, named: impl FnOnce() -> Option<u32>) -> Self {
        let listed = Self::listed(file);
        if listed.process.is_some() {
            return listed;
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

/// Returns the process that has locked `file`, if the system reports it.
fn process_in_list(file: &File) -> Option<u32> {
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
