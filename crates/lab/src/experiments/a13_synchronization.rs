//! A13: synchronizing the logs after every few insertions.

use std::time::Duration;

use duramen_sync::thread::available_parallelism;

use super::several_logs::{ABOUT_ROUNDS, EVERY, Load, World, name};
use crate::bounds::{Bound, Check, median};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Series, Shape};

/// What synchronizing costs.
pub(super) struct Synchronization;

const LOGS: u16 = 4;

impl Experiment for Synchronization {
    fn about(&self) -> About {
        About {
            id: "A13",
            title: "four logs, synchronized with each other after every few insertions of 120 bytes",
            source: "Aether (VLDB Journal 2012), section 7.5.2",
            world: "native",
            found: "synchronizing the logs after every few insertions costs less than 5 %",
            wanted: "less than 5 % with a thread for each processor, for each number of insertions",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some("an insertion takes some 50 ns here: 5 % of two insertions are 5 ns")
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let most = available_parallelism().min(16);
        let threads: Vec<usize> = (1..=most).filter(|threads| threads.is_power_of_two() || *threads == most).collect();
        let rounds = context.pick(31, 5, 1);
        let time = Duration::from_millis(context.pick(12, 10, 2));
        context.expect(rounds * EVERY.len() * threads.len() * 2);
        let mut rates = vec![[Vec::new(), Vec::new()]; EVERY.len() * threads.len()];
        for _ in 0..rounds {
            let points = EVERY.iter().flat_map(|every| threads.iter().map(move |threads| (*every, *threads)));
            for ((every, threads), rates) in points.zip(&mut rates) {
                // Back to back, so that other work of the machine affects both.
                for (synchronizes, rates) in [false, true].into_iter().zip(rates) {
                    let load = Load {
                        threads,
                        logs: LOGS,
                        by_node: false,
                        every,
                        synchronizes,
                        ring_bytes: 64 << 20,
                        world: World::Native,
                        time,
                    };
                    let what = format!("{threads} threads, {}", name(every, synchronizes));
                    rates.push(context.measure(what, || load.rate())? / 1e6);
                }
            }
        }
        let (mut series, mut checks) = (Vec::new(), Vec::new());
        for (every, rates) in EVERY.into_iter().zip(rates.chunks(threads.len())) {
            for (at, synchronizes) in [false, true].into_iter().enumerate() {
                let points =
                    threads.iter().zip(rates).map(|(&threads, rates)| (threads as f64, median(rates[at].clone())));
                series.push(Series::ours(name(every, synchronizes), points.collect()));
            }
            let what = format!("cost of a synchronization every {every} insertions, most threads");
            let check = |cost| vec![Check::new(&*what, "less than 0.05", cost, Bound::AtMost(0.05))];
            let costs = rates.last().into_iter().flat_map(|[without, with]| without.iter().zip(with));
            checks.extend(Check::of_rounds(costs.map(|(without, with)| check(1.0 - with / without)).collect()));
        }
        let figure = Figure {
            name: "A13".into(),
            title: "Insertions into four logs".into(),
            x: Axis::linear("threads"),
            y: Axis::linear("insertions (millions/s)"),
            shape: Shape::Lines,
            series,
        };
        let setting = vec![format!(
            "{LOGS} logs alone, with the buffer `hybrid` and no flushes, a log for each thread. Points are medians of \
             {rounds} rounds of {} ms; each cost is the median of the rounds' costs. {ABOUT_ROUNDS}",
            time.as_millis()
        )];
        Ok(Findings { setting, figures: vec![figure], checks })
    }
}
