//! A disk with one arm: random writes take additional time, one after another. It stands for a slow
//! disk, or a remote one, under a database whose cost is random writes of pages.

use std::sync::Arc;
use std::time::Duration;

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Mutex, thread};
use duramen_types::BLOCK_SIZE;

use crate::disk::{Disk, File};
use crate::layer::{Before, Layer, LayerFile};

/// Another disk, on which each random write takes a time longer, and no two of them at once.
///
/// A write is random unless it begins where the previous write to the same file ended, or within
/// the last block of that one. So an append to a log costs nothing more.
#[derive(Clone, Debug)]
pub struct ArmDisk {
    inner: Arc<dyn Disk>,
    arm: Arc<Arm>,
}

#[derive(Debug, Default)]
struct Arm {
    /// Held while the arm moves.
    moving: Mutex<()>,
    /// In nanoseconds.
    delay: AtomicU64,
    random_writes: AtomicU64,
}

impl Arm {
    /// Lets the time of so many random writes pass.
    fn pass(&self, writes: u64) {
        if writes == 0 {
            return;
        }
        self.random_writes.fetch_add(writes, Ordering::Relaxed);
        let delay = Duration::from_nanos(self.delay.load(Ordering::Relaxed).saturating_mul(writes));
        if !delay.is_zero() {
            let _moving = self.moving.lock();
            thread::sleep(delay);
        }
    }
}

impl ArmDisk {
    /// Returns `inner`, whose random writes take no additional time yet.
    pub fn new(inner: Arc<dyn Disk>) -> Self {
        Self { inner, arm: Arc::default() }
    }

    /// Changes the additional time of a random write, for writes that begin from now on.
    pub fn set_delay(&self, delay: Duration) {
        self.arm.delay.store(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the number of random writes so far.
    pub fn random_writes(&self) -> u64 {
        self.arm.random_writes.load(Ordering::Relaxed)
    }
}

impl Layer for ArmDisk {
    fn inner(&self) -> &dyn Disk {
        &*self.inner
    }

    fn over(&self, _: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        let before = OnArm { arm: Arc::clone(&self.arm), end: AtomicU64::new(0) };
        Arc::new(LayerFile { inner: file, before })
    }
}

/// A file on the disk.
#[derive(Debug)]
struct OnArm {
    arm: Arc<Arm>,
    /// Where the latest write ended.
    end: AtomicU64,
}

impl OnArm {
    /// Returns whether a write of `len` bytes at `offset` is random, and notes where it ends.
    fn is_random(&self, offset: u64, len: usize) -> bool {
        let before = self.end.swap(offset + len as u64, Ordering::Relaxed);
        !(before.saturating_sub(BLOCK_SIZE as u64)..=before).contains(&offset)
    }
}

impl Before for OnArm {
    fn write(&self, offset: u64, len: usize) {
        self.arm.pass(self.is_random(offset, len).into());
    }

    fn durable_write(&self, offset: u64, len: usize) {
        self.write(offset, len);
    }

    fn batch(&self, writes: &[(u64, &[u8])]) {
        let random = writes.iter().filter(|(offset, bytes)| self.is_random(*offset, bytes.len())).count();
        self.arm.pass(random as u64);
    }
}

#[cfg(test)]
mod tests {
    use duramen_sync::clock::Instant;

    use super::*;
    use crate::{AlignedBuf, OpenMode, SimDisk};

    #[test]
    fn only_random_writes_take_longer() {
        const DELAY: Duration = Duration::from_millis(20);
        let disk = ArmDisk::new(Arc::new(SimDisk::new(1)));
        let file = disk.open("file", OpenMode::CreateNew).unwrap();
        file.allocate(1 << 20).unwrap();
        disk.set_delay(DELAY);
        let block = AlignedBuf::zeroed(4096);
        let time = |operation: &dyn Fn()| {
            let start = Instant::now();
            operation();
            start.elapsed()
        };
        // From the beginning on, then the last block again, then on.
        for offset in [0, 4096, 4096, 8192] {
            assert!(time(&|| file.write_durable(&[&block], offset).unwrap()) < DELAY, "{offset}");
        }
        assert!(time(&|| file.write_at(&[&block], 65_536).unwrap()) >= DELAY);
        let batch: &[(u64, &[u8])] = &[(0, &block), (4096, &block), (40_960, &block)];
        let taken = time(&|| file.write_batch(batch).unwrap());
        assert!(taken >= 2 * DELAY && taken < 3 * DELAY, "{taken:?}");
        assert_eq!(disk.random_writes(), 3);
        disk.set_delay(Duration::ZERO);
        assert!(time(&|| file.write_at(&[&block], 0).unwrap()) < DELAY);
    }
}
