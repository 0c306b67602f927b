//! Redo by windows of the log: whatever the size of a window and the number of threads, the result
//! is the same, and a crash during redo does no harm.

use duramen::{Db, Options, Partition, RecoveryObserver, RecoveryPass, RecoveryProgress, Table};
use duramen_io::{CrashChoice, Disk, SimDisk};
use duramen_sync::{Arc, Mutex};
use duramen_types::{Gsn, LogAddress, LogId, PageId, TxnId};
use duramen_wal::{Log, NewRecord, WalOptions};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(pool_pages: usize, redo_memory_bytes: usize) -> Options {
    Options {
        pool_bytes: pool_pages * 8192,
        log_buffer_bytes: 1 << 20,
        log_segment_bytes: 1 << 20,
        log_max_bytes: 1 << 30,
        // No checkpoint but the first.
        checkpoint_bytes: Some(256 << 20),
        redo_memory_bytes: Some(redo_memory_bytes),
        ..Options::default()
    }
}

/// Makes a database whose power failed after changes of all kinds; returns it with its expected
/// contents.
fn crashed(seed: u64, pool_pages: usize, keys: u32, steps: u32) -> (SimDisk, Model) {
    crashed_with(seed, options(pool_pages, 64 << 20), keys, steps)
}

fn crashed_with(seed: u64, with: Options, keys: u32, steps: u32) -> (SimDisk, Model) {
    let disk = SimDisk::new(seed);
    let db = Db::open_on(Arc::new(disk.clone()), with).unwrap();
    let table = db.create_table("t").unwrap();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut model = Model::new();
    let mut txn = db.begin();
    for step in 0..steps {
        let key = rng.random_range(0..keys).to_be_bytes().to_vec();
        if rng.random_range(0..5) == 0 {
            if model.remove(&key).is_some() {
                txn.delete(&table, &key).unwrap();
            }
        } else {
            // Sometimes a value that needs pages of its own.
            let len = if rng.random_range(0..200) == 0 { 20_000 } else { rng.random_range(0..400) };
            let value = vec![step as u8; len];
            txn.put(&table, &key, &value).unwrap();
            model.insert(key, value);
        }
        if step % 500 == 499 {
            txn.commit().unwrap();
            txn = db.begin();
        }
        // The second checkpoint writes the pages that have been dirty since before the first.
        if step == steps / 3 || step == steps / 2 {
            db.checkpoint().unwrap();
        }
    }
    txn.commit().unwrap();
    let mut loser = db.begin();
    for key in 0..keys.min(300) {
        loser.put(&table, &key.to_be_bytes(), b"never committed").unwrap();
    }
    disk.crash();
    drop(loser);
    drop(db);
    (disk, model)
}

fn verify(db: &Db, model: &Model) {
    let report = db.check().unwrap();
    assert!(report.is_ok(), "{report:?}");
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    let found: Model = txn.scan(&table, ..).map(|record| record.unwrap()).collect();
    assert!(found == *model, "{} records instead of {}", found.len(), model.len());
    txn.commit().unwrap();
}

#[test]
fn windows_of_any_size_give_the_same_pages() {
    let (disk, model) = crashed(11, 1024, 4_000, 12_000);
    let mut redone = Vec::new();
    for (memory, pool_pages, threads) in
        [(4 << 10, 64, Some(1)), (100 << 10, 64, Some(2)), (1 << 20, 1024, Some(1)), (64 << 20, 4096, Some(32))]
    {
        let image = disk.crash_image(&CrashChoice::Everything);
        let with = Options { recovery_threads: threads, ..options(pool_pages, memory) };
        let db = Db::open_on(Arc::new(image.clone()), with).unwrap();
        let report = db.metrics().recovery;
        match memory {
            0..500_000 => assert!(report.windows > 8, "{report:?}"),
            10_000_000.. => assert_eq!(report.windows, 1, "{report:?}"),
            _ => assert!(report.windows > 1, "{report:?}"),
        }
        assert_eq!(report.redo_threads > 1, threads != Some(1), "{report:?}");
        assert!(report.pages >= report.windows, "{report:?}");
        redone.push((report.records, report.bytes, report.redone));
        verify(&db, &model);
        db.close().unwrap();
        verify(&Db::open_on(Arc::new(image), options(256, memory)).unwrap(), &model);
    }
    assert!(redone.iter().all(|counts| *counts == redone[0] && counts.2 > 3_000), "{redone:?}");
}

#[test]
fn many_pages_are_repeated_by_several_threads() {
    let (disk, model) = crashed(12, 8192, 60_000, 120_000);
    for pool_pages in [64, 512, 8192] {
        let image = disk.crash_image(&CrashChoice::Everything);
        let db = Db::open_on(Arc::new(image), options(pool_pages, 256 << 20)).unwrap();
        let report = db.metrics().recovery;
        assert!(report.redo_threads > 1, "enough for more than one thread: {report:?}");
        // Pages that stay in the pool are read early, in small windows.
        assert_eq!(report.windows == 1, pool_pages < 8192, "{report:?}");
        verify(&db, &model);
    }
}

/// The result of redo does not depend on the number of threads that read the logs and repeat the
/// changes, nor on the log that a record is in.
#[test]
fn several_logs_are_repeated_by_several_threads() {
    for (logs, log_partition) in [(2, Partition::RoundRobin), (3, Partition::Page), (3, Partition::Transaction)] {
        let with = Options { logs, log_partition, ..options(1024, 64 << 20) };
        let (disk, model) = crashed_with(14, with, 4_000, 8_000);
        let mut redone = Vec::new();
        for (memory, pool_pages, threads) in [(4 << 10, 64, 1), (4 << 10, 64, 4), (1 << 20, 1024, 2), (64 << 20, 64, 3)]
        {
            let image = disk.crash_image(&CrashChoice::Everything);
            let with = Options { recovery_threads: Some(threads), ..options(pool_pages, memory) };
            let db = Db::open_on(Arc::new(image.clone()), with.clone()).unwrap();
            let report = db.metrics().recovery;
            assert_eq!(report.redo_threads, threads as u64);
            assert_eq!(report.windows > 1, memory < 64 << 20, "{report:?}");
            redone.push((report.records, report.bytes, report.redone, report.losers));
            verify(&db, &model);
            db.close().unwrap();
            verify(&Db::open_on(Arc::new(image), with).unwrap(), &model);
        }
        assert!(redone.iter().all(|counts| *counts == redone[0] && counts.2 > 2_000), "{redone:?}");
    }
}

/// Many transactions that the crash interrupted are rolled back at the same time; one of them has
/// records in all logs.
#[test]
fn losers_are_rolled_back_by_several_threads() {
    for (logs, log_partition) in [(1, Partition::Transaction), (3, Partition::RoundRobin), (3, Partition::Page)] {
        let disk = SimDisk::new(15);
        let with = Options { logs, log_partition, ..options(256, 64 << 20) };
        let db = Db::open_on(Arc::new(disk.clone()), with.clone()).unwrap();
        let table = db.create_table("t").unwrap();
        let mut model = Model::new();
        let mut txn = db.begin();
        for key in 0..2000_u32 {
            let (key, value) = (key.to_be_bytes().to_vec(), vec![1; 60]);
            txn.put(&table, &key, &value).unwrap();
            model.insert(key, value);
        }
        txn.commit().unwrap();
        let mut losers: Vec<_> = (0..40).map(|_| db.begin()).collect();
        for round in 0..30_u32 {
            for (number, loser) in (0_u32..).zip(&mut losers) {
                // Adjacent keys on the same pages; some values shrink, so that others take their
                // space.
                let key = (number + 40 * round).to_be_bytes();
                loser.put(&table, &key, &vec![2; (round * 13 % 90) as usize]).unwrap();
                if round % 7 == 0 {
                    loser.put(&table, &(10_000 + number + 40 * round).to_be_bytes(), &[3; 200]).unwrap();
                }
            }
        }
        let mut last = db.begin();
        last.put(&table, &50_000_u32.to_be_bytes(), b"committed").unwrap();
        last.commit().unwrap();
        model.insert(50_000_u32.to_be_bytes().to_vec(), b"committed".to_vec());
        disk.crash();
        drop((losers, table, db));
        for threads in [1, 2, 5] {
            let mut image = disk.crash_image(&CrashChoice::Everything);
            // Recovery is interrupted several times, in any pass.
            for round in 0..4 {
                image.crash_at(image.operations() + 20 + 15 * round);
                drop(Db::open_on(Arc::new(image.clone()), Options { recovery_threads: Some(threads), ..with.clone() }));
                image = image.crash_image(&CrashChoice::Random(round));
            }
            let with = Options { recovery_threads: Some(threads), ..with.clone() };
            let db = Db::open_on(Arc::new(image), with).unwrap();
            verify(&db, &model);
        }
        let db = Db::open_on(Arc::new(disk.crash_image(&CrashChoice::Everything)), with).unwrap();
        assert_eq!(db.metrics().recovery.losers, 40);
    }
}

/// Redo in small windows writes pages that have more of the log's changes than others. A crash
/// during redo, and another during the next redo, leave all mixtures.
#[test]
fn redo_can_be_interrupted_between_and_within_windows() {
    let (disk, model) = crashed(13, 1024, 1_500, 5_000);
    let mut rng = StdRng::seed_from_u64(13);
    for (memory, threads) in [(4 << 10, 1), (200 << 10, 1), (200 << 10, 3)] {
        let with = || Options { recovery_threads: Some(threads), ..options(64, memory) };
        let whole = disk.crash_image(&CrashChoice::Everything);
        let before = whole.operations();
        Db::open_on(Arc::new(whole.clone()), with()).unwrap();
        let operations = whole.operations() - before;
        for _ in 0..15 {
            let mut image = disk.crash_image(&CrashChoice::Everything);
            for _ in 0..3 {
                image.crash_at(image.operations() + rng.random_range(0..operations));
                let opened = Db::open_on(Arc::new(image.clone()), with());
                drop(opened);
                image = image.crash_image(&CrashChoice::Random(rng.random()));
            }
            verify(&Db::open_on(Arc::new(image), with()).unwrap(), &model);
        }
    }
}

/// A log whose checksums are right and whose contents are impossible is damage like any other:
/// recovery neither panics nor goes round in circles.
#[test]
fn records_that_make_no_sense_are_refused() {
    const UPDATE: u8 = 1;
    const COMPENSATION: u8 = 3;
    const COMMIT: u8 = 4;
    const HAS_DEFERRED_FREES: u8 = 1;
    const END: u8 = 5;
    let good = SimDisk::new(1);
    Db::open_on(Arc::new(good.clone()), options(64, 1 << 20)).unwrap().close().unwrap();
    let database = duramen::inspect::checkpoint(Arc::new(good.clone())).unwrap().current().unwrap().database;
    // In a log so large, headers state previous records that do not exist.
    let large = WalOptions { max_bytes: 1 << 40, ..WalOptions::default() };
    let wal_options = WalOptions { ring_bytes: 1 << 20, segment_bytes: 1 << 20, ..large };
    let opened_with = |kind: u8, flags: u8, txn: u64, further: u64| {
        let disk = good.image();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let wal = Log::open(&shared, &wal_options, database, None).unwrap();
        let mut reference = wal.extents()[0].end.advance(further).get();
        let prev = LogAddress::new(reference);
        let mut payload = Vec::new();
        if kind == COMPENSATION {
            while reference >= 0x80 {
                payload.push(reference as u8 | 0x80);
                reference >>= 7;
            }
            payload.push(reference as u8);
        }
        let (txn, page, after) = (TxnId::new(txn), PageId::ZERO, Gsn::ZERO);
        wal.insert(LogId::ZERO, NewRecord { kind, flags, txn, page, prev, after, payload: &payload });
        wal.close().unwrap();
        drop(wal);
        Db::open_on(Arc::new(disk), options(64, 1 << 20)).map(|_| ())
    };
    opened_with(END, 0, 1000, 0).unwrap();
    let hostile = [
        (COMPENSATION, 0, 1000, 0),
        (COMPENSATION, 0, 1000, 1 << 40),
        (COMMIT, HAS_DEFERRED_FREES, 1000, 0),
        (UPDATE, 0, 1000, 0),
        (END, 0, 1 << 44, 0),
        (END, 0, u64::MAX, 0),
        (99, 0, 1000, 0),
    ];
    for (kind, flags, txn, further) in hostile {
        let error = opened_with(kind, flags, txn, further).unwrap_err();
        assert!(matches!(error, duramen::Error::Corrupt { .. }), "{kind} {txn} {further}: {error}");
    }
}

/// A log put back from an older copy: pages with changes that it lacks were detected only where
/// redo visited them.
#[test]
fn pages_from_the_future_of_an_older_log_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    let options = || Options { log_segment_bytes: 1 << 20, log_buffer_bytes: 1 << 20, ..Options::default() };
    let db = Db::open(home.path(), options()).unwrap();
    let table = db.create_table("t").unwrap();
    let put = |db: &Db, table: &Table, value: &[u8]| {
        let mut txn = db.begin();
        txn.put(table, b"key", value).unwrap();
        txn.commit().unwrap();
    };
    put(&db, &table, b"old");
    db.close().unwrap();
    let log: Vec<_> = std::fs::read_dir(path("log")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let kept: Vec<_> = log.iter().cloned().chain([path("control")]).collect();
    let copies: Vec<_> = kept.iter().map(|file| std::fs::read(file).unwrap()).collect();
    let old_data = std::fs::read(path("data")).unwrap();

    let db = Db::open(home.path(), options()).unwrap();
    put(&db, &db.open_table("t").unwrap(), b"new");
    db.close().unwrap();
    for (file, bytes) in kept.iter().zip(copies) {
        std::fs::write(file, bytes).unwrap();
    }
    // No page of the table is in the double-write area or in the dirty page table, so only the
    // reader checks it.
    std::fs::write(path("doublewrite"), []).unwrap();
    // The data file is newer, and its stamp shows that. In a file of the right generation only the
    // pages themselves show it.
    let error = Db::open(home.path(), options()).unwrap_err();
    assert!(matches!(&error, duramen::Error::Corrupt { file, .. } if file == "control"), "{error}");
    let stamp = 0..8192;
    let mut data = std::fs::read(path("data")).unwrap();
    data[stamp.clone()].copy_from_slice(&old_data[stamp]);
    std::fs::write(path("data"), data).unwrap();
    let db = Db::open(home.path(), options()).unwrap();
    let table = db.open_table("t").unwrap();
    // The log may meanwhile grow past the lost part.
    let other = db.create_table("other").unwrap();
    for _ in 0..100 {
        put(&db, &other, b"more");
    }
    let error = db.begin().get(&table, b"key").unwrap_err();
    assert!(matches!(&error, duramen::Error::Corrupt { page: Some(_), .. }), "{error}");
    assert!(error.to_string().contains("the log has lost its end"), "{error}");
}

/// The progress report of each pass grows to the total, and is called on the way.
#[test]
fn recovery_tells_how_far_it_is() {
    for logs in [1, 2] {
        let with = Options { logs, log_partition: Partition::RoundRobin, ..options(4_000, 1 << 20) };
        let disk = SimDisk::new(7);
        let db = Db::open_on(Arc::new(disk.clone()), with.clone()).unwrap();
        let table = db.create_table("t").unwrap();
        let put = |from: u32, to: u32| {
            let mut txn = db.begin();
            for key in from..to {
                txn.put(&table, &key.to_be_bytes(), &[1; 1_400]).unwrap();
            }
            txn
        };
        put(0, 7_000).commit().unwrap();
        put(7_000, 14_000).commit().unwrap();
        let loser = put(14_000, 14_100);
        let last = put(14_100, 14_101);
        last.commit().unwrap();
        disk.crash();
        drop((loser, db));

        let told = Arc::new(Mutex::new(Vec::<RecoveryProgress>::new()));
        let listener = Arc::clone(&told);
        let observer = RecoveryObserver::new(move |progress| listener.lock().push(progress));
        let with = Options { recovery_observer: Some(observer), recovery_threads: Some(1), ..with };
        let image = disk.crash_image(&CrashChoice::Everything);
        let db = Db::open_on(Arc::new(image), with).unwrap();
        let report = db.metrics().recovery;
        let told = std::mem::take(&mut *told.lock());
        for (pass, steps, all) in [
            (RecoveryPass::LogEnd, 3, report.log_end_bytes),
            (RecoveryPass::Redo, 5, report.bytes),
            (RecoveryPass::Undo, 1, report.losers),
        ] {
            let of_pass: Vec<RecoveryProgress> = told.iter().copied().filter(|one| one.pass == pass).collect();
            assert!(of_pass.len() >= steps, "{pass:?}: {of_pass:?}");
            assert!(of_pass.is_sorted_by_key(|one| one.done), "{of_pass:?}");
            let last = of_pass[of_pass.len() - 1];
            assert!(last.done <= all && last.done + (5 << 20) * u64::from(logs) > all, "{last:?} of {all}");
            if pass != RecoveryPass::LogEnd {
                assert_eq!((last.done, last.total), (all, Some(all)));
            }
        }
        assert_eq!(report.losers, 1);
    }
}
