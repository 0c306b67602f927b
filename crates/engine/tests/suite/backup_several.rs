//! Databases with several logs: archived, backed up, and restored to points of all kinds.
#![cfg(not(duramen_loom))]

use duramen::pmem::{Domain, SimMemory, Source};
use duramen::{
    Archive, BackupReport, CommitMode, Db, Error, Gsn, LogDevice, LogId, NvmOptions, Options, Partition, Restore,
    RestoreTo, Timestamp,
};
use duramen_io::{CrashChoice, Disk, SimDisk};
use duramen_test_support::is_long;

use crate::archived::{Chance, Moment, World, arc, backup_under_load, check, check_rows, contents, restored};

const WAYS: [Partition; 3] = [Partition::Transaction, Partition::RoundRobin, Partition::Page];

fn of_several(way: Partition) -> impl FnOnce(&mut Options) {
    move |options| {
        (options.logs, options.log_partition, options.log_segment_bytes) = (3, way, 128 << 10);
    }
}

#[test]
fn a_backup_under_load_is_restored_to_any_point() {
    for way in WAYS {
        let (report, archived) = backup_under_load(of_several(way));
        // The file grows in steps, and a backup may come before its last one: 90 or 135 pages.
        assert!(report.pages > 80 && report.log_bytes > 0, "{report:?}");
        assert!(archived > 10, "{way:?}: {archived}");
    }
}

#[test]
fn so_it_is_with_the_end_of_the_logs_in_persistent_memory() {
    for (domain, commit) in [(Domain::DurableCache, CommitMode::Pipelined), (Domain::VolatileCache, CommitMode::Elr)] {
        backup_under_load(|options| {
            of_several(Partition::RoundRobin)(options);
            let memory = || Source::Simulated(SimMemory::new(4096 + options.log_buffer_bytes as u64, domain));
            let nvm = NvmOptions { further: vec![memory(), memory()], ..NvmOptions::new(memory(), domain) };
            (options.log_device, options.commit) = (LogDevice::Nvm(nvm), commit);
        });
    }
}

/// Makes a small database without load, a backup of it, and some more commits. Returns the moments
/// after each of these.
fn small() -> (World, SimDisk, BackupReport, Vec<Moment>) {
    let world = World::new(1, |options| {
        of_several(Partition::RoundRobin)(options);
        options.pool_bytes = 64 * 8192;
    });
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
    let (disk, archive, options) = world.close();
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
    }
    let late = refused(Restore::from_disk(arc(&backup)).to(RestoreTo::Gsn(last.gsn)));
    assert!(matches!(late, Error::BehindLog { end, .. } if end == report.end), "{late}");

    // The archive alone ends somewhere before the last moment; it reports how far it reaches.
    let archived = || Restore::from_disk(arc(&backup)).archive_on(arc(&archive));
    let late = refused(archived().to(RestoreTo::Gsn(last.gsn)));
    let Error::BehindLog { end, last_commit } = late else { panic!("{late}") };
    let (all, db) = restored(archived(), &options);
    assert!((all.end, all.last_commit) == (end, last_commit) && end > moments[3].gsn, "{all:?}");
    check(&db);
    let beyond = refused(archived().to(RestoreTo::Gsn(Gsn::new(end.get() + 1))));
    assert!(matches!(beyond, Error::BehindLog { .. }), "{beyond}");
    restored(archived().to(RestoreTo::Gsn(end)), &options);

    // A log that is incomplete, or does not tell where it ends.
    for (missing, expected) in [("control", "the file `control`, which"), ("log2", "it lacks log 2")] {
        let rest = disk.image();
        match missing {
            "control" => rest.remove(missing).unwrap(),
            _ => rest.list(missing).unwrap().iter().for_each(|name| rest.remove(&format!("{missing}/{name}")).unwrap()),
        }
        let not_whole = refused(archived().log_on(arc(&rest)));
        assert!(matches!(not_whole, Error::NotADatabase { .. }), "{not_whole}");
        assert!(not_whole.to_string().contains(expected), "{not_whole}");
    }

    // A gap: the archive has lost a segment of one log, and the log has recycled it.
    let mut segments = archive.list("log1").unwrap();
    segments.sort();
    let lost = &segments[segments.len() - 2];
    archive.remove(&format!("log1/{lost}")).unwrap();
    for to in [RestoreTo::End, RestoreTo::Gsn(last.gsn), RestoreTo::Time(last.time)] {
        let gap = refused(archived().to(to));
        assert!(matches!(gap, Error::LogGap { log, .. } if log == LogId::new(1)), "{gap}");
        assert!(gap.to_string().contains(&format!("`log1/{lost}`")), "{gap}");
    }
    // Points before the gap can be restored.
    let (_, db) = restored(archived().to(RestoreTo::Gsn(moments[0].gsn)), &options);
    check_rows(&db, &moments[0].rows);
}

/// A restored database works on, survives a crash, writes an archive and is backed up itself.
/// Neither database accepts the other's pieces.
#[test]
fn a_restored_database_is_another_one() {
    let (world, backup, _, moments) = small();
    let (disk, archive, options) = world.close();
    let target = SimDisk::new(9);
    let from = || Restore::from_disk(arc(&backup)).archive_on(arc(&archive)).log_on(arc(&disk));
    from().to(RestoreTo::Gsn(moments[4].gsn)).into_disk(&target, |_| {}).unwrap();
    let refused = Db::open_on(arc(&target), Options { create: false, ..options.clone() }).unwrap_err();
    assert!(matches!(&refused, Error::InvalidOption { option: "archive", .. }), "{refused}");

    let own_archive = SimDisk::new(10);
    let options = Options { archive: Some(Archive::on(arc(&own_archive))), ..options };
    let db = Db::open_on(arc(&target), options.clone()).unwrap();
    check_rows(&db, &moments[4].rows);
    assert_eq!(db.metrics().logs, 3);
    let second = SimDisk::new(11);
    db.backup_to(&second, |_| {}).unwrap();
    let rows = db.open_table("rows").unwrap();
    for row in 0..3000_u32 {
        let mut txn = db.begin();
        txn.put(&rows, format!("new-{row}").as_bytes(), &[7; 300]).unwrap();
        txn.commit().unwrap();
    }
    let expected = contents(&db, "rows");
    let crashed = target.crash_image(&CrashChoice::Random(1));
    drop(db);
    // After the crash, without another opening: its logs have not been cut.
    let from = || Restore::from_disk(arc(&second)).archive_on(arc(&own_archive));
    check_rows(&restored(from().log_on(arc(&crashed)), &options).1, &expected);
    let db = Db::open_on(arc(&crashed), options.clone()).unwrap();
    check_rows(&db, &expected);
    db.close().unwrap();
    check_rows(&restored(from().log_on(arc(&crashed)), &options).1, &expected);
    for others in [Restore::from_disk(arc(&backup)).archive_on(arc(&own_archive)), from().log_on(arc(&disk))] {
        let mixed = others.into_disk(&SimDisk::new(4), |_| {});
        assert!(matches!(mixed, Err(Error::NotADatabase { .. })), "{mixed:?}");
    }
}

/// The power fails among writers, and again at many points of the next opening, in which logs are
/// cut. The remaining files are restored as they are, and the result equals that of a complete
/// opening.
#[test]
fn logs_are_restored_that_were_left_while_they_were_being_cut() {
    let (mut tried, mut interrupted, mut cut) = (0, 0, 0);
    // Which of the crashes leave logs that must be cut depends on how the writers were scheduled.
    for _ in 0..10 {
        restore_what_openings_left(&mut tried, &mut interrupted, &mut cut);
        if cut > 0 {
            break;
        }
    }
    assert!(interrupted * 3 > tried && cut > 0, "{interrupted} of {tried}, {cut}");
}

/// Returns the GSN below which the log is not needed, according to the control file.
fn oldest(disk: &SimDisk) -> u64 {
    let control = disk.durable_bytes("control").unwrap();
    let number = |at: usize| u64::from_le_bytes(control[at..at + 8].try_into().unwrap());
    let slots = [0, 4096].map(|slot| (number(slot + 32), number(slot + 56)));
    slots.into_iter().max().unwrap().1
}

/// Counts openings, those that were interrupted, and the states in which they left logs that are
/// being cut.
fn restore_what_openings_left(tried: &mut u64, interrupted: &mut u64, cut: &mut u64) {
    let world = World::new(3, of_several(Partition::RoundRobin));
    let backup = SimDisk::new(3);
    let crashes = world.under_load(|| {
        world.db.backup_to(&backup, |_| {}).unwrap();
        let crash = |seed: u64| {
            world.grow_by(150 << 10);
            loop {
                let before = world.archive.operations();
                let (archive, crashed) = (world.archive.image(), world.disk.crash_image(&CrashChoice::Random(seed)));
                // Otherwise a segment may have been archived, and recycled, between the two images.
                if world.archive.operations() == before {
                    return (archive, crashed);
                }
            }
        };
        (0..8).map(crash).collect::<Vec<_>>()
    });
    let options = Options { archive: None, ..world.options.clone() };
    for (archive, crashed) in crashes {
        let whole = crashed.image();
        let before = whole.operations();
        let expected = contents(&Db::open_on(arc(&whole), options.clone()).unwrap(), "rows");
        let operations = whole.operations() - before;
        let points = if is_long() { 16 } else { 8 };
        for at in (0..operations).step_by(1 + operations as usize / points) {
            *tried += 1;
            let image = crashed.image();
            image.crash_at(image.operations() + at);
            *interrupted += u64::from(Db::open_on(arc(&image), options.clone()).is_err());
            let left = image.crash_image(&CrashChoice::Random(at));
            // The mark in the control file.
            let control = left.durable_bytes("control").unwrap();
            *cut += u64::from(control[91] + control[4096 + 91] > 0);
            let restore = Restore::from_disk(arc(&backup)).archive_on(arc(&archive)).log_on(arc(&left));
            match restore.clone().into_disk(&SimDisk::new(4), |_| {}) {
                // The opening reached its checkpoint. It had no archive, so it recycled log that
                // was not in the archive yet.
                Err(Error::LogGap { .. }) if oldest(&left) > oldest(&crashed) => {}
                // The same, for log that no opening needs any more: before, it was there for the
                // archive alone.
                Err(Error::LogGap { log, segment }) if oldest(&left) == oldest(&crashed) => {
                    let directory = if log.get() == 0 { "log".to_owned() } else { format!("log{}", log.get()) };
                    let name = format!("{directory}/{segment:016x}.log");
                    let has = |disk: &SimDisk| disk.exists(&name).unwrap();
                    assert!(has(&crashed) && !has(&archive) && !has(&left), "{name}");
                    check_rows(&Db::open_on(arc(&left.image()), options.clone()).unwrap(), &expected);
                    let restore = Restore::from_disk(arc(&backup)).archive_on(arc(&archive)).log_on(arc(&crashed));
                    check_rows(&restored(restore, &options).1, &expected);
                }
                _ => check_rows(&restored(restore, &options).1, &expected),
            }
        }
    }
}
