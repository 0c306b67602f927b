//! Databases that are opened before redo is done: each thread that needs a page finds it redone,
//! and a crash meanwhile does no harm.

use std::collections::BTreeMap;

use duramen::{Db, Error, Options, Partition, RecoveryReport};
use duramen_io::{CrashChoice, SimDisk};
use duramen_sync::{Arc, thread};
use duramen_test_support::{Stride, is_long};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const PAGE_SIZE: usize = duramen_types::PAGE_SIZE;

fn options(pool_pages: usize, redo_memory_bytes: usize) -> Options {
    Options {
        pool_bytes: pool_pages * PAGE_SIZE,
        log_buffer_bytes: 1 << 20,
        log_segment_bytes: 1 << 20,
        redo_memory_bytes: Some(redo_memory_bytes),
        instant_recovery: true,
        ..Options::default()
    }
}

fn opened(disk: &SimDisk, options: Options) -> Db {
    Db::open_on(Arc::new(disk.clone()), options).unwrap()
}

/// Makes a database whose power failed after changes of all kinds, and returns it with its expected
/// contents. Among the changes are pages that are not in the data file yet, a freed group of them,
/// and a transaction that had not ended.
fn crashed(seed: u64, with: Options, keys: u32, steps: u32) -> (SimDisk, Model) {
    let disk = SimDisk::new(seed);
    let db = opened(&disk, with);
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
            let len = if rng.random_range(0..200) == 0 { 20_000 } else { rng.random_range(0..400) };
            let value = vec![step as u8; len];
            txn.put(&table, &key, &value).unwrap();
            model.insert(key, value);
        }
        if step % 100 == 99 {
            txn.commit().unwrap();
            txn = db.begin();
        }
        // The second checkpoint leaves nearly nothing in the double-write area.
        if step == steps / 3 || step == steps / 3 + 1 {
            db.checkpoint().unwrap();
        }
        if step == steps / 2 {
            let dropped = db.create_table("dropped").unwrap();
            let mut filling = db.begin();
            for key in 0..200_u32 {
                filling.put(&dropped, &key.to_be_bytes(), &[7; 300]).unwrap();
            }
            filling.commit().unwrap();
            drop(dropped);
            db.drop_table("dropped").unwrap();
        }
    }
    txn.commit().unwrap();
    let mut loser = db.begin();
    for key in 0..keys.min(30) {
        loser.put(&table, &key.to_be_bytes(), b"never committed").unwrap();
    }
    // This commit hardens the records of the loser.
    let mut last = db.begin();
    last.put(&table, &keys.to_be_bytes(), b"the last one").unwrap();
    last.commit().unwrap();
    model.insert(keys.to_be_bytes().to_vec(), b"the last one".to_vec());
    disk.crash();
    drop(loser);
    drop(db);
    (disk, model)
}

fn contents(db: &Db) -> Model {
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    let found = txn.scan(&table, ..).map(|record| record.unwrap()).collect();
    txn.commit().unwrap();
    found
}

fn verify(db: &Db, model: &Model) {
    let found = contents(db);
    assert!(found == *model, "{} records instead of {}", found.len(), model.len());
    let report = db.check().unwrap();
    assert!(report.is_ok(), "{report:?}");
}

/// Changes some records, each in a transaction of its own.
fn work(db: &Db, model: &mut Model, rng: &mut StdRng, keys: u32, changes: u32) {
    let table = db.open_table("t").unwrap();
    for change in 0..changes {
        let key = rng.random_range(0..keys).to_be_bytes().to_vec();
        let value = vec![change as u8; rng.random_range(0..600)];
        let mut txn = db.begin();
        assert_eq!(txn.get(&table, &key).unwrap(), model.get(&key).cloned());
        txn.put(&table, &key, &value).unwrap();
        txn.commit().unwrap();
        model.insert(key, value);
    }
}

#[test]
fn the_first_reader_of_a_page_finds_it_redone() {
    let (disk, model) = crashed(21, options(1024, 64 << 20), 4_000, 8_000);
    let usual = Options { instant_recovery: false, ..options(1024, 64 << 20) };
    let before = opened(&disk.crash_image(&CrashChoice::Everything), usual.clone()).metrics().recovery;
    assert!(before.redone > 2_000 && before.left == 0, "{before:?}");
    // With little memory nearly all pages are redone first; with a small pool pages come and go.
    for (memory, pool_pages, threads) in [(64 << 20, 4096, 1), (64 << 20, 64, 3), (1 << 20, 64, 2), (64 << 10, 256, 1)]
    {
        let image = disk.crash_image(&CrashChoice::Everything);
        let with = Options { recovery_threads: Some(threads), ..options(pool_pages, memory) };
        let db = opened(&image, with.clone());
        let recovery = db.metrics().recovery;
        assert_eq!((recovery.losers, recovery.records), (1, before.records));
        assert!(recovery.open_micros >= recovery.micros(), "{recovery:?}");
        if memory == 64 << 20 {
            assert_eq!((recovery.windows, recovery.redone), (0, 0));
            assert!(recovery.left > 100, "{recovery:?}");
        }
        let (mut now, mut rng) = (model.clone(), StdRng::seed_from_u64(21));
        work(&db, &mut now, &mut rng, 4_000, 50);
        verify(&db, &now);
        db.close().unwrap();
        let db = opened(&image, usual.clone());
        assert!(!db.metrics().recovery.was_needed(), "closing has redone everything");
        verify(&db, &now);
    }
}

#[test]
fn the_rest_is_redone_in_the_background() {
    let (disk, model) = crashed(22, options(1024, 64 << 20), 4_000, 6_000);
    let image = disk.crash_image(&CrashChoice::Everything);
    let db = opened(&image, options(1024, 64 << 20));
    let RecoveryReport { left, .. } = db.metrics().recovery;
    assert!(left > 50);
    // Then a checkpoint is taken.
    while db.metrics().unredone_pages > 0 || db.metrics().checkpoints < 2 {
        thread::sleep(std::time::Duration::from_millis(1));
    }
    drop(db);
    let db = opened(&image, Options { instant_recovery: false, ..options(1024, 64 << 20) });
    let again = db.metrics().recovery;
    assert!(again.redone == 0 && again.pages < left / 2, "{again:?}");
    verify(&db, &model);
}

/// The write that was in progress when the power failed: the key, and the values that it may have
/// now.
type Doubt = Option<(Vec<u8>, [Option<Vec<u8>>; 2])>;

/// The power fails again at any point while pages are still to be redone, several times in a row.
#[test]
fn a_crash_before_redo_is_done_does_no_harm() {
    let layouts = [(1, Partition::Transaction), (3, Partition::RoundRobin), (2, Partition::Page)];
    for (seed, (logs, log_partition)) in (23..).zip(layouts) {
        let keys = 1_500;
        let with = Options { logs, log_partition, ..options(1024, 64 << 20) };
        let (disk, model) = crashed(seed, with, keys, 3_000);
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut unfinished, enough) = (0, if is_long() { 10 } else { 1 });
        // More of them if redo, on a busy machine, was too fast for the first.
        for round in Stride::sampled("crashes of early openings", 1, 5).until(24).chain(24..48) {
            if round >= 24 && unfinished > enough {
                break;
            }
            let round = round as usize;
            let (pool_pages, memory) = ([64, 128, 1024][round % 3], [64 << 20, 100 << 10][round / 3 % 2]);
            let with = || Options { checkpoint_bytes: Some(64 << 10), ..options(pool_pages, memory) };
            let (mut image, mut model, mut doubt) = (disk.crash_image(&CrashChoice::Everything), model.clone(), None);
            for life in 0..4 {
                // Any of the openings may be without instant recovery.
                let with = Options { instant_recovery: life == 0 || rng.random_range(0..4) > 0, ..with() };
                if rng.random_range(0..3) == 0 {
                    image.crash_at(image.operations() + rng.random_range(20..160));
                }
                match Db::open_on(Arc::new(image.clone()), with) {
                    Ok(db) => {
                        image.crash_at(image.operations() + rng.random_range(1..100));
                        live(&db, &mut model, &mut doubt, &mut rng, keys);
                        unfinished += u64::from(db.metrics().unredone_pages > 0);
                    }
                    Err(error) => {
                        assert!(image.crashed_in().is_some(), "seed {seed}, round {round}, life {life}: {error}")
                    }
                }
                image.crash();
                image = image.crash_image(&CrashChoice::Random(rng.random()));
            }
            let db = opened(&image, Options { instant_recovery: round.is_multiple_of(2), ..with() });
            resolve_doubt(&db, &mut model, &mut doubt).unwrap();
            verify(&db, &model);
            db.close().unwrap();
        }
        assert!(unfinished > enough, "{unfinished} crashes met pages that were still to be redone");
    }
}

/// Works until the power fails.
fn live(db: &Db, model: &mut Model, doubt: &mut Doubt, rng: &mut StdRng, keys: u32) {
    let Ok(table) = db.open_table("t") else { return };
    if resolve_doubt(db, model, doubt).is_err() {
        return;
    }
    for change in 0..40_u32 {
        let key = rng.random_range(0..keys).to_be_bytes().to_vec();
        let value = vec![change as u8; rng.random_range(0..600)];
        let mut txn = db.begin();
        let Ok(found) = txn.get(&table, &key) else { return };
        assert_eq!(found, model.get(&key).cloned());
        if rng.random_range(0..3) == 0 || txn.put(&table, &key, &value).is_err() {
            continue;
        }
        if txn.commit().is_err() {
            *doubt = Some((key, [found, Some(value)]));
            return;
        }
        model.insert(key, value);
    }
}

/// Finds the outcome of a change that was in progress.
fn resolve_doubt(db: &Db, model: &mut Model, doubt: &mut Doubt) -> Result<(), Error> {
    if let Some((key, possible)) = doubt {
        let found = db.begin().get(&db.open_table("t")?, key)?;
        assert!(possible.contains(&found), "{found:?} is neither of {possible:?}");
        match found {
            Some(value) => drop(model.insert(key.clone(), value)),
            None => drop(model.remove(key)),
        }
        *doubt = None;
    }
    Ok(())
}

/// A page that cannot be redone is an error for the threads that need it. Other threads are not
/// disturbed, and nothing is lost: the log keeps the changes that the page lacks.
#[test]
fn a_damaged_page_is_an_error_for_those_who_need_it() {
    let (disk, model) = crashed(26, options(1024, 64 << 20), 4_000, 4_000);
    let usual = Options { instant_recovery: false, ..options(1024, 64 << 20) };
    let image = || disk.crash_image(&CrashChoice::Everything);
    let flip = |image: &SimDisk, page: usize| image.flip_bit("data", (page * PAGE_SIZE + 4_000) as u64, 3);
    let (mut seen, mut out_of_service) = (0, 0);
    for page in 3..40 {
        let image = image();
        flip(&image, page);
        let refused = Db::open_on(Arc::new(image.image()), usual.clone());
        if !matches!(refused, Err(Error::Corrupt { page: Some(_), .. })) {
            continue;
        }
        let Ok(db) = Db::open_on(Arc::new(image.clone()), options(1024, 64 << 20)) else { continue };
        while db.metrics().interrupted > 0 {
            thread::yield_now();
        }
        // A damaged page that a rollback needs puts the database out of service.
        if matches!(db.open_table("t"), Err(Error::Poisoned { .. })) {
            drop(db);
            assert!(matches!(Db::open_on(Arc::new(image.image()), usual.clone()), Err(Error::Corrupt { .. })));
            flip(&image, page);
            verify(&opened(&image, usual.clone()), &model);
            out_of_service += 1;
            continue;
        }
        let table = db.open_table("t").unwrap();
        let (mut good, mut bad) = (0, 0);
        for (key, value) in &model {
            match db.begin().get(&table, key) {
                Ok(found) => {
                    assert_eq!(found.as_ref(), Some(value));
                    good += 1;
                }
                Err(Error::Corrupt { page: Some(found), .. }) => {
                    assert_eq!(found.get(), page as u64);
                    bad += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(good > 1_000 && bad < 500, "{good} good and {bad} bad");
        let home = tempfile::tempdir().unwrap();
        assert!(matches!(db.backup(home.path(), |_| {}), Err(Error::Corrupt { .. })));
        assert!(matches!(db.checkpoint(), Err(Error::Corrupt { .. })));
        assert_eq!(db.metrics().unredone_pages, 1);
        assert!(matches!(db.close(), Err(Error::Corrupt { .. })));
        assert!(matches!(Db::open_on(Arc::new(image.image()), usual.clone()), Err(Error::Corrupt { .. })));
        flip(&image, page);
        verify(&opened(&image, usual.clone()), &model);
        seen += 1;
    }
    assert!(seen > 3 && out_of_service > 0, "{seen} pages that redo needs, {out_of_service} that undo needs");
}

/// Makes a database whose power failed during a transaction that changed every second of `keys`
/// records and added as many; returns it with its expected contents.
fn interrupted(with: Options, keys: u32) -> (SimDisk, Model) {
    let disk = SimDisk::new(31);
    let db = opened(&disk, with);
    let table = db.create_table("t").unwrap();
    let mut model = Model::new();
    let mut txn = db.begin();
    for key in 0..keys {
        let (key, value) = ((2 * key).to_be_bytes().to_vec(), vec![1; 40]);
        txn.put(&table, &key, &value).unwrap();
        model.insert(key, value);
    }
    txn.commit().unwrap();
    db.checkpoint().unwrap();
    let mut loser = db.begin();
    for key in (0..2 * keys).filter(|key| key % 4 != 2) {
        match key % 8 {
            0 => drop(loser.delete(&table, &key.to_be_bytes()).unwrap()),
            _ => loser.put(&table, &key.to_be_bytes(), &[2; 90]).unwrap(),
        }
    }
    let mut last = db.begin();
    last.put(&table, b"last", b"one").unwrap();
    last.commit().unwrap();
    model.insert(b"last".to_vec(), b"one".to_vec());
    disk.crash();
    drop((loser, db));
    (disk, model)
}

const LAYOUTS: [(u16, Partition); 3] = [(1, Partition::Transaction), (3, Partition::RoundRobin), (2, Partition::Page)];

/// A transaction that needs a loser's changed record waits until the loser is rolled back, and
/// finds the record as it was. Other transactions need not wait.
#[test]
fn losers_are_rolled_back_under_their_locks() {
    let mut waited = 0;
    for (logs, log_partition) in LAYOUTS {
        let with = Options { logs, log_partition, ..options(1024, 64 << 20) };
        let (disk, model) = interrupted(with.clone(), 6_000);
        for round in 0..4 {
            let image = disk.crash_image(&CrashChoice::Random(round));
            let db = opened(&image, with.clone());
            let report = db.metrics().recovery;
            assert_eq!((report.losers, report.transactions_left), (1, 1));
            let table = db.open_table("t").unwrap();
            let mut now = model.clone();
            match round {
                0 => {
                    let found = db.begin().get(&table, &2_u32.to_be_bytes()).unwrap();
                    assert_eq!(found.as_ref(), model.get(&2_u32.to_be_bytes()[..]));
                    assert_eq!(db.metrics().lock_waits, 0, "nobody has changed it");
                }
                1 => assert_eq!(db.begin().get(&table, &1_u32.to_be_bytes()).unwrap(), None),
                2 => {
                    let mut txn = db.begin();
                    for key in (0..200_u32).rev() {
                        txn.put(&table, &key.to_be_bytes(), b"new").unwrap();
                        now.insert(key.to_be_bytes().to_vec(), b"new".to_vec());
                    }
                    txn.commit().unwrap();
                }
                _ => assert!(contents(&db) == model),
            }
            waited += db.metrics().lock_waits;
            verify(&db, &now);
            assert_eq!(db.metrics().interrupted, 0, "a check waits for it");
            db.close().unwrap();
            let db = opened(&image, with.clone());
            assert!(!db.metrics().recovery.was_needed());
            verify(&db, &now);
        }
    }
    assert!(waited > 0, "somebody must have met a lock");
}

/// A database that is dropped before its losers are rolled back, or loses power, continues with
/// them at the next opening. A database that is closed has rolled them back.
#[test]
fn losers_are_found_again() {
    for (logs, log_partition) in LAYOUTS {
        let with = Options { logs, log_partition, ..options(256, 64 << 20) };
        let (disk, model) = interrupted(with.clone(), 6_000);
        let usual = Options { instant_recovery: false, ..with.clone() };
        let mut rng = StdRng::seed_from_u64(u64::from(logs));
        let mut again = 0;
        for round in Stride::sampled("losers of early openings", 1, 3).until(12).chain(12..36) {
            if round >= 12 && again > 0 {
                break;
            }
            let mut image = disk.crash_image(&CrashChoice::Random(round));
            for _ in 0..3 {
                let db = opened(&image, with.clone());
                match rng.random_range(0..3) {
                    0 => drop(db),
                    1 => {
                        image.crash_at(image.operations() + rng.random_range(1..20));
                        let _ = db.checkpoint();
                        image.crash();
                        drop(db);
                        image = image.crash_image(&CrashChoice::Random(rng.random()));
                    }
                    _ => {
                        image.crash();
                        drop(db);
                        image = image.crash_image(&CrashChoice::Random(rng.random()));
                    }
                }
            }
            let db = opened(&image, if round.is_multiple_of(2) { with.clone() } else { usual.clone() });
            again += db.metrics().recovery.losers;
            verify(&db, &model);
            db.close().unwrap();
            let db = opened(&image, usual.clone());
            assert!(!db.metrics().recovery.was_needed());
            verify(&db, &model);
        }
        assert!(again > 0, "{again} losers were found once more");
    }
}

/// A loser keeps the log from being recycled. A transaction that therefore finds the log full has
/// the loser rolled back, in the log space reserved for the rollback.
#[test]
fn a_full_log_waits_for_the_losers() {
    for (logs, log_partition) in LAYOUTS {
        let with = Options { logs, log_partition, ..options(1024, 64 << 20) };
        let (disk, mut model) = interrupted(with.clone(), 4_000);
        let with = Options { log_max_bytes: 4 << 20, checkpoint_bytes: Some(1 << 20), ..with };
        let db = opened(&disk.crash_image(&CrashChoice::Everything), with);
        let table = db.open_table("t").unwrap();
        for number in 0..6_000_u32 {
            let mut txn = db.begin();
            let (key, value) = ([b"new", &(number % 500).to_be_bytes()[..]].concat(), vec![number as u8; 800]);
            txn.put(&table, &key, &value).unwrap();
            txn.commit().unwrap();
            model.insert(key, value);
        }
        verify(&db, &model);
        db.close().unwrap();
    }
}
