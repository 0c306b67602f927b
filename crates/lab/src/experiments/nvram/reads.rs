//! P3m: throughput by the latency of reads, with the processor's own caches.
//!
//! The paper delays each visit of a page by the misses of a modelled cache of pages. Here the
//! simulated processor reads the pages in persistent memory themselves, through its caches.

use std::time::Duration;

use super::simulated::MACHINE;
use crate::bounds::{Bound, Check};
use crate::contender::{Clients, PERIOD, Sizes};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, SIMULATED};
use crate::figure::{Axis, Figure, Series, Shape};
use crate::nvm_bed::Job;

/// The paper's Figure 3, without its cache of pages.
pub(crate) struct Reads;

/// Nanoseconds. The first is that of the processor's ordinary memory.
const LATENCIES: &[f64] = &[85.0, 100.0, 200.0, 400.0, 800.0];

/// Complete workloads, what the paper calls them, their scale and rows.
const WORKLOADS: [(&str, &str, u64, u64); 3] =
    [("TATP", "tatp", 1, 200_000), ("TPC-B", "tpcb", 48, 8_000), ("TPC-C", "tpcc", 8, 300)];

#[cfg_attr(not(duramen_machine), allow(dead_code, reason = "used by the machine build"))]
const CLIENTS: Clients = Clients::blocking(12);

impl Experiment for Reads {
    fn about(&self) -> About {
        About {
            id: "P3m",
            title: "throughput by the latency of reads of persistent memory, through the caches of the processor",
            source: "Storage Management in the NVRAM Era (VLDB 2014), Fig. 3",
            world: SIMULATED,
            found: "with reads of 100 ns at least 90 % of the throughput remains without a cache of pages, with 800 \
                    ns about 50 %",
            wanted: "at least 0.9 at 100 ns, 0.35 to 0.65 at 800 ns, and no gain above 2 % from a longer latency",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let latencies = context.pick(LATENCIES, &[85.0, 100.0, 800.0], &[85.0, 800.0]);
        let workloads = context.pick(&WORKLOADS[..], &WORKLOADS, &WORKLOADS[1..2]);
        let divisor = context.pick(1, 4, 80);
        let time = Duration::from_millis(context.pick(5, 4, 1));
        context.expect(workloads.len() * latencies.len());
        let (mut series, mut checks) = (Vec::new(), Vec::new());
        for &(name, workload, scale, rows) in workloads {
            context.prepare(&format!("populating {name}"));
            let sizes =
                Sizes { fill: Duration::ZERO, pool: 64 << 20, heap: 256 << 20, checkpoint: 1 << 20, period: PERIOD };
            let job = Job { workload, scale, rows_per_unit: Some((rows / divisor).max(10)), sizes };
            let points = throughputs(context, name, job, latencies, time)?;
            checks.extend(findings(name, &points));
            series.push(Series::ours(name, points));
        }
        let figures = vec![Figure {
            name: "P3m".to_owned(),
            title: "Throughput by the latency of reads of persistent memory".to_owned(),
            x: Axis::linear("read latency (ns)"),
            y: Axis::linear("throughput, of that at the latency of ordinary memory"),
            shape: Shape::Lines,
            series,
        }];
        let setting = vec![
            format!(
                "Simulated machine: {MACHINE} with 12 contexts, caches of 32 KiB and 256 KiB a core and of 12 MiB for \
                 all. Pages are in persistent memory and are worked on there (residence `direct`, the fewest \
                 barriers), so all their lines come from it; everything else is in ordinary memory of 84.5 ns."
            ),
            format!(
                "12 threads run the complete workload for {} ms of virtual time after a warm-up; barriers take no \
                 time. Rows below each unit: {}.",
                time.as_millis(),
                WORKLOADS.map(|(name, .., rows)| format!("{name} {}", rows / divisor)).join(", ")
            ),
        ];
        Ok(Findings { setting, figures, checks })
    }
}

/// Measures a workload with each of the latencies; returns the shares of the first throughput.
#[cfg(duramen_machine)]
fn throughputs(
    context: &mut Context<'_>,
    name: &str,
    job: Job,
    latencies: &[f64],
    time: Duration,
) -> Result<Vec<(f64, f64)>> {
    use super::simulated_bed::populate;
    use crate::contender::IN_PLACE_DIRECT;

    let database = populate(MACHINE, IN_PLACE_DIRECT, job)?;
    let mut points: Vec<(f64, f64)> = Vec::new();
    for &nanos in latencies {
        let latency = Duration::from_secs_f64(nanos / 1e9);
        let measured = context.measure(format!("{name}, {nanos} ns"), || {
            database.measure_reads(IN_PLACE_DIRECT, CLIENTS, latency, time)
        })?;
        points.push((nanos, measured.throughput));
    }
    let base = points.first().map_or(1.0, |(_, throughput)| *throughput);
    Ok(points.into_iter().map(|(nanos, throughput)| (nanos, throughput / base)).collect())
}

#[cfg(not(duramen_machine))]
fn throughputs(_: &mut Context<'_>, _: &str, _: Job, _: &[f64], _: Duration) -> Result<Vec<(f64, f64)>> {
    Err(crate::error::Error::NotSimulated { machine: MACHINE })
}

fn findings(name: &str, points: &[(f64, f64)]) -> Vec<Check> {
    let at = |nanos: f64| points.iter().find(|(at, _)| *at == nanos).map(|(_, share)| *share);
    let most_gained = points.windows(2).map(|pair| pair[1].1 / pair[0].1).fold(0.0, f64::max);
    let check =
        |what: &str, paper: &str, ours: f64, wanted: Bound| Check::new(format!("{name}: {what}"), paper, ours, wanted);
    let mut checks = Vec::new();
    checks.extend(at(100.0).map(|share| check("100 ns", "0.9", share, Bound::AtLeast(0.9))));
    checks.extend(at(800.0).map(|share| check("800 ns", "0.5", share, Bound::Within(0.35, 0.65))));
    checks.push(check("most that a longer latency gains", "1", most_gained, Bound::AtMost(1.02)));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Verdict;

    #[test]
    fn the_papers_own_figures_pass() {
        let points = |last: f64| vec![(85.0, 1.0), (100.0, 0.95), (400.0, 0.7), (800.0, last)];
        assert_eq!(Verdict::of(&findings("", &points(0.5))), Verdict::Reproduced);
        assert_eq!(Verdict::of(&findings("", &points(0.8))).reasons().len(), 2);
    }
}
