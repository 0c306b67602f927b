//! Every planted fault is noticed within 2,000 operations of the tiny machine, and the same runs
//! pass without it.

use duramen_machine::atom::{CrashPlan, Design, Error, Fault, Machine, Plan, Scope, run};

use crate::crashes::{fates, tiny};
use crate::programs::random;

const MOST: u64 = 2000;

/// The seed that notices the fault, and what it saw.
fn notice(fault: Fault, designs: &[Design]) -> Option<(Design, u64, String)> {
    let mut operations = 0;
    for seed in 1.. {
        for &design in designs {
            let mut plan = tiny(design, 100, seed);
            plan.fault = Some(fault);
            plan.crashes = CrashPlan::Events { fates: fates(), stop: true };
            // With a slot for each core, the next update begins sooner after the last.
            plan.machine.log.updates += (seed % 2) as usize;
            if design.is_redo() {
                // Commits that follow closely leave more to retire at a time.
                plan.machine.mesh.jitter = 0;
            }
            match run(&plan, random(4, seed)) {
                Ok(report) if report.crashes.failures > 0 => {
                    let after = operations + report.crashes.operations_before;
                    return Some((design, after, report.crashes.first.unwrap_or_default()));
                }
                Ok(_) => {}
                Err(error @ (Error::Stuck { .. } | Error::Stale { .. })) => {
                    return Some((design, operations, error.to_string()));
                }
                Err(error) => panic!("{fault:?}: {error}"),
            }
            operations += 100;
            if operations >= MOST {
                return None;
            }
        }
    }
    None
}

fn all_are_noticed(faults: &[Fault], designs: &[Design]) {
    let mut missed = Vec::new();
    for &fault in faults {
        match notice(fault, designs) {
            Some((design, operations, what)) => println!("{fault:?}: {design:?}, operation {operations}: {what}"),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "not noticed within {MOST} operations: {missed:?}");
}

#[test]
fn faults_of_the_log_are_noticed() {
    all_are_noticed(&Fault::UNDO[..8], &[Design::AtomOpt, Design::Atom]);
}

#[test]
fn faults_of_regions_are_noticed() {
    all_are_noticed(&Fault::UNDO[8..16], &[Design::AtomOpt, Design::Atom]);
}

#[test]
fn faults_of_overflow_and_recovery_are_noticed() {
    all_are_noticed(&Fault::UNDO[16..], &[Design::AtomOpt, Design::Atom]);
}

#[test]
fn all_faults_of_redo_logging_are_noticed() {
    all_are_noticed(&Fault::REDO, &[Design::Redo]);
}

/// The paper says nothing of commits across controllers. Taken literally, all are told to clear at
/// once, and a crash in between leaves half an update.
#[test]
fn the_literal_commit_loses_atomicity() {
    let mut plan = Plan::new(Machine::named("atom-tiny").unwrap(), Design::Atom, 200);
    plan.scope = Scope::Persistent;
    plan.crashes = CrashPlan::Events { fates: 1, stop: false };
    let phases = run(&plan, random(4, 1)).unwrap().crashes;
    plan.fault = Some(Fault::Broadcast);
    let broadcast = run(&plan, random(4, 1)).unwrap().crashes;
    println!("literal commit: {} of {} crashes left half an update", broadcast.failures, broadcast.crashes);
    assert_eq!(phases.failures, 0);
    assert!(broadcast.failures > 0 && broadcast.failures * 10 < broadcast.crashes, "{broadcast:?}");
}
