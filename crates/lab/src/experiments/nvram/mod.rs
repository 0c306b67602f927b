//! P1 and P5 to P7: the schemes of *Storage Management in the NVRAM Era* beside each other, by the
//! length of a persist barrier.
//!
//! The same experiments run natively and on the simulated processor of the paper. [`Ground`] is
//! where they run, and [`Site`] a workload's databases there, one for each scheme.

mod barriers;
mod break_even;
mod native;
mod recovery;
mod verdicts;

pub(super) use barriers::Barriers;
pub(super) use break_even::BreakEven;
pub(super) use recovery::Recovery;

use std::time::Duration;

use crate::bed::median;
use crate::contender::{Contender, disk_replacement};
use crate::error::Result;
use crate::experiment::{Context, SIMULATED};
use crate::figure::Series;

pub(super) const PAPER: &str = "Storage Management in the NVRAM Era (VLDB 2014)";

/// Recovery that takes no longer counts as near-instant.
const NEAR_INSTANT: Duration = Duration::from_millis(100);

/// Where experiments run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum World {
    Native,
    Simulated,
}

impl World {
    /// Returns one of the names of a claim, natively and simulated.
    const fn id(self, native: &'static str, simulated: &'static str) -> &'static str {
        match self {
            Self::Native => native,
            Self::Simulated => simulated,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Simulated => SIMULATED,
        }
    }

    fn ground(self, context: &Context<'_>) -> Box<dyn Ground> {
        match self {
            Self::Native => Box::new(native::Native::new(context)),
            Self::Simulated => super::simulated::nvram::ground(context),
        }
    }
}

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
    /// Returns the commits per second with barriers of this length and the number of clients that
    /// is best.
    fn throughput(&self, contender: Contender, barrier: Duration) -> Result<f64>;

    /// Runs the workload, interrupts it and recovers.
    fn interrupt(&self, contender: Contender) -> Result<Interrupted>;

    /// Audits all databases.
    fn audit(&self) -> Result<()>;
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

/// Finds the baseline with as many dirty pages as leave recovery near-instant; the fewest, if none
/// does. Each number is a measurement.
fn near_instant(
    context: &mut Context<'_>,
    (workload, site): (&str, &dyn Site),
    dirty_pages: &[usize],
) -> Result<(Contender, String)> {
    let mut runs = Vec::new();
    for &pages in dirty_pages {
        let what = format!("{workload}, recovery with {pages} dirty pages");
        runs.push((pages, context.measure(what, || site.interrupt(disk_replacement(pages)))?));
    }
    let (pages, run) = verdicts::laziest_near_instant(&runs, NEAR_INSTANT);
    let what = format!(
        "{workload}: Disk-Replacement with {pages} dirty pages recovers in {:.0} ms (it had {:.0} at the end).",
        run.recovery * 1e3,
        run.dirty_pages
    );
    Ok((disk_replacement(pages), what))
}

/// Measures contenders with barriers of each of these lengths, in microseconds; returns the medians
/// in thousands of commits per second. The contenders take turns.
fn curves(
    context: &mut Context<'_>,
    (workload, site): (&str, &dyn Site),
    rounds: usize,
    contenders: &[Contender],
    barriers: &[f64],
) -> Result<Vec<Series>> {
    let mut measured = vec![vec![Vec::new(); barriers.len()]; contenders.len()];
    for _ in 0..rounds {
        for (contender, lines) in contenders.iter().zip(&mut measured) {
            for (&barrier, points) in barriers.iter().zip(lines) {
                let what = format!("{workload}, {}, {barrier} us", contender.name);
                let length = Duration::from_nanos((barrier * 1e3) as u64);
                points.push(context.measure(what, || site.throughput(*contender, length))?);
            }
        }
    }
    let series = contenders.iter().zip(measured).map(|(contender, lines)| {
        let points = barriers.iter().copied().zip(lines).map(|(barrier, points)| (barrier, median(points) / 1e3));
        Series::ours(contender.name, points.collect())
    });
    Ok(series.collect())
}
