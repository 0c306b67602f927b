//! A10: slots of the consolidation array.

use super::buffer::{DESIGNS, NIAGARA, load, measure, setting};
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

    fn difference(&self) -> Option<&'static str> {
        Some(
            "around the peak of three slots the surface is flat towards more slots (0.96), but two slots lose 0.41 with 64 threads: then thirty threads join and leave each slot, and an atomic operation on its word waits for theirs. With up to 48 threads two slots are as good as three",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let slots = context.pick(&[1, 2, 3, 4, 5, 6, 8, 10][..], &[1, 4, 8], &[1, 4]);
        let threads = context.pick(&[4, 8, 16, 32, 48, 64][..], &[8, 64], &[4]);
        context.expect(slots.len() * threads.len());
        let mut series = Vec::new();
        for &threads in threads {
            let mut points = Vec::new();
            for &slots in slots {
                let load = BufferLoad { array_slots: slots, ..load(threads) };
                let what = format!("{slots} slots, {threads} threads");
                let rate = measure(context, NIAGARA, DESIGNS[3], load, &what)?;
                points.push((slots as f64, rate.bytes_per_second() / 1e9));
            }
            series.push(Series::ours(format!("{threads} threads"), points));
        }
        let most = series.last().expect("there is a number of threads");
        let best = most.points.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((f64::NAN, f64::NAN));
        let near = most.points.iter().filter(|point| (point.0 - best.0).abs() <= 1.0).map(|point| point.1 / best.1);
        let checks = vec![
            Check::new("best number of slots at most threads", "3 to 4", best.0, Bound::Within(2.0, 6.0)),
            Check::new(
                "throughput with one slot more or less, by the best",
                "flat",
                near.fold(f64::INFINITY, f64::min),
                Bound::AtLeast(0.8),
            ),
        ];
        let figure = Figure {
            name: "A10".into(),
            title: "CD by slots of the array, Niagara II".into(),
            x: Axis::linear("slots"),
            y: Axis::linear("throughput (GB/s)"),
            shape: Shape::Lines,
            series,
        };
        Ok(Findings { setting: vec![setting(NIAGARA)], figures: vec![figure], checks })
    }
}
