//! P3: throughput by the latency of reads and the number of cached pages.

use std::time::Duration;

use super::access::Slowed;
use super::{Trace, WORKLOADS, job, taken};
use crate::bounds::{Bound, Check, median};
use crate::contender::IN_PLACE;
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, TRACED};
use crate::figure::{Axis, Figure, Series, Shape};
use crate::nvm_bed::NvmBed;

/// The paper's Figure 3.
pub(crate) struct Latency;

/// Nanoseconds. The paper takes 50 ns for a read of ordinary memory.
const LATENCIES: [u32; 4] = [100, 200, 400, 800];
const ORDINARY: f64 = 50.0;

const CACHED: [usize; 9] = [0, 1, 5, 10, 20, 50, 1_000, 10_000, 100_000];
const FEW_CACHED: [usize; 3] = [0, 50, 100_000];

impl Experiment for Latency {
    fn about(&self) -> About {
        About {
            id: "P3",
            title: "throughput by the latency of reads and the number of cached pages",
            source: "Storage Management in the NVRAM Era (VLDB 2014), Fig. 3",
            world: TRACED,
            found: "with reads of 100 ns at least 90 % of the throughput remains without a cache, with 800 ns about \
                    50 %; tens of cached pages help, and 100,000 give at least 80 %",
            wanted: "at least 0.9 at 100 ns and 0.35 to 0.65 at 800 ns without a cache; 50 pages gain 5 points at \
                     800 ns; 100,000 pages give 0.8",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "a transaction takes less time here, so that a delay is a larger part of it. By the throughput with 800 ns \
             and the lines of a transaction, one takes 3 us of TATP, 12 us of TPC-B and 116 us of TPC-C without \
             delays, and waits for lines eight, five and four times as long; the paper's take about as long as they \
             wait. The paper expects this of engines with less overhead (section 5, main-memory databases). With \
             100,000 pages, TPC-B still misses 6 of 100 visits (P4)",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let cached = context.pick(&CACHED[..], &FEW_CACHED, &FEW_CACHED);
        let latencies = context.pick(&LATENCIES[..], &[100, 800], &[100, 800]);
        let rounds = context.pick(3, 1, 1);
        let time = Duration::from_millis(context.pick(300, 150, 10));
        context.expect(WORKLOADS.len() * (1 + rounds * (1 + cached.len() * latencies.len())));
        let (mut figures, mut checks, mut setting) = (Vec::new(), Vec::new(), Vec::new());
        for (name, workload) in WORKLOADS {
            let taken = taken(context, (name, workload))?;
            let trace = &taken.trace;
            let missed: Vec<f64> = cached.iter().map(|&pages| missed_lines(trace, pages)).collect();
            let bed = match taken.bed.take() {
                Some(bed) => bed,
                None => NvmBed::populate(IN_PLACE, job(context, workload))?,
            };
            let slowed = Slowed::open(&bed, 4 * time)?;
            let mut measured = vec![vec![Vec::new(); cached.len()]; latencies.len()];
            for _ in 0..rounds {
                let base = context.measure(format!("{name}, no delay"), || slowed.throughput(Duration::ZERO, time))?;
                for (latency, line) in latencies.iter().zip(&mut measured) {
                    for ((pages, &lines), point) in cached.iter().zip(&missed).zip(line) {
                        let what = format!("{name}, {latency} ns, {pages} pages");
                        let delay = delay(lines, *latency);
                        point.push(context.measure(what, || slowed.throughput(delay, time))? / base);
                    }
                }
            }
            slowed.close()?;
            context.prepare("auditing");
            bed.audit()?;
            let series = latencies.iter().zip(measured).map(|(latency, line)| {
                let points = cached.iter().zip(line).map(|(&pages, point)| (place(pages), median(point)));
                Series::ours(format!("{latency} ns"), points.collect())
            });
            let series: Vec<Series> = series.collect();
            checks.extend(findings(name, &series));
            setting.push(format!(
                "{name}: {:.2} lines per visit, {:.1} visits per transaction.",
                trace.lines_per_visit(None),
                trace.visits_per_transaction()
            ));
            figures.push(Figure {
                name: format!("P3-{workload}"),
                title: format!("Throughput by the latency of reads, {name}"),
                x: Axis::log("cached pages (0.5: none)"),
                y: Axis::linear("throughput, of that without delays"),
                shape: Shape::Lines,
                series,
            });
        }
        setting.push(
            "The paper's method: a visit of a page is delayed by the share of visits that a cache of that many pages \
             misses, times the lines of a visit, times the latency less the 50 ns of ordinary memory. Two threads on \
             the scheme in-place run the complete workload; barriers take no time."
                .to_owned(),
        );
        Ok(Findings { setting, figures, checks })
    }
}

/// Returns the mean number of lines that a visit reads and a cache of so many pages misses.
fn missed_lines(trace: &Trace, cached: usize) -> f64 {
    let misses = if cached == 0 { 1.0 } else { trace.miss_rate(None, cached) };
    misses * trace.lines_per_visit(None)
}

/// Returns the mean time that reads of so many lines add to a visit.
fn delay(lines: f64, latency: u32) -> Duration {
    let nanos = lines * (f64::from(latency) - ORDINARY);
    Duration::from_nanos(nanos.max(0.0) as u64)
}

/// Returns where a number of pages is drawn: a logarithmic axis has no zero.
fn place(pages: usize) -> f64 {
    if pages == 0 { 0.5 } else { pages as f64 }
}

fn findings(name: &str, series: &[Series]) -> Vec<Check> {
    let at = |latency: &str, pages: usize| {
        let line = series.iter().find(|series| series.name == latency);
        line.and_then(|line| line.at(place(pages))).unwrap_or_default()
    };
    let check =
        |what: &str, paper: &str, ours: f64, wanted: Bound| Check::new(format!("{name}: {what}"), paper, ours, wanted);
    vec![
        check("100 ns, nothing cached", "0.9", at("100 ns", 0), Bound::AtLeast(0.9)),
        check("800 ns, nothing cached", "0.5", at("800 ns", 0), Bound::Within(0.35, 0.65)),
        check("800 ns, what 50 pages gain", "0.1", at("800 ns", 50) - at("800 ns", 0), Bound::AtLeast(0.05)),
        check("800 ns, 100,000 pages", "0.8", at("800 ns", 100_000), Bound::AtLeast(0.8)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Verdict;
    use duramen_sync::page_trace::Visit;

    #[test]
    fn the_papers_own_figures_pass() {
        let series = |at_800: [f64; 3]| {
            let points = |values: [f64; 3]| FEW_CACHED.map(place).into_iter().zip(values).collect();
            vec![Series::ours("100 ns", points([0.92, 0.95, 1.0])), Series::ours("800 ns", points(at_800))]
        };
        assert_eq!(Verdict::of(&findings("", &series([0.5, 0.65, 0.85]))), Verdict::Reproduced);
        assert_eq!(Verdict::of(&findings("", &series([0.2, 0.21, 0.5]))).reasons().len(), 3);
    }

    #[test]
    fn a_delay_is_that_of_the_lines_that_miss() {
        let visits = (0..4).map(|page| Visit { page: page % 2, kind: 2, lines: 0b11_1111_1111 }).collect();
        let trace = Trace::new(visits, 2, 1);
        let delay = |cached| delay(missed_lines(&trace, cached), 800);
        assert_eq!([0, 1, 2].map(delay), [7_500, 7_500, 0].map(Duration::from_nanos));
    }
}
