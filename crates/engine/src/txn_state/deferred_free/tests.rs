//! Tests of pages that are freed through different bitmaps.

use super::*;
use crate::api::db::Db;
use crate::options::{Options, Partition};
use crate::page::bitmap;
use crate::record::Kind;
use crate::scheme::Change;
use duramen_io::SimDisk;
use duramen_sync::Arc;
use duramen_wal::NewRecord;

/// Regression: the record that freed a root could have a lower GSN than those that freed its
/// children, if these went to a log that is ahead. After a crash between them nothing led to the
/// children.
#[test]
fn a_parent_is_given_back_after_its_children_in_all_logs() {
    for log_partition in [Partition::RoundRobin, Partition::Page] {
        let disk: Arc<dyn duramen_io::Disk> = Arc::new(SimDisk::new(1));
        let options = Options { pool_bytes: 1 << 20, logs: 2, log_partition, ..Options::default() };
        let db = Db::open_on(disk, options).unwrap();
        let table = db.create_table("t").unwrap();
        let (engine, tree) = (db.engine(), table.0.tree);
        let (pool, space) = (&engine.store.pool, &engine.store.space);
        // The value goes to the second group, on a page whose records go to another log than those
        // of the root.
        space.grow(pool, engine.scheme(), 1).unwrap();
        let child = (bitmap::bitmap_page(1).get() + 1..).find(|id| id % 2 != tree.root.get() % 2).unwrap();
        space.set_hint(PageId::new(child));
        let mut txn = db.begin();
        txn.put(&table, b"key", &[7; 5000]).unwrap();
        txn.commit().unwrap();
        let child = PageId::new(child);
        assert_eq!(page::page_type(&pool.shared(child).unwrap()), Some(PageType::Overflow));

        for _ in 0..100 {
            let record = NewRecord { page: child, ..Kind::System.record(&[]) };
            engine.scheme().change(None, Change { record, prefix: 0 }, &mut []);
        }
        let mut freed = Freed::default();
        engine.freeing().free_tree(tree, tree.root, None, &mut freed).unwrap();
        assert_eq!(freed.pages, 2);
        let gsn = |id: PageId| page::gsn(&pool.shared(id).unwrap());
        assert!(gsn(tree.root) > gsn(child), "{log_partition}: {} {}", gsn(tree.root), gsn(child));
    }
}

/// A snapshot may stay open for long, while many transactions wait for it.
#[test]
fn a_transaction_that_waits_for_a_snapshot_keeps_no_memory_for_its_changes() {
    let options = Options { snapshots: true, ..Options::small() };
    let db = Db::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
    let table = db.create_table("t").unwrap();
    db.run(|txn| txn.put(&table, b"large", &[1; 5000])).unwrap();
    let snapshot = db.snapshot().unwrap();
    db.run(|txn| {
        (0..1000_u32).try_for_each(|key| txn.put(&table, &key.to_be_bytes(), &[2; 100]))?;
        txn.put(&table, b"large", &[3; 5000])
    })
    .unwrap();
    let deferred = &db.engine().deferred_frees;
    let memory = |unfreed: &Unfreed| unfreed.log.memory();
    assert_eq!(deferred.waiting.lock().list.iter().map(memory).collect::<Vec<_>>(), [0]);
    drop(snapshot);
    db.checkpoint().unwrap();
    assert!(deferred.is_empty() && db.check().unwrap().is_ok());
}

/// Freeing some of many looks at few others.
#[test]
fn those_that_are_due_are_taken_in_the_order_of_their_commits() {
    let options = Options { snapshots: true, ..Options::small() };
    let db = Db::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
    let table = db.create_table("t").unwrap();
    let put = |byte: u8| db.run(|txn| txn.put(&table, b"large", &[byte; 5000])).unwrap();
    put(0);
    let first = db.snapshot().unwrap();
    (1..=20).for_each(put);
    let second = db.snapshot().unwrap();
    (21..=30).for_each(put);
    let (engine, waiting) = (db.engine(), || db.engine().deferred_frees.waiting.lock().list.len());
    let free_eight = || engine.freeing().free_due(8, |_| true).wanted;
    assert_eq!(waiting(), 30);
    assert!(!free_eight());
    drop(first);
    assert!(free_eight());
    assert_eq!(waiting(), 22);
    assert!(free_eight() && !free_eight());
    assert_eq!(waiting(), 10);
    drop(second);
    db.checkpoint().unwrap();
    assert_eq!(waiting(), 0);
    assert!(db.check().unwrap().is_ok());
}

/// Regression: a small commit freed all pages of a table that another transaction had dropped.
#[test]
fn a_commit_does_not_free_the_table_of_another_transaction() {
    let options = Options { snapshots: true, ..Options::small() };
    let db = Db::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
    let table = db.create_table("t").unwrap();
    let large = db.create_table("large").unwrap();
    db.run(|txn| (0..100_u8).try_for_each(|key| txn.put(&large, &[key], &[1; 1000]))).unwrap();
    db.run(|txn| txn.put(&table, b"value", &[1; 5000])).unwrap();
    let snapshot = db.snapshot().unwrap();
    drop(large);
    db.drop_table("large").unwrap();
    db.run(|txn| txn.put(&table, b"value", &[2; 5000])).unwrap();
    let (engine, waiting) = (db.engine(), || db.engine().deferred_frees.waiting.lock().list.len());
    assert_eq!(waiting(), 2);
    drop(snapshot);
    assert!(engine.freeing().free_some(), "the table is left");
    assert_eq!(waiting(), 1);
    assert!(engine.freeing().free_some());
    assert_eq!(waiting(), 1);
    db.checkpoint().unwrap();
    assert_eq!(waiting(), 0);
    assert!(!engine.freeing().free_some());
    assert!(db.check().unwrap().is_ok());
}
