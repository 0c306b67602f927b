//! A sample of the interleavings of the known anomalies, of random programs, and of random histories.

use std::time::Duration;

use duramen::Isolation;
use duramen_torture::harness::{Budget, Coverage, Tally};
use duramen_torture::isolation::anomalies::{self, Setting};
use duramen_torture::isolation::lists::{Shape, try_history};
use duramen_torture::rng::announced_seed;

fn sample_anomalies(isolation: Isolation) {
    let seed = announced_seed(&format!("anomalies under {isolation}"));
    let budget = Budget::lasting(Duration::from_secs(40));
    let setting = Setting { isolation, coverage: Coverage::Sample(14) };
    let mut tally = Tally::default();
    for anomaly in anomalies::all() {
        if isolation == Isolation::Serializable || anomaly.under_read_committed {
            tally.add(anomalies::try_anomaly(&anomaly, setting, seed, &budget));
        }
    }
    println!("{isolation}: {tally}");
    tally.assert_clean(50);
}

#[test]
fn anomalies_under_serializable() {
    sample_anomalies(Isolation::Serializable);
}

#[test]
fn anomalies_under_read_committed() {
    sample_anomalies(Isolation::ReadCommitted);
}

#[test]
fn random_programs() {
    let seed = announced_seed("random programs");
    let tally = anomalies::try_random(80, Isolation::Serializable, seed, &Budget::lasting(Duration::from_secs(20)));
    println!("random programs: {tally}");
    tally.assert_clean(50);
}

#[test]
fn random_histories() {
    let seed = announced_seed("random histories");
    let budget = Budget::lasting(Duration::from_secs(25));
    let mut tally = Tally::default();
    while tally.points < 30 && !budget.is_spent(&tally) {
        let seed = seed + tally.points;
        tally.points += 1;
        match try_history(Shape::of(seed), seed) {
            Ok(transactions) => tally.checks += transactions,
            Err(failure) => tally.failures.push(failure),
        }
    }
    println!("histories: {tally}");
    tally.assert_clean(200);
}
