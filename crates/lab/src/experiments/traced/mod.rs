//! P2 to P4: how the engine reads pages, from traces of the pages that it visits. Only the trace
//! build (`--cfg duramen_trace`) can run these.
//!
//! As in *Storage Management in the NVRAM Era*, section 5, one client runs the complete workload on
//! the scheme that updates pages in place. Tables are B+-trees whose leaves hold the records; there
//! are no heap pages. The leaves stand in for both the paper's heaps and its indices' leaves.

#[cfg_attr(not(duramen_trace), allow(dead_code, reason = "used by the trace build"))]
mod access;
mod caching;
mod latency;
mod lines;

pub(super) use caching::Caching;
pub(super) use latency::Latency;
pub(super) use lines::LinesPerLatch;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use duramen_sync::page_trace::Visit;

use crate::contender::{IN_PLACE, PERIOD, Sizes};
use crate::error::Result;
use crate::experiment::Context;
use crate::kept::Kept;
use crate::lru::stack_distances;
use crate::nvm_bed::{Job, NvmBed};
use access::{Slowed, trace};

/// Complete workloads, and what the paper calls them.
const WORKLOADS: [(&str, &str); 3] = [("TATP", "tatp"), ("TPC-B", "tpcb"), ("TPC-C", "tpcc")];

/// Returns the database for a workload. It is large enough for the paper's largest cache to be a
/// part of it.
fn job(context: &Context<'_>, workload: &'static str) -> Job {
    const MIB: u64 = 1 << 20;
    let divisor = context.pick(1, 20, 1_000);
    let (scale, rows) = match workload {
        "tpcb" => (120, 100_000),
        "tpcc" => (15, 3_000),
        _ => (1, 2_000_000),
    };
    let bytes = (3_584 * MIB / divisor).max(128 * MIB);
    let rows_per_unit = Some((rows / divisor).max(30));
    let sizes = Sizes { fill: Duration::ZERO, pool: bytes as usize, heap: bytes, checkpoint: 4 * MIB, period: PERIOD };
    Job { workload, scale, rows_per_unit, sizes }
}

/// A trace of a workload, and how fast the workload is.
struct Taken {
    trace: Trace,
    /// The database, until an experiment takes it.
    bed: RefCell<Option<NvmBed>>,
    /// Commits per second of two threads.
    throughput: f64,
}

thread_local! {
    /// By workload and transactions.
    static KEPT: Kept<(&'static str, u64), Rc<Taken>> = const { Kept::new() };
}

/// Takes the trace of a workload, or returns the one that another experiment has taken.
fn taken(context: &mut Context<'_>, (name, workload): (&str, &'static str)) -> Result<Rc<Taken>> {
    let job = job(context, workload);
    let transactions = context.pick(100_000, 10_000, 100);
    let time = Duration::from_millis(context.pick(2_000, 500, 20));
    let take = || {
        let bed = NvmBed::populate(IN_PLACE, job)?;
        let trace = trace(&bed, job, transactions)?;
        let slowed = Slowed::open(&bed, time)?;
        let throughput = slowed.throughput(Duration::ZERO, time)?;
        slowed.close()?;
        bed.audit()?;
        Ok(Rc::new(Taken { trace, bed: RefCell::new(Some(bed)), throughput }))
    };
    context.prepare(&format!("populating and tracing {name}"));
    context.measure(format!("tracing {name}"), || KEPT.with(|kept| kept.find_or((workload, transactions), take)))
}

/// The types of pages, as their headers have them.
const KINDS: [(&str, u8); 4] = [("inner nodes", 3), ("leaves", 2), ("bitmaps", 1), ("overflow", 4)];

/// What one client did to pages.
struct Trace {
    visits: Vec<Visit>,
    transactions: u64,
    /// Of each visit, among the visits and those of the warm-up before.
    distances: Vec<Option<usize>>,
}

#[cfg_attr(not(any(duramen_trace, test)), allow(dead_code, reason = "used by the trace build"))]
impl Trace {
    /// Makes a trace of `visits`, of which the first `warm_up` only warm caches up.
    fn new(mut visits: Vec<Visit>, warm_up: usize, transactions: u64) -> Self {
        let pages: Vec<u64> = visits.iter().map(|visit| visit.page).collect();
        let mut distances = stack_distances(&pages);
        let warm_up = warm_up.min(visits.len());
        visits.drain(..warm_up);
        distances.drain(..warm_up);
        Self { visits, transactions, distances }
    }

    /// Returns the lines touched, of all pages or of those of a type.
    fn lines(&self, kind: Option<u8>) -> f64 {
        let some = self.visits.iter().filter(|visit| kind.is_none_or(|kind| visit.kind == kind));
        some.map(|visit| u64::from(visit.lines.count_ones())).sum::<u64>() as f64
    }

    /// Returns the visits, of all pages or of those of a type.
    fn visits(&self, kind: Option<u8>) -> f64 {
        self.visits.iter().filter(|visit| kind.is_none_or(|kind| visit.kind == kind)).count() as f64
    }

    /// Returns the mean number of lines touched in a visit; zero without visits.
    fn lines_per_visit(&self, kind: Option<u8>) -> f64 {
        self.lines(kind) / self.visits(kind).max(1.0)
    }

    /// Returns the share of the lines that lie in pages of a type.
    fn share(&self, kind: u8) -> f64 {
        self.lines(Some(kind)) / self.lines(None).max(1.0)
    }

    /// Returns the visits of a transaction.
    fn visits_per_transaction(&self) -> f64 {
        self.visits(None) / (self.transactions as f64).max(1.0)
    }

    /// Returns the share of visits, of all pages or of those of a type, that a cache of so many
    /// pages misses; 1 without a cache, not a number without visits.
    fn miss_rate(&self, kind: Option<u8>, pages: usize) -> f64 {
        let some = self.visits.iter().zip(&self.distances);
        let some = some.filter(|(visit, _)| kind.is_none_or(|kind| visit.kind == kind));
        crate::lru::miss_rate(some.map(|(_, distance)| distance), pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(page: u64, kind: u8, lines: u128) -> Visit {
        Visit { page, kind, lines }
    }

    #[test]
    fn a_trace_counts_lines_and_misses_by_type() {
        let visits =
            vec![visit(1, 3, 1), visit(1, 3, 0b1111), visit(2, 2, 0b11), visit(1, 3, 0b1111), visit(3, 2, 0b111_1111)];
        let trace = Trace::new(visits, 1, 2);
        assert_eq!((trace.visits(None), trace.visits(Some(2)), trace.visits_per_transaction()), (4.0, 2.0, 2.0));
        assert_eq!((trace.lines(None), trace.lines_per_visit(Some(3)), trace.share(2)), (17.0, 4.0, 9.0 / 17.0));
        assert_eq!(trace.miss_rate(Some(3), 0), 1.0);
        assert_eq!((trace.miss_rate(Some(3), 1), trace.miss_rate(Some(3), 2)), (0.5, 0.0));
        assert_eq!(trace.miss_rate(Some(2), 100), 1.0);
    }
}
