//! The same code on this machine and on the simulated one: how far the model is off.
//!
//! Measured are the operations that the simulated experiments are made of, by one and by two threads. The simulated machine
//! is a server of today, which resembles the machines that developers have; the others share its model and its one
//! calibrated constant, the instructions that stand for the code around an operation on shared memory.

use std::time::Duration;

use duramen::{CommitMode, Db, InsertDesign, Options};
use duramen_io::SimDisk;
use duramen_sync::Arc;
use duramen_wal::measure::{BufferLoad, buffer};
use duramen_workloads::{Limit, Request, RunOptions, run};
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// What an operation takes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Calibrated {
    /// The operation.
    pub what: String,
    /// Threads that do it at a time.
    pub threads: u32,
    /// Nanoseconds of one thread for one of them.
    pub nanos: f64,
}

#[derive(Clone, Copy)]
enum Operation {
    Insert(InsertDesign),
    Workload(&'static str, u64),
}

impl Operation {
    fn name(self) -> String {
        match self {
            Self::Insert(design) => format!("insert 120 bytes, {design}"),
            Self::Workload(name, _) => format!("transaction of {name}"),
        }
    }

    /// Nanoseconds of one thread for one of them.
    fn measure(self, threads: u32, time: Duration) -> Result<f64> {
        let (count, elapsed) = match self {
            Self::Insert(design) => {
                let load = BufferLoad {
                    threads: threads as usize,
                    record_bytes: 120,
                    outlier: None,
                    thread_local: false,
                    logs: 1,
                    arrays: 1,
                    array_slots: 4,
                    ring_bytes: 64 << 20,
                    time,
                };
                let rate = buffer(design, &load)?;
                (rate.records, rate.elapsed)
            }
            Self::Workload(name, rows) => {
                let options = Options { commit: CommitMode::Async, pool_bytes: 64 << 20, ..Options::default() };
                let db = Db::open_on(Arc::new(SimDisk::new(1)), options)?;
                let request = Request { scale: Some(1), rows_per_unit: Some(rows), ..Request::default() };
                let workload = request.workload(name, &db)?;
                workload.load(&db, &mut |_| {})?;
                let options = |time, seed| RunOptions {
                    clients: threads,
                    agents: threads,
                    rate: None,
                    limit: Limit::Time(time),
                    seed,
                    observe_every: Duration::from_secs(1),
                };
                run(&db, &*workload, &options(time / 4, 1), &mut |_| {})?;
                let report = run(&db, &*workload, &options(time, 2), &mut |_| {})?;
                db.close()?;
                (report.committed, report.elapsed)
            }
        };
        Ok(elapsed.as_nanos() as f64 * f64::from(threads) / (count as f64).max(1.0))
    }

    #[cfg(machine)]
    fn here(self, threads: u32) -> Result<f64> {
        // Two cores that share a cache: the first contexts of the first two.
        let neighbours = Some(vec![0, 2]);
        crate::simulation::run_on("server-2x64", neighbours, move || self.measure(threads, Duration::from_millis(2)))
    }

    /// The best of three: what else the machine does only adds.
    #[cfg(not(machine))]
    fn here(self, threads: u32) -> Result<f64> {
        let rounds: Result<Vec<f64>> = (0..3).map(|_| self.measure(threads, Duration::from_millis(300))).collect();
        Ok(rounds?.into_iter().fold(f64::INFINITY, f64::min))
    }
}

/// Measures every operation in this build, with one thread and with two; `observe` is told what comes next.
///
/// # Errors
/// Those of the engine and the workloads.
pub fn calibrate(observe: &mut dyn FnMut(&str)) -> Result<Vec<Calibrated>> {
    let designs = InsertDesign::ALL.into_iter().map(Operation::Insert);
    let operations = designs.chain([
        Operation::Workload("tatp:get-subscriber", 2_000),
        Operation::Workload("tatp:update-location", 2_000),
        Operation::Workload("tpcb", 1_000),
    ]);
    let mut measured = Vec::new();
    for operation in operations {
        for threads in [1, 2] {
            let what = operation.name();
            observe(&format!("{what}, threads: {threads}"));
            measured.push(Calibrated { nanos: operation.here(threads)?, what, threads });
        }
    }
    Ok(measured)
}
