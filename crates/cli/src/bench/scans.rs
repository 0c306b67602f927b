//! Threads that read the whole database through snapshots while the workload runs.

use duramen::{Db, Error, Snapshot};
use duramen_sync::Arc;
use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::thread::{JoinHandle, spawn};

use crate::failure::{Failure, Result};
use crate::format;

/// Rows after which a thread looks whether it has to stop.
const STEP: u64 = 1000;

/// What the threads have done so far.
#[derive(Debug, Default)]
struct Done {
    stop: AtomicBool,
    /// Scans of the whole database that came to their end.
    scans: AtomicU64,
    /// Scans whose snapshots became too old.
    too_old: AtomicU64,
    rows: AtomicU64,
}

/// The threads. They stop when this is dropped.
pub(super) struct Scans {
    begin: Instant,
    done: Arc<Done>,
    threads: Vec<JoinHandle<duramen::Result<()>>>,
}

/// The work of the threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scanned {
    pub(super) scans: u64,
    pub(super) too_old: u64,
    pub(super) rows: u64,
    seconds: f64,
}

impl Scans {
    /// Starts `count` threads.
    pub(super) fn start(db: &Db, count: u32) -> Result<Self> {
        let mut scans = Self { begin: Instant::now(), done: Arc::default(), threads: Vec::new() };
        for number in 0..count {
            let (db, done) = (db.clone(), Arc::clone(&scans.done));
            let thread = spawn(&format!("scan-{number}"), move || {
                while !done.stop.load(Ordering::Relaxed) {
                    match scan(&db.snapshot()?, &done) {
                        Err(Error::SnapshotTooOld { .. }) => done.too_old.fetch_add(1, Ordering::Relaxed),
                        Err(error) => return Err(error),
                        Ok(is_whole) => done.scans.fetch_add(is_whole.into(), Ordering::Relaxed),
                    };
                }
                Ok(())
            });
            scans
                .threads
                .push(thread.map_err(|error| Failure::Run(format!("cannot start a thread to scan: {error}")))?);
        }
        Ok(scans)
    }

    /// Stops the threads, and returns what they did.
    pub(super) fn finish(mut self) -> Result<Scanned> {
        self.done.stop.store(true, Ordering::Relaxed);
        let seconds = self.begin.elapsed().as_secs_f64();
        for thread in self.threads.drain(..) {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let done = &self.done;
        Ok(Scanned { scans: get(&done.scans), too_old: get(&done.too_old), rows: get(&done.rows), seconds })
    }
}

impl Drop for Scans {
    fn drop(&mut self) {
        self.done.stop.store(true, Ordering::Relaxed);
    }
}

/// Reads all rows of all tables; returns whether it was not stopped before the end.
fn scan(snapshot: &Snapshot, done: &Done) -> duramen::Result<bool> {
    for name in snapshot.list()? {
        let table = snapshot.open_table(&name)?;
        let mut cursor = snapshot.cursor(&table, ..);
        let mut is_end = false;
        while !is_end {
            let mut rows = 0;
            while !is_end && rows < STEP {
                is_end = cursor.next()?.is_none();
                rows += u64::from(!is_end);
            }
            done.rows.fetch_add(rows, Ordering::Relaxed);
            if done.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

impl std::fmt::Display for Scanned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rate = format::count((self.rows as f64 / self.seconds) as u64);
        write!(f, "{} of the whole database, {rate} rows/s", self.scans)?;
        if self.too_old > 0 {
            write!(f, "; {} snapshots became too old", self.too_old)?;
        }
        Ok(())
    }
}
