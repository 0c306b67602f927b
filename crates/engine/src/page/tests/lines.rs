//! Tests of the sets of lines; the model tests check that changes mark what they change.

use proptest::collection::vec;

use super::*;

#[test]
fn ranges_mark_the_lines_that_they_touch() {
    // Ranges and runs as pairs of their ends.
    for (ranges, runs) in [
        (&[][..], &[][..]),
        (&[(0, 0), (64, 64), (PAGE_SIZE, PAGE_SIZE)], &[]),
        (&[(0, 1)], &[(0, 1)]),
        (&[(63, 64)], &[(0, 1)]),
        (&[(63, 65)], &[(0, 2)]),
        (&[(64, 128)], &[(1, 2)]),
        (&[(PAGE_SIZE - 1, PAGE_SIZE)], &[(127, 128)]),
        (&[(0, PAGE_SIZE)], &[(0, 128)]),
        (&[(4095, 4097), (100, 101), (8000, 8100)], &[(1, 2), (63, 65), (125, 127)]),
    ] {
        let mut lines = Lines::NONE;
        ranges.iter().for_each(|&(start, end)| lines.mark(start..end));
        let found: Vec<_> = lines.runs().map(|run| (run.start, run.end)).collect();
        assert_eq!(found, runs, "{ranges:?}");
    }
}

#[test]
fn none_and_all_are_the_extremes() {
    assert!(Lines::NONE.is_empty() && !Lines::ALL.is_empty());
    assert_eq!((Lines::NONE.count(), Lines::ALL.count()), (0, 128));
    assert_eq!(Lines::NONE | Lines::ALL, Lines::ALL);
    assert_eq!(Lines::default(), Lines::NONE);
}

proptest! {
    #[test]
    fn sets_of_lines_match_the_model(ranges in vec((0..=PAGE_SIZE, 0usize..300), 0..6), split in 0usize..6) {
        let (mut lines, mut other) = (Lines::NONE, Lines::NONE);
        let mut expected = [false; PAGE_SIZE / 64];
        for (number, &(start, len)) in ranges.iter().enumerate() {
            let range = start..(start + len).min(PAGE_SIZE);
            range.clone().for_each(|byte| expected[byte / 64] = true);
            let set = if number < split { &mut lines } else { &mut other };
            set.mark(range);
        }
        lines |= other;
        let found: Vec<bool> = (0..128).map(|line| lines.contains(line)).collect();
        prop_assert_eq!(&found[..], &expected[..]);
        prop_assert_eq!(lines.count() as usize, expected.iter().filter(|&&marked| marked).count());
        prop_assert_eq!(lines.is_empty(), !expected.contains(&true));
        let runs: Vec<_> = lines.runs().collect();
        prop_assert!(runs.iter().all(|run| !run.is_empty()));
        prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start), "ascending and maximal: {:?}", runs);
        let in_runs: Vec<bool> = (0..128).map(|line| runs.iter().any(|run| run.contains(&line))).collect();
        prop_assert_eq!(in_runs, found);
    }

    #[test]
    fn changes_of_bitmaps_mark_their_lines(bits in vec(0..bitmap::GROUP_PAGES as u32, 1..200)) {
        let mut page = [0; PAGE_SIZE];
        PageMut::tracked(&mut page, |mut page| {
            init_header(&mut page, PageType::Bitmap, 0, PageId::new(1), TableId::ZERO);
        });
        for bit in bits {
            let value = !bitmap::get(&page, bit);
            PageMut::tracked(&mut page, |mut page| bitmap::set(&mut page, bit, value)).unwrap();
        }
    }
}

/// Changes that mark too little must be noticed, or the tests above show nothing. A planted bug is
/// global to the process, so this test runs alone:
///
/// ```sh
/// RUSTFLAGS="--cfg duramen_planted" cargo test --profile instrumented --target-dir target/planted \
///     -p duramen --lib planted -- --test-threads=1
/// ```
#[cfg(duramen_planted)]
mod planted {
    use duramen_types::planted::{Bug, plant};
    use proptest::test_runner::TestRunner;

    use super::super::model;
    use super::*;

    #[test]
    fn a_forgotten_line_is_noticed() {
        let _planted = plant(Bug::LineForgotten);
        let config = ProptestConfig { cases: 64, failure_persistence: None, max_shrink_iters: 0, ..Default::default() };
        for ty in [PageType::Leaf, PageType::Inner] {
            let outcome = TestRunner::new(config.clone()).run(&vec(model::op(), 1..250), |ops| {
                model::run(ty, ops, Vec::new());
                Ok(())
            });
            assert!(outcome.is_err_and(|failure| failure.to_string().contains("are marked")), "{ty:?}");
        }
    }
}
