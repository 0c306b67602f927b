//! P8: latency and throughput of group commit by the length of its batches.

use std::time::Duration;

use super::by_barrier::WORKLOADS;
use super::ground::Site;
use super::measure::{near_instant, quickest};
use super::verdicts::{self, BatchPoint, Trade};
use super::world::World;
use crate::contender::{Contender, IN_PLACE, group_commit};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Series, Shape};

/// The paper's Figure 6.
pub(crate) struct Period;

/// Milliseconds.
const PERIODS: &[f64] = &[0.1, 0.5, 1.0, 2.0, 5.0, 20.0];
const BARRIER: Duration = Duration::from_micros(3);

impl Experiment for Period {
    fn about(&self) -> About {
        About {
            id: "P8",
            title: "latency and throughput of group commit with batches of 0.1 to 20 ms, persist barriers of 3 us",
            source: "Storage Management in the NVRAM Era (VLDB 2014), Fig. 6",
            world: World::Native.name(),
            found: "longer batches give more throughput for a longer latency; group commit equals the throughput of \
                    the other schemes at no more than 5 times their 95th-percentile latency",
            wanted: "the longest batches have at least the throughput of the shortest, and at least twice their \
                     95th-percentile latency; the factor of 5 is printed, not required",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let ground = World::Native.ground(context);
        let periods = context.pick(PERIODS, &[0.2, 2.0, 20.0], &[0.2, 20.0]);
        let workloads = context.pick(&WORKLOADS[..], &WORKLOADS, &WORKLOADS[1..2]);
        let points = ground.rounds() * (periods.len() + 3) + ground.dirty_pages().len();
        context.expect(workloads.len() * points);
        let mut setting = ground.setting();
        setting.push(
            "A latency runs from the begin of a transaction to its acknowledgement, as in the paper; the wait of a \
             client for a thread is left out. Of the settings of clients with at least 0.95 of the best throughput, \
             the one with the lowest 95th percentile counts. Group Commit and In-Place have the paper's barriers. \
             Batches are measured for at least 50 periods."
                .to_owned(),
        );
        let (mut checks, mut trades) = (Vec::new(), Vec::new());
        for &workload in workloads {
            context.prepare(&format!("populating {workload}"));
            let site = ground.site(workload)?;
            let (tuned, what) = near_instant(context, &*ground, (workload, &*site))?;
            setting.push(what);
            let trade = trade(context, (workload, &*site), ground.rounds(), tuned, periods)?;
            context.prepare("auditing");
            site.audit()?;
            checks.extend(verdicts::trade(workload, &trade));
            setting.push(verdicts::price(workload, &trade));
            trades.push((workload, trade));
        }
        let mut figures: Vec<Figure> = trades.iter().map(|(workload, trade)| by_latency(workload, trade)).collect();
        figures.extend(by_period(&trades));
        Ok(Findings { setting, figures, checks })
    }
}

/// Measures one workload.
fn trade(
    context: &mut Context<'_>,
    (workload, site): (&str, &dyn Site),
    rounds: usize,
    tuned: Contender,
    periods: &[f64],
) -> Result<Trade> {
    let mut of = |what: &str, contender, barrier| {
        quickest(context, format!("{workload}, {what}"), rounds, || {
            site.speeds(contender, barrier, site.clients(contender))
        })
    };
    let base = of("In-Place without barrier delays", IN_PLACE, Duration::ZERO)?.throughput;
    let in_place = of("In-Place", IN_PLACE, BARRIER)?.scaled(base);
    let disk_replacement = of("Disk-Replacement", tuned, BARRIER)?.scaled(base);
    let mut batches = Vec::new();
    for &millis in periods {
        let contender = group_commit(Duration::from_secs_f64(millis / 1e3));
        let speed = of(&format!("batches of {millis} ms"), contender, BARRIER)?.scaled(base);
        batches.push(BatchPoint { millis, speed });
    }
    Ok(Trade { in_place, disk_replacement, batches })
}

const THROUGHPUT: &str = "throughput (1: In-Place at 0 us)";
const LATENCY: &str = "95th-percentile latency (ms)";

/// The paper's figure of one workload.
fn by_latency(workload: &str, trade: &Trade) -> Figure {
    let mut batches: Vec<_> = trade.batches.iter().map(|batch| batch.speed).collect();
    batches.sort_by(|a, b| a.p95.total_cmp(&b.p95));
    let of = |speeds: &[super::ground::Speed]| speeds.iter().map(|speed| (speed.p95 * 1e3, speed.throughput)).collect();
    Figure {
        name: format!("P8-{}", workload.replace(':', "-")),
        title: format!("Throughput by 95th-percentile latency, {workload}"),
        x: Axis::log(LATENCY),
        y: Axis::linear(THROUGHPUT),
        shape: Shape::Lines,
        series: vec![
            Series::ours("Disk-Replacement", of(&[trade.disk_replacement])),
            Series::ours("In-Place", of(&[trade.in_place])),
            Series::ours("Group Commit", of(&batches)),
        ],
    }
}

/// Throughput and latency by the length of a batch.
fn by_period(trades: &[(&str, Trade)]) -> [Figure; 2] {
    let figure = |name: &str, title: &str, y: Axis, value: fn(&BatchPoint) -> f64| Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        x: Axis::log("period of a batch (ms)"),
        y,
        shape: Shape::Lines,
        series: trades
            .iter()
            .map(|(workload, trade)| {
                Series::ours(*workload, trade.batches.iter().map(|batch| (batch.millis, value(batch))).collect())
            })
            .collect(),
    };
    [
        figure("P8-throughput", "Throughput by the period of a batch", Axis::linear(THROUGHPUT), |batch| {
            batch.speed.throughput
        }),
        figure("P8-latency", "95th-percentile latency by the period of a batch", Axis::log(LATENCY), |batch| {
            batch.speed.p95 * 1e3
        }),
    ]
}
