//! What the experiments measure.

use std::time::Duration;

use super::ground::{Site, Speed};
use super::verdicts::{laziest_near_instant, prompt};
use crate::bed::median;
use crate::contender::{Contender, disk_replacement};
use crate::error::Result;
use crate::experiment::Context;
use crate::figure::Series;

/// Recovery that takes no longer counts as near-instant.
const NEAR_INSTANT: Duration = Duration::from_millis(100);

/// Finds the baseline with as many dirty pages as leave recovery near-instant; the fewest, if none
/// does. Each number is a measurement.
pub(super) fn near_instant(
    context: &mut Context<'_>,
    (workload, site): (&str, &dyn Site),
    dirty_pages: &[usize],
) -> Result<(Contender, String)> {
    let mut runs = Vec::new();
    for &pages in dirty_pages {
        let what = format!("{workload}, recovery with {pages} dirty pages");
        runs.push((pages, context.measure(what, || site.interrupt(disk_replacement(pages)))?));
    }
    let (pages, run) = laziest_near_instant(&runs, NEAR_INSTANT);
    let what = format!(
        "{workload}: Disk-Replacement with {pages} dirty pages recovers in {:.0} ms (it had {:.0} at the end).",
        run.recovery * 1e3,
        run.dirty_pages
    );
    Ok((disk_replacement(pages), what))
}

/// Measures contenders with barriers of each of these lengths, in microseconds; returns the medians
/// in thousands of commits per second. The contenders take turns.
pub(super) fn curves(
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

/// Measures one point so often, with each setting of clients; returns the medians of the settings
/// that answer soonest at about the best throughput.
pub(super) fn quickest(
    context: &mut Context<'_>,
    what: String,
    rounds: usize,
    mut measure: impl FnMut() -> Result<Vec<Speed>>,
) -> Result<Speed> {
    let mut speeds = Vec::new();
    for _ in 0..rounds {
        speeds.push(prompt(&context.measure(what.clone(), &mut measure)?));
    }
    let of = |value: fn(&Speed) -> f64| median(speeds.iter().map(value).collect());
    Ok(Speed { throughput: of(|speed| speed.throughput), p95: of(|speed| speed.p95) })
}
