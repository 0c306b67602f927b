//! What every scheme without a log does as the others do.

use std::ops::ControlFlow;

use duramen::Db;

/// Large values, savepoints and a dropped table, in a new database.
pub(crate) fn work_with_large_values(db: &Db) {
    let table = db.create_table("t").unwrap();
    let large = vec![7; 100_000];
    let mut txn = db.begin();
    txn.put(&table, b"large", &large).unwrap();
    let savepoint = txn.savepoint();
    for number in 0..300_u32 {
        txn.put(&table, &number.to_be_bytes(), &[1; 100]).unwrap();
    }
    txn.rollback_to(&savepoint).unwrap();
    txn.put(&table, b"small", b"value").unwrap();
    txn.rollback_to(&savepoint).unwrap();
    txn.put(&table, b"kept", b"value").unwrap();
    txn.commit().unwrap();
    let mut txn = db.begin();
    assert_eq!(txn.get(&table, b"large").unwrap().unwrap(), large);
    let mut parts = Vec::new();
    let length = txn.get_in_parts(&table, b"large", |part| {
        parts.extend_from_slice(part);
        ControlFlow::Continue(())
    });
    assert_eq!((length.unwrap(), parts), (Some(100_000), large));
    assert_eq!(txn.scan(&table, ..).count(), 2);
    txn.delete(&table, b"large").unwrap();
    txn.commit().unwrap();
    db.drop_table("t").unwrap();
    let report = db.check().unwrap();
    assert!(report.is_ok(), "{:?}", report.problems);
}
