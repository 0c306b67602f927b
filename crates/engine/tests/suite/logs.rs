//! Databases with several logs.
#![cfg(not(any(duramen_loom, duramen_machine)))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use duramen::{CommitMode, Db, Error, InsertDesign, Options, Partition};
use duramen_io::{CrashChoice, SimDisk};

const WAYS: [Partition; 3] = [Partition::Transaction, Partition::RoundRobin, Partition::Page];

fn options(logs: u16, log_partition: Partition) -> Options {
    Options {
        pool_bytes: 1 << 20,
        log_buffer_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        log_max_bytes: 16 << 20,
        checkpoint_bytes: Some(1 << 20),
        logs,
        log_partition,
        ..Options::default()
    }
}

fn open(disk: &SimDisk, options: Options) -> Db {
    Db::open_on(Arc::new(disk.clone()), options).unwrap()
}

fn number(db: &Db, key: &[u8]) -> u64 {
    let table = db.open_table("numbers").unwrap();
    let value = db.begin().get(&table, key).unwrap();
    value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()))
}

#[test]
fn a_database_keeps_its_logs() {
    let disk = SimDisk::new(1);
    for opened_with in
        [options(3, Partition::Page), options(1, Partition::Transaction), options(2, Partition::RoundRobin)]
    {
        let db = open(&disk, opened_with);
        let metrics = db.metrics();
        assert_eq!((metrics.logs, metrics.log_partition), (3, Partition::Page));
        assert!(db.check().unwrap().is_ok());
        db.close().unwrap();
    }
    let names = disk.file_names();
    assert!(names.iter().any(|name| name.starts_with("log2/")) && !names.iter().any(|name| name.starts_with("log3/")));

    let one = SimDisk::new(2);
    open(&one, options(1, Partition::Transaction)).close().unwrap();
    assert!(!one.file_names().iter().any(|name| name.starts_with("log1/")));
}

#[test]
fn a_log_that_is_missing_is_missed() {
    use duramen_io::Disk;
    let disk = SimDisk::new(1);
    open(&disk, options(2, Partition::Page)).close().unwrap();
    for name in disk.file_names().iter().filter(|name| name.starts_with("log1/")) {
        disk.remove(name).unwrap();
    }
    let refused = Db::open_on(Arc::new(disk.clone()), options(2, Partition::Page));
    assert!(matches!(&refused, Err(Error::NotADatabase { .. })), "{refused:?}");
}

#[test]
fn what_several_logs_cannot_do_is_refused() {
    let reserved = Options { log_insert: InsertDesign::Reserved, ..options(2, Partition::Page) };
    let no_threads = Options { recovery_threads: Some(0), ..options(2, Partition::Page) };
    let threads = Options { recovery_threads: Some(33), ..options(2, Partition::Page) };
    for (wrong, option) in [
        (reserved, "log_insert"),
        (options(0, Partition::Page), "logs"),
        (options(25, Partition::Page), "logs"),
        (no_threads, "recovery_threads"),
        (threads, "recovery_threads"),
    ] {
        let refused = Db::open_on(Arc::new(SimDisk::new(1)), wrong);
        assert!(matches!(&refused, Err(Error::InvalidOption { option: named, .. }) if *named == option), "{refused:?}");
    }
}

/// Threads move amounts between numbers, and the power fails meanwhile. All acknowledged transfers
/// survive, and none survives in part.
#[test]
fn the_power_goes_off_among_threads() {
    const KEYS: u64 = 40;
    let ways = WAYS.into_iter().flat_map(|way| [CommitMode::Elr, CommitMode::Pipelined].map(|mode| (way, mode)));
    for (round, (way, commit)) in ways.enumerate() {
        let disk = SimDisk::new(round as u64);
        let with = Options { commit, ..options(2 + round as u16 % 2, way) };
        let db = open(&disk, with.clone());
        let table = db.create_table("numbers").unwrap();
        let acknowledged: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for (thread, acknowledged) in acknowledged.iter().enumerate() {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    let own = [b'a' + thread as u8];
                    let mut random = thread as u64 + 1;
                    for count in 1..=1000_u64 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let run = || -> duramen::Result<()> {
                            let mut txn = db.begin();
                            for (key, change) in [(random >> 33, 1), (random >> 45, u64::MAX)] {
                                let key = (key % KEYS).to_be_bytes();
                                let old = txn.get_for_update(table, &key)?;
                                let old = old.map_or(0, |old| u64::from_le_bytes(old.try_into().unwrap()));
                                txn.put(table, &key, &old.wrapping_add(change).to_le_bytes())?;
                            }
                            txn.put(table, &own, &count.to_le_bytes())?;
                            if random.is_multiple_of(7) { txn.abort() } else { txn.commit_async().wait() }
                        };
                        match run() {
                            Ok(()) if !random.is_multiple_of(7) => acknowledged.store(count, Ordering::Relaxed),
                            Ok(()) => {}
                            Err(error) if error.is_retryable() => {}
                            Err(_) => return,
                        }
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(60 + 40 * round as u64));
            disk.crash();
        });
        drop((table, db));
        let choices = [CrashChoice::Nothing, CrashChoice::Everything, CrashChoice::Random(1), CrashChoice::Random(2)];
        for (choice, threads) in choices.into_iter().zip([None, Some(1), Some(2), Some(4)]) {
            let image = disk.crash_image(&choice);
            let db = open(&image, Options { recovery_threads: threads, ..with.clone() });
            assert!(db.check().unwrap().is_ok());
            for (thread, acknowledged) in acknowledged.iter().enumerate() {
                let (found, least) = (number(&db, &[b'a' + thread as u8]), acknowledged.load(Ordering::Relaxed));
                assert!(found >= least, "{way}, {commit}, {choice:?}: {found} is found, and {least} was acknowledged");
            }
            let sum = (0..KEYS).fold(0_u64, |sum, key| sum.wrapping_add(number(&db, &key.to_be_bytes())));
            assert_eq!(sum, 0, "{way}, {commit}, {choice:?}");
            let log = db.metrics().log;
            assert!(log.sync_records > 0);
        }
    }
}

/// A transaction whose records are in all logs can be rolled back, at run time and by recovery.
#[test]
fn a_transaction_in_several_logs_is_taken_back() {
    for commit_first in [false, true] {
        let disk = SimDisk::new(1);
        let db = open(&disk, options(3, Partition::Page));
        let table = db.create_table("numbers").unwrap();
        let mut txn = db.begin();
        for key in 0..2000_u64 {
            txn.put(&table, &key.to_be_bytes(), &[1; 100]).unwrap();
        }
        txn.commit().unwrap();
        let mut txn = db.begin();
        let savepoint = txn.savepoint();
        for key in (0..2000_u64).step_by(3) {
            txn.put(&table, &key.to_be_bytes(), &[2; 120]).unwrap();
        }
        txn.rollback_to(&savepoint).unwrap();
        for key in (1..2000_u64).step_by(3) {
            txn.delete(&table, &key.to_be_bytes()).unwrap();
        }
        db.checkpoint().unwrap();
        if commit_first {
            txn.commit().unwrap();
        }
        let image = disk.crash_image(&CrashChoice::Everything);
        let db = open(&image, options(3, Partition::Page));
        assert_eq!(db.metrics().recovery.losers, u64::from(!commit_first));
        let table = db.open_table("numbers").unwrap();
        let mut txn = db.begin();
        for key in 0..2000_u64 {
            let expected = (!commit_first || key % 3 != 1).then(|| vec![1; 100]);
            assert_eq!(txn.get(&table, &key.to_be_bytes()).unwrap(), expected);
        }
        drop(txn);
        assert!(db.check().unwrap().is_ok());
    }
}

/// A rollback released its locks, and another transaction then dropped a table in the other log,
/// which was behind in time. After a crash the drop survived without the rollback: the rollback was
/// repeated on pages that had been freed.
#[test]
fn what_follows_a_rollback_does_not_survive_without_it() {
    for shift in 0..2_u64 {
        let disk = SimDisk::new(1);
        let db = open(&disk, options(2, Partition::RoundRobin));
        let table = db.create_table("numbers").unwrap();
        let mut txn = db.begin();
        (0..50_u64).for_each(|key| txn.put(&table, &key.to_be_bytes(), &[1; 100]).unwrap());
        txn.commit().unwrap();
        let mut txn = db.begin();
        (0..200_u64).for_each(|key| txn.put(&table, &(key % 50).to_be_bytes(), &[3; 100]).unwrap());
        txn.abort().unwrap();
        // With or without another transaction in between: in one of the two cases the drop goes to
        // the other log.
        let between = (shift == 1).then(|| db.begin());
        db.drop_table("numbers").unwrap();
        for choice in [CrashChoice::Nothing, CrashChoice::Everything] {
            let db = open(&disk.crash_image(&choice), options(2, Partition::RoundRobin));
            assert!(matches!(db.open_table("numbers"), Err(Error::NoSuchTable { .. })));
            assert_eq!(db.metrics().recovery.losers, 0, "the rollback is complete");
            assert!(db.check().unwrap().is_ok());
        }
        drop(between);
    }
}
