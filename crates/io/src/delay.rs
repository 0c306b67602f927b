//! A disk whose durable writes take additional time. It measures how the latency of a log device
//! affects a database (Aether, sections 3 and 4, varies it from 0 to 10 ms), and lets tests keep a
//! commit in flight for a while.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::thread;

use crate::disk::{Disk, DiskCounters, DiskLock, File, OpenMode, Result};

/// Approximate delay with which the system's clock wakes sleeping threads. The thread spins for
/// this last part of a latency.
const SLACK: Duration = Duration::from_micros(60);

/// Another disk, with a latency added to each operation that makes data of the files in one
/// directory durable.
#[derive(Clone, Debug)]
pub struct DelayDisk {
    inner: Arc<dyn Disk>,
    directory: String,
    latency: Arc<Latency>,
}

/// In nanoseconds.
#[derive(Debug)]
struct Latency(AtomicU64);

impl Latency {
    /// Lets the time pass, with the processor free meanwhile.
    fn pass(&self) {
        let latency = Duration::from_nanos(self.0.load(Ordering::Relaxed));
        if latency.is_zero() {
            return;
        }
        let start = Instant::now();
        if latency > SLACK {
            thread::sleep(latency - SLACK);
        }
        while start.elapsed() < latency {
            thread::yield_now();
        }
    }
}

impl DelayDisk {
    /// Returns `inner` with `latency` added to each durable write and each sync of a file whose
    /// name begins with `directory` (`"log/"`; `""` for all files).
    pub fn new(inner: Arc<dyn Disk>, directory: &str, latency: Duration) -> Self {
        let disk = Self { inner, directory: directory.to_owned(), latency: Arc::new(Latency(AtomicU64::new(0))) };
        disk.set_latency(latency);
        disk
    }

    /// Changes the latency of operations that begin from now on.
    pub fn set_latency(&self, latency: Duration) {
        self.latency.0.store(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Disk for DelayDisk {
    fn handle(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let inner = self.inner.open(name, mode)?;
        if !name.starts_with(&self.directory) {
            return Ok(inner);
        }
        Ok(Arc::new(DelayFile { inner, latency: Arc::clone(&self.latency) }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        self.inner.list(directory)
    }

    fn create_directory(&self, name: &str) -> Result<()> {
        self.inner.create_directory(name)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn sync_directory(&self, directory: &str) -> Result<()> {
        self.inner.sync_directory(directory)
    }

    fn lock(&self) -> Result<DiskLock> {
        self.inner.lock()
    }

    fn verify_home(&self) -> Result<()> {
        self.inner.verify_home()
    }

    fn counters(&self) -> DiskCounters {
        self.inner.counters()
    }

    fn backend(&self) -> &'static str {
        self.inner.backend()
    }

    fn location(&self) -> String {
        self.inner.location()
    }

    fn directory(&self) -> Option<PathBuf> {
        self.inner.directory()
    }
}

#[derive(Debug)]
struct DelayFile {
    inner: Arc<dyn File>,
    latency: Arc<Latency>,
}

impl File for DelayFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_at(buf, offset)
    }

    fn read_batch(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        self.inner.read_batch(reads)
    }

    fn write_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.inner.write_at(parts, offset)
    }

    fn write_durable(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        // Before the write: until the time is over, nothing is durable.
        self.latency.pass();
        self.inner.write_durable(parts, offset)
    }

    fn write_batch(&self, writes: &[(u64, &[u8])]) -> Result<()> {
        self.inner.write_batch(writes)
    }

    fn sync(&self) -> Result<()> {
        self.latency.pass();
        self.inner.sync()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.inner.allocate(len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuf, SimDisk};

    #[test]
    fn only_durable_writes_of_the_directory_take_longer() {
        const LATENCY: Duration = Duration::from_millis(20);
        let disk = DelayDisk::new(Arc::new(SimDisk::new(1)), "log/", LATENCY);
        disk.create_directory("log").unwrap();
        let (slow, fast) = ("log/slow", "fast");
        let block = AlignedBuf::zeroed(4096);
        let time = |name: &str, operation: &dyn Fn(&dyn File)| {
            let file = disk.open(name, OpenMode::Existing).unwrap();
            let start = Instant::now();
            operation(&*file);
            start.elapsed()
        };
        for name in [slow, fast] {
            disk.open(name, OpenMode::CreateNew).unwrap();
        }
        assert!(time(slow, &|file| file.write_durable(&[&block], 0).unwrap()) >= LATENCY);
        assert!(time(slow, &|file| file.sync().unwrap()) >= LATENCY);
        assert!(time(slow, &|file| file.write_at(&[&block], 0).unwrap()) < LATENCY);
        assert!(time(fast, &|file| file.write_durable(&[&block], 0).unwrap()) < LATENCY);
        disk.set_latency(Duration::ZERO);
        assert!(time(slow, &|file| file.sync().unwrap()) < LATENCY);
    }
}
