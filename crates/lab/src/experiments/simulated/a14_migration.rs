//! A14: pages that wander from socket to socket.

use std::time::Duration;

use duramen::{CommitMode, InsertDesign};

use super::buffer::FOUR_SOCKETS;
use super::engine::{Bench, Curves, Populated, Setup, setting};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, SIMULATED};
use crate::figure::Figure;

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
        let threads = context.pick(&[1, 4, 16, 64, 128, 256][..], &[64, 256], &[64]);
        let rows = context.pick(10_000, 2_000, 500);
        let workloads = [
            ("tatp", 1, rows, true),
            ("tpcc", context.pick(4, 2, 1), context.pick(300, 100, 60), true),
            ("tatp:update-location", 1, rows, false),
            ("tpcb", context.pick(40, 20, 10), context.pick(1_000, 200, 50), false),
        ];
        context.expect(threads.len() * workloads.len());
        let (mut figures, mut checks, mut settings) = (Vec::new(), Vec::new(), Vec::new());
        let (mut migrations, mut throughput) = (Vec::new(), Vec::new());
        for (workload, scale, rows_per_unit, is_in_paper) in workloads {
            let time = Duration::from_millis(context.pick(5, 3, 1));
            let bench = Bench { machine: FOUR_SOCKETS, workload, scale, rows_per_unit, in_flight: 2, time };
            let populated = Populated::new(context, bench)?;
            let setups = [Setup { name: workload, ..SETUP }];
            let curves = Curves::measure(context, &populated, &setups, threads)?;
            if is_in_paper {
                let bound = Bound::Within(0.2, 0.6);
                let most = curves.last(0).migrations;
                checks.push(Check::new(format!("{workload}, at most threads"), "0.3 to 0.4", most, bound));
            }
            migrations.push(curves.migrations("A14", "Pages between the sockets of four Niagara II"));
            throughput.push(curves.throughput("A14-throughput", "Four Niagara II"));
            let name = format!("A14-{}", workload.replace(':', "-"));
            figures.push(curves.breakdown(0, &name, "Four Niagara II"));
            settings.push(setting(&bench));
        }
        let merged = [migrations, throughput].map(|figures| {
            let series = figures.iter().flat_map(|figure| figure.series.clone()).collect();
            Figure { series, ..figures[0].clone() }
        });
        figures.splice(0..0, merged);
        Ok(Findings { setting: settings, figures, checks })
    }
}
