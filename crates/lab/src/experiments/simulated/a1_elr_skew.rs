//! A1 on a simulated machine: what early lock release gains with the longest latency, where each of
//! 64 clients has a context, and a transaction as much work as in the paper.

use std::time::Duration;

use duramen::{CommitMode, InsertDesign};

use super::engine::{Populated, setting};
use super::machines::NIAGARA;
use super::setup::{Bench, Setup};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, SIMULATED};
use crate::experiments::a1_elr_skew::{LEAST_PEAK, MOST_AFTER_FALL, NO_GAIN};
use crate::figure::{Axis, Figure, Series, Shape};
use crate::with_work;

/// Sync and early lock release on TPC-B.
pub(crate) struct ElrSkew;

const LATENCY: Duration = Duration::from_millis(10);
const SETUPS: [Setup; 2] = [
    Setup::on_files("sync", CommitMode::Sync, InsertDesign::Hybrid, LATENCY),
    Setup::on_files("elr", CommitMode::Elr, InsertDesign::Hybrid, LATENCY),
];
/// Work that a transaction has besides its own in the controlled runs.
const MORE_WORK: Duration = Duration::from_millis(1);

impl Experiment for ElrSkew {
    fn about(&self) -> About {
        About {
            id: "A1m",
            title: "early lock release by skew with a log device of 10 ms on 64 contexts, TPC-B",
            source: "Aether (VLDB Journal 2012), Fig. 3",
            world: SIMULATED,
            found: "no gain without skew, a peak of 35x in the middle, less at extreme skew",
            wanted: "the shape is the same, and the peak is at least 10x",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "at extreme skew, transactions run one after the other. Here that takes some microseconds for each, so 64 \
             clients still wait for the log, and not for each other. With the work of the paper's transactions they \
             wait for each other",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let skews: &[f64] =
            context.pick(&[0.0, 0.5, 0.85, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0], &[0.0, 1.5, 3.0], &[0.0, 2.0]);
        let threads = context.pick(64, 64, 4);
        let bench = Bench {
            machine: NIAGARA,
            workload: "tpcb",
            scale: context.pick(1_000, 200, 10),
            rows_per_unit: context.pick(100, 20, 10),
            skew: None,
            in_flight: 1,
            time: Duration::from_millis(context.pick(300, 100, 20)),
            more_work: Duration::ZERO,
        };
        context.expect(2 * SETUPS.len() * skews.len());
        let populated = Populated::new(bench);
        let (mut all, mut checks) = (Vec::new(), Vec::new());
        for more_work in [Duration::ZERO, MORE_WORK] {
            let mut points = Vec::new();
            for &skew in skews {
                let as_skewed = Bench { skew: Some(skew), more_work, ..bench };
                let [sync, elr] = SETUPS.map(|setup| populated.measure_as(context, as_skewed, setup, threads));
                points.push((skew, elr?.throughput / sync?.throughput));
            }
            let is_controlled = !more_work.is_zero();
            let series = Series::ours(if is_controlled { "with 1 ms of work" } else { "with its own work" }, points);
            let under = |check: Check| if is_controlled { check.under("with the paper's work") } else { check };
            checks.extend(parts(&series).map(under));
            all.push(series);
        }
        let figure = Figure {
            name: "A1m".into(),
            title: "Speed-up by early lock release with a log of 10 ms, TPC-B, Niagara II".into(),
            x: Axis::linear("skew (exponent of the Zipfian distribution)"),
            y: Axis::log("speed-up"),
            shape: Shape::Lines,
            series: all,
        };
        let clients = format!("{threads} clients, each with a thread. The log device takes 10 ms.");
        let derived = "The paper does not state what its TPC-B transactions take; in its Table 1, the 256 contexts of \
                       four Niagaras do 256,000 transactions of TATP a second, so each takes 1 ms, and those are \
                       shorter.";
        let settings = vec![setting(&bench), clients, with_work::control("1 ms"), derived.to_owned()];
        Ok(Findings { setting: settings, figures: vec![figure], checks })
    }
}

/// Returns the parts of the finding that are about a latency of 10 ms.
fn parts(series: &Series) -> [Check; 3] {
    let without_skew = series.at(0.0).unwrap_or(f64::NAN);
    [
        Check::new("speed-up without skew", "1", without_skew, Bound::AtMost(NO_GAIN)),
        Check::new("peak", "35", series.peak(), Bound::AtLeast(LEAST_PEAK)),
        Check::new(
            "speed-up at the greatest skew by the peak",
            "below 1",
            series.last() / series.peak(),
            Bound::AtMost(MOST_AFTER_FALL),
        ),
    ]
}
