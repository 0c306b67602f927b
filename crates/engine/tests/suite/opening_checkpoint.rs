//! The checkpoint that ends an opening leaves the pages that recovery has made dirty to the next
//! one.
#![cfg(not(any(duramen_loom, duramen_machine)))]

use std::sync::Arc;
use std::time::Duration;

use duramen::{Db, Options, Txn};
use duramen_io::{CrashChoice, SimDisk};
use duramen_sync::clock::Instant;
use duramen_sync::thread;

fn open(disk: &SimDisk) -> Db {
    open_with(disk, 1 << 20)
}

fn options(checkpoint_bytes: u64) -> Options {
    Options {
        pool_bytes: 16 << 20,
        checkpoint_bytes: Some(checkpoint_bytes),
        log_segment_bytes: 256 << 10,
        ..Options::default()
    }
}

fn open_with(disk: &SimDisk, checkpoint_bytes: u64) -> Db {
    Db::open_on(Arc::new(disk.clone()), options(checkpoint_bytes)).unwrap()
}

/// Puts these rows in one transaction.
fn put(db: &Db, rows: std::ops::Range<u32>) {
    put_value(db, rows, 7);
}

fn put_value(db: &Db, rows: std::ops::Range<u32>, value: u8) {
    let table = db.create_table("t").or_else(|_| db.table("t")).unwrap();
    let mut txn = db.begin();
    for row in rows {
        txn.put(&table, &row.to_be_bytes(), &[value; 300]).unwrap();
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

/// A log that checkpoints may fill to half of its limit could grow beyond it, by the checkpoints of
/// lives that write nothing.
#[test]
fn lives_that_write_nothing_do_not_fill_the_log() {
    for (logs, written) in [(1, 14_000), (3, 28_000)] {
        let disk = SimDisk::new(3);
        let limit = 8 << 20;
        let options = Options { logs, log_max_bytes: limit, ..options(4 << 20) };
        let open = |disk: &SimDisk| Db::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
        let db = open(&disk);
        for first in (0..written).step_by(1_000) {
            put(&db, first..first + 1_000);
        }
        let mut disk = crash(db, &disk);
        for _ in 0..20 {
            let db = open(&disk);
            assert_eq!(rows(&db), u64::from(written));
            let names = disk.file_names().into_iter().filter(|name| name.starts_with("log"));
            let bytes: u64 = names.map(|name| disk.durable_bytes(&name).unwrap().len() as u64).sum();
            assert!(bytes <= u64::from(logs) * (limit + (1 << 20)), "{logs} logs: {bytes}");
            disk = crash(db, &disk);
        }
        put(&open(&disk), 0..1_000);
    }
}

/// Openings whose checkpoints recycle nothing leave space for one another.
#[test]
fn a_full_disk_opens_again_and_again() {
    const ROWS: u32 = 12_000;
    let disk = SimDisk::new(4);
    let open = |disk: &SimDisk| {
        let options = Options { pool_bytes: 50 << 20, log_segment_bytes: 1 << 20, ..options(512 << 20) };
        Db::open_on(Arc::new(disk.clone()), options).unwrap()
    };
    let put = |db: &Db, value| {
        let table = db.table("t").unwrap();
        for first in (0..ROWS).step_by(100) {
            let put = |txn: &mut Txn, row: u32| txn.put(&table, &row.to_be_bytes(), &[value; 3_000]);
            db.run(|txn| (first..first + 100).try_for_each(|row| put(txn, row))).unwrap();
        }
    };
    // The data file has its length for good, and then the log fills the disk.
    let db = open(&disk);
    put(&db, 1);
    db.close().unwrap();
    let db = open(&disk);
    put(&db, 2);
    let mut disk = crash(db, &disk);
    let capacity = disk.used();
    for _ in 0..4 {
        disk.set_capacity(capacity);
        let db = open(&disk);
        assert_eq!(rows(&db), u64::from(ROWS));
        disk = crash(db, &disk);
    }
    disk.set_capacity(capacity);
    let db = open(&disk);
    put(&db, 3);
    db.close().unwrap();
}
