//! A17: where the time goes as the bottlenecks of the log are removed.

use std::time::Duration;

use duramen::{CommitMode, InsertDesign};
use duramen_sync::thread::available_parallelism;

use super::bank::Bank;
use super::sweep::{Sweep, Swept, checks_with_control};
use crate::bed::{Measured, System};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Series, Shape};

/// Use of the processors by TPC-B.
pub(super) struct Breakdown;

const SYSTEMS: [System; 4] = [
    System::new("baseline", CommitMode::Sync, InsertDesign::Mutex),
    System::new("+ ELR", CommitMode::Elr, InsertDesign::Mutex),
    System::new("+ pipelining", CommitMode::Pipelined, InsertDesign::Mutex),
    System::new("+ buffer", CommitMode::Pipelined, InsertDesign::Hybrid),
];
/// As in the paper.
const CLIENTS: u32 = 60;
/// A fast flash drive.
const LATENCY: Duration = Duration::from_micros(100);

impl Experiment for Breakdown {
    fn about(&self) -> About {
        About {
            id: "A17",
            title: "where the time goes as the bottlenecks of the log are removed, TPC-B with 60 clients",
            source: "Aether (VLDB Journal 2012), Fig. 2",
            world: "native (the part on a simulated machine is A17m)",
            found: "the machine is idle for 75 % of the time with the baseline, for 40 % with early lock release, and \
                    never with flush pipelining; the remaining bottleneck is contention for the log buffer, which the \
                    last step removes",
            wanted: "idle time falls with early lock release and again with flush pipelining, and is then at most \
                     10 %; time in the kernel per commit falls with flush pipelining",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "with flush pipelining, the two threads that run 60 clients have no client left to run before the flush \
             that serves them ends. With early lock release alone there are 60 threads, and the processors spend the \
             time that flush pipelining leaves idle in the kernel, switching between them",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let bank = Bank::hundred_tellers(context)?;
        let workload = bank.workload(None);
        let clients = context.pick(CLIENTS, CLIENTS, 4);
        let sweep = Sweep {
            bed: &bank.bed,
            workload: &*workload,
            systems: &SYSTEMS,
            clients: &[clients],
            latency: LATENCY,
            time: Duration::from_millis(context.pick(1_000, 800, 20)),
            rounds: context.pick(7, 1, 1),
        };
        let both = sweep.run_with_control(context)?;
        let mut setting = vec![bank.bed.setting(), bank.setting(), sweep.setting(), Sweep::control()];
        setting.push(
            "The paper's first three categories of waiting appear here as idle time and time in the kernel; the time \
             that threads spend on the log buffer is part of the program's time and not shown separately."
                .into(),
        );
        bank.audit(context)?;
        let [swept, controlled] = &both;
        let figures = [figures("A17", swept), figures("A17-in-flight", controlled)].concat();
        Ok(Findings { setting, figures, checks: checks_with_control(&both, checks) })
    }
}

/// Returns the median of `value` for each system, in order.
fn bars(swept: &Swept, value: impl Fn(&Measured) -> f64) -> Vec<f64> {
    SYSTEMS.iter().map(|system| swept.series(system.name, &value).last()).collect()
}

fn user(measured: &Measured) -> f64 {
    (measured.busy - measured.system) / available_parallelism() as f64
}

fn kernel(measured: &Measured) -> f64 {
    measured.system / available_parallelism() as f64
}

fn idle(measured: &Measured) -> f64 {
    (1.0 - measured.busy / available_parallelism() as f64).max(0.0)
}

fn figures(prefix: &str, swept: &Swept) -> Vec<Figure> {
    let names: Vec<String> = SYSTEMS.iter().map(|system| system.name.to_owned()).collect();
    let stack = |name: &str, values: Vec<f64>| {
        Series::ours(name, values.into_iter().enumerate().map(|(bar, value)| (bar as f64, value)).collect())
    };
    let figure = |name: &str, title: &str, y: &str, series| Figure {
        name: name.into(),
        title: title.into(),
        x: Axis::linear("system"),
        y: Axis::linear(y),
        shape: Shape::Stacks(names.clone()),
        series,
    };
    let percent = |share: fn(&Measured) -> f64| bars(swept, |measured| share(measured) * 100.0);
    vec![
        figure(
            prefix,
            "Use of the processors, TPC-B",
            "share of the machine's time (%)",
            vec![stack("program", percent(user)), stack("kernel", percent(kernel)), stack("idle", percent(idle))],
        ),
        figure(
            &format!("{prefix}-lock-waits"),
            "Clients that wait for locks, TPC-B",
            "clients, on average",
            vec![stack("waiting for a lock", bars(swept, |measured| measured.lock_waiters))],
        ),
    ]
}

fn checks(swept: &Swept) -> Vec<Check> {
    let idle = bars(swept, idle);
    let kernel = bars(swept, |measured| measured.system / measured.throughput.max(1e-9));
    vec![
        Check::new("idle share, baseline less early lock release", "0.35", idle[0] - idle[1], Bound::AtLeast(0.05)),
        Check::new(
            "idle share, early lock release less flush pipelining",
            "0.4",
            idle[1] - idle[2],
            Bound::AtLeast(0.05),
        ),
        Check::new("idle share with everything", "0", idle[3], Bound::AtMost(0.1)),
        Check::new(
            "kernel time per commit, early lock release by flush pipelining",
            "above 1",
            kernel[1] / kernel[2].max(1e-12),
            Bound::AtLeast(1.0),
        ),
    ]
}
