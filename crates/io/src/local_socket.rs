//! A socket by which a process answers other processes about a directory that it has to itself.
//!
//! Its name is in the system's own name space (an abstract socket, `unix(7)`), and made of the
//! directory's device and inode number. So there is no file that a killed process could leave
//! behind, and no limit on the length of the directory's path. Such names have no permissions: each
//! side asks the system for the user of the other one, and talks only to itself and to the
//! superuser.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;

/// Waits for other processes.
#[derive(Debug)]
pub struct LocalListener(UnixListener);

impl LocalListener {
    /// Listens for processes that connect to `directory`.
    ///
    /// # Errors
    /// Those of the system; [`ErrorKind::AddrInUse`] if another process listens there.
    pub fn bind(directory: &Path) -> Result<Self> {
        Ok(Self(UnixListener::bind_addr(&address(directory)?)?))
    }

    /// Waits for the next process of the same user; returns nothing after [`Self::close`].
    pub fn accept(&self) -> Option<UnixStream> {
        loop {
            match self.0.accept() {
                Ok((stream, _)) if peer(stream.as_fd()).is_ok_and(|peer| is_trusted(peer.uid)) => return Some(stream),
                Err(error)
                    if error.kind() != ErrorKind::Interrupted && error.kind() != ErrorKind::ConnectionAborted =>
                {
                    return None;
                }
                _ => {}
            }
        }
    }

    /// Makes [`Self::accept`] return, in whatever thread.
    pub fn close(&self) {
        // SAFETY: the descriptor is open. A failure means that nobody can connect either.
        unsafe { libc::shutdown(self.0.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

/// Connects to the process that listens for `directory`; returns its number, too. Returns nothing
/// if there is none, or if it is not trusted.
///
/// # Errors
/// Those of the system.
pub fn connect_locally(directory: &Path) -> Result<Option<(UnixStream, u32)>> {
    let stream = match UnixStream::connect_addr(&address(directory)?) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
        connected => connected?,
    };
    let peer = peer(stream.as_fd())?;
    Ok(is_trusted(peer.uid).then_some((stream, peer.pid.cast_unsigned())))
}

fn address(directory: &Path) -> Result<SocketAddr> {
    let found = std::fs::metadata(directory)?;
    SocketAddr::from_abstract_name(format!("duramen:{:x}:{:x}", found.dev(), found.ino()))
}

/// Returns the credentials that the other process had when it connected, or began to listen.
fn peer(stream: BorrowedFd<'_>) -> Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let to = std::ptr::from_mut(&mut peer).cast();
    // SAFETY: the descriptor is open, and `to` is writable memory of `len` bytes.
    let result = unsafe { libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut len) };
    if result == 0 { Ok(peer) } else { Err(Error::last_os_error()) }
}

fn is_trusted(user: libc::uid_t) -> bool {
    // SAFETY: the call has no conditions, and cannot fail.
    user == 0 || user == unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_listener_is_found_by_its_directory_until_it_is_closed() {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert!(connect_locally(home.path()).unwrap().is_none());
        let listener = LocalListener::bind(home.path()).unwrap();
        assert_eq!(LocalListener::bind(home.path()).unwrap_err().kind(), ErrorKind::AddrInUse);
        std::thread::scope(|scope| {
            let served = scope.spawn(|| {
                let mut count = 0;
                while let Some(mut stream) = listener.accept() {
                    let mut read = [0; 3];
                    stream.read_exact(&mut read).unwrap();
                    stream.write_all(&read).unwrap();
                    count += 1;
                }
                count
            });
            // By another path to the same directory, too.
            let link = other.path().join("link");
            std::os::unix::fs::symlink(home.path(), &link).unwrap();
            for path in [home.path(), &link] {
                let (mut stream, process) = connect_locally(path).unwrap().unwrap();
                assert_eq!(process, std::process::id());
                stream.write_all(b"abc").unwrap();
                let mut read = String::new();
                stream.read_to_string(&mut read).unwrap();
                assert_eq!(read, "abc");
            }
            assert!(connect_locally(other.path()).unwrap().is_none());
            listener.close();
            assert_eq!(served.join().unwrap(), 2);
        });
        assert!(connect_locally(home.path()).unwrap().is_none());
        drop(listener);
        drop(LocalListener::bind(home.path()).unwrap());
        assert_eq!(connect_locally(&other.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
