//! Mapping files and memory into the address space.

use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::ptr::NonNull;

use duramen_sync::{Process, cost};

use crate::error::{PmemError, Result};
use crate::guarantee::{Finding, Guarantee};
use crate::mode::Mode;

/// Mapped memory. With a ring, the ring's part is mapped twice in a row. Dropping it unmaps it.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    /// Bytes of memory.
    len: usize,
    /// The memory from this offset on is mapped again after the end.
    ring_from: usize,
    /// Holds the lock on the file; memory of this process has none.
    file: Option<OwnedFd>,
    process: Process,
}

// SAFETY: a mapping is plain memory; its owner controls the accesses to it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of ordinary memory, a multiple of the system's page size, twice in a row.
    /// The system shows them under `name`, and provides the pages as they are first written.
    ///
    /// # Errors
    /// [`PmemError::System`].
    pub fn twice(name: &CStr, len: usize) -> Result<Self> {
        Self::memory(name, len, 0, 0)
    }

    /// Maps memory of this process for a region, and has the system provide it at once.
    pub(crate) fn anonymous(len: usize, ring_from: usize) -> Result<Self> {
        Self::memory(c"duramen-region", len, ring_from, libc::MAP_POPULATE)
    }

    fn memory(name: &CStr, len: usize, ring_from: usize, populate: libc::c_int) -> Result<Self> {
        const LOCATION: &str = "anonymous memory";
        // SAFETY: the name is a C string; the result is checked.
        let memory = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if memory < 0 {
            return Err(PmemError::system("create", LOCATION));
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        let memory = unsafe { OwnedFd::from_raw_fd(memory) };
        set_len(&memory, len, LOCATION)?;
        let mut mapping = Self::map(memory, len, ring_from, libc::MAP_SHARED | populate, LOCATION)?;
        // Mappings outlive the descriptor.
        mapping.file = None;
        Ok(mapping)
    }

    /// Maps a file or a device.
    pub(crate) fn file(
        path: &Path,
        mode: Mode,
        populate: bool,
        (len, ring_from): (usize, usize),
    ) -> Result<(Self, Finding)> {
        let location = path.display().to_string();
        let populate = if populate { libc::MAP_POPULATE } else { 0 };
        check_kind(path, &location)?;
        let (file, is_new) = open(path, mode, &location)?;
        lock(&file, &location)?;
        let metadata = file.metadata().map_err(|error| system("read the attributes of", &location, &error))?;
        let is_device = metadata.file_type().is_char_device();
        // A file left by an interrupted creation has no length yet.
        let is_empty = !is_device && metadata.len() == 0;
        let is_short = !is_device && metadata.len() < len as u64;
        if is_new || is_empty && mode == Mode::OpenOrCreate || is_short && mode == Mode::Grow {
            allocate(&file, len, &location)?;
            file.sync_all().map_err(|error| system("sync", &location, &error))?;
            sync_name(path, &location)?;
        } else if is_short {
            return Err(PmemError::TooSmall { location, len: metadata.len(), wanted: len as u64 });
        } else if !is_device && mode != Mode::Private {
            // A copy may have holes, in which stores would fail for want of space. No byte changes.
            allocate(&file, len, &location)?;
        }
        let on_tmpfs = is_on_tmpfs(path);
        let file = OwnedFd::from(file);
        if mode == Mode::Private && !is_device {
            return Ok((Self::map(file, len, ring_from, libc::MAP_PRIVATE, &location)?, Finding::page_cache(on_tmpfs)));
        }
        // Only file systems can refuse MAP_SYNC; a device has none.
        let synchronous = libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC;
        if is_device || can_map(&file, synchronous) {
            let flags = if is_device { libc::MAP_SHARED } else { synchronous };
            let device = if is_device { metadata.rdev() } else { metadata.dev() };
            let finding = Finding::persistent_memory(device, is_device);
            return Ok((Self::map(file, len, ring_from, flags | populate, &location)?, finding));
        }
        Ok((Self::map(file, len, ring_from, libc::MAP_SHARED | populate, &location)?, Finding::page_cache(on_tmpfs)))
    }

    fn map(file: OwnedFd, len: usize, ring_from: usize, flags: libc::c_int, location: &str) -> Result<Self> {
        let reserved = len + (len - ring_from);
        // SAFETY: reserves address space that nothing else uses; the result is checked.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), reserved, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(PmemError::system("map", location));
        }
        let base = NonNull::new(base.cast::<u8>()).expect("the system never maps address zero unasked");
        let fd = file.as_raw_fd();
        // From here on the drop of the mapping unmaps the whole reservation, also when one of the
        // mappings fails.
        let mapping = Self { base, len, ring_from, file: Some(file), process: Process::current() };
        for (at, from, bytes) in [(0, 0, len), (len, ring_from, len - ring_from)] {
            if bytes == 0 {
                continue;
            }
            let flags = flags | libc::MAP_FIXED;
            let offset = libc::off_t::try_from(from).map_err(|_| PmemError::invalid("len", "it is too large"))?;
            // SAFETY: the range is within the reservation, which `MAP_FIXED` replaces page by page.
            let mapped = unsafe {
                let access = libc::PROT_READ | libc::PROT_WRITE;
                libc::mmap(base.as_ptr().add(at).cast(), bytes, access, flags, fd, offset)
            };
            if mapped == libc::MAP_FAILED {
                return Err(PmemError::system("map", location));
            }
        }
        if ring_from > 0 {
            cost::map(base.as_ptr(), ring_from, 1);
        }
        if ring_from < len {
            cost::map(mapping.at(ring_from), len - ring_from, 2);
        }
        Ok(mapping)
    }

    /// Returns the address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the number of bytes of memory.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of bytes that can be addressed: more than [`Mapping::len`] with a ring.
    pub(crate) fn reach(&self) -> usize {
        self.len + (self.len - self.ring_from)
    }

    /// Returns the address of offset `at`, which is within reach.
    #[inline(always)]
    pub(crate) fn at(&self, at: usize) -> *mut u8 {
        debug_assert!(at <= self.reach(), "{at} is within the mapping");
        self.base.as_ptr().wrapping_add(at)
    }

    /// Converts an offset in the mapping to the offset in the memory itself.
    #[inline]
    pub(crate) fn canonical(&self, at: usize) -> usize {
        if at < self.len { at } else { at - (self.len - self.ring_from) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        cost::unmap(self.base.as_ptr());
        if self.ring_from > 0 {
            cost::unmap(self.at(self.ring_from));
        }
        if let Some(file) = &self.file
            && self.process.is_current()
        {
            // A forked child shares the open file, and would keep the lock.
            // SAFETY: plain system call on a descriptor we own.
            unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
        }
        // SAFETY: this is the reservation of `map`, and the borrow rules say that no slice of it is
        // left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.reach()) };
    }
}

fn system(operation: &'static str, location: &str, error: &std::io::Error) -> PmemError {
    PmemError::System { operation, location: location.to_owned(), reason: error.to_string() }
}

/// Refuses a file or device that is not memory. The check comes before the opening, because opening
/// some devices has effects.
fn check_kind(path: &Path, location: &str) -> Result<()> {
    let Ok(metadata) = path.metadata() else { return Ok(()) };
    let kind = metadata.file_type();
    if kind.is_file() || kind.is_char_device() && is_dax(metadata.rdev()) {
        return Ok(());
    }
    let reason =
        "it is neither a file nor a device of persistent memory (DAX); name a file or such a device".to_owned();
    Err(PmemError::System { operation: "map", location: location.to_owned(), reason })
}

/// Returns whether the system reports the character device as persistent memory.
fn is_dax(device: libc::dev_t) -> bool {
    let link = format!("/sys/dev/char/{}:{}/subsystem", libc::major(device), libc::minor(device));
    Path::new(&link).canonicalize().is_ok_and(|subsystem| subsystem.ends_with("dax"))
}

fn open(path: &Path, mode: Mode, location: &str) -> Result<(File, bool)> {
    let existing = || OpenOptions::new().read(true).write(true).open(path);
    let is_device = || path.metadata().is_ok_and(|metadata| metadata.file_type().is_char_device());
    let new = || OpenOptions::new().read(true).write(true).create_new(true).open(path);
    let opened = match mode {
        Mode::Open | Mode::Grow => existing().map(|file| (file, false)),
        Mode::Private => OpenOptions::new().read(true).write(is_device()).open(path).map(|file| (file, false)),
        Mode::Create => new().map(|file| (file, true)),
        Mode::OpenOrCreate => match existing() {
            Err(error) if error.kind() == ErrorKind::NotFound => new().map(|file| (file, true)),
            opened => opened.map(|file| (file, false)),
        },
    };
    opened.map_err(|error| match error.kind() {
        ErrorKind::NotFound => PmemError::Missing { location: location.to_owned() },
        ErrorKind::AlreadyExists => PmemError::AlreadyExists { location: location.to_owned() },
        _ => system("open", location, &error),
    })
}

fn lock(file: &File, location: &str) -> Result<()> {
    // SAFETY: plain system call on a descriptor we own.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(());
    }
    if std::io::Error::last_os_error().kind() == ErrorKind::WouldBlock {
        return Err(PmemError::Busy { location: location.to_owned() });
    }
    Err(PmemError::system("lock", location))
}

/// Gives the file its length and allocates its space: a store to a page without space in the file
/// system would end the process.
fn allocate(file: &File, len: usize, location: &str) -> Result<()> {
    let bytes = libc::off_t::try_from(len).map_err(|_| PmemError::invalid("len", "it is too large"))?;
    // Memory file systems give up when a signal arrives.
    const ATTEMPTS: usize = 100;
    let mut refused = 0;
    for _ in 0..ATTEMPTS {
        // SAFETY: plain system call on a descriptor we own.
        refused = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes) };
        match refused {
            0 => return Ok(()),
            libc::EINTR => {}
            _ => break,
        }
    }
    Err(system("allocate", location, &std::io::Error::from_raw_os_error(refused)))
}

fn set_len(memory: &OwnedFd, len: usize, location: &str) -> Result<()> {
    let bytes = libc::off_t::try_from(len).map_err(|_| PmemError::invalid("len", "it is too large"))?;
    // SAFETY: plain system call on a descriptor we own.
    if unsafe { libc::ftruncate(memory.as_raw_fd(), bytes) } != 0 {
        return Err(PmemError::system("allocate", location));
    }
    Ok(())
}

/// Makes the name of a new file durable.
fn sync_name(path: &Path, location: &str) -> Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| system("sync the directory of", location, &error))
}

/// Returns whether a page of the file can be mapped with these flags.
fn can_map(file: &OwnedFd, flags: libc::c_int) -> bool {
    const PAGE: usize = 4096;
    // SAFETY: a new mapping where the system likes; the result is checked.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
    if page == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: it has just been mapped, and no other code has its address.
    unsafe { libc::munmap(page, PAGE) };
    true
}

fn is_on_tmpfs(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: the structure is plain numbers, for which zero is a value.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the name is a C string, and the structure can be written to.
    let known = unsafe { libc::statfs(name.as_ptr(), &raw mut about) } == 0;
    known && i128::from(about.f_type) == i128::from(libc::TMPFS_MAGIC)
}

/// Returns the finding for memory of this process.
pub(crate) fn anonymous_finding() -> Finding {
    Finding::new(Guarantee::Nothing, "it is memory of this process")
}
