//! The checkpoint that ends an opening leaves the pages that recovery has made dirty to the next
//! one.
#![cfg(not(any(duramen_loom, duramen_machine)))]

use std::sync::Arc;
use std::time::Duration;

use duramen::{Db, Options};
use duramen_io::{CrashChoice, SimDisk};
use duramen_sync::clock::Instant;
use duramen_sync::thread;

fn open(disk: &SimDisk) -> Db {
    open_with(disk, 1 << 20)
}

fn open_with(disk: &SimDisk, checkpoint_bytes: u64) -> Db {
    let options =
        Options { pool_bytes: 16 << 20, checkpoint_bytes, log_segment_bytes: 256 << 10, ..Options::default() };
    Db::open_on(Arc::new(disk.clone()), options).unwrap()
}

/// Puts these rows in one transaction.
fn put(db: &Db, rows: std::ops::Range<u32>) {
    let table = db.create_table("t").or_else(|_| db.table("t")).unwrap();
    let mut txn = db.begin();
    for row in rows {
        txn.put(&table, &row.to_be_bytes(), &[7; 300]).unwrap();
    }
    txn.commit().unwrap();
}

fn crash(db: Db, disk: &SimDisk) -> SimDisk {
    let image = disk.crash_image(&CrashChoice::Nothing);
    drop(db);
    image
}

fn rows(db: &Db) -> u64 {
    let table = db.table("t").unwrap();
    let mut txn = db.begin();
    txn.scan(&table, ..).map(Result::unwrap).count() as u64
}

#[test]
fn transactions_do_not_wait_for_what_recovery_made_dirty() {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    put(&db, 0..2_400);
    let disk = crash(db, &disk);
    let db = open(&disk);
    let opened = db.metrics();
    assert_eq!((opened.checkpoints, opened.page_writes), (1, 0));
    assert!(opened.dirty_pages > 80, "{}", opened.dirty_pages);
    assert_eq!(rows(&db), 2_400);
    assert_eq!(db.metrics().checkpoints, 1, "reading makes no checkpoint due");
    put(&db, 0..1);
    let begun = Instant::now();
    while db.metrics().checkpoints < 2 || db.metrics().dirty_pages > 20 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", db.metrics());
        thread::sleep(Duration::from_millis(1));
    }
    // A database without anything to write takes no further checkpoint.
    db.close().unwrap();
    let db = open(&disk);
    put(&db, 0..1);
    assert_eq!(db.metrics().checkpoints, 1);
}

/// Otherwise it could grow from crash to crash.
#[test]
fn a_long_log_is_made_short_before_the_database_opens() {
    let disk = SimDisk::new(2);
    let db = open_with(&disk, 64 << 20);
    put(&db, 0..16_000);
    let disk = crash(db, &disk);
    for (checkpoint_bytes, is_long) in [(64 << 20, false), (64 << 20, false), (1 << 20, true), (1 << 20, false)] {
        let db = open_with(&disk, checkpoint_bytes);
        let metrics = db.metrics();
        assert!((metrics.page_writes > 500) == is_long, "{checkpoint_bytes}: {metrics:?}");
        assert_eq!(rows(&db), 16_000);
        // Nothing is written, so no checkpoint is due.
        assert_eq!(db.metrics().checkpoints, 1);
    }
}
