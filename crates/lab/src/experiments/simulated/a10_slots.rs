//! A10: slots of the consolidation array.

use super::buffer::{DESIGNS, load, measure, setting};
use super::machines::{Machine, NIAGARA, SERVER};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, SIMULATED};
use crate::figure::{Axis, Figure, Series, Shape};
use duramen_wal::measure::BufferLoad;

/// Sensitivity to the number of slots.
pub(crate) struct Slots;

impl Experiment for Slots {
    fn about(&self) -> About {
        About {
            id: "A10",
            title: "slots of the consolidation array against threads",
            source: "Aether (VLDB Journal 2012), Fig. 11",
            world: SIMULATED,
            found: "the peak lies at 3 to 4 slots; fewer threads peak with fewer slots",
            wanted: "the best number of slots at 64 contexts is 2 to 6, and the surface is flat around it",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        type Threads = &'static [usize];
        let slots = context.pick(&[1, 2, 3, 4, 5, 6, 8, 10][..], &[1, 4, 8], &[1, 4]);
        let threads: Threads = context.pick(&[4, 8, 16, 32, 48, 64], &[8, 64], &[4]);
        let more_threads: Threads = context.pick(&[4, 16, 64, 128, 256], &[], &[]);
        let machines: Vec<(Machine, Threads)> = [(NIAGARA, threads), (SERVER, more_threads)]
            .into_iter()
            .filter(|(_, threads)| !threads.is_empty())
            .collect();
        context.expect(machines.iter().map(|(_, threads)| (slots.len() + 1) * threads.len()).sum());
        let mut figures = Vec::new();
        for &(machine, threads) in &machines {
            figures.push(figure(context, machine, slots, threads)?);
        }
        let consolidated = &figures[0].series[..threads.len()];
        let most = consolidated.last().expect("there is a number of threads");
        let peak = most.points.iter().map(|point| point.1).fold(f64::NAN, f64::max);
        // The middle one of the numbers of slots that make no difference.
        let alike: Vec<f64> = most.points.iter().filter(|point| point.1 >= ALIKE * peak).map(|point| point.0).collect();
        let best = alike.get(alike.len() / 2).copied().unwrap_or(f64::NAN);
        let near = most.points.iter().filter(|point| (point.0 - best).abs() <= 1.0).map(|point| point.1 / peak);
        let checks = vec![
            Check::new("best number of slots at most threads", "3 to 4", best, Bound::Within(2.0, 6.0)),
            Check::new(
                "throughput with one slot more or less, by the best",
                "flat",
                near.fold(f64::INFINITY, f64::min),
                Bound::AtLeast(0.8),
            ),
        ];
        Ok(Findings { setting: machines.iter().map(|(machine, _)| setting(*machine)).collect(), figures, checks })
    }
}

/// Throughputs whose ratio is at least this are alike.
const ALIKE: f64 = 0.95;

/// CD with each number of slots, and `reserved`, which has none, for comparison.
fn figure(context: &mut Context<'_>, machine: Machine, slots: &[usize], threads: &[usize]) -> Result<Figure> {
    let (mut consolidated, mut reserved) = (Vec::new(), Vec::new());
    for &threads in threads {
        let mut points = Vec::new();
        for &slots in slots {
            let load = BufferLoad { array_slots: slots, ..load(threads) };
            let what = format!("{slots} slots, {threads} threads");
            let rate = measure(context, machine, DESIGNS[3], load, &what)?;
            points.push((slots as f64, rate.bytes_per_second() / 1e9));
        }
        consolidated.push(Series::ours(format!("{threads} threads"), points));
        let rate = measure(context, machine, DESIGNS[5], load(threads), &format!("{threads} threads"))?;
        let points = slots.iter().map(|&slots| (slots as f64, rate.bytes_per_second() / 1e9)).collect();
        reserved.push(Series::ours(format!("reserved, {threads} threads"), points));
    }
    consolidated.append(&mut reserved);
    Ok(Figure {
        name: machine.figure("A10"),
        title: format!("CD by slots of the array, {}", machine.title),
        x: Axis::linear("slots"),
        y: Axis::linear("throughput (GB/s)"),
        shape: Shape::Lines,
        series: consolidated,
    })
}
