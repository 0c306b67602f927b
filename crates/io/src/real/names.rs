//! System calls on names, each relative to an open directory: whatever happens to the path of the
//! directory, they stay in it.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use super::sys::retry;

/// Identifies a file among all others while it exists: its device and its number there.
pub(super) type FileId = (u64, u64);

fn c_string(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| Error::new(ErrorKind::InvalidInput, "the name contains a zero byte"))
}

/// Opens `name`, with these flags and, if it is created, this mode.
pub(super) fn open(directory: BorrowedFd<'_>, name: &str, flags: libc::c_int, mode: libc::mode_t) -> Result<File> {
    let name = c_string(name)?;
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: `name` is a string that ends with zero and outlives the call.
    let fd = retry(|| unsafe { libc::openat(directory.as_raw_fd(), name.as_ptr(), flags, mode) } as isize)?;
    // SAFETY: the call has returned a new descriptor, which no other code owns.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) }))
}

/// Opens the directory `name`.
pub(super) fn open_directory(directory: BorrowedFd<'_>, name: &str) -> Result<File> {
    open(directory, name, libc::O_RDONLY | libc::O_DIRECTORY, 0)
}

/// Creates the directory `name`.
pub(super) fn make_directory(directory: BorrowedFd<'_>, name: &str) -> Result<()> {
    let name = c_string(name)?;
    // SAFETY: as in `open`.
    retry(|| unsafe { libc::mkdirat(directory.as_raw_fd(), name.as_ptr(), 0o777) } as isize).map(|_| ())
}

/// Removes the file `name`.
pub(super) fn remove(directory: BorrowedFd<'_>, name: &str) -> Result<()> {
    let name = c_string(name)?;
    // SAFETY: as in `open`.
    retry(|| unsafe { libc::unlinkat(directory.as_raw_fd(), name.as_ptr(), 0) } as isize).map(|_| ())
}

/// Renames `from` to `to`, which may exist.
pub(super) fn rename(directory: BorrowedFd<'_>, from: &str, to: &str) -> Result<()> {
    let (from, to, fd) = (c_string(from)?, c_string(to)?, directory.as_raw_fd());
    // SAFETY: as in `open`, for both names.
    retry(|| unsafe { libc::renameat(fd, from.as_ptr(), fd, to.as_ptr()) } as isize).map(|_| ())
}

/// Returns the identity of the file with the name `name`, and whether it is a directory; follows
/// links.
pub(super) fn find(directory: BorrowedFd<'_>, name: &str) -> Result<(FileId, bool)> {
    let name = c_string(name)?;
    // SAFETY: all zeros are a `stat`, which the call fills in.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `name` as in `open`; `stat` is writable for the time of the call.
    retry(|| unsafe { libc::fstatat(directory.as_raw_fd(), name.as_ptr(), &raw mut stat, 0) } as isize)?;
    Ok(((stat.st_dev, stat.st_ino), stat.st_mode & libc::S_IFMT == libc::S_IFDIR))
}

/// Returns the names in the directory, without itself and its parent, in no order.
pub(super) fn list(directory: BorrowedFd<'_>) -> Result<Vec<String>> {
    // With a separate file position.
    let fd = open_directory(directory, ".")?.into_raw_fd();
    // SAFETY: the descriptor is open, and no other code has it; the stream owns it from now on.
    let stream = unsafe { libc::fdopendir(fd) };
    if stream.is_null() {
        let error = Error::last_os_error();
        // SAFETY: the stream has not taken the descriptor.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        return Err(error);
    }
    let mut names = Vec::new();
    let outcome = loop {
        // SAFETY: the location of this thread's error number, to which no other thread writes.
        unsafe { *libc::__errno_location() = 0 };
        // SAFETY: the stream is open and only this thread uses it.
        let entry = unsafe { libc::readdir(stream) };
        if entry.is_null() {
            let error = Error::last_os_error();
            break if error.raw_os_error() == Some(0) { Ok(()) } else { Err(error) };
        }
        // SAFETY: the entry is valid until the next call, and its name ends with zero.
        let name = unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) };
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(OsStr::from_bytes(name.to_bytes()).to_string_lossy().into_owned());
        }
    };
    // SAFETY: the stream is open and not used any more.
    unsafe { libc::closedir(stream) };
    outcome.map(|()| names)
}

/// Returns the identity of an open file.
pub(super) fn identity(file: &File) -> Result<FileId> {
    use std::os::unix::fs::MetadataExt;
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Returns the identity of the directory to which `path` leads.
pub(super) fn identity_of_path(path: &std::path::Path) -> Result<FileId> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Opens a handle of the directory `path`.
pub(super) fn open_path(path: &std::path::Path) -> Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(path)
}

/// Makes the names in a directory durable.
pub(super) fn sync(directory: &File) -> Result<()> {
    // The standard library repeats an interrupted sync.
    directory.sync_all()
}

/// Returns whether the file system lets `name`, which is created if it does not exist, be opened
/// for direct I/O.
pub(super) fn accepts_direct(directory: &File, name: &str) -> Result<bool> {
    match open(directory.as_fd(), name, libc::O_RDWR | libc::O_CREAT | libc::O_DIRECT, 0o666) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}
