//! What is measured on a simulated machine: the database, the system, and a measurement's result.

use std::time::Duration;

use duramen::pmem::{Domain, Placement};
use duramen::{CommitMode, InsertDesign, Partition};

use crate::experiments::simulated::machines::Machine;

/// What runs, on what.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Bench {
    /// Where.
    pub(crate) machine: Machine,
    /// The workload's name.
    pub(crate) workload: &'static str,
    /// Size of the database in the workload's unit.
    pub(crate) scale: u64,
    /// Rows below each unit.
    pub(crate) rows_per_unit: u64,
    /// Exponent of the Zipfian distribution of rows, if not the workload's own.
    pub(crate) skew: Option<f64>,
    /// Transactions in flight for each thread, where commits do not block.
    pub(crate) in_flight: u32,
    /// Virtual time of a measurement.
    pub(crate) time: Duration,
    /// Work that each transaction has besides its own; none but in controlled runs.
    pub(crate) more_work: Duration,
}

/// A system that is compared with others.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Setup {
    /// What figures call it.
    pub(crate) name: &'static str,
    /// How commits are acknowledged.
    pub(crate) commit: CommitMode,
    /// How records enter the log buffer.
    pub(crate) insert: InsertDesign,
    /// Where the log is.
    pub(crate) device: Device,
    /// How many logs there are, and what decides between them.
    pub(crate) logs: (u16, Partition),
    /// Speculative lock inheritance.
    pub(crate) inheritance: bool,
    /// What there is of snapshots.
    pub(crate) snapshots: Snapshots,
}

/// What there is of snapshots while the transactions run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Snapshots {
    /// The database does not have them.
    Off,
    /// None is open.
    Unused,
    /// A thread reads the whole database through one snapshot after another.
    Scanned,
}

/// Where the end of a log is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Device {
    /// In files; a durable write of the log takes so long.
    Files(Duration),
    /// In persistent memory; an insertion takes so much longer than the memory's own time.
    Memory(Domain, Duration, Placement),
}

impl Setup {
    /// Returns a system with one log in files.
    pub(crate) const fn on_files(
        name: &'static str,
        commit: CommitMode,
        insert: InsertDesign,
        latency: Duration,
    ) -> Self {
        let device = Device::Files(latency);
        Self {
            name,
            commit,
            insert,
            device,
            logs: (1, Partition::Transaction),
            inheritance: true,
            snapshots: Snapshots::Off,
        }
    }

    /// Returns what a durable write of the log takes.
    #[cfg(duramen_machine)]
    pub(crate) fn latency(&self) -> Duration {
        match self.device {
            Device::Files(latency) => latency,
            Device::Memory(..) => Duration::ZERO,
        }
    }
}

/// What a measurement gave.
#[cfg(duramen_machine)]
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) throughput: f64,
    pub(crate) elapsed: Duration,
    pub(crate) spent: duramen_machine::Breakdown,
    pub(crate) switches: u64,
    pub(crate) visits: duramen_machine::Visits,
    pub(crate) committed: u64,
    pub(crate) off_core: u64,
    pub(crate) drains: u64,
    /// The latency of 99 % of the transactions.
    pub(crate) p99: Duration,
    /// Whole scans through snapshots, and snapshots that were ended before.
    pub(crate) scans: (u64, u64),
}
