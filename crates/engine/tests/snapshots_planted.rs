//! What goes wrong for snapshots with each planted bug, and does not without:
//!
//! ```text
//! RUSTFLAGS="--cfg duramen_planted" cargo test --profile instrumented --target-dir target/planted \
//!     -p duramen --test snapshots_planted
//! ```
#![cfg(not(any(duramen_loom, duramen_machine)))]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use duramen::{Db, Options, Snapshot, Table};
use duramen_types::planted::Bug;

fn database() -> (Db, Table) {
    let options = Options { snapshots: true, version_bytes: Some(64 << 20), ..Options::small() };
    let db = Db::in_memory(options).unwrap();
    let table = db.create_table("t").unwrap();
    (db, table)
}

fn put(db: &Db, table: &Table, key: &[u8], value: &[u8]) {
    db.run(|txn| txn.put(table, key, value)).unwrap();
}

fn is(snapshot: &Snapshot, table: &Table, key: &[u8], value: &[u8]) {
    assert_eq!(snapshot.get(table, key).unwrap().as_deref(), Some(value));
}

fn what_is_not_committed_is_not_shown() {
    let (db, table) = database();
    put(&db, &table, b"key", b"old");
    let snapshot = db.snapshot().unwrap();
    let mut txn = db.begin();
    txn.put(&table, b"key", b"new").unwrap();
    is(&snapshot, &table, b"key", b"old");
}

fn what_is_running_is_not_shown() {
    let (db, table) = database();
    put(&db, &table, b"key", b"old");
    let mut txn = db.begin();
    txn.put(&table, b"key", b"new").unwrap();
    is(&db.snapshot().unwrap(), &table, b"key", b"old");
}

fn what_is_committed_later_is_not_shown() {
    let (db, table) = database();
    put(&db, &table, b"key", b"old");
    let snapshot = db.snapshot().unwrap();
    put(&db, &table, b"key", b"new");
    is(&snapshot, &table, b"key", b"old");
}

fn what_is_aborted_is_not_shown() {
    let (db, table) = database();
    put(&db, &table, b"key", b"committed");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let mut txn = db.begin();
                txn.put(&table, b"key", b"abandoned").unwrap();
                txn.abort().unwrap();
            }
        });
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // Without the bug this ends soon; with it, the search may take longer.
            let end = Instant::now() + Duration::from_secs(if duramen_types::planted::BUILT_IN { 20 } else { 1 });
            let snapshot = db.snapshot().unwrap();
            while Instant::now() < end {
                for _ in 0..100 {
                    is(&snapshot, &table, b"key", b"committed");
                }
            }
        }));
        stop.store(true, Ordering::Relaxed);
        seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn deleted_records_keep_their_places() {
    let (db, table) = database();
    let key = |number: u32| format!("key{number:05}").into_bytes();
    for number in 0..100 {
        put(&db, &table, &key(2 * number), &[1; 50]);
    }
    let snapshot = db.snapshot().unwrap();
    for number in 0..100 {
        db.run(|txn| txn.delete(&table, &key(2 * number))).unwrap();
    }
    // The leaf is full again and again.
    for number in 0..100 {
        put(&db, &table, &key(2 * number + 1), &[2; 500]);
    }
    assert_eq!(snapshot.scan(&table, ..).count(), 100);
}

fn large_values_stay() {
    let (db, table) = database();
    put(&db, &table, b"key", &[1; 50_000]);
    let snapshot = db.snapshot().unwrap();
    for number in 2..20 {
        put(&db, &table, b"key", &[number; 50_000]);
    }
    is(&snapshot, &table, b"key", &[1; 50_000]);
}

fn hot_records_keep_their_history() {
    let (db, table) = database();
    let mut snapshots = Vec::new();
    for number in 0..100_u32 {
        put(&db, &table, b"key", &number.to_le_bytes());
        if number % 17 == 0 {
            snapshots.push((db.snapshot().unwrap(), number));
        }
    }
    for (snapshot, number) in snapshots {
        is(&snapshot, &table, b"key", &number.to_le_bytes());
    }
}

fn ranges_that_are_filled_again_keep_their_history() {
    let (db, table) = database();
    (0..50).for_each(|number| put(&db, &table, &[number], b"old"));
    let snapshot = db.snapshot().unwrap();
    db.run(|txn| txn.delete_range(&table, ..)).unwrap();
    (0..50).step_by(2).for_each(|number| put(&db, &table, &[number], b"new"));
    (0..50).for_each(|number| is(&snapshot, &table, &[number], b"old"));
}

const CASES: [(Bug, fn()); 9] = [
    (Bug::VersionPushedLate, what_is_not_committed_is_not_shown),
    (Bug::KeptVersionsForgotten, what_is_running_is_not_shown),
    (Bug::CommitPublishedEarly, what_is_committed_later_is_not_shown),
    (Bug::LeafNotRevalidated, what_is_aborted_is_not_shown),
    (Bug::GhostPurgedUnderSnapshot, deleted_records_keep_their_places),
    (Bug::ChainFreedUnderSnapshot, large_values_stay),
    (Bug::HorizonBeyondDurable, what_is_committed_later_is_not_shown),
    (Bug::PrunedTooMuch, hot_records_keep_their_history),
    (Bug::RunValueLost, ranges_that_are_filled_again_keep_their_history),
];

/// One test, because a planted bug affects the whole process.
#[test]
fn planted_bugs_show_and_nothing_shows_without() {
    assert_eq!(CASES.map(|(bug, _)| bug), Bug::SNAPSHOTS);
    for (bug, case) in CASES {
        #[cfg(duramen_planted)]
        {
            let _planted = duramen_types::planted::plant(bug);
            assert!(std::panic::catch_unwind(case).is_err(), "{bug:?} goes unnoticed");
        }
        if !duramen_types::planted::BUILT_IN || bug != Bug::LeafNotRevalidated {
            case();
        }
    }
}
