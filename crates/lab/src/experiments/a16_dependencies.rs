//! A16: the dependencies between logs, if the log of TPC-C were spread over eight.

use std::collections::HashMap;
use std::time::Duration;

use duramen::{CommitMode, Db, InsertDesign, inspect};
use duramen_io::{Backend, RealDisk, RealDiskOptions};
use duramen_sync::Arc;
use duramen_types::Lsn;
use duramen_workloads::{Tpcc, Workload, tpcc};

use crate::bed::{Bed, Load, System};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Series, Shape};

/// Dependencies in a real log of TPC-C.
pub(super) struct Dependencies;

const WRITER: System = System::new("writing the log", CommitMode::Pipelined, InsertDesign::Hybrid);
const LOGS: u64 = 8;
/// A dependency is tight when the older record is one of so many most recent ones of its log.
const TIGHT: u64 = 5;
/// How much of the log the graph shows, in bytes: as in the paper.
const WINDOW: u64 = 100_000;
/// How much of the log is counted, in bytes.
const COUNTED: u64 = 8_000_000;
const POOL_BYTES: usize = 512 << 20;

impl Experiment for Dependencies {
    fn about(&self) -> About {
        About {
            id: "A16",
            title: "dependencies between eight logs, from a real log of TPC-C",
            source: "Aether (VLDB Journal 2012), Fig. 15",
            world: "native",
            found: "records of different logs depend on each other so densely and so tightly that no obvious way \
                    of spreading them removes the dependencies",
            wanted: "the graph is drawn from a real log, and with either way of spreading the records some \
                     dependencies between logs are tight",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        context.prepare("populating");
        let (warehouses, customers, items) = context.pick((8, 300, 10_000), (8, 60, 2_000), (1, 3, 30));
        let scale = tpcc::Scale { warehouses, customers, items };
        let workload: Box<dyn Workload<Db>> = Box::new(Tpcc::new(scale, tpcc::Mix::Standard));
        let bed = Bed::new(context.pick(POOL_BYTES, POOL_BYTES, POOL_BYTES / 16))?;
        bed.load(&*workload)?;
        context.expect(2);
        let clients = context.pick(64, 64, 4);
        let load = Load { clients, time: Duration::from_millis(context.pick(2_000, 500, 50)) };
        let rig = bed.open(&WRITER, Duration::ZERO)?;
        let start = rig.db().metrics().log.end;
        context.measure(format!("TPC-C, {clients} clients"), || rig.measure(&*workload, load))?;
        let end = rig.db().metrics().log.end;
        // Closing would take a checkpoint and recycle the log.
        drop(rig);
        // In the middle, where the clients are at work.
        let from = Lsn::new(start.get() + (end.get() - start.get()) / 2);
        let records = context.measure("reading the log".into(), || read(&bed, from))?;
        context.prepare("auditing");
        bed.audit(&*workload)?;

        let spreads =
            [("transaction", records.graph(|record| record.txn)), ("page", records.graph(|record| record.page))];
        let mut checks = Vec::new();
        for (by, graph) in &spreads {
            let what = format!("tight share of dependencies between logs, spread by {by}");
            checks.push(Check::new(what, "not given", graph.tight_share(), Bound::AtLeast(0.01)));
            let what = format!("share of records that depend on another log, spread by {by}");
            checks.push(Check::new(what, "not given", graph.dependent_share(), Bound::AtLeast(0.05)));
        }
        let figures = spreads.iter().map(|(by, graph)| graph.figure(by)).collect();
        let setting = vec![
            bed.setting(),
            format!("TPC-C, {scale}, {clients} clients on the threads of flush pipelining."),
            format!(
                "The clients' {} records, {} kB of log, were distributed over {LOGS} logs. Spread by transaction, all \
                 records of a transaction go to one log and depend on the page's previous record in another log; \
                 spread by page, all records of a page go to one log and depend on the transaction's previous record \
                 in another log. A dependency is tight when the older record \
                 is among the {TIGHT} most recent ones of its log at the time. The graphs show {} kB.",
                records.0.len(),
                COUNTED.min(records.bytes()) / 1_000,
                WINDOW / 1_000,
            ),
        ];
        Ok(Findings { setting, figures, checks })
    }
}

/// A record that changes a page.
#[derive(Clone, Copy)]
struct Record {
    lsn: u64,
    txn: u64,
    page: u64,
}

struct Records(Vec<Record>);

/// Returns the records of user transactions that change one page, from `from` or the start of the
/// remaining log.
fn read(bed: &Bed, from: Lsn) -> Result<Records> {
    let disk = RealDisk::open(bed.path(), RealDiskOptions { backend: Backend::Syscalls, direct: false, cached: &[] })?;
    let mut records = Vec::new();
    let mut end = u64::MAX;
    for entry in inspect::log(Arc::new(disk), None)? {
        let entry = entry?;
        if entry.lsn < from {
            continue;
        }
        end = end.min(entry.lsn.get() + COUNTED);
        if entry.lsn.get() >= end {
            break;
        }
        if entry.txn.get() != 0 && entry.page.get() != 0 {
            records.push(Record { lsn: entry.lsn.get(), txn: entry.txn.get(), page: entry.page.get() });
        }
    }
    Ok(Records(records))
}

impl Records {
    fn bytes(&self) -> u64 {
        self.0.last().map_or(0, |last| last.lsn - self.0[0].lsn)
    }

    /// Returns the graph when the log of a record follows from `key`.
    fn graph(&self, key: impl Fn(&Record) -> u64) -> Graph {
        let mut graph = Graph { records: self.0.len(), dependent: 0, edges: Vec::new(), start: 0 };
        graph.start = self.0.first().map_or(0, |record| record.lsn);
        // The number of records in each log; and for the last record of each page and of each
        // transaction, its log, its number there, and its LSN.
        let mut lengths = [0u64; LOGS as usize];
        let (mut pages, mut txns) = (HashMap::new(), HashMap::new());
        for record in &self.0 {
            let log = spread(key(record));
            let at = (log, lengths[log], record.lsn);
            let mut depends = false;
            for before in [pages.insert(record.page, at), txns.insert(record.txn, at)].into_iter().flatten() {
                let (other, place, lsn): (usize, u64, u64) = before;
                if other != log {
                    let tight = lengths[other] - place <= TIGHT;
                    graph.edges.push(Edge { from: (lsn, other), to: (record.lsn, log), tight });
                    depends = true;
                }
            }
            graph.dependent += usize::from(depends);
            lengths[log] += 1;
        }
        graph
    }
}

/// Returns a log for `key`, such that neighbours get different ones.
fn spread(key: u64) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61) as usize
}

/// A dependency of a record on an older one of another log: LSN and log of both.
struct Edge {
    from: (u64, usize),
    to: (u64, usize),
    tight: bool,
}

struct Graph {
    records: usize,
    /// Records with a dependency on another log.
    dependent: usize,
    edges: Vec<Edge>,
    start: u64,
}

impl Graph {
    fn tight_share(&self) -> f64 {
        self.edges.iter().filter(|edge| edge.tight).count() as f64 / self.edges.len() as f64
    }

    fn dependent_share(&self) -> f64 {
        self.dependent as f64 / self.records as f64
    }

    fn figure(&self, by: &str) -> Figure {
        let edges = |tight: bool| {
            let shown = self.edges.iter().filter(|edge| edge.tight == tight && edge.to.0 < self.start + WINDOW);
            let point = |(lsn, log): (u64, usize)| ((lsn.saturating_sub(self.start)) as f64 / 1e3, log as f64);
            shown.flat_map(|edge| [point(edge.from), point(edge.to)]).collect()
        };
        Figure {
            name: format!("A16-{by}"),
            title: format!("Dependencies between 8 logs spread by {by}, TPC-C"),
            x: Axis::linear("position in the log (kB)"),
            y: Axis::linear("log"),
            shape: Shape::Edges,
            series: vec![Series::ours("dependency", edges(false)), Series::ours("tight dependency", edges(true))],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(list: &[(u64, u64)]) -> Records {
        Records(list.iter().enumerate().map(|(at, &(txn, page))| Record { lsn: at as u64, txn, page }).collect())
    }

    /// Two keys that go to different logs.
    fn apart() -> (u64, u64) {
        (1, (2..100).find(|key| spread(*key) != spread(1)).unwrap())
    }

    #[test]
    fn a_page_that_goes_from_log_to_log_is_a_dependency() {
        let (a, b) = apart();
        let graph = records(&[(a, 7), (b, 7)]).graph(|record| record.txn);
        assert_eq!((graph.edges.len(), graph.dependent, graph.records), (1, 1, 2));
        assert_eq!((graph.tight_share(), graph.dependent_share()), (1.0, 0.5));
        let graph = records(&[(a, 7), (b, 7)]).graph(|record| record.page);
        assert!(graph.edges.is_empty(), "both are in the page's log, and of different transactions");
    }

    #[test]
    fn a_dependency_is_tight_on_the_last_five_records_only() {
        let (a, b) = apart();
        for (others, tight) in [(4, true), (5, false)] {
            let mut list = vec![(a, 7)];
            list.extend((0..others).map(|page| (a, 100 + page)));
            list.push((b, 7));
            let graph = records(&list).graph(|record| record.txn);
            assert_eq!(graph.edges.iter().map(|edge| edge.tight).collect::<Vec<_>>(), [tight]);
        }
    }

    #[test]
    fn all_logs_get_records() {
        let mut logs: Vec<usize> = (0..100).map(spread).collect();
        logs.sort_unstable();
        logs.dedup();
        assert_eq!(logs, (0..LOGS as usize).collect::<Vec<_>>());
    }
}
