//! T3, T4, T9 and T10: what logging costs in the store queue and in writes, and what it is for.

use duramen_machine::atom::{CrashPlan, Design, Report};

use super::{
    Bench, KINDS, LARGE, SMALL, UNDO, WORLD, measure_kind, numbered, of_benchmarks, seeds, setting, side_by_side,
};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::Series;

/// Cycles with a full store queue.
pub(crate) struct Full;

impl Experiment for Full {
    fn about(&self) -> About {
        About {
            id: "T3",
            title: "cycles in which the store queue is full, entries of 512 bytes",
            source: "ATOM (HPCA 2017), Fig. 6",
            world: WORLD,
            found: "ATOM-OPT has 21 % fewer than BASE on average: queue 43 %, rbtree 35 %, sps 1 %",
            wanted: "10 to 35 % fewer on average",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "flushes hold their entries of the store queue until they are durable, and the paper does not say how \
             they are waited for; without them, few cycles with a full queue are left to ATOM-OPT",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        context.expect(KINDS.len() * 3 * seeds(context).len());
        let designs = [UNDO[0], UNDO[2], UNDO[3]];
        let mut by_base = [Vec::new(), Vec::new()];
        for kind in KINDS {
            let [base, others @ ..] = measure_kind(context, (kind, SMALL), designs)?;
            for (ratios, measured) in by_base.iter_mut().zip(others) {
                ratios.push(measured.queue_full / base.queue_full);
            }
        }
        let mean = |ratios: &[f64]| ratios.iter().sum::<f64>() / ratios.len() as f64;
        let checks = vec![Check::new(
            "cycles of ATOM-OPT by BASE, mean of the benchmarks",
            "0.79",
            mean(&by_base[0]),
            Bound::Within(0.65, 0.90),
        )];
        let series = by_base.iter().zip(&designs[1..]).map(|(ratios, design)| Series::ours(design.1, numbered(ratios)));
        let figures = vec![of_benchmarks("T3-queue-full", "Cycles with a full store queue by BASE", series.collect())];
        let mut setting = setting(context)?;
        setting.push(format!("NON-ATOMIC by BASE, mean: {:.2}.", mean(&by_base[1])));
        Ok(Findings { setting, figures, checks })
    }
}

/// Entries that controllers make of what they read.
pub(crate) struct Sourced;

impl Experiment for Sourced {
    fn about(&self) -> About {
        About {
            id: "T4",
            title: "share of log entries that the controller makes of what it reads",
            source: "ATOM (HPCA 2017), Table III",
            world: WORLD,
            found: "0.01 to 0.12 % with small entries, 0.01 to 0.7 % with large ones",
            wanted: "below 1 % with small entries, more with large ones",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        context.expect(KINDS.len() * (2 * seeds(context).len() + 1));
        let (mut small, mut large) = (Vec::new(), Vec::new());
        let mut warm = Vec::new();
        for kind in KINDS {
            for (size, shares) in [(SMALL, &mut small), (LARGE, &mut large)] {
                let [measured] = measure_kind(context, (kind, size), [UNDO[2]])?;
                shares.push(100.0 * measured.sourced_share);
            }
            let mut bench = Bench::new(context, kind, SMALL, UNDO[2].0, 1)?;
            bench.plan.warm_up *= WARMER;
            warm.push(bench);
        }
        let warm = side_by_side(context, "all benchmarks after a longer warm-up", warm, Bench::run)?;
        let warm = warm.iter().map(|report| 100.0 * report.counters.sourced as f64 / report.counters.entries as f64);
        let warm = warm.fold(0.0, f64::max);
        let most = small.iter().copied().fold(0.0, f64::max);
        let total = |shares: &[f64]| shares.iter().sum::<f64>() / shares.len() as f64;
        let checks = vec![
            Check::new("largest share with small entries (%)", "0.12", most, Bound::AtMost(1.0)),
            Check::new(
                "mean with large entries less that with small ones (points)",
                "0.27",
                total(&large) - total(&small),
                Bound::AtLeast(0.000_001),
            ),
            Check::new("largest share with small entries (%)", "0.12", warm, Bound::AtMost(1.0))
                .under(format!("after {WARMER} times as many operations to warm up")),
        ];
        let series = vec![Series::ours("small", numbered(&small)), Series::ours("large", numbered(&large))];
        let figures = vec![of_benchmarks("T4-sourced", "Source-logged entries (%)", series)];
        Ok(Findings { setting: setting(context)?, figures, checks })
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "the shared cache is empty when a run begins, and most lines that are written in the measured part are \
             fetched from memory for the first time; after a longer warm-up they are not",
        )
    }
}

/// How much longer a warm-up is that leaves the programs' data in the shared cache.
const WARMER: u64 = 40;

/// Writes of a full record.
pub(crate) struct Collation;

impl Experiment for Collation {
    fn about(&self) -> About {
        About {
            id: "T9",
            title: "writes of a log record with seven entries",
            source: "ATOM (HPCA 2017), section IV-C",
            world: WORLD,
            found: "8 writes for 7 entries instead of 14 (which is 43 % fewer, not the 57 % that the paper says)",
            wanted: "exactly 8",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        context.expect(KINDS.len());
        let (mut full, mut writes) = (0, 0);
        let mut mean = Vec::new();
        let benches: Result<_> = KINDS.iter().map(|&kind| Bench::new(context, kind, SMALL, Design::Atom, 1)).collect();
        for report in side_by_side(context, "all benchmarks", benches?, Bench::run)? {
            full += report.total.full_records;
            writes += report.total.full_record_writes;
            mean.push((report.total.log_lines + report.total.headers) as f64 / report.total.entries as f64);
        }
        let checks =
            vec![Check::new("writes by full records", "8", writes as f64 / full as f64, Bound::Within(8.0, 8.0))];
        let mut setting = setting(context)?;
        setting.push(format!("{full} full records. The figure has the writes by entries, partial records included."));
        let figures =
            vec![of_benchmarks("T9-writes", "Log writes by entries", vec![Series::ours("ATOM", numbered(&mean))])];
        Ok(Findings { setting, figures, checks })
    }
}

/// Crashes.
pub(crate) struct Crashes;

impl Experiment for Crashes {
    fn about(&self) -> About {
        About {
            id: "T10",
            title: "recovery after crashes at random cycles",
            source: "ATOM (HPCA 2017), section IV-D",
            world: WORLD,
            found: "the recovery routine restores every incomplete update from 128 bytes of critical state and the log",
            wanted: "at least 10,000 crashes, after all of which every line is as committed",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let designs = [UNDO[0], UNDO[1], UNDO[2]];
        context.expect(KINDS.len() * designs.len());
        let each = context.pick(60_000, 1_000, 20);
        let (mut crashes, mut failures, mut cut) = (0, 0, 0);
        let mut points = Vec::new();
        for (x, kind) in KINDS.into_iter().enumerate() {
            let (mut of_kind, mut benches) = (0, Vec::new());
            for design in designs {
                let mut bench = Bench::new(context, kind, SMALL, design.0, 1 + x as u64)?;
                bench.plan.crashes = CrashPlan::Cycles { gap: 8, most: each, keep: u64::MAX };
                benches.push(bench);
            }
            for Report { crashes: report, .. } in side_by_side(context, kind.name(), benches, Bench::run)? {
                of_kind += report.crashes;
                failures += report.failures;
                cut += report.probes.cut;
            }
            crashes += of_kind;
            points.push((x as f64, of_kind as f64));
        }
        let least = context.pick(10_000.0, 10_000.0, 1.0);
        let checks = vec![
            Check::new("crashes", "any", crashes as f64, Bound::AtLeast(least)),
            Check::new("crashes after which a line is not as committed", "0", failures as f64, Bound::AtMost(0.0)),
        ];
        let mut setting = setting(context)?;
        setting.push(format!("In {cut} of the crashes, recovery was itself cut off and repeated."));
        let figures = vec![of_benchmarks("T10-crashes", "Crashes", vec![Series::ours("crashes", points)])];
        Ok(Findings { setting, figures, checks })
    }
}
