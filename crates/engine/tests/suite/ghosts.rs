//! Ghosts that cannot be removed at once are removed later, whatever the reason was.

use std::sync::Arc;

use duramen::{Db, Options};
use duramen_io::{CrashChoice, SimDisk};

use crate::common::small;

/// A transaction may hold a lock on the key, or on the gap below it, while the deleting one ends.
#[test]
fn a_ghost_that_was_locked_is_removed_when_it_is_not_any_more() {
    for snapshots in [false, true] {
        let options = Options { snapshots, ..small() };
        let db = Db::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
        let table = db.create_table("t").unwrap();
        db.run(|txn| (0..100_u32).try_for_each(|key| txn.put(&table, &key.to_be_bytes(), b"value"))).unwrap();
        // It locks the gap below each of the keys.
        let mut reader = db.begin();
        for key in 0..50_u32 {
            let missing = [&key.to_be_bytes()[..3], &[key as u8, 0]].concat();
            assert_eq!(reader.get(&table, &missing).unwrap(), None);
        }
        for key in 0..40_u32 {
            db.run(|txn| txn.delete(&table, &key.to_be_bytes()).map(drop)).unwrap();
        }
        db.run(|txn| txn.delete_range(&table, &40_u32.to_be_bytes()[..]..&60_u32.to_be_bytes()[..])).unwrap();
        let report = db.check().unwrap();
        assert!(report.is_ok() && (report.records, report.ghosts) == (40, 50), "snapshots {snapshots}: {report:?}");
        reader.commit().unwrap();
        // Later deletions take care of some, and a checkpoint of the rest.
        for key in 60..84_u32 {
            assert!(db.run(|txn| txn.delete(&table, &key.to_be_bytes())).unwrap());
        }
        db.checkpoint().unwrap();
        let report = db.check().unwrap();
        assert!(report.is_ok() && (report.records, report.ghosts) == (16, 0), "snapshots {snapshots}: {report:?}");
        db.close().unwrap();
    }
}

/// The insertions of a transaction that a crash interrupts become ghosts when they are undone.
#[test]
fn what_recovery_takes_back_leaves_no_ghosts() {
    for instant_recovery in [false, true] {
        let (disk, options) = (SimDisk::new(2), Options { instant_recovery, ..small() });
        let db = Db::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
        let table = db.create_table("t").unwrap();
        let mut loser = db.begin();
        for key in 0..500_u32 {
            loser.put(&table, &key.to_be_bytes(), &[1; 100]).unwrap();
        }
        // Its log is durable.
        db.run(|txn| txn.put(&table, b"other", b"value")).unwrap();
        let image = disk.crash_image(&CrashChoice::Nothing);
        drop(loser);
        let db = Db::open_on(Arc::new(image), options).unwrap();
        db.checkpoint().unwrap();
        let report = db.check().unwrap();
        assert!(report.is_ok() && (report.records, report.ghosts) == (1, 0), "{report:?}");
        db.close().unwrap();
    }
}
