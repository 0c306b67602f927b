//! A sample of crashes and of isolation in combinations of log layout, device and persistence
//! domain: in every twelfth one, from a random one on, and in the long suite in all of them.

use std::time::Duration;

use duramen_test_support::{announced_seed, is_long};
use duramen_torture::crash::Only;
use duramen_torture::harness::{Budget, Tally};
use duramen_torture::matrix::Combination;
use duramen_torture::parts::{self, Extent, Part};
use duramen_torture::workloads;

/// Time of each combination.
const TIME: Duration = Duration::from_millis(100);
const LONG_TIME: Duration = Duration::from_millis(200);

fn sample(suite: &str, parts: &[Part]) {
    let seed = announced_seed(&format!("matrix of {suite}"));
    let mut all = Tally::default();
    let (first, step, time) = if is_long() { (0, 1, LONG_TIME) } else { (seed as usize % 12, 12, TIME) };
    for (seed, combination) in (seed..).zip(Combination::all()).skip(first).step_by(step) {
        let tally = combination.run(parts, seed, Extent::Brief, &Budget::lasting(time), &mut |_, _| {});
        println!("{combination}: {tally}");
        assert!(tally.checks > 0, "{combination} was not tried");
        all.add(tally);
    }
    all.assert_clean(if is_long() { 500 } else { 35 });
}

#[test]
fn crashes() {
    sample("crashes", &parts::crashes(&workloads::all(), None, Only::default()));
}

#[test]
fn isolation() {
    sample("isolation", &parts::isolation(None));
}
