//! The schemes of *Storage Management in the NVRAM Era* on the processor that the paper used.
//!
//! A simulated measurement gives the same figures each time, so what several experiments measure is
//! measured once.

#[cfg(duramen_machine)]
use std::cell::OnceCell;
use std::time::Duration;

use super::ground::{Ground, Site};
#[cfg(duramen_machine)]
use super::ground::{Interrupted, Run, Speed};
#[cfg(duramen_machine)]
use super::simulated_bed::{Populated, populate};
#[cfg(duramen_machine)]
use crate::contender::{CONTENDERS, Contender};
use crate::contender::{Clients, Sizes};
use crate::error::Result;
use crate::experiment::Context;
#[cfg(duramen_machine)]
use crate::kept::Kept;
use crate::nvm_bed::Job;

/// The processor that the paper used: one socket of six cores, 12 contexts.
pub(super) const MACHINE: &str = "xeon-e5645";

/// The paper runs 10 to 12 threads, whichever number is best.
const CLIENTS: &[Clients] = &[Clients::blocking(12), Clients::pipelined(96, 12)];

/// Of group commit. All commits of a batch wait for its end, so only many clients keep the threads
/// busy until then.
const BATCHED: &[Clients] = &[Clients::pipelined(3_072, 12)];

/// How long batches last: a measurement contains several.
const PERIOD: Duration = Duration::from_millis(1);

/// The simulated processor.
#[cfg_attr(not(duramen_machine), allow(dead_code, reason = "used by the machine build"))]
struct Simulated {
    clients: &'static [Clients],
    batched: &'static [Clients],
    time: Duration,
    short: Duration,
    long: Duration,
    dirty_pages: &'static [usize],
    divisor: u64,
}

/// Returns the simulated processor.
pub(super) fn ground(context: &Context<'_>) -> Box<dyn Ground> {
    Box::new(Simulated {
        clients: context.pick(CLIENTS, &CLIENTS[1..], &CLIENTS[1..]),
        batched: BATCHED,
        time: Duration::from_millis(context.pick(5, 4, 1)),
        short: Duration::from_millis(context.pick(20, 20, 2)),
        long: Duration::from_millis(context.pick(60, 40, 2)),
        dirty_pages: context.pick(&[1_024, 256, 64, 16], &[256, 64], &[64]),
        divisor: context.pick(1, 4, 40),
    })
}

#[cfg_attr(not(duramen_machine), allow(dead_code, reason = "used by the machine build"))]
impl Simulated {
    fn job(&self, workload: &'static str) -> Job {
        let (scale, rows) = match workload {
            "tpcb" => (48, 1_000),
            "tpcc" | "tpcc:new-order" => (24, 40),
            _ => (1, 40_000),
        };
        let rows_per_unit = Some((rows / self.divisor).max(10));
        let sizes = Sizes { fill: Duration::ZERO, pool: 64 << 20, heap: 96 << 20, checkpoint: 1 << 20, period: PERIOD };
        Job { workload, scale, rows_per_unit, sizes }
    }
}

impl Ground for Simulated {
    #[cfg(duramen_machine)]
    fn site(&self, workload: &'static str) -> Result<Box<dyn Site>> {
        let databases = distinct().map(|contender| (contender, OnceCell::new())).collect();
        let Self { clients, batched, time, short, long, .. } = *self;
        Ok(Box::new(There { job: self.job(workload), databases, clients, batched, time, short, long }))
    }

    #[cfg(not(duramen_machine))]
    fn site(&self, _: &'static str) -> Result<Box<dyn Site>> {
        Err(crate::error::Error::NotSimulated { machine: MACHINE })
    }

    fn rounds(&self) -> usize {
        // Each run gives the same figures.
        1
    }

    fn dirty_pages(&self) -> &'static [usize] {
        // A run is too short for the log to grow long: fewer pages than natively.
        self.dirty_pages
    }

    fn setting(&self) -> Vec<String> {
        vec![
            format!(
                "Simulated machine: {} with 12 contexts. Memory is modelled: a barrier takes the time on the \
                 horizontal axis, and all threads together store at most 1.5 GB/s. Disk-Replacement is the scheme \
                 `wal` on files whose flushes of the log take 2 barriers and whose pages take 4 each.",
                MACHINE
            ),
            format!(
                "The settings of clients that a scheme is tried with: {}. Each measurement is {} ms of virtual time, \
                 after some MiB of log, with which the log's files have grown, and a warm-up; it is followed by the \
                 workload's audit. A run before an interruption takes {} ms, or {} ms if it shall only show that \
                 recovery is near-instant.",
                if self.clients.len() == 1 {
                    "12 threads with 8 pipelined clients each"
                } else {
                    "12 threads that block, and 12 threads with 8 pipelined clients each"
                },
                self.time.as_millis(),
                self.long.as_millis(),
                self.short.as_millis()
            ),
            format!(
                "A batch of Group Commit lasts {} ms. Its clients: {}, all of them pipelined.",
                PERIOD.as_millis(),
                self.batched
                    .iter()
                    .map(|clients| format!("{} on {} threads", clients.clients, clients.threads))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        ]
    }
}

/// The contenders that need a database of their own.
#[cfg(duramen_machine)]
fn distinct() -> impl Iterator<Item = Contender> {
    let is_first = |at: usize| !CONTENDERS[..at].iter().any(|other| other.is_like(CONTENDERS[at]));
    CONTENDERS.iter().copied().enumerate().filter(move |(at, _)| is_first(*at)).map(|(_, contender)| contender)
}

/// The databases of a workload, each of which is populated for the first measurement that was not
/// made before.
#[cfg(duramen_machine)]
struct There {
    job: Job,
    databases: Vec<(Contender, OnceCell<Populated>)>,
    clients: &'static [Clients],
    batched: &'static [Clients],
    time: Duration,
    short: Duration,
    long: Duration,
}

/// What a measurement depends on: beside the job and the contender, how long barriers are, who the
/// clients are, and how long they run.
#[cfg(duramen_machine)]
type Key = (Job, Contender, Duration, Clients, Duration);

#[cfg(duramen_machine)]
thread_local! {
    /// What this thread has measured.
    static SPEEDS: Kept<Key, Speed> = const { Kept::new() };
    /// The interruptions of this thread.
    static INTERRUPTED: Kept<Key, Interrupted> = const { Kept::new() };
}

#[cfg(duramen_machine)]
impl There {
    fn database(&self, contender: Contender) -> Result<&Populated> {
        let found = self.databases.iter().find(|(other, _)| other.is_like(contender));
        let (like, database) = found.expect("each scheme has a database");
        if database.get().is_none() {
            let _ = database.set(populate(MACHINE, *like, self.job)?);
        }
        Ok(database.get().expect("it was populated"))
    }

    fn speed(&self, contender: Contender, barrier: Duration, clients: Clients) -> Result<Speed> {
        let key = (self.job, contender, barrier, clients, self.time);
        let measure = || Ok(Speed::of(&self.database(contender)?.measure(contender, clients, barrier, self.time)?));
        SPEEDS.with(|speeds| speeds.find_or(key, measure))
    }
}

#[cfg(duramen_machine)]
impl Site for There {
    fn clients(&self, contender: Contender) -> &'static [Clients] {
        if contender.is_batched() { self.batched } else { self.clients }
    }

    fn speeds(&self, contender: Contender, barrier: Duration, clients: &[Clients]) -> Result<Vec<Speed>> {
        clients.iter().map(|clients| self.speed(contender, barrier, *clients)).collect()
    }

    fn interrupt(&self, contender: Contender, run: Run) -> Result<Interrupted> {
        let clients = *self.clients(contender).last().expect("there are clients");
        let time = match run {
            Run::Short => self.short,
            Run::Long => self.long,
        };
        let key = (self.job, contender, Duration::ZERO, clients, time);
        let interrupt = || {
            let (measured, micros) = self.database(contender)?.interrupt(contender, clients, time)?;
            Ok(Interrupted {
                throughput: measured.throughput,
                recovery: micros as f64 / 1e6,
                page_flushes: measured.page_flushes,
                dirty_pages: measured.dirty_pages,
            })
        };
        INTERRUPTED.with(|interrupted| interrupted.find_or(key, interrupt))
    }

    /// Each measurement ends with an audit.
    fn audit(&self) -> Result<()> {
        Ok(())
    }
}
