//! Backups taken while transactions go on, and databases restored from them to all sorts of points.
#![cfg(not(loom))]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use duramen::pmem::{Domain, SimMemory, Source};
use duramen::{
    Archive, BackupReport, Db, Error, Gsn, LogDevice, NvmOptions, Options, Partition, Restore, RestoreReport,
    RestoreTo, Table, Timestamp,
};
use duramen_io::{CrashChoice, Disk, Fault, SimDisk};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const ACCOUNTS: u32 = 50;
const START_BALANCE: u64 = 1_000;

/// A database with its archive, and what it holds.
struct World {
    disk: SimDisk,
    archive: SimDisk,
    options: Options,
    db: Db,
    rows: Table,
    accounts: Table,
    /// Rows by their writers; each writes to its own.
    model: Vec<Mutex<Model>>,
    /// Held shared by a transaction from before its beginning until its rows are in the model.
    gate: RwLock<()>,
}

/// A moment at which no transaction was going on.
#[derive(Clone, Debug)]
struct Moment {
    gsn: Gsn,
    time: Timestamp,
    rows: Model,
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// Pseudo-random numbers.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

impl World {
    fn new(writers: usize, tune: impl FnOnce(&mut Options)) -> Self {
        let (disk, archive) = (SimDisk::new(1), SimDisk::new(2));
        let mut options = Options {
            log_segment_bytes: 256 << 10,
            checkpoint_bytes: 512 << 10,
            log_max_bytes: 16 << 20,
            archive: Some(Archive::on(Arc::new(archive.clone()))),
            ..common::small()
        };
        tune(&mut options);
        let db = Db::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
        let (rows, accounts) = (db.create_table("rows").unwrap(), db.create_table("accounts").unwrap());
        let mut txn = db.begin();
        for account in 0..ACCOUNTS {
            txn.insert(&accounts, &account.to_be_bytes(), &START_BALANCE.to_le_bytes()).unwrap();
        }
        txn.commit().unwrap();
        let model = (0..writers).map(|_| Mutex::new(Model::new())).collect();
        Self { disk, archive, options, db, rows, accounts, model, gate: RwLock::new(()) }
    }

    /// One transaction of a writer: rows of its own, and a transfer.
    fn step(&self, writer: usize, chance: &mut Chance) {
        let _going_on = self.gate.read().unwrap();
        let mut model = self.model[writer].lock().unwrap();
        let mut after = model.clone();
        let mut txn = self.db.begin();
        let outcome = (|| {
            for _ in 0..1 + chance.below(4) {
                let key = format!("{writer}-{:04}", chance.below(400)).into_bytes();
                if chance.below(4) == 0 && after.contains_key(&key) {
                    txn.delete(&self.rows, &key)?;
                    after.remove(&key);
                } else {
                    let len = if chance.below(40) == 0 { 20_000 } else { chance.below(300) };
                    let value = vec![chance.below(256) as u8; len as usize];
                    txn.put(&self.rows, &key, &value)?;
                    after.insert(key, value);
                }
            }
            let (from, to) = (chance.below(ACCOUNTS.into()) as u32, chance.below(ACCOUNTS.into()) as u32);
            if from != to {
                for (account, add) in [(from.min(to), 1_u64), (from.max(to), u64::MAX)] {
                    let key = account.to_be_bytes();
                    let balance = txn.get_for_update(&self.accounts, &key)?.unwrap();
                    txn.put(&self.accounts, &key, &number(&balance).wrapping_add(add).to_le_bytes())?;
                }
            }
            Ok(())
        })();
        match outcome {
            Ok(()) if chance.below(10) == 0 => txn.abort().unwrap(),
            Ok(()) => {
                txn.commit().unwrap();
                *model = after;
            }
            Err(Error::Deadlock { .. }) => txn.abort().unwrap(),
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits for a moment without transactions.
    fn moment(&self) -> Moment {
        let _nobody = self.gate.write().unwrap();
        // Stamps are in microseconds.
        std::thread::sleep(Duration::from_millis(2));
        let rows = self.model.iter().flat_map(|model| model.lock().unwrap().clone()).collect();
        let moment = Moment { gsn: Gsn::new(self.db.metrics().log.end.get()), time: Timestamp::now(), rows };
        std::thread::sleep(Duration::from_millis(2));
        moment
    }

    /// Runs writers while `meanwhile` runs.
    fn under_load<R>(&self, meanwhile: impl FnOnce() -> R) -> R {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..self.model.len() {
                let stop = &stop;
                scope.spawn(move || {
                    let mut chance = Chance(writer as u64 + 1);
                    while !stop.load(Ordering::Relaxed) {
                        self.step(writer, &mut chance);
                    }
                });
            }
            struct Stop<'a>(&'a AtomicBool);
            impl Drop for Stop<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
            let _stop = Stop(&stop);
            meanwhile()
        })
    }

    fn grow_by(&self, bytes: u64) {
        let from = self.db.metrics().log.end.get();
        while self.db.metrics().log.end.get() < from + bytes {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn close(self) -> (SimDisk, SimDisk, Options) {
        let Self { disk, archive, options, db, .. } = self;
        db.close().unwrap();
        (disk, archive, options)
    }
}

/// Restores and opens.
fn restored(restore: Restore, options: &Options) -> (RestoreReport, Db) {
    let target = SimDisk::new(9);
    let report = restore.into_disk(&target, |_| {}).unwrap();
    let options = Options { create: false, archive: None, log_device: LogDevice::File, ..options.clone() };
    (report, Db::open_on(Arc::new(target.crash_image(&CrashChoice::Nothing)), options).unwrap())
}

fn contents(db: &Db, table: &str) -> Model {
    let table = db.open_table(table).unwrap();
    let mut txn = db.begin();
    let rows = txn.scan(&table, ..).map(|row| row.unwrap()).collect();
    txn.commit().unwrap();
    rows
}

/// Whatever the point, no money is lost, and the structure is right.
fn check(db: &Db) {
    let report = db.check().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let sum = contents(db, "accounts").values().fold(0_u64, |sum, balance| sum.wrapping_add(number(balance)));
    assert_eq!(sum, u64::from(ACCOUNTS) * START_BALANCE);
}

fn check_rows(db: &Db, expected: &Model) {
    check(db);
    let rows = contents(db, "rows");
    assert_eq!(rows.len(), expected.len());
    assert!(rows == *expected, "the rows are not those of that moment");
}

fn arc(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

/// Under load: a backup, and moments afterwards. Then everything is restored to each of them, by position and by time.
fn backup_under_load(tune: impl FnOnce(&mut Options)) -> (BackupReport, u64) {
    let world = World::new(3, tune);
    let backup = SimDisk::new(3);
    let (report, moments) = world.under_load(|| {
        world.grow_by(2 << 20);
        let mut far = 0;
        let report = world.db.backup_to(&backup, |progress| far = progress.copied).unwrap();
        assert!(far >= report.pages * 8192 && report.end.get() <= world.db.metrics().log.end.get());
        let mut moments = Vec::new();
        for _ in 0..3 {
            world.grow_by(600 << 10);
            moments.push(world.moment());
        }
        world.grow_by(600 << 10);
        (report, moments)
    });
    let last = world.moment();
    let backup = backup.crash_image(&CrashChoice::Nothing);
    let archived = world.db.metrics().log.segments_archived;
    let (disk, archive, options) = world.close();
    let log = disk.image();
    let from = || Restore::from_disk(arc(&backup)).archive_on(arc(&archive)).log_on(arc(&log));

    // Of the end of the backup nothing is known but that it is consistent.
    let (restored_to, db) = restored(Restore::from_disk(arc(&backup)), &options);
    assert_eq!((restored_to.end, restored_to.commits), (report.end, 0));
    check(&db);
    let (_, again) = restored(from().to(RestoreTo::Gsn(report.end)), &options);
    check_rows(&again, &contents(&db, "rows"));
    for moment in &moments {
        let (to_gsn, db) = restored(from().to(RestoreTo::Gsn(moment.gsn)), &options);
        check_rows(&db, &moment.rows);
        let (to_time, db) = restored(from().to(RestoreTo::Time(moment.time)), &options);
        check_rows(&db, &moment.rows);
        assert!(to_gsn.commits == to_time.commits && to_gsn.commits > 0);
        assert!(to_time.last_commit.unwrap() <= moment.time);
    }
    let (_, db) = restored(from(), &options);
    check_rows(&db, &last.rows);
    // Anywhere in between.
    let mut chance = Chance(77);
    for _ in 0..6 {
        let point = report.end.get() + chance.below(last.gsn.get() - report.end.get());
        check(&restored(from().to(RestoreTo::Gsn(Gsn::new(point))), &options).1);
    }
    (report, archived)
}

#[test]
fn a_backup_under_load_is_restored_to_any_point() {
    let (report, archived) = backup_under_load(|_| {});
    assert!(report.pages > 100 && report.log_bytes > 0 && report.times.0 <= report.times.1);
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

/// Several logs: the end of the backup is what can be restored, whatever goes on.
#[test]
fn several_logs_are_backed_up_and_restored_to_the_end_of_the_backup() {
    for (round, log_partition) in
        [Partition::Transaction, Partition::RoundRobin, Partition::Page].into_iter().enumerate()
    {
        let tune = |options: &mut Options| {
            (options.logs, options.log_partition, options.archive) = (2 + round as u16, log_partition, None);
        };
        let world = World::new(3, tune);
        let (backups, report) = world.under_load(|| {
            world.grow_by(1 << 20);
            let backups = [SimDisk::new(3), SimDisk::new(4)];
            let report = world.db.backup_to(&backups[0], |_| {}).unwrap();
            world.grow_by(600 << 10);
            world.db.backup_to(&backups[1], |_| {}).unwrap();
            (backups, report)
        });
        let moment = world.moment();
        let quiet = SimDisk::new(5);
        world.db.backup_to(&quiet, |_| {}).unwrap();
        let options = Options { logs: 1, ..world.options.clone() };
        for backup in &backups {
            check(&restored(Restore::from_disk(arc(&backup.crash_image(&CrashChoice::Nothing))), &options).1);
        }
        let (_, db) = restored(Restore::from_disk(arc(&quiet)), &options);
        check_rows(&db, &moment.rows);
        assert_eq!(db.metrics().logs, 2 + round as u16);
        // It goes on, through a crash, and is backed up itself.
        let target = SimDisk::new(9);
        Restore::from_disk(arc(&quiet)).into_disk(&target, |_| {}).unwrap();
        let db = Db::open_on(arc(&target), options.clone()).unwrap();
        let rows = db.open_table("rows").unwrap();
        let mut expected = moment.rows.clone();
        for row in 0..500_u32 {
            let (key, value) = (format!("new-{row}").into_bytes(), vec![7; 300]);
            let mut txn = db.begin();
            txn.put(&rows, &key, &value).unwrap();
            txn.commit().unwrap();
            expected.insert(key, value);
        }
        let crashed = target.crash_image(&CrashChoice::Random(round as u64));
        drop(db);
        let db = Db::open_on(arc(&crashed), options.clone()).unwrap();
        check_rows(&db, &expected);
        let again = SimDisk::new(10);
        db.backup_to(&again, |_| {}).unwrap();
        check_rows(&restored(Restore::from_disk(arc(&again)), &options).1, &expected);

        let from = || Restore::from_disk(arc(&backups[0]));
        let refused = |restore: Restore| restore.into_disk(&SimDisk::new(4), |_| {}).unwrap_err();
        let early = refused(from().to(RestoreTo::Gsn(Gsn::new(report.end.get() - 1))));
        assert!(matches!(early, Error::BeforeBackup { .. }), "{early}");
        for to in [RestoreTo::Gsn(moment.gsn.max(Gsn::new(report.end.get() + 1))), RestoreTo::Time(moment.time)] {
            let late = refused(from().to(to));
            assert!(matches!(late, Error::BehindLog { end, .. } if end == report.end), "{late}");
        }
        let other = refused(from().log_on(arc(&crashed)));
        assert!(matches!(other, Error::AlreadyOpen { .. } | Error::InvalidOption { .. }), "{other}");
        let other = refused(from().archive_on(arc(&crashed)));
        assert!(matches!(other, Error::InvalidOption { option: "logs", .. }), "{other}");
    }
}

/// A small database without load, and a backup of it; then some more commits. Returns the moments after each of these.
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
        assert!(matches!(gap, Error::LogGap { segment } if segment == missing), "{gap}");
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

/// What is restored goes on otherwise: neither takes the other's log.
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
    // Not with the archive of the database that the backup is of.
    let mixed = Restore::from_disk(arc(&backup)).archive_on(arc(&own_archive)).into_disk(&SimDisk::new(4), |_| {});
    assert!(matches!(mixed, Err(Error::NotADatabase { .. })), "{mixed:?}");
    let (_, db) = restored(Restore::from_disk(arc(&second)).archive_on(arc(&own_archive)), &options);
    check_rows(&db, &expected);
    drop(archive);
    assert!(report.pages > 0);
}

/// Power cuts, errors and a full disk while a backup is taken: there is none, or a whole one, and the database goes on.
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

/// The same while a database is restored: there is none, or the right one.
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

/// Damage of a backup is found when it is restored.
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
