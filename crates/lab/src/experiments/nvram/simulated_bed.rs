//! Databases in modelled persistent memory on a simulated machine.
//!
//! Files are on a simulated disk. A heap is a file of the host, which the simulated machine maps;
//! each measurement has its own copy of both.

use std::path::{Path, PathBuf};
use std::time::Duration;

use duramen::pmem::Timing;
use duramen::{CommitMode, Db};
use duramen_io::{Disk, SimDisk};
use duramen_machine::{Plan, Report, Schedule};
use duramen_sync::Arc;
use tempfile::TempDir;

use crate::bed::Bed;
use crate::contender::{Clients, Contender};
use crate::error::{Error, Result};
use crate::nvm_bed::{self, Job, Measured};
use crate::nvm_disk::NvmDisk;
use crate::simulation::{self, finished, plan};

/// A populated database of one scheme.
pub(super) struct Populated {
    machine: &'static str,
    job: Job,
    /// What lies on the disk, with the memory that it lies in.
    loaded: Report<Result<SimDisk>>,
    /// The directory of the heap.
    home: Bed,
}

/// Populates a database, without charges.
pub(super) fn populate(machine: &'static str, contender: Contender, job: Job) -> Result<Populated> {
    let home = Bed::new(job.sizes.pool)?;
    let heap = heap_in(home.path());
    let loader = Plan { schedule: Schedule::Free, ..plan(machine)? };
    let loaded = duramen_machine::run(&loader, move || {
        let disk = SimDisk::new(1);
        let options = contender.options(job.sizes, CommitMode::Pipelined, Timing::NONE, &heap);
        let db = Db::open_on(Arc::new(disk.clone()), options)?;
        job.on(&db)?.load(&db, &mut |_| {})?;
        db.close()?;
        Ok(disk)
    });
    finished(machine, &loaded.outcome)?;
    Ok(Populated { machine, job, loaded, home })
}

fn heap_in(directory: &Path) -> PathBuf {
    directory.join("heap")
}

impl Populated {
    /// Runs the workload on a copy with barriers of this length, and audits.
    pub(super) fn measure(
        &self,
        contender: Contender,
        clients: Clients,
        barrier: Duration,
        time: Duration,
    ) -> Result<Measured> {
        self.measure_on(plan(self.machine)?, contender, clients, barrier, time)
    }

    /// As [`Populated::measure`], where reads of persistent memory take so long and barriers no
    /// time.
    pub(super) fn measure_reads(
        &self,
        contender: Contender,
        clients: Clients,
        latency: Duration,
        time: Duration,
    ) -> Result<Measured> {
        let mut plan = plan(self.machine)?;
        plan.description = plan.description.with_nvm_reads(latency);
        self.measure_on(plan, contender, clients, Duration::ZERO, time)
    }

    fn measure_on(
        &self,
        plan: Plan,
        contender: Contender,
        clients: Clients,
        barrier: Duration,
        time: Duration,
    ) -> Result<Measured> {
        self.on_copy(&plan, move |job, disk, heap| {
            let options = contender.options(job.sizes, clients.commit, contender.timing(barrier), heap);
            let db = Db::open_on(disk.handle(), options)?;
            age_logs(&db)?;
            disk.set_timing(&contender.timing(barrier));
            let workload = job.on(&db)?;
            let measured = nvm_bed::measure(&db, &disk, &*workload, clients, time)?;
            disk.set_timing(&Timing::NONE);
            audited(&db, job)?;
            db.close()?;
            Ok(measured)
        })
    }

    /// Runs the workload on a copy with barriers that take no time, drops the database without
    /// closing it, opens it again and audits; returns the microseconds of recovery.
    pub(super) fn interrupt(&self, contender: Contender, clients: Clients, time: Duration) -> Result<(Measured, u64)> {
        self.on_copy(&plan(self.machine)?, move |job, disk, heap| {
            let options = || contender.options(job.sizes, clients.commit, contender.timing(Duration::ZERO), heap);
            let db = Db::open_on(disk.handle(), options())?;
            age_logs(&db)?;
            disk.set_timing(&contender.timing(Duration::ZERO));
            let workload = job.on(&db)?;
            let measured = nvm_bed::measure(&db, &disk, &*workload, clients, time)?;
            drop((workload, db));
            let db = Db::open_on(disk.handle(), options())?;
            let micros = db.metrics().recovery.micros();
            disk.set_timing(&Timing::NONE);
            audited(&db, job)?;
            db.close()?;
            Ok((measured, micros))
        })
    }

    /// Runs `work` on the machine, with a copy of the files and of the heap.
    fn on_copy<T: Clone + 'static>(
        &self,
        plan: &Plan,
        work: impl FnOnce(Job, NvmDisk, &Path) -> Result<T> + 'static,
    ) -> Result<T> {
        let copy = self.copy_of_heap()?;
        let (job, heap) = (self.job, heap_in(copy.path()));
        let disk = finished(self.machine, &self.loaded.outcome)?.clone();
        let report = duramen_machine::run(plan, move || work(job, NvmDisk::new(Arc::new(disk.image())), &heap));
        finished(self.machine, &report.outcome).cloned()
    }

    fn copy_of_heap(&self) -> Result<TempDir> {
        let from = heap_in(self.home.path());
        let failed = |error: std::io::Error| Error::ResultFile {
            operation: "copy",
            path: from.display().to_string(),
            reason: error.to_string(),
        };
        let parent = self.home.path().parent().unwrap_or(self.home.path());
        let copy = tempfile::Builder::new().prefix("duramen-lab-").tempdir_in(parent).map_err(failed)?;
        if from.exists() {
            std::fs::copy(&from, heap_in(copy.path())).map_err(failed)?;
        }
        Ok(copy)
    }
}

/// Lets a log grow before it is measured, if the scheme has one.
fn age_logs(db: &Db) -> Result<()> {
    const AGED: u64 = 4 << 20;
    if db.metrics().log.segments_live == 0 { Ok(()) } else { simulation::age_logs(db, AGED) }
}

fn audited(db: &Db, job: Job) -> Result<()> {
    let audit = job.on(db)?.audit(db)?;
    if audit.is_ok() { Ok(()) } else { Err(Error::Audit(audit.to_string())) }
}
