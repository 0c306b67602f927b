//! Databases that earlier versions of the program left, closed or after a power cut. They must open
//! and have their contents.

use std::path::PathBuf;
use std::sync::Arc;

use duramen::{Db, Error, Options, Partition};
use duramen_io::{CrashChoice, SimDisk};

use crate::fixture;

/// The specimens: the number of logs, and whether the database was closed.
const SPECIMENS: [(&str, u16, bool); 4] =
    [("closed", 1, true), ("crashed", 1, false), ("closed-3-logs", 3, true), ("crashed-3-logs", 3, false)];

const ROWS: u32 = 400;

fn options(logs: u16) -> Options {
    Options {
        pool_bytes: 64 * 8192,
        log_buffer_bytes: 64 << 10,
        log_segment_bytes: 64 << 10,
        log_max_bytes: 4 << 20,
        checkpoint_bytes: Some(256 << 10),
        logs,
        log_partition: Partition::Page,
        ..Options::default()
    }
}

/// Rows have two versions; for some rows the second version is committed after the last checkpoint.
fn value(row: u32) -> Vec<u8> {
    let version = u32::from(row.is_multiple_of(3));
    [row, version].map(u32::to_be_bytes).concat().repeat(6)
}

fn file(format: u32, name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "fixtures", &format!("format-{format}-{name}.disk")].iter().collect()
}

/// The command that makes the fixtures is `FORMAT=n cargo test -p duramen --test suite
/// older_formats -- --ignored`, with a program that writes format n.
#[test]
#[ignore = "makes the fixtures of the format that the program writes"]
fn make_fixtures() {
    let format = std::env::var("FORMAT").expect("FORMAT says which format this program writes").parse().unwrap();
    for (name, logs, is_closed) in SPECIMENS {
        let disk = SimDisk::new(1);
        let db = Db::open_on(Arc::new(disk.clone()), options(logs)).unwrap();
        let table = db.create_table("t").unwrap();
        let mut txn = db.begin();
        for row in 0..ROWS {
            txn.put(&table, &row.to_be_bytes(), &[row, 0].map(u32::to_be_bytes).concat().repeat(6)).unwrap();
        }
        txn.put(&table, b"large", &[7; 20_000]).unwrap();
        txn.commit().unwrap();
        db.checkpoint().unwrap();
        let mut txn = db.begin();
        for row in (0..ROWS).step_by(3) {
            txn.put(&table, &row.to_be_bytes(), &value(row)).unwrap();
        }
        txn.commit().unwrap();
        let mut loser = db.begin();
        loser.put(&table, b"never committed", b"-").unwrap();
        loser.delete(&table, &1u32.to_be_bytes()).unwrap();
        let image = if is_closed {
            drop(loser);
            db.close().unwrap();
            disk.image()
        } else {
            disk.crash();
            drop(loser);
            drop(db);
            disk.crash_image(&CrashChoice::Everything)
        };
        std::fs::write(file(format, name), fixture::pack(&image)).unwrap();
    }
}

fn verify(db: &Db) {
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    let mut found = txn.scan(&table, ..).map(|record| record.unwrap());
    for row in 0..ROWS {
        assert_eq!(found.next().unwrap(), (row.to_be_bytes().to_vec(), value(row)));
    }
    assert_eq!(found.next().unwrap(), (b"large".to_vec(), vec![7; 20_000]));
    assert_eq!(found.next(), None);
    drop(found);
    txn.commit().unwrap();
    assert!(db.check().unwrap().is_ok());
}

#[test]
fn databases_of_earlier_versions_open() {
    for format in [1, 3, 7] {
        for (name, logs, _) in SPECIMENS {
            let disk = fixture::unpack(&std::fs::read(file(format, name)).unwrap());
            for life in 0..3 {
                let options = Options { create: false, instant_recovery: life == 1, ..options(logs) };
                let db = Db::open_on(Arc::new(disk.clone()), options).unwrap();
                verify(&db);
                // Work in the new format, which the next opening reads.
                let table = db.open_table("t").unwrap();
                let mut txn = db.begin();
                txn.put(&table, b"large", &[8; 9_000]).unwrap();
                txn.abort().unwrap();
                db.close().unwrap();
            }
            // The pages of the large value are freed, whatever their order.
            let db = Db::open_on(Arc::new(disk.clone()), options(logs)).unwrap();
            let table = db.open_table("t").unwrap();
            let mut txn = db.begin();
            txn.delete(&table, b"large").unwrap();
            txn.commit().unwrap();
            assert!(db.check().unwrap().is_ok());
            db.close().unwrap();
        }
    }
    assert!(matches!(
        Db::open_on(Arc::new(SimDisk::new(1)), Options { create: false, ..options(1) }),
        Err(Error::NotADatabase { .. })
    ));
}
