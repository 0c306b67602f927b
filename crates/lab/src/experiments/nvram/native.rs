//! The databases on this machine.

use std::time::Duration;

use super::ground::{Ground, Interrupted, Site, Speed};
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

/// This machine.
pub(super) struct Native {
    clients: &'static [Clients],
    batched: &'static [Clients],
    /// Of one measurement.
    time: Duration,
    /// Before an interruption.
    long: Duration,
    rounds: usize,
    dirty_pages: &'static [usize],
    /// Share of the full size of a database.
    divisor: u64,
}

impl Native {
    pub(super) fn new(context: &Context<'_>) -> Self {
        let millis = Duration::from_millis;
        Self {
            clients: context.pick(CLIENTS, FEW_CLIENTS, &FEW_CLIENTS[1..]),
            batched: context.pick(BATCHED, FEW_BATCHED, &FEW_BATCHED[..1]),
            time: millis(context.pick(500, 200, 20)),
            long: millis(context.pick(10_000, 1_000, 50)),
            rounds: context.pick(3, 1, 1),
            dirty_pages: context.pick(&[16_384, 4_096, 1_024, 256], &[1_024, 256], &[64]),
            divisor: context.pick(1, 10, 400),
        }
    }

    fn job(&self, workload: &'static str) -> Job {
        const MIB: u64 = 1 << 20;
        let (scale, rows, bytes) = match workload {
            "tpcb" => (32, 20_000, 2048 * MIB),
            // Each measurement adds orders.
            "tpcc" | "tpcc:new-order" => (2, 3_000, 6144 * MIB),
            _ => (1, 200_000, 2048 * MIB),
        };
        let rows_per_unit = Some((rows / self.divisor).max(30));
        let bytes = (bytes / self.divisor).max(128 * MIB);
        let sizes = Sizes { pool: bytes as usize, heap: bytes, checkpoint: 4 * MIB, period: PERIOD };
        Job { workload, scale, rows_per_unit, sizes }
    }
}

impl Ground for Native {
    fn site(&self, workload: &'static str) -> Result<Box<dyn Site>> {
        let mut beds: Vec<(Contender, NvmBed)> = Vec::new();
        for &contender in CONTENDERS {
            if !beds.iter().any(|(other, _)| other.is_like(contender)) {
                beds.push((contender, NvmBed::populate(contender, self.job(workload))?));
            }
        }
        let Self { clients, batched, time, long, .. } = *self;
        Ok(Box::new(Here { beds, clients, batched, time, long }))
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
                "TPC-B has 32 branches of {} accounts, TATP {} subscribers, and TPC-C 2 warehouses of {} customers a \
                 district.",
                20_000 / self.divisor,
                200_000 / self.divisor,
                (3_000 / self.divisor).max(30)
            ),
            format!("A batch of Group Commit lasts {} ms where nothing else is said.", PERIOD.as_millis()),
        ]
    }
}

/// Returns the numbers of clients, of those that block or of the others.
fn counts(all: &[Clients], are_blocking: bool) -> String {
    let some = all.iter().filter(|clients| (clients.clients == clients.threads) == are_blocking);
    let some: Vec<String> = some.map(|clients| clients.clients.to_string()).collect();
    if some.is_empty() { "none".to_owned() } else { some.join(", ") }
}

/// The databases of a workload.
struct Here {
    beds: Vec<(Contender, NvmBed)>,
    clients: &'static [Clients],
    batched: &'static [Clients],
    time: Duration,
    long: Duration,
}

impl Here {
    fn bed(&self, contender: Contender) -> &NvmBed {
        let found = self.beds.iter().find(|(other, _)| other.is_like(contender));
        &found.expect("each scheme has a database").1
    }
}

impl Site for Here {
    fn clients(&self, contender: Contender) -> &'static [Clients] {
        if contender.is_batched() { self.batched } else { self.clients }
    }

    fn speeds(&self, contender: Contender, barrier: Duration, clients: &[Clients]) -> Result<Vec<Speed>> {
        let time = self.time.max(contender.least_time());
        let all = self.bed(contender).each(contender, barrier, clients, time)?;
        Ok(all.iter().map(Speed::of).collect())
    }

    fn interrupt(&self, contender: Contender) -> Result<Interrupted> {
        let clients = *self.clients(contender).last().expect("there are clients");
        let (measured, report) = self.bed(contender).interrupt(contender, clients, self.long)?;
        Ok(Interrupted {
            throughput: measured.throughput,
            recovery: report.micros() as f64 / 1e6,
            page_flushes: measured.page_flushes,
            dirty_pages: measured.dirty_pages,
        })
    }

    fn audit(&self) -> Result<()> {
        self.beds.iter().try_for_each(|(_, bed)| bed.audit())
    }
}
