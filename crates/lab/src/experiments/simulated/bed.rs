//! The database that experiments measure on a simulated machine: in simulated memory, with a log
//! device of the latency that the experiment chooses.
//!
//! Simulated threads populate the database once, without charges. Each measurement then runs on a
//! machine of its own, on a copy of the disk.

use std::time::Duration;

use duramen::pmem::{Domain, Guarantee, Source, Survive, Timing};
use duramen::{CommitMode, Db, InsertDesign, LogDevice, NvmOptions, Options, Partition};
use duramen_io::{DelayDisk, SimDisk};
use duramen_machine::threads::usage;
use duramen_machine::{Breakdown, Plan, Report, Schedule};
use duramen_sync::Arc;
use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::thread::{JoinHandle, spawn};
use duramen_workloads::{Limit, Request, RunOptions, Workload, run};

use crate::error::{Error, Result};
use crate::experiments::simulated::setup::{Bench, Device, Point, Setup, Snapshots};
use crate::simulation::{self, finished, plan};
use crate::with_work::WithWork;

/// Bytes of log before a measurement: more than most measurements write.
const AGED: u64 = 8 << 20;

/// A populated database.
pub(crate) type Loaded = Report<Result<SimDisk>>;

impl Bench {
    fn workload(&self, db: &Db) -> Result<Box<dyn Workload<Db>>> {
        let request = Request {
            scale: Some(self.scale),
            rows_per_unit: Some(self.rows_per_unit),
            skew: self.skew,
            ..Request::default()
        };
        if self.more_work.is_zero() {
            return Ok(request.workload(self.workload, db)?);
        }
        Ok(Box::new(WithWork::new(request, self.workload, db, self.more_work)?))
    }

    fn options(setup: &Setup) -> Options {
        Options {
            commit: setup.commit,
            log_insert: setup.insert,
            logs: setup.logs.0,
            log_partition: setup.logs.1,
            log_device: match setup.device {
                Device::Files(_) => LogDevice::File,
                Device::Memory(domain, write, placement) => LogDevice::Nvm(NvmOptions {
                    stated: Some(match domain {
                        Domain::DurableCache => Guarantee::DurableCache,
                        Domain::VolatileCache => Guarantee::VolatileCache,
                    }),
                    survive: Survive::Nothing,
                    placement,
                    timing: Timing { write, ..Timing::NONE },
                    ..NvmOptions::new(Source::Anonymous, domain)
                }),
            },
            lock_inheritance: setup.inheritance,
            snapshots: setup.snapshots != Snapshots::Off,
            pool_bytes: 48 << 20,
            log_segment_bytes: 8 << 20,
            ..Options::default()
        }
    }

    /// Populates a database; the report has its disk, and the memory that the disk lies in.
    pub(crate) fn populate(&self, logs: (u16, Partition)) -> Result<Loaded> {
        const LOADER: Setup = Setup::on_files("loading", CommitMode::Pipelined, InsertDesign::Hybrid, Duration::ZERO);
        let loader = Setup { logs, ..LOADER };
        let bench = *self;
        let plan = Plan { schedule: Schedule::Free, ..plan("server-2x64")? };
        let report = duramen_machine::run(&plan, move || {
            let disk = SimDisk::new(1);
            let db = Db::open_on(Arc::new(disk.clone()), Self::options(&loader))?;
            bench.workload(&db)?.load(&db, &mut |_| {})?;
            db.close()?;
            Ok(disk)
        });
        finished("server-2x64", &report.outcome)?;
        Ok(report)
    }

    /// Runs the workload with each number of threads in turn.
    pub(crate) fn measure(&self, loaded: &Loaded, setup: Setup, threads: u32) -> Result<Point> {
        let (bench, disk) = (*self, finished("server-2x64", &loaded.outcome)?.clone());
        let report = duramen_machine::run(&self.machine.plan()?, move || {
            let disk = Arc::new(DelayDisk::new(Arc::new(disk.image()), "log/", Duration::ZERO));
            let db = Db::open_on(disk.clone(), Self::options(&setup))?;
            simulation::age_logs(&db, AGED)?;
            let workload = bench.workload(&db)?;
            let blocking = matches!(setup.commit, CommitMode::Sync | CommitMode::Elr);
            let clients = if blocking { threads } else { threads * bench.in_flight };
            let options = |time, seed| RunOptions {
                clients,
                rate: None,
                agents: threads,
                limit: Limit::Time(time),
                seed,
                observe_every: Duration::from_secs(1),
            };
            disk.set_latency(setup.latency());
            run(&db, &*workload, &options(bench.time.mul_f64(0.3), 1), &mut |_| {})?;
            let (before, drains) = (usage(), db.metrics().log.drains);
            let scans = (setup.snapshots == Snapshots::Scanned).then(|| Scans::start(&db));
            let report = run(&db, &*workload, &options(bench.time, 2), &mut |_| {})?;
            let scanned = scans.map(Scans::finish).transpose()?.unwrap_or_default();
            let (after, drains) = (usage(), db.metrics().log.drains - drains);
            disk.set_latency(Duration::ZERO);
            let db_too_old = db.metrics().snapshots_too_old;
            let audit = workload.audit(&db)?;
            if !audit.is_ok() {
                return Err(Error::Audit(audit.to_string()));
            }
            db.close()?;
            Ok(Point {
                throughput: report.throughput(),
                elapsed: report.elapsed,
                spent: spent(&before.breakdown, &after.breakdown),
                switches: after.voluntary_switches + after.involuntary_switches
                    - before.voluntary_switches
                    - before.involuntary_switches,
                visits: after.visits.since(&before.visits),
                committed: report.committed,
                off_core: after.off_core - before.off_core,
                drains,
                p99: report.latencies.quantile(0.99),
                scans: (scanned, db_too_old),
            })
        });
        Ok(finished(self.machine.name, &report.outcome)?.clone())
    }
}

/// A thread that reads the whole database through one snapshot after another.
struct Scans {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<duramen::Result<u64>>>,
}

impl Scans {
    fn start(db: &Db) -> Self {
        let (db, is_over) = (db.clone(), Arc::new(AtomicBool::new(false)));
        let stop = Arc::clone(&is_over);
        let thread = spawn("scan", move || {
            let mut whole = 0;
            while !stop.load(Ordering::Relaxed) {
                match scan(&db, &stop) {
                    Err(duramen::Error::SnapshotTooOld { .. }) => {}
                    scanned => whole += u64::from(scanned?),
                }
            }
            Ok(whole)
        });
        Self { is_over, thread: Some(thread.expect("the machine has a thread to give")) }
    }

    /// Ends the thread; returns how often it has read everything.
    fn finish(mut self) -> Result<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is finished once");
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
    }
}

impl Drop for Scans {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Reads everything through a snapshot; returns false if it is over before.
fn scan(db: &Db, is_over: &AtomicBool) -> duramen::Result<bool> {
    let snapshot = db.snapshot()?;
    for name in snapshot.list()? {
        let table = snapshot.open_table(&name)?;
        let (mut cursor, mut rows) = (snapshot.cursor(&table, ..), 0_u32);
        while cursor.next()?.is_some() {
            rows += 1;
            if rows.is_multiple_of(64) && is_over.load(Ordering::Relaxed) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn spent(before: &Breakdown, after: &Breakdown) -> Breakdown {
    after.since(before)
}
