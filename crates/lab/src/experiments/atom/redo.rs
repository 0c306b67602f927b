//! T5 to T7: redo logging beside ATOM.

use duramen_machine::atom::{Design, StoreWidth};
use duramen_workloads::regions::Kind;

use super::{
    Bench, KINDS, SMALL, UNDO, WORLD, geometric_mean, measure, measure_stores, numbered, of_benchmarks, regimes, seeds,
    setting,
};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Series, Shape};

pub(super) const REDO: (Design, &str) = (Design::Redo, "REDO");
const TWO_CHANNELS: (Design, &str) = (Design::RedoTwoChannels, "REDO-2C");
/// The condition of controlled runs: the paper does not say how wide stores are, and 19 entries for
/// each line are more than a line has words.
const HALVES: &str = "with stores of 4 bytes";
/// What is compared, by the first one.
const COMPARED: [(Design, &str); 3] = [UNDO[2], REDO, TWO_CHANNELS];

/// Throughput.
pub(crate) struct Redo;

impl Experiment for Redo {
    fn about(&self) -> About {
        About {
            id: "T5",
            title: "throughput of redo logging against ATOM-OPT, entries of 512 bytes",
            source: "ATOM (HPCA 2017), Fig. 7",
            world: WORLD,
            found: "REDO reaches 22 % of ATOM-OPT with one channel behind each controller, and 30 % with two",
            wanted: "both below 60 %, and two channels better than one",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "redo logging writes fewer entries than in the paper; it does not say how wide stores are, but 19 entries \
             for each of ATOM's are more than a line has words of 8 bytes. With stores of 4 bytes the claim holds",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let controlled = KINDS.len() * COMPARED.len();
        context.expect(controlled * seeds(context).len() + controlled + regimes::measurements(COMPARED.len()));
        let by_opt = Self::by_opt(context, StoreWidth::Word)?;
        let halves = Self::by_opt(context, StoreWidth::Half)?;
        let mut checks = Self::checks(&by_opt);
        checks.extend(Self::checks(&halves).into_iter().map(|check| check.under(HALVES)));
        let series = by_opt.iter().zip([REDO, TWO_CHANNELS]);
        let series = series.map(|(ratios, design)| Series::ours(design.1, numbered(ratios)));
        let figures = vec![
            of_benchmarks("T5-redo", "Throughput by ATOM-OPT", series.collect()),
            regimes::of_kinds(context, "T5-conditions", &COMPARED)?,
        ];
        let mut setting = setting(context)?;
        setting.push(regimes::legend(&regimes::REGIMES));
        Ok(Findings { setting, figures, checks })
    }
}

impl Redo {
    /// Returns the throughputs of both redo designs by that of ATOM-OPT, for each benchmark.
    fn by_opt(context: &mut Context<'_>, stores: StoreWidth) -> Result<[Vec<f64>; 2]> {
        let mut by_opt = [Vec::new(), Vec::new()];
        for kind in KINDS {
            let [opt, others @ ..] = measure_stores(context, (kind, SMALL), COMPARED, stores)?;
            for (ratios, measured) in by_opt.iter_mut().zip(others) {
                ratios.push(measured.throughput / opt.throughput);
            }
        }
        Ok(by_opt)
    }

    fn checks(by_opt: &[Vec<f64>; 2]) -> Vec<Check> {
        let means = by_opt.each_ref().map(|ratios| geometric_mean(ratios.iter().copied()));
        vec![
            Check::new("REDO by ATOM-OPT, geometric mean", "0.22", means[0], Bound::AtMost(0.60)),
            Check::new("REDO-2C by ATOM-OPT, geometric mean", "0.30", means[1], Bound::AtMost(0.60)),
            Check::new("REDO-2C by REDO", "1.36", means[1] / means[0], Bound::AtLeast(1.0)),
        ]
    }
}

/// Numbers of entries.
pub(crate) struct Entries;

impl Experiment for Entries {
    fn about(&self) -> About {
        About {
            id: "T6",
            title: "log entries of redo logging by those of ATOM-OPT",
            source: "ATOM (HPCA 2017), section VI-D",
            world: WORLD,
            found: "19 times as many",
            wanted: "at least 8 times as many",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "ATOM logs a line once; a line has eight words of 8 bytes, so with stores of 8 bytes redo logging can \
             exceed 8 entries for each of ATOM's only where a region stores to a word several times",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        context.expect(KINDS.len() * 2 * (seeds(context).len() + 1));
        let mut by_opt = |stores| -> Result<Vec<f64>> {
            let mut ratios = Vec::new();
            for kind in KINDS {
                let [opt, redo] = measure_stores(context, (kind, SMALL), [UNDO[2], REDO], stores)?;
                ratios.push(redo.entries / opt.entries);
            }
            Ok(ratios)
        };
        let (ratios, halves) = (by_opt(StoreWidth::Word)?, by_opt(StoreWidth::Half)?);
        let check = |ratios: &[f64]| {
            let mean = geometric_mean(ratios.iter().copied());
            Check::new("entries by ATOM-OPT's, geometric mean", "19", mean, Bound::AtLeast(8.0))
        };
        let checks = vec![check(&ratios), check(&halves).under(HALVES)];
        let series = vec![Series::ours("REDO", numbered(&ratios))];
        let figures = vec![of_benchmarks("T6-entries", "Log entries by ATOM-OPT's", series)];
        Ok(Findings { setting: setting(context)?, figures, checks })
    }
}

/// Memory latency.
pub(crate) struct Latency;

impl Experiment for Latency {
    fn about(&self) -> About {
        About {
            id: "T7",
            title: "throughput of rbtree by the latency of memory, entries of 512 bytes",
            source: "ATOM (HPCA 2017), Fig. 8",
            world: WORLD,
            found: "REDO is ahead at DRAM's latency and degrades more than linearly; ATOM-OPT degrades almost linearly",
            wanted: "REDO is ahead at DRAM's latency, and ATOM-OPT at ten times that",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some("with 32 banks behind each channel, its bandwidth limits redo logging, whatever the latency")
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let factors = context.pick(&[1, 2, 3, 5, 8, 10, 15, 20][..], &[1, 10], &[1, 10]);
        let conditions = 2 * regimes::REGIMES.len() * 2;
        context.expect(factors.len() * 2 * seeds(context).len() + conditions);
        let mut series = [UNDO[2], REDO].map(|design| Series::ours(design.1, Vec::new())).to_vec();
        for &factor in factors {
            let mut benches = Vec::new();
            for design in [UNDO[2], REDO] {
                let mut bench = Bench::new(context, Kind::RbTree, SMALL, design.0, 0)?;
                set_latency(&mut bench, factor);
                benches.push(bench);
            }
            let measured = measure(context, &format!("rbtree, latency x {factor}"), seeds(context), &benches)?;
            for (series, measured) in series.iter_mut().zip(measured) {
                series.points.push((factor as f64, measured.throughput));
            }
        }
        let ratio = |x: f64| series[1].at(x).unwrap_or(f64::NAN) / series[0].at(x).unwrap_or(f64::NAN);
        let checks = vec![
            Check::new("REDO by ATOM-OPT at DRAM's latency", "above 1", ratio(1.0), Bound::AtLeast(1.0)),
            Check::new("REDO by ATOM-OPT at ten times that", "below 1", ratio(10.0), Bound::AtMost(1.0)),
        ];
        let mut figures = vec![Figure {
            name: "T7-latency".to_owned(),
            title: "Throughput of rbtree by the latency of memory".to_owned(),
            x: Axis::linear("latency by DRAM's"),
            y: Axis::linear("operations in a million cycles"),
            shape: Shape::Lines,
            series,
        }];
        for factor in [1, 10] {
            let name = format!("T7-conditions-{factor}");
            let latency = |bench: &mut Bench| set_latency(bench, factor);
            let mut figure = regimes::of(context, &name, &COMPARED[..2], &[Kind::RbTree], latency)?;
            let latency = if factor == 1 { "DRAM's latency" } else { "ten times that" };
            figure.title = format!("Other conditions, {latency}: throughput by ATOM-OPT");
            figures.push(figure);
        }
        let mut setting = setting(context)?;
        setting.push(regimes::legend(&regimes::REGIMES));
        Ok(Findings { setting, figures, checks })
    }
}

/// Sets the latencies of memory to a multiple of DRAM's; Table I has ten times DRAM's.
fn set_latency(bench: &mut Bench, factor: u64) {
    bench.plan.machine.memory.write = 36 * factor;
    bench.plan.machine.memory.read = 24 * factor;
}
