//! `Txn::delete_range`, over every scheme.
#![cfg(not(any(duramen_loom, duramen_machine)))]

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use duramen::pmem::{Domain, SimMemory, Source};
use duramen::{
    Barriers, BatchOptions, Db, Error, Granularity, HeapOptions, Isolation, Options, PcmOptions, Scheme, Snapshot,
    Table, Txn,
};
use duramen_io::SimDisk;
use duramen_test_support::{Rng, is_long};

fn small() -> Options {
    Options {
        snapshots: true,
        pool_bytes: 1 << 20,
        log_buffer_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        log_max_bytes: 32 << 20,
        checkpoint_bytes: Some(1 << 20),
        lock_wait_limit: Some(Duration::from_secs(5)),
        ..Options::default()
    }
}

/// Ways to keep a database; the last word says how many records are locked one by one.
fn ways() -> Vec<(&'static str, Options)> {
    let heap = || {
        let memory = SimMemory::new(24 << 20, Domain::VolatileCache);
        HeapOptions::new(Source::Simulated(memory), 24 << 20, Domain::VolatileCache)
    };
    let on_memory = |scheme| Options { scheme, snapshots: true, pool_bytes: 1 << 20, ..Options::default() };
    let paper = HeapOptions { barriers: Barriers::Paper, ..heap() };
    let batches = Scheme::NvramGroupCommit(heap(), BatchOptions::default());
    let memory = SimMemory::new(16 << 20, Domain::VolatileCache);
    let pcm = PcmOptions::new(Source::Simulated(memory), 16 << 20, Domain::VolatileCache);
    let memory = SimMemory::new(16 << 20, Domain::VolatileCache);
    let tuples = PcmOptions::new(Source::Simulated(memory), 16 << 20, Domain::VolatileCache);
    let tuples = PcmOptions { granularity: Granularity::Tuple, ..tuples };
    vec![
        ("log", small()),
        ("log, table locked", Options { lock_escalation: 1, ..small() }),
        ("log, no snapshots, table locked", Options { snapshots: false, lock_escalation: 1, ..small() }),
        ("two logs", Options { logs: 2, ..small() }),
        ("in place", on_memory(Scheme::InPlace(heap()))),
        ("in place, barriers of the paper", on_memory(Scheme::InPlace(paper))),
        ("batches", Options { lock_escalation: 100, ..on_memory(batches) }),
        ("PCM", on_memory(Scheme::PcmLogging(pcm))),
        ("PCM, tuples", on_memory(Scheme::PcmLogging(tuples))),
    ]
}

type Model = BTreeMap<u32, Vec<u8>>;

fn contents(txn: &mut Txn, table: &Table) -> Model {
    let records = txn.scan(table, ..).map(|record| record.unwrap());
    records.map(|(key, value)| (u32::from_be_bytes(key.try_into().unwrap()), value)).collect()
}

/// Puts, deletes, savepoints, rollbacks and reopenings give what a map gives.
#[test]
fn a_range_is_deleted_as_in_a_map() {
    for (name, options) in ways() {
        let disk = SimDisk::new(3);
        let mut rng = Rng::new(7);
        let mut model = Model::new();
        for life in 0..3 {
            let db = Db::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
            let table = db.table("t").unwrap();
            for round in 0..12 {
                let (mut txn, mut changed) = (db.begin(), model.clone());
                let mut mark = (txn.savepoint(), changed.clone());
                for _ in 0..rng.within(1..8) {
                    let (a, b) = (rng.within(0..2000) as u32, rng.within(0..2000) as u32);
                    let (from, to) = (a.min(b), a.max(b));
                    match rng.within(0..6) {
                        0 => mark = (txn.savepoint(), changed.clone()),
                        1 => {
                            txn.rollback_to(&mark.0).unwrap();
                            changed = mark.1.clone();
                        }
                        2 | 3 => {
                            let len = if rng.percent(3) { rng.within(2000..40_000) } else { rng.within(0..300) };
                            for key in (from..to).step_by(1 + rng.within(1..9)).take(150) {
                                txn.put(&table, &key.to_be_bytes(), &vec![key as u8; len % (1 + key as usize)])
                                    .unwrap();
                                changed.insert(key, vec![key as u8; len % (1 + key as usize)]);
                            }
                        }
                        _ => {
                            let (lower, upper) = (from.to_be_bytes(), to.to_be_bytes());
                            let bounds = (
                                *rng.pick(&[Included(from), Excluded(from), Included(from), Unbounded]),
                                *rng.pick(&[Included(to), Excluded(to), Excluded(to), Unbounded]),
                            );
                            let range = (bounds.0.map(|_| &lower[..]), bounds.1.map(|_| &upper[..]));
                            let deleted = txn.delete_range(&table, range).unwrap();
                            let before = changed.len();
                            changed.retain(|key, _| !bounds.contains(key));
                            assert_eq!(deleted, (before - changed.len()) as u64, "{name}, life {life}, round {round}");
                        }
                    }
                }
                assert_eq!(contents(&mut txn, &table), changed, "{name}, life {life}, round {round}");
                if rng.percent(60) {
                    txn.commit().unwrap();
                    model = changed;
                } else {
                    txn.abort().unwrap();
                }
                let report = db.check().unwrap();
                assert!(report.is_ok(), "{name}, life {life}, round {round}: {:?}", report.problems);
            }
            assert_eq!(contents(&mut db.begin(), &table), model, "{name}, life {life}");
            if life == 1 {
                drop(db);
            } else {
                db.close().unwrap();
            }
        }
    }
}

/// Few of these keys fit into one operation, so a leaf takes several.
#[test]
fn records_with_long_keys_are_deleted() {
    for lock_escalation in [1, 1 << 20] {
        let db = Db::open_on(Arc::new(SimDisk::new(1)), Options { lock_escalation, ..small() }).unwrap();
        let table = db.table("t").unwrap();
        let key = |number: u32| {
            let mut key = [[7; 900].as_slice(), &number.to_be_bytes()].concat();
            key.resize(904 + number as usize % 120, 7);
            key
        };
        db.run(|txn| (0..300).try_for_each(|number| txn.put(&table, &key(number), b"value"))).unwrap();
        db.run(|txn| txn.delete(&table, &key(150))).unwrap();
        let deleted = db.run(|txn| txn.delete_range(&table, key(10)..=key(289))).unwrap();
        assert_eq!(deleted, 279);
        let left: Vec<_> = db.begin().scan(&table, ..).map(|record| record.unwrap().0).collect();
        assert_eq!(left, (0..10).chain(290..300).map(key).collect::<Vec<_>>());
        assert!(db.check().unwrap().is_ok());
    }
}

fn filled(options: Options, count: u32, value: &[u8]) -> (Db, Table) {
    let db = Db::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
    let table = db.table("t").unwrap();
    db.run(|txn| (0..count).try_for_each(|key| txn.put(&table, &(2 * key).to_be_bytes(), value))).unwrap();
    (db, table)
}

#[test]
fn no_record_appears_in_a_deleted_range() {
    let (db, table) = filled(Options { lock_escalation: 1 << 20, ..small() }, 500, b"value");
    let try_insert = |key: u32| {
        let mut txn = db.begin();
        txn.set_lock_wait_limit(Some(Duration::ZERO));
        txn.insert(&table, &key.to_be_bytes(), b"new")
    };
    for isolation in [Isolation::Serializable, Isolation::ReadCommitted] {
        let mut txn = db.begin_with(isolation);
        assert_eq!(txn.delete_range(&table, 200_u32.to_be_bytes()..400_u32.to_be_bytes()).unwrap(), 100);
        let in_range = try_insert(301);
        match isolation {
            Isolation::Serializable => assert!(matches!(in_range, Err(Error::LockTimeout { .. })), "{in_range:?}"),
            _ => in_range.unwrap(),
        }
        // A deleted record stays locked in both.
        assert!(matches!(try_insert(300), Err(Error::LockTimeout { .. })));
        assert!(try_insert(601).is_ok(), "beyond the range");
        txn.abort().unwrap();
        assert!(matches!(try_insert(300), Err(Error::KeyExists)));
    }
}

#[test]
fn a_range_waits_for_the_locks_of_others() {
    let (db, table) = filled(small(), 100, b"value");
    let mut other = db.begin();
    other.put(&table, &51_u32.to_be_bytes(), b"not committed").unwrap();
    let mut txn = db.begin();
    txn.set_lock_wait_limit(Some(Duration::ZERO));
    assert!(matches!(txn.delete_range(&table, ..), Err(Error::LockTimeout { .. })));
    assert!(matches!(txn.commit(), Err(Error::MustAbort)));
    other.commit().unwrap();
    assert_eq!(db.run(|txn| txn.delete_range(&table, ..)).unwrap(), 101);
    assert_eq!(db.run(|txn| txn.delete_range(&table, ..)).unwrap(), 0);
}

#[test]
fn snapshots_still_see_what_was_deleted() {
    for (name, options) in ways_with_snapshots() {
        let (db, table) = filled(options, 600, &[7; 100]);
        let large = vec![9; 50_000];
        db.run(|txn| txn.put(&table, &1_u32.to_be_bytes(), &large)).unwrap();
        let snapshot = db.snapshot().unwrap();
        assert_eq!(db.run(|txn| txn.delete_range(&table, ..)).unwrap(), 601, "{name}");
        // Other records come into the same leaves, and what is due is cleared away.
        db.run(|txn| (0..600_u32).try_for_each(|key| txn.put(&table, &(4 * key + 1).to_be_bytes(), b"new"))).unwrap();
        db.checkpoint().unwrap();
        let (mut cursor, mut count) = (snapshot.cursor(&table, ..), 0);
        while let Some((key, value)) = cursor.next().unwrap() {
            let expected = if key == 1_u32.to_be_bytes() { &large[..] } else { &[7; 100][..] };
            assert!(value == expected, "{name}: key {key:?}");
            count += 1;
        }
        assert_eq!(count, 601, "{name}");
        drop(cursor);
        drop(snapshot);
        db.checkpoint().unwrap();
        let report = db.check().unwrap();
        assert!(report.is_ok(), "{name}: {:?}", report.problems);
        assert_eq!(db.begin().scan(&table, ..).count(), 600, "{name}");
    }
}

/// The records of one deletion are in several leaves when it is taken back.
#[test]
fn a_rollback_finds_the_records_after_splits() {
    for (name, options) in ways() {
        let (db, table) = filled(options, 64, &[1; 60]);
        let before = contents(&mut db.begin(), &table);
        let mut txn = db.begin();
        assert_eq!(txn.delete_range(&table, ..).unwrap(), 64, "{name}");
        for key in 0..64_u32 {
            txn.put(&table, &(2 * key + 1).to_be_bytes(), &[2; 1000]).unwrap();
        }
        txn.abort().unwrap();
        assert_eq!(contents(&mut db.begin(), &table), before, "{name}");
        assert!(db.check().unwrap().is_ok(), "{name}");
    }
}

#[test]
fn large_values_are_freed_in_extents() {
    let (db, table) = filled(Options { pool_bytes: 16 << 20, ..small() }, 0, b"");
    let value = vec![5; 1 << 20];
    for key in 0..8_u32 {
        db.run(|txn| txn.put(&table, &key.to_be_bytes(), &value)).unwrap();
    }
    db.checkpoint().unwrap();
    let (log, free) = (db.metrics().log.bytes, db.check().unwrap().free_pages);
    db.run(|txn| txn.delete_range(&table, ..)).unwrap();
    db.checkpoint().unwrap();
    let logged = db.metrics().log.bytes - log;
    assert!(logged < 16 << 10, "{logged} bytes of log for 8 values");
    let report = db.check().unwrap();
    assert!(report.is_ok(), "{:?}", report.problems);
    assert!(report.free_pages >= free + 8 * 128, "{} pages are free, {free} before", report.free_pages);
    // They are used again.
    let pages = report.pages + report.free_pages;
    for key in 0..8_u32 {
        db.run(|txn| txn.put(&table, &key.to_be_bytes(), &value)).unwrap();
    }
    let report = db.check().unwrap();
    assert!(report.is_ok() && report.pages + report.free_pages <= pages + 64, "{report:?}");
    assert!(db.run(|txn| txn.get(&table, &3_u32.to_be_bytes())).unwrap() == Some(value));
}

/// A deletion of many records costs a record of the log for each leaf, and not for each record.
#[test]
fn many_records_take_little_log() {
    for snapshots in [true, false] {
        let (db, table) = filled(Options { snapshots, ..small() }, 10_000, &[3; 50]);
        db.checkpoint().unwrap();
        let log = db.metrics().log.bytes;
        assert_eq!(db.run(|txn| txn.delete_range(&table, ..)).unwrap(), 10_000);
        let per_record = (db.metrics().log.bytes - log) as f64 / 10_000.0;
        assert!(per_record < 12.0, "{per_record} bytes of log for each record");
        db.checkpoint().unwrap();
        let report = db.check().unwrap();
        assert!(report.is_ok() && report.pages < 20, "{report:?}");
    }
}

/// Those with snapshots, none of which ends for lack of memory.
fn ways_with_snapshots() -> impl Iterator<Item = (&'static str, Options)> {
    let with_memory = |options| Options { version_bytes: Some(64 << 20), ..options };
    ways().into_iter().filter(|(_, options)| options.snapshots).map(move |(name, options)| (name, with_memory(options)))
}

fn shown(snapshot: &Snapshot, table: &Table) -> Model {
    let records = snapshot.scan(table, ..).map(|record| record.unwrap());
    records.map(|(key, value)| (u32::from_be_bytes(key.try_into().unwrap()), value)).collect()
}

/// Snapshots that stay open show what a map had when they were opened, whatever is deleted, put and
/// taken back later.
#[test]
fn snapshots_show_what_ranges_had() {
    for (name, options) in ways_with_snapshots() {
        let db = Db::open_on(Arc::new(SimDisk::new(5)), options).unwrap();
        let table = db.table("t").unwrap();
        let mut rng = Rng::new(11);
        let mut model = Model::new();
        let mut kept: Vec<(Snapshot, Model)> = Vec::new();
        let check = |kept: &[(Snapshot, Model)], place: &str| {
            for (snapshot, model) in kept {
                assert_eq!(&shown(snapshot, &table), model, "{place}");
                for key in model.keys().step_by(17) {
                    assert_eq!(snapshot.get(&table, &key.to_be_bytes()).unwrap().as_ref(), model.get(key), "{place}");
                }
            }
        };
        for round in 0..40_u32 {
            let place = format!("{name}, round {round}");
            let (mut txn, mut changed) = (db.begin(), model.clone());
            let mark = (txn.savepoint(), changed.clone());
            for _ in 0..rng.within(1..7) {
                let (a, b) = (rng.within(0..600) as u32, rng.within(0..600) as u32);
                let (from, to) = (a.min(b), a.max(b));
                match rng.within(0..9) {
                    0 => {
                        txn.rollback_to(&mark.0).unwrap();
                        changed = mark.1.clone();
                    }
                    1 => check(&kept, &place),
                    2..5 => {
                        for key in (from..to).step_by(1 + rng.within(1..4)) {
                            let value = vec![round as u8; 1 + key as usize % 90];
                            txn.put(&table, &key.to_be_bytes(), &value).unwrap();
                            changed.insert(key, value);
                        }
                    }
                    _ => {
                        txn.delete_range(&table, from.to_be_bytes()..to.to_be_bytes()).unwrap();
                        changed.retain(|key, _| !(from..to).contains(key));
                    }
                }
            }
            check(&kept, &place);
            if rng.percent(75) {
                txn.commit().unwrap();
                model = changed;
            } else {
                txn.abort().unwrap();
            }
            check(&kept, &place);
            if rng.percent(50) {
                kept.push((db.snapshot().unwrap(), model.clone()));
            }
            if kept.len() > 4 {
                kept.remove(rng.within(0..4));
            }
        }
        assert!(db.check().unwrap().is_ok(), "{name}");
    }
}

/// Each transaction changes some records, deletes all, and puts all again, with its number. A
/// snapshot shows all records of one transaction, while that transaction commits, too.
#[test]
fn a_snapshot_shows_one_generation() {
    const RECORDS: u32 = 150;
    let value = |generation: u32| generation.to_be_bytes();
    for (name, options) in ways_with_snapshots() {
        let db = Db::open_on(Arc::new(SimDisk::new(6)), options).unwrap();
        let table = db.table("t").unwrap();
        let generation = |number: u32| {
            db.run(|txn| {
                for key in (0..RECORDS).step_by(1 + number as usize % 7) {
                    txn.put(&table, &key.to_be_bytes(), b"in between")?;
                }
                txn.delete_range(&table, ..)?;
                (0..RECORDS).try_for_each(|key| txn.put(&table, &key.to_be_bytes(), &value(number)))
            })
            .unwrap();
        };
        generation(0);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let reader = || {
                let (mut latest, mut generations) = (0, 0);
                while !stop.load(Ordering::Relaxed) || generations < 3 {
                    let snapshot = db.snapshot().unwrap();
                    let records = shown(&snapshot, &table);
                    assert_eq!(records.len(), RECORDS as usize, "{name}");
                    let of = u32::from_be_bytes(records[&0][..].try_into().unwrap());
                    assert!(
                        of >= latest && records.values().all(|found| found[..] == value(of)),
                        "{name}: {records:?}"
                    );
                    (latest, generations) = (of, generations + 1);
                }
            };
            let readers = [scope.spawn(reader), scope.spawn(reader)];
            let begun = Instant::now();
            for number in 1.. {
                generation(number);
                if number >= 20 && begun.elapsed() > Duration::from_millis(if is_long() { 3_000 } else { 150 }) {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
        assert!(db.check().unwrap().is_ok(), "{name}");
    }
}

/// Two ranges at the two ends of a table became one deletion, whose commit read every leaf between
/// them.
#[test]
fn what_lies_between_two_ranges_is_left_alone() {
    const ROWS: u32 = 20_000;
    for snapshots in [false, true] {
        let options = Options { snapshots, pool_bytes: 512 << 10, ..small() };
        let db = Db::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
        let table = db.create_table("t").unwrap();
        for first in (0..ROWS).step_by(500) {
            db.run(|txn| (first..first + 500).try_for_each(|row| txn.put(&table, &row.to_be_bytes(), &[1; 400])))
                .unwrap();
        }
        db.checkpoint().unwrap();
        let before = db.metrics().page_reads;
        let mut txn = db.begin();
        for first in [10, ROWS - 20] {
            let range = first.to_be_bytes()..(first + 10).to_be_bytes();
            assert_eq!(txn.delete_range(&table, range).unwrap(), 10);
        }
        txn.commit().unwrap();
        db.checkpoint().unwrap();
        let reads = db.metrics().page_reads - before;
        assert!(reads < 100, "{reads} pages were read, snapshots: {snapshots}");
        let report = db.check().unwrap();
        assert!(report.is_ok() && report.records == u64::from(ROWS) - 20 && report.ghosts == 0, "{report:?}");
        db.close().unwrap();
    }
}

/// A record that was inserted, and taken back by a rollback to a savepoint, stayed a ghost.
#[test]
fn rollbacks_to_savepoints_leave_no_ghosts() {
    for (way, options) in ways() {
        let db = Db::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
        let table = db.create_table("t").unwrap();
        for commits in [true, false] {
            let mut txn = db.begin();
            let savepoint = txn.savepoint();
            for row in 0..50_u32 {
                txn.put(&table, &row.to_be_bytes(), b"in vain").unwrap();
            }
            txn.rollback_to(&savepoint).unwrap();
            txn.put(&table, &7_u32.to_be_bytes(), b"seven").unwrap();
            if commits { txn.commit() } else { txn.abort() }.unwrap();
            let report = db.check().unwrap();
            assert!(report.is_ok() && report.ghosts == 0, "{way}: {report:?}");
        }
        assert_eq!(db.begin().scan(&table, ..).count(), 1, "{way}");
        db.close().unwrap();
    }
}

/// Ghosts in tuples have no values, so a leaf that had left the pool lost those that a snapshot
/// needed.
#[test]
fn snapshots_see_deleted_records_whose_leaves_have_left_the_pool() {
    for (name, options) in ways_with_snapshots() {
        let (db, table) = filled(Options { pool_bytes: 512 << 10, ..options }, 0, &[]);
        for first in (0..6_000_u32).step_by(50) {
            let mut keys = first..first + 50;
            db.run(|txn| keys.try_for_each(|key| txn.put(&table, &key.to_be_bytes(), &[7; 100]))).unwrap();
        }
        let snapshot = db.snapshot().unwrap();
        for from in (0..6_000_u32).step_by(50) {
            db.run(|txn| txn.delete_range(&table, from.to_be_bytes()..(from + 3).to_be_bytes())).unwrap();
        }
        for _ in 0..2 {
            let rows = snapshot.scan(&table, ..).filter(|row| row.as_ref().unwrap().1 == [7; 100]).count();
            assert_eq!(rows, 6_000, "{name}");
        }
    }
}
