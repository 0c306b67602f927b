//! T1 and T2: throughput of the undo designs.

use duramen_workloads::regions::EntrySize;

use super::{
    KINDS, LARGE, Measured, SMALL, UNDO, WORLD, geometric_mean, measure_kind, numbered, of_benchmarks, regimes, seeds,
    setting,
};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Figure, Series};

/// Small entries.
pub(crate) struct Small;

/// Large entries.
pub(crate) struct Large;

/// Why the gap that is closed differs from the paper's.
const DIFFERENCE: &str = "the paper does not say how much a program does besides its updates; here it does little, so \
     the channels of memory are what all designs wait for, and logging costs what it writes. T1 shows what other \
     conditions change";

impl Experiment for Small {
    fn about(&self) -> About {
        About {
            id: "T1",
            title: "throughput of hardware undo logging, entries of 512 bytes",
            source: "ATOM (HPCA 2017), Fig. 5(a)",
            world: WORLD,
            found: "against BASE, ATOM has 1.23 times the throughput, ATOM-OPT 1.27 times, NON-ATOMIC 1.38 times: \
                    71 % of the gap is closed",
            wanted: "the order holds on each of the six (ties within 0.5 % count), and ATOM gains 10 to 70 %",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(DIFFERENCE)
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        findings(context, "T1", SMALL, [1.23, 1.27, 1.38, 71.0])
    }
}

impl Experiment for Large {
    fn about(&self) -> About {
        About {
            id: "T2",
            title: "throughput of hardware undo logging, entries of 4 KB",
            source: "ATOM (HPCA 2017), Fig. 5(b)",
            world: WORLD,
            found: "against BASE, ATOM has 1.24 times the throughput, ATOM-OPT 1.33 times, NON-ATOMIC 1.41 times: \
                    83 % of the gap is closed",
            wanted: "the order holds on each of the six (ties within 0.5 % count), and ATOM gains 10 to 70 %",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(DIFFERENCE)
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        findings(context, "T2", LARGE, [1.24, 1.33, 1.41, 83.0])
    }
}

fn findings(context: &mut Context<'_>, id: &str, size: EntrySize, paper: [f64; 4]) -> Result<Findings> {
    let of_regimes = if size == SMALL { regimes::measurements(UNDO.len()) } else { 0 };
    context.expect(KINDS.len() * UNDO.len() * seeds(context).len() + of_regimes);
    let mut all: Vec<[Measured; 4]> = Vec::new();
    for kind in KINDS {
        all.push(measure_kind(context, (kind, size), UNDO)?);
    }
    let ratio = |of: &[Measured; 4], design: usize| of[design].throughput / of[0].throughput;
    let mean = |design: usize| geometric_mean(all.iter().map(|of| ratio(of, design)));
    let mut checks = Vec::new();
    for (kind, of) in KINDS.iter().zip(&all) {
        let steps = (1..4).map(|design| of[design].throughput / of[design - 1].throughput);
        let least = steps.fold(f64::INFINITY, f64::min);
        let what = format!("{}: the least step from BASE to ATOM to ATOM-OPT to NON-ATOMIC", kind.name());
        checks.push(Check::new(what, "above 1", least, Bound::AtLeast(0.995)));
    }
    let said = format!("{:.2}", paper[0]);
    checks.push(Check::new("ATOM by BASE, geometric mean", said, mean(1), Bound::Within(1.10, 1.70)));
    let mut setting = setting(context)?;
    let gap = (mean(2) - 1.0) / (mean(3) - 1.0);
    setting.push(format!(
        "Geometric means by BASE: ATOM {:.3}, ATOM-OPT {:.3}, NON-ATOMIC {:.3}; ATOM-OPT closes {:.0} % of the gap \
         between BASE and NON-ATOMIC (the paper: {:.2}, {:.2}, {:.2} and {:.0} %).",
        mean(1),
        mean(2),
        mean(3),
        gap * 100.0,
        paper[0],
        paper[1],
        paper[2],
        paper[3],
    ));
    for (kind, of) in KINDS.iter().zip(&all) {
        let describe = |(of, (_, name)): (&Measured, _)| {
            format!(
                "{name} {:.0}, {:.1} and {:.1}, {:.0} %",
                of.throughput,
                of.log_writes,
                of.data_writes,
                of.channel * 100.0
            )
        };
        let designs: Vec<String> = of.iter().zip(UNDO).map(describe).collect();
        setting.push(format!(
            "{}: operations in a million cycles, log and data writes for each, channels busy: {}.",
            kind.name(),
            designs.join("; ")
        ));
    }
    let points = |design: usize| numbered(&all.iter().map(|of| ratio(of, design)).collect::<Vec<_>>());
    let series = (1..4).map(|design| Series::ours(UNDO[design].1, points(design)));
    let name = format!("{id}-throughput");
    let mut figures = vec![of_benchmarks(&name, "Throughput by BASE", series.collect())];
    if size == SMALL {
        let conditions = regimes::of_kinds(context, "T1-conditions", &UNDO)?;
        setting.push(gaps_closed(&conditions));
        figures.push(conditions);
        setting.push(regimes::legend(&regimes::REGIMES));
    }
    Ok(Findings { setting, figures, checks })
}

/// Says which share of the gap is closed, by the instructions besides a region.
fn gaps_closed(conditions: &Figure) -> String {
    let gain = |design: usize, x: usize| conditions.series[design].at(x as f64).unwrap_or(f64::NAN) - 1.0;
    let closed = |x: usize| format!("{:.0} %", 100.0 * gain(1, x) / gain(2, x));
    let [none, some] = [0, 1].map(closed);
    let [more, many, most] = [2, 3, 4].map(closed);
    format!(
        "The more a program does besides its regions, the less memory's bandwidth limits NON-ATOMIC: with no, 2,500, \
         5,000, 10,000 and 20,000 instructions besides each, ATOM-OPT closes {none}, {some}, {more}, {many} and {most} \
         of the gap."
    )
}
