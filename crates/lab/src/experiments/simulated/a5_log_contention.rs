//! A5: what the log buffer's mutex costs a whole transaction.

use std::time::Duration;

use duramen::{CommitMode, InsertDesign};

use super::buffer::NIAGARA;
use super::engine::{Bench, Measured, Populated, Setup, breakdown, setting};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, SIMULATED};
use crate::figure::{Axis, Figure, Series, Shape};

/// Contention for the log buffer under load.
pub(crate) struct LogContention;

const LATENCY: Duration = Duration::from_micros(100);

impl Experiment for LogContention {
    fn about(&self) -> About {
        About {
            id: "A5",
            title: "where the time goes under load with the mutex buffer, TATP UpdateLocation",
            source: "Aether (VLDB Journal 2012), Fig. 8",
            world: SIMULATED,
            found: "with early lock release and flush pipelining, and the mutex for a log buffer, contention for the log takes more \
                    than 35 % of the time at high load",
            wanted: "at least 30 % of the time at 60 contexts or more",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let bench = Bench {
            machine: NIAGARA,
            workload: "tatp:update-location",
            scale: 1,
            rows_per_unit: context.pick(10_000, 2_000, 500),
            in_flight: 64,
            time: Duration::from_millis(context.pick(10, 4, 2)),
        };
        let threads = context.pick(&[1, 4, 8, 16, 32, 48, 60, 64][..], &[1, 16, 60], &[1, 60]);
        let setups = [
            Setup { name: "mutex", commit: CommitMode::Pipelined, insert: InsertDesign::Mutex, latency: LATENCY },
            Setup { name: "CD", commit: CommitMode::Pipelined, insert: InsertDesign::Hybrid, latency: LATENCY },
            Setup { name: "reserved", commit: CommitMode::Pipelined, insert: InsertDesign::Reserved, latency: LATENCY },
        ];
        context.expect(threads.len() * setups.len());
        let populated = Populated::new(context, bench)?;
        let (mut figures, mut throughput, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for setup in setups {
            let mut measured: Vec<(String, Measured)> = Vec::new();
            for &threads in threads {
                measured.push((threads.to_string(), populated.measure(context, setup, threads)?));
            }
            let points = threads.iter().zip(&measured);
            throughput.push(Series::ours(
                setup.name,
                points.map(|(&threads, (_, measured))| (f64::from(threads), measured.throughput / 1e3)).collect(),
            ));
            let name = if setup.name == "mutex" { "A5".to_owned() } else { format!("A5-{}", setup.name) };
            figures.push(breakdown(&name, &format!("TATP UpdateLocation, {}", setup.name), &measured));
            all.push(measured);
        }
        figures.push(Figure {
            name: "A5-throughput".into(),
            title: "TATP UpdateLocation, Niagara II".into(),
            x: Axis::linear("threads"),
            y: Axis::linear("commits (thousands/s)"),
            shape: Shape::Lines,
            series: throughput,
        });
        let high = all[0].last().map_or(f64::NAN, |(_, measured)| measured.shares.log_contention);
        let checks = vec![Check::new(
            "share of the time spent waiting at the log buffer, mutex, at most threads",
            "above 0.35",
            high,
            Bound::AtLeast(0.3),
        )];
        Ok(Findings { setting: vec![setting(&bench)], figures, checks })
    }
}
