//! A11 and A17 on a simulated machine: the components of Aether one by one.

use std::time::Duration;

use duramen::{CommitMode, InsertDesign};

use super::curves::{Sweep, breakdown};
use super::engine::{BUFFERS, Measured, Populated, setting};
use super::machines::{NIAGARA, SERVER};
use super::setup::{Bench, Setup};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, SIMULATED};

/// Throughput as components are added.
pub(crate) struct Components;

/// Where the time goes as components are added.
pub(crate) struct Bars;

/// A fast flash drive, as in the native part.
const LATENCY: Duration = Duration::from_micros(100);

const SETUPS: [Setup; 5] = [
    Setup::on_files("baseline", CommitMode::Sync, InsertDesign::Mutex, LATENCY),
    Setup::on_files("+ ELR", CommitMode::Elr, InsertDesign::Mutex, LATENCY),
    Setup::on_files("+ pipelining", CommitMode::Pipelined, InsertDesign::Mutex, LATENCY),
    Setup::on_files("+ buffer (CD)", CommitMode::Pipelined, InsertDesign::Hybrid, LATENCY),
    Setup::on_files("+ buffer (reserved)", CommitMode::Pipelined, InsertDesign::Reserved, LATENCY),
];

/// As many tellers as in the paper for each socket.
fn sweeps(context: &Context<'_>) -> Vec<Sweep> {
    Sweep::all(context, "tpcb", (10, context.pick(40, 20, 10)), context.pick(1_000, 200, 50))
}

impl Experiment for Components {
    fn about(&self) -> About {
        About {
            id: "A11m",
            title: "the components of the log added one by one on 64 contexts, TPC-B",
            source: "Aether (VLDB Journal 2012), Fig. 12",
            world: SIMULATED,
            found: "flush pipelining gives 37 %, the scalable log buffer a further 15 %, all together 58 %",
            wanted: "each step gains; together at least 1.5 times the baseline",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let sweeps = sweeps(context);
        context.expect(sweeps.iter().map(|sweep| sweep.threads.len() * SETUPS.len()).sum());
        let (mut figures, mut peaks) = (Vec::new(), [f64::NAN; SETUPS.len()]);
        for sweep in &sweeps {
            let machine = sweep.bench.machine;
            let curves = sweep.measure(context, &SETUPS)?;
            if machine == NIAGARA {
                peaks = std::array::from_fn(|at| curves.peak(at));
            }
            figures.push(curves.throughput(&machine.figure("A11m"), &format!("TPC-B, {}", machine.title)));
        }
        let buffer = peaks[3].max(peaks[4]);
        let checks = vec![
            Check::new(
                "early lock release and flush pipelining by the baseline, peaks",
                "1.37",
                peaks[2] / peaks[0],
                Bound::AtLeast(1.05),
            ),
            Check::new(
                "the better scalable buffer by the mutex, peaks",
                "1.15",
                buffer / peaks[2],
                Bound::AtLeast(1.05),
            ),
            Check::new("all together by the baseline, peaks", "1.58", buffer / peaks[0], Bound::AtLeast(1.5)),
        ];
        Ok(Findings { setting: sweeps.iter().map(|sweep| setting(&sweep.bench)).collect(), figures, checks })
    }
}

impl Experiment for Bars {
    fn about(&self) -> About {
        About {
            id: "A17m",
            title: "where the time goes as the bottlenecks of the log are removed, TPC-B with 60 clients on 64 \
                contexts",
            source: "Aether (VLDB Journal 2012), Fig. 2",
            world: SIMULATED,
            found: "the machine is idle for 75 % of the time with the baseline, for 40 % with early lock release, and \
                    never with flush pipelining; the remaining bottleneck is contention for the log buffer, which the \
                    last step removes",
            wanted: "idle time falls with early lock release and again with flush pipelining, and is then at most \
                     10 %; contention for the log falls with the last step",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "sixty clients share ten branches, so with flush pipelining they wait for each other's row locks for \
             two thirds of the time, which this figure counts as idle. Without waiting for locks the machine is \
             idle for less than 0.07 of the time",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let sweeps = sweeps(context);
        let today = sweeps.iter().find(|sweep| sweep.bench.machine == SERVER);
        let bar_count = SETUPS.len() * if today.is_some() { 2 } else { 1 };
        context.expect(bar_count + sweeps.iter().map(|sweep| sweep.threads.len() * BUFFERS.len()).sum::<usize>());
        let bars = self::bars(context, sweeps[0].bench)?;
        let shares = |at: usize| bars[at].1.shares;
        // In the paper's figure waiting for locks is idle time.
        let idle = |at: usize| shares(at).idle() + shares(at).lock_waits;
        let contention = shares(3).log_contention.min(shares(4).log_contention);
        let checks = vec![
            Check::new("idle share, baseline less early lock release", "0.35", idle(0) - idle(1), Bound::AtLeast(0.05)),
            Check::new(
                "idle share, early lock release less flush pipelining",
                "0.4",
                idle(1) - idle(2),
                Bound::AtLeast(0.05),
            ),
            Check::new("idle share with flush pipelining", "0", idle(2), Bound::AtMost(0.1)),
            Check::new(
                "log contention, mutex less the better scalable buffer",
                "above 0",
                shares(2).log_contention - contention,
                Bound::AtLeast(0.0),
            ),
        ];
        let mut figures = vec![breakdown("A17m", "TPC-B, 60 clients, Niagara II", &bars)];
        if let Some(Sweep { bench, .. }) = today {
            let title = format!("TPC-B, 60 clients, {}", SERVER.title);
            figures.push(breakdown(&SERVER.figure("A17m"), &title, &self::bars(context, *bench)?));
        }
        for sweep in &sweeps {
            let machine = sweep.bench.machine;
            let curves = sweep.measure(context, &BUFFERS)?;
            figures.append(&mut curves.breakdowns(&machine.figure("A17m"), &format!("TPC-B, {}", machine.title)));
        }
        Ok(Findings { setting: sweeps.iter().map(|sweep| setting(&sweep.bench)).collect(), figures, checks })
    }
}

/// Each system with as many clients as in the paper's figure.
fn bars(context: &mut Context<'_>, bench: Bench) -> Result<Vec<(String, Measured)>> {
    const THREADS: u32 = 60;
    let populated = Populated::new(bench);
    let bar = |setup: Setup| Ok((setup.name.to_owned(), populated.measure(context, setup, THREADS)?));
    SETUPS.into_iter().map(bar).collect()
}
