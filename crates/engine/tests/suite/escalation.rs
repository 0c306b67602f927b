//! Long serializable scans lock the table instead of its records.

use std::time::Duration;

use duramen::{Db, Error, Options, Table};

use crate::common;

const RECORDS: u32 = 3000;

fn populated(options: Options) -> (tempfile::TempDir, Db, Table) {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), options).unwrap();
    let table = db.create_table("t").unwrap();
    db.run(|txn| (0..RECORDS).try_for_each(|key| txn.put(&table, &key.to_be_bytes(), b"value"))).unwrap();
    (home, db, table)
}

fn try_put(db: &Db, table: &Table, key: &[u8]) -> duramen::Result<()> {
    let mut txn = db.begin();
    txn.set_lock_wait_limit(Some(Duration::ZERO));
    txn.put(table, key, b"changed")?;
    txn.commit()
}

fn is_refused(result: duramen::Result<()>) -> bool {
    match result {
        Ok(()) => false,
        Err(Error::LockTimeout { .. } | Error::Deadlock { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_long_scan_locks_the_table() {
    let (_home, db, table) = populated(Options { lock_escalation: 100, ..common::small() });
    for is_backward in [false, true] {
        let mut txn = db.begin();
        let (first, last) = (0_u32.to_be_bytes(), 200_u32.to_be_bytes());
        let range = &first[..]..&last[..];
        let found = if is_backward { txn.scan_rev(&table, range).count() } else { txn.scan(&table, range).count() };
        assert_eq!(found, 200);
        assert!(is_refused(try_put(&db, &table, &2000_u32.to_be_bytes())), "a record far behind the range");
        // Others read, and the transaction itself writes.
        assert!(db.run(|other| other.get(&table, &5_u32.to_be_bytes())).unwrap().is_some());
        txn.put(&table, b"own", b"value").unwrap();
        assert_eq!(txn.scan(&table, ..).count(), RECORDS as usize + 1);
        txn.abort().unwrap();
        try_put(&db, &table, &2000_u32.to_be_bytes()).unwrap();
    }
}

#[test]
fn a_short_scan_locks_only_its_range() {
    let (_home, db, table) = populated(common::small());
    let mut txn = db.begin();
    let last = 200_u32.to_be_bytes();
    assert_eq!(txn.scan(&table, ..&last[..]).count(), 200);
    assert!(is_refused(try_put(&db, &table, &100_u32.to_be_bytes())));
    try_put(&db, &table, &2000_u32.to_be_bytes()).unwrap();
}

/// The scan does not wait for writers elsewhere in the table, nor shut them out, and it sees no
/// phantoms.
#[test]
fn a_scan_beside_a_writer_goes_on_with_records() {
    let (_home, db, table) = populated(Options { lock_escalation: 100, ..common::small() });
    let mut writer = db.begin();
    writer.put(&table, &2000_u32.to_be_bytes(), b"changed").unwrap();
    let mut scanner = db.begin();
    let last = 1000_u32.to_be_bytes();
    let range = ..&last[..];
    assert_eq!(scanner.scan(&table, range).count(), 1000);
    try_put(&db, &table, &2001_u32.to_be_bytes()).unwrap();
    let between = [&500_u32.to_be_bytes()[..], b"new"].concat();
    assert!(is_refused(try_put(&db, &table, &between)));
    writer.commit().unwrap();
    // Nobody writes now: the next scan locks the table.
    assert_eq!(scanner.scan(&table, range).count(), 1000);
    assert!(is_refused(try_put(&db, &table, &2001_u32.to_be_bytes())));
    scanner.commit().unwrap();
    try_put(&db, &table, &between).unwrap();
}
