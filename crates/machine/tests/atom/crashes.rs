//! T10: after a crash at any moment, recovery leaves every line as it was committed.

use duramen_machine::atom::{CrashPlan, Design, Machine, Plan, Report, Scope, StoreWidth, run};
use duramen_test_support::{announced_seed, is_long};

use crate::programs::{random, resume, updates};

pub(crate) const UNDO: [Design; 3] = [Design::Base, Design::Atom, Design::AtomOpt];

/// A run of the tiny machine with crashes after every event.
pub(crate) fn tiny(design: Design, operations: u64, seed: u64) -> Plan {
    let mut plan = Plan::new(Machine::named("atom-tiny").unwrap(), design, operations);
    plan.seed = seed;
    plan.scope = if seed.is_multiple_of(2) { Scope::All } else { Scope::Persistent };
    plan.stores = [StoreWidth::Half, StoreWidth::Pair, StoreWidth::Word][(seed % 3) as usize];
    plan.crashes = CrashPlan::Events { fates: fates(), stop: false };
    plan
}

/// Crashes after each event, which differ in the fates of writes under way.
pub(crate) fn fates() -> u32 {
    if is_long() { 4 } else { 1 }
}

fn mended(plan: &Plan, seed: u64) -> Report {
    let report = run(plan, random(4, seed)).unwrap();
    let crashes = &report.crashes;
    assert_eq!((crashes.failures, &crashes.first), (0, &None), "{:?}, seed {seed}", plan.design);
    assert!(crashes.crashes >= report.events.min(1000), "{crashes:?}");
    assert_eq!(updates(&report.image), report.total.commits, "every update is there, once");
    report
}

#[test]
fn every_event_of_the_tiny_machine_is_mended() {
    let seed = announced_seed("crashes of the tiny machine");
    let operations = if is_long() { 2000 } else { 60 };
    for design in UNDO {
        for seed in [seed, seed + 1] {
            mended(&tiny(design, operations, seed), seed);
        }
    }
}

#[test]
fn redo_logs_are_mended_too() {
    let seed = announced_seed("crashes of redo designs");
    let operations = if is_long() { 2000 } else { 60 };
    for design in [Design::Redo, Design::RedoTwoChannels] {
        mended(&tiny(design, operations, seed), seed);
    }
}

#[test]
fn crashes_meet_all_rare_cases() {
    let (mut base, mut opt) = (tiny(Design::Base, 300, 2), tiny(Design::AtomOpt, 300, 2));
    for plan in [&mut base, &mut opt] {
        plan.crashes = CrashPlan::Events { fates: 1, stop: false };
    }
    for plan in [base, opt] {
        let report = mended(&plan, 2);
        let (probes, counters) = (report.crashes.probes, report.total);
        println!("{:?}: {probes:?} {counters:?}", plan.design);
        for (what, count) in [
            ("records with fewer than seven entries are undone", probes.partial_records),
            ("a line is logged twice", probes.logged_twice),
            ("records of full buckets are undone", probes.from_full_buckets),
            ("phases differ", probes.phases_differ),
            ("headers are torn", probes.torn_headers),
            ("recovery is cut off", probes.cut),
            ("buckets are switched", counters.bucket_switches),
            ("updates wait for slots", counters.slot_waits),
            ("the log grows", counters.log_growths),
        ] {
            assert!(count > 0, "{:?}: {what}", plan.design);
        }
        if plan.design == Design::AtomOpt {
            assert!(probes.sourced > 0, "source-logged entries are undone");
            assert!(counters.blocked > 0 && counters.forced > 0, "data writes force headers out");
            assert!(counters.forwarded > 0, "reads are answered from queues");
        }
    }
}

#[test]
fn random_cycles_of_table_i_are_mended() {
    let seed = announced_seed("crashes of Table I's machine");
    let most = if is_long() { 1_000_000 } else { 10_000 };
    let mut crashes = 0;
    for (index, design) in UNDO.into_iter().enumerate() {
        let mut plan = Plan::new(Machine::named("atom-events").unwrap(), design, most / 50);
        plan.seed = seed + index as u64;
        plan.crashes = CrashPlan::Cycles { gap: 40, most: most / 2, keep: 1000 };
        let report = run(&plan, random(32, plan.seed)).unwrap();
        assert_eq!((report.crashes.failures, &report.crashes.first), (0, &None), "{design:?}, seed {}", plan.seed);
        crashes += report.crashes.crashes;
        assert!(!report.crashes.images.is_empty());
        for image in report.crashes.images {
            let before = updates(&image);
            plan.crashes = CrashPlan::None;
            plan.operations = 100;
            let after = run(&plan, resume(32, seed, image)).unwrap();
            assert_eq!(updates(&after.image), before + after.total.commits, "a machine boots from what is left");
        }
    }
    assert!(crashes >= most, "{crashes} crashes only");
}

#[test]
fn a_run_depends_on_its_plan_alone() {
    let plan = tiny(Design::AtomOpt, 50, 4);
    let mut without = plan.clone();
    without.crashes = CrashPlan::None;
    let (one, other) = (run(&plan, random(4, 4)).unwrap(), run(&without, random(4, 4)).unwrap());
    assert_eq!((one.digest, one.counters, one.cycles), (other.digest, other.counters, other.cycles));
    let another = run(&without, random(4, 5)).unwrap();
    assert_ne!(one.digest, another.digest);
}
