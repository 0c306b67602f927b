//! What the experiments need of the place where they run.

use std::time::Duration;

use crate::contender::{Clients, Contender};
use crate::error::Result;
use crate::nvm_bed::Measured;

/// Where experiments run.
pub(super) trait Ground {
    /// Populates the databases of a workload.
    fn site(&self, workload: &'static str) -> Result<Box<dyn Site>>;

    /// How often each point is measured.
    fn rounds(&self) -> usize;

    /// Numbers of dirty pages that the baseline is tried with, in falling order.
    fn dirty_pages(&self) -> &'static [usize];

    /// How it is set up, a sentence each.
    fn setting(&self) -> Vec<String>;
}

/// The databases of a workload, one for each scheme.
pub(super) trait Site {
    /// The settings of clients that a contender is tried with.
    fn clients(&self, contender: Contender) -> &'static [Clients];

    /// Measures with barriers of this length, once with each of `clients`.
    fn speeds(&self, contender: Contender, barrier: Duration, clients: &[Clients]) -> Result<Vec<Speed>>;

    /// Runs the workload, interrupts it and recovers.
    fn interrupt(&self, contender: Contender, run: Run) -> Result<Interrupted>;

    /// Audits all databases.
    fn audit(&self) -> Result<()>;
}

/// How fast a database is with one setting of clients.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Speed {
    /// Commits per second.
    pub(super) throughput: f64,
    /// Seconds that 95 of 100 transactions do not exceed.
    pub(super) p95: f64,
}

impl Speed {
    pub(super) fn of(measured: &Measured) -> Self {
        Self { throughput: measured.throughput, p95: measured.p95 }
    }

    /// Returns it with its throughput in units of `base`.
    pub(super) fn scaled(self, base: f64) -> Self {
        Self { throughput: if base > 0.0 { self.throughput / base } else { 0.0 }, ..self }
    }
}

/// How long a database is used before it is interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Run {
    /// Long enough to see whether recovery is near-instant.
    Short,
    /// Long enough for much to recover.
    Long,
}

/// A run that was interrupted, with barriers that take no time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Interrupted {
    /// Commits per second before.
    pub(super) throughput: f64,
    /// Seconds that recovery took afterwards.
    pub(super) recovery: f64,
    /// Pages written per second.
    pub(super) page_flushes: f64,
    /// Dirty pages at the end.
    pub(super) dirty_pages: f64,
}
