//! `Db::compact_into`.
#![cfg(not(any(duramen_loom, duramen_machine)))]

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use duramen::{Db, Error, Options, Snapshot, Table, Txn};
use duramen_io::{CrashChoice, SimDisk};

fn options() -> Options {
    Options { snapshots: true, pool_bytes: 4 << 20, ..Options::small() }
}

type Records = Vec<(Vec<u8>, Vec<u8>)>;

fn contents(snapshot: &Snapshot) -> Vec<(String, Records)> {
    let records = |name: &str| {
        let table = snapshot.open_table(name).unwrap();
        snapshot.scan(&table, ..).map(Result::unwrap).collect()
    };
    snapshot.list().unwrap().into_iter().map(|name| (name.clone(), records(&name))).collect()
}

#[test]
fn a_copy_has_the_records_of_a_snapshot_and_no_gaps() {
    let home = tempfile::tempdir().unwrap();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    let db = Db::open(&from, options()).unwrap();
    for (name, rows, bytes) in [("small", 60_000_u32, 100), ("empty", 0, 0), ("large", 60, 50_000)] {
        let table = db.create_table(name).unwrap();
        for first in (0..rows).step_by(1000) {
            let put = |txn: &mut Txn, row: u32| txn.put(&table, &row.to_be_bytes(), &vec![row as u8; bytes]);
            db.run(|txn| (first..rows.min(first + 1000)).try_for_each(|row| put(txn, row))).unwrap();
        }
    }
    let small = db.open_table("small").unwrap();
    // Three of four rows go.
    for first in (0..60_000).step_by(1000) {
        let mut rows = (first..first + 1000_u32).filter(|row| row % 4 != 0);
        db.run(|txn| rows.try_for_each(|row| txn.delete(&small, &row.to_be_bytes()).map(|_| ()))).unwrap();
    }
    db.drop_table("large").unwrap();
    let large = db.create_table("large").unwrap();
    db.run(|txn| txn.put(&large, b"one", &[7; 30_000])).unwrap();

    let target = Db::open(&to, options()).unwrap();
    let expected = contents(&db.snapshot().unwrap());
    let mut calls = 0;
    let copied = db.compact_into(&target, |_| calls += 1).unwrap();
    assert_eq!((copied.tables, copied.records), (3, 15_001));
    assert!(calls > 10, "{calls}");
    assert!(contents(&target.snapshot().unwrap()) == expected);
    let report = target.check().unwrap();
    assert!(report.is_ok(), "{:?}", report.problems);
    // A target in use is refused.
    let again = db.compact_into(&target, |_| {});
    assert!(matches!(&again, Err(Error::TableNotEmpty { name }) if name == "empty"), "{again:?}");
    db.close().unwrap();
    target.close().unwrap();
    let size = |dir: &std::path::Path| dir.join("data").metadata().unwrap().len();
    let live: usize =
        expected.iter().flat_map(|(_, records)| records).map(|(key, value)| key.len() + value.len()).sum();
    assert!(size(&to) < size(&from) / 2, "{} became {}", size(&from), size(&to));
    // The file grows by up to a mebibyte at once.
    assert!(size(&to) < live as u64 * 6 / 5 + (1 << 20), "{live} bytes of records became {}", size(&to));
    // 6 bytes a record besides key and value, and 64 a page; the prefix of keys is cut off.
    let pages = report.pages as usize;
    assert!(pages <= live * 106 / 100 / 8192 + 8, "{live} bytes of records take {pages} pages");
}

/// The log of a copy takes no space for what it held of the load, and goes on as any other.
#[test]
fn the_log_of_a_copy_is_empty_and_goes_on() {
    let home = tempfile::tempdir().unwrap();
    // The load's log, some three mebibytes, lies in the first segment.
    let options = || Options { log_segment_bytes: 4 << 20, log_max_bytes: 32 << 20, ..options() };
    let db = Db::in_memory(options()).unwrap();
    let table = db.create_table("t").unwrap();
    let put_all = |db: &Db, table: &Table, byte: u8| {
        for first in (0..28_000_u32).step_by(1000) {
            let mut rows = first..first + 1000;
            db.run(|txn| rows.try_for_each(|row| txn.put(table, &row.to_be_bytes(), &[byte; 100]))).unwrap();
        }
    };
    put_all(&db, &table, 1);

    let files = || {
        let files = std::fs::read_dir(home.path().join("log")).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap()).collect::<Vec<_>>()
    };
    let open = |byte: u8| {
        let target = Db::open(home.path(), options()).unwrap();
        let snapshot = target.snapshot().unwrap();
        let table = snapshot.open_table("t").unwrap();
        let records: Vec<_> = snapshot.scan(&table, ..).map(Result::unwrap).collect();
        assert!(records.len() == 28_000 && records.iter().all(|(_, value)| *value == [byte; 100]));
        drop(snapshot);
        target
    };
    let target = Db::open(home.path(), options()).unwrap();
    db.compact_into(&target, |_| {}).unwrap();
    target.close().unwrap();
    let space: u64 = files().iter().map(|file| file.blocks() * 512).sum();
    assert!(space < 300_000, "{space}");

    // It is opened and filled several times over. No segment lacks space then.
    for byte in 1..5 {
        let target = open(byte);
        let table = target.open_table("t").unwrap();
        put_all(&target, &table, byte);
        put_all(&target, &table, byte + 1);
        target.checkpoint().unwrap();
        put_all(&target, &table, byte + 1);
        for file in files() {
            assert!(file.blocks() * 512 >= file.len(), "{} of {}", file.blocks() * 512, file.len());
        }
        let report = target.check().unwrap();
        assert!(report.is_ok(), "{:?}", report.problems);
    }
    // So it is with a copy that stays open.
    open(5).close().unwrap();
    std::fs::remove_dir_all(home.path()).unwrap();
    let target = Db::open(home.path(), options()).unwrap();
    db.compact_into(&target, |_| {}).unwrap();
    let table = target.open_table("t").unwrap();
    for byte in 2..6 {
        put_all(&target, &table, byte);
        target.checkpoint().unwrap();
    }
    for file in files() {
        assert!(file.blocks() * 512 >= file.len(), "{} of {}", file.blocks() * 512, file.len());
    }
}

#[test]
fn a_crash_leaves_whole_tables_in_a_copy() {
    const ROWS: u32 = 5000;
    let options = || Options { log_segment_bytes: 1 << 20, log_max_bytes: 8 << 20, ..options() };
    let db = Db::in_memory(options()).unwrap();
    for name in ["a", "b"] {
        let table = db.create_table(name).unwrap();
        db.run(|txn| (0..ROWS).try_for_each(|row| txn.put(&table, &row.to_be_bytes(), &[7; 100]))).unwrap();
    }
    for (crashes, operation) in (1..2000).step_by(3).enumerate() {
        let disk = SimDisk::new(operation);
        let target = Db::open_on(Arc::new(disk.clone()), options()).unwrap();
        disk.crash_at(disk.operations() + operation);
        let copied = db.compact_into(&target, |_| {});
        let is_over = disk.crashed_in().is_none();
        disk.crash();
        drop(target);
        for image in [CrashChoice::Nothing, CrashChoice::Everything, CrashChoice::Random(operation)] {
            let copy = Db::open_on(Arc::new(disk.crash_image(&image)), options()).unwrap();
            let names = copy.list().unwrap();
            assert!(copied.is_err() || names == ["a", "b"], "{names:?}");
            for (_, records) in contents(&copy.snapshot().unwrap()) {
                assert_eq!(records.len(), ROWS as usize);
            }
            assert!(copy.check().unwrap().is_ok());
        }
        if is_over {
            copied.unwrap();
            assert!(crashes > 10, "{crashes}");
            return;
        }
    }
    panic!("the copy takes more operations of the disk than expected");
}

/// What is committed while a copy is made is not in it.
#[test]
fn a_copy_shows_one_moment() {
    let (db, target) = (Db::in_memory(options()).unwrap(), Db::in_memory(options()).unwrap());
    let table = db.create_table("t").unwrap();
    db.run(|txn| (0..5000_u32).try_for_each(|row| txn.put(&table, &row.to_be_bytes(), &[0; 8]))).unwrap();
    let mut is_first = true;
    let copied = db.compact_into(&target, |_| {
        if std::mem::take(&mut is_first) {
            let late = db.create_table("late").unwrap();
            db.run(|txn| txn.put(&late, b"key", b"value")).unwrap();
            db.run(|txn| (0..6000_u32).try_for_each(|row| txn.put(&table, &row.to_be_bytes(), &[1; 8]))).unwrap();
        }
    });
    assert_eq!(copied.unwrap().records, 5000);
    let found = contents(&target.snapshot().unwrap());
    assert_eq!(found.len(), 1);
    assert!(found[0].1.len() == 5000 && found[0].1.iter().all(|(_, value)| value == &[0; 8]));
}

#[test]
fn without_versions_there_is_no_snapshot_to_copy() {
    let db = Db::in_memory(Options { snapshots: false, ..options() }).unwrap();
    let target = Db::in_memory(options()).unwrap();
    let copied = db.compact_into(&target, |_| {});
    assert!(matches!(copied, Err(Error::InvalidOption { option: "snapshots", .. })), "{copied:?}");
}
