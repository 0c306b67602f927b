//! Disks over other disks that do something before an operation, and otherwise pass it on.

use std::fmt::Debug;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::disk::{Disk, DiskCounters, DiskLock, File, OpenMode, Result};

/// What such a disk adds. Every [`Layer`] is a [`Disk`].
pub(crate) trait Layer: Clone + Debug + Send + Sync + 'static {
    /// Returns the disk below.
    fn inner(&self) -> &dyn Disk;

    /// Returns the file that this disk shows for a file of the disk below.
    fn over(&self, name: &str, file: Arc<dyn File>) -> Arc<dyn File>;
}

/// What happens before the operations of a file: by default nothing.
pub(crate) trait Before: Debug + Send + Sync {
    /// Before a read of `len` bytes, alone or one of several at once.
    fn read(&self, _len: usize) {}

    /// Before a write of `len` bytes that need not become durable.
    fn write(&self, _offset: u64, _len: usize) {}

    /// Before a durable write of `len` bytes.
    fn durable_write(&self, _offset: u64, _len: usize) {}

    /// Before several writes at once.
    fn batch(&self, _writes: &[(u64, &[u8])]) {}

    /// Before a sync.
    fn sync(&self) {}
}

/// A file with something before its operations.
#[derive(Debug)]
pub(crate) struct LayerFile<B> {
    pub(crate) inner: Arc<dyn File>,
    pub(crate) before: B,
}

impl<L: Layer> Disk for L {
    fn handle(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        Ok(self.over(name, self.inner().open(name, mode)?))
    }

    fn forgets(&self) -> bool {
        self.inner().forgets()
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner().exists(name)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        self.inner().list(directory)
    }

    fn create_directory(&self, name: &str) -> Result<()> {
        self.inner().create_directory(name)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner().remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner().rename(from, to)
    }

    fn sync_directory(&self, directory: &str) -> Result<()> {
        self.inner().sync_directory(directory)
    }

    fn lock(&self) -> Result<DiskLock> {
        self.inner().lock()
    }

    fn verify_home(&self) -> Result<()> {
        self.inner().verify_home()
    }

    fn counters(&self) -> DiskCounters {
        self.inner().counters()
    }

    fn backend(&self) -> &'static str {
        self.inner().backend()
    }

    fn location(&self) -> String {
        self.inner().location()
    }

    fn directory(&self) -> Option<PathBuf> {
        self.inner().directory()
    }
}

impl<B: Before> File for LayerFile<B> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.before.read(buf.len());
        self.inner.read_at(buf, offset)
    }

    fn read_batch(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        for (_, buf) in &*reads {
            self.before.read(buf.len());
        }
        self.inner.read_batch(reads)
    }

    fn write_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.before.write(offset, parts.iter().map(|part| part.len()).sum());
        self.inner.write_at(parts, offset)
    }

    fn write_durable(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        // Before the write: until the time is over, nothing is durable.
        self.before.durable_write(offset, parts.iter().map(|part| part.len()).sum());
        self.inner.write_durable(parts, offset)
    }

    fn write_batch(&self, writes: &[(u64, &[u8])]) -> Result<()> {
        self.before.batch(writes);
        self.inner.write_batch(writes)
    }

    fn sync(&self) -> Result<()> {
        self.before.sync();
        self.inner.sync()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.inner.allocate(len)
    }

    fn reserve(&self, len: u64) -> Result<()> {
        self.inner.reserve(len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.inner.discard(range)
    }

    fn verify_name(&self) -> Result<()> {
        self.inner.verify_name()
    }

    fn lock(&self) -> Result<()> {
        self.inner.lock()
    }

    fn path(&self) -> String {
        self.inner.path()
    }
}
