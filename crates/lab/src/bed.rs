//! The database that experiments measure: in a memory file system, with a log device of the latency
//! that the experiment chooses.

use std::path::{Path, PathBuf};
use std::time::Duration;

use duramen::{CommitMode, Db, InsertDesign, Options, Partition};
use duramen_io::{DelayDisk, RealDisk, RealDiskOptions};
use duramen_sync::Arc;
use duramen_sync::thread::available_parallelism;
use duramen_sync::usage::Usage;
use duramen_workloads::{Limit, RunOptions, Workload, run};
use tempfile::TempDir;

use crate::error::{Error, Result};

/// Where the log is within a database.
const LOG: &str = "log/";
/// A smaller memory file system does not hold the experiments' databases.
const LEAST_KIB: u64 = 3 << 20;
/// A warm-up with the same load takes this share of the time of a measurement.
const WARM_UP: f64 = 0.2;

/// A system that is compared with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct System {
    /// What it is called in figures.
    pub(crate) name: &'static str,
    pub(crate) commit: CommitMode,
    pub(crate) insert: InsertDesign,
}

impl System {
    pub(crate) const fn new(name: &'static str, commit: CommitMode, insert: InsertDesign) -> Self {
        Self { name, commit, insert }
    }
}

/// What clients do in a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Load {
    /// Number of clients, without think time.
    pub(crate) clients: u32,
    /// How long.
    pub(crate) time: Duration,
}

/// What a measurement gave.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Measured {
    /// Committed transactions per second.
    pub(crate) throughput: f64,
    /// Context switches of the process per second.
    pub(crate) switches: f64,
    /// Context switches per commit.
    pub(crate) switches_per_commit: f64,
    /// Processors busy for the process.
    pub(crate) busy: f64,
    /// Processors busy in the kernel for the process.
    pub(crate) system: f64,
    /// Clients that waited for a lock, on average.
    pub(crate) lock_waiters: f64,
    /// Commits per flush of the log.
    pub(crate) group: f64,
}

/// A database that experiments reopen with one system after another. It is removed at the end.
#[derive(Debug)]
pub(crate) struct Bed {
    home: TempDir,
    file_system: String,
    pool_bytes: usize,
    logs: (u16, Partition),
    checkpoint_bytes: Option<u64>,
}

impl Bed {
    /// Returns an empty one with one log.
    pub(crate) fn new(pool_bytes: usize) -> Result<Self> {
        Self::with_logs(pool_bytes, (1, Partition::default()))
    }

    /// Returns an empty one with so many logs.
    pub(crate) fn with_logs(pool_bytes: usize, logs: (u16, Partition)) -> Result<Self> {
        let (directory, file_system) = place(&std::fs::read_to_string("/proc/self/mounts").unwrap_or_default());
        let failed = |error: std::io::Error| Error::ResultFile {
            operation: "create a directory in",
            path: directory.display().to_string(),
            reason: error.to_string(),
        };
        let home = tempfile::Builder::new().prefix("duramen-lab-").tempdir_in(&directory).map_err(failed)?;
        Ok(Self { home, file_system, pool_bytes, logs, checkpoint_bytes: None })
    }

    /// Only explicit checkpoints are taken, unless there are gigabytes of log.
    pub(crate) fn without_checkpoints(self) -> Self {
        Self { checkpoint_bytes: Some(8 << 30), ..self }
    }

    /// Returns where the files are, for the report.
    pub(crate) fn setting(&self) -> String {
        format!(
            "The database and the log are files on {}. Every commit waits for a durable write of the log, except in \
             the series named asynchronous; the latency of the log device is added to each of these writes.",
            self.file_system
        )
    }

    /// Opens the database for `system`, with a log device that takes `latency`.
    pub(crate) fn open(&self, system: &System, latency: Duration) -> Result<Rig> {
        let real = RealDisk::open(self.home.path(), RealDiskOptions::default())?;
        // Opening writes to the log, too; the measurements leave that out.
        let disk = Arc::new(DelayDisk::new(Arc::new(real), LOG, Duration::ZERO));
        let options = Options {
            commit: system.commit,
            log_insert: system.insert,
            pool_bytes: self.pool_bytes,
            logs: self.logs.0,
            log_partition: self.logs.1,
            log_segment_bytes: 16 << 20,
            checkpoint_bytes: self.checkpoint_bytes,
            ..Options::default()
        };
        let db = Db::open_on(disk.clone(), options)?;
        disk.set_latency(latency);
        Ok(Rig { db, disk, commit: system.commit })
    }

    /// Returns the directory of the database.
    pub(crate) fn path(&self) -> &Path {
        self.home.path()
    }

    /// Populates the database.
    pub(crate) fn load(&self, workload: &dyn Workload<Db>) -> Result<()> {
        const LOADER: System = System::new("loading", CommitMode::Pipelined, InsertDesign::Hybrid);
        let rig = self.open(&LOADER, Duration::ZERO)?;
        workload.load(&rig.db, &mut |_| {})?;
        rig.close()
    }

    /// Opens the database once more, without latency, and audits it.
    pub(crate) fn audit(&self, workload: &dyn Workload<Db>) -> Result<()> {
        const AUDITOR: System = System::new("audit", CommitMode::Sync, InsertDesign::Mutex);
        let rig = self.open(&AUDITOR, Duration::ZERO)?;
        let report = workload.audit(&rig.db)?;
        rig.close()?;
        if report.is_ok() { Ok(()) } else { Err(Error::Audit(report.to_string())) }
    }
}

/// An open database with a slow log.
#[derive(Debug)]
pub(crate) struct Rig {
    db: Db,
    disk: Arc<DelayDisk>,
    commit: CommitMode,
}

impl Rig {
    /// Runs `workload`.
    pub(crate) fn measure(&self, workload: &dyn Workload<Db>, load: Load) -> Result<Measured> {
        let options = |time, seed| RunOptions {
            clients: load.clients,
            rate: None,
            agents: agents(self.commit, load.clients),
            limit: Limit::Time(time),
            seed,
            observe_every: Duration::from_secs(1),
        };
        run(&self.db, workload, &options(load.time.mul_f64(WARM_UP), 1), &mut |_| {})?;
        let (metrics, usage) = (self.db.metrics(), Usage::now());
        let report = run(&self.db, workload, &options(load.time, 2), &mut |_| {})?;
        let (used, after) = (Usage::now().since(&usage), self.db.metrics());
        let seconds = report.elapsed.as_secs_f64().max(1e-9);
        let commits = (report.committed as f64).max(1.0);
        Ok(Measured {
            throughput: report.throughput(),
            switches: used.switches() as f64 / seconds,
            switches_per_commit: used.switches() as f64 / commits,
            busy: used.processor().as_secs_f64() / seconds,
            system: used.system.as_secs_f64() / seconds,
            lock_waiters: (after.lock_wait_nanos - metrics.lock_wait_nanos) as f64 / 1e9 / seconds,
            group: commits / ((after.log.flushes - metrics.log.flushes) as f64).max(1.0),
        })
    }

    /// Returns the database.
    pub(crate) fn db(&self) -> &Db {
        &self.db
    }

    /// Closes the database.
    pub(crate) fn close(self) -> Result<()> {
        self.disk.set_latency(Duration::ZERO);
        Ok(self.db.close()?)
    }
}

/// Threads that carry the clients: one for each client where a commit blocks its thread, else one
/// for each processor.
pub(crate) fn agents(commit: CommitMode, clients: u32) -> u32 {
    match commit {
        CommitMode::Sync | CommitMode::Elr => clients,
        CommitMode::Pipelined | CommitMode::Async => {
            u32::try_from(available_parallelism()).unwrap_or(u32::MAX).min(clients)
        }
    }
}

/// Returns a directory for databases, and its kind of file system in words, according to the
/// system's table of `mounts`.
fn place(mounts: &str) -> (PathBuf, String) {
    const MEMORY: &str = "/dev/shm";
    let is_memory = mounts.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_enough = |options| size_kib(options).is_none_or(|size| size >= LEAST_KIB);
        matches!(fields[..], [_, MEMORY, "tmpfs", options, ..] if is_enough(options))
    });
    if is_memory {
        (MEMORY.into(), "a memory file system (tmpfs), which has no latency of its own".into())
    } else {
        (
            std::env::temp_dir(),
            "the file system of temporary files, which adds its own latency to the injected one".into(),
        )
    }
}

/// Returns the size in the options of a memory file system, `rw,size=65536k`; nothing when they
/// have none.
fn size_kib(options: &str) -> Option<u64> {
    options.split(',').find_map(|option| option.strip_prefix("size=")?.strip_suffix('k')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_file_system_is_preferred() {
        let (directory, what) = place("tmpfs /dev/shm tmpfs rw 0 0\n");
        assert_eq!(directory, Path::new("/dev/shm"));
        assert!(what.contains("memory"), "{what}");
        assert_eq!(place("tmpfs /dev/shm tmpfs rw,relatime,size=24684096k 0 0\n").0, Path::new("/dev/shm"));
        for other in ["/dev/sda1 /dev/shm ext4 rw 0 0\n", "shm /dev/shm tmpfs rw,nosuid,size=65536k 0 0\n", ""] {
            let (directory, what) = place(other);
            assert_eq!(directory, std::env::temp_dir());
            assert!(what.contains("own latency"), "{what}");
        }
    }

    #[test]
    fn blocking_commits_have_a_thread_for_each_client() {
        assert_eq!((agents(CommitMode::Sync, 64), agents(CommitMode::Elr, 3)), (64, 3));
        assert_eq!(agents(CommitMode::Pipelined, 1), 1);
        assert!(agents(CommitMode::Async, 4096) as usize <= available_parallelism());
    }
}
