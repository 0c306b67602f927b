//! Backups taken while transactions run, and databases restored from them to points of all kinds.
#![cfg(not(duramen_loom))]

use duramen::pmem::{Domain, SimMemory, Source};
use duramen::{Archive, BackupReport, Db, Error, Gsn, LogDevice, NvmOptions, Options, Restore, RestoreTo, Timestamp};
use duramen_io::{CrashChoice, Disk, Fault, SimDisk};

use crate::archived::{Chance, Moment, World, arc, backup_under_load, check_rows, contents, restored};

#[test]
fn a_backup_under_load_is_restored_to_any_point() {
    let (report, archived) = backup_under_load(|_| {});
    // The file grows in steps, and a backup may come before its last one: 90 or 135 pages.
    assert!(report.pages > 80 && report.log_bytes > 0 && report.times.0 <= report.times.1, "{report:?}");
    assert!(archived > 10);
}

#[test]
fn so_it_is_with_the_end_of_the_log_in_persistent_memory() {
    for domain in [Domain::DurableCache, Domain::VolatileCache] {
        backup_under_load(|options| {
            let memory = SimMemory::new(4096 + options.log_buffer_bytes as u64, domain);
            options.log_device = LogDevice::Nvm(NvmOptions::new(Source::Simulated(memory), domain));
        });
    }
}

/// Makes a small database without load, a backup of it, and some more commits. Returns the moments
/// after each of these.
fn small() -> (World, SimDisk, BackupReport, Vec<Moment>) {
    let world = World::new(1, |options| options.pool_bytes = 64 * 8192);
    let mut chance = Chance(5);
    (0..60).for_each(|_| world.step(0, &mut chance));
    let backup = SimDisk::new(3);
    let report = world.db.backup_to(&backup, |_| {}).unwrap();
    let mut moments = vec![world.moment()];
    for _ in 0..6 {
        (0..250).for_each(|_| world.step(0, &mut chance));
        moments.push(world.moment());
    }
    (world, backup, report, moments)
}

#[test]
fn points_that_cannot_be_had_are_refused() {
    let (world, backup, report, moments) = small();
    world.db.await_archive();
    let archived = world.db.metrics().log.archived;
    let (disk, archive, _) = world.close();
    let from = || Restore::from_disk(arc(&backup)).archive_on(arc(&archive)).log_on(arc(&disk));
    let refused = |restore: Restore| restore.into_disk(&SimDisk::new(4), |_| {}).unwrap_err();

    let early = refused(from().to(RestoreTo::Gsn(Gsn::new(report.end.get() - 1))));
    assert!(matches!(early, Error::BeforeBackup { end } if end == report.end), "{early}");
    let early = refused(from().to(RestoreTo::Time(Timestamp::from_micros(report.times.0.micros() - 1_000_000))));
    assert!(matches!(early, Error::BeforeBackup { .. }), "{early}");

    let last = moments.last().unwrap();
    for to in [RestoreTo::Gsn(Gsn::new(1 << 40)), RestoreTo::Time(Timestamp::now())] {
        let late = refused(from().to(to));
        assert!(matches!(late, Error::BehindLog { end, last_commit: Some(_) } if end >= last.gsn), "{late}");
        assert!(late.to_string().contains("choose an earlier point"));
    }
    let late = refused(Restore::from_disk(arc(&backup)).to(RestoreTo::Gsn(last.gsn)));
    assert!(matches!(late, Error::BehindLog { end, .. } if end == report.end), "{late}");
    let late = refused(Restore::from_disk(arc(&backup)).archive_on(arc(&archive)).to(RestoreTo::Gsn(last.gsn)));
    assert!(matches!(late, Error::BehindLog { end, .. } if end.get() <= archived.get()), "{late}");

    // A gap: the archive has lost a segment.
    let missing = (report.end.get() - 4096) / ((256 << 10) - 4096) + 1;
    archive.remove(&format!("log/{missing:016x}.log")).unwrap();
    for to in [RestoreTo::End, RestoreTo::Gsn(last.gsn), RestoreTo::Time(last.time)] {
        let gap = refused(Restore::from_disk(arc(&backup)).archive_on(arc(&archive)).to(to));
        assert!(matches!(gap, Error::LogGap { segment, .. } if segment == missing), "{gap}");
    }
}

#[test]
fn directories_that_are_not_empty_or_not_a_backup_are_refused() {
    let (world, backup, _, _) = small();
    let again = world.db.backup_to(&backup, |_| {}).unwrap_err();
    assert!(matches!(&again, Error::NotEmpty { found, .. } if found == "backup"), "{again}");
    let own = world.db.backup_to(&world.disk, |_| {}).unwrap_err();
    assert!(matches!(own, Error::AlreadyOpen { .. }), "{own}");
    let busy = Restore::from_disk(arc(&backup)).log_on(arc(&world.disk)).into_disk(&SimDisk::new(4), |_| {});
    assert!(matches!(busy, Err(Error::AlreadyOpen { .. })), "{busy:?}");
    let (disk, ..) = world.close();
    let taken = Restore::from_disk(arc(&backup)).into_disk(&disk, |_| {}).unwrap_err();
    assert!(matches!(&taken, Error::NotEmpty { found, .. } if found == "control"), "{taken}");
    for no_backup in [&disk, &SimDisk::new(7)] {
        let refused = Restore::from_disk(arc(no_backup)).into_disk(&SimDisk::new(4), |_| {}).unwrap_err();
        assert!(matches!(refused, Error::NotABackup { .. }), "{refused}");
    }
    let other = World::new(1, |_| {});
    other.under_load(|| other.grow_by(600 << 10));
    other.db.await_archive();
    let mixed = Restore::from_disk(arc(&backup)).archive_on(arc(&other.archive)).into_disk(&SimDisk::new(4), |_| {});
    assert!(matches!(mixed, Err(Error::NotADatabase { .. })), "{mixed:?}");
    let home = tempfile::tempdir().unwrap();
    let missing = home.path().join("nothing");
    assert!(matches!(Restore::from(&missing), Err(Error::NotABackup { .. })));
    assert!(!missing.exists());
}

/// A restored database has a history of its own: neither database accepts the other's log.
#[test]
fn a_restored_database_is_another_one() {
    let (world, backup, report, _) = small();
    let (_, archive, options) = world.close();
    let target = SimDisk::new(9);
    Restore::from_disk(arc(&backup)).into_disk(&target, |_| {}).unwrap();
    let refused = Db::open_on(arc(&target), Options { create: false, ..options.clone() }).unwrap_err();
    assert!(matches!(&refused, Error::InvalidOption { option: "archive", .. }), "{refused}");

    let own_archive = SimDisk::new(10);
    let options = Options { archive: Some(Archive::on(arc(&own_archive))), ..options };
    let db = Db::open_on(arc(&target), options.clone()).unwrap();
    let rows = db.open_table("rows").unwrap();
    for row in 0..3000_u32 {
        let mut txn = db.begin();
        txn.put(&rows, format!("new-{row}").as_bytes(), &[7; 300]).unwrap();
        txn.commit().unwrap();
    }
    db.await_archive();
    let second = SimDisk::new(11);
    db.backup_to(&second, |_| {}).unwrap();
    let expected = contents(&db, "rows");
    db.close().unwrap();
    // The archive of the original database is refused.
    let mixed = Restore::from_disk(arc(&backup)).archive_on(arc(&own_archive)).into_disk(&SimDisk::new(4), |_| {});
    assert!(matches!(mixed, Err(Error::NotADatabase { .. })), "{mixed:?}");
    let (_, db) = restored(Restore::from_disk(arc(&second)).archive_on(arc(&own_archive)), &options);
    check_rows(&db, &expected);
    drop(archive);
    assert!(report.pages > 0);
}

/// Power cuts, errors and a full disk while a backup is taken: the result is no backup or a whole
/// one, and the database keeps working.
#[test]
fn a_backup_that_fails_leaves_none() {
    let (world, _, _, _) = small();
    let expected = contents(&world.db, "rows");
    let operations = {
        let backup = SimDisk::new(20);
        world.db.backup_to(&backup, |_| {}).unwrap();
        backup.operations()
    };
    assert!(operations > 10, "{operations}");
    for at in 0..operations {
        let backup = SimDisk::new(at);
        match at % 3 {
            0 => backup.crash_at(at),
            1 => backup.fail_at(at, Fault::Eio, false),
            _ => backup.fail_at(at, Fault::Enospc, true),
        }
        let outcome = world.db.backup_to(&backup, |_| {});
        if let Err(error) = &outcome {
            assert!(matches!(error, Error::CopyFailed { .. }), "{error}");
        }
        for choice in
            [CrashChoice::Nothing, CrashChoice::Everything, CrashChoice::Random(at), CrashChoice::Random(99 * at)]
        {
            let image = backup.crash_image(&choice);
            match Restore::from_disk(arc(&image)).into_disk(&SimDisk::new(4), |_| {}) {
                Ok(_) => {
                    let (_, db) = restored(Restore::from_disk(arc(&image)), &world.options);
                    check_rows(&db, &expected);
                }
                Err(error) => {
                    assert!(outcome.is_err(), "{at}, {choice:?}: {error}");
                    assert!(matches!(error, Error::NotABackup { .. }), "{at}, {choice:?}: {error}");
                    // The same directory can be used again.
                    world.db.backup_to(&image, |_| {}).unwrap();
                    check_rows(&restored(Restore::from_disk(arc(&image)), &world.options).1, &expected);
                }
            }
        }
    }
    check_rows(&world.db, &expected);
    world.db.backup_to(&SimDisk::new(3), |_| {}).unwrap();
}

/// The same faults while a database is restored: the result is no database or the right one.
#[test]
fn a_restore_that_fails_leaves_no_database() {
    let (world, backup, _, moments) = small();
    let (disk, archive, options) = world.close();
    let moment = &moments[2];
    let restore = || {
        let from = Restore::from_disk(arc(&backup)).archive_on(arc(&archive)).log_on(arc(&disk));
        from.to(RestoreTo::Gsn(moment.gsn))
    };
    let operations = {
        let target = SimDisk::new(20);
        restore().into_disk(&target, |_| {}).unwrap();
        target.operations()
    };
    let options = Options { create: true, archive: None, ..options };
    for at in 0..operations {
        let target = SimDisk::new(at);
        match at % 3 {
            0 => target.crash_at(at),
            1 => target.fail_at(at, Fault::Eio, false),
            _ => target.fail_at(at, Fault::Enospc, true),
        }
        let outcome = restore().into_disk(&target, |_| {});
        if let Err(error) = &outcome {
            assert!(matches!(error, Error::CopyFailed { .. }), "{error}");
        }
        for choice in
            [CrashChoice::Nothing, CrashChoice::Everything, CrashChoice::Random(at), CrashChoice::Random(99 * at)]
        {
            let image = target.crash_image(&choice);
            let is_begun = !image.file_names().is_empty();
            if !is_begun {
                assert!(outcome.is_err());
                continue;
            }
            match Db::open_on(arc(&image), options.clone()) {
                Ok(db) => check_rows(&db, &moment.rows),
                Err(error) => {
                    assert!(outcome.is_err(), "{at}, {choice:?}: {error}");
                    assert!(matches!(error, Error::NotADatabase { .. }), "{at}, {choice:?}: {error}");
                    restore().into_disk(&image, |_| {}).unwrap();
                    check_rows(&Db::open_on(arc(&image), options.clone()).unwrap(), &moment.rows);
                }
            }
        }
    }
}

/// A restore detects damage in its backup.
#[test]
fn a_damaged_backup_is_refused() {
    let (_world, backup, _, _) = small();
    let files: Vec<String> = backup.file_names();
    assert!(files.iter().any(|name| name == "data") && files.iter().any(|name| name == "backup"));
    for (name, byte) in [("backup", 33), ("backup", 560), ("data", 2 * 8192 + 300)] {
        let image = backup.image();
        image.flip_bit(name, byte, 2);
        let refused = Restore::from_disk(arc(&image)).into_disk(&SimDisk::new(4), |_| {}).unwrap_err();
        assert!(matches!(refused, Error::Corrupt { .. }), "{name}: {refused}");
    }
}
