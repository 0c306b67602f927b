//! The whole engine on a simulated machine.
//!
//! A simulated measurement gives the same figures each time, so what several experiments measure is
//! measured once.

use std::time::Duration;

use duramen::{CommitMode, InsertDesign, Partition};

use crate::error::Result;
use crate::experiment::Context;
use crate::experiments::simulated::setup::{Bench, Setup};

const FLASH: Duration = Duration::from_micros(100);

/// Early lock release and flush pipelining on a fast flash drive, with three log buffers: the
/// mutex, the paper's, and the newest.
pub(super) const BUFFERS: [Setup; 3] = [
    Setup::on_files("mutex", CommitMode::Pipelined, InsertDesign::Mutex, FLASH),
    Setup::on_files("CD", CommitMode::Pipelined, InsertDesign::Hybrid, FLASH),
    Setup::on_files("reserved", CommitMode::Pipelined, InsertDesign::Reserved, FLASH),
];

/// How the processors spent their time, as shares of the time of the threads' contexts; the rest is
/// idle.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct Shares {
    /// Waiting for other threads at the log buffer, spinning or asleep.
    pub(crate) log_contention: f64,
    /// Asleep until a lock is granted.
    pub(crate) lock_waits: f64,
    /// Working on log records.
    pub(crate) log_work: f64,
    /// Waiting for other threads anywhere else.
    pub(crate) other_contention: f64,
    /// Everything else.
    pub(crate) other_work: f64,
}

impl Shares {
    /// Returns the rest of the time.
    pub(crate) fn idle(&self) -> f64 {
        let Self { log_contention, log_work, lock_waits, other_contention, other_work } = self;
        (1.0 - log_contention - log_work - lock_waits - other_contention - other_work).max(0.0)
    }
}

/// What a measurement gave, in numbers.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct Measured {
    /// Committed transactions per second.
    pub(crate) throughput: f64,
    /// Where the time of the contexts went.
    pub(crate) shares: Shares,
    /// Context switches per commit.
    pub(crate) switches_per_commit: f64,
    /// Share of the visits to pages that came from another socket than the one before.
    pub(crate) migrations: f64,
    /// Requests per commit that private caches could not answer.
    pub(crate) off_core: f64,
    /// Commits for each time that stragglers were drained; all of them if that never happened.
    pub(crate) commits_per_drain: f64,
    /// Seconds that 99 % of the transactions take at most.
    pub(crate) p99: f64,
    /// Whole scans through snapshots.
    pub(crate) scans: f64,
    /// Snapshots that were ended for lack of memory.
    pub(crate) too_old: f64,
}

#[cfg(duramen_machine)]
thread_local! {
    /// What this thread has measured with so many threads.
    static KEPT: crate::kept::Kept<(Bench, Setup, u32), Measured> = const { crate::kept::Kept::new() };
}

/// A database, which is populated for the first measurement that was not made before.
pub(super) struct Populated {
    bench: Bench,
    logs: (u16, Partition),
    #[cfg(duramen_machine)]
    loaded: std::cell::OnceCell<super::bed::Loaded>,
}

impl Populated {
    /// Returns one with one log.
    pub(super) fn new(bench: Bench) -> Self {
        Self::with_logs(bench, (1, Partition::Transaction))
    }

    /// Returns one with so many logs.
    pub(super) fn with_logs(bench: Bench, logs: (u16, Partition)) -> Self {
        #[cfg(duramen_machine)]
        return Self { bench, logs, loaded: std::cell::OnceCell::new() };
        #[cfg(not(duramen_machine))]
        Self { bench, logs }
    }

    /// Returns its logs.
    pub(super) fn logs(&self) -> (u16, Partition) {
        self.logs
    }

    /// Runs the workload with so many threads.
    pub(super) fn measure(&self, context: &mut Context<'_>, setup: Setup, threads: u32) -> Result<Measured> {
        self.measure_as(context, self.bench, setup, threads)
    }

    /// As [`Self::measure`], with the rows drawn and the work that `bench` says.
    pub(super) fn measure_as(
        &self,
        context: &mut Context<'_>,
        bench: Bench,
        setup: Setup,
        threads: u32,
    ) -> Result<Measured> {
        let Bench { machine, workload, .. } = bench;
        let what = format!("{}, {workload}, {}, {threads} threads", machine.name, setup.name);
        context.measure(what, || self.simulate(bench, setup, threads))
    }

    #[cfg(duramen_machine)]
    fn simulate(&self, bench: Bench, setup: Setup, threads: u32) -> Result<Measured> {
        let measure = || {
            if self.loaded.get().is_none() {
                let _ = self.loaded.set(self.bench.populate(self.logs)?);
            }
            let loaded = self.loaded.get().expect("it was populated");
            Ok(Self::measured(&bench.measure(loaded, setup, threads)?, threads))
        };
        KEPT.with(|kept| kept.find_or((bench, setup, threads), measure))
    }

    #[cfg(duramen_machine)]
    fn measured(point: &super::setup::Point, threads: u32) -> Measured {
        use duramen_machine::{Category, Time};

        let seconds = |time: Time| time.picos() as f64 / 1e12;
        let all = point.elapsed.as_secs_f64() * f64::from(threads);
        let (mut busy, mut waiting) = (0.0, 0.0);
        for category in Category::ALL.into_iter().filter(|&category| category != Category::Log) {
            busy += seconds(point.spent.busy(category));
            waiting += seconds(point.spent.waiting(category));
        }
        Measured {
            throughput: point.throughput,
            shares: Shares {
                log_contention: seconds(point.spent.waiting(Category::Log) + point.spent.blocked(Category::Log)) / all,
                lock_waits: seconds(point.spent.blocked(Category::Lock)) / all,
                log_work: seconds(point.spent.busy(Category::Log)) / all,
                other_contention: waiting / all,
                other_work: busy / all,
            },
            switches_per_commit: point.switches as f64 / (point.committed as f64).max(1.0),
            migrations: point.visits.migrated as f64 / (point.visits.all as f64).max(1.0),
            off_core: point.off_core as f64 / (point.committed as f64).max(1.0),
            commits_per_drain: point.committed as f64 / (point.drains as f64).max(1.0),
            p99: point.p99.as_secs_f64(),
            scans: point.scans.0 as f64,
            too_old: point.scans.1 as f64,
        }
    }

    #[cfg(not(duramen_machine))]
    fn simulate(&self, bench: Bench, _: Setup, _: u32) -> Result<Measured> {
        Err(crate::error::Error::NotSimulated { machine: bench.machine.name })
    }
}

/// How it was set up.
pub(super) fn setting(bench: &Bench) -> String {
    let Bench { machine, workload, scale, rows_per_unit, time, more_work, .. } = bench;
    let more = match more_work.as_micros() {
        0 => String::new(),
        micros => format!(", each transaction of which has {micros} us of more work"),
    };
    format!(
        "Simulated machine: {}. The whole engine, {workload} with {scale} x {rows_per_unit} rows{more}, on a simulated \
         disk. Each measurement is {} ms of virtual time, after 8 MiB of log, with which the log's files have grown, \
         and a warm-up; it is followed by the workload's audit. Shares are of the time of the clients' threads, \
         without the engine's own threads.",
        machine.name,
        time.as_millis()
    )
}
