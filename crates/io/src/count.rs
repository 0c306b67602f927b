//! A disk that counts what is done to some of its files.

use std::sync::Arc;

use crate::counters::Counters;
use crate::disk::{Disk, DiskCounters, File};
use crate::layer::{Before, Layer, LayerFile};

/// Another disk, whose operations on files of one name or directory are counted, those that fail
/// included.
#[derive(Clone, Debug)]
pub struct CountingDisk {
    inner: Arc<dyn Disk>,
    prefix: String,
    counters: Arc<Counters>,
}

impl CountingDisk {
    /// Returns `inner`, with a count of what is done to each file whose name begins with `prefix`
    /// (`"data"`, `"log/"`; `""` for all files).
    pub fn new(inner: Arc<dyn Disk>, prefix: &str) -> Self {
        Self { inner, prefix: prefix.to_owned(), counters: Arc::default() }
    }

    /// Returns what was done to these files since the disk was made. Several reads or writes that
    /// are submitted at once count one by one.
    pub fn counted(&self) -> DiskCounters {
        self.counters.snapshot()
    }
}

impl Layer for CountingDisk {
    fn inner(&self) -> &dyn Disk {
        &*self.inner
    }

    fn over(&self, name: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        if !name.starts_with(&self.prefix) {
            return file;
        }
        Arc::new(LayerFile { inner: file, before: Arc::clone(&self.counters) })
    }
}

impl Before for Arc<Counters> {
    fn read(&self, len: usize) {
        self.count_read(len);
    }

    fn write(&self, _: u64, len: usize) {
        self.count_write(len);
    }

    fn durable_write(&self, _: u64, len: usize) {
        self.count_write(len);
        self.count_sync();
    }

    fn batch(&self, writes: &[(u64, &[u8])]) {
        for (_, bytes) in writes {
            self.count_write(bytes.len());
        }
    }

    fn sync(&self) {
        self.count_sync();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuf, OpenMode, SimDisk};

    #[test]
    fn files_of_the_name_are_counted_and_no_others() {
        let disk = CountingDisk::new(Arc::new(SimDisk::new(1)), "data");
        for (name, times) in [("data", 1), ("other", 0)] {
            let before = disk.counted();
            let file = disk.open(name, OpenMode::CreateNew).unwrap();
            let block = AlignedBuf::zeroed(4096);
            file.write_at(&[&block, &block], 0).unwrap();
            file.write_durable(&[&block], 8192).unwrap();
            file.write_batch(&[(0, &block), (4096, &block)]).unwrap();
            file.sync().unwrap();
            let (mut one, mut two) = (AlignedBuf::zeroed(4096), AlignedBuf::zeroed(4096));
            file.read_at(&mut one, 0).unwrap();
            file.read_batch(&mut [(0, &mut one), (4096, &mut two)]).unwrap();
            let after = disk.counted();
            assert_eq!(
                (after.writes - before.writes, after.written_bytes - before.written_bytes),
                (4 * times, 20480 * times)
            );
            assert_eq!((after.reads - before.reads, after.read_bytes - before.read_bytes), (3 * times, 12288 * times));
            assert_eq!(after.syncs - before.syncs, 2 * times);
        }
    }
}
