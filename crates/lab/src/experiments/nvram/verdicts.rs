//! When the findings count as reproduced.

use std::time::Duration;

use super::ground::{Interrupted, Speed};
use crate::bounds::{Bound, Check};
use crate::contender::{DISK_REPLACEMENT, GROUP_COMMIT, GROUP_COMMIT_FEWEST, IN_PLACE, IN_PLACE_FEWEST};
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

/// Returns the highest throughput of the runs that recover in at most a tenth of the time of
/// `lazy`; 0 if there is none.
pub(super) fn best_of_quick_recovery(lazy: &Interrupted, wal: &[Interrupted]) -> f64 {
    let quick = wal.iter().filter(|run| run.recovery <= 0.1 * lazy.recovery).map(|run| run.throughput);
    quick.fold(0.0, f64::max)
}

/// P1: `lazy` writes pages only when it must, `wal` are runs with ever fewer dirty pages.
pub(super) fn recovery(lazy: &Interrupted, wal: &[Interrupted], in_place: &Interrupted) -> Vec<Check> {
    let best = best_of_quick_recovery(lazy, wal);
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

/// P5g: at both ends of the axis.
pub(super) fn with_fewest_barriers(workload: &str, curves: &[Series]) -> Vec<Check> {
    let at_zero = |name: &str, paper: &str| {
        let what = format!("{workload}: {name} by Disk-Replacement that recovers within 100 ms, at 0 us");
        Check::new(what, paper, ratio_at_zero(curves, name), Bound::AtLeast(1.2))
    };
    let at_ends = |name: &str| {
        let points = named(curves, name).map_or(&[][..], |series| &series.points);
        points.first().zip(points.last()).map_or((0.0, 0.0), |(first, last)| (first.1, last.1))
    };
    let ((batched, batched_late), in_place_late) = (at_ends(GROUP_COMMIT_FEWEST.name), at_ends(IN_PLACE_FEWEST.name).1);
    let mut checks = vec![
        at_zero(IN_PLACE_FEWEST.name, "up to 1.5"),
        at_zero(GROUP_COMMIT_FEWEST.name, "not stated"),
        Check::new(
            format!("{workload}: throughput of Group Commit at 5 us by that at 0 us"),
            "a small decrease",
            ratio(batched_late, batched),
            Bound::AtLeast(0.9),
        ),
    ];
    if workload == "tpcb" {
        checks.push(Check::new(
            "tpcb: Group Commit by In-Place, at 5 us",
            "not stated",
            ratio(batched_late, in_place_late),
            Bound::AtLeast(3.0),
        ));
    }
    checks
}

/// Returns the throughput of a contender by that of Disk-Replacement, at barriers that take no
/// time.
pub(super) fn ratio_at_zero(curves: &[Series], name: &str) -> f64 {
    let at_zero = |name: &str| named(curves, name).and_then(|series| series.at(0.0)).unwrap_or_default();
    ratio(at_zero(name), at_zero(DISK_REPLACEMENT))
}

/// P6: how group commit stands to barriers and to the other schemes. All curves have the same
/// lengths of barriers.
pub(super) fn group_commit(workload: &str, curves: &[Series]) -> Vec<Check> {
    let of = |name: &str| named(curves, name).map_or(&[][..], |series| &series.points);
    let batched = of(GROUP_COMMIT.name);
    let least = batched.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let (first, last) = (batched.first().copied().unwrap_or_default(), batched.last().copied().unwrap_or_default());
    let at_end = |name: &str| of(name).last().map_or(0.0, |point| point.1);
    let rivals = [IN_PLACE.name, DISK_REPLACEMENT].map(at_end);
    let longest = last.0;
    vec![
        Check::new(
            format!("{workload}: least throughput of Group Commit up to {longest} us by that at 0 us"),
            "a small decrease",
            if batched.is_empty() { 0.0 } else { ratio(least, first.1) },
            Bound::AtLeast(0.85),
        ),
        Check::new(
            format!("{workload}: barrier from which Group Commit is ahead of In-Place (us)"),
            "1",
            break_even_of(curves, IN_PLACE.name, GROUP_COMMIT.name),
            Bound::Within(0.01, longest - 0.01),
        ),
        Check::new(
            format!("{workload}: Group Commit by the better of In-Place and Disk-Replacement, at {longest} us"),
            "up to 1.5",
            ratio(last.1, rivals[0].max(rivals[1])),
            Bound::AtLeast(1.0),
        ),
    ]
}

/// Of P8, a period of batches and what it gives.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct BatchPoint {
    pub(super) millis: f64,
    pub(super) speed: Speed,
}

/// Of P8, the speeds at one length of barriers. Throughputs have the same unit.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Trade {
    pub(super) in_place: Speed,
    pub(super) disk_replacement: Speed,
    /// In rising order of the period.
    pub(super) batches: Vec<BatchPoint>,
}

/// P8: longer batches trade latency for throughput.
pub(super) fn trade(workload: &str, trade: &Trade) -> Vec<Check> {
    let by_shortest = |value: fn(&Speed) -> f64| match trade.batches[..] {
        [shortest, .., longest] => ratio(value(&longest.speed), value(&shortest.speed)),
        _ => 0.0,
    };
    vec![
        Check::new(
            format!("{workload}: throughput with the longest batches by that with the shortest"),
            "above 1",
            by_shortest(|speed| speed.throughput),
            Bound::AtLeast(1.0),
        ),
        Check::new(
            format!("{workload}: 95th-percentile latency with the longest batches by that with the shortest"),
            "above 1",
            by_shortest(|speed| speed.p95),
            Bound::AtLeast(2.0),
        ),
    ]
}

/// Returns what group commit pays in latency for the throughput of the better of the other schemes,
/// in a sentence.
pub(super) fn price(workload: &str, trade: &Trade) -> String {
    let (name, rival) = if trade.in_place.throughput > trade.disk_replacement.throughput {
        ("In-Place", trade.in_place)
    } else {
        ("Disk-Replacement", trade.disk_replacement)
    };
    match trade.batches.iter().find(|batch| batch.speed.throughput >= rival.throughput) {
        Some(BatchPoint { millis, speed }) => format!(
            "{workload}: Group Commit reaches the throughput of {name} with batches of {millis} ms, at {:.1} times \
             its 95th-percentile latency ({:.3} ms by {:.3} ms; the paper: no more than 5 times).",
            ratio(speed.p95, rival.p95),
            speed.p95 * 1e3,
            rival.p95 * 1e3
        ),
        None => format!("{workload}: Group Commit reaches the throughput of {name} with none of these periods."),
    }
}

/// Returns the speed with the shortest latency among those with about the best throughput.
///
/// # Panics
/// When there are no speeds.
pub(super) fn prompt(speeds: &[Speed]) -> Speed {
    /// This share of the best throughput is about the best.
    const ABOUT: f64 = 0.95;
    let best = speeds.iter().map(|speed| speed.throughput).fold(0.0, f64::max);
    let good = speeds.iter().filter(|speed| speed.throughput >= ABOUT * best);
    *good.min_by(|a, b| a.p95.total_cmp(&b.p95)).expect("there is a setting of clients")
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

/// As [`break_even`], of the curves with these names; 0 if one of them is missing.
pub(super) fn break_even_of(curves: &[Series], falling: &str, flat: &str) -> f64 {
    named(curves, falling).zip(named(curves, flat)).map_or(0.0, |(falling, flat)| break_even(falling, flat))
}

/// Returns a quotient; zero if there is nothing to divide by, which no bound here holds for.
pub(super) fn ratio(value: f64, by: f64) -> f64 {
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

    #[test]
    fn group_commit_must_be_flat_cross_in_place_and_be_the_best_in_the_end() {
        let curve = |name: &str, ys: [f64; 3]| Series::ours(name, [0.0, 1.0, 5.0].into_iter().zip(ys).collect());
        let verdict = |disk: [f64; 3], in_place: [f64; 3], batched: [f64; 3]| {
            let curves =
                [curve(DISK_REPLACEMENT, disk), curve(IN_PLACE.name, in_place), curve(GROUP_COMMIT.name, batched)];
            Verdict::of(&group_commit("TPC-B", &curves))
        };
        let (disk, in_place, batched) = ([40.0, 39.0, 38.0], [60.0, 55.0, 20.0], [55.0, 55.0, 53.0]);
        assert_eq!(verdict(disk, in_place, batched), Verdict::Reproduced);
        let failed = |verdict: Verdict, part: &str| {
            assert!(matches!(verdict.reasons(), [reason] if reason.contains(part)), "{part}: {verdict}");
        };
        failed(verdict(disk, in_place, [55.0, 46.0, 50.0]), "least throughput");
        failed(verdict(disk, [54.0, 50.0, 20.0], batched), "ahead of In-Place");
        failed(verdict([40.0, 50.0, 60.0], in_place, batched), "better of");
        let never = verdict(disk, [60.0, 59.0, 58.0], batched);
        assert_eq!(never.reasons().len(), 2, "it is neither ahead of In-Place anywhere nor the best: {never}");
        assert_eq!(Verdict::of(&group_commit("TPC-B", &[])).reasons().len(), 3, "nothing measured proves nothing");
    }

    fn speed(throughput: f64, p95: f64) -> Speed {
        Speed { throughput, p95 }
    }

    #[test]
    fn longer_batches_must_have_more_throughput_and_latency() {
        let with = |batches: &[(f64, f64, f64)]| Trade {
            in_place: speed(0.4, 0.0002),
            disk_replacement: speed(0.6, 0.001),
            batches: batches.iter().map(|&(millis, tps, p95)| BatchPoint { millis, speed: speed(tps, p95) }).collect(),
        };
        let good = with(&[(0.1, 0.5, 0.0003), (1.0, 0.7, 0.002), (20.0, 0.9, 0.03)]);
        assert_eq!(Verdict::of(&trade("TPC-B", &good)), Verdict::Reproduced);
        let said = price("TPC-B", &good);
        assert!(said.contains("Disk-Replacement with batches of 1 ms, at 2.0 times"), "{said}");
        let slower = with(&[(0.1, 0.5, 0.0003), (20.0, 0.4, 0.03)]);
        assert_eq!(Verdict::of(&trade("TPC-B", &slower)).reasons().len(), 1);
        assert!(price("TPC-B", &slower).contains("none of these periods"));
        let alike = with(&[(0.1, 0.5, 0.03), (20.0, 0.5, 0.04)]);
        assert_eq!(Verdict::of(&trade("TPC-B", &alike)).reasons().len(), 1);
        assert_eq!(Verdict::of(&trade("TPC-B", &with(&[(1.0, 0.5, 0.03)]))).reasons().len(), 2);
    }

    #[test]
    fn the_promptest_of_about_the_best_settings_is_taken() {
        let speeds = [speed(10.0, 0.001), speed(96.0, 0.002), speed(100.0, 0.009)];
        assert_eq!(prompt(&speeds), speeds[1]);
        assert_eq!(prompt(&speeds[..1]), speeds[0]);
        assert_eq!(prompt(&[speeds[0], speeds[2]]), speeds[2]);
    }
}
