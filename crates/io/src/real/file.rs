//! Handles of real files.

use std::fs;
use std::io::{Error, ErrorKind};
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::PathBuf;

use duramen_sync::Arc;
use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_types::BLOCK_SIZE;

use super::holder::{Holder, lock_in_time};
use super::home::moved;
use super::sys::{self, Durability, Ended};
use super::uring::Failed;
use super::{Shared, lock, names};
use crate::checks::{assert_aligned, assert_parts_aligned};
use crate::{AlignedBuf, DiskError, File, Result};

/// Bytes of zeros written at once by [`File::allocate`].
const ZEROS: usize = 1 << 20;

/// An open file of a [`RealDisk`](super::RealDisk).
#[derive(Debug)]
pub(super) struct RealFile {
    pub(super) disk: Arc<Shared>,
    pub(super) file: fs::File,
    pub(super) path: PathBuf,
    /// The directory in which it was opened, and its name there.
    pub(super) directory: Arc<fs::File>,
    pub(super) name: String,
    /// Whether it bypasses the page cache.
    pub(super) is_direct: bool,
    /// Whether this process has locked it.
    pub(super) is_locked: AtomicBool,
}

impl Drop for RealFile {
    fn drop(&mut self) {
        // A forked child shares the open file, and would keep the lock.
        if self.is_locked.load(Ordering::Relaxed) && self.disk.process.is_current() {
            sys::unlock(self.file.as_fd());
        }
    }
}

impl RealFile {
    fn error(&self, operation: impl Into<String>, error: &Error) -> DiskError {
        DiskError::system(operation, self.path(), error)
    }

    pub(super) fn read_error(&self, wanted: usize, offset: u64, error: &Error) -> DiskError {
        let operation = format!("read {wanted} bytes at offset {offset} of");
        let ended = error.get_ref().and_then(|inner| inner.downcast_ref::<Ended>());
        match (ended, self.len()) {
            (Some(_), Ok(len)) if len < offset + wanted as u64 => {
                DiskError::end_of_file(wanted, offset, self.path(), len)
            }
            (Some(Ended { done }), Ok(len)) => DiskError::new(
                operation,
                self.path(),
                format!("the system stopped after {done} bytes, although the file has {len}"),
                ErrorKind::UnexpectedEof,
            ),
            _ => self.error(operation, error),
        }
    }

    fn write_error(&self, bytes: usize, offset: u64, error: &Error) -> DiskError {
        self.error(format!("write {bytes} bytes at offset {offset} of"), error).of_write()
    }

    /// Writes and syncs in one system call, or in two where the system lacks this call.
    fn write_now(&self, parts: &[&[u8]], offset: u64) -> std::io::Result<()> {
        let fd = self.file.as_fd();
        if self.disk.dsync.load(Ordering::Relaxed) {
            match sys::write_all(fd, parts, offset, Durability::Now) {
                Err(error) if sys::is_unsupported(&error) => {}
                done => return done,
            }
        }
        sys::write_all(fd, parts, offset, Durability::Later)?;
        sys::sync_data(fd)?;
        // Only now: if the plain write had failed for the same reason, the flag would not have been
        // the cause.
        self.disk.dsync.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn length(&self) -> std::io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Extends the file to `len` bytes by writing zeros: overwriting a block that was only reserved
    /// would cost a change of the file system's metadata at the next sync.
    fn extend_with_zeros(&self, len: u64) -> std::io::Result<()> {
        let old = self.length()?;
        // Of a file that grows only the new part: some file systems look at each page of the range.
        // A file that is long enough may be a copy with holes.
        let from = if old < len { old } else { 0 };
        match sys::reserve(self.file.as_fd(), from..len) {
            Err(error) if !sys::is_unsupported(&error) => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut at = old.next_multiple_of(BLOCK_SIZE as u64);
        if at >= len {
            return Ok(());
        }
        let zeros = self.disk.zeros.get_or_init(|| AlignedBuf::zeroed(ZEROS));
        while at < len {
            let part = &zeros[..zeros.len().min((len - at) as usize)];
            sys::write_all(self.file.as_fd(), &[part], at, Durability::Later)?;
            at += part.len() as u64;
            self.disk.counters.count_write(part.len());
        }
        Ok(())
    }
}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        assert_aligned(buf, offset);
        sys::read_all(self.file.as_fd(), buf, offset).map_err(|error| self.read_error(buf.len(), offset, &error))?;
        self.disk.counters.count_read(buf.len());
        Ok(())
    }

    fn read_batch(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        for (offset, buf) in reads.iter() {
            assert_aligned(buf, *offset);
        }
        let Some(rings) = self.disk.rings.as_ref().filter(|_| reads.len() > 1) else {
            return reads.iter_mut().try_for_each(|(offset, buf)| self.read_at(buf, *offset));
        };
        // A child shares the ring of its parent.
        self.disk.check_process("read", &self.path)?;
        rings
            .read(self.file.as_fd(), reads)
            .map_err(|Failed { offset, len, error }| self.read_error(len, offset, &error))?;
        reads.iter().for_each(|(_, buf)| self.disk.counters.count_read(buf.len()));
        Ok(())
    }

    fn write_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        let bytes = assert_parts_aligned(parts, offset);
        self.disk.check_process("write", &self.path)?;
        sys::write_all(self.file.as_fd(), parts, offset, Durability::Later)
            .map_err(|error| self.write_error(bytes, offset, &error))?;
        self.disk.counters.count_write(bytes);
        Ok(())
    }

    fn write_durable(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        let bytes = assert_parts_aligned(parts, offset);
        self.disk.check_process("write", &self.path)?;
        self.write_now(parts, offset).map_err(|error| {
            self.error(format!("write {bytes} bytes durably at offset {offset} of"), &error).of_write()
        })?;
        self.disk.counters.count_write(bytes);
        self.disk.counters.count_sync();
        Ok(())
    }

    fn write_batch(&self, writes: &[(u64, &[u8])]) -> Result<()> {
        for (offset, buf) in writes {
            assert_aligned(buf, *offset);
        }
        // The kernel hands writes through the page cache to threads of its own, which then contend
        // for the file.
        let Some(rings) = self.disk.rings.as_ref().filter(|_| writes.len() > 1 && self.is_direct) else {
            return writes.iter().try_for_each(|(offset, buf)| self.write_at(&[buf], *offset));
        };
        self.disk.check_process("write", &self.path)?;
        rings
            .write(self.file.as_fd(), writes)
            .map_err(|Failed { offset, len, error }| self.write_error(len, offset, &error))?;
        writes.iter().for_each(|(_, buf)| self.disk.counters.count_write(buf.len()));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        sys::sync_data(self.file.as_fd()).map_err(|error| self.error("sync", &error).of_write())?;
        self.disk.counters.count_sync();
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        self.length().map_err(|error| self.error("read the length of", &error))
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.disk.check_process("allocate space for", &self.path)?;
        self.extend_with_zeros(len.next_multiple_of(BLOCK_SIZE as u64))
            .map_err(|error| self.error(format!("allocate {len} bytes for"), &error))
    }

    fn reserve(&self, len: u64) -> Result<()> {
        self.disk.check_process("reserve space for", &self.path)?;
        let len = len.next_multiple_of(BLOCK_SIZE as u64);
        let reserved = self.length().and_then(|old| match old < len {
            true => sys::reserve(self.file.as_fd(), old..len),
            false => Ok(()),
        });
        match reserved {
            Err(error) if sys::is_unsupported(&error) => self.extend_with_zeros(len),
            other => other,
        }
        .map_err(|error| self.error(format!("reserve {len} bytes for"), &error))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.disk.check_process("set the length of", &self.path)?;
        self.file.set_len(len).map_err(|error| self.error(format!("set the length to {len} of"), &error))
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.disk.check_process("discard a part of", &self.path)?;
        match sys::discard(self.file.as_fd(), range) {
            Err(error) if !sys::is_unsupported(&error) => Err(self.error("discard a part of", &error)),
            _ => Ok(()),
        }
    }

    fn verify_name(&self) -> Result<()> {
        let own = names::identity(&self.file).map_err(|error| self.error("look for", &error))?;
        match names::find(self.directory.as_fd(), &self.name) {
            Ok((found, _)) if found == own => Ok(()),
            Ok(_) => Err(moved(&self.path, "another file is in its place")),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(moved(&self.path, "it is no longer there")),
            Err(error) => Err(self.error("look for", &error)),
        }
    }

    fn lock(&self) -> Result<()> {
        let find_holder = || Holder::listed(&self.file);
        match lock_in_time(|| lock::try_lock(&self.file), find_holder) {
            Ok(Ok(())) => {
                self.is_locked.store(true, Ordering::Relaxed);
                Ok(())
            }
            Ok(Err(holder)) => Err(lock::busy(&self.path, holder)),
            Err(error) => Err(self.error("lock", &error)),
        }
    }

    fn path(&self) -> String {
        self.path.display().to_string()
    }
}
