//! A15: what several logs cost in the whole engine, on four sockets.

use std::time::Duration;

use duramen::{CommitMode, InsertDesign, Partition};

use super::curves::{Curves, Sweep};
use super::engine::{Measured, setting};
use super::machines::{FOUR_SOCKETS, Machine, XEON};
use super::setup::{Bench, Setup};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, SIMULATED};
use crate::with_work;

/// What several logs cost.
pub(crate) struct Distributed;

const CENTRAL: Setup =
    Setup::on_files("one log", CommitMode::Pipelined, InsertDesign::Hybrid, Duration::from_micros(100));
/// The paper's: the baseline, DLog-S and DLog-R, on machines of four sockets.
const SETUPS: [Setup; 3] = [
    CENTRAL,
    Setup { name: "a log per socket", logs: (4, Partition::Transaction), ..CENTRAL },
    Setup { name: "four logs at random", logs: (4, Partition::RoundRobin), ..CENTRAL },
];

/// With the costs in the paper, socket-bound and random, on both machines.
const WORKLOADS: [(&str, [[&str; 2]; 2]); 2] = [
    ("tatp", [["-0.02", "0.04"], ["0.16", "0.18"]]),
    ("tatp:get-subscriber", [["0.07", "no figure"], ["0.01", "no figure"]]),
];

/// In the controlled runs: a machine, its threads, and the work that a transaction of TATP has
/// besides its own.
const MORE_WORK: [(Machine, &[u32], Duration); 2] =
    [(FOUR_SOCKETS, &[256], Duration::from_micros(900)), (XEON, &[24], Duration::from_micros(65))];
const WITH_MORE_WORK: &str = "with the paper's work in each transaction";

impl Experiment for Distributed {
    fn about(&self) -> About {
        About {
            id: "A15m",
            title: "four logs beside one, TATP and its GetSubscriberData, on two machines of four sockets",
            source: "Aether (VLDB Journal 2012), Table 1",
            world: SIMULATED,
            found: "where the log is not the bottleneck, several logs cost 5 to 15 % of the throughput, whether a \
                    thread uses the log of its socket or any log",
            wanted: "0 to 20 % with the most threads that wait for the one log for less than 5 % of their time",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "with few threads four logs carry more than one here, not less, as transactions take a tenth of the \
             paper's time and the log has ten times as much to do. With the paper's work in each transaction the \
             throughput is within a tenth of the paper's, and four logs make a difference of less than 4 %, which is \
             about the noise of so few transactions. GetSubscriberData only reads, and there they cost nothing",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let (time, more_work) = (Duration::from_millis(context.pick(4, 2, 1)), Duration::ZERO);
        let rows_per_unit = context.pick(10_000, 2_000, 500);
        let machines: &[_] = context.pick(&[FOUR_SOCKETS, XEON], &[XEON], &[XEON]);
        let mut sweeps = Vec::new();
        for (workload, paper) in WORKLOADS {
            for &machine in machines {
                let in_flight = 16;
                let bench =
                    Bench { machine, workload, scale: 1, rows_per_unit, skew: None, in_flight, time, more_work };
                let (threads, paper) = match machine {
                    FOUR_SOCKETS => (&[1, 4, 16, 64, 256][..], paper[0]),
                    // The paper's machine had no second thread on a core.
                    _ => (context.pick(&[1, 6, 12, 24][..], &[24], &[8]), paper[1]),
                };
                sweeps.push((Sweep { bench, threads }, paper));
            }
        }
        for (at, (machine, threads, more_work)) in MORE_WORK.into_iter().enumerate() {
            let [(Sweep { bench, .. }, _), ..] = sweeps[..] else { break };
            if machines.contains(&machine) {
                // As many transactions as without.
                let time = bench.time * context.pick(5, 1, 1);
                let bench = Bench { machine, time, more_work, ..bench };
                sweeps.push((Sweep { bench, threads }, WORKLOADS[0].1[at]));
            }
        }
        context.expect(sweeps.iter().map(|(sweep, _)| sweep.threads.len() * SETUPS.len()).sum());
        let (mut figures, mut checks) = (Vec::new(), Vec::new());
        for (sweep, paper) in &sweeps {
            let Bench { machine, workload, more_work, .. } = sweep.bench;
            let curves = sweep.measure(context, &SETUPS)?;
            // With more threads than these the log is the bottleneck, and several logs gain.
            let is_free = |(_, measured): &(u32, Measured)| measured.shares.log_contention < 0.05;
            let threads = curves.of(0).take_while(is_free).map(|(threads, _)| threads).last();
            for (at, paper) in [1, 2].into_iter().zip(paper) {
                let throughput = |at| threads.map_or(f64::NAN, |threads| curves.with(at, threads).throughput);
                let cost = 1.0 - throughput(at) / throughput(0);
                let (title, name, threads) = (machine.title, SETUPS[at].name, threads.unwrap_or(0));
                let what = format!("{workload}, {title}: cost of {name}, {threads} threads");
                let check = Check::new(what, *paper, cost, Bound::Within(0.0, 0.2));
                checks.push(if more_work.is_zero() { check } else { check.under(WITH_MORE_WORK) });
            }
            figures.extend(draw(&curves, sweep));
        }
        let mut settings = vec![
            "The buffer is `hybrid`, the log device takes 100 us, commits are pipelined; four logs share sync records."
                .to_owned(),
        ];
        settings.extend(sweeps.iter().map(|(sweep, _)| setting(&sweep.bench)));
        settings.push(with_work::control("900 us (Niagara) or 65 us (Xeon)"));
        settings.push(
            "In the paper, TATP has 256,000 transactions/s on the Niagaras and 326,000 on the Xeons. With 256 and 24 \
             threads, one takes 1,000 and 74 us; here it takes some 100 and 8 us."
                .to_owned(),
        );
        Ok(Findings { setting: settings, figures, checks })
    }
}

fn draw(curves: &Curves<'_>, Sweep { bench, .. }: &Sweep) -> Vec<crate::figure::Figure> {
    let (suffix, what) = if bench.more_work.is_zero() { ("", "") } else { ("-more-work", ", more work") };
    let name = format!("A15m-{}-{}{suffix}", bench.machine.name, bench.workload.replace(':', "-"));
    vec![curves.throughput(&name, &format!("{}, {}{what}", bench.workload, bench.machine.title))]
}
