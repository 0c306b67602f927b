//! Databases whose log is archived to a disk that is slow, full or broken.
#![cfg(not(duramen_loom))]

use std::sync::Arc;
use std::time::Duration;

use duramen::{Archive, Db, Error, Options, Partition, Restore, Table};
use duramen_io::{Disk, Fault, Pace, SimDisk};

use crate::common;

/// Returns options with logs that fill up soon.
fn options(logs: u16, archive: &SimDisk) -> Options {
    Options {
        logs,
        log_partition: Partition::RoundRobin,
        log_segment_bytes: 256 << 10,
        checkpoint_bytes: Some(512 << 10),
        log_max_bytes: 2 << 20,
        archive: Some(Archive::on(Arc::new(archive.clone()))),
        ..common::small()
    }
}

fn open(logs: u16, disk: &SimDisk, archive: &SimDisk) -> Db {
    Db::open_on(Arc::new(disk.clone()), options(logs, archive)).unwrap()
}

fn write(db: &Db, table: &Table, rows: std::ops::Range<u32>) -> Result<(), Error> {
    for row in rows {
        let mut txn = db.begin();
        txn.put(table, &(row % 500).to_be_bytes(), &[row as u8; 1000])?;
        txn.commit()?;
    }
    Ok(())
}

/// A writer that finds the log full waits for an archive that makes progress.
#[test]
fn a_slow_archive_slows_writers_down_and_refuses_nobody() {
    let pace = Pace { usual: Duration::from_millis(4), hang_one_in: 0, hang: Duration::ZERO };
    for logs in [1, 3] {
        let (disk, archive) = (SimDisk::new(1), SimDisk::with_pace(2, pace));
        let db = open(logs, &disk, &archive);
        let table = db.create_table("rows").unwrap();
        write(&db, &table, 0..3000 * u32::from(logs)).unwrap();
        let log = db.metrics().log;
        assert!(log.segments_archived >= 10 && log.archive_failures == 0, "{log:?}");
        db.close().unwrap();
    }
}

#[test]
fn an_archive_that_is_full_or_broken_is_told_and_nothing_is_lost() {
    let broken: [fn(&SimDisk); 2] = [
        |archive| archive.fail_at(archive.operations(), Fault::Eio, true),
        |archive| archive.set_capacity(archive.used() + (100 << 10)),
    ];
    let rounds = broken.into_iter().flat_map(|break_it| [1, 3].map(|logs| (logs, break_it)));
    for (round, (logs, break_it)) in rounds.enumerate() {
        let (disk, archive, backup) = (SimDisk::new(1), SimDisk::new(2), SimDisk::new(3));
        let db = open(logs, &disk, &archive);
        let table = db.create_table("rows").unwrap();
        write(&db, &table, 0..1000).unwrap();
        db.backup_to(&backup, |_| {}).unwrap();
        db.await_archive();
        break_it(&archive);
        let refused = write(&db, &table, 1000..20_000).unwrap_err();
        assert!(matches!(&refused, Error::Full { reason } if reason.contains("archived")), "{refused}");
        assert!(db.archive_failure().is_some() && db.metrics().log.archive_failures > 0);
        // Transactions that only read are not affected.
        assert!(db.begin().get(&table, &7_u32.to_be_bytes()).unwrap().is_some());

        archive.clear_faults();
        archive.set_capacity(1 << 30);
        while db.archive_failure().is_some() {
            std::thread::sleep(Duration::from_millis(5));
        }
        write(&db, &table, 0..3000).unwrap();
        let expected: Vec<_> = db.begin().scan(&table, ..).map(|row| row.unwrap()).collect();
        db.close().unwrap();
        let target = SimDisk::new(4);
        let restore = Restore::from_disk(Arc::new(backup)).archive_on(Arc::new(archive)).log_on(Arc::new(disk));
        restore.into_disk(&target, |_| {}).unwrap();
        let db = Db::open_on(Arc::new(target), Options { archive: None, ..common::small() }).unwrap();
        let table = db.open_table("rows").unwrap();
        let found: Vec<_> = db.begin().scan(&table, ..).map(|row| row.unwrap()).collect();
        assert!(found == expected, "round {round}");
        assert!(db.check().unwrap().is_ok());
    }
}

/// A database is not opened with an archive that cannot be read. Without the option it is opened,
/// and that ends the archive.
#[test]
fn opening_needs_the_archive_that_it_is_given() {
    let (disk, archive) = (SimDisk::new(1), SimDisk::new(2));
    let db = open(1, &disk, &archive);
    let table = db.create_table("rows").unwrap();
    write(&db, &table, 0..1000).unwrap();
    db.await_archive();
    db.close().unwrap();
    assert!(!archive.list("log").unwrap().is_empty(), "a new archive would do as well");
    archive.fail_at(archive.operations(), Fault::Eio, true);
    let refused = Db::open_on(Arc::new(disk.clone()), options(1, &archive)).unwrap_err();
    assert!(matches!(refused, Error::OpenFailed { .. }), "{refused}");
    archive.clear_faults();
    let db = Db::open_on(Arc::new(disk.clone()), Options { archive: None, ..options(1, &archive) }).unwrap();
    let table = db.open_table("rows").unwrap();
    write(&db, &table, 0..4000).unwrap();
    db.close().unwrap();
    let refused = Db::open_on(Arc::new(disk.clone()), options(1, &archive)).unwrap_err();
    assert!(matches!(&refused, Error::InvalidOption { option: "archive", .. }), "{refused}");
    open(1, &disk, &SimDisk::new(5)).close().unwrap();
}

/// An interrupted creation leaves nothing in the archive that keeps the database, made anew with
/// another identity and another number of logs, from using it.
#[test]
fn a_database_is_created_again_with_the_archive_of_the_first_try() {
    let operations = |logs| {
        let (disk, archive) = (SimDisk::new(1), SimDisk::new(2));
        drop(open(logs, &disk, &archive));
        (disk.operations(), archive.operations())
    };
    let (mut interrupted, mut of_archive) = (0, 0);
    for (logs, then) in [(1, 3), (3, 1)] {
        let (on_disk, on_archive) = operations(logs);
        let crashes = (0..on_disk).map(|at| (Some(at), None)).chain((0..on_archive).map(|at| (None, Some(at))));
        for (seed, (at, at_archive)) in (1..).zip(crashes) {
            let (disk, archive) = (SimDisk::new(seed), SimDisk::new(seed + 1));
            at.into_iter().for_each(|at| disk.crash_at(at));
            at_archive.into_iter().for_each(|at| archive.crash_at(at));
            let first = Db::open_on(Arc::new(disk.clone()), options(logs, &archive));
            let is_made = first.is_ok();
            drop(first);
            let (disk, archive) = (disk.image(), archive.image());
            let has_control = disk.exists("control").unwrap();
            assert!(has_control || !is_made, "{logs} logs, crash at {at:?}, {at_archive:?}");
            interrupted += u32::from(!has_control);
            of_archive += u32::from(!has_control && at_archive.is_some());
            let db = open(then, &disk, &archive);
            assert_eq!(db.metrics().log.archive_failures, 0);
            let table = db.create_table("rows").unwrap();
            write(&db, &table, 0..600).unwrap();
            db.await_archive();
            assert!(db.archive_failure().is_none() && db.metrics().log.segments_archived > 0);
            db.close().unwrap();
        }
    }
    assert!(interrupted > 30 && of_archive > 2, "{interrupted}, {of_archive}");
}
