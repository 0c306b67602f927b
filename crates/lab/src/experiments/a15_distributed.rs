//! A15: what several logs cost in the whole engine.

use std::time::Duration;

use duramen::{CommitMode, InsertDesign, Partition};
use duramen_workloads::Request;

use crate::bed::{Bed, Load, System};
use crate::bounds::{Bound, Check, median};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Series, Shape};
use crate::with_work::{self, WithWork};

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
/// With the work that a transaction has besides its own in the controlled runs: on the paper's 24
/// contexts of Xeons one took 74 and 33 us, here some 3 and 1.
const WORKLOADS: [(&str, Duration); 2] =
    [("tatp", Duration::from_micros(70)), ("tatp:get-subscriber", Duration::from_micros(32))];
const WITH_MORE_WORK: &str = "with the paper's work in each transaction";

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
            "by processor, several logs cost little. At random, each round of commits writes to each of four logs: \
             2.8 times as many writes for the same number of TATP commits, on two processors that the transactions \
             need",
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
            request(subscribers).workload(WORKLOADS[0].0, rig.db())?.load(rig.db(), &mut |_| {})?;
            rig.close()?;
            beds.push(bed);
        }
        context.expect(2 * rounds * WORKLOADS.len() * LAYOUTS.len());
        // Those of the controlled runs come behind the others.
        let runs = [false, true].map(|is_controlled| WORKLOADS.map(|(name, work)| (name, work, is_controlled)));
        let runs = runs.as_flattened();
        let mut rates = vec![vec![Vec::new(); LAYOUTS.len()]; runs.len()];
        for _ in 0..rounds {
            for ((layout, _), (at, bed)) in LAYOUTS.iter().zip(beds.iter().enumerate()) {
                let rig = bed.open(&SYSTEM, LATENCY)?;
                for (&(name, work, is_controlled), rates) in runs.iter().zip(&mut rates) {
                    let work = if is_controlled { work } else { Duration::ZERO };
                    let workload = WithWork::new(request(subscribers), name, rig.db(), work)?;
                    let what = format!("{name}, {layout}{}", if is_controlled { ", more work" } else { "" });
                    rates[at].push(context.measure(what, || rig.measure(&workload, load))?.throughput);
                }
                rig.close()?;
            }
        }
        context.prepare("auditing");
        for bed in &beds {
            let rig = bed.open(&SYSTEM, Duration::ZERO)?;
            let workload = request(subscribers).workload(WORKLOADS[0].0, rig.db())?;
            rig.close()?;
            bed.audit(&*workload)?;
        }
        let mut checks = Vec::new();
        let mut series = vec![Vec::new(); LAYOUTS.len()];
        for (number, (&(name, _, is_controlled), rates)) in runs.iter().zip(&rates).enumerate() {
            let medians: Vec<f64> = rates.iter().map(|rates| median(rates.clone())).collect();
            for (at, (layout, _)) in LAYOUTS.iter().enumerate() {
                series[at].push((number as f64, medians[at] / 1e3));
                if at > 0 {
                    let what = format!("{name}: cost of {layout}");
                    let cost = |several: &f64, one: &f64| 1.0 - several / one;
                    let check = |cost| vec![Check::new(&*what, "-0.02 to 0.18", cost, Bound::Within(0.0, 0.2))];
                    let rounds = rates[at].iter().zip(&rates[0]).map(|(several, one)| check(cost(several, one)));
                    let check = Check::of_rounds(rounds.collect()).into_iter();
                    checks.extend(check.map(|check| if is_controlled { check.under(WITH_MORE_WORK) } else { check }));
                }
            }
        }
        let figure = Figure {
            name: "A15".into(),
            title: "Several logs, TATP (0) and GetSubscriberData (1); with more work 2 and 3".into(),
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
            with_work::control("70 us (GetSubscriberData: 32 us)"),
            "In Table 1 of the paper, 24 contexts of Xeons do 326,000 transactions of TATP a second, or 726,000 of \
             GetSubscriberData: each takes 74 or 33 us."
                .to_owned(),
        ];
        Ok(Findings { setting, figures: vec![figure], checks })
    }
}

fn request(subscribers: u64) -> Request {
    Request { scale: Some(1), rows_per_unit: Some(subscribers), ..Request::default() }
}
