//! `Db::bulk_load`, over every scheme.
#![cfg(not(any(duramen_loom, duramen_machine)))]

use std::sync::Arc;
use std::time::{Duration, Instant};

use duramen::pmem::{Domain, SimMemory, Source};
use duramen::{BatchOptions, Db, Error, HeapOptions, Options, PcmOptions, Restore, RestoreTo, Scheme};
use duramen_io::SimDisk;
use duramen_test_support::{Rng, announced_seed};

fn ways() -> Vec<(&'static str, Options)> {
    let heap = || {
        let memory = SimMemory::new(32 << 20, Domain::VolatileCache);
        let heap = HeapOptions::new(Source::Simulated(memory), 32 << 20, Domain::VolatileCache);
        HeapOptions { journal_bytes: Some(10 << 20), ..heap }
    };
    let small = || Options { snapshots: true, pool_bytes: 1 << 20, ..Options::default() };
    let batches = Scheme::NvramGroupCommit(heap(), BatchOptions::default());
    let memory = SimMemory::new(16 << 20, Domain::VolatileCache);
    let pcm = PcmOptions::new(Source::Simulated(memory), 16 << 20, Domain::VolatileCache);
    vec![
        ("log", Options { log_segment_bytes: 1 << 20, ..small() }),
        ("two logs", Options { logs: 2, log_segment_bytes: 1 << 20, ..small() }),
        ("in place", Options { scheme: Scheme::InPlace(heap()), ..small() }),
        ("batches", Options { scheme: batches, ..small() }),
        ("PCM", Options { scheme: Scheme::PcmLogging(pcm), ..small() }),
    ]
}

/// Sorted records with keys and values of many lengths.
fn records(rng: &mut Rng, count: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let long_prefix = rng.percent(30);
    let key = |rng: &mut Rng| {
        let mut key = if long_prefix { vec![b'p'; rng.within(0..900)] } else { Vec::new() };
        let most = if rng.percent(5) { 120 } else { 12 };
        let len = rng.within(0..most);
        key.extend(rng.bytes(len));
        key
    };
    let value = |rng: &mut Rng| {
        let len = match rng.within(0..100) {
            0 => rng.within(1500..20_000),
            1..10 => rng.within(300..1500),
            _ => rng.within(0..120),
        };
        rng.bytes(len)
    };
    let records: std::collections::BTreeMap<_, _> = (0..count).map(|_| (key(rng), value(rng))).collect();
    records.into_iter().collect()
}

/// The nodes of a copy are as full as can be, which leaves a builder no room for a wrong size.
#[test]
fn copies_have_full_nodes_whatever_the_records_are() {
    let first = announced_seed("full nodes");
    for seed in first..first + 12 {
        let mut rng = Rng::new(seed);
        let count = rng.within(1..3000);
        let records = records(&mut rng, count);
        let [db, target] = [(); 2].map(|()| Db::in_memory(Options { snapshots: true, ..Options::small() }).unwrap());
        let mut load = db.bulk_load("t").unwrap();
        records.iter().for_each(|(key, value)| load.add(key, value).unwrap());
        load.finish().unwrap();
        db.compact_into(&target, |_| {}).unwrap();
        let table = target.open_table("t").unwrap();
        assert!(target.begin().scan(&table, ..).map(Result::unwrap).eq(records), "seed {seed}");
        let (loaded, report) = (db.check().unwrap(), target.check().unwrap());
        assert!(report.is_ok(), "seed {seed}: {:?}", report.problems);
        // A load leaves a sixteenth free.
        assert!(report.pages <= loaded.pages, "seed {seed}: {} instead of {} pages", report.pages, loaded.pages);
    }
}

/// The records of a load have no versions.
#[test]
fn a_snapshot_shows_no_load_that_came_later() {
    for (name, options) in ways() {
        let db = Db::open_on(Arc::new(SimDisk::new(5)), options).unwrap();
        let other = db.create_table("other").unwrap();
        db.run(|txn| txn.put(&other, b"key", b"value")).unwrap();
        let empty = db.create_table("t").unwrap();
        let before = db.snapshot().unwrap();
        let load = |name: &str| {
            let mut load = db.bulk_load(name).unwrap();
            (0..3000_u32).for_each(|key| load.add(&key.to_be_bytes(), &[7; 100]).unwrap());
            load.finish().unwrap()
        };
        let (loaded, new) = (load("t"), load("new"));
        for table in [&empty, &loaded, &new, &db.open_table("t").unwrap()] {
            assert_eq!(before.get(table, &5_u32.to_be_bytes()).unwrap(), None, "{name}");
            assert_eq!(before.scan(table, ..).count(), 0, "{name}");
            assert_eq!(before.split(table, 4).unwrap().len(), 1, "{name}");
        }
        // A table that was there before, under whatever name.
        db.change_tables(|tables| tables.rename("other", "another")).unwrap();
        let another = db.open_table("another").unwrap();
        for table in [&other, &another, &before.open_table("other").unwrap()] {
            assert_eq!(before.get(table, b"key").unwrap().as_deref(), Some(&b"value"[..]), "{name}");
        }
        let after = db.snapshot().unwrap();
        assert_eq!((after.scan(&loaded, ..).count(), after.scan(&new, ..).count()), (3000, 3000), "{name}");
        drop((before, after));
        db.close().unwrap();
    }
}

#[test]
fn what_is_loaded_is_there_and_can_be_changed() {
    for (name, options) in ways() {
        let mut rng = Rng::new(11);
        let disk = SimDisk::new(5);
        let db = Db::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
        let mut all = Vec::new();
        for (number, count) in [0, 1, 2, 70, 300, 3000, 800, 900, 1000].into_iter().enumerate() {
            let records = records(&mut rng, count);
            let table_name = format!("t{number}");
            if number % 2 == 0 {
                db.create_table(&table_name).unwrap();
            }
            let mut load = db.bulk_load(&table_name).unwrap();
            for (key, value) in &records {
                load.add(key, value).unwrap();
            }
            let table = load.finish().unwrap();
            let found: Vec<_> = db.begin().scan(&table, ..).map(Result::unwrap).collect();
            assert!(found == records, "{name}: {count} records");
            let (mut cursor, snapshot) = (0, db.snapshot().unwrap());
            let mut read = snapshot.cursor(&table, ..);
            while read.next().unwrap().is_some() {
                cursor += 1;
            }
            assert_eq!(cursor, records.len(), "{name}");
            all.push((table_name, records));
        }
        let report = db.check().unwrap();
        assert!(report.is_ok(), "{name}: {:?}", report.problems);
        db.close().unwrap();
        // The trees are as others: records are added, changed and deleted.
        let db = Db::open_on(Arc::new(disk), options).unwrap();
        for (table_name, records) in &mut all {
            let table = db.open_table(table_name).unwrap();
            db.run(|txn| {
                for (key, value) in records.iter_mut().step_by(3) {
                    value.resize(value.len().min(1000) + 90, 1);
                    txn.put(&table, key, value)?;
                }
                (0..200_u32).try_for_each(|key| txn.put(&table, &[&key.to_be_bytes()[..], b"new"].concat(), b"new"))
            })
            .unwrap();
            let mut txn = db.begin();
            assert!(records.iter().all(|(key, value)| txn.get(&table, key).unwrap().as_ref() == Some(value)), "{name}");
            txn.commit().unwrap();
            db.run(|txn| txn.delete_range(&table, ..)).unwrap();
        }
        let report = db.check().unwrap();
        assert!(report.is_ok(), "{name}: {:?}", report.problems);
    }
}

#[test]
fn wrong_input_is_refused_and_leaves_nothing() {
    let db = Db::in_memory(Options::small()).unwrap();
    let pages = db.check().unwrap().pages;
    let mut load = db.bulk_load("t").unwrap();
    load.add(b"b", b"1").unwrap();
    for key in [b"b", b"a"] {
        assert!(matches!(load.add(key, b"2"), Err(Error::KeyNotAscending)));
    }
    assert!(matches!(load.add(&[b'c'; 2000], b"2"), Err(Error::KeyTooLarge { .. })));
    // The load goes on without what was refused.
    load.add(b"c", &[1; 100_000]).unwrap();
    drop(load);
    assert_eq!(db.list().unwrap(), Vec::<String>::new());
    assert_eq!(db.check().unwrap().pages, pages, "a load that was dropped left pages");

    let table = db.create_table("t").unwrap();
    let mut load = db.bulk_load("t").unwrap();
    load.add(b"b", b"1").unwrap();
    db.run(|txn| txn.put(&table, b"x", b"meanwhile")).unwrap();
    assert!(matches!(load.finish(), Err(Error::TableNotEmpty { name }) if name == "t"));
    assert!(matches!(db.bulk_load("t"), Err(Error::TableNotEmpty { .. })));
    assert_eq!(db.run(|txn| txn.get(&table, b"x")).unwrap().unwrap(), b"meanwhile");
    db.run(|txn| txn.delete_range(&table, ..)).unwrap();
    let mut load = db.bulk_load("t").unwrap();
    load.add(b"b", b"1").unwrap();
    let loaded = load.finish().unwrap();
    assert!(matches!(db.run(|txn| txn.get(&table, b"b")), Err(Error::NoSuchTable { .. })), "another handle");
    assert_eq!(db.run(|txn| txn.get(&loaded, b"b")).unwrap().unwrap(), b"1");
    assert!(db.check().unwrap().is_ok());
}

/// A restore to a point after the load has the records, one to a point before has none.
#[test]
fn a_load_is_in_the_log_as_a_whole() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let archive = Some(duramen::Archive::at(at("archive")).unwrap());
    let options = Options { archive, snapshots: true, ..Options::small() };
    let db = Db::open(at("db"), options).unwrap();
    let other = db.create_table("other").unwrap();
    db.backup(at("backup"), |_| {}).unwrap();
    let mut load = db.bulk_load("t").unwrap();
    for key in 0..5000_u32 {
        load.add(&key.to_be_bytes(), &[7; 100]).unwrap();
    }
    db.run(|txn| txn.put(&other, b"key", b"value")).unwrap();
    let before = db.metrics().log.records;
    assert!(before > 70, "the pages are logged");
    let point = db.snapshot().unwrap().gsn();
    load.finish().unwrap();
    db.close().unwrap();
    let restore = |name: &str, to: RestoreTo| {
        let restore = Restore::from(at("backup")).unwrap().archive(at("archive")).unwrap().log(at("db")).unwrap();
        restore.to(to).into_directory(at(name), |_| {}).unwrap();
        let db = Db::open(at(name), Options::small()).unwrap();
        assert!(db.check().unwrap().is_ok());
        db
    };
    let whole = restore("whole", RestoreTo::default());
    let table = whole.open_table("t").unwrap();
    assert_eq!(whole.begin().scan(&table, ..).count(), 5000);
    let part = restore("part", RestoreTo::Gsn(duramen::Gsn::new(point.get() + 1)));
    assert!(matches!(part.open_table("t"), Err(Error::NoSuchTable { .. })));
    let other = part.open_table("other").unwrap();
    assert_eq!(part.run(|txn| txn.get(&other, b"key")).unwrap().unwrap(), b"value");
}

/// Prints the rates of loading and of inserting, and the bytes written.
/// `cargo test --release --test suite bulk_load -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn rates() {
    let count = 1_000_000_u32;
    let value = [7; 100];
    let rate = |time: Duration| f64::from(count) / time.as_secs_f64() / 1e6;
    for is_bulk in [false, true, false, true] {
        let root = tempfile::tempdir_in(".").unwrap();
        let db = Db::open(root.path().join("db"), Options::default()).unwrap();
        let written = db.metrics().disk.written_bytes;
        let began = Instant::now();
        if is_bulk {
            let mut load = db.bulk_load("t").unwrap();
            (0..count).try_for_each(|key| load.add(&key.to_be_bytes(), &value)).unwrap();
            load.finish().unwrap();
        } else {
            let table = db.create_table("t").unwrap();
            for part in 0..count / 1000 {
                db.run(|txn| (0..1000).try_for_each(|key| txn.put(&table, &(part * 1000 + key).to_be_bytes(), &value)))
                    .unwrap();
            }
        }
        let loaded = began.elapsed();
        db.checkpoint().unwrap();
        let bytes = (db.metrics().disk.written_bytes - written) as f64 / f64::from(count) / 104.0;
        println!(
            "bulk {is_bulk}: {:.2} M rows/s, with checkpoint {:.2}; {bytes:.2} bytes written per byte",
            rate(loaded),
            rate(began.elapsed())
        );
        db.close().unwrap();
    }
}
