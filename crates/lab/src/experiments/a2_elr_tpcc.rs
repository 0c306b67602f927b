//! A2: what early lock release gains on TPC-C, by number of clients.

use std::time::Duration;

use duramen::{CommitMode, Db, InsertDesign};
use duramen_workloads::{Tpcc, Workload, tpcc};

use super::sweep::{Sweep, Swept};
use crate::bed::{Bed, System};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Series, Shape};

/// Sync and early lock release on TPC-C.
pub(super) struct ElrTpcc;

const SYNC: &str = "baseline (sync)";
const ELR: &str = "early lock release";
const SYSTEMS: [System; 2] = [
    System::new(SYNC, CommitMode::Sync, InsertDesign::Hybrid),
    System::new(ELR, CommitMode::Elr, InsertDesign::Hybrid),
];
const LATENCY: Duration = Duration::from_millis(4);
/// By clients.
const PAPER: [(f64, f64); 3] = [(150.0, 1.1), (200.0, 1.5), (400.0, 2.2)];
const POOL_BYTES: usize = 1 << 30;

impl Experiment for ElrTpcc {
    fn about(&self) -> About {
        About {
            id: "A2",
            title: "early lock release by number of clients, TPC-C with a log device of 4 ms",
            source: "Aether (VLDB Journal 2012), Fig. 4",
            world: "native",
            found: "1.1x, 1.5x and 2.2x the throughput with 150, 200 and 400 clients",
            wanted: "the gain grows with the clients, and is at least 1.5x with 400",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        context.prepare("populating");
        // As many warehouses as in the paper, so that as many clients contend for each; each has
        // fewer rows.
        let (warehouses, customers, items) = context.pick((100, 60, 2_000), (100, 20, 500), (2, 3, 30));
        let scale = tpcc::Scale { warehouses, customers, items };
        let workload: Box<dyn Workload<Db>> = Box::new(Tpcc::new(scale, tpcc::Mix::Standard));
        let bed = Bed::new(context.pick(POOL_BYTES, POOL_BYTES, POOL_BYTES / 32))?;
        bed.load(&*workload)?;
        let sweep = Sweep {
            bed: &bed,
            workload: &*workload,
            systems: &SYSTEMS,
            clients: context.pick(&[100, 150, 200, 300, 400], &[150, 200, 400], &[2, 4]),
            latency: LATENCY,
            time: Duration::from_millis(context.pick(1_000, 600, 50)),
            rounds: context.pick(7, 1, 1),
        };
        let swept = sweep.run(context)?;
        context.prepare("auditing");
        bed.audit(&*workload)?;
        let (gain, checks) = (gain(&swept), swept.checks(|round| checks(&gain(round))));
        let clients = Axis::linear("clients");
        let figures = vec![
            Figure {
                name: "A2".into(),
                title: "Throughput with and without early lock release, TPC-C".into(),
                x: clients.clone(),
                y: Axis::linear("throughput (thousands of transactions/s)"),
                shape: Shape::Lines,
                series: swept.all(|measured| measured.throughput / 1e3),
            },
            Figure {
                name: "A2-gain".into(),
                title: "Speed-up by early lock release, TPC-C".into(),
                x: clients,
                y: Axis::linear("speed-up"),
                shape: Shape::Lines,
                series: vec![gain, Series::paper("the paper's", PAPER.to_vec())],
            },
        ];
        let setting = vec![bed.setting(), format!("TPC-C, {scale}."), sweep.setting()];
        Ok(Findings { setting, figures, checks })
    }
}

/// Returns the throughput with early lock release by that without it.
fn gain(swept: &Swept) -> Series {
    let throughput = |system| swept.series(system, |measured| measured.throughput);
    let (sync, elr) = (throughput(SYNC), throughput(ELR));
    let ratio = |(at, of_sync): &(f64, f64)| (*at, elr.at(*at).map_or(f64::NAN, |of_elr| of_elr / of_sync.max(1e-9)));
    Series::ours("Duramen", sync.points.iter().map(ratio).collect())
}

fn checks(gain: &Series) -> Vec<Check> {
    let first = PAPER.iter().find_map(|(clients, _)| gain.at(*clients));
    let growth = gain.last() / first.or(gain.points.first().map(|point| point.1)).unwrap_or(f64::NAN);
    vec![
        Check::new("gain at most clients by gain at 150", "2", growth, Bound::AtLeast(1.1)),
        Check::new("gain at most clients", "2.2", gain.last(), Bound::AtLeast(1.5)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Verdict;

    #[test]
    fn the_papers_own_gains_pass() {
        assert_eq!(Verdict::of(&checks(&Series::ours("", PAPER.to_vec()))), Verdict::Reproduced);
        let none = Series::ours("", vec![(150.0, 1.0), (400.0, 1.0)]);
        assert!(matches!(Verdict::of(&checks(&none)), Verdict::NotReproduced(_)));
    }
}
