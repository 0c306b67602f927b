//! The first steps of an application: tables, records, scans, savepoints, errors, reopening.

use duramen::{Db, Error, Table};

use crate::common::small;

fn open() -> (tempfile::TempDir, Db) {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), small()).unwrap();
    (home, db)
}

fn contents(db: &Db, table: &Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut txn = db.begin();
    let all: Result<_, _> = txn.scan(table, ..).collect();
    let all = all.unwrap();
    txn.commit().unwrap();
    all
}

#[test]
fn records_survive_reopening() {
    let (home, db) = open();
    let table = db.create_table("t").unwrap();
    let mut txn = db.begin();
    for number in 0..5_000u32 {
        txn.insert(&table, &number.to_be_bytes(), format!("value {number}").as_bytes()).unwrap();
    }
    txn.commit().unwrap();
    let before = contents(&db, &table);
    assert_eq!(before.len(), 5_000);
    db.close().unwrap();

    let db = Db::open(home.path(), small()).unwrap();
    assert_eq!(db.list().unwrap(), ["t"]);
    let table = db.open_table("t").unwrap();
    assert_eq!(contents(&db, &table), before);
    assert!(db.check().unwrap().is_ok());
}

#[test]
fn committed_work_survives_without_close_and_uncommitted_does_not() {
    let (home, db) = open();
    let table = db.create_table("t").unwrap();
    for number in 0..500u32 {
        let mut txn = db.begin();
        txn.put(&table, &(number % 50).to_be_bytes(), &number.to_be_bytes()).unwrap();
        txn.commit().unwrap();
    }
    let expected = contents(&db, &table);
    let mut loser = db.begin();
    for number in 0..2_000u32 {
        loser.put(&table, &number.to_be_bytes(), &[7; 100]).unwrap();
    }
    drop(db);
    drop(loser);

    let db = Db::open(home.path(), small()).unwrap();
    let table = db.open_table("t").unwrap();
    assert_eq!(contents(&db, &table), expected);
    let report = db.check().unwrap();
    assert!(report.is_ok(), "{report:?}");
}

#[test]
fn abort_and_savepoints_take_back() {
    let (_home, db) = open();
    let table = db.create_table("t").unwrap();
    let mut txn = db.begin();
    txn.put(&table, b"a", b"1").unwrap();
    txn.put(&table, b"b", &[1; 300]).unwrap();
    txn.commit().unwrap();
    let before = contents(&db, &table);

    let mut txn = db.begin();
    txn.put(&table, b"a", b"2").unwrap();
    let savepoint = txn.savepoint();
    txn.delete(&table, b"b").unwrap();
    txn.put(&table, b"b", b"short").unwrap();
    txn.put(&table, b"c", &[9; 100_000]).unwrap();
    assert_eq!(txn.get(&table, b"c").unwrap().unwrap(), [9; 100_000]);
    txn.rollback_to(&savepoint).unwrap();
    assert_eq!(txn.get(&table, b"a").unwrap().unwrap(), b"2");
    assert_eq!(txn.get(&table, b"b").unwrap().unwrap(), [1; 300]);
    assert_eq!(txn.get(&table, b"c").unwrap(), None);
    txn.abort().unwrap();
    assert_eq!(contents(&db, &table), before);
    let report = db.check().unwrap();
    assert!(report.is_ok(), "{report:?}");
}

#[test]
fn scans_go_both_ways_within_bounds() {
    let (_home, db) = open();
    let table = db.create_table("t").unwrap();
    let mut txn = db.begin();
    for number in (0..1_000u32).rev() {
        txn.insert(&table, &number.to_be_bytes(), &[number as u8; 60]).unwrap();
    }
    for number in (0..1_000u32).step_by(2) {
        assert!(txn.delete(&table, &number.to_be_bytes()).unwrap());
    }
    let keys = |items: Vec<(Vec<u8>, Vec<u8>)>| -> Vec<u32> {
        items.iter().map(|(key, _)| u32::from_be_bytes(key[..].try_into().unwrap())).collect()
    };
    let (low, high) = (100u32.to_be_bytes(), 900u32.to_be_bytes());
    let forward: Result<Vec<_>, _> = txn.scan(&table, &low[..]..&high[..]).collect();
    let expected: Vec<u32> = (100..900).filter(|number| number % 2 == 1).collect();
    assert_eq!(keys(forward.unwrap()), expected);
    let backward: Result<Vec<_>, _> = txn.scan_rev(&table, &low[..]..=&high[..]).collect();
    assert_eq!(keys(backward.unwrap()), expected.iter().rev().copied().collect::<Vec<_>>());
    let all: Result<Vec<_>, _> = txn.scan_rev(&table, ..).collect();
    assert_eq!(all.unwrap().len(), 500);
    assert_eq!(txn.scan(&table, &high[..]..&low[..]).count(), 0);
    txn.commit().unwrap();
    assert_eq!(contents(&db, &table).len(), 500);
}

#[test]
fn mistakes_get_their_error_and_leave_the_transaction_usable() {
    let (home, db) = open();
    let table = db.create_table("t").unwrap();
    assert!(matches!(db.create_table("t"), Err(Error::TableExists { .. })));
    assert!(matches!(db.open_table("u"), Err(Error::NoSuchTable { .. })));
    assert!(matches!(db.create_table(""), Err(Error::BadTableName { .. })));
    assert!(matches!(Db::open(home.path(), small()), Err(Error::AlreadyOpen { .. })));

    let mut txn = db.begin();
    txn.insert(&table, b"k", b"v").unwrap();
    assert!(matches!(txn.insert(&table, b"k", b"w"), Err(Error::KeyExists)));
    assert!(matches!(txn.update(&table, b"x", b"w"), Err(Error::KeyNotFound)));
    assert!(matches!(txn.put(&table, &[0; 1025], b""), Err(Error::KeyTooLarge { len: 1025, .. })));
    assert!(!txn.delete(&table, b"x").unwrap());
    txn.put(&table, &[1; 1024], b"longest key").unwrap();
    txn.put(&table, b"", b"empty key").unwrap();
    txn.commit().unwrap();
    assert_eq!(contents(&db, &table).len(), 3);

    db.drop_table("t").unwrap();
    assert!(matches!(db.drop_table("t"), Err(Error::NoSuchTable { .. })));
    assert!(matches!(db.begin().get(&table, b"k"), Err(Error::NoSuchTable { .. })));
    assert!(db.list().unwrap().is_empty());
    let report = db.check().unwrap();
    assert!(report.is_ok(), "{report:?}");
}

#[test]
fn deleting_everything_gives_the_pages_back() {
    let (_home, db) = open();
    let table = db.create_table("t").unwrap();
    let empty = db.check().unwrap().free_pages;
    for round in 0..3 {
        let mut txn = db.begin();
        for number in 0..3_000u32 {
            txn.insert(&table, &number.to_be_bytes(), &[round; 200]).unwrap();
        }
        txn.commit().unwrap();
        let mut txn = db.begin();
        for number in 0..3_000u32 {
            assert!(txn.delete(&table, &number.to_be_bytes()).unwrap());
        }
        txn.commit().unwrap();
    }
    let report = db.check().unwrap();
    assert!(report.is_ok(), "{report:?}");
    assert_eq!(report.records, 0);
    assert!(report.pages <= 8, "{report:?} {empty}");
}

/// It was four gigabytes, those of all frames and buckets.
#[test]
fn what_is_printed_for_debugging_is_short() {
    let (_home, db) = open();
    let table = db.create_table("t").unwrap();
    let mut txn = db.begin();
    txn.put(&table, b"key", b"value").unwrap();
    for printed in [format!("{db:?}"), format!("{txn:?}"), format!("{table:?}"), format!("{:?}", txn.scan(&table, ..))]
    {
        assert!(printed.len() < 4000, "{} bytes: {}", printed.len(), &printed[..500]);
    }
}
