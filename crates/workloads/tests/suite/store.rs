//! Duramen as a store of the workloads.

use duramen_workloads::store::{Store, conformance};

use crate::common;

#[test]
fn duramen_keeps_the_promises_of_a_store() {
    let home = tempfile::tempdir().unwrap();
    let db = common::open(&home);
    assert_eq!(db.engine(), "duramen");
    conformance::check(&db).unwrap();
    conformance::check_serializability(&db).unwrap();
    assert!(db.check().unwrap().is_ok());
}
