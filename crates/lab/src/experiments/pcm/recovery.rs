//! C4: recovery.

use super::setup::{EVERY, Setup, has_room_for_pages};
use super::{LOGGING, LOGGING_PAGES, WORLD};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Series, Shape};
use crate::pcm::{Devices, Granularity, Logging, Op, Recovery, Scheme, Tuple, Xid, replay};

/// Section 3.2 of the paper.
pub(crate) struct Recovering;

impl Experiment for Recovering {
    fn about(&self) -> About {
        About {
            id: "C4",
            title: "PCMLogging recovers by a scan of the PCM",
            source: "PCMLogging (CIKM 2011), section 3.2",
            world: WORLD,
            found: "recovery discards what transactions in progress stored in the PCM, and needs no log, no checkpoint \
                    and no disk I/O",
            wanted: "no disk I/O, and every page and tuple in the PCM as it was committed last, when the power fails \
                     in the middle of transactions",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let accesses = context.pick(200_000, 20_000, 500);
        let setup = Setup::new(context)?;
        let mut kinds = Vec::new();
        for (&size, &bytes) in setup.sizes.iter().zip(&setup.bytes) {
            kinds.push((Granularity::Tuple, size, bytes));
            if has_room_for_pages(bytes) {
                kinds.push((Granularity::Page, size, bytes));
            }
        }
        context.expect(1 + kinds.len());
        let mut crashes = Vec::new();
        let mut times = [(LOGGING, Vec::new()), (LOGGING_PAGES, Vec::new())];
        for (granularity, size, bytes) in kinds {
            let what = format!("crashes with PCM of {:.2} %, {granularity:?}", size * 100.0);
            let found = context.measure(what, || {
                let logging = Logging::new(&setup.trace, setup.frames, granularity, bytes).with_contents();
                let mut crashing = Crashing { logging, every: accesses, accesses: 0, recoveries: Vec::new() };
                replay(&setup.trace, &mut crashing, setup.clients, EVERY);
                Ok(crashing.recoveries)
            })?;
            let longest = found.iter().map(|recovery| recovery.time).max().unwrap_or(0);
            times[usize::from(granularity == Granularity::Page)].1.push((size * 100.0, longest as f64 / 1e6));
            crashes.extend(found);
        }
        let sum = |of: fn(&Recovery) -> u64| crashes.iter().map(of).sum::<u64>();
        let checks = vec![
            Check::new("disk I/Os during recovery", "0", sum(|crash| crash.disk_ios) as f64, Bound::AtMost(0.0)),
            Check::new(
                "pages and tuples in the PCM that are not as they were committed last",
                "0",
                sum(|crash| crash.wrong) as f64,
                Bound::AtMost(0.0),
            ),
            Check::new(
                "versions of interrupted transactions that recovery discarded, per crash",
                "not given",
                sum(|crash| crash.discarded) as f64 / crashes.len() as f64,
                Bound::AtLeast(1.0),
            ),
        ];
        let mut series: Vec<Series> = times.into_iter().map(|(name, points)| Series::ours(name, points)).collect();
        series.retain(|series| !series.points.is_empty());
        let figure = Figure {
            name: "C4".into(),
            title: "Longest scan of the PCM after a crash".into(),
            x: Axis::linear("PCM (% of the data)"),
            y: Axis::linear("time of the PCM (ms)"),
            shape: Shape::Lines,
            series,
        };
        let setting = vec![
            setup.describe(),
            format!(
                "The power failed {} times, every {accesses} accesses; the PCM then held {:.0} versions on average.",
                crashes.len(),
                sum(|crash| crash.slots) as f64 / crashes.len() as f64
            ),
        ];
        Ok(Findings { setting, figures: vec![figure], checks })
    }
}

/// A scheme that tries recovery now and then, and goes on.
struct Crashing {
    logging: Logging,
    every: u64,
    accesses: u64,
    recoveries: Vec<Recovery>,
}

impl Scheme for Crashing {
    fn lock_of(&self, tuple: Tuple) -> u32 {
        self.logging.lock_of(tuple)
    }

    fn access(&mut self, txn: Xid, op: Op, devices: &mut Devices) {
        self.logging.access(txn, op, devices);
        self.accesses += 1;
        if self.accesses.is_multiple_of(self.every) {
            self.recoveries.extend(self.logging.recovery());
        }
    }

    fn commit(&mut self, txn: Xid, devices: &mut Devices) {
        self.logging.commit(txn, devices);
    }

    fn abort(&mut self, txn: Xid, devices: &mut Devices) {
        self.logging.abort(txn, devices);
    }

    fn has_been_full(&self) -> bool {
        self.logging.has_been_full()
    }
}
