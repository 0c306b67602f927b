//! Databases in modelled persistent memory, natively: files, or a heap, in a memory file system.

use std::path::PathBuf;
use std::time::Duration;

use duramen::pmem::Timing;
use duramen::{CommitMode, Db, RecoveryReport};
use duramen_io::{Disk, RealDisk, RealDiskOptions};
use duramen_sync::Arc;
use duramen_workloads::{Request, Workload, run};

use crate::bed::Bed;
use crate::contender::{Clients, Contender, Sizes};
use crate::error::{Error, Result};
use crate::nvm_disk::{NvmDisk, Persists};
use crate::timed::Timed;

/// A workload and the size of its database.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Job {
    /// The workload's name.
    pub(crate) workload: &'static str,
    /// In the workload's unit.
    pub(crate) scale: u64,
    /// Rows below each unit; those of the specification if there is no number.
    pub(crate) rows_per_unit: Option<u64>,
    pub(crate) sizes: Sizes,
}

impl Job {
    /// Returns the workload, for `db`.
    pub(crate) fn on(&self, db: &Db) -> Result<Box<dyn Workload<Db>>> {
        let request = Request { scale: Some(self.scale), rows_per_unit: self.rows_per_unit, ..Request::default() };
        Ok(request.workload(self.workload, db)?)
    }
}

/// What a measurement gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Committed transactions per second.
    pub(crate) throughput: f64,
    /// Seconds that 95 of 100 transactions do not exceed, from their begin to their
    /// acknowledgement.
    pub(crate) p95: f64,
    /// What files persisted per second.
    pub(crate) page_flushes: f64,
    /// Dirty pages at the end.
    pub(crate) dirty_pages: f64,
}

/// A populated database of one scheme. It is removed at the end.
#[derive(Debug)]
pub(crate) struct NvmBed {
    bed: Bed,
    contender: Contender,
    job: Job,
}

impl NvmBed {
    /// Populates one.
    pub(crate) fn populate(contender: Contender, job: Job) -> Result<Self> {
        let this = Self { bed: Bed::new(job.sizes.pool)?, contender, job };
        let rig = this.open(contender, CommitMode::Pipelined, Duration::ZERO)?;
        rig.disk.set_timing(&Timing::NONE);
        rig.workload.load(&rig.db, &mut |_| {})?;
        rig.db.close()?;
        Ok(this)
    }

    /// Opens it, with barriers of this length. `contender` may have other options than the one that
    /// it was populated for, but not another scheme.
    pub(crate) fn open(&self, contender: Contender, commit: CommitMode, barrier: Duration) -> Result<NvmRig> {
        let real = RealDisk::open(self.bed.path(), RealDiskOptions::default())?;
        let disk = NvmDisk::new(Arc::new(real));
        let options = contender.options(self.job.sizes, commit, contender.timing(barrier), &self.heap());
        let db = Db::open_on(disk.handle(), options)?;
        let workload = self.job.on(&db)?;
        disk.set_timing(&contender.timing(barrier));
        Ok(NvmRig { db, disk, workload, fill: self.job.sizes.fill })
    }

    fn heap(&self) -> PathBuf {
        self.bed.path().join("heap")
    }

    /// Opens it, fills the pool and measures with each of `clients`. Those that follow each other
    /// and commit in the same way have one opening.
    pub(crate) fn each(
        &self,
        contender: Contender,
        barrier: Duration,
        clients: &[Clients],
        time: Duration,
    ) -> Result<Vec<Measured>> {
        let mut all = Vec::new();
        for clients in clients.chunk_by(|a, b| a.commit == b.commit) {
            let rig = self.open(contender, clients[0].commit, barrier)?;
            rig.fill_pool(clients[0])?;
            for clients in clients {
                all.push(rig.measure(*clients, time)?);
            }
            rig.close()?;
        }
        Ok(all)
    }

    /// Measures with barriers that take no time, drops the database without closing it and opens it
    /// again; returns the measurement, and what recovery did.
    pub(crate) fn interrupt(
        &self,
        contender: Contender,
        clients: Clients,
        time: Duration,
    ) -> Result<(Measured, RecoveryReport)> {
        let rig = self.open(contender, clients.commit, Duration::ZERO)?;
        rig.fill_pool(clients)?;
        let measured = rig.measure(clients, time)?;
        drop(rig);
        let rig = self.open(contender, clients.commit, Duration::ZERO)?;
        let report = rig.db.metrics().recovery;
        rig.close()?;
        Ok((measured, report))
    }

    /// Opens the database once more and audits it.
    pub(crate) fn audit(&self) -> Result<()> {
        let rig = self.open(self.contender, CommitMode::Elr, Duration::ZERO)?;
        let report = rig.workload.audit(&rig.db)?;
        rig.close()?;
        if report.is_ok() { Ok(()) } else { Err(Error::Audit(format!("{}: {report}", self.contender.name))) }
    }
}

/// An open database.
#[derive(Debug)]
pub(crate) struct NvmRig {
    db: Db,
    disk: NvmDisk,
    /// It may count rows when it is first used.
    workload: Box<dyn Workload<Db>>,
    fill: Duration,
}

impl NvmRig {
    /// Runs the workload until the pool holds nearly all pages that it uses.
    fn fill_pool(&self, clients: Clients) -> Result<()> {
        run(&self.db, &*self.workload, &clients.run(self.fill, 3), &mut |_| {})?;
        Ok(())
    }

    /// Runs the workload, after a warm-up, for so long.
    pub(crate) fn measure(&self, clients: Clients, time: Duration) -> Result<Measured> {
        measure(&self.db, &self.disk, &*self.workload, clients, time)
    }

    /// Returns the database.
    #[cfg_attr(not(duramen_trace), allow(dead_code, reason = "used by the trace build"))]
    pub(crate) fn db(&self) -> &Db {
        &self.db
    }

    /// Closes the database, in no modelled time.
    pub(crate) fn close(self) -> Result<()> {
        self.disk.set_timing(&Timing::NONE);
        Ok(self.db.close()?)
    }
}

/// Runs `workload`, after a warm-up, for so long.
pub(crate) fn measure(
    db: &Db,
    disk: &NvmDisk,
    workload: &dyn Workload<Db>,
    clients: Clients,
    time: Duration,
) -> Result<Measured> {
    /// A warm-up takes this share of the time of a measurement.
    const WARM_UP: f64 = 0.3;
    run(db, workload, &clients.run(time.mul_f64(WARM_UP), 1), &mut |_| {})?;
    let before = disk.persists();
    let timed = Timed::new(workload);
    let report = run(db, &timed, &clients.run(time, 2), &mut |_| {})?;
    let Persists { pages, .. } = disk.persists().since(&before);
    Ok(Measured {
        throughput: report.throughput(),
        p95: timed.quantile(0.95).as_secs_f64(),
        page_flushes: pages as f64 / report.elapsed.as_secs_f64().max(1e-9),
        dirty_pages: db.metrics().dirty_pages as f64,
    })
}
