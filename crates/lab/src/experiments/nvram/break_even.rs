//! P7: how long a barrier may take before Disk-Replacement is better than In-Place.

use super::measure::{SETTINGS, curves, near_instant, points};
use super::verdicts::{self, Row, break_even};
use super::world::World;
use crate::contender::{IN_PLACE, IN_PLACE_FEWEST};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Series, Shape};

/// The paper's Table 6.
pub(crate) struct BreakEven(pub(crate) World);

/// Microseconds.
const BARRIERS: &[f64] = &[0.0, 1.0, 2.0, 5.0, 12.0, 25.0];

/// A name, the transaction that writes, and the complete mix. TPC-B has only one transaction.
const WORKLOADS: [(&str, &str, &str); 3] =
    [("TATP", "tatp:update-location", "tatp"), ("TPC-B", "tpcb", "tpcb"), ("TPC-C", "tpcc:new-order", "tpcc")];

/// Single transaction and mix, in the same order.
const PAPER: [(f64, f64); 3] = [(12.0, 25.0), (3.2, 3.2), (2.4, 3.6)];

impl Experiment for BreakEven {
    fn about(&self) -> About {
        About {
            id: self.0.id("P7", "P7m"),
            title: "barrier length from which Disk-Replacement is ahead of In-Place",
            source: "Storage Management in the NVRAM Era (VLDB 2014), Table 6",
            world: self.0.name(),
            found: "25 us for the TATP mix and 12 us for its update; 3.2 us for TPC-B; 3.6 us for the TPC-C mix and \
                    2.4 us for new orders",
            wanted: "TATP above TPC-B and TPC-C; no mix below its single transaction",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let id = self.0.id("P7", "P7m");
        let ground = self.0.ground(context);
        let barriers = context.pick(BARRIERS, &[0.0, 1.0, 5.0, 25.0], &[0.0, 25.0]);
        let points = points(ground.rounds(), 3, barriers) + ground.dirty_pages().len();
        context.expect(WORKLOADS.iter().map(|(_, single, mix)| if single == mix { points } else { 2 * points }).sum());
        let (mut setting, mut figures) = (ground.setting(), Vec::new());
        setting.push(SETTINGS.to_owned());
        let mut rows: Vec<Row> = Vec::new();
        for (name, single, mix) in WORKLOADS {
            let mut found = Vec::new();
            for workload in if single == mix { vec![single] } else { vec![single, mix] } {
                context.prepare(&format!("populating {workload}"));
                let site = ground.site(workload)?;
                let (tuned, what) = near_instant(context, &*ground, (workload, &*site))?;
                setting.push(what);
                let contenders = [tuned, IN_PLACE, IN_PLACE_FEWEST];
                let series = curves(context, (workload, &*site), ground.rounds(), &contenders, barriers)?;
                context.prepare("auditing");
                site.audit()?;
                found.push(break_even(&series[1], &series[0]));
                setting.push(format!(
                    "{workload}: with the fewest barriers the break-even is at {:.2} us.",
                    break_even(&series[2], &series[0])
                ));
                figures.push(Figure {
                    name: format!("{id}-{}", workload.replace(':', "-")),
                    title: format!("Throughput by the length of a persist barrier, {workload}"),
                    x: Axis::linear("persist barrier (us)"),
                    y: Axis::linear("throughput (thousands of transactions/s)"),
                    shape: Shape::Lines,
                    series,
                });
            }
            rows.push((name, found[0], found[found.len() - 1]));
        }
        let rows: [Row; 3] = rows.try_into().expect("a row for each workload");
        figures.insert(0, table(id, &rows));
        setting.push(format!(
            "A break-even of 0 us says that Disk-Replacement is ahead from the beginning; one of {} us, that it is \
             nowhere ahead.",
            barriers[barriers.len() - 1]
        ));
        Ok(Findings { setting, figures, checks: verdicts::break_evens(&rows) })
    }
}

/// The table as a figure.
fn table(id: &str, rows: &[Row; 3]) -> Figure {
    let of = |value: fn(&Row) -> f64| (1..).map(f64::from).zip(rows.iter().map(value)).collect();
    let paper = |value: fn(&(f64, f64)) -> f64| (1..).map(f64::from).zip(PAPER.iter().map(value)).collect();
    Figure {
        name: id.to_owned(),
        title: "Break-even of In-Place and Disk-Replacement".to_owned(),
        x: Axis::linear("1: TATP, 2: TPC-B, 3: TPC-C"),
        y: Axis::linear("break-even persist barrier (us)"),
        shape: Shape::Lines,
        series: vec![
            Series::ours("single transaction", of(|row| row.1)),
            Series::ours("mix", of(|row| row.2)),
            Series::paper("the paper's single transaction", paper(|row| row.0)),
            Series::paper("the paper's mix", paper(|row| row.1)),
        ],
    }
}
