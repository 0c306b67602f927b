//! A15: what several logs cost in the whole engine.

use std::time::Duration;

use duramen::{CommitMode, Db, InsertDesign, Partition};
use duramen_workloads::{Request, Workload};

use crate::bed::{Bed, Load, System};
use crate::bounds::{Bound, Check, median};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Series, Shape};

/// What several logs cost.
pub(super) struct Distributed;

const SYSTEM: System = System::new("pipelined", CommitMode::Pipelined, InsertDesign::Hybrid);
const LATENCY: Duration = Duration::from_micros(100);
const POOL_BYTES: usize = 256 << 20;
/// One log, and several by processor and at random.
const LAYOUTS: [(&str, (u16, Partition)); 3] = [
    ("one log", (1, Partition::Transaction)),
    ("four logs, by processor", (4, Partition::Transaction)),
    ("four logs, at random", (4, Partition::RoundRobin)),
];
const WORKLOADS: [&str; 2] = ["tatp", "tatp:get-subscriber"];

impl Experiment for Distributed {
    fn about(&self) -> About {
        About {
            id: "A15",
            title: "four logs beside one, TATP and its GetSubscriberData",
            source: "Aether (VLDB Journal 2012), Table 1",
            world: "native",
            found: "where the log is not the bottleneck, several logs cost 5 to 15 % of the throughput, whether a \
                    thread uses the log of its socket or any log",
            wanted: "0 to 20 %",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "several logs cost little, and noise is large beside that. At random, each round of commits writes to each \
             of the four logs",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let subscribers = context.pick(20_000, 5_000, 200);
        let (rounds, clients) = (context.pick(9, 3, 1), context.pick(64, 64, 4));
        let load = Load { clients, time: Duration::from_millis(context.pick(1_000, 300, 30)) };
        context.prepare("populating");
        let pool = context.pick(POOL_BYTES, POOL_BYTES, POOL_BYTES / 8);
        let mut beds = Vec::new();
        for (_, logs) in LAYOUTS {
            let bed = Bed::with_logs(pool, logs)?;
            let rig = bed.open(&SYSTEM, Duration::ZERO)?;
            workload(subscribers, WORKLOADS[0], rig.db())?.load(rig.db(), &mut |_| {})?;
            rig.close()?;
            beds.push(bed);
        }
        context.expect(rounds * WORKLOADS.len() * LAYOUTS.len());
        let mut rates = vec![vec![Vec::new(); LAYOUTS.len()]; WORKLOADS.len()];
        for _ in 0..rounds {
            for ((name, _), (at, bed)) in LAYOUTS.iter().zip(beds.iter().enumerate()) {
                let rig = bed.open(&SYSTEM, LATENCY)?;
                for (transaction, rates) in WORKLOADS.iter().zip(&mut rates) {
                    let workload = workload(subscribers, transaction, rig.db())?;
                    let what = format!("{transaction}, {name}");
                    rates[at].push(context.measure(what, || rig.measure(&*workload, load))?.throughput);
                }
                rig.close()?;
            }
        }
        context.prepare("auditing");
        for bed in &beds {
            let rig = bed.open(&SYSTEM, Duration::ZERO)?;
            let workload = workload(subscribers, WORKLOADS[0], rig.db())?;
            rig.close()?;
            bed.audit(&*workload)?;
        }
        let mut checks = Vec::new();
        let mut series = vec![Vec::new(); LAYOUTS.len()];
        for (number, (transaction, rates)) in WORKLOADS.iter().zip(&rates).enumerate() {
            let medians: Vec<f64> = rates.iter().map(|rates| median(rates.clone())).collect();
            for (at, (name, _)) in LAYOUTS.iter().enumerate() {
                series[at].push((number as f64, medians[at] / 1e3));
                if at > 0 {
                    let what = format!("{transaction}: cost of {name}");
                    let cost = |several: &f64, one: &f64| 1.0 - several / one;
                    let check = |cost| vec![Check::new(&*what, "-0.02 to 0.18", cost, Bound::Within(0.0, 0.2))];
                    let rounds = rates[at].iter().zip(&rates[0]).map(|(several, one)| check(cost(several, one)));
                    checks.extend(Check::of_rounds(rounds.collect()));
                }
            }
        }
        let figure = Figure {
            name: "A15".into(),
            title: "Several logs, TATP (0) and GetSubscriberData (1)".into(),
            x: Axis::linear("workload"),
            y: Axis::linear("commits (thousands/s)"),
            shape: Shape::Lines,
            series: LAYOUTS.iter().zip(series).map(|((name, _), points)| Series::ours(*name, points)).collect(),
        };
        let setting = vec![
            beds[0].setting(),
            format!(
                "TATP, {clients} clients on a thread for each processor. The buffer is `hybrid`, the log device \
                 takes {} us, commits are pipelined; four logs share sync records. Medians of \
                 {rounds} rounds of {} ms.",
                LATENCY.as_micros(),
                load.time.as_millis()
            ),
        ];
        Ok(Findings { setting, figures: vec![figure], checks })
    }
}

fn workload(subscribers: u64, name: &str, db: &Db) -> Result<Box<dyn Workload<Db>>> {
    let request = Request { scale: Some(1), rows_per_unit: Some(subscribers), ..Request::default() };
    Ok(request.workload(name, db)?)
}
