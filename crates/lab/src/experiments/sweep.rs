//! Several systems beside each other, over numbers of clients.

use std::time::Duration;

use duramen::{CommitMode, Db};
use duramen_workloads::Workload;

use crate::bed::{Bed, Load, Measured, System};
use crate::bounds::{Check, median};
use crate::error::Result;
use crate::experiment::Context;
use crate::figure::{Axis, Figure, Series, Shape};

/// Transactions that a client has in flight in a controlled run, if its commits do not block it.
///
/// The paper's agent threads run on while their commits harden (Aether, section 4.1), and their use
/// of the processors reaches 64 with 64 of them (section 4.2). Clients that waited for each commit
/// would use less: *n* clients, each with work *w* and latency *l*, use *n w / (w + l)* processors.
const IN_FLIGHT: u32 = 16;

/// What is measured.
pub(super) struct Sweep<'a> {
    pub(super) bed: &'a Bed,
    pub(super) workload: &'a dyn Workload<Db>,
    pub(super) systems: &'a [System],
    pub(super) clients: &'a [u32],
    /// Of the log device.
    pub(super) latency: Duration,
    /// Of one measurement.
    pub(super) time: Duration,
    pub(super) rounds: usize,
}

/// The medians for each system and each number of clients, and what was measured to get them.
pub(super) struct Swept {
    systems: Vec<&'static str>,
    clients: Vec<u32>,
    /// By system, number of clients and round.
    rounds: Vec<Vec<Vec<Measured>>>,
}

impl Sweep<'_> {
    /// Measures. The systems take turns, so that what else the machine does falls on all of them.
    pub(super) fn run(&self, context: &mut Context<'_>) -> Result<Swept> {
        context.expect(self.measurements());
        self.measure(context, 1)
    }

    /// Measures once with one transaction in flight for each client, and once, as a controlled run,
    /// with as many as the paper's clients have.
    pub(super) fn run_with_control(&self, context: &mut Context<'_>) -> Result<[Swept; 2]> {
        context.expect(2 * self.measurements());
        Ok([self.measure(context, 1)?, self.measure(context, IN_FLIGHT)?])
    }

    fn measurements(&self) -> usize {
        self.rounds * self.systems.len() * self.clients.len()
    }

    fn measure(&self, context: &mut Context<'_>, in_flight: u32) -> Result<Swept> {
        let mut rounds = vec![vec![Vec::new(); self.clients.len()]; self.systems.len()];
        for _ in 0..self.rounds {
            for (system, of_system) in self.systems.iter().zip(&mut rounds) {
                let rig = self.bed.open(system, self.latency)?;
                let in_flight = match system.commit {
                    CommitMode::Sync | CommitMode::Elr => 1,
                    CommitMode::Pipelined | CommitMode::Async => in_flight,
                };
                for (&clients, measured) in self.clients.iter().zip(of_system) {
                    let load = Load { clients: clients * in_flight, time: self.time };
                    let what = format!("{}, {clients} clients", system.name);
                    measured.push(context.measure(what, || rig.measure(self.workload, load))?);
                }
                rig.close()?;
            }
        }
        let systems = self.systems.iter().map(|system| system.name).collect();
        Ok(Swept { systems, clients: self.clients.to_vec(), rounds })
    }

    /// How controlled runs differ, for the report.
    pub(super) fn control() -> String {
        format!(
            "In the controlled runs, a client whose commits do not block it has {IN_FLIGHT} transactions in flight. \
             The paper's agent threads go on to other transactions while their commits harden (section 4.1), and 64 of \
             them use 64 processors fully (section 4.2). That clients with one transaction each cannot do: n of them \
             use n w / (w + l) processors, where w is the work of a transaction and l the latency of its commit."
        )
    }

    /// How it was measured, for the report.
    pub(super) fn setting(&self) -> String {
        let rounds = match self.rounds {
            1 => "Each point was measured once".to_owned(),
            rounds => format!(
                "The parts of the finding are medians of what they are in each round. Each point is the median of \
                 {rounds} rounds, in which the systems took turns,"
            ),
        };
        format!(
            "The log device takes {} us. {rounds} for {:.1} s after a warm-up. If a commit blocks its thread, each \
             client has its own thread; otherwise there is one thread for each processor.",
            self.latency.as_micros(),
            self.time.as_secs_f64()
        )
    }
}

impl Swept {
    /// Returns the checks of all rounds, combined.
    pub(super) fn checks(&self, checks: impl Fn(&Swept) -> Vec<Check>) -> Vec<Check> {
        let count = self.rounds.iter().flatten().map(Vec::len).min().unwrap_or(0);
        let round = |number: usize| {
            let of_system = |points: &Vec<Vec<Measured>>| points.iter().map(|point| vec![point[number]]).collect();
            let rounds = self.rounds.iter().map(of_system).collect();
            Self { systems: self.systems.clone(), clients: self.clients.clone(), rounds }
        };
        Check::of_rounds((0..count).map(|number| checks(&round(number))).collect())
    }

    /// `value` of a system, by number of clients.
    pub(super) fn series(&self, system: &str, value: impl Fn(&Measured) -> f64) -> Series {
        let at = self.systems.iter().position(|name| *name == system).expect("a system of this sweep");
        let points = self.clients.iter().zip(&self.rounds[at]).map(|(clients, rounds)| {
            let median = median(rounds.iter().map(&value).collect());
            (f64::from(*clients), median)
        });
        Series::ours(system, points.collect())
    }

    /// The throughput of all systems.
    pub(super) fn throughput(&self, name: &str, title: &str) -> Figure {
        Figure {
            name: name.into(),
            title: title.into(),
            x: Axis::linear("clients"),
            y: Axis::linear("throughput (thousands of transactions/s)"),
            shape: Shape::Lines,
            series: self.all(|measured| measured.throughput / 1e3),
        }
    }

    /// `value` of all systems.
    pub(super) fn all(&self, value: impl Fn(&Measured) -> f64) -> Vec<Series> {
        self.systems.iter().map(|system| self.series(system, &value)).collect()
    }
}

/// Returns the checks of both parts of [`Sweep::run_with_control`].
pub(super) fn checks_with_control(
    [swept, controlled]: &[Swept; 2],
    checks: impl Fn(&Swept) -> Vec<Check>,
) -> Vec<Check> {
    let controlled = controlled
        .checks(&checks)
        .into_iter()
        .map(|check| check.under(format!("with {IN_FLIGHT} transactions in flight for each client")));
    swept.checks(&checks).into_iter().chain(controlled).collect()
}
