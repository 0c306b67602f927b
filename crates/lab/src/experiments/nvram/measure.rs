//! What the experiments measure.

use std::time::Duration;

use super::ground::{Ground, Interrupted, Run, Site, Speed};
use super::verdicts::{laziest_near_instant, prompt};
use crate::bounds::median;
use crate::contender::{Clients, Contender, disk_replacement};
use crate::error::Result;
use crate::experiment::Context;
use crate::figure::Series;
use crate::kept::Kept;

/// Recovery that takes no longer counts as near-instant.
const NEAR_INSTANT: Duration = Duration::from_millis(100);

thread_local! {
    /// By the ground and the workload.
    static NEAR_INSTANT_OF: Kept<(Vec<String>, String), (Contender, String)> = const { Kept::new() };
}

/// Tries the baseline with the ground's numbers of dirty pages, which fall, until recovery is
/// near-instant; returns it with the fewest, if it never is. Other experiments get the same answer.
pub(super) fn near_instant(
    context: &mut Context<'_>,
    ground: &dyn Ground,
    (workload, site): (&str, &dyn Site),
) -> Result<(Contender, String)> {
    let key = (ground.setting(), workload.to_owned());
    if let Some(kept) = NEAR_INSTANT_OF.with(|of| of.find(&key)) {
        for _ in ground.dirty_pages() {
            context.measure(format!("{workload}, recovery: measured before"), || Ok(()))?;
        }
        return Ok(kept);
    }
    let mut runs: Vec<(usize, Interrupted)> = Vec::new();
    for &pages in ground.dirty_pages() {
        let what = format!("{workload}, recovery with {pages} dirty pages");
        if runs.last().is_some_and(|(_, run)| run.recovery <= NEAR_INSTANT.as_secs_f64()) {
            // Fewer dirty pages are not asked for.
            context.measure(what, || Ok(()))?;
            continue;
        }
        runs.push((pages, context.measure(what, || site.interrupt(disk_replacement(pages), Run::Short))?));
    }
    let (pages, run) = laziest_near_instant(&runs, NEAR_INSTANT);
    let mut what = format!(
        "{workload}: Disk-Replacement with {pages} dirty pages recovers in {:.0} ms (it had {:.0} at the end).",
        run.recovery * 1e3,
        run.dirty_pages
    );
    if run.recovery > NEAR_INSTANT.as_secs_f64() {
        what.push_str(" None of the settings recovers within 100 ms; this one counts as if it did.");
    }
    let found = (disk_replacement(pages), what);
    NEAR_INSTANT_OF.with(|of| of.keep(key, found.clone()));
    Ok(found)
}

/// Which settings of clients count in [`curves`], for the page.
pub(super) const SETTINGS: &str = "The best setting of clients counts; between the ends of the axis, the best of those \
                                   that are best at an end.";

/// Returns how many measurements [`curves`] makes.
pub(super) fn points(rounds: usize, contenders: usize, barriers: &[f64]) -> usize {
    contenders * (2 + rounds * barriers.len())
}

/// Measures contenders with barriers of each of these lengths, in microseconds; returns the medians
/// in thousands of commits per second. The contenders take turns. Each has the settings of clients
/// that are best with the first and with the last length.
pub(super) fn curves(
    context: &mut Context<'_>,
    (workload, site): (&str, &dyn Site),
    rounds: usize,
    contenders: &[Contender],
    barriers: &[f64],
) -> Result<Vec<Series>> {
    let length = |barrier: f64| Duration::from_nanos((barrier * 1e3) as u64);
    let (first, last) = (barriers[0], barriers[barriers.len() - 1]);
    let mut settings = Vec::new();
    for &contender in contenders {
        let mut best: Vec<Clients> = Vec::new();
        for barrier in [first, last] {
            let what = format!("{workload}, {}, {barrier} us, settings of clients", contender.name);
            let all = site.clients(contender);
            if let [only] = all {
                best = context.measure(what, || Ok(vec![*only]))?;
                continue;
            }
            let speeds = context.measure(what, || site.speeds(contender, length(barrier), all))?;
            let ahead = all[fastest(&speeds)];
            if !best.contains(&ahead) {
                best.push(ahead);
            }
        }
        settings.push(best);
    }
    let mut measured = vec![vec![Vec::new(); barriers.len()]; contenders.len()];
    for _ in 0..rounds {
        for ((&contender, clients), lines) in contenders.iter().zip(&settings).zip(&mut measured) {
            for (&barrier, points) in barriers.iter().zip(lines) {
                let what = format!("{workload}, {}, {barrier} us", contender.name);
                let speeds = context.measure(what, || site.speeds(contender, length(barrier), clients))?;
                points.push(speeds[fastest(&speeds)].throughput);
            }
        }
    }
    let series = contenders.iter().zip(measured).map(|(contender, lines)| {
        let points = barriers.iter().copied().zip(lines).map(|(barrier, points)| (barrier, median(points) / 1e3));
        Series::ours(contender.name, points.collect())
    });
    Ok(series.collect())
}

/// Returns the position of the speed with the best throughput.
fn fastest(speeds: &[Speed]) -> usize {
    let best = speeds.iter().enumerate().max_by(|(_, a), (_, b)| a.throughput.total_cmp(&b.throughput));
    best.expect("there is a setting of clients").0
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
