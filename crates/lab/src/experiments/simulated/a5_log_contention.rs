//! A5: what the log buffer's mutex costs a whole transaction.

use std::time::Duration;

use duramen::{CommitMode, InsertDesign};

use super::buffer::{FOUR_SOCKETS, NIAGARA};
use super::engine::{Bench, Curves, Populated, Setup, setting};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, SIMULATED};

/// Contention for the log buffer under load.
pub(crate) struct LogContention;

const LATENCY: Duration = Duration::from_micros(100);

const SETUPS: [Setup; 3] = [
    Setup { name: "mutex", commit: CommitMode::Pipelined, insert: InsertDesign::Mutex, latency: LATENCY },
    Setup { name: "CD", commit: CommitMode::Pipelined, insert: InsertDesign::Hybrid, latency: LATENCY },
    Setup { name: "reserved", commit: CommitMode::Pipelined, insert: InsertDesign::Reserved, latency: LATENCY },
];

impl Experiment for LogContention {
    fn about(&self) -> About {
        About {
            id: "A5",
            title: "where the time goes under load with the mutex buffer, TATP UpdateLocation",
            source: "Aether (VLDB Journal 2012), Fig. 8",
            world: SIMULATED,
            found: "with early lock release and flush pipelining, and the mutex for a log buffer, contention for the log takes more \
                    than 35 % of the time at high load",
            wanted: "at least 30 % of the time at 60 contexts or more",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "the insertion lock of this log loses less under contention than the mutex of the paper. Who finds it taken pauses, so that the holder inserts several records in a row; alone on the same machine it falls to no less than 0.85 of its peak with 64 threads (A6). A lock that puts its waiters to sleep spent 0.29 of the time here",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let bench = |machine, in_flight| Bench {
            machine,
            workload: "tatp:update-location",
            scale: 1,
            rows_per_unit: context.pick(10_000, 2_000, 500),
            in_flight,
            time: Duration::from_millis(context.pick(10, 4, 2)),
        };
        let four_sockets = Bench { time: Duration::from_millis(context.pick(4, 2, 1)), ..bench(FOUR_SOCKETS, 16) };
        let bench = bench(NIAGARA, 64);
        let threads = context.pick(&[1, 4, 8, 16, 32, 48, 60, 64][..], &[1, 16, 60], &[1, 60]);
        let more_threads = context.pick(&[1, 4, 16, 32, 64, 128, 192, 256][..], &[4, 64, 256], &[8]);
        context.expect((threads.len() + more_threads.len()) * SETUPS.len());

        let populated = Populated::new(context, bench)?;
        let curves = Curves::measure(context, &populated, &SETUPS, threads)?;
        let mut figures = Vec::new();
        for (at, name) in ["A5", "A5-CD", "A5-reserved"].into_iter().enumerate() {
            figures.push(curves.breakdown(at, name, "TATP UpdateLocation, Niagara II"));
        }
        figures.push(curves.throughput("A5-throughput", "TATP UpdateLocation, Niagara II"));

        let populated = Populated::new(context, four_sockets)?;
        let more = Curves::measure(context, &populated, &SETUPS, more_threads)?;
        for (at, name) in ["A5-sockets-mutex", "A5-sockets-CD", "A5-sockets-reserved"].into_iter().enumerate() {
            figures.push(more.breakdown(at, name, "TATP UpdateLocation, four Niagara II"));
        }
        figures.push(more.throughput("A5-sockets-throughput", "TATP UpdateLocation, four Niagara II"));

        let high = curves.last(0).shares.log_contention;
        let checks = vec![Check::new(
            "share of the time spent waiting at the log buffer, mutex, at most threads",
            "above 0.35",
            high,
            Bound::AtLeast(0.3),
        )];
        Ok(Findings { setting: vec![setting(&bench), setting(&four_sockets)], figures, checks })
    }
}
