//! The databases on this machine.

use std::cell::OnceCell;
use std::time::Duration;

use super::ground::{Ground, Interrupted, Run, Site, Speed};
use crate::contender::{CONTENDERS, Clients, Contender, PERIOD, Sizes};
use crate::error::Result;
use crate::experiment::Context;
use crate::nvm_bed::{Job, NvmBed};

/// Threads whose commits block them, and pipelined clients on two threads: the best counts. There
/// are no more spinning threads than processors only with two.
const CLIENTS: &[Clients] = &[
    Clients::blocking(2),
    Clients::blocking(4),
    Clients::blocking(8),
    Clients::pipelined(16, 2),
    Clients::pipelined(64, 2),
];
const FEW_CLIENTS: &[Clients] = &[Clients::blocking(4), Clients::pipelined(16, 2)];

/// Of group commit. All commits of a batch wait for its end, so only many clients keep the threads
/// busy until then.
const BATCHED: &[Clients] = &[
    Clients::pipelined(64, 2),
    Clients::pipelined(256, 2),
    Clients::pipelined(1_024, 2),
    Clients::pipelined(4_096, 2),
    Clients::pipelined(16_384, 2),
];
const FEW_BATCHED: &[Clients] = &[Clients::pipelined(256, 2), Clients::pipelined(16_384, 2)];

/// A short run before an interruption takes this part of a long one: see [`Run`].
const SHORT: u32 = 4;

/// This machine.
pub(super) struct Native {
    clients: &'static [Clients],
    batched: &'static [Clients],
    /// Of one measurement.
    time: Duration,
    /// Before an interruption: see [`Run::Long`].
    long: Duration,
    /// See [`Sizes::fill`].
    fill: Duration,
    rounds: usize,
    dirty_pages: &'static [usize],
    rows: Rows,
    /// Of a heap or a pool, in bytes.
    memory: u64,
}

/// Sizes of databases.
#[derive(Clone, Copy, Debug)]
struct Rows {
    /// Of TPC-B.
    branches: u64,
    /// Of a branch of TPC-B.
    accounts: u64,
    /// Of TATP.
    subscribers: u64,
    /// Of a district of TPC-C.
    customers: u64,
}

impl Native {
    pub(super) fn new(context: &Context<'_>) -> Self {
        let millis = Duration::from_millis;
        Self {
            clients: context.pick(CLIENTS, FEW_CLIENTS, &FEW_CLIENTS[1..]),
            batched: context.pick(BATCHED, FEW_BATCHED, &FEW_BATCHED[..1]),
            time: millis(context.pick(200, 200, 20)),
            long: millis(context.pick(10_000, 1_000, 50)),
            fill: Duration::ZERO,
            rounds: context.pick(3, 1, 1),
            dirty_pages: context.pick(&[16_384, 4_096, 1_024, 256], &[1_024, 256], &[64]),
            rows: Rows {
                branches: 32,
                accounts: context.pick(20_000, 2_000, 50),
                subscribers: context.pick(200_000, 20_000, 500),
                customers: context.pick(3_000, 300, 30),
            },
            memory: context.pick(2048, 205, 128) << 20,
        }
    }

    /// As [`Native::new`], with databases of 0.5 (TATP) and 1.2 GB (TPC-B).
    pub(super) fn with_much_data(context: &Context<'_>) -> Self {
        let usual = Self::new(context);
        Self {
            time: 2 * usual.time,
            fill: Duration::from_millis(context.pick(1_000, 500, 20)),
            // Much data is read from memory and not from caches, whose speed changes within seconds
            // on a computer that is shared.
            rounds: context.pick(5, 1, 1),
            rows: Rows {
                branches: context.pick(64, 64, 32),
                accounts: context.pick(100_000, 10_000, 50),
                subscribers: context.pick(1_000_000, 100_000, 500),
                ..usual.rows
            },
            memory: context.pick(4096, 512, 128) << 20,
            ..usual
        }
    }

    fn job(&self, workload: &'static str) -> Job {
        let Rows { branches, accounts, subscribers, customers } = self.rows;
        let (scale, rows, bytes) = match workload {
            "tpcb" => (branches, accounts, self.memory),
            // Each measurement adds orders.
            "tpcc" | "tpcc:new-order" => (2, customers, 3 * self.memory),
            _ => (1, subscribers, self.memory),
        };
        let sizes = Sizes { fill: self.fill, pool: bytes as usize, heap: bytes, checkpoint: 4 << 20, period: PERIOD };
        Job { workload, scale, rows_per_unit: Some(rows), sizes }
    }
}

impl Ground for Native {
    fn site(&self, workload: &'static str) -> Result<Box<dyn Site>> {
        let mut beds: Vec<(Contender, OnceCell<NvmBed>)> = Vec::new();
        for &contender in CONTENDERS {
            if !beds.iter().any(|(other, _)| other.is_like(contender)) {
                beds.push((contender, OnceCell::new()));
            }
        }
        let Self { clients, batched, time, long, .. } = *self;
        Ok(Box::new(Here { job: self.job(workload), beds, clients, batched, time, long }))
    }

    fn rounds(&self) -> usize {
        self.rounds
    }

    fn dirty_pages(&self) -> &'static [usize] {
        self.dirty_pages
    }

    fn setting(&self) -> Vec<String> {
        vec![
            "Files and heap are in a memory file system. Memory is modelled: a barrier takes the time on the \
             horizontal axis, and all threads together store at most 1.5 GB/s. Disk-Replacement is the scheme `wal` \
             on files whose flushes of the log take 2 barriers and whose pages take 4 each. The thread that waits \
             spins."
                .to_owned(),
            format!(
                "A scheme is tried with {} settings of clients (threads that block: {}; pipelined on two threads: {}; \
                 of Group Commit, {} settings: {} pipelined on two threads). Each point is the median of {} rounds of \
                 {:.1} s after a warm-up. Databases are audited afterwards.",
                self.clients.len(),
                counts(self.clients, true),
                counts(self.clients, false),
                self.batched.len(),
                counts(self.batched, false),
                self.rounds,
                self.time.as_secs_f64()
            ),
            format!(
                "TPC-B has {} branches of {} accounts, TATP {} subscribers, and TPC-C 2 warehouses of {} customers a \
                 district.",
                self.rows.branches, self.rows.accounts, self.rows.subscribers, self.rows.customers
            ),
            format!(
                "A batch of Group Commit lasts {} ms where nothing else is said. Where the recovery of a baseline is \
                 tried, the run before takes {:.1} s, and {:.0} s where recovery is what is measured (P1).",
                PERIOD.as_millis(),
                (self.long / SHORT).as_secs_f64(),
                self.long.as_secs_f64()
            ),
        ]
    }
}

/// Returns the numbers of clients, of those that block or of the others.
fn counts(all: &[Clients], are_blocking: bool) -> String {
    let some = all.iter().filter(|clients| (clients.clients == clients.threads) == are_blocking);
    let some: Vec<String> = some.map(|clients| clients.clients.to_string()).collect();
    if some.is_empty() { "none".to_owned() } else { some.join(", ") }
}

/// The databases of a workload, each of which is populated when it is first needed.
struct Here {
    job: Job,
    beds: Vec<(Contender, OnceCell<NvmBed>)>,
    clients: &'static [Clients],
    batched: &'static [Clients],
    time: Duration,
    long: Duration,
}

impl Here {
    fn bed(&self, contender: Contender) -> Result<&NvmBed> {
        let found = self.beds.iter().find(|(other, _)| other.is_like(contender));
        let (contender, bed) = found.expect("each scheme has a database");
        if bed.get().is_none() {
            let _ = bed.set(NvmBed::populate(*contender, self.job)?);
        }
        Ok(bed.get().expect("it was populated"))
    }
}

impl Site for Here {
    fn clients(&self, contender: Contender) -> &'static [Clients] {
        if contender.is_batched() { self.batched } else { self.clients }
    }

    fn speeds(&self, contender: Contender, barrier: Duration, clients: &[Clients]) -> Result<Vec<Speed>> {
        let time = self.time.max(contender.least_time());
        let all = self.bed(contender)?.each(contender, barrier, clients, time)?;
        Ok(all.iter().map(Speed::of).collect())
    }

    fn interrupt(&self, contender: Contender, run: Run) -> Result<Interrupted> {
        let time = match run {
            Run::Short => self.long / SHORT,
            Run::Long => self.long,
        };
        let clients = *self.clients(contender).last().expect("there are clients");
        let (measured, report) = self.bed(contender)?.interrupt(contender, clients, time)?;
        Ok(Interrupted {
            throughput: measured.throughput,
            recovery: report.micros() as f64 / 1e6,
            page_flushes: measured.page_flushes,
            dirty_pages: measured.dirty_pages,
        })
    }

    fn audit(&self) -> Result<()> {
        self.beds.iter().filter_map(|(_, bed)| bed.get()).try_for_each(NvmBed::audit)
    }
}
