//! The cleaner keeps a number of dirty pages, and recovery repeats no more than those lack.
#![cfg(not(any(duramen_loom, duramen_machine)))]

use duramen::{Db, Options};

use crate::common::small;

const RECORDS: u32 = 20_000;

/// Changes records all over the table, far more than are recovered in the end, and ends without
/// closing. Returns the mean number of dirty pages, and how many changes the next opening repeats.
fn dirty_and_redone(dirty_pages: Option<usize>) -> (u64, u64) {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("db");
    let options = Options { pool_bytes: 16 << 20, dirty_pages, checkpoint_bytes: Some(64 << 10), ..small() };
    let db = Db::open(&dir, options.clone()).unwrap();
    let table = db.create_table("t").unwrap();
    let change = |from: u32, count: u32| {
        let mut txn = db.begin();
        for number in from..from + count {
            let key = number.wrapping_mul(7919) % RECORDS;
            txn.put(&table, &key.to_be_bytes(), &[number as u8; 200]).unwrap();
        }
        txn.commit().unwrap();
    };
    for from in (0..RECORDS).step_by(100) {
        change(from, 100);
    }
    let mut samples = Vec::new();
    for from in (0..4_000).step_by(10) {
        change(from, 10);
        std::thread::sleep(std::time::Duration::from_micros(300));
        samples.push(db.metrics().dirty_pages);
    }
    drop(db);
    let db = Db::open(&dir, options).unwrap();
    let redone = db.metrics().recovery.redone;
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    for key in 0..RECORDS {
        assert!(txn.get(&table, &key.to_be_bytes()).unwrap().is_some(), "{key}");
    }
    drop(txn);
    db.close().unwrap();
    (samples.iter().sum::<u64>() / samples.len() as u64, redone)
}

#[test]
fn few_dirty_pages_keep_redo_short() {
    let (lazy, redone_lazily) = dirty_and_redone(None);
    let (few, redone) = dirty_and_redone(Some(16));
    // A busy machine may keep the cleaner from running for a while.
    assert!(few <= 64, "{few} dirty pages on average instead of 16; {lazy} without the option");
    assert!(lazy >= 4 * few, "{lazy} dirty pages without the option, {few} with it");
    assert!(redone <= redone_lazily, "{redone} changes repeated, {redone_lazily} without the option");
}
