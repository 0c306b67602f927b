//! How a workload is run, and what a run reports.

use std::time::Duration;

use crate::histogram::Latencies;
#[cfg(doc)]
use crate::workload::Workload;

/// When a run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// After this time; transactions in flight then are finished and counted.
    Time(Duration),
    /// After this many commits of all clients together, dealt out evenly among them.
    Transactions(u64),
}

/// How a workload is run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Number of clients, at least 1: so many transactions are in progress, or waiting for their
    /// commits, at a time.
    pub clients: u32,
    /// Number of threads that carry the clients, at least 1; no more than there are clients.
    pub agents: u32,
    /// Transactions that all clients together begin in a second, evenly spaced, whether or not
    /// earlier ones are done in time; `None` when each client begins the next one as soon as its
    /// last one is acknowledged.
    pub rate: Option<f64>,
    /// When the run ends.
    pub limit: Limit,
    /// Seed of the inputs; client `c` draws the same ones in every run with this seed.
    pub seed: u64,
    /// How often `observe` is called.
    pub observe_every: Duration,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since the clients started.
    pub elapsed: Duration,
    /// Transactions committed so far.
    pub committed: u64,
    /// Attempts aborted so far.
    pub aborted: u64,
}

/// What a run did.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// From the common start to the end of the last transaction.
    pub elapsed: Duration,
    /// Transactions whose commit was acknowledged.
    pub committed: u64,
    /// Attempts that ended in a retryable error.
    pub aborted: u64,
    /// From the acknowledgement of a client's transaction to that of its next one; with
    /// [`RunOptions::rate`] from the time at which it was to begin. A latency therefore includes
    /// failed attempts, and the time in which the client's thread was busy with other clients, or
    /// late.
    pub latencies: Latencies,
    /// For each kind of transaction, in the order of [`Workload::kinds`], how many there were.
    pub tallies: Vec<Tally>,
}

/// How often a kind of transaction was run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Transactions brought to their end.
    pub done: u64,
    /// Those of them that ended without effect, as the specification foresees.
    pub declined: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.done += other.done;
        self.declined += other.declined;
    }
}

impl RunReport {
    /// Committed transactions per second.
    pub fn throughput(&self) -> f64 {
        self.committed as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Aborted attempts as a share of all attempts, 0 to 1.
    pub fn abort_rate(&self) -> f64 {
        self.aborted as f64 / ((self.committed + self.aborted) as f64).max(1.0)
    }
}
