//! The same comparisons under other conditions that the paper leaves open, one changed at a time.
//! They show how far a result depends on what was decided here. No verdict is taken from them.

use duramen_machine::atom::{Design, Plan, Report, Scope, StoreWidth};
use duramen_workloads::regions::Kind;

use super::{Bench, KINDS, SMALL, geometric_mean, side_by_side};
use crate::error::Result;
use crate::experiment::Context;
use crate::figure::{Axis, Figure, Series, Shape};

/// What a program does besides its regions, and with whom it shares its data.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Besides {
    /// Instructions besides each region, more than the call and its inputs take.
    pub(super) work: u64,
    /// Whether all programs share an instance. They always share the queue.
    pub(super) is_shared: bool,
}

/// A change of the conditions.
pub(super) struct Regime {
    /// For the axis of a figure.
    label: &'static str,
    /// In words.
    pub(super) what: &'static str,
    pub(super) change: fn(&mut Plan, &mut Besides),
}

/// All of them. The first one changes nothing.
pub(super) const REGIMES: [Regime; 14] = [
    Regime { label: "as judged", what: "as judged", change: |_, _| {} },
    Regime { label: "2.5k", what: "2,500 instructions besides each region", change: |_, besides| besides.work = 2500 },
    Regime { label: "5k", what: "5,000 instructions", change: |_, besides| besides.work = 5000 },
    Regime { label: "10k", what: "10,000 instructions", change: |_, besides| besides.work = 10_000 },
    Regime { label: "20k", what: "20,000 instructions", change: |_, besides| besides.work = 20_000 },
    Regime { label: "1 flush", what: "flushes one at a time", change: |plan, _| plan.machine.core.flushes_at_once = 1 },
    Regime { label: "8 banks", what: "8 banks a channel", change: |plan, _| plan.machine.memory.banks = 8 },
    Regime {
        label: "modulo",
        what: "banks by the lowest bits of a line's number",
        change: |plan, _| plan.machine.memory.permuted = false,
    },
    Regime { label: "4 B", what: "stores of 4 bytes", change: |plan, _| plan.stores = StoreWidth::Half },
    Regime { label: "16 B", what: "stores of 16 bytes", change: |plan, _| plan.stores = StoreWidth::Pair },
    Regime {
        label: "no stack",
        what: "stores to the stack are not logged",
        change: |plan, _| plan.scope = Scope::Persistent,
    },
    Regime {
        label: "by line",
        what: "controllers interleaved by lines",
        change: |plan, _| plan.machine.memory.interleave = 1,
    },
    Regime { label: "2 headers", what: "two record headers an update", change: |plan, _| plan.machine.log.headers = 2 },
    Regime { label: "one", what: "all programs share one instance", change: |_, besides| besides.is_shared = true },
];

/// Returns the number of measurements that [`of_kinds`] makes.
pub(super) fn measurements(designs: usize) -> usize {
    REGIMES.len() * KINDS.len() * designs
}

/// Returns the geometric means over the benchmarks, with small entries, of the throughputs of all
/// designs but the first by that of the first: a group of bars for each regime.
pub(super) fn of_kinds(context: &mut Context<'_>, name: &str, designs: &[(Design, &str)]) -> Result<Figure> {
    of(context, name, designs, &KINDS, |_| {})
}

/// The same of some of the benchmarks, which `prepare` changes under all conditions.
pub(super) fn of(
    context: &mut Context<'_>,
    name: &str,
    designs: &[(Design, &str)],
    kinds: &[Kind],
    prepare: impl Fn(&mut Bench),
) -> Result<Figure> {
    figure(name, designs, &REGIMES, |regime| {
        let mut benches = Vec::new();
        for design in designs {
            for &kind in kinds {
                let mut bench = Bench::new(context, kind, SMALL, design.0, 1)?;
                bench.shorten();
                prepare(&mut bench);
                (regime.change)(&mut bench.plan, &mut bench.besides);
                benches.push(bench);
            }
        }
        let reports = side_by_side(context, regime.what, benches, Bench::run)?;
        let throughput = |report: &Report| report.counters.operations as f64 / report.cycles as f64;
        Ok(reports.chunks(kinds.len()).map(|of_kinds| geometric_mean(of_kinds.iter().map(throughput))).collect())
    })
}

/// Returns the figure of throughputs that `measure` gives of all designs for each regime.
pub(super) fn figure(
    name: &str,
    designs: &[(Design, &str)],
    regimes: &[Regime],
    mut measure: impl FnMut(&Regime) -> Result<Vec<f64>>,
) -> Result<Figure> {
    let mut ratios = vec![Vec::new(); designs.len()];
    for (x, regime) in regimes.iter().enumerate() {
        let throughputs = measure(regime)?;
        for (ratios, throughput) in ratios.iter_mut().zip(&throughputs) {
            ratios.push((x as f64, throughput / throughputs[0]));
        }
    }
    let series = ratios.into_iter().zip(designs).skip(1).map(|(points, design)| Series::ours(design.1, points));
    Ok(Figure {
        name: name.to_owned(),
        title: format!("Other conditions: throughput by {}", designs[0].1),
        x: Axis::linear("condition"),
        y: Axis::linear(&format!("throughput by {}", designs[0].1)),
        shape: Shape::Groups(regimes.iter().map(|regime| regime.label.to_owned()).collect()),
        series: series.collect(),
    })
}

/// Says what the labels of the figure mean.
pub(super) fn legend(regimes: &[Regime]) -> String {
    let conditions: Vec<String> =
        regimes[1..].iter().map(|regime| format!("*{}*: {}", regime.label, regime.what)).collect();
    format!(
        "Other conditions, one changed at a time, with a fifth of the operations and one seed; no verdict is taken \
         from them. {}.",
        conditions.join("; ")
    )
}
