//! A sample of the interleavings of the known anomalies, of random programs, and of random
//! histories.

use std::time::Duration;

use duramen::Isolation;
use duramen_test_support::announced_seed;
use duramen_torture::circumstances::Circumstances;
use duramen_torture::harness::{Budget, Coverage, Tally};
use duramen_torture::isolation::anomalies::{self, Setting};
use duramen_torture::isolation::interleave::End;
use duramen_torture::isolation::lists::{Shape, try_history};
use duramen_torture::isolation::serial::serial_order;
use duramen_torture::world::LogEnd;

fn sample_anomalies(isolation: Isolation) {
    let seed = announced_seed(&format!("anomalies under {isolation}"));
    let budget = Budget::lasting(Duration::from_secs(40));
    let setting = Setting { isolation, coverage: Coverage::Sample(30), log: LogEnd::Files };
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
    let tally = anomalies::try_random(250, Setting::RANDOM, seed, &Budget::lasting(Duration::from_secs(20)));
    println!("random programs: {tally}");
    tally.assert_clean(50);
}

#[test]
fn random_histories() {
    let seed = announced_seed("random histories");
    let budget = Budget::lasting(Duration::from_secs(25));
    let mut tally = Tally::default();
    while tally.points < 80 && !budget.is_spent(&tally) {
        let seed = seed + tally.points;
        tally.add(Tally::of(try_history(Shape::of(seed), seed, Circumstances::default())));
    }
    println!("histories: {tally}");
    tally.assert_clean(200);
}

/// Two transactions read a record and then write it: in this order one must wait, and one must give
/// way.
#[test]
fn waits_and_deadlocks_happen() {
    let anomalies = anomalies::all();
    let lost_update = anomalies.iter().find(|anomaly| anomaly.name == "P4 lost update").expect("it is there");
    let interleaver = anomalies::database(1, LogEnd::Files).expect("a fresh database").patient();
    let before = lost_update.table.iter().copied().collect();
    let execution = interleaver
        .run(&lost_update.programs, &before, &[0, 1, 0, 1, 0, 1], Isolation::Serializable)
        .expect("the programs end");
    assert!(execution.waits > 0, "{execution}");
    assert_eq!(execution.ends.iter().filter(|end| **end == End::Victim).count(), 1, "{execution}");
    assert!(serial_order(&lost_update.programs, &execution).is_some(), "{execution}");
}

/// Under read committed the same order loses an update, which the judge of serializability must
/// see.
#[test]
fn the_judge_sees_a_lost_update() {
    let anomalies = anomalies::all();
    let lost_update = anomalies.iter().find(|anomaly| anomaly.name == "P4 lost update").expect("it is there");
    let interleaver = anomalies::database(1, LogEnd::Files).expect("a fresh database").patient();
    let before = lost_update.table.iter().copied().collect();
    let execution = interleaver
        .run(&lost_update.programs, &before, &[0, 1, 0, 0, 1, 1], Isolation::ReadCommitted)
        .expect("the programs end");
    assert_eq!(serial_order(&lost_update.programs, &execution), None, "{execution}");
}
