//! A socket by which a process answers other processes about a directory that it has to itself.
//!
//! Its name is in the system's own name space (an abstract socket, `unix(7)`), and made of the
//! directory's device and inode number. So there is no file that a killed process could leave
//! behind, and no limit on the length of the directory's path. Such names have no permissions: each
//! side asks the system for the user of the other one. A listener talks to its own user and to the
//! superuser. A process that connects talks to these, and to the owner of the directory, and waits
//! for nobody.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::thread;

/// Waits for other processes.
#[derive(Debug)]
pub struct LocalListener {
    listener: UnixListener,
    is_closed: AtomicBool,
}

impl LocalListener {
    /// Listens for processes that connect to `directory`.
    ///
    /// # Errors
    /// Those of the system; [`ErrorKind::AddrInUse`] if another process listens there.
    pub fn bind(directory: &Path) -> Result<Self> {
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name(directory)?)?)?;
        Ok(Self { listener, is_closed: AtomicBool::new(false) })
    }

    /// Waits for the next process that is trusted; returns nothing after [`Self::close`].
    pub fn accept(&self) -> Option<UnixStream> {
        loop {
            let accepted = self.listener.accept();
            if self.is_closed() {
                return None;
            }
            match accepted {
                Ok((stream, _)) if peer(stream.as_fd()).is_ok_and(|peer| is_trusted(peer.uid)) => return Some(stream),
                Ok(_) => {}
                // It may have too many files open for a while.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Returns whether [`Self::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Makes [`Self::accept`] return, in whatever thread. Processes that have connected find the
    /// connection closed when the listener is dropped.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        // SAFETY: the descriptor is open. A failure means that nobody can connect either.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

/// Connects to the process that listens for `directory`; returns its number, too. Returns nothing
/// if there is none, if it is not trusted, or if more processes wait for it than it can take.
///
/// # Errors
/// Those of the system.
pub fn connect_locally(directory: &Path) -> Result<Option<(UnixStream, u32)>> {
    let owner = std::fs::metadata(directory)?.uid();
    let Some(stream) = connect(name(directory)?.as_bytes())? else { return Ok(None) };
    let peer = peer(stream.as_fd())?;
    let is_trusted = is_trusted(peer.uid) || peer.uid == owner;
    Ok(is_trusted.then_some((stream, peer.pid.cast_unsigned())))
}

/// Returns whether the other side has closed the connection.
pub fn is_left(stream: &UnixStream) -> bool {
    let mut byte = 0_u8;
    let to = std::ptr::from_mut(&mut byte).cast();
    // SAFETY: the descriptor is open, and `to` is one writable byte.
    let count = unsafe { libc::recv(stream.as_raw_fd(), to, 1, libc::MSG_PEEK | libc::MSG_DONTWAIT) };
    count == 0 || count < 0 && Error::last_os_error().kind() != ErrorKind::WouldBlock
}

/// Returns the name of a directory's socket.
fn name(directory: &Path) -> Result<String> {
    let found = std::fs::metadata(directory)?;
    Ok(format!("duramen:{:x}:{:x}", found.dev(), found.ino()))
}

/// Connects to an abstract name, without waiting for a place in the listener's queue.
fn connect(name: &[u8]) -> Result<Option<UnixStream>> {
    // SAFETY: all zeros are an address, although not one to connect to.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // An abstract name begins behind a zero.
    assert!(name.len() < address.sun_path.len(), "two numbers are short");
    for (to, byte) in address.sun_path[1..].iter_mut().zip(name) {
        *to = *byte as libc::c_char;
    }
    let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call takes numbers only.
    let socket = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if socket < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nobody else closes it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let from = std::ptr::from_ref(&address).cast();
    // SAFETY: the descriptor is open, and `from` is an address of at least `len` bytes.
    if unsafe { libc::connect(socket.as_raw_fd(), from, len as libc::socklen_t) } != 0 {
        let error = Error::last_os_error();
        return match error.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::WouldBlock => Ok(None),
            _ => Err(error),
        };
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(Some(stream))
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

    use duramen_sync::Arc;

    use super::*;

    #[test]
    fn a_listener_is_found_by_its_directory_until_it_is_closed() {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert!(connect_locally(home.path()).unwrap().is_none());
        let listener = Arc::new(LocalListener::bind(home.path()).unwrap());
        assert_eq!(LocalListener::bind(home.path()).unwrap_err().kind(), ErrorKind::AddrInUse);
        let serving = Arc::clone(&listener);
        let served = thread::spawn("serving", move || {
            let mut count = 0;
            while let Some(mut stream) = serving.accept() {
                let mut read = [0; 3];
                stream.read_exact(&mut read).unwrap();
                stream.write_all(&read).unwrap();
                count += 1;
            }
            count
        })
        .unwrap();
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
        let (stream, _) = connect_locally(home.path()).unwrap().unwrap();
        assert!(!is_left(&stream));
        (&stream).write_all(b"abc").unwrap();
        (&stream).read_exact(&mut [0; 3]).unwrap();
        while !is_left(&stream) {
            thread::yield_now();
        }
        listener.close();
        assert_eq!(served.join().unwrap(), 3);
        assert!(connect_locally(home.path()).unwrap().is_none());
        drop(listener);
        drop(LocalListener::bind(home.path()).unwrap());
        assert_eq!(connect_locally(&other.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
