//! The length of the path from a commit to the write of its record.

use std::backtrace::Backtrace;
use std::sync::{Arc, Mutex};

use duramen::{CommitMode, Db, Options};
use duramen_io::{Disk, DiskCounters, DiskLock, File, OpenMode, Result, SimDisk};

use crate::common;

type Traces = Arc<Mutex<Vec<String>>>;

/// A disk that takes a backtrace of each durable write.
#[derive(Clone, Debug)]
struct Traced(Arc<dyn Disk>, Traces);

#[derive(Debug)]
struct TracedFile(Arc<dyn File>, Traces);

impl Disk for Traced {
    fn handle(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        Ok(Arc::new(TracedFile(self.0.open(name, mode)?, Arc::clone(&self.1))))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.0.exists(name)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        self.0.list(directory)
    }

    fn create_directory(&self, name: &str) -> Result<()> {
        self.0.create_directory(name)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.0.rename(from, to)
    }

    fn sync_directory(&self, directory: &str) -> Result<()> {
        self.0.sync_directory(directory)
    }

    fn lock(&self) -> Result<DiskLock> {
        self.0.lock()
    }

    fn counters(&self) -> DiskCounters {
        self.0.counters()
    }

    fn backend(&self) -> &'static str {
        self.0.backend()
    }

    fn location(&self) -> String {
        self.0.location()
    }
}

impl File for TracedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_at(buf, offset)
    }

    fn read_batch(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        self.0.read_batch(reads)
    }

    fn write_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.0.write_at(parts, offset)
    }

    fn write_durable(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.1.lock().unwrap().push(Backtrace::force_capture().to_string());
        self.0.write_durable(parts, offset)
    }

    fn write_batch(&self, writes: &[(u64, &[u8])]) -> Result<()> {
        self.0.write_batch(writes)
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn len(&self) -> Result<u64> {
        self.0.len()
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.0.allocate(len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }

    fn path(&self) -> String {
        self.0.path()
    }
}

/// Returns the functions from the write, which is first, to the commit, which is last, if the trace
/// goes through a commit. Each is given with its place; those of the standard library do not count.
fn path(trace: &str) -> Option<Vec<String>> {
    let lines: Vec<&str> = trace.lines().map(str::trim).collect();
    let placed = lines.windows(2).filter(|pair| pair[1].starts_with("at ") && !pair[1].contains("/library/"));
    let functions: Vec<String> = placed.map(|pair| pair.join(" ")).collect();
    let write = functions.iter().position(|function| function.contains("write_durable"))?;
    let commit = functions.iter().rposition(|function| function.contains("txn/finish.rs"))?;
    Some(functions[write..=commit].to_vec())
}

#[test]
fn a_commit_passes_few_functions_to_the_write() {
    for (commit, most) in [(CommitMode::Pipelined, 7), (CommitMode::Elr, 7), (CommitMode::Sync, 9)] {
        let traces = Traces::default();
        let disk = Traced(Arc::new(SimDisk::new(1)), Arc::clone(&traces));
        let db = Db::open_on(Arc::new(disk), Options { commit, ..common::small() }).unwrap();
        let table = db.create_table("t").unwrap();
        traces.lock().unwrap().clear();
        for key in 0..10_u32 {
            let mut txn = db.begin();
            txn.put(&table, &key.to_be_bytes(), b"value").unwrap();
            txn.commit().unwrap();
        }
        let traces = traces.lock().unwrap();
        let paths: Vec<_> = traces.iter().filter_map(|trace| path(trace)).collect();
        assert!(!paths.is_empty(), "a lone committer flushes by itself: {:#?}", traces.last());
        for path in paths {
            assert!(path.len() <= most, "{} functions with {commit:?}: {path:#?}", path.len());
        }
    }
}
