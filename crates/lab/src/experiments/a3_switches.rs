//! A3: context switches and use of the processors, with and without flush pipelining.

use std::time::Duration;

use duramen::{CommitMode, InsertDesign};
use duramen_sync::thread::available_parallelism;

use super::bank::Bank;
use super::sweep::{Sweep, Swept, checks_with_control};
use crate::bed::System;
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Series, Shape};

/// The operating system's scheduler under TPC-B.
pub(super) struct Switches;

const SYSTEMS: [System; 3] = [
    System::new("sync", CommitMode::Sync, InsertDesign::Hybrid),
    System::new("early lock release", CommitMode::Elr, InsertDesign::Hybrid),
    System::new("flush pipelining", CommitMode::Pipelined, InsertDesign::Hybrid),
];
/// A fast flash drive.
const LATENCY: Duration = Duration::from_micros(100);

impl Experiment for Switches {
    fn about(&self) -> About {
        About {
            id: "A3",
            title: "context switches and use of the processors, with and without flush pipelining, TPC-B",
            source: "Aether (VLDB Journal 2012), Fig. 5",
            world: "native",
            found: "context switches per second grow with the clients without flush pipelining and stay flat with it; \
                    only with it are the processors fully used",
            wanted: "context switches per commit fall at least 10 times at the largest number of clients, their \
                     rate grows without and stays flat with flush pipelining, and with it the processors are busy",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "two threads run all clients, and have no client left to run before the flush that serves them ends: 64 \
             clients are too few for a device of 100 us, and no other thread has work",
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
        let figures = [figures("A3", swept), figures("A3-in-flight", controlled)].concat();
        Ok(Findings { setting, figures, checks: checks_with_control(&both, checks) })
    }
}

fn figures(prefix: &str, swept: &Swept) -> Vec<Figure> {
    let figure = |name: &str, title: &str, y: Axis, series: Vec<Series>| Figure {
        name: format!("{prefix}-{name}"),
        title: title.into(),
        x: Axis::linear("clients"),
        y,
        shape: Shape::Lines,
        series,
    };
    let mut used = Vec::new();
    for System { name, .. } in &SYSTEMS {
        let named = |what: &str, series: Series| Series { name: format!("{name}, {what}"), ..series };
        used.push(named("used", swept.series(name, |measured| measured.busy)));
        used.push(named("in the kernel", swept.series(name, |measured| measured.system)));
    }
    vec![
        figure(
            "switches",
            "Context switches, TPC-B",
            Axis::linear("context switches (thousands/s)"),
            swept.all(|measured| measured.switches / 1e3),
        ),
        figure(
            "switches-per-commit",
            "Context switches per commit, TPC-B",
            Axis::log("context switches per commit"),
            swept.all(|measured| measured.switches_per_commit),
        ),
        figure("processors", "Use of the processors, TPC-B", Axis::linear("processors"), used),
    ]
}

fn checks(swept: &Swept) -> Vec<Check> {
    let [sync, .., pipelined] = &SYSTEMS;
    let per_commit = |system: &System| swept.series(system.name, |measured| measured.switches_per_commit).last();
    // From a few clients on: with the first ones the number of switches rises in both.
    let growth = |system: &System| {
        let rate = swept.series(system.name, |measured| measured.switches);
        let few = rate.points.iter().find(|point| point.0 >= 4.0).map_or(f64::NAN, |point| point.1);
        rate.last() / few.max(1e-9)
    };
    let used = swept.series(pipelined.name, |measured| measured.busy).last() / available_parallelism() as f64;
    vec![
        Check::new(
            "context switches per commit at most clients, sync by flush pipelining",
            "not given",
            per_commit(sync) / per_commit(pipelined).max(1e-9),
            Bound::AtLeast(10.0),
        ),
        Check::new("growth of switches per second, sync", "grows", growth(sync), Bound::AtLeast(1.2)),
        Check::new("growth of switches per second, flush pipelining", "flat", growth(pipelined), Bound::AtMost(1.2)),
        Check::new("share of the processors used, flush pipelining", "1", used, Bound::AtLeast(0.9)),
    ]
}
