//! Backups that meet writers at the worst moment: pages that are read while they are written, and
//! pages that are written after the log could have been copied. The build with planted bugs shows
//! that these tests would detect a defect.
#![cfg(not(duramen_loom))]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use duramen::{Db, Error, Options, Restore};
use duramen_io::{Disk, DiskCounters, DiskLock, File, OpenMode, Result as DiskResult, SimDisk};
use duramen_types::planted::{Bug, plant};

const PAGE: usize = 8192;

/// A disk whose data file returns torn pages on request.
#[derive(Clone, Debug)]
struct TornDisk {
    inner: SimDisk,
    is_torn: Arc<AtomicBool>,
}

#[derive(Debug)]
struct TornFile {
    inner: Arc<dyn File>,
    is_torn: Arc<AtomicBool>,
}

impl Disk for TornDisk {
    fn handle(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }
    fn open(&self, name: &str, mode: OpenMode) -> DiskResult<Arc<dyn File>> {
        let inner = self.inner.open(name, mode)?;
        let is_torn = Arc::clone(&self.is_torn);
        Ok(if name == "data" { Arc::new(TornFile { inner, is_torn }) } else { inner })
    }
    fn exists(&self, name: &str) -> DiskResult<bool> {
        self.inner.exists(name)
    }
    fn list(&self, directory: &str) -> DiskResult<Vec<String>> {
        self.inner.list(directory)
    }
    fn create_directory(&self, name: &str) -> DiskResult<()> {
        self.inner.create_directory(name)
    }
    fn remove(&self, name: &str) -> DiskResult<()> {
        self.inner.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        self.inner.rename(from, to)
    }
    fn sync_directory(&self, directory: &str) -> DiskResult<()> {
        self.inner.sync_directory(directory)
    }
    fn lock(&self) -> DiskResult<DiskLock> {
        self.inner.lock()
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
}

impl File for TornFile {
    /// Reads the bytes. A read of many pages at a time lacks the second half of every seventh page.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> DiskResult<()> {
        self.inner.read_at(buf, offset)?;
        if buf.len() > PAGE && self.is_torn.load(Ordering::Relaxed) {
            buf.chunks_exact_mut(PAGE).step_by(7).for_each(|page| page[PAGE / 2..].fill(0x55));
        }
        Ok(())
    }
    fn read_batch(&self, reads: &mut [(u64, &mut [u8])]) -> DiskResult<()> {
        self.inner.read_batch(reads)
    }
    fn write_at(&self, parts: &[&[u8]], offset: u64) -> DiskResult<()> {
        self.inner.write_at(parts, offset)
    }
    fn write_durable(&self, parts: &[&[u8]], offset: u64) -> DiskResult<()> {
        self.inner.write_durable(parts, offset)
    }
    fn write_batch(&self, writes: &[(u64, &[u8])]) -> DiskResult<()> {
        self.inner.write_batch(writes)
    }
    fn sync(&self) -> DiskResult<()> {
        self.inner.sync()
    }
    fn len(&self) -> DiskResult<u64> {
        self.inner.len()
    }
    fn allocate(&self, len: u64) -> DiskResult<()> {
        self.inner.allocate(len)
    }
    fn set_len(&self, len: u64) -> DiskResult<()> {
        self.inner.set_len(len)
    }
    fn path(&self) -> String {
        self.inner.path()
    }
}

/// The switch is global, so one test at a time.
static SWITCH: Mutex<()> = Mutex::new(());

fn rows(db: &Db) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Error> {
    let table = db.open_table("rows")?;
    let mut txn = db.begin();
    let rows: Result<_, Error> = txn.scan(&table, ..).collect();
    rows
}

/// Backs up a database of some hundred pages that changes completely between two chunks of them,
/// with torn reads if `is_torn` is set. Returns whether the restored database has the state at the
/// end of the backup.
fn is_whole(bug: Option<Bug>, is_torn: bool) -> bool {
    let _turn = SWITCH.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let disk = TornDisk { inner: SimDisk::new(1), is_torn: Arc::new(AtomicBool::new(false)) };
    let options = Options { pool_bytes: 8 << 20, ..common::small() };
    let db = Db::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
    let table = db.create_table("rows").unwrap();
    let change_all = |fill: u8| {
        for row in 0..3000_u32 {
            let mut txn = db.begin();
            txn.put(&table, &row.to_be_bytes(), &[fill; 1000]).unwrap();
            txn.commit().unwrap();
        }
        db.checkpoint().unwrap();
    };
    change_all(1);
    let _bug = bug.map(plant);
    disk.is_torn.store(is_torn, Ordering::Relaxed);
    let (backup, mut fill) = (SimDisk::new(2), 1);
    let report = db
        .backup_to(&backup, |progress| {
            if fill < 3 && progress.copied < progress.pages {
                fill += 1;
                change_all(fill);
            }
        })
        .unwrap();
    disk.is_torn.store(false, Ordering::Relaxed);
    assert!(fill == 3 && report.pages > 300, "{report:?}");
    if bug.is_none() {
        assert_eq!(report.read_again > 0, is_torn);
    }
    let expected = rows(&db).unwrap();
    assert!(expected.values().all(|value| *value == [3; 1000]));
    let target = SimDisk::new(3);
    let restored = Restore::from_disk(Arc::new(backup)).into_disk(&target, |_| {});
    let found = restored.and_then(|_| Db::open_on(Arc::new(target), options)).and_then(|db| {
        let problems = db.check()?.problems;
        Ok((problems, rows(&db)?))
    });
    match found {
        Ok((problems, found)) => problems.is_empty() && found == expected,
        Err(Error::Corrupt { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn pages_that_change_while_they_are_copied_are_made_consistent() {
    assert!(is_whole(None, false));
}

#[test]
fn pages_that_were_caught_while_being_written_are_read_again() {
    assert!(is_whole(None, true));
}

#[cfg(duramen_planted)]
#[test]
fn planted_bugs_of_backups_are_noticed() {
    assert!(!is_whole(Some(Bug::BackupForgetsLog), false));
    assert!(!is_whole(Some(Bug::BackupKeepsTornPages), true));
}
