//! P4: misses of a page cache by its size, and the bandwidth needed without one.

use super::{KINDS, Trace, WORKLOADS, taken};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, TRACED};
use crate::figure::{Axis, Figure, Series, Shape};

/// The paper's Figure 4 and Table 5.
pub(crate) struct Caching;

/// Pages.
const SIZES: [usize; 11] = [1, 2, 5, 10, 20, 50, 100, 1_000, 10_000, 50_000, 100_000];

/// GB/s, of TATP, TPC-B and TPC-C.
const PAPER: [&str; 3] = ["0.977", "1.044", "1.168"];

impl Experiment for Caching {
    fn about(&self) -> About {
        About {
            id: "P4",
            title: "misses of a page cache by its size and the type of page, and the bandwidth needed without one",
            source: "Storage Management in the NVRAM Era (VLDB 2014), Fig. 4 and Table 5",
            world: TRACED,
            found: "index pages begin to hit with 5 to 20 cached pages; without a cache at most 1.2 GB/s are read",
            wanted: "with 20 pages inner nodes miss at most 0.9 times as often as with one; less than 5 GB/s",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        context.expect(WORKLOADS.len());
        let (mut figures, mut checks) = (Vec::new(), Vec::new());
        for ((name, workload), paper) in WORKLOADS.into_iter().zip(PAPER) {
            let taken = taken(context, (name, workload))?;
            figures.push(figure(name, workload, &taken.trace));
            checks.extend(findings(name, paper, &taken.trace, taken.throughput));
        }
        let setting = vec![
            "Traces of one client on the scheme in-place, each transaction count twice: the first half fills the \
             cache. A cache is fully associative and evicts the least recently used page. The bandwidth is that of \
             all lines that are visited, at the throughput of two threads."
                .to_owned(),
        ];
        Ok(Findings { setting, figures, checks })
    }
}

fn findings(name: &str, paper: &str, trace: &Trace, throughput: f64) -> Vec<Check> {
    let inner = Some(KINDS[0].1);
    // Small trees have no inner nodes.
    let fall = if trace.visits(inner) > 0.0 { trace.miss_rate(inner, 20) / trace.miss_rate(inner, 1) } else { 1.0 };
    let gigabytes = trace.lines(None) / (trace.transactions as f64).max(1.0) * 64.0 * throughput / 1e9;
    vec![
        Check::new(format!("{name}: misses of inner nodes, 20 pages by one"), "falling", fall, Bound::AtMost(0.9)),
        Check::new(format!("{name}: bandwidth without a cache (GB/s)"), paper, gigabytes, Bound::AtMost(5.0)),
    ]
}

fn figure(name: &str, workload: &str, trace: &Trace) -> Figure {
    let kinds = KINDS.into_iter().map(|(kind, id)| (kind, Some(id))).chain([("all", None)]);
    let series = kinds.filter(|(_, kind)| trace.visits(*kind) > 0.0).map(|(label, kind)| {
        Series::ours(label, SIZES.iter().map(|&size| (size as f64, trace.miss_rate(kind, size))).collect())
    });
    Figure {
        name: format!("P4-{workload}"),
        title: format!("Misses by the size of the cache, {name}"),
        x: Axis::log("cached pages"),
        y: Axis::linear("share of visits that miss"),
        shape: Shape::Lines,
        series: series.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Verdict;
    use duramen_sync::page_trace::Visit;

    #[test]
    fn a_root_that_stays_cached_passes_and_random_inner_nodes_do_not() {
        let visit = |page, kind| Visit { page, kind, lines: 0b111 };
        let trace = |root: u64| {
            let visits = (0..200).flat_map(|number| [visit(1 + number % root, 3), visit(1000 + number, 2)]);
            Trace::new(visits.collect(), 20, 190)
        };
        assert_eq!(Verdict::of(&findings("", "1", &trace(1), 1e6)), Verdict::Reproduced);
        assert_eq!(Verdict::of(&findings("", "1", &trace(100), 1e6)).reasons().len(), 1);
        assert!(matches!(Verdict::of(&findings("", "1", &trace(100), 1e9)), Verdict::NotReproduced(_)));
    }
}
