//! YCSB from population to audit, through the public interface.

use duramen_workloads::ycsb::{Mix, Scale, TABLE, row};
use duramen_workloads::{LoadOutcome, Workload, Ycsb};

use crate::common::{assert_problem, assert_sound, open, run_transactions, tamper};

const SCALE: Scale = Scale { records: 500 };

#[test]
fn every_mix_runs_and_is_sound() {
    let home = tempfile::tempdir().unwrap();
    let db = open(&home);
    // For each mix the shares of reads, updates, inserts, scans and reads with updates, in percent.
    let mixes = [
        (Mix::A, [50, 50, 0, 0, 0]),
        (Mix::B, [95, 5, 0, 0, 0]),
        (Mix::C, [100, 0, 0, 0, 0]),
        (Mix::D, [95, 0, 5, 0, 0]),
        (Mix::E, [0, 0, 5, 95, 0]),
        (Mix::F, [50, 0, 0, 0, 50]),
    ];
    let mut outcome = LoadOutcome::Loaded { rows: 500 };
    for (mix, shares) in mixes {
        let ycsb = Ycsb::new(SCALE, mix, None);
        assert_eq!(ycsb.load(&db, &mut |_| {}).unwrap(), outcome);
        outcome = LoadOutcome::Present;
        let report = run_transactions(&db, &ycsb, 4, 1_000);
        for (tally, share) in report.tallies.iter().zip(shares) {
            assert!(tally.done.abs_diff(share * 10) < 60, "{mix:?}: {:?}", report.tallies);
        }
        assert_sound(&ycsb, &db);
    }
    let uniform = Ycsb::new(SCALE, Mix::E, Some(0.0));
    run_transactions(&db, &uniform, 4, 400);
    assert_sound(&uniform, &db);
}

#[test]
fn the_audit_notices_planted_damage() {
    let home = tempfile::tempdir().unwrap();
    let db = open(&home);
    let ycsb = Ycsb::new(SCALE, Mix::D, None);
    ycsb.load(&db, &mut |_| {}).unwrap();
    assert_sound(&ycsb, &db);
    run_transactions(&db, &ycsb, 2, 300);
    assert_sound(&ycsb, &db);
    let table = db.open_table(TABLE).unwrap();
    let cases = [
        (row::key(7), row::row(8, 1).to_vec(), "record 8 is stored under another record's key"),
        (row::key(9), row::row(9, 1)[..900].to_vec(), "is damaged"),
        (row::key(9), [row::row(9, 1)[..50].to_vec(), row::row(9, 2)[50..].to_vec()].concat(), "is damaged"),
    ];
    for (key, wrong, words) in cases {
        let before = db.begin().get(&table, &key).unwrap().unwrap();
        tamper(&db, |txn| txn.update(&table, &key, &wrong).unwrap());
        assert_problem(&ycsb, &db, words);
        tamper(&db, |txn| txn.update(&table, &key, &before).unwrap());
    }
    tamper(&db, |txn| assert!(txn.delete(&table, &row::key(500)).unwrap()));
    assert_problem(&ycsb, &db, "inserts were acknowledged");
    tamper(&db, |txn| assert!(txn.delete(&table, &row::key(3)).unwrap()));
    assert_problem(&ycsb, &db, "the population has 499 records");
}
