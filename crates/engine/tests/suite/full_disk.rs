//! A full disk, met where space is reserved and where space had been reserved.

use std::sync::Arc;

use duramen::{Db, Error, Options, Result};
use duramen_io::{Disk, Fault, SimDisk};

fn open(disk: &SimDisk) -> Db {
    let options =
        Options { pool_bytes: 1 << 20, log_segment_bytes: 64 << 10, log_buffer_bytes: 64 << 10, ..Options::default() };
    Db::open_on(Arc::new(disk.clone()) as Arc<dyn Disk>, options).unwrap()
}

fn put(db: &Db, from: u32, count: u32) -> Result<()> {
    let table = db.open_table("t").or_else(|_| db.create_table("t"))?;
    let mut txn = db.begin();
    (from..from + count).try_for_each(|key| txn.put(&table, &key.to_be_bytes(), &[7; 1000]))?;
    txn.commit()
}

/// A write or sync that found no space put the database out of service, although the error said
/// "make room and run the transaction again".
#[test]
fn a_writer_that_frees_space_can_go_on() {
    let (mut refused, mut failed) = (0, 0);
    for number in 0..60 {
        let disk = SimDisk::new(number);
        let db = open(&disk);
        put(&db, 0, 100).unwrap();
        // Among the log's writes and its new segments, and among the writes of the pages and of the
        // control file.
        let fail = |at| disk.fail_at(disk.operations() + at, Fault::Enospc, false);
        let error = if number < 40 {
            fail(number);
            put(&db, 100, 200).and_then(|()| db.checkpoint()).err()
        } else if number == 40 {
            disk.set_capacity(disk.used());
            put(&db, 100, 3000).err()
        } else {
            put(&db, 100, 200).and_then(|()| db.checkpoint()).unwrap();
            // The second checkpoint writes the pages that were dirty at the first.
            fail(number - 40);
            db.checkpoint().err()
        };
        disk.clear_faults();
        disk.set_capacity(1 << 40);
        let after = put(&db, 4000, 1).and_then(|()| db.checkpoint());
        match error {
            None => assert!(after.is_ok(), "{number}: {after:?}"),
            Some(error @ Error::Full { .. }) => {
                refused += 1;
                assert!(after.is_ok(), "{number}: {error}; but then: {after:?}");
            }
            Some(error @ (Error::Io { .. } | Error::Poisoned { .. })) => {
                failed += 1;
                assert!(matches!(after, Err(Error::Poisoned { .. })), "{number}: {error}; and then: {after:?}");
                assert!(!error.to_string().contains("again"), "{number}: {error}");
            }
            Some(error) => panic!("{number}: {error}"),
        }
    }
    println!("{refused} refused, {failed} failed");
    assert!(refused > 0 && failed > 0, "{refused} {failed}");
}

/// The same for pages that are overwritten.
#[test]
fn pages_that_find_no_space_are_a_failure() {
    // The double-write area, the pages, the log and the control file. Reserving space for page
    // versions may fail, and so may the segment that a thread of the log prepares meanwhile.
    let mut failed = 0;
    for number in 0..20 {
        let disk = SimDisk::new(number);
        let db = open(&disk);
        put(&db, 0, 300).unwrap();
        disk.fail_at(disk.operations() + number, Fault::Enospc, false);
        if let Err(error) = db.close() {
            assert!(matches!(error, Error::Io { .. } | Error::Poisoned { .. }), "{number}: {error}");
            failed += 1;
        }
        disk.clear_faults();
        let db = open(&disk);
        let table = db.open_table("t").unwrap();
        assert_eq!(db.begin().scan(&table, ..).map(Result::unwrap).count(), 300, "{number}: what was committed stays");
        put(&db, 0, 1).unwrap();
    }
    println!("{failed} failed");
    assert!(failed > 0);
}
