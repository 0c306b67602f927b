//! A disk that accepts every write at once and keeps only the names and lengths of its files.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use duramen_io::{Disk, DiskCounters, DiskError, DiskLock, File, OpenMode, Result};
use duramen_sync::{Arc, Mutex};

/// A disk that discards all content.
#[derive(Clone, Debug, Default)]
pub(super) struct DiscardDisk {
    lengths: Arc<Mutex<BTreeMap<String, u64>>>,
}

#[derive(Debug)]
struct DiscardFile {
    name: String,
    lengths: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Disk for DiscardDisk {
    fn handle(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let mut lengths = self.lengths.lock();
        if mode == OpenMode::CreateNew {
            lengths.insert(name.to_owned(), 0);
        } else if !lengths.contains_key(name) {
            return Err(DiskError {
                operation: "open".to_owned(),
                file: name.to_owned(),
                reason: "not found".to_owned(),
                kind: ErrorKind::NotFound,
            });
        }
        Ok(Arc::new(DiscardFile { name: name.to_owned(), lengths: Arc::clone(&self.lengths) }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        Ok(self.lengths.lock().contains_key(name))
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        let prefix = format!("{directory}/");
        Ok(self.lengths.lock().keys().filter_map(|name| Some(name.strip_prefix(&prefix)?.to_owned())).collect())
    }

    fn create_directory(&self, _name: &str) -> Result<()> {
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.lengths.lock().remove(name);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut lengths = self.lengths.lock();
        let len = lengths.remove(from).unwrap_or_default();
        lengths.insert(to.to_owned(), len);
        Ok(())
    }

    fn sync_directory(&self, _directory: &str) -> Result<()> {
        Ok(())
    }

    fn lock(&self) -> Result<DiskLock> {
        Ok(DiskLock::new(()))
    }

    fn counters(&self) -> DiskCounters {
        DiskCounters::default()
    }

    fn backend(&self) -> &'static str {
        "discard"
    }

    fn location(&self) -> String {
        "discard".to_owned()
    }
}

impl File for DiscardFile {
    fn read_at(&self, buf: &mut [u8], _offset: u64) -> Result<()> {
        buf.fill(0);
        Ok(())
    }

    fn read_batch(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        reads.iter_mut().for_each(|(_, buf)| buf.fill(0));
        Ok(())
    }

    fn write_at(&self, _parts: &[&[u8]], _offset: u64) -> Result<()> {
        Ok(())
    }

    fn write_durable(&self, _parts: &[&[u8]], _offset: u64) -> Result<()> {
        Ok(())
    }

    fn write_batch(&self, _writes: &[(u64, &[u8])]) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.lengths.lock().get(&self.name).copied().unwrap_or_default())
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.set_len(len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.lengths.lock().insert(self.name.clone(), len);
        Ok(())
    }

    fn path(&self) -> String {
        self.name.clone()
    }
}
