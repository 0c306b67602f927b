//! A4: flush pipelining beside asynchronous commit and the baseline.

use std::time::Duration;

use duramen::{CommitMode, InsertDesign};

use super::bank::Bank;
use super::sweep::{Sweep, Swept, checks_with_control};
use crate::bed::System;
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};

/// Throughput of TPC-B by kind of commit.
pub(super) struct Pipelining;

const BASELINE: &str = "baseline (sync)";
const PIPELINED: &str = "flush pipelining";
const ASYNCHRONOUS: &str = "asynchronous commit (unsafe)";
const SYSTEMS: [System; 4] = [
    System::new(BASELINE, CommitMode::Sync, InsertDesign::Hybrid),
    System::new("early lock release", CommitMode::Elr, InsertDesign::Hybrid),
    System::new(PIPELINED, CommitMode::Pipelined, InsertDesign::Hybrid),
    System::new(ASYNCHRONOUS, CommitMode::Async, InsertDesign::Hybrid),
];
/// A fast flash drive.
const LATENCY: Duration = Duration::from_micros(100);

impl Experiment for Pipelining {
    fn about(&self) -> About {
        About {
            id: "A4",
            title: "flush pipelining beside asynchronous commit and the baseline, TPC-B",
            source: "Aether (VLDB Journal 2012), Fig. 6",
            world: "native",
            found: "flush pipelining with early lock release does as much as asynchronous commit, and up to 22 % \
                    more than the baseline",
            wanted: "at the largest number of clients it is within 5 % of asynchronous commit, and its best \
                     throughput is at least 1.22 times the baseline's",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "the two threads that run 64 clients have no client left to run before the flush that serves them ends, \
             and the processors are idle for two fifths of the time (A3, A17). Asynchronous commit never waits. \
             Flushing earlier, when half of the clients have committed, was tried and changes nothing",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let bank = Bank::hundred_tellers(context)?;
        let workload = bank.workload(None);
        let sweep = Sweep {
            bed: &bank.bed,
            workload: &*workload,
            systems: &SYSTEMS,
            clients: context.pick(&[1, 4, 8, 16, 32, 64], &[1, 8, 32, 64], &[1, 4]),
            latency: LATENCY,
            time: Duration::from_millis(context.pick(200, 200, 20)),
            rounds: context.pick(7, 1, 1),
        };
        let both = sweep.run_with_control(context)?;
        let setting = vec![bank.bed.setting(), bank.setting(), sweep.setting(), Sweep::control()];
        bank.audit(context)?;
        let [swept, controlled] = &both;
        let title = "Throughput by kind of commit, TPC-B";
        let figures = vec![swept.throughput("A4", title), controlled.throughput("A4-in-flight", title)];
        Ok(Findings { setting, figures, checks: checks_with_control(&both, checks) })
    }
}

fn checks(swept: &Swept) -> Vec<Check> {
    let throughput = |system| swept.series(system, |measured| measured.throughput);
    let (baseline, pipelined, asynchronous) = (throughput(BASELINE), throughput(PIPELINED), throughput(ASYNCHRONOUS));
    vec![
        Check::new(
            "flush pipelining by asynchronous commit, at most clients",
            "1",
            pipelined.last() / asynchronous.last(),
            Bound::AtLeast(0.95),
        ),
        Check::new(
            "best of flush pipelining by best of the baseline",
            "1.22",
            pipelined.peak() / baseline.peak(),
            Bound::AtLeast(1.22),
        ),
    ]
}
