//! Tests of reads that step over more empty leaves in a row than the pool has frames.

use std::time::Duration;

use duramen_io::SimDisk;
use duramen_sync::{Arc, clock, thread};
use duramen_types::PAGE_SIZE;

use crate::api::db::Db;
use crate::btree::{retry, step_up};
use crate::error::Error;
use crate::options::{Isolation, Options};
use crate::page::Node;
use crate::record::PageOp;
use crate::storage::catalog::Table;
use crate::storage::mini_transaction::MiniTransaction;
use crate::txn::Txn;

const RECORDS: u32 = 2400;

/// Returns a database whose table has a record in the first and the last leaf, and some hundred
/// empty leaves between them, as a crash between the removal of ghosts and the merging of leaves
/// may leave it. The pool has 64 frames.
fn with_empty_leaves() -> (Db, Table) {
    let options = Options {
        pool_bytes: Options::MIN_POOL_PAGES * PAGE_SIZE,
        log_buffer_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        ..Options::default()
    };
    let db = Db::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
    let table = db.create_table("t").unwrap();
    for key in 0..RECORDS {
        db.run(|txn| txn.put(&table, &key.to_be_bytes(), &[1; 900])).unwrap();
    }
    let (engine, tree) = (db.engine(), table.0.tree);
    let (mut key, mut leaves) = (Vec::new(), 0);
    loop {
        let leaf = engine.store.leaf_exclusive(tree, &key).unwrap();
        let (mut ops, mut record) = (Vec::new(), Vec::new());
        for slot in (0..Node(&leaf[..]).slot_count()).rev() {
            Node(&leaf[..]).key_into(slot, &mut record);
            if record != 0_u32.to_be_bytes() && record != (RECORDS - 1).to_be_bytes() {
                ops.push(PageOp::Remove { slot: u16::try_from(slot).unwrap() });
            }
        }
        if !ops.is_empty() {
            let mut mini = MiniTransaction::new();
            let at = mini.include(leaf);
            ops.into_iter().for_each(|op| mini.apply(at, op));
            mini.finish(engine.scheme());
        } else {
            drop(leaf);
        }
        leaves += 1;
        if !retry(|| step_up(&engine.store.leaf(tree, &key)?, &mut key)).unwrap() {
            break;
        }
    }
    assert!(leaves > 4 * Options::MIN_POOL_PAGES, "{leaves}");
    (db, table)
}

/// Runs `read` in a serializable transaction and in a read-committed one. A read that takes a
/// minute counts as one that never ends. After the serializable one, nobody can insert.
fn check(read: impl Fn(&mut Txn, &Table) + Send + Copy + 'static) {
    let reader = thread::spawn("reader", move || {
        let (db, table) = with_empty_leaves();
        for isolation in [Isolation::Serializable, Isolation::ReadCommitted] {
            let mut txn = db.begin_with(isolation);
            read(&mut txn, &table);
            let mut other = db.begin();
            other.set_lock_wait_limit(Some(Duration::ZERO));
            let inserted = other.put(&table, &(RECORDS / 2).to_be_bytes(), b"phantom");
            match isolation {
                Isolation::Serializable => assert!(matches!(inserted, Err(Error::LockTimeout { .. })), "{inserted:?}"),
                Isolation::ReadCommitted => inserted.unwrap(),
            }
            other.abort().unwrap();
            txn.abort().unwrap();
        }
    });
    let (reader, started) = (reader.unwrap(), clock::Instant::now());
    while !reader.is_finished() {
        assert!(started.elapsed() < Duration::from_secs(60), "the read does not end");
        thread::sleep(Duration::from_millis(1));
    }
    reader.join().unwrap();
}

fn keys(found: impl Iterator<Item = crate::error::Result<(Vec<u8>, Vec<u8>)>>) -> Vec<u32> {
    found.map(|record| u32::from_be_bytes(record.unwrap().0.try_into().unwrap())).collect()
}

#[test]
fn a_scan_over_many_empty_leaves_ends() {
    check(|txn, table| assert_eq!(keys(txn.scan(table, ..)), [0, RECORDS - 1]));
}

#[test]
fn a_scan_backwards_over_many_empty_leaves_ends() {
    check(|txn, table| assert_eq!(keys(txn.scan_rev(table, ..)), [RECORDS - 1, 0]));
    let (from, to) = (1_u32.to_be_bytes(), (RECORDS / 2).to_be_bytes());
    check(move |txn, table| assert_eq!(keys(txn.scan_rev(table, &from[..]..=&to[..])), [0; 0]));
}

#[test]
fn a_search_before_many_empty_leaves_ends() {
    check(|txn, table| assert_eq!(txn.get(table, &1_u32.to_be_bytes()).unwrap(), None));
    check(|txn, table| {
        let result = txn.update(table, &1_u32.to_be_bytes(), b"none");
        assert!(matches!(result, Err(Error::KeyNotFound)), "{result:?}");
    });
}

#[test]
fn the_last_record_behind_many_empty_leaves_is_deleted() {
    check(|txn, table| {
        let from = 1_u32.to_be_bytes();
        assert_eq!(txn.delete_range(table, &from[..]..).unwrap(), 1);
    });
}
