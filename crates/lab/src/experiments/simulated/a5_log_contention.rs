//! A5: what the log buffer's mutex costs a whole transaction.

use super::curves::Sweep;
use super::engine::{BUFFERS, setting};
use super::machines::NIAGARA;
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, SIMULATED};

/// Contention for the log buffer under load.
pub(crate) struct LogContention;

impl Experiment for LogContention {
    fn about(&self) -> About {
        About {
            id: "A5",
            title: "where the time goes under load with the mutex buffer, TATP UpdateLocation",
            source: "Aether (VLDB Journal 2012), Fig. 8",
            world: SIMULATED,
            found: "with early lock release and flush pipelining, and the mutex for a log buffer, contention for \
                    the log takes more than 35 % of the time at high load",
            wanted: "at least 30 % of the time at 60 contexts or more",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "with 64 threads nearly a third of the time is idle, while all clients wait for their commits, and a \
             profile of the execution time, as the paper's is, has no such part: of the time in which the threads run, \
             contention for the log takes 0.37. On four of these machines, with 64 threads, it takes 0.43 of all time",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let sweeps = Sweep::all(context, "tatp:update-location", (1, 1), context.pick(10_000, 2_000, 500));
        context.expect(sweeps.iter().map(|sweep| sweep.threads.len() * BUFFERS.len()).sum());
        let (mut figures, mut high) = (Vec::new(), f64::NAN);
        for sweep in &sweeps {
            let machine = sweep.bench.machine;
            let curves = sweep.measure(context, &BUFFERS)?;
            if machine == NIAGARA {
                high = curves.last(0).shares.log_contention;
            }
            let (name, title) = (machine.figure("A5"), format!("TATP UpdateLocation, {}", machine.title));
            figures.append(&mut curves.breakdowns(&name, &title));
            figures.push(curves.throughput(&format!("{name}-throughput"), &title));
        }
        let checks = vec![Check::new(
            "share of the time spent waiting at the log buffer, mutex, at most threads",
            "above 0.35",
            high,
            Bound::AtLeast(0.3),
        )];
        Ok(Findings { setting: sweeps.iter().map(|sweep| setting(&sweep.bench)).collect(), figures, checks })
    }
}
