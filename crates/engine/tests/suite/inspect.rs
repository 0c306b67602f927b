//! Inspects closed databases, healthy and damaged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use duramen::{Db, Error, Options, inspect};
use duramen_io::{AlignedBuf, Disk, OpenMode, SimDisk};
use duramen_types::{Lsn, PAGE_SIZE, PageId};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::small;

fn open(disk: &SimDisk) -> Db {
    Db::open_on(Arc::new(disk.clone()), small()).unwrap()
}

fn shared(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn entries(disk: &SimDisk, from: Option<Lsn>) -> Vec<inspect::LogEntry> {
    inspect::log(shared(disk), from).unwrap().collect::<Result<_, _>>().unwrap()
}

/// Makes a closed database with every kind of page.
fn database() -> SimDisk {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    let table = db.create_table("t").unwrap();
    let mut txn = db.begin();
    for number in 0..3_000u32 {
        txn.insert(&table, &number.to_be_bytes(), &[number as u8; 40]).unwrap();
    }
    txn.insert(&table, b"large", &[3; 20_000]).unwrap();
    txn.commit().unwrap();
    db.close().unwrap();
    disk
}

fn overwrite(disk: &SimDisk, name: &str, offset: u64, fill: impl FnOnce(&mut [u8]), len: usize) {
    let file = disk.open(name, OpenMode::Existing).unwrap();
    let mut bytes = AlignedBuf::zeroed(len);
    file.read_at(&mut bytes, offset).unwrap();
    fill(&mut bytes);
    file.write_at(&[&bytes], offset).unwrap();
}

#[test]
fn the_log_tells_what_happened_in_order() {
    let disk = SimDisk::new(7);
    let db = open(&disk);
    let table = db.create_table("t").unwrap();
    let mut committed = db.begin();
    committed.insert(&table, &[0, 1], &[9; 100]).unwrap();
    committed.update(&table, &[0, 1], &[[9; 50], [8; 50]].concat()).unwrap();
    let first = committed.id();
    committed.commit().unwrap();
    let mut aborted = db.begin();
    aborted.insert(&table, b"key", b"value").unwrap();
    assert!(aborted.delete(&table, &[0, 1]).unwrap());
    let second = aborted.id();
    aborted.abort().unwrap();
    let mut large = db.begin();
    large.put(&table, b"large", &[1; 10_000]).unwrap();
    let third = large.id();
    large.commit().unwrap();
    let mut delete = db.begin();
    assert!(delete.delete(&table, b"large").unwrap());
    let fourth = delete.id();
    delete.commit().unwrap();
    // When a deletion is hardened, later commits free what it has left.
    for number in 0..2_u8 {
        db.run(|txn| txn.put(&table, b"later", &[number])).unwrap();
    }
    drop(db);

    let all = entries(&disk, None);
    let of = |txn| -> Vec<&inspect::LogEntry> { all.iter().filter(|entry| entry.txn == txn).collect() };
    let kinds = |txn| of(txn).iter().map(|entry| entry.kind.clone()).collect::<Vec<_>>();
    assert_eq!(kinds(first), ["update", "update", "commit"]);
    assert_eq!(kinds(second), ["update", "update", "compensation", "compensation", "end"]);
    assert_eq!(kinds(third), ["update", "update", "update", "commit"]);
    assert_eq!(kinds(fourth), ["update", "free-on-commit", "commit", "end"]);
    let kinds: Vec<&str> = all.iter().map(|entry| entry.kind.as_str()).collect();
    assert_eq!(kinds[..2], ["checkpoint-begin", "checkpoint-end"]);
    assert!(all.iter().all(|entry| !entry.kind.contains("unknown") && !entry.detail.contains("malformed")), "{all:#?}");

    let insert = of(first)[0];
    assert!(insert.detail.starts_with("insert slot 0 key 0x0001 (2 bytes) value 100 bytes"), "{insert:?}");
    assert!(insert.detail.contains("undo: ghost key 0x0001 (2 bytes) of table 16"), "{insert:?}");
    let update = of(first)[1];
    assert!(update.detail.starts_with("change slot 0: 50 bytes of the value at 50 become 50"), "{update:?}");
    assert!(of(second)[1].detail.contains("ghost"), "{:?}", of(second)[1]);
    assert!(of(third)[0].detail.contains("image of an overflow page of table 16"), "{:?}", of(third)[0]);
    assert!(of(third)[2].detail.contains("10000 bytes in chain"), "{:?}", of(third)[2]);
    assert!(of(fourth)[1].detail.contains("free chain"), "{:?}", of(fourth)[1]);

    for pair in all.windows(2) {
        assert_eq!(pair[0].lsn.get() + pair[0].length, pair[1].lsn.get());
    }
    for entry in &all {
        assert!(
            entry.prev.is_zero() || all.iter().any(|other| (other.lsn, other.txn) == (entry.prev.lsn(), entry.txn))
        );
    }
    let middle = all.len() / 2;
    assert_eq!(entries(&disk, Some(all[middle].lsn)), all[middle..]);
    let beyond = inspect::log(shared(&disk), Some(Lsn::new(1 << 40)));
    assert!(matches!(beyond, Err(Error::InvalidOption { .. })));
}

#[test]
fn inspecting_writes_nothing_and_takes_no_lock() {
    let disk = database();
    let _lock = disk.lock().unwrap();
    let before = disk.counters();
    entries(&disk, None);
    inspect::checkpoint(shared(&disk)).unwrap();
    inspect::page(shared(&disk), PageId::new(2)).unwrap();
    let after = disk.counters();
    assert_eq!((before.writes, before.syncs), (after.writes, after.syncs));
}

#[test]
fn every_page_of_a_healthy_database_is_fine() {
    let disk = database();
    let pages = disk.open("data", OpenMode::Existing).unwrap().len().unwrap() / PAGE_SIZE as u64;
    let mut types = std::collections::BTreeSet::new();
    for page in 0..pages {
        let report = inspect::page(shared(&disk), PageId::new(page)).unwrap();
        if report.checksum_ok {
            assert!(report.defects.is_empty(), "{report}");
            types.insert(report.page_type);
        }
    }
    assert!(["bitmap", "inner", "leaf", "overflow"].iter().all(|name| types.contains(*name)), "{types:?}");
    let bitmap = inspect::page(shared(&disk), PageId::new(1)).unwrap().to_string();
    assert!(bitmap.contains("pages in use, first free: page"), "{bitmap}");
    let catalog = inspect::page(shared(&disk), PageId::new(2)).unwrap().to_string();
    assert!(catalog.contains("0x74 \"t\" (1 bytes): value 12 bytes"), "{catalog}");
    assert!(matches!(inspect::page(shared(&disk), PageId::new(pages)), Err(Error::InvalidOption { .. })));
    assert!(matches!(inspect::page(shared(&disk), PageId::MAX), Err(Error::InvalidOption { .. })));
}

#[test]
fn garbage_in_the_files_is_reported() {
    let mut random = SmallRng::seed_from_u64(5);
    for round in 0..30 {
        let disk = database();
        let page = round % 12;
        overwrite(&disk, "data", page * PAGE_SIZE as u64, |bytes| random.fill_bytes(bytes), PAGE_SIZE);
        let report = inspect::page(shared(&disk), PageId::new(page)).unwrap();
        assert!(!report.checksum_ok && report.to_string().contains("damaged"), "{report}");
        let log =
            disk.file_names().into_iter().find(|name| name.starts_with("log/") && name.ends_with(".log")).unwrap();
        overwrite(&disk, &log, 4096 * (1 + round % 4), |bytes| random.fill_bytes(&mut bytes[..700]), 4096);
        if let Ok(entries) = inspect::log(shared(&disk), None) {
            entries.for_each(drop);
        }
        overwrite(&disk, "control", 4096 * (round % 2), |bytes| random.fill_bytes(&mut bytes[..600]), 4096);
        let report = inspect::checkpoint(shared(&disk)).unwrap();
        assert!(report.slots[(round % 2) as usize].is_err() && report.current().is_some(), "{report}");
        overwrite(&disk, "control", 4096 * (1 - round % 2), |bytes| bytes[20] ^= 1, 4096);
        let report = inspect::checkpoint(shared(&disk)).unwrap();
        assert!(report.current().is_none() && report.tables.is_err(), "{report}");
        assert!(report.to_string().contains("its checksum is wrong"), "{report}");
    }
}

#[test]
fn the_checkpoint_is_reported_with_its_tables() {
    let disk = SimDisk::new(9);
    let db = open(&disk);
    let table = db.create_table("t").unwrap();
    let mut txn = db.begin();
    txn.insert(&table, b"k", b"v").unwrap();
    db.checkpoint().unwrap();
    let unfinished = txn.id();
    let copy = disk.image();
    txn.commit().unwrap();
    db.close().unwrap();

    let report = inspect::checkpoint(shared(&copy)).unwrap();
    let tables = report.tables.as_ref().unwrap();
    assert_eq!(tables.transactions.len(), 1, "{report}");
    assert_eq!((tables.transactions[0].txn, tables.transactions[0].state), (unfinished, "active"));
    assert_eq!(report.current().unwrap().oldest, tables.transactions[0].first, "{report}");
    assert!(report.to_string().contains("1 active transactions"), "{report}");

    let report = inspect::checkpoint(shared(&disk)).unwrap();
    assert!(report.slots.iter().all(Result::is_ok), "{report}");
    let tables = report.tables.as_ref().unwrap();
    assert!(tables.transactions.is_empty() && tables.dirty_pages.is_empty(), "{report}");
    let slot = report.current().unwrap();
    assert_eq!(entries(&disk, Some(slot.checkpoint))[0].kind, "checkpoint-begin");
}

#[test]
fn a_table_is_measured() {
    let disk = database();
    let db = open(&disk);
    let table = db.open_table("t").unwrap();
    let report = inspect::table(&db, &table).unwrap();
    assert_eq!((report.records, report.ghosts), (3_001, 0));
    assert_eq!((report.overflow_values, report.overflow_bytes, report.overflow_pages), (1, 20_000, 3));
    assert_eq!(report.levels.iter().map(|level| level.level).collect::<Vec<_>>(), [1, 0], "{report}");
    let (root, leaves) = (report.levels[0], report.levels[1]);
    assert_eq!((root.pages, root.entries, leaves.entries), (1, leaves.pages, 3_001));
    assert!(leaves.fill > 0.4 && leaves.fill <= 1.0, "{report}");
    assert!(report.to_string().contains("3001 records"), "{report}");
    let nodes = root.pages + leaves.pages;
    let check = db.check().unwrap();
    assert_eq!(check.pages, nodes + report.overflow_pages + 2, "{check:?}"); // and the bitmap and the catalog
    db.drop_table("t").unwrap();
    assert!(matches!(inspect::table(&db, &table), Err(Error::NoSuchTable { .. })));
    db.close().unwrap();
}

/// Splits and merges happen meanwhile, on every level.
#[test]
fn a_table_that_changes_is_measured() {
    let db = Db::in_memory(Options::small()).unwrap();
    let table = db.create_table("t").unwrap();
    let keep = |key: u32| key.is_multiple_of(8);
    let put = |key: u32| db.run(|txn| txn.put(&table, &key.to_be_bytes(), &[7; 400]));
    (0..4_000).filter(|key| keep(*key)).for_each(|key| put(key).unwrap());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                (0..4_000).filter(|key| !keep(*key)).for_each(|key| put(key).unwrap());
                let delete = |key: u32| db.run(|txn| txn.delete(&table, &key.to_be_bytes()));
                (0..4_000).filter(|key| !keep(*key)).for_each(|key| assert!(delete(key).unwrap()));
            }
        });
        for _ in 0..200 {
            let report = inspect::table(&db, &table).unwrap();
            assert!((500..=4_000).contains(&report.records), "{report}");
            assert!(report.levels.len() >= 2 && report.levels.iter().all(|level| level.pages > 0), "{report}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    db.close().unwrap();
}
