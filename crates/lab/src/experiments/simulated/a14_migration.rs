//! A14: pages that wander from socket to socket.

use std::time::Duration;

use duramen::{CommitMode, InsertDesign};

use super::engine::{Bench, Populated, Setup, setting};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, SIMULATED};
use crate::figure::{Axis, Figure, Series, Shape};

/// Migration of pages between sockets.
pub(crate) struct Migration;

const SETUP: Setup = Setup {
    name: "CD",
    commit: CommitMode::Pipelined,
    insert: InsertDesign::Hybrid,
    latency: Duration::from_micros(100),
};

impl Experiment for Migration {
    fn about(&self) -> About {
        About {
            id: "A14",
            title: "visits to a page from another socket than the last one, TATP and TPC-C on four sockets",
            source: "Aether (VLDB Journal 2012), section 7.3",
            world: SIMULATED,
            found: "pages migrate between sockets on 30 to 40 % of the accesses",
            wanted: "20 to 60 % of the visits",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let threads = context.pick(&[16, 64, 128, 256][..], &[64, 256], &[64]);
        let workloads = [
            ("tatp", 1, context.pick(10_000, 2_000, 500)),
            ("tpcc", context.pick(4, 2, 1), context.pick(300, 100, 60)),
        ];
        context.expect(threads.len() * workloads.len());
        let (mut series, mut checks, mut settings) = (Vec::new(), Vec::new(), Vec::new());
        for (workload, scale, rows_per_unit) in workloads {
            let time = Duration::from_millis(context.pick(5, 3, 1));
            let bench = Bench { machine: "niagara2-4", workload, scale, rows_per_unit, in_flight: 2, time };
            let populated = Populated::new(context, bench)?;
            let mut points = Vec::new();
            for &threads in threads {
                let measured = populated.measure(context, SETUP, threads)?;
                points.push((f64::from(threads), measured.migrations * 100.0));
            }
            let most = points.last().map_or(f64::NAN, |point| point.1 / 100.0);
            checks.push(Check::new(
                format!("{workload}, at most threads"),
                "0.3 to 0.4",
                most,
                Bound::Within(0.2, 0.6),
            ));
            series.push(Series::ours(workload, points));
            settings.push(setting(&bench));
        }
        let figure = Figure {
            name: "A14".into(),
            title: "Pages between the sockets of four Niagara II".into(),
            x: Axis::linear("threads"),
            y: Axis::linear("visits that come from another socket (%)"),
            shape: Shape::Lines,
            series,
        };
        Ok(Findings { setting: settings, figures: vec![figure], checks })
    }
}
