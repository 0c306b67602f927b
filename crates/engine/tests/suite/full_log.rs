//! A log at its limit: transactions are refused, and nothing else happens.

use std::sync::Arc;

use duramen::{Db, Error, Options};
use duramen_io::SimDisk;

use crate::common;

fn tiny_log() -> Options {
    Options { log_max_bytes: 4 << 20, log_segment_bytes: 1 << 20, checkpoint_bytes: Some(1 << 20), ..common::small() }
}

/// A long transaction kept the log full. Checkpoints taken in vain because of that used up the
/// space for the transaction's rollback: the log stopped, and the database could not be opened
/// again.
#[test]
fn a_long_transaction_that_fills_the_log_can_be_rolled_back() {
    let disk = SimDisk::new(1);
    let db = Db::open_on(Arc::new(disk.clone()), tiny_log()).unwrap();
    let table = db.create_table("t").unwrap();
    let mut long = db.begin();
    for number in 0..120u32 {
        long.put(&table, &number.to_be_bytes(), &[1; 500]).unwrap();
    }
    let mut refused = 0u32;
    let mut committed = 0u32;
    while refused < 3_000 {
        let mut txn = db.begin();
        let result = txn.put(&table, &(1_000 + committed % 64).to_be_bytes(), &committed.to_be_bytes());
        match result.and_then(|()| txn.commit()) {
            Ok(()) => committed += 1,
            Err(Error::Full { .. }) => refused += 1,
            Err(error) => panic!("after {committed} commits and {refused} refusals: {error}"),
        }
    }
    for _ in 0..200 {
        // The checkpoint cannot free log space, but it must do no harm.
        match db.checkpoint() {
            Ok(()) | Err(Error::Full { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    long.abort().unwrap();
    let mut txn = db.begin();
    txn.put(&table, b"after", b"all is well").unwrap();
    txn.commit().unwrap();
    assert!(db.check().unwrap().is_ok());
    drop(db);

    let db = Db::open_on(Arc::new(disk.clone()), tiny_log()).unwrap();
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    assert_eq!(txn.get(&table, &0u32.to_be_bytes()).unwrap(), None);
    assert_eq!(txn.get(&table, b"after").unwrap().unwrap(), b"all is well");
    assert_eq!(txn.scan(&table, ..).count() as u32, 1 + committed.min(64));
}

/// The same, with the long transaction left to recovery.
#[test]
fn a_full_log_recovers() {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), tiny_log()).unwrap();
    let table = db.create_table("t").unwrap();
    let mut long = db.begin();
    let mut number = 0u32;
    let full = loop {
        number += 1;
        if let Err(error) = long.put(&table, &number.to_be_bytes(), &[2; 900]) {
            break error;
        }
    };
    assert!(matches!(full, Error::Full { .. }), "{full}");
    drop(db);
    drop(long);
    let db = Db::open(home.path(), tiny_log()).unwrap();
    let table = db.open_table("t").unwrap();
    assert_eq!(db.begin().scan(&table, ..).count(), 0);
    assert!(db.check().unwrap().is_ok());
}

/// Deletes all rows of a table at once, again and again. Purging them takes many times the log that
/// the transactions had reserved. The purge ran without bound after the commit, and stopped the
/// log.
fn removing_what_was_deleted_stays_within_the_log(logs: u16, is_pinned: bool) {
    const ROWS: u32 = 5_000;
    let disk = SimDisk::new(1);
    let options = || Options { logs, ..tiny_log() };
    let db = Db::open_on(Arc::new(disk.clone()), options()).unwrap();
    let table = db.create_table("t").unwrap();
    for first in (0..ROWS).step_by(100) {
        let mut txn = db.begin();
        for number in first..first + 100 {
            txn.put(&table, &number.to_be_bytes(), &[3; 1500]).unwrap();
        }
        txn.commit().unwrap();
    }
    db.checkpoint().unwrap();
    let pin = is_pinned.then(|| {
        let mut txn = db.begin();
        txn.put(&table, b"pin", b"").unwrap();
        txn
    });
    let (mut deleted, mut size) = (0, ROWS);
    while deleted < ROWS && size > 0 {
        let mut txn = db.begin();
        let last = ROWS.min(deleted + size);
        let result = (deleted..last).try_for_each(|number| txn.delete(&table, &number.to_be_bytes()).map(drop));
        match result.and_then(|()| txn.commit()) {
            Ok(()) => deleted = last,
            Err(Error::Full { .. }) => size /= 2,
            Err(error) => panic!("{deleted} deleted: {error}"),
        }
    }
    assert!(deleted == ROWS || is_pinned, "{deleted} deleted");
    if let Some(pin) = pin {
        pin.abort().unwrap();
    }
    let check = db.check().unwrap();
    assert!(check.is_ok(), "{check:?}");
    drop(db);

    let db = Db::open_on(Arc::new(disk.clone()), options()).unwrap();
    let table = db.open_table("t").unwrap();
    assert_eq!(db.begin().scan(&table, ..).count() as u32, ROWS - deleted);
    assert!(db.check().unwrap().is_ok());
}

#[test]
fn removing_what_was_deleted_at_once_stays_within_the_log() {
    removing_what_was_deleted_stays_within_the_log(1, false);
}

#[test]
fn removing_what_was_deleted_at_once_stays_within_two_logs() {
    removing_what_was_deleted_stays_within_the_log(2, false);
}

#[test]
fn removing_what_was_deleted_stays_within_a_log_that_cannot_be_recycled() {
    removing_what_was_deleted_stays_within_the_log(1, true);
}

#[test]
fn removing_what_was_deleted_stays_within_two_logs_that_cannot_be_recycled() {
    removing_what_was_deleted_stays_within_the_log(2, true);
}

/// A range whose ghosts a snapshot has kept is cleared away by a checkpoint, leaf by leaf, as far
/// as an almost full log permits, and the rest later.
#[test]
fn removing_a_range_that_a_snapshot_has_kept_stays_within_the_log() {
    const ROWS: u32 = 2_000;
    for logs in [1, 2] {
        let (log_max_bytes, version_bytes) = (16 << 20, Some(64 << 20));
        let options = Options { logs, snapshots: true, log_max_bytes, version_bytes, ..tiny_log() };
        let db = Db::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
        let table = db.create_table("t").unwrap();
        // Long keys make long fences, which are logged when a leaf goes.
        let key = |number: u32| [&[b'k'; 1000][..], &number.to_be_bytes()].concat();
        for first in (0..ROWS).step_by(100) {
            db.run(|txn| (first..first + 100).try_for_each(|number| txn.put(&table, &key(number), &[3; 500]))).unwrap();
        }
        db.checkpoint().unwrap();
        let snapshot = db.snapshot().unwrap();
        assert_eq!(db.run(|txn| txn.delete_range(&table, key(0)..)).unwrap(), u64::from(ROWS));
        assert_eq!(db.check().unwrap().ghosts, u64::from(ROWS), "{logs} logs");
        let mut pin = db.begin();
        pin.put(&table, b"pin", b"").unwrap();
        let mut refused = 0;
        while refused < 3 {
            match db.run(|txn| txn.put(&table, b"filling", &[1; 400_000])) {
                Ok(()) => {}
                Err(Error::Full { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        drop(snapshot);
        for _ in 0..3 {
            match db.checkpoint() {
                Ok(()) | Err(Error::Full { .. }) => {}
                Err(error) => panic!("{logs} logs: {error}"),
            }
        }
        pin.abort().unwrap();
        db.checkpoint().unwrap();
        db.run(|txn| txn.put(&table, b"after", b"all is well")).unwrap();
        let check = db.check().unwrap();
        assert!(check.is_ok() && check.ghosts == 0, "{logs} logs: {check:?}");
        assert!(db.check().unwrap().pages < 60, "the leaves are gone");
        db.close().unwrap();
    }
}

/// A transaction that commits when the log is full, and cannot free the pages of its deleted
/// records, must not keep the log full forever.
fn deferred_frees_that_cannot_be_given_back_does_not_keep_the_log_full(logs: u16) {
    // Freeing these pages takes more log than is left when a transaction has been refused.
    const LARGE: u8 = 200;
    let disk = SimDisk::new(1);
    let db = Db::open_on(Arc::new(disk.clone()), Options { logs, ..tiny_log() }).unwrap();
    let table = db.create_table("t").unwrap();
    let large = |number: u8| [b"large", &[number][..]].concat();
    for number in 0..LARGE {
        let mut txn = db.begin();
        txn.put(&table, &large(number), &vec![5; 300_000]).unwrap();
        txn.commit().unwrap();
    }
    db.checkpoint().unwrap();
    let mut oldest = db.begin();
    for number in 0..LARGE {
        oldest.delete(&table, &large(number)).unwrap();
    }
    let fill = |number: u32| {
        let mut txn = db.begin();
        txn.put(&table, &(number % 100).to_be_bytes(), &[number as u8; 300])?;
        txn.commit()
    };
    let filled = (0..).find_map(|number| fill(number).err());
    assert!(matches!(filled, Some(Error::Full { .. })), "{filled:?}");
    oldest.commit().unwrap();
    for number in 0..2_000 {
        fill(number).unwrap();
    }
    assert_eq!(db.begin().get(&table, &large(7)).unwrap(), None);
    let check = db.check().unwrap();
    assert!(check.is_ok(), "{check:?}");
}

#[test]
fn deferred_frees_that_cannot_be_given_back_does_not_keep_one_log_full() {
    deferred_frees_that_cannot_be_given_back_does_not_keep_the_log_full(1);
}

#[test]
fn deferred_frees_that_cannot_be_given_back_does_not_keep_two_logs_full() {
    deferred_frees_that_cannot_be_given_back_does_not_keep_the_log_full(2);
}

/// What waits for a snapshot moves to the end of a log that is smaller than the distance at which
/// it usually does.
#[test]
fn a_replaced_large_value_that_a_snapshot_shows_does_not_fill_a_small_log() {
    let (log_segment_bytes, log_max_bytes) = (64 << 10, 256 << 10);
    let options = Options {
        snapshots: true,
        log_segment_bytes,
        log_max_bytes,
        log_buffer_bytes: 64 << 10,
        checkpoint_bytes: Some(64 << 10),
        ..common::small()
    };
    let db = Db::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
    let table = db.create_table("t").unwrap();
    let large = |byte| db.run(|txn| txn.put(&table, b"large", &[byte; 10_000])).unwrap();
    large(1);
    let snapshot = db.snapshot().unwrap();
    large(2);
    for number in 0..5_000_u32 {
        db.run(|txn| txn.put(&table, &(number % 100).to_be_bytes(), &[3; 100])).unwrap();
    }
    assert_eq!(snapshot.get(&table, b"large").unwrap(), Some(vec![1; 10_000]));
    drop(snapshot);
    let check = db.check().unwrap();
    assert!(check.is_ok(), "{check:?}");
    db.close().unwrap();
}
