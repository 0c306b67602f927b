//! A sample of crashes and of isolation in every combination of log layout, device and persistence domain.

use std::time::Duration;

use duramen_test_support::announced_seed;
use duramen_torture::crash::Only;
use duramen_torture::harness::{Budget, Tally};
use duramen_torture::matrix::Combination;
use duramen_torture::parts::{self, Extent, Part};
use duramen_torture::workloads;

/// Time of each combination.
const TIME: Duration = Duration::from_millis(300);

fn sample(suite: &str, parts: &[Part]) {
    let seed = announced_seed(&format!("matrix of {suite}"));
    let mut all = Tally::default();
    for (seed, combination) in (seed..).zip(Combination::all()) {
        let tally = combination.run(parts, seed, Extent::Brief, &Budget::lasting(TIME), &mut |_, _| {});
        println!("{combination}: {tally}");
        assert!(tally.checks > 0, "{combination} was not tried");
        all.add(tally);
    }
    all.assert_clean(500);
}

#[test]
fn crashes() {
    sample("crashes", &parts::crashes(&workloads::all(), None, Only::default()));
}

#[test]
fn isolation() {
    sample("isolation", &parts::isolation(None));
}
