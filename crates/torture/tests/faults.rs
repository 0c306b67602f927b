//! A sample of I/O errors and full disks over every workload, and of damage to closed databases.

use std::time::Duration;

use duramen_io::Fault;
use duramen_test_support::{Rng, announced_seed, is_long, search_time};
use duramen_torture::faults::Case;
use duramen_torture::harness::{Budget, Coverage, Tally};
use duramen_torture::{corruption, faults, misplaced, workloads};

/// The checks that a suite makes at least, however busy the machine is.
fn least() -> u64 {
    if is_long() { 50 } else { 25 }
}

/// Each test takes every third workload, so that they run side by side.
fn io_errors(third: usize) {
    let mut rng = Rng::new(announced_seed("I/O errors"));
    let mut tally = Tally::default();
    for workload in workloads::all().into_iter().skip(third).step_by(3) {
        let budget = Budget::lasting(search_time(Duration::from_millis(500)));
        let some = faults::sweep(workload, rng.bits() >> 32, Coverage::Sample(40), &budget, &mut |_, _| {});
        println!("{}: {some}", workload.name());
        tally.add(some);
    }
    tally.assert_clean(if is_long() { 40 } else { 20 });
}

#[test]
fn io_errors_first_third() {
    io_errors(0);
}

#[test]
fn io_errors_second_third() {
    io_errors(1);
}

#[test]
fn io_errors_last_third() {
    io_errors(2);
}

/// The system drops data when a sync fails, but shows it to the restarted process.
#[test]
fn restarts_after_dropped_data() {
    let mut rng = Rng::new(announced_seed("restarts after dropped data"));
    let budget = Budget::lasting(search_time(Duration::from_millis(1500))).with_checks(least());
    let mut tally = Tally::default();
    let all = workloads::all();
    while tally.points < 200 && !budget.is_spent(&tally) {
        let workload = *rng.pick(&all);
        let fault = *rng.pick(&[Fault::Eio, Fault::FailedSync]);
        let case = Case { fault, op: rng.within(0..300) as u64, persistent: rng.percent(50) };
        tally.points += 1;
        match faults::try_restart_after_dropped_data(workload, rng.bits() >> 32, case) {
            Ok(checks) => tally.checks += checks,
            Err(failure) => tally.failures.push(failure),
        }
    }
    println!("restarts: {tally}");
    tally.assert_clean(least());
}

fn damage(was_closed: bool) {
    let seed = announced_seed("damage");
    let budget = Budget::lasting(search_time(Duration::from_millis(1500))).with_checks(least());
    let tally = corruption::sweep(seed, was_closed, Coverage::Sample(250), &budget, &mut |_, _| {});
    println!("damage: {tally}");
    tally.assert_clean(least());
}

#[test]
fn damage_to_closed_databases() {
    damage(true);
}

#[test]
fn damage_to_the_log_of_crashed_databases() {
    damage(false);
}

/// Transactions larger than the log are refused, and nothing worse happens.
#[test]
fn full_logs() {
    let mut rng = Rng::new(announced_seed("full logs"));
    let mut refused = 0;
    for name in ["steal", "interleaved", "overflow", "full-pages"] {
        let workload = workloads::named(name).expect("the workload exists");
        for kib in [512, 768, 1024] {
            match faults::try_full_log(workload, rng.bits() >> 32, kib << 10) {
                Ok((_, times)) => refused += times,
                Err(failure) => panic!("{failure}"),
            }
        }
    }
    assert!(refused > 0, "no transaction was too large");
}

/// What is whole and in the wrong place: files, rings and pages of another time, of another
/// database, or of each other.
#[test]
fn misplaced_files_rings_and_pages() {
    let seed = announced_seed("misplaced");
    let budget = Budget::lasting(search_time(Duration::from_millis(1500))).with_checks(least());
    let tally = misplaced::sweep(seed, 10, 130, &budget, &mut |_, _| {});
    println!("misplaced: {tally}");
    tally.assert_clean(least());
}
