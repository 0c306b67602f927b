//! When the findings count as reproduced.

use std::time::Duration;

use super::ground::Interrupted;
use crate::bounds::{Bound, Check};
use crate::contender::{DISK_REPLACEMENT, IN_PLACE};
use crate::figure::Series;

/// Returns the run with the most dirty pages whose recovery is near-instant; if none is, the one
/// with the fewest dirty pages. `runs` are in falling order of dirty pages.
///
/// # Panics
/// When there are no runs.
pub(super) fn laziest_near_instant(runs: &[(usize, Interrupted)], limit: Duration) -> (usize, Interrupted) {
    let quick = runs.iter().find(|(_, run)| run.recovery <= limit.as_secs_f64());
    *quick.or(runs.last()).expect("there is a run")
}

/// P1: `lazy` writes pages only when it must, `wal` are runs with ever fewer dirty pages.
pub(super) fn recovery(lazy: &Interrupted, wal: &[Interrupted], in_place: &Interrupted) -> Vec<Check> {
    let quick = wal.iter().filter(|run| run.recovery <= 0.1 * lazy.recovery).map(|run| run.throughput);
    let best = quick.fold(0.0, f64::max);
    vec![
        Check::new(
            "throughput of the best with at most a tenth of the lazy recovery time, by the lazy throughput",
            "near 1",
            ratio(best, lazy.throughput),
            Bound::AtLeast(0.7),
        ),
        Check::new(
            "in place, without a log, by that best",
            "1.5",
            ratio(in_place.throughput, best),
            Bound::AtLeast(1.2),
        ),
    ]
}

/// P5: at barriers that take no time.
pub(super) fn at_no_barrier(workload: &str, curves: &[Series]) -> Vec<Check> {
    vec![Check::new(
        format!("{workload}: In-Place by Disk-Replacement that recovers within 100 ms, at 0 us"),
        "up to 1.5",
        ratio_at_zero(curves, IN_PLACE.name),
        Bound::AtLeast(1.2),
    )]
}

/// Returns the throughput of a contender by that of Disk-Replacement, at barriers that take no
/// time.
pub(super) fn ratio_at_zero(curves: &[Series], name: &str) -> f64 {
    let at_zero = |name: &str| named(curves, name).and_then(|series| series.at(0.0)).unwrap_or_default();
    ratio(at_zero(name), at_zero(DISK_REPLACEMENT))
}

/// Of P7, for each workload: its name, and the break-even of its writing transaction and of its
/// complete mix, in microseconds.
pub(super) type Row = (&'static str, f64, f64);

/// P7: the order of the break-evens. `rows` are TATP, TPC-B and TPC-C.
pub(super) fn break_evens(rows: &[Row; 3]) -> Vec<Check> {
    let [tatp, tpcb, tpcc] = rows;
    let ahead = |of: fn(&Row) -> f64| of(tatp) - of(tpcb).max(of(tpcc));
    let mut checks = vec![
        Check::new(
            "break-even of TATP less the larger of TPC-B's and TPC-C's, single transaction (us)",
            "8.8",
            ahead(|row| row.1),
            Bound::AtLeast(0.01),
        ),
        Check::new(
            "break-even of TATP less the larger of TPC-B's and TPC-C's, mix (us)",
            "21.4",
            ahead(|row| row.2),
            Bound::AtLeast(0.01),
        ),
    ];
    let paper = ["13", "0", "1.2"];
    checks.extend(rows.iter().zip(paper).map(|((workload, single, mix), paper)| {
        let what = format!("{workload}: break-even of the mix less that of the single transaction (us)");
        Check::new(what, paper, mix - single, Bound::AtLeast(0.0))
    }));
    checks
}

/// Returns the place from which `falling` is below `flat`: 0 if it begins below, and the end of
/// what was measured if it never is.
pub(super) fn break_even(falling: &Series, flat: &Series) -> f64 {
    let ahead: Vec<(f64, f64)> = falling.points.iter().filter_map(|&(x, y)| Some((x, y - flat.at(x)?))).collect();
    if ahead.first().is_none_or(|first| first.1 <= 0.0) {
        return 0.0;
    }
    let crossing = ahead.windows(2).find(|pair| pair[1].1 <= 0.0);
    crossing.map_or(ahead.last().map_or(0.0, |last| last.0), |pair| {
        let ((x, before), (to, behind)) = (pair[0], pair[1]);
        x + (to - x) * before / (before - behind)
    })
}

/// Returns a quotient; zero if there is nothing to divide by, which no bound here holds for.
fn ratio(value: f64, by: f64) -> f64 {
    if by > 0.0 { value / by } else { 0.0 }
}

/// Returns the series with this name.
pub(super) fn named<'a>(series: &'a [Series], name: &str) -> Option<&'a Series> {
    series.iter().find(|series| series.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Verdict;

    fn run(throughput: f64, recovery: f64) -> Interrupted {
        Interrupted { throughput, recovery, page_flushes: 0.0, dirty_pages: 0.0 }
    }

    #[test]
    fn a_break_even_lies_between_the_points_around_it() {
        let line = |points: &[(f64, f64)]| Series::ours("", points.to_vec());
        let flat = line(&[(0.0, 10.0), (1.0, 10.0), (3.0, 10.0)]);
        assert_eq!(break_even(&line(&[(0.0, 20.0), (1.0, 12.0), (3.0, 8.0)]), &flat), 2.0);
        assert_eq!(break_even(&line(&[(0.0, 9.0), (1.0, 12.0), (3.0, 8.0)]), &flat), 0.0);
        assert_eq!(break_even(&line(&[(0.0, 20.0), (1.0, 20.0), (3.0, 11.0)]), &flat), 3.0);
        assert_eq!(break_even(&line(&[]), &flat), 0.0);
    }

    #[test]
    fn the_papers_own_figures_pass_and_others_do_not() {
        let paper = [("TATP", 12.0, 25.0), ("TPC-B", 3.2, 3.2), ("TPC-C", 2.4, 3.6)];
        assert_eq!(Verdict::of(&break_evens(&paper)), Verdict::Reproduced);
        let other = [("TATP", 2.0, 2.0), ("TPC-B", 3.2, 3.2), ("TPC-C", 2.4, 2.0)];
        assert_eq!(Verdict::of(&break_evens(&other)).reasons().len(), 3);
        let nowhere = [("TATP", 0.0, 0.0), ("TPC-B", 0.0, 0.0), ("TPC-C", 0.0, 0.0)];
        assert_eq!(Verdict::of(&break_evens(&nowhere)).reasons().len(), 2);

        let curve = |name: &str, at_zero| Series::ours(name, vec![(0.0, at_zero), (5.0, 1.0)]);
        let curves = |in_place| vec![curve(DISK_REPLACEMENT, 40.0), curve(IN_PLACE.name, in_place)];
        assert_eq!(Verdict::of(&at_no_barrier("TPC-B", &curves(60.0))), Verdict::Reproduced);
        assert!(matches!(Verdict::of(&at_no_barrier("TPC-B", &curves(44.0))), Verdict::NotReproduced(_)));
        assert!(matches!(Verdict::of(&at_no_barrier("TPC-B", &[])), Verdict::NotReproduced(_)));
    }

    #[test]
    fn recovery_must_shrink_without_losing_much_throughput() {
        let lazy = run(50_000.0, 20.0);
        let wal = [run(49_000.0, 9.0), run(40_000.0, 1.0), run(30_000.0, 0.1)];
        assert_eq!(Verdict::of(&recovery(&lazy, &wal, &run(60_000.0, 0.0))), Verdict::Reproduced);
        assert_eq!(Verdict::of(&recovery(&lazy, &wal, &run(41_000.0, 0.0))).reasons().len(), 1);
        assert_eq!(Verdict::of(&recovery(&lazy, &wal[..1], &run(60_000.0, 0.0))).reasons().len(), 2);
    }

    #[test]
    fn the_laziest_run_within_the_limit_is_taken() {
        let runs = [(1000, run(3.0, 0.5)), (100, run(2.0, 0.09)), (10, run(1.0, 0.01))];
        let limit = Duration::from_millis(100);
        assert_eq!(laziest_near_instant(&runs, limit).0, 100);
        assert_eq!(laziest_near_instant(&runs[..1], limit).0, 1000);
    }
}
