//! S1: what snapshots cost the transactions that write.

use std::time::Duration;

use duramen::{CommitMode, InsertDesign};

use super::curves::Curves;
use super::engine::{Measured, Populated, setting};
use super::machines::{SERVER, XEON};
use super::setup::{self, Bench, Setup};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, SIMULATED};

/// Snapshots, kept and scanned, beside a database without them.
pub(crate) struct Snapshots;

/// Transactions in flight for each thread.
const IN_FLIGHT: u32 = 4;

/// The clients with which snapshots are judged.
const CLIENTS: u32 = 64;

const FLASH: Duration = Duration::from_micros(100);
const WITHOUT: Setup = Setup::on_files("without snapshots", CommitMode::Pipelined, InsertDesign::Hybrid, FLASH);
const SETUPS: [Setup; 3] = [
    WITHOUT,
    Setup { name: "none open", snapshots: setup::Snapshots::Unused, ..WITHOUT },
    Setup { name: "always a scan", snapshots: setup::Snapshots::Scanned, ..WITHOUT },
];

impl Experiment for Snapshots {
    fn about(&self) -> About {
        About {
            id: "S1",
            title: "transactions while a thread reads the whole database through snapshots, TPC-B and TATP \
                    UpdateLocation",
            source: "Duramen's own promise: a reader blocks nobody",
            world: SIMULATED,
            found: "a scan that runs all the time costs writers at most a tenth of their throughput, and makes the \
                    99th percentile of their latencies at most half as long again; snapshots of which none is open \
                    cost next to nothing",
            wanted: "with 64 clients at least 0.97 of the throughput with none open; with 64 clients and with the most \
                     at least 0.9 with a scan, whose 99th percentile of latencies is at most 1.5 times that \
                     without, on machines that have a context more than the writers use",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let rows = context.pick(10_000, 2_000, 500);
        let workloads = [("tpcb", context.pick(20, 10, 4), rows / 10), ("tatp:update-location", 1, rows)];
        let machines = [
            // As long as a whole scan takes, at least.
            (XEON, context.pick(&[4, 16, 40][..], &[16], &[16]), context.pick(60, 3, 2)),
            (SERVER, context.pick(&[16, 64, 128][..], &[16], &[16]), context.pick(30, 2, 1)),
        ];
        let machines = &machines[..context.pick(2, 1, 1)];
        let threads: usize = machines.iter().map(|(_, threads, _)| threads.len()).sum();
        context.expect(workloads.len() * threads * SETUPS.len());
        let (mut figures, mut checks, mut settings) = (Vec::new(), Vec::new(), Vec::new());
        for &(machine, threads, millis) in machines {
            for (workload, scale, rows_per_unit) in workloads {
                let (time, more_work) = (Duration::from_millis(millis), Duration::ZERO);
                let bench = Bench {
                    machine,
                    workload,
                    scale,
                    rows_per_unit,
                    skew: None,
                    in_flight: IN_FLIGHT,
                    time,
                    more_work,
                };
                let curves = Curves::measure(context, &Populated::new(bench), &SETUPS, threads)?;
                let mut check = |what: &str, promised: &str, ours, bound| {
                    checks.push(Check::new(format!("{workload}, {}: {what}", machine.title), promised, ours, bound));
                };
                let few = [0, 1, 2].map(|at| curves.with(at, CLIENTS / IN_FLIGHT));
                let most = [0, 1, 2].map(|at| curves.last(at));
                let part = |of: [Measured; 3], at: usize| of[at].throughput / of[0].throughput;
                check("64 clients, none open", "1", part(few, 1), Bound::AtLeast(0.97));
                check("64 clients, always a scan", "0.9", part(few, 2), Bound::AtLeast(0.9));
                check("most clients, always a scan", "0.9", part(most, 2), Bound::AtLeast(0.9));
                let longer = |of: [Measured; 3]| of[2].p99 / of[0].p99;
                check("64 clients, always a scan: 99th percentile", "1.5", longer(few), Bound::AtMost(1.5));
                check("most clients, always a scan: 99th percentile", "1.5", longer(most), Bound::AtMost(1.5));
                check("whole scans", "", most[2].scans, Bound::AtLeast(1.0));
                check("snapshots ended", "none", most[2].too_old, Bound::AtMost(0.0));
                let name = format!("{}-{}", machine.figure("S1"), workload.replace(':', "-"));
                figures.push(curves.throughput(&name, &format!("{workload}, {}", machine.title)));
                settings.push(setting(&bench));
            }
        }
        Ok(Findings { setting: settings, figures, checks })
    }
}
