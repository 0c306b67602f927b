//! P2: lines touched per latch, by type of page.

use super::{KINDS, Trace, WORKLOADS, taken};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, TRACED};
use crate::figure::{Axis, Figure, Series, Shape};

/// The paper's Table 4.
pub(crate) struct LinesPerLatch;

/// Of TATP, TPC-B and TPC-C: lines per latch, of index pages and of all.
const PAPER: [(f64, f64); 3] = [(11.82, 11.24), (11.17, 9.83), (11.44, 10.52)];

impl Experiment for LinesPerLatch {
    fn about(&self) -> About {
        About {
            id: "P2",
            title: "cache lines touched per latch of a page, by type of page",
            source: "Storage Management in the NVRAM Era (VLDB 2014), Table 4",
            world: TRACED,
            found: "85 % of the lines lie in index pages; a latched page has 10.48 lines touched on average",
            wanted: "printed for each workload",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        context.expect(WORKLOADS.len());
        let mut traces = Vec::new();
        for (name, workload) in WORKLOADS {
            traces.push(taken(context, (name, workload))?);
        }
        let traces: Vec<&Trace> = traces.iter().map(|taken| &taken.trace).collect();
        let printed = traces.iter().filter(|trace| trace.lines(None) > 0.0).count() as f64;
        let mut setting = vec![
            "One client on the scheme in-place. Tables are B+-trees whose leaves hold the records, and there are no \
             heap pages. A page that is read and then latched for its change counts once. Lines are those read or \
             changed, each once in a visit."
                .to_owned(),
        ];
        setting.extend(WORKLOADS.iter().zip(&traces).map(|((name, _), trace)| row(name, trace)));
        Ok(Findings {
            setting,
            figures: figures(&traces),
            checks: vec![Check::new("workloads whose lines are printed", "3", printed, Bound::AtLeast(3.0))],
        })
    }
}

fn row(name: &str, trace: &Trace) -> String {
    let kinds = KINDS.iter().map(|&(kind, id)| {
        format!(
            "{kind} {:.1} % of the lines, {:.2} per visit",
            trace.share(id) * 100.0,
            trace.lines_per_visit(Some(id))
        )
    });
    let kinds: Vec<String> = kinds.collect();
    format!(
        "{name}: {:.2} lines per visit, {:.1} visits per transaction ({}).",
        trace.lines_per_visit(None),
        trace.visits_per_transaction(),
        kinds.join("; ")
    )
}

fn figures(traces: &[&Trace]) -> Vec<Figure> {
    let by_workload = |value: &dyn Fn(&Trace) -> f64| -> Vec<(f64, f64)> {
        traces.iter().enumerate().map(|(at, trace)| (at as f64, value(trace))).collect()
    };
    let paper = |value: fn(&(f64, f64)) -> f64| (0..).map(f64::from).zip(PAPER.iter().map(value)).collect();
    let names = WORKLOADS.map(|(name, _)| name.to_owned()).to_vec();
    vec![
        Figure {
            name: "P2".into(),
            title: "Cache lines touched, by type of page".into(),
            x: Axis::linear("workload"),
            y: Axis::linear("share of the lines (%)"),
            shape: Shape::Stacks(names),
            series: KINDS.map(|(kind, id)| Series::ours(kind, by_workload(&|trace| trace.share(id) * 100.0))).into(),
        },
        Figure {
            name: "P2-lines".into(),
            title: "Cache lines touched per latch".into(),
            x: Axis::linear("0: TATP, 1: TPC-B, 2: TPC-C"),
            y: Axis::linear("lines per latch"),
            shape: Shape::Lines,
            series: vec![
                Series::ours("inner nodes", by_workload(&|trace| trace.lines_per_visit(Some(3)))),
                Series::ours("leaves", by_workload(&|trace| trace.lines_per_visit(Some(2)))),
                Series::ours("all", by_workload(&|trace| trace.lines_per_visit(None))),
                Series::paper("the paper's indices", paper(|row| row.0)),
                Series::paper("the paper's total", paper(|row| row.1)),
            ],
        },
    ]
}
