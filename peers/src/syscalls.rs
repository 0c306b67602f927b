//! Counts what the engines ask of the disk.
//!
//! This program defines the C library's functions that make data durable, and those that open and
//! close files, so that the linker gives them to every engine in it, Rust, C or C++ (what a
//! preloaded library would do). Each counts and makes the system call. Descriptors that were opened
//! with `O_SYNC` or `O_DSYNC` are remembered: each write to one of them is a sync, too. What goes
//! past the C library, by io_uring or bare system calls, is not seen here: an engine that does so
//! must count for itself (`Peer::own_counts`).

use std::ffi::c_char;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use libc::{c_int, c_long, c_uint, c_void, iovec, mode_t, off_t, off64_t, size_t, ssize_t};
use serde::{Deserialize, Serialize};

static FSYNC: AtomicU64 = AtomicU64::new(0);
static FDATASYNC: AtomicU64 = AtomicU64::new(0);
static MSYNC: AtomicU64 = AtomicU64::new(0);
static RANGE: AtomicU64 = AtomicU64::new(0);
static SYNC_WRITE: AtomicU64 = AtomicU64::new(0);
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Descriptors with numbers beyond this are not remembered.
const DESCRIPTORS: usize = 65_536;
/// Whether writes to a descriptor are syncs.
static SYNCHRONOUS: [AtomicBool; DESCRIPTORS] = [const { AtomicBool::new(false) }; DESCRIPTORS];

/// What a process has asked of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Calls of `fsync`.
    pub(crate) fsync: u64,
    /// Calls of `fdatasync`.
    pub(crate) fdatasync: u64,
    /// Calls of `msync` that wait.
    pub(crate) msync: u64,
    /// Calls of `sync_file_range`. It makes nothing durable: it is shown, and not counted as a
    /// sync.
    pub(crate) sync_file_range: u64,
    /// Writes to descriptors with `O_SYNC` or `O_DSYNC`, and `pwritev2` with `RWF_SYNC` or
    /// `RWF_DSYNC`.
    pub(crate) sync_writes: u64,
    /// Bytes written by calls, to whatever it was.
    pub(crate) written: u64,
}

impl Counts {
    /// The counts so far.
    pub(crate) fn now() -> Self {
        Self {
            fsync: FSYNC.load(Relaxed),
            fdatasync: FDATASYNC.load(Relaxed),
            msync: MSYNC.load(Relaxed),
            sync_file_range: RANGE.load(Relaxed),
            sync_writes: SYNC_WRITE.load(Relaxed),
            written: WRITTEN.load(Relaxed),
        }
    }

    /// What was added since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            fsync: self.fsync - before.fsync,
            fdatasync: self.fdatasync - before.fdatasync,
            msync: self.msync - before.msync,
            sync_file_range: self.sync_file_range - before.sync_file_range,
            sync_writes: self.sync_writes - before.sync_writes,
            written: self.written - before.written,
        }
    }

    /// All that made data durable.
    pub(crate) fn syncs(self) -> u64 {
        self.fsync + self.fdatasync + self.msync + self.sync_writes
    }
}

/// Whether the counting works: the functions above, and not the C library's, are the ones that are
/// called.
pub(crate) fn works() -> bool {
    let before = Counts::now();
    let Ok(file) = tempfile::tempfile() else { return false };
    let synced = file.sync_data().is_ok() && file.sync_all().is_ok();
    let Counts { fsync, fdatasync, .. } = Counts::now().since(before);
    synced && fsync == 1 && fdatasync == 1
}

/// Bytes that the process has caused to be sent to the storage layer (`write_bytes` of
/// `/proc/self/io`): pages that it has made dirty, and direct writes.
pub(crate) fn bytes_written() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("write_bytes: "))?.trim().parse().ok()
}

/// Context switches of all threads so far: those that waited, and those that were preempted.
pub(crate) fn context_switches() -> (u64, u64) {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a whole `rusage`, for which all zero bytes are a value.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    (usage.ru_nvcsw as u64, usage.ru_nivcsw as u64)
}

fn remember(fd: c_int, synchronous: bool) {
    if let Some(slot) = usize::try_from(fd).ok().and_then(|fd| SYNCHRONOUS.get(fd)) {
        slot.store(synchronous, Relaxed);
    }
}

fn count_write(fd: c_int) {
    if usize::try_from(fd).ok().and_then(|fd| SYNCHRONOUS.get(fd)).is_some_and(|slot| slot.load(Relaxed)) {
        SYNC_WRITE.fetch_add(1, Relaxed);
    }
}

/// Counts the bytes of a write that went well.
fn wrote(bytes: c_long) -> ssize_t {
    WRITTEN.fetch_add(u64::try_from(bytes).unwrap_or(0), Relaxed);
    bytes as ssize_t
}

fn status(status: c_long) -> c_int {
    status as c_int
}

fn opened(fd: c_long, flags: c_int) -> c_int {
    let fd = fd as c_int;
    // O_SYNC has the bit of O_DSYNC.
    remember(fd, flags & libc::O_DSYNC != 0);
    fd
}

/// A function of the C library that goes straight to the system call, after counting.
macro_rules! interpose {
    ($($name:ident($($argument:ident: $type:ty),*) -> $finish:ident $result:ty = $call:expr, $count:expr;)*) => {$(
        /// Counts and makes the system call.
        ///
        /// # Safety
        /// As the C library's function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            $count;
            // SAFETY: the caller keeps the C library's promises, which are the system call's.
            $finish(unsafe { libc::syscall($call, $($argument),*) })
        }
    )*};
}

interpose! {
    fsync(fd: c_int) -> status c_int = libc::SYS_fsync, FSYNC.fetch_add(1, Relaxed);
    fdatasync(fd: c_int) -> status c_int = libc::SYS_fdatasync, FDATASYNC.fetch_add(1, Relaxed);
    msync(address: *mut c_void, length: size_t, flags: c_int) -> status c_int = libc::SYS_msync,
        if flags & libc::MS_SYNC != 0 { MSYNC.fetch_add(1, Relaxed); };
    sync_file_range(fd: c_int, offset: off64_t, bytes: off64_t, flags: c_uint) -> status c_int =
        libc::SYS_sync_file_range,
        RANGE.fetch_add(1, Relaxed);
    close(fd: c_int) -> status c_int = libc::SYS_close, remember(fd, false);
    write(fd: c_int, buffer: *const c_void, bytes: size_t) -> wrote ssize_t = libc::SYS_write, count_write(fd);
    pwrite(fd: c_int, buffer: *const c_void, bytes: size_t, offset: off_t) -> wrote ssize_t = libc::SYS_pwrite64,
        count_write(fd);
    pwrite64(fd: c_int, buffer: *const c_void, bytes: size_t, offset: off64_t) -> wrote ssize_t = libc::SYS_pwrite64,
        count_write(fd);
    writev(fd: c_int, parts: *const iovec, count: c_int) -> wrote ssize_t = libc::SYS_writev, count_write(fd);
}

// The kernel takes the offset of these in two halves; on 64-bit machines the second is not looked
// at.
const HIGH: c_long = 0;

/// Counts and makes the system call.
///
/// # Safety
/// As the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    count_write(fd);
    // SAFETY: as the caller promises.
    unsafe { wrote(libc::syscall(libc::SYS_pwritev, fd, parts, count, offset, HIGH)) }
}

/// Counts and makes the system call.
///
/// # Safety
/// As the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pwritev64(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t) -> ssize_t {
    // SAFETY: as the caller promises.
    unsafe { pwritev(fd, parts, count, offset) }
}

/// Counts and makes the system call.
///
/// # Safety
/// As the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pwritev2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // RWF_SYNC is another bit, and more.
    if flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0 {
        SYNC_WRITE.fetch_add(1, Relaxed);
    } else {
        count_write(fd);
    }
    // SAFETY: as the caller promises.
    unsafe { wrote(libc::syscall(libc::SYS_pwritev2, fd, parts, count, offset, HIGH, flags)) }
}

/// Counts and makes the system call.
///
/// # Safety
/// As the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pwritev64v2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off64_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as the caller promises.
    unsafe { pwritev2(fd, parts, count, offset, flags) }
}

/// `open` and its kin have a last argument only when they make a file. Passing it on always is
/// sound: on the machines that this is for, a named argument is passed as a variable one is, and
/// the system looks at it only when it is meant.
macro_rules! interpose_open {
    ($($name:ident, $at:ident;)*) => {$(
        /// Remembers how the file was opened.
        ///
        /// # Safety
        /// As the C library's function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            // SAFETY: as the caller promises.
            opened(unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode) }, flags)
        }

        /// Remembers how the file was opened.
        ///
        /// # Safety
        /// As the C library's function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $at(
            directory: c_int,
            path: *const c_char,
            flags: c_int,
            mode: mode_t,
        ) -> c_int {
            // SAFETY: as the caller promises.
            opened(unsafe { libc::syscall(libc::SYS_openat, directory, path, flags, mode) }, flags)
        }
    )*};
}

interpose_open! {
    open, openat;
    open64, openat64;
}
