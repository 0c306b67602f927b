//! A13: synchronizing the logs after every few insertions, on four sockets.

use std::time::Duration;

use super::machines::{FOUR_SOCKETS, Machine, SERVER};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, SIMULATED};
use crate::experiments::several_logs::{ABOUT_ROUNDS, EVERY, Load, World, cost, name};
use crate::figure::{Axis, Figure, Series, Shape};

/// What synchronizing costs.
pub(crate) struct Synchronization;

impl Experiment for Synchronization {
    fn about(&self) -> About {
        About {
            id: "A13m",
            title: "a log for each socket, synchronized with the others after every few insertions of 120 bytes",
            source: "Aether (VLDB Journal 2012), section 7.5.2",
            world: SIMULATED,
            found: "synchronizing the logs after every few insertions costs less than 5 %",
            wanted: "less than 5 % with most threads on four sockets, for each number of insertions",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some("a synchronization fetches lines that other sockets have changed since")
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let threads = context.pick(&[1, 4, 16, 32, 64, 128, 256][..], &[4, 64, 256], &[8]);
        let machines = context.pick(&[FOUR_SOCKETS, SERVER][..], &[FOUR_SOCKETS], &[FOUR_SOCKETS]);
        context.expect(machines.len() * EVERY.len() * 2 * threads.len());
        let (mut figures, mut checks) = (Vec::new(), Vec::new());
        for &machine in machines {
            let mut series = Vec::new();
            for every in EVERY {
                let pair = [false, true].map(|synchronizes| {
                    let points: Result<_> = threads
                        .iter()
                        .map(|&threads| {
                            let load = load(machine, threads, every, synchronizes);
                            let what = format!("{}, {threads} threads, {}", machine.name, name(every, synchronizes));
                            Ok((threads as f64, context.measure(what, || simulate(machine, load))? / 1e6))
                        })
                        .collect();
                    points.map(|points| Series::ours(name(every, synchronizes), points))
                });
                let [without, with] = pair;
                let (without, with) = (without?, with?);
                if machine == FOUR_SOCKETS {
                    let what = format!("cost of a synchronization every {every} insertions, most threads");
                    checks.push(Check::new(what, "less than 0.05", cost(&without, &with), Bound::AtMost(0.05)));
                }
                series.extend([without, with]);
            }
            figures.push(Figure {
                name: machine.figure("A13m"),
                title: format!("Insertions into a log per socket, {}", machine.title),
                x: Axis::log("threads"),
                y: Axis::log("insertions (millions/s)"),
                shape: Shape::Lines,
                series,
            });
        }
        let setting = machines.iter().map(|machine| {
            format!(
                "Simulated machine: {}. The logs alone, one for each of its {} sockets, with the buffer `hybrid` \
                 and no flushes; each point is a millisecond of virtual time. {ABOUT_ROUNDS}",
                machine.name, machine.sockets
            )
        });
        Ok(Findings { setting: setting.collect(), figures, checks })
    }
}

fn load(machine: Machine, threads: usize, every: u64, synchronizes: bool) -> Load {
    Load {
        threads,
        logs: machine.sockets as u16,
        by_node: true,
        every,
        synchronizes,
        ring_bytes: 32 << 20,
        world: World::Simulated,
        time: Duration::from_millis(1),
    }
}

#[cfg(duramen_machine)]
fn simulate(machine: Machine, load: Load) -> Result<f64> {
    crate::simulation::run(machine.name, &machine.plan()?, move || load.rate())
}

#[cfg(not(duramen_machine))]
fn simulate(machine: Machine, _: Load) -> Result<f64> {
    Err(crate::error::Error::NotSimulated { machine: machine.name })
}
