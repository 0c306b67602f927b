//! Ranges, prefixes and ends of tables.

use std::ops::Bound;
use std::sync::Arc;

use duramen::{Db, Error, KeyRange, Options, Table};
use duramen_io::SimDisk;

fn populated(keys: &[&[u8]]) -> (tempfile::TempDir, Db, Table) {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), Options::small()).unwrap();
    let table = db.table("t").unwrap();
    db.run(|txn| keys.iter().try_for_each(|key| txn.put(&table, key, b"value"))).unwrap();
    (home, db, table)
}

#[test]
fn every_kind_of_range_selects_its_keys() {
    let (_home, db, table) = populated(&[b"a", b"b", b"c", b"d"]);
    let select = |range: &dyn Fn(&mut duramen::Txn) -> Vec<u8>| {
        let mut txn = db.begin();
        range(&mut txn)
    };
    fn keys(txn: &mut duramen::Txn, table: &Table, range: impl KeyRange) -> Vec<u8> {
        txn.scan(table, range).map(|item| item.unwrap().0[0]).collect()
    }
    let owned = b"b".to_vec();
    assert_eq!(select(&|txn| keys(txn, &table, ..)), b"abcd");
    assert_eq!(select(&|txn| keys(txn, &table, b"b"..b"d")), b"bc");
    assert_eq!(select(&|txn| keys(txn, &table, owned.clone()..)), b"bcd");
    assert_eq!(select(&|txn| keys(txn, &table, ..&owned)), b"a");
    assert_eq!(select(&|txn| keys(txn, &table, ..=&owned[..])), b"ab");
    assert_eq!(select(&|txn| keys(txn, &table, "b"..="c")), b"bc");
    assert_eq!(select(&|txn| keys(txn, &table, (Bound::Excluded(b"b"), Bound::Unbounded))), b"cd");
    assert_eq!(select(&|txn| keys(txn, &table, b"d"..b"b")), b"");
}

#[test]
fn prefixes_and_ends() {
    let (_home, db, table) = populated(&[b"a", b"a\xff", b"a\xff\xff", b"b", b"ba", b"\xff", b"\xff\xff"]);
    let mut txn = db.begin();
    let mut count = |prefix: &[u8]| txn.scan_prefix(&table, prefix).count();
    assert_eq!(
        [count(b""), count(b"a"), count(b"a\xff"), count(b"b"), count(b"\xff"), count(b"c")],
        [7, 3, 2, 2, 2, 0]
    );
    assert_eq!(txn.first(&table).unwrap().unwrap().0, b"a");
    assert_eq!(txn.last(&table).unwrap().unwrap().0, b"\xff\xff");
    assert!(txn.contains(&table, b"ba").unwrap() && !txn.contains(&table, b"bb").unwrap());
    txn.delete(&table, b"a").unwrap();
    txn.delete(&table, b"\xff\xff").unwrap();
    assert_eq!(txn.first(&table).unwrap().unwrap().0, b"a\xff");
    assert_eq!(txn.last(&table).unwrap().unwrap().0, b"\xff");
    txn.commit().unwrap();
    let empty = db.table("empty").unwrap();
    assert_eq!((db.run(|txn| txn.first(&empty)).unwrap(), db.run(|txn| txn.last(&empty)).unwrap()), (None, None));
}

/// What has been seen at the end of a table stays so, and the rest of the table is free.
#[test]
fn the_end_of_a_table_is_locked_and_nothing_else() {
    let (_home, db, table) = populated(&[b"b", b"c", b"d", b"e", b"f"]);
    let put = |key: &[u8]| {
        let mut txn = db.begin();
        txn.set_lock_wait_limit(Some(std::time::Duration::ZERO));
        match txn.put(&table, key, b"x") {
            Ok(()) => txn.commit().map(|()| true).unwrap(),
            Err(Error::LockTimeout { .. } | Error::Deadlock { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    };
    let mut txn = db.begin();
    assert_eq!(txn.last(&table).unwrap().unwrap().0, b"f");
    assert!(!put(b"g") && !put(b"f") && put(b"c") && put(b"a"));
    drop(txn);
    let mut txn = db.begin();
    assert_eq!(txn.first(&table).unwrap().unwrap().0, b"a");
    assert!(!put(b"0") && !put(b"a") && put(b"c") && put(b"g"));
}

#[test]
fn a_table_is_created_once_by_all_who_want_it() {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), Options::small()).unwrap();
    std::thread::scope(|scope| {
        for number in 0..8_u8 {
            let db = &db;
            scope.spawn(move || {
                let table = db.table("shared").unwrap();
                db.run(|txn| txn.put(&table, &[number], b"here")).unwrap();
            });
        }
    });
    let table = db.table("shared").unwrap();
    assert_eq!(db.run(|txn| txn.scan(&table, ..).collect::<Result<Vec<_>, _>>()).unwrap().len(), 8);
    assert_eq!(db.list().unwrap(), ["shared"]);
    assert!(matches!(db.table(""), Err(Error::BadTableName { .. })));
}

/// A scan read the large values of up to 64 records before it returned the first one.
#[test]
fn a_scan_reads_large_values_as_it_comes_to_them() {
    const BYTES: usize = 2 << 20;
    for lock_escalation in [1, 1_000_000] {
        let options = Options { pool_bytes: 1 << 20, lock_escalation, ..Options::small() };
        let db = Db::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
        let table = db.create_table("t").unwrap();
        for row in 0..20_u8 {
            db.run(|txn| txn.put(&table, &[row], &vec![row; BYTES])).unwrap();
        }
        db.checkpoint().unwrap();
        for is_reversed in [false, true] {
            let before = db.metrics().page_reads;
            let mut txn = db.begin();
            let mut scan = if is_reversed { txn.scan_rev(&table, ..) } else { txn.scan(&table, ..) };
            let first = scan.next().unwrap().unwrap();
            let reads = db.metrics().page_reads - before;
            assert_eq!(first.1, vec![first.0[0]; BYTES]);
            assert!(reads < 2 * BYTES as u64 / 8192, "{reads} pages, escalation {lock_escalation}, {is_reversed}");
            assert_eq!(scan.count(), 19);
        }
        db.close().unwrap();
    }
}
