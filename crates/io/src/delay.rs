//! A disk whose durable writes take additional time. It measures how the latency of a log device
//! affects a database (Aether, sections 3 and 4, varies it from 0 to 10 ms), and lets tests keep a
//! commit in flight for a while.

use std::sync::Arc;
use std::time::Duration;

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::thread;

use crate::disk::{Disk, File};
use crate::layer::{Before, Layer, LayerFile};

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

impl Layer for DelayDisk {
    fn inner(&self) -> &dyn Disk {
        &*self.inner
    }

    fn over(&self, name: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        if !name.starts_with(&self.directory) {
            return file;
        }
        Arc::new(LayerFile { inner: file, before: Arc::clone(&self.latency) })
    }
}

impl Before for Arc<Latency> {
    fn durable_write(&self, _: u64, _: usize) {
        self.pass();
    }

    fn sync(&self) {
        self.pass();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuf, OpenMode, SimDisk};

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
