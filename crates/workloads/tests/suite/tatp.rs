//! TATP from population to audit, through the public interface.

use duramen::Db;
use duramen_workloads::tatp::row::{forwarding_key, kind_key, sub_nbr, subscriber_key};
use duramen_workloads::tatp::{Mix, Scale, Tables};
use duramen_workloads::{LoadOutcome, Tatp, Workload};

use crate::common::{assert_problem, assert_sound, open, run_transactions, tamper};

const SCALE: Scale = Scale { subscribers: 700 };

fn loaded(home: &tempfile::TempDir, mix: Mix, skew: Option<f64>) -> (Db, Tatp) {
    let db = open(home);
    let tatp = Tatp::new(SCALE, mix, skew);
    assert!(matches!(tatp.load(&db, &mut |_| {}).unwrap(), LoadOutcome::Loaded { rows: 7_000..8_200 }));
    (db, tatp)
}

#[test]
fn load_run_audit() {
    let home = tempfile::tempdir().unwrap();
    let (db, tatp) = loaded(&home, Mix::Standard, None);
    assert_sound(&tatp, &db);
    let report = run_transactions(&db, &tatp, 5, 6_000);
    assert_eq!(report.committed, 6_000);
    assert_sound(&tatp, &db);
    // The shares of transactions that find what they look for, in percent, by the population's
    // rules.
    for (tally, percent) in report.tallies.iter().zip([100.0, 16.0, 62.5, 62.5, 100.0, 31.25, 31.25]) {
        assert!(tally.done > 60, "{:?}", report.tallies);
        let found = (tally.done - tally.declined) as f64 / tally.done as f64 * 100.0;
        assert!((found - percent).abs() < 20.0, "{:?}", report.tallies);
    }
}

#[test]
fn single_transactions_and_skewed_ones_run() {
    let home = tempfile::tempdir().unwrap();
    let (db, tatp) = loaded(&home, Mix::UpdateLocation, None);
    let report = run_transactions(&db, &tatp, 4, 500);
    assert_eq!((report.tallies[4].done, report.tallies[4].declined), (500, 0));
    assert_sound(&tatp, &db);
    for (mix, skew) in [(Mix::GetSubscriber, None), (Mix::Standard, Some(0.0)), (Mix::Standard, Some(1.5))] {
        let tatp = Tatp::new(SCALE, mix, skew);
        assert_eq!(tatp.load(&db, &mut |_| {}).unwrap(), LoadOutcome::Present);
        run_transactions(&db, &tatp, 4, 500);
        assert_sound(&tatp, &db);
    }
}

#[test]
fn the_audit_notices_planted_damage() {
    let home = tempfile::tempdir().unwrap();
    let (db, tatp) = loaded(&home, Mix::Standard, None);
    run_transactions(&db, &tatp, 2, 50);
    let tables = Tables::open(&db).unwrap();
    let cases: [(&duramen::Table, Vec<u8>, &str); 4] = [
        (&tables.subscriber, subscriber_key(5).to_vec(), "there are 699 subscribers"),
        (&tables.sub_nbr, sub_nbr(9).to_vec(), "the index"),
        (&tables.access_info, Vec::new(), "access info"),
        (&tables.special_facility, Vec::new(), "special facility"),
    ];
    for (table, key, words) in cases {
        let key = if key.is_empty() { db.begin().scan(table, ..).next().unwrap().unwrap().0 } else { key };
        let before = db.begin().get(table, &key).unwrap().unwrap();
        tamper(&db, |txn| assert!(txn.delete(table, &key).unwrap()));
        assert_problem(&tatp, &db, words);
        tamper(&db, |txn| txn.put(table, &key, &before[1..]).unwrap());
        assert!(!tatp.audit(&db).unwrap().is_ok(), "{words}: too short");
        let mut wrong = before.clone();
        *wrong.last_mut().unwrap() ^= 1;
        wrong[0] ^= 1;
        tamper(&db, |txn| txn.put(table, &key, &wrong).unwrap());
        assert!(!tatp.audit(&db).unwrap().is_ok(), "{words}: changed");
        tamper(&db, |txn| txn.put(table, &key, &before).unwrap());
        assert_sound(&tatp, &db);
    }
    tamper(&db, |txn| txn.put(&tables.access_info, &kind_key(701, 1), &[0; 10]).unwrap());
    assert_problem(&tatp, &db, "subscriber 701");
    tamper(&db, |txn| assert!(txn.delete(&tables.access_info, &kind_key(701, 1)).unwrap()));

    let nobody = forwarding_key(701, 1, 8);
    tamper(&db, |txn| txn.put(&tables.call_forwarding, &nobody, b"\x0a123456789012345").unwrap());
    assert_problem(&tatp, &db, "refers to special facility 1 of subscriber 701");
    assert_problem(&tatp, &db, "the transactions must have left");
    tamper(&db, |txn| assert!(txn.delete(&tables.call_forwarding, &nobody).unwrap()));
    assert_sound(&tatp, &db);
    let first = db.begin().scan(&tables.call_forwarding, ..).next().unwrap().unwrap().0;
    tamper(&db, |txn| assert!(txn.delete(&tables.call_forwarding, &first).unwrap()));
    assert_problem(&tatp, &db, "the transactions must have left");
}
