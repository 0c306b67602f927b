//! An archived database under load, and the databases restored from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use duramen::{
    Archive, BackupReport, Db, Error, Gsn, LogDevice, Options, Restore, RestoreReport, RestoreTo, Table, Timestamp,
};
use duramen_io::{CrashChoice, Disk, SimDisk};

pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const ACCOUNTS: u32 = 50;
const START_BALANCE: u64 = 1_000;

/// A database with its archive, and its expected contents.
pub(crate) struct World {
    pub(crate) disk: SimDisk,
    pub(crate) archive: SimDisk,
    pub(crate) options: Options,
    pub(crate) db: Db,
    pub(crate) rows: Table,
    pub(crate) accounts: Table,
    /// The rows of each writer; each writer changes only its own.
    pub(crate) model: Vec<Mutex<Model>>,
    /// Held shared by a transaction from before it begins until its rows are in the model.
    pub(crate) gate: RwLock<()>,
}

/// A moment at which no transaction was running.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) gsn: Gsn,
    pub(crate) time: Timestamp,
    pub(crate) rows: Model,
}

pub(crate) fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// Pseudo-random numbers.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

impl World {
    pub(crate) fn new(writers: usize, tune: impl FnOnce(&mut Options)) -> Self {
        let (disk, archive) = (SimDisk::new(1), SimDisk::new(2));
        let mut options = Options {
            log_segment_bytes: 256 << 10,
            checkpoint_bytes: Some(512 << 10),
            log_max_bytes: 16 << 20,
            archive: Some(Archive::on(Arc::new(archive.clone()))),
            ..crate::common::small()
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

    /// Runs one transaction of a writer: rows of its own, and a transfer.
    pub(crate) fn step(&self, writer: usize, chance: &mut Chance) {
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
    pub(crate) fn moment(&self) -> Moment {
        let _nobody = self.gate.write().unwrap();
        // Stamps are in microseconds.
        std::thread::sleep(Duration::from_millis(2));
        let rows = self.model.iter().flat_map(|model| model.lock().unwrap().clone()).collect();
        // With several logs, transactions after this moment may have lower GSNs than the end of the
        // log that is ahead.
        let log = self.db.metrics().log;
        let gsn = if self.options.logs > 1 { log.hardened_gsn } else { log.end_gsn };
        let moment = Moment { gsn, time: Timestamp::now(), rows };
        std::thread::sleep(Duration::from_millis(2));
        moment
    }

    /// Runs writers while `meanwhile` runs.
    pub(crate) fn under_load<R>(&self, meanwhile: impl FnOnce() -> R) -> R {
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

    pub(crate) fn grow_by(&self, bytes: u64) {
        let from = self.db.metrics().log.end_gsn.get();
        while self.db.metrics().log.end_gsn.get() < from + bytes {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn close(self) -> (SimDisk, SimDisk, Options) {
        let Self { disk, archive, options, db, .. } = self;
        db.close().unwrap();
        (disk, archive, options)
    }
}

/// Runs the restore and opens the result.
pub(crate) fn restored(restore: Restore, options: &Options) -> (RestoreReport, Db) {
    let target = SimDisk::new(9);
    let report = restore.into_disk(&target, |_| {}).unwrap();
    let options = Options { create: false, archive: None, log_device: LogDevice::File, ..options.clone() };
    (report, Db::open_on(Arc::new(target.crash_image(&CrashChoice::Nothing)), options).unwrap())
}

pub(crate) fn contents(db: &Db, table: &str) -> Model {
    let table = db.open_table(table).unwrap();
    let mut txn = db.begin();
    let rows = txn.scan(&table, ..).map(|row| row.unwrap()).collect();
    txn.commit().unwrap();
    rows
}

/// Checks that no money is lost, whatever the point, and that the structure is right.
pub(crate) fn check(db: &Db) {
    let report = db.check().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let sum = contents(db, "accounts").values().fold(0_u64, |sum, balance| sum.wrapping_add(number(balance)));
    assert_eq!(sum, u64::from(ACCOUNTS) * START_BALANCE);
}

#[track_caller]
pub(crate) fn check_rows(db: &Db, expected: &Model) {
    check(db);
    let rows = contents(db, "rows");
    let brief = |row: Option<&Vec<u8>>| row.map(|value| (value.len(), value.first().copied()));
    let keys: BTreeSet<_> = rows.keys().chain(expected.keys()).collect();
    let different: Vec<_> = keys
        .into_iter()
        .filter(|key| rows.get(*key) != expected.get(*key))
        .map(|key| (String::from_utf8_lossy(key), brief(rows.get(key)), brief(expected.get(key))))
        .collect();
    assert!(different.is_empty(), "rows (key, length and byte found, expected): {different:?}");
}

pub(crate) fn arc(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

/// Takes a backup under load, and moments afterwards. Then restores everything to each of them, by
/// position and by time.
pub(crate) fn backup_under_load(tune: impl FnOnce(&mut Options)) -> (BackupReport, u64) {
    let world = World::new(3, tune);
    let backup = SimDisk::new(3);
    let (report, moments) = world.under_load(|| {
        world.grow_by(2 << 20);
        let mut far = 0;
        let report = world.db.backup_to(&backup, |progress| far = progress.copied).unwrap();
        assert!(far >= report.pages * 8192 && report.end <= world.db.metrics().log.end_gsn);
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

    // At the end of the backup the contents are unknown, but they must be consistent.
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
    // Points anywhere in between.
    let mut chance = Chance(77);
    for _ in 0..6 {
        let point = report.end.get() + chance.below(last.gsn.get() - report.end.get());
        check(&restored(from().to(RestoreTo::Gsn(Gsn::new(point))), &options).1);
    }
    (report, archived)
}
