//! A15: what several logs cost in the whole engine, on four sockets.

use std::time::Duration;

use duramen::{CommitMode, InsertDesign, Partition};

use super::curves::{Curves, Sweep};
use super::engine::{Measured, setting};
use super::machines::{FOUR_SOCKETS, Machine, XEON};
use super::setup::{Bench, Setup};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Effort, Experiment, Findings, SIMULATED};
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

/// A workload of the paper's Table 1 on one of its machines.
struct Row {
    workload: &'static str,
    machine: Machine,
    /// What a log per socket costs, and four at random.
    paper: [&'static str; 2],
    /// Work that a transaction has besides its own in the controlled run: what the contexts of the
    /// machine had for each by the table's throughput, less what one takes here.
    more_work: Duration,
}

const ROWS: [Row; 4] = [
    Row { workload: "tatp", machine: FOUR_SOCKETS, paper: ["-0.02", "0.04"], more_work: Duration::from_micros(990) },
    Row { workload: "tatp", machine: XEON, paper: ["0.16", "0.18"], more_work: Duration::from_micros(70) },
    Row {
        workload: "tatp:get-subscriber",
        machine: FOUR_SOCKETS,
        paper: ["0.07", "no figure"],
        more_work: Duration::from_micros(460),
    },
    Row {
        workload: "tatp:get-subscriber",
        machine: XEON,
        paper: ["0.01", "no figure"],
        more_work: Duration::from_micros(31),
    },
];
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
            "four logs carry more than one, not less: a transaction of TATP takes some microseconds here, so the \
             commits of 16 threads already wait for the one log's device and its groups. With the work of the \
             paper's transactions they do not",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let (time, long) = context.pick((4, 24), (2, 8), (1, 1));
        let rows_per_unit = context.pick(10_000, 2_000, 500);
        let rows = ROWS.iter().filter(|row| row.machine == XEON || context.effort() == Effort::Full);
        let mut sweeps = Vec::new();
        for row in rows {
            let Row { workload, machine, more_work, .. } = *row;
            let threads = match machine {
                FOUR_SOCKETS => &[1, 4, 16, 64, 256][..],
                // The paper's machine had no second thread on a core.
                _ => context.pick(&[1, 6, 12, 24][..], &[24], &[8]),
            };
            let most = &threads[threads.len() - 1..];
            for (more_work, millis, threads) in [(Duration::ZERO, time, threads), (more_work, long, most)] {
                let time = Duration::from_millis(millis);
                let in_flight = 16;
                let bench =
                    Bench { machine, workload, scale: 1, rows_per_unit, skew: None, in_flight, time, more_work };
                sweeps.push((Sweep { bench, threads }, row.paper));
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
            if more_work.is_zero() {
                figures.extend(draw(&curves, sweep));
            }
        }
        let plain = sweeps.iter().filter(|(sweep, _)| sweep.bench.more_work.is_zero());
        let own = "The buffer is `hybrid`, the log device takes 100 us, commits are pipelined; four logs \
            share sync records.";
        let derived = format!(
            "These run for {long} ms. In Table 1 of the paper, 256 contexts of Niagaras do 256,000 transactions of \
             TATP a second and 551,000 of GetSubscriberData, and 24 of Xeons 326,000 and 726,000; that is 1,000, \
             465, 74 and 33 us for each."
        );
        let setting = std::iter::once(own.to_owned()).chain(plain.map(|(sweep, _)| setting(&sweep.bench)));
        let control = [with_work::control("990, 70, 460 and 31 us, in the order of the table"), derived];
        Ok(Findings { setting: setting.chain(control).collect(), figures, checks })
    }
}

fn draw(curves: &Curves<'_>, Sweep { bench, .. }: &Sweep) -> Vec<crate::figure::Figure> {
    let name = format!("A15m-{}-{}", bench.machine.name, bench.workload.replace(':', "-"));
    vec![curves.throughput(&name, &format!("{}, {}", bench.workload, bench.machine.title))]
}
