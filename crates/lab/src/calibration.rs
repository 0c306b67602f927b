//! The same code on this machine and on the simulated one: the error of the model.
//!
//! The calibration measures the operations that the simulated experiments consist of, with one and
//! with two threads. The simulated machine is a present-day server, which resembles the machines of
//! developers. The other simulated machines share its model and its one calibrated constant, the
//! instructions that stand for the code around an operation on shared memory.
//!
//! The distance of two processors decides what two threads cost each other, and a virtual machine
//! may not report it correctly. It is therefore measured first, by handing over a line; the
//! simulated threads get the distance that fits best.

use std::time::Duration;

use duramen::{CommitMode, Db, InsertDesign, Options};
use duramen_io::SimDisk;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::{Arc, Backoff, thread};
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
    /// How far apart two threads are, where that is chosen: on a simulated machine.
    #[serde(default)]
    pub apart: Option<String>,
    /// Nanoseconds of one thread for one of them.
    pub nanos: f64,
}

/// The operation that measures the distance of two processors: a number in shared memory goes back
/// and forth between their threads. Each thread waits for the other's number and then writes its
/// own.
const HAND_OVER: &str = "handing a line over";

/// Where two threads of the simulated machine may be: the names, and the contexts.
#[cfg(duramen_machine)]
const APART: [(&str, [usize; 2]); 4] = [
    ("two contexts of a core", [0, 1]),
    ("two cores of a die", [0, 2]),
    ("two dies of a socket", [0, 16]),
    ("two sockets", [0, 128]),
];

#[derive(Clone, Copy)]
enum Operation {
    HandOver,
    Insert(InsertDesign),
    Workload(&'static str, u64),
}

/// Sends a line back and forth `times` times.
fn hand_over(times: u64) -> Duration {
    let line = Arc::new(AtomicU64::new(0));
    let other = Arc::clone(&line);
    let play = move |line: &AtomicU64, first: u64| {
        let mut start = Instant::now();
        for turn in (first..times).step_by(2) {
            let mut waiting = Backoff::new();
            while line.load(Ordering::Acquire) != turn {
                waiting.snooze();
            }
            if turn == first {
                // Both threads have arrived.
                start = Instant::now();
            }
            line.store(turn + 1, Ordering::Release);
        }
        start.elapsed()
    };
    let thread = thread::spawn("lab-other", move || play(&other, 1)).expect("the system has a thread to give");
    let elapsed = play(&line, 0);
    thread.join().expect("the other side does not panic");
    elapsed
}

impl Operation {
    fn name(self) -> String {
        match self {
            Self::HandOver => HAND_OVER.to_owned(),
            Self::Insert(design) => format!("insert 120 bytes, {design}"),
            Self::Workload(name, _) => format!("transaction of {name}"),
        }
    }

    /// Nanoseconds of one thread for one of them: of `rounds` measurements of `time` each the
    /// best, or with two threads the median.
    fn measure(self, threads: u32, rounds: u32, time: Duration) -> Result<f64> {
        let mut measured = Vec::new();
        let mut note = |count: u64, elapsed: Duration, threads: u32| {
            measured.push(elapsed.as_nanos() as f64 * f64::from(threads) / (count as f64).max(1.0));
        };
        match self {
            Self::HandOver => {
                const TIMES: u64 = 2000;
                (0..rounds * 10).for_each(|_| note(TIMES, hand_over(TIMES), 1));
            }
            Self::Insert(design) => {
                let load = BufferLoad {
                    threads: threads as usize,
                    record_bytes: 120,
                    outlier: None,
                    thread_local: false,
                    logs: 1,
                    arrays: 1,
                    array_slots: 4,
                    slot_pool: 256,
                    waits_for_turn: false,
                    ring_bytes: 64 << 20,
                    time,
                };
                for _ in 0..rounds {
                    let rate = buffer(design, &load)?;
                    note(rate.records, rate.elapsed, threads);
                }
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
                for round in 0..rounds {
                    let report = run(&db, &*workload, &options(time, 2 + u64::from(round)), &mut |_| {})?;
                    note(report.committed, report.elapsed, threads);
                }
                db.close()?;
            }
        }
        measured.sort_by(f64::total_cmp);
        // Where two threads insert, the fastest rounds are those in which the system ran them in
        // turns on one processor. A line goes back and forth only while both run.
        let is_meeting = threads == 2 && !matches!(self, Self::HandOver);
        Ok(if is_meeting { measured[measured.len() / 2] } else { measured[0] })
    }

    /// With one thread, and with two as far apart as may be.
    #[cfg(duramen_machine)]
    fn here(self, observe: &mut dyn FnMut(u32)) -> Result<Vec<Calibrated>> {
        let mut measured = Vec::new();
        for threads in self.threads() {
            observe(threads);
            for (apart, contexts) in APART.into_iter().take(if threads == 1 { 1 } else { APART.len() }) {
                let measure = move || self.measure(threads, 1, Duration::from_millis(2));
                let nanos = crate::simulation::run_on("server-2x64", contexts.into(), measure)?;
                let apart = (threads == 2).then(|| apart.to_owned());
                measured.push(Calibrated { what: self.name(), threads, apart, nanos });
            }
        }
        Ok(measured)
    }

    /// Many short rounds: other work of the machine only adds time.
    #[cfg(not(duramen_machine))]
    fn here(self, observe: &mut dyn FnMut(u32)) -> Result<Vec<Calibrated>> {
        let mut measured = Vec::new();
        for threads in self.threads() {
            observe(threads);
            let nanos = self.measure(threads, 30, Duration::from_millis(40))?;
            measured.push(Calibrated { what: self.name(), threads, apart: None, nanos });
        }
        Ok(measured)
    }

    fn threads(self) -> std::ops::RangeInclusive<u32> {
        if matches!(self, Self::HandOver) { 2..=2 } else { 1..=2 }
    }
}

/// Measures every operation in this build, with one thread and with two; `observe` gets the name of
/// the next one.
///
/// # Errors
/// Those of the engine and the workloads.
pub fn calibrate(observe: &mut dyn FnMut(&str)) -> Result<Vec<Calibrated>> {
    let designs = InsertDesign::ALL.into_iter().map(Operation::Insert);
    let workloads = [
        Operation::Workload("tatp:get-subscriber", 2_000),
        Operation::Workload("tatp:update-location", 2_000),
        Operation::Workload("tpcb", 1_000),
    ];
    let mut measured = Vec::new();
    for operation in [Operation::HandOver].into_iter().chain(designs).chain(workloads) {
        let what = operation.name();
        measured.extend(operation.here(&mut |threads| observe(&format!("{what}, threads: {threads}")))?);
    }
    Ok(measured)
}

/// Returns the distance in `modelled` whose time for handing over a line is closest to that in
/// `here`.
pub fn distance(here: &[Calibrated], modelled: &[Calibrated]) -> Option<String> {
    let hand_over = |line: &&Calibrated| line.what == HAND_OVER;
    let wanted = here.iter().find(hand_over)?.nanos;
    let off = |line: &Calibrated| (line.nanos / wanted).ln().abs();
    let closest = modelled.iter().filter(hand_over).min_by(|a, b| off(a).total_cmp(&off(b)))?;
    closest.apart.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_the_one_with_the_closest_hand_over() {
        let line = |apart: Option<&str>, what: &str, nanos| Calibrated {
            what: what.to_owned(),
            threads: 2,
            apart: apart.map(str::to_owned),
            nanos,
        };
        let modelled =
            [line(Some("near"), HAND_OVER, 40.0), line(Some("far"), HAND_OVER, 400.0), line(Some("far"), "else", 99.0)];
        let found = |nanos| distance(&[line(None, "else", 1.0), line(None, HAND_OVER, nanos)], &modelled);
        assert_eq!(found(100.0).as_deref(), Some("near"));
        assert_eq!(found(150.0).as_deref(), Some("far"));
        assert_eq!(distance(&[], &modelled), None);
    }

    #[test]
    fn a_line_goes_back_and_forth() {
        assert!(hand_over(100) > Duration::ZERO);
    }
}
