//! The system calls of [`RealDisk`](super::RealDisk), safe to call and continued until done.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use duramen_types::BLOCK_SIZE;

/// The largest number of buffers that one system call takes (`IOV_MAX`).
const MAX_SLICES: usize = 1024;

/// When a write reaches the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Durability {
    /// At the next sync.
    Later,
    /// Before the call returns (`RWF_DSYNC`).
    Now,
}

/// Calls `call` until it is not interrupted, and turns the C convention into a result.
pub(super) fn retry(mut call: impl FnMut() -> isize) -> Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(count) => return Ok(count),
            Err(_) => {
                let error = Error::last_os_error();
                if error.kind() != ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// A read ended before it had all requested bytes.
#[derive(Debug, thiserror::Error)]
#[error("the read ended after {done} bytes")]
pub(super) struct Ended {
    /// Bytes that were read.
    pub(super) done: usize,
}

/// Returns the system's count of the `asked` bytes that were transferred, unless it is impossible.
pub(super) fn checked(count: usize, asked: usize) -> Result<usize> {
    if count <= asked {
        return Ok(count);
    }
    Err(Error::other(format!("the system reports {count} transferred bytes, but only {asked} were requested")))
}

/// Fills `buf` from `offset`. If the file ends before that, the error is [`Ended`].
pub(super) fn read_all(fd: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> Result<()> {
    let mut done = 0;
    while done < buf.len() {
        let rest = &mut buf[done..];
        // SAFETY: `rest` is writable memory of that length for the time of the call.
        let count = retry(|| unsafe {
            libc::pread(fd.as_raw_fd(), rest.as_mut_ptr().cast(), rest.len(), (offset + done as u64) as libc::off_t)
        })?;
        done += checked(count, rest.len())?;
        // A read that stops inside a block has reached the end of the file; direct I/O would refuse
        // to continue from there.
        if count == 0 || !done.is_multiple_of(BLOCK_SIZE) && done < buf.len() {
            return Err(Error::new(ErrorKind::UnexpectedEof, Ended { done }));
        }
    }
    Ok(())
}

/// Writes all of `parts`, one after another, from `offset`.
pub(super) fn write_all(fd: BorrowedFd<'_>, parts: &[&[u8]], offset: u64, durability: Durability) -> Result<()> {
    let flags = if durability == Durability::Now { libc::RWF_DSYNC } else { 0 };
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut rest = slices.as_mut_slice();
    let mut at = offset;
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let now = &rest[..rest.len().min(MAX_SLICES)];
        let asked = now.iter().map(|slice| slice.len()).sum();
        let (start, count) = (now.as_ptr().cast::<libc::iovec>(), now.len() as libc::c_int);
        // SAFETY: an `IoSlice` is an `iovec` by contract, each one describes readable memory, and
        // `now` outlives the call.
        let written = retry(|| unsafe {
            if flags == 0 {
                libc::pwritev(fd.as_raw_fd(), start, count, at as libc::off_t)
            } else {
                libc::pwritev2(fd.as_raw_fd(), start, count, at as libc::off_t, flags)
            }
        })?;
        if written == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
        at += checked(written, asked)? as u64;
        IoSlice::advance_slices(&mut rest, written);
    }
    Ok(())
}

/// Makes the data of a file durable, with what is needed to read it back.
pub(super) fn sync_data(fd: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: the call takes no memory.
    retry(|| unsafe { libc::fdatasync(fd.as_raw_fd()) } as isize).map(|_| ())
}

/// Reserves a range that is not empty on the device, and makes the file at least that long.
pub(super) fn reserve(fd: BorrowedFd<'_>, range: Range<u64>) -> Result<()> {
    let (from, len) = (range.start as libc::off_t, (range.end - range.start) as libc::off_t);
    // SAFETY: the call takes no memory.
    retry(|| unsafe { libc::fallocate(fd.as_raw_fd(), 0, from, len) } as isize).map(|_| ())
}

/// Gives the space of a range that is not empty back to the file system; the file keeps its length.
pub(super) fn discard(fd: BorrowedFd<'_>, range: Range<u64>) -> Result<()> {
    let (from, len) = (range.start as libc::off_t, (range.end - range.start) as libc::off_t);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the call takes no memory.
    retry(|| unsafe { libc::fallocate(fd.as_raw_fd(), mode, from, len) } as isize).map(|_| ())
}

/// Takes the advisory lock of an open file; if another one holds it, the error is
/// `ErrorKind::WouldBlock`.
pub(super) fn try_lock_exclusive(fd: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: the call takes no memory.
    retry(|| unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } as isize).map(|_| ())
}

/// Releases the lock, for all processes that share the open file.
pub(super) fn unlock(fd: BorrowedFd<'_>) {
    // SAFETY: the descriptor is open. A failure has no consequence: closing the file does the same
    // for this process.
    unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_UN) };
}

/// Returns whether `error` means that the system or the file system does not support an operation
/// or flag.
pub(super) fn is_unsupported(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS))
}
