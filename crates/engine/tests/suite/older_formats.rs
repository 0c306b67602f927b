//! Databases that earlier versions of the program left, closed or after a power cut. They must open
//! and have their contents.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use duramen::pmem::{Domain, Source, Survive};
use duramen::{
    Archive, BatchOptions, Db, Error, Granularity, HeapOptions, Options, Partition, PcmOptions, Restore, Scheme, Table,
};
use duramen_io::{AlignedBuf, CrashChoice, Disk, OpenMode, SimDisk};

use crate::fixture;

/// The specimens with a log: the number of logs, and whether the database was closed.
const WITH_LOGS: [(&str, u16, bool); 4] =
    [("closed", 1, true), ("crashed", 1, false), ("closed-3-logs", 3, true), ("crashed-3-logs", 3, false)];

/// A closed database with an archive, a backup from before its rows were changed, and the archive.
const ARCHIVED: [&str; 3] = ["archived", "archived-backup", "archived-archive"];

/// The specimens in persistent memory, all of them crashed.
const IN_MEMORY: [&str; 4] = ["in-place", "group-commit", "pcm-pages", "pcm-tuples"];

/// The region of those: a disk with this file.
const REGION: &str = "region";

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

fn options_with_archive(archive: &SimDisk) -> Options {
    Options { archive: Some(Archive::on(Arc::new(archive.clone()))), ..options(1) }
}

/// Options for a specimen in persistent memory, whose region is a file.
fn options_in_memory(name: &str, region: &Path) -> Options {
    let heap = || {
        let heap = HeapOptions::new(Source::File(region.to_owned()), 4 << 20, Domain::VolatileCache);
        HeapOptions { survive: Survive::Process, ..heap }
    };
    let pcm = |granularity| {
        let pcm = PcmOptions::new(Source::File(region.to_owned()), 2 << 20, Domain::VolatileCache);
        Scheme::PcmLogging(PcmOptions { survive: Survive::Process, granularity, ..pcm })
    };
    let scheme = match name {
        "in-place" => Scheme::InPlace(heap()),
        "group-commit" => {
            Scheme::NvramGroupCommit(heap(), BatchOptions { log_bytes: Some(1 << 20), ..BatchOptions::default() })
        }
        "pcm-pages" => pcm(Granularity::Page),
        "pcm-tuples" => pcm(Granularity::Tuple),
        other => panic!("there is no specimen `{other}`"),
    };
    Options { scheme, pool_bytes: 64 * 8192, ..Options::default() }
}

/// Rows have two versions; for some rows the second version is committed after the last checkpoint.
fn value_before_8(row: u32) -> Vec<u8> {
    let version = u32::from(row.is_multiple_of(3));
    [row, version].map(u32::to_be_bytes).concat().repeat(6)
}

/// Since format 8, some rows have changed their length after the last checkpoint.
fn value(row: u32) -> Vec<u8> {
    let times = if row.is_multiple_of(5) { 1 + row as usize % 3 } else { 1 };
    value_before_8(row).repeat(times)
}

fn file(format: u32, name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "fixtures", &format!("format-{format}-{name}.disk")].iter().collect()
}

/// Puts the rows into a new database.
fn populate(db: &Db) {
    let table = db.create_table("t").unwrap();
    let mut txn = db.begin();
    for row in 0..ROWS {
        txn.put(&table, &row.to_be_bytes(), &[row, 0].map(u32::to_be_bytes).concat().repeat(6)).unwrap();
    }
    txn.put(&table, b"large", &[7; 20_000]).unwrap();
    txn.commit().unwrap();
}

/// Changes the rows, and runs `end` while a transaction is open that never commits.
fn change(db: &Db, end: impl FnOnce()) {
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    for row in (0..ROWS).step_by(3) {
        txn.put(&table, &row.to_be_bytes(), &value(row)).unwrap();
    }
    txn.commit().unwrap();
    // Leaves split and merge; values become longer than 255 bytes, and shorter again.
    for long in [true, false] {
        for rows in (0..ROWS).step_by(5).collect::<Vec<_>>().chunks(20) {
            let value = |row| if long { vec![1; 300] } else { value(row) };
            db.run(|txn| rows.iter().try_for_each(|&row| txn.put(&table, &row.to_be_bytes(), &value(row)))).unwrap();
        }
        let rows = || (1..ROWS).step_by(7).map(u32::to_be_bytes);
        db.run(|txn| rows().try_for_each(|row| txn.delete(&table, &row).map(drop))).unwrap();
        db.run(|txn| (1..ROWS).step_by(7).try_for_each(|row| txn.put(&table, &row.to_be_bytes(), &value(row))))
            .unwrap();
    }
    let mut loser = db.begin();
    loser.put(&table, b"never committed", b"-").unwrap();
    loser.delete(&table, &1u32.to_be_bytes()).unwrap();
    end();
}

/// The command that makes the fixtures is `FORMAT=n cargo test -p duramen --test suite
/// older_formats -- --ignored`, with a program that writes format n.
#[test]
#[ignore = "makes the fixtures of the format that the program writes"]
fn make_fixtures() {
    let format = std::env::var("FORMAT").expect("FORMAT says which format this program writes").parse().unwrap();
    for (name, logs, is_closed) in WITH_LOGS {
        let disk = SimDisk::new(1);
        let db = Db::open_on(Arc::new(disk.clone()), options(logs)).unwrap();
        populate(&db);
        db.checkpoint().unwrap();
        change(&db, || {
            if !is_closed {
                disk.crash();
            }
        });
        let image = if is_closed {
            db.close().unwrap();
            disk.image()
        } else {
            drop(db);
            disk.crash_image(&CrashChoice::Everything)
        };
        std::fs::write(file(format, name), fixture::pack(&image)).unwrap();
    }
    let [disk, backup, archive] = ARCHIVED.map(|_| SimDisk::new(1));
    let db = Db::open_on(Arc::new(disk.clone()), options_with_archive(&archive)).unwrap();
    populate(&db);
    db.backup_to(&backup, |_| {}).unwrap();
    change(&db, || {});
    db.close().unwrap();
    for (name, disk) in ARCHIVED.into_iter().zip([disk, backup, archive]) {
        std::fs::write(file(format, name), fixture::pack(&disk)).unwrap();
    }
    for name in IN_MEMORY {
        let home = tempfile::tempdir().unwrap();
        let (disk, region) = (SimDisk::new(1), SimDisk::new(1));
        let path = home.path().join(REGION);
        let db = Db::open_on(Arc::new(disk.clone()), options_in_memory(name, &path)).unwrap();
        populate(&db);
        change(&db, || {
            disk.crash();
            let mut bytes = AlignedBuf::zeroed(std::fs::metadata(&path).unwrap().len() as usize);
            bytes.copy_from_slice(&std::fs::read(&path).unwrap());
            let copy = region.open(REGION, OpenMode::CreateNew).unwrap();
            copy.write_at(&[&bytes], 0).unwrap();
            copy.sync().unwrap();
            region.sync_directory("").unwrap();
        });
        drop(db);
        std::fs::write(file(format, name), fixture::pack(&disk.crash_image(&CrashChoice::Everything))).unwrap();
        std::fs::write(file(format, &format!("{name}-region")), fixture::pack(&region)).unwrap();
    }
}

fn verify(db: &Db, value: impl Fn(u32) -> Vec<u8>) {
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

/// Values longer than the present ones, so that every leaf changes, and some split.
fn longer(row: u32) -> Vec<u8> {
    value(row).repeat(1 + row as usize % 7)
}

fn lengthen(db: &Db, table: &Table) {
    for rows in (0..ROWS).collect::<Vec<_>>().chunks(40) {
        db.run(|txn| rows.iter().try_for_each(|row| txn.put(table, &row.to_be_bytes(), &longer(*row)))).unwrap();
    }
    // Taken back, from nodes that this program has rewritten.
    let mut txn = db.begin();
    (0..ROWS).step_by(5).for_each(|row| txn.put(table, &row.to_be_bytes(), &value(row)).unwrap());
    (1..ROWS).step_by(5).for_each(|row| assert!(txn.delete(table, &row.to_be_bytes()).unwrap()));
    txn.abort().unwrap();
}

#[test]
fn databases_of_earlier_versions_open() {
    for (format, value) in
        [(1, value_before_8 as fn(u32) -> Vec<u8>), (3, value_before_8), (7, value_before_8), (8, value)]
    {
        for (name, logs, _) in WITH_LOGS {
            let disk = fixture::unpack(&std::fs::read(file(format, name)).unwrap());
            for life in 0..3 {
                let options = Options { create: false, instant_recovery: life == 1, ..options(logs) };
                let db = Db::open_on(Arc::new(disk.clone()), options).unwrap();
                verify(&db, value);
                // Work in the new format, which the next opening reads.
                let table = db.open_table("t").unwrap();
                let mut txn = db.begin();
                txn.put(&table, b"large", &[8; 9_000]).unwrap();
                txn.abort().unwrap();
                db.close().unwrap();
            }
            let db = Db::open_on(Arc::new(disk.clone()), options(logs)).unwrap();
            let table = db.open_table("t").unwrap();
            lengthen(&db, &table);
            verify(&db, longer);
            db.close().unwrap();
            // The pages of the large value are freed, whatever their order.
            let db = Db::open_on(Arc::new(disk.clone()), options(logs)).unwrap();
            verify(&db, longer);
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

/// What an earlier version has logged after its backup is repeated in nodes as this version writes
/// them, and what this version has logged after that follows.
#[test]
fn a_backup_by_an_earlier_version_is_restored_with_later_work() {
    let [disk, backup, archive] =
        ARCHIVED.map(|name| fixture::unpack(&std::fs::read(file(8, name)).unwrap())).map(Arc::new);
    let restored = |value: fn(u32) -> Vec<u8>| {
        let restored = SimDisk::new(2);
        let restore = Restore::from_disk(backup.clone()).archive_on(archive.clone()).log_on(disk.clone());
        restore.into_disk(&restored, |_| {}).unwrap();
        let db = Db::open_on(Arc::new(restored), options(1)).unwrap();
        verify(&db, value);
        lengthen(&db, &db.open_table("t").unwrap());
        verify(&db, longer);
        db.close().unwrap();
    };
    restored(value);
    let db = Db::open_on(disk.clone(), options_with_archive(&archive)).unwrap();
    verify(&db, value);
    lengthen(&db, &db.open_table("t").unwrap());
    db.close().unwrap();
    restored(longer);
}

#[test]
fn databases_of_earlier_versions_in_persistent_memory_open() {
    for name in IN_MEMORY {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(REGION);
        let disk = fixture::unpack(&std::fs::read(file(8, name)).unwrap());
        let region = fixture::unpack(&std::fs::read(file(8, &format!("{name}-region"))).unwrap());
        std::fs::write(&path, region.durable_bytes(REGION).unwrap()).unwrap();
        let open = || Db::open_on(Arc::new(disk.clone()), options_in_memory(name, &path)).unwrap();
        let db = open();
        verify(&db, value);
        db.close().unwrap();
        let db = open();
        verify(&db, value);
        lengthen(&db, &db.open_table("t").unwrap());
        verify(&db, longer);
        db.close().unwrap();
        let db = open();
        verify(&db, longer);
        db.close().unwrap();
    }
}

/// Once an interrupted opening has changed a page in persistent memory, an earlier program refuses
/// the database, whichever slot of its control file it can read.
#[test]
fn a_pcm_of_an_earlier_version_is_changed_only_when_both_slots_name_this_one() {
    const SLOT_BYTES: usize = 4096;
    const VERSION_AT: usize = 8;
    let versions =
        |disk: &SimDisk| [0, SLOT_BYTES].map(|slot| disk.durable_bytes("control").unwrap()[slot + VERSION_AT]);
    for name in ["pcm-pages", "pcm-tuples"] {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(REGION);
        let specimen = fixture::unpack(&std::fs::read(file(8, name)).unwrap());
        let region = fixture::unpack(&std::fs::read(file(8, &format!("{name}-region"))).unwrap());
        let before = region.durable_bytes(REGION).unwrap();
        assert!(versions(&specimen).iter().all(|&version| version <= 8));
        let (mut interrupted, mut changed) = (0, 0);
        for at in 0.. {
            std::fs::write(&path, &before).unwrap();
            let disk = specimen.image();
            disk.crash_at(disk.operations() + at);
            let opened = Db::open_on(Arc::new(disk.clone()), options_in_memory(name, &path));
            if opened.is_ok() {
                break;
            }
            interrupted += 1;
            let left = disk.crash_image(&CrashChoice::Nothing);
            if std::fs::read(&path).unwrap() != before {
                changed += 1;
                let found = versions(&left);
                assert!(found.iter().all(|&version| version > 8), "{name}, operation {at}: {found:?}");
            }
            let db = Db::open_on(Arc::new(left), options_in_memory(name, &path)).unwrap();
            verify(&db, value);
            db.close().unwrap();
        }
        assert!(interrupted > 3 && changed > 1, "{name}: {interrupted}, {changed}");
    }
}
