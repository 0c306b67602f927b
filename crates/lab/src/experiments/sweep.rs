//! Several systems beside each other, over numbers of clients.

use std::time::Duration;

use duramen::Db;
use duramen_workloads::Workload;

use crate::bed::{Bed, Load, Measured, System, median};
use crate::error::Result;
use crate::experiment::Context;
use crate::figure::Series;

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
        context.expect(self.rounds * self.systems.len() * self.clients.len());
        let mut rounds = vec![vec![Vec::new(); self.clients.len()]; self.systems.len()];
        for _ in 0..self.rounds {
            for (system, of_system) in self.systems.iter().zip(&mut rounds) {
                let rig = self.bed.open(system, self.latency)?;
                for (&clients, measured) in self.clients.iter().zip(of_system) {
                    let load = Load { clients, time: self.time };
                    let what = format!("{}, {clients} clients", system.name);
                    measured.push(context.measure(what, || rig.measure(self.workload, load))?);
                }
                rig.close()?;
            }
        }
        let systems = self.systems.iter().map(|system| system.name).collect();
        Ok(Swept { systems, clients: self.clients.to_vec(), rounds })
    }

    /// How it was measured, for the report.
    pub(super) fn setting(&self) -> String {
        let rounds = match self.rounds {
            1 => "Each point was measured once".to_owned(),
            rounds => format!("Each point is the median of {rounds} rounds, in which the systems took turns,"),
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
    /// `value` of a system, by number of clients.
    pub(super) fn series(&self, system: &str, value: impl Fn(&Measured) -> f64) -> Series {
        let at = self.systems.iter().position(|name| *name == system).expect("a system of this sweep");
        let points = self.clients.iter().zip(&self.rounds[at]).map(|(clients, rounds)| {
            let median = median(rounds.iter().map(&value).collect());
            (f64::from(*clients), median)
        });
        Series::ours(system, points.collect())
    }

    /// `value` of all systems.
    pub(super) fn all(&self, value: impl Fn(&Measured) -> f64) -> Vec<Series> {
        self.systems.iter().map(|system| self.series(system, &value)).collect()
    }
}
