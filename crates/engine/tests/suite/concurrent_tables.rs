//! Tables that several threads use, drop and create again at once.

use std::thread;

use duramen::{Db, Error, Options};

fn open() -> (tempfile::TempDir, Db) {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), Options { pool_bytes: 8 << 20, ..Options::default() }).unwrap();
    (home, db)
}

fn healthy(db: &Db) {
    let report = db.check().unwrap();
    assert!(report.is_ok(), "{report:?}");
}

/// A committed transaction still removes its ghosts after its record locks are released. A table
/// dropped at that moment was freed while the removal was running.
#[test]
fn a_table_is_not_dropped_before_commits_have_cleared_away() {
    for round in 0..4 {
        let (_home, db) = open();
        let table = db.create_table("t").unwrap();
        let mut txn = db.begin();
        for number in 0..4_000u32 {
            txn.insert(&table, &number.to_be_bytes(), &[1; 120]).unwrap();
        }
        txn.commit().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut txn = db.begin();
                for number in 0..4_000u32 {
                    match txn.delete(&table, &number.to_be_bytes()) {
                        Ok(found) => assert!(found),
                        Err(Error::NoSuchTable { .. }) => return,
                        Err(error) => panic!("{error}"),
                    }
                }
                txn.commit().unwrap();
            });
            scope.spawn(|| {
                thread::sleep(std::time::Duration::from_millis(2 * round));
                db.drop_table("t").unwrap();
                let other = db.create_table("u").unwrap();
                let mut txn = db.begin();
                for number in 0..1_000u32 {
                    txn.insert(&other, &number.to_be_bytes(), &[2; 120]).unwrap();
                }
                txn.commit().unwrap();
            });
        });
        healthy(&db);
    }
}

/// Threads that find the same inner node full must not all split it.
#[test]
fn many_threads_split_the_same_nodes() {
    let (_home, db) = open();
    let table = db.create_table("t").unwrap();
    thread::scope(|scope| {
        for thread in 0..8u32 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                for number in 0..60u32 {
                    let mut txn = db.begin();
                    let mut key = vec![b'k'; 900];
                    key.extend_from_slice(&(number * 8 + thread).to_be_bytes());
                    txn.insert(table, &key, &[3; 200]).unwrap();
                    txn.commit().unwrap();
                }
            });
        }
    });
    healthy(&db);
    assert_eq!(db.begin().scan(&table, ..).count(), 480);
}

#[test]
fn a_handle_of_another_opening_is_refused() {
    let (home, db) = open();
    let old = db.create_table("t").unwrap();
    db.close().unwrap();
    let db = Db::open(home.path(), Options::default()).unwrap();
    let (_other_home, other) = open();
    let foreign = other.create_table("t").unwrap();
    for handle in [old, foreign] {
        let mut txn = db.begin();
        assert!(matches!(txn.put(&handle, b"k", b"v"), Err(Error::ForeignTable { .. })));
        assert!(matches!(txn.scan(&handle, ..).next(), Some(Err(Error::ForeignTable { .. }))));
        txn.put(&db.open_table("t").unwrap(), b"k", b"v").unwrap();
        txn.commit().unwrap();
    }
}
