//! A sample of archives, backups and restores through crashes.

use std::time::Duration;

use duramen_test_support::{announced_seed, search_time};
use duramen_torture::harness::{Budget, Tally};
use duramen_torture::restore::try_history;

#[test]
fn databases_are_restored_through_crashes() {
    let seed = announced_seed("restore");
    let budget = Budget::lasting(search_time(Duration::from_secs(3)));
    let mut tally = Tally::default();
    for seed in seed..seed + 200 {
        if budget.is_spent(&tally) {
            break;
        }
        tally.points += 1;
        match try_history(seed) {
            Ok(checks) => tally.checks += checks,
            Err(failure) => tally.failures.push(failure),
        }
    }
    println!("{tally}");
    tally.assert_clean(3);
}
