//! Inspects heaps in persistent memory, healthy and damaged.

use std::path::{Path, PathBuf};

use duramen::pmem::{Domain, SimMemory, Source, Survive, Survivors};
use duramen::{Barriers, Db, Error, HeapOptions, Options, Scheme, inspect};
use duramen_io::{Disk, RealDisk, RealDiskOptions, SimDisk};
use duramen_sync::Arc;
use duramen_types::PageId;
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

const MIB: u64 = 1 << 20;

fn in_file(path: &Path) -> HeapOptions {
    let heap = HeapOptions::new(Source::File(path.to_owned()), 4 * MIB, Domain::VolatileCache);
    HeapOptions { survive: Survive::Process, ..heap }
}

fn options(heap: HeapOptions) -> Options {
    Options { scheme: Scheme::InPlace(heap), pool_bytes: 1 << 20, ..Options::default() }
}

/// A closed database in a heap, with every kind of page.
fn database(home: &Path) -> (PathBuf, HeapOptions) {
    let (dir, heap) = (home.join("db"), in_file(&home.join("heap")));
    let db = Db::open(&dir, options(heap.clone())).unwrap();
    let table = db.create_table("t").unwrap();
    for number in 0..1000_u32 {
        db.run(|txn| txn.put(&table, &number.to_be_bytes(), &[number as u8; 50])).unwrap();
    }
    db.run(|txn| txn.put(&table, b"large", &[7; 20_000])).unwrap();
    db.close().unwrap();
    (dir, heap)
}

fn disk(dir: &Path) -> Arc<dyn Disk> {
    Arc::new(RealDisk::open(dir, RealDiskOptions::default()).unwrap())
}

#[test]
fn a_closed_heap_is_reported_and_not_changed() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    let (_, options) = database(home.path());
    let path = home.path().join("heap");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).unwrap();
    let before = std::fs::read(&path).unwrap();
    let report = inspect::heap(&options).unwrap();
    let text = report.to_string();
    let header = report.header.as_ref().unwrap();
    assert_eq!((header.scheme, header.blocks), (Some("in-place"), 16));
    assert_eq!((report.state.as_str(), report.openings, report.problems.len()), ("closed in order", 1, 0), "{text}");
    assert!(report.next_txn.get() > 1000, "{text}");
    // 4 MiB without 17 blocks.
    assert_eq!(report.space.pages, 376, "{text}");
    assert!((10..40).contains(&report.space.in_use) && report.space.groups == 1, "{text}");
    assert_eq!((report.system_journals, report.free_journals), (4, 12), "{text}");
    assert!(report.journals.iter().all(|journal| journal.is_system), "{text}");
    for words in ["state: closed in order", "of transactions: 12 free, 0 active, 0 committed", "system at gsn"] {
        assert!(text.contains(words), "no `{words}` in {text}");
    }
    let mut types = std::collections::BTreeSet::new();
    for page in 0..report.space.pages {
        let page = inspect::page_of_heap(&options, PageId::new(page)).unwrap();
        assert!(!page.has_checksum && page.to_string().contains("pages of a heap have no checksums"), "{page}");
        if page.checksum_ok {
            assert!(page.defects.is_empty(), "{page}");
            types.insert(page.page_type);
        }
    }
    assert!(["bitmap", "inner", "leaf", "overflow"].iter().all(|name| types.contains(*name)), "{types:?}");
    let behind = inspect::page_of_heap(&options, PageId::new(report.space.pages)).unwrap_err();
    assert!(behind.to_string().contains("has 376 pages"), "{behind}");
    assert!(std::fs::read(&path).unwrap() == before, "nothing was changed");
}

#[test]
fn what_a_kill_leaves_is_in_the_journals() {
    let memory = SimMemory::new(4 * MIB, Domain::VolatileCache);
    let sim = HeapOptions::new(Source::Simulated(memory.clone()), 4 * MIB, Domain::VolatileCache);
    let db = Db::open_on(Arc::new(SimDisk::new(1)), options(sim.clone())).unwrap();
    let table = db.create_table("t").unwrap();
    let mut open = db.begin();
    for number in 0..3_u32 {
        open.put(&table, &number.to_be_bytes(), &[1; 100]).unwrap();
    }
    let image = memory.crash_image(Survivors::Nothing, None);
    let report = inspect::heap(&HeapOptions { source: Source::Simulated(image), ..sim }).unwrap();
    let text = report.to_string();
    assert_eq!(report.state, "in use", "{text}");
    let [journal] = report.journals.iter().filter(|journal| !journal.is_system).collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    let records = journal.records.as_ref().unwrap();
    assert_eq!((journal.state, records.txn, records.count, records.blocks), ("active", open.id(), 3, 1), "{text}");
    assert_eq!((records.kind.as_str(), records.pages.len()), ("update", 1), "{text}");
    assert!(records.bytes.is_multiple_of(64) && records.pages[0].1 > 0, "{text}");
    assert!(text.contains("1 active") && text.contains("3 records of"), "{text}");
    open.commit().unwrap();
}

/// Between the barriers of the paper, a crash leaves a valid page log.
#[test]
fn a_valid_page_log_is_shown() {
    let mut seen = 0;
    for at in 0..200 {
        let memory = SimMemory::new(4 * MIB, Domain::DurableCache);
        let sim = HeapOptions::new(Source::Simulated(memory.clone()), 4 * MIB, Domain::DurableCache);
        let sim = HeapOptions { barriers: Barriers::Paper, ..sim };
        let db = Db::open_on(Arc::new(SimDisk::new(1)), options(sim.clone())).unwrap();
        let table = db.create_table("t").unwrap();
        memory.crash_at(memory.operations() + at);
        let mut open = db.begin();
        open.put(&table, b"key", b"value").unwrap();
        if !memory.is_off() {
            break;
        }
        let image = memory.crash_image(Survivors::Everything, None);
        let report = inspect::heap(&HeapOptions { source: Source::Simulated(image), ..sim }).unwrap();
        let text = report.to_string();
        assert!(report.problems.is_empty() && report.page_logs.len() <= 1, "{text}");
        let Some(log) = report.page_logs.first() else { continue };
        seen += 1;
        let [(page, lines)] = log.pages.as_ref().unwrap()[..] else { panic!("{text}") };
        assert!(text.contains("1 valid page logs") && text.contains(&format!("{page} ({lines} lines)")), "{text}");
        // The undo entry is there, and names the same page without lines.
        let entries = report.journals.iter().filter(|journal| !journal.is_system);
        let records: Vec<_> = entries.filter_map(|journal| journal.records.as_ref()).collect();
        assert!(matches!(&records[..], [records] if records.pages == [(page, 0)]), "{text}");
    }
    assert!(seen >= 4, "{seen}");
}

#[test]
fn what_needs_a_log_says_what_to_use_instead() {
    let home = tempfile::tempdir().unwrap();
    let (dir, _) = database(home.path());
    assert_eq!(inspect::scheme(&*disk(&dir)).unwrap(), "in-place");
    let refused = inspect::log(disk(&dir), None).unwrap_err();
    let words = ["`in-place` has no log", "inspect heap"];
    assert!(words.iter().all(|words| refused.to_string().contains(words)), "{refused}");
    let report = inspect::checkpoint(disk(&dir)).unwrap();
    let text = report.to_string();
    assert_eq!(report.current().unwrap().scheme, "in-place");
    assert!(words.iter().all(|words| text.contains(words)) && !text.contains("redo"), "{text}");
    assert!(text.contains("closed cleanly") && text.contains("scheme: in-place"), "{text}");
}

#[test]
fn what_is_no_heap_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("file");
    let missing = inspect::heap(&in_file(&path)).unwrap_err();
    assert!(matches!(&missing, Error::NotADatabase { .. }), "{missing}");
    assert!(!path.exists());
    std::fs::write(&path, b"short").unwrap();
    let short = inspect::heap(&in_file(&path)).unwrap_err();
    assert!(matches!(&short, Error::NotADatabase { .. }) && short.to_string().contains("5 bytes"), "{short}");
    std::fs::write(&path, vec![5; 1 << 20]).unwrap();
    let foreign = inspect::heap(&in_file(&path)).unwrap_err();
    assert!(matches!(&foreign, Error::Corrupt { .. }) && foreign.to_string().contains("header of a heap"), "{foreign}");
    assert_eq!(std::fs::read(&path).unwrap(), vec![5; 1 << 20]);
    let anonymous = HeapOptions::new(Source::Anonymous, MIB, Domain::VolatileCache);
    assert!(inspect::heap(&anonymous).is_err());
}

#[test]
fn a_heap_in_use_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let (dir, heap) = database(home.path());
    let db = Db::open(dir, options(heap.clone())).unwrap();
    assert!(matches!(inspect::heap(&heap), Err(Error::AlreadyOpen { .. })));
    assert!(matches!(inspect::page_of_heap(&heap, PageId::new(1)), Err(Error::AlreadyOpen { .. })));
    db.close().unwrap();
}

#[test]
fn damage_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let (_, heap) = database(home.path());
    let path = home.path().join("heap");
    let healthy = std::fs::read(&path).unwrap();
    let damaged = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = healthy.clone();
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        inspect::heap(&heap).unwrap()
    };
    let pages = 17 * (64 << 10);
    for (change, words) in [
        (&(|bytes: &mut Vec<u8>| bytes[20] ^= 1) as &dyn Fn(&mut Vec<u8>), "header fails its checksum"),
        (&|bytes| bytes[192] = 99, "the unknown state 99"),
        (&|bytes| bytes[512..520].fill(0xff), "too short for 16 journal blocks"),
        (&|bytes| bytes.truncate(2 << 20), "too short for 16 journal blocks"),
        (&|bytes| bytes.truncate(128 << 10), "too short for 16 journal blocks"),
        (&|bytes| bytes[448..456].fill(0xff), "groups of pages"),
        (&|bytes| bytes[pages + 8192..pages + 16384].fill(0), "bitmap page 1 is lost: the page is blank"),
        (&|bytes| bytes[pages + 16000] = 0xff, "behind the end of the heap"),
    ] {
        let report = damaged(change);
        assert!(report.to_string().contains(words), "no `{words}` in {report}");
        assert!(report.problems.iter().any(|problem| problem.contains(words)), "{report}");
    }
}

#[test]
fn garbage_never_panics() {
    let home = tempfile::tempdir().unwrap();
    let (_, heap) = database(home.path());
    let path = home.path().join("heap");
    let healthy = std::fs::read(&path).unwrap();
    let mut random = SmallRng::seed_from_u64(3);
    for round in 0..60 {
        let mut bytes = healthy.clone();
        // Anywhere but in the part under the checksum, and often in the heads of journals.
        for _ in 0..1 + round {
            let at = match random.random_range(0..3) {
                0 => 192 + 64 * random.random_range(0..6),
                1 => (1 + random.random_range(0..16)) * (64 << 10) + random.random_range(0..128),
                _ => random.random_range(64..bytes.len() - 64),
            };
            random.fill_bytes(&mut bytes[at..at + 16]);
        }
        // Whatever a journal's state, its records are looked for.
        for block in 0..16 {
            let at = (1 + block) * (64 << 10);
            bytes[at] = bytes[at] & !3 | random.random_range(0..4);
        }
        bytes.truncate(bytes.len() - random.random_range(0..3 << 20) * (round % 2));
        std::fs::write(&path, bytes).unwrap();
        assert!(!inspect::heap(&heap).unwrap().to_string().is_empty());
        for page in (0..400).step_by(7) {
            if let Ok(page) = inspect::page_of_heap(&heap, PageId::new(page)) {
                assert!(!page.to_string().is_empty());
            }
        }
    }
}
