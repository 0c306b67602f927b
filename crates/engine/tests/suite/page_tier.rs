//! A page tier, from outside: it is remembered, survives crashes, is refused where it makes no
//! sense, and can be removed.

use std::sync::Arc;

use duramen::pmem::{Domain, SimMemory, Source, Survive};
use duramen::{Db, Error, Options, TierMemory, TierOptions, TierPlace, inspect};
use duramen_io::{AlignedBuf, CrashChoice, Disk, OpenMode, SimDisk};
use duramen_types::{BLOCK_SIZE, PAGE_SIZE, PageId};

const ROWS: u32 = 3_000;

fn tier(slots: usize) -> TierOptions {
    TierOptions::at_home((BLOCK_SIZE + slots * PAGE_SIZE) as u64)
}

fn options(page_tier: Option<TierOptions>) -> Options {
    let pool_bytes = Options::MIN_POOL_PAGES * PAGE_SIZE;
    Options {
        pool_bytes,
        page_tier,
        checkpoint_bytes: Some(256 << 10),
        log_segment_bytes: 256 << 10,
        ..Options::default()
    }
}

fn open(disk: &SimDisk, page_tier: Option<TierOptions>) -> duramen::Result<Db> {
    Db::open_on(Arc::new(disk.clone()) as Arc<dyn Disk>, options(page_tier))
}

fn write(db: &Db, round: u32) {
    let table = db.table("t").unwrap();
    for first in (0..ROWS).step_by(100) {
        let rows = first..first + 100;
        db.run(|txn| rows.clone().try_for_each(|row| txn.put(&table, &row.to_be_bytes(), &[round as u8; 300])))
            .unwrap();
    }
}

/// Returns the rounds of the transactions that wrote the rows.
#[track_caller]
fn rounds(db: &Db) -> Vec<u8> {
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    let rows: Vec<_> = txn.scan(&table, ..).map(|row| row.unwrap().1).collect();
    txn.commit().unwrap();
    let of_one = |rows: &[Vec<u8>]| {
        assert!(rows.iter().all(|row| *row == [rows[0][0]; 300]), "a transaction is there as a whole");
        rows[0][0]
    };
    rows.chunks(100).map(of_one).collect()
}

#[track_caller]
fn check(db: &Db, round: u32) {
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    let rows: Vec<_> = txn.scan(&table, ..).map(|row| row.unwrap()).collect();
    assert_eq!(rows.len(), ROWS as usize);
    assert!(rows.iter().all(|(_, value)| **value == [round as u8; 300]));
    txn.commit().unwrap();
    assert!(db.check().unwrap().problems.is_empty());
}

#[test]
fn a_database_remembers_its_tier_and_can_do_without_it_again() {
    let disk = SimDisk::new(1);
    let db = open(&disk, None).unwrap();
    write(&db, 1);
    assert_eq!(db.metrics().page_tier, None);
    db.close().unwrap();

    let db = open(&disk, Some(tier(40))).unwrap();
    write(&db, 2);
    let metrics = db.metrics().page_tier.unwrap();
    assert!(metrics.written > metrics.written_back && metrics.written_back > 0, "{metrics:?}");
    db.close().unwrap();

    let db = open(&disk, None).unwrap();
    assert_eq!(db.metrics().page_tier.unwrap().slots, 40);
    check(&db, 2);
    assert!(db.metrics().page_tier.unwrap().hits > 0);
    assert!(matches!(open(&disk, None), Err(Error::AlreadyOpen { .. })));
    db.close().unwrap();
    let changed = (1..disk.durable_bytes("data").unwrap().len() / PAGE_SIZE).filter(|page| {
        let report = inspect::page(Arc::new(disk.clone()), PageId::new(*page as u64)).unwrap();
        let in_data = &disk.durable_bytes("data").unwrap()[page * PAGE_SIZE + 8..][..8];
        report.gsn.get().to_le_bytes() != *in_data
    });
    assert!(changed.count() > 0, "inspect shows pages as the tier has them");

    let db = open(&disk, None).unwrap();
    assert!(db.drain_page_tier().unwrap() && db.metrics().page_tier.unwrap().pages == 0);
    assert!(!db.drain_page_tier().unwrap(), "only once");
    write(&db, 3);
    db.close().unwrap();
    assert!(!disk.exists("tier").unwrap() && !disk.exists("tier-pages").unwrap());
    let db = open(&disk, None).unwrap();
    assert!(!db.drain_page_tier().unwrap());
    check(&db, 3);
}

/// A crash while the tier is drained, and after.
#[test]
fn a_tier_is_drained_or_still_there() {
    let start = SimDisk::new(2);
    let db = open(&start, Some(tier(60))).unwrap();
    write(&db, 1);
    db.close().unwrap();
    let mut outcomes = [0, 0];
    for operations in (0..).step_by(3) {
        let disk = start.image();
        let db = open(&disk, None).unwrap();
        disk.crash_at(disk.operations() + operations);
        let drained = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            db.drain_page_tier().unwrap();
            write(&db, 2);
        }));
        drop(db);
        for choice in [CrashChoice::Nothing, CrashChoice::Everything, CrashChoice::Random(operations)] {
            let image = disk.crash_image(&choice);
            let db = open(&image, None).unwrap();
            outcomes[usize::from(db.metrics().page_tier.is_some())] += 1;
            assert!(db.check().unwrap().problems.is_empty());
            // The transactions that committed, whole.
            let of_transactions = rounds(&db);
            assert_eq!(of_transactions.len(), ROWS as usize / 100);
            assert!(of_transactions.is_sorted_by(|one, next| one >= next), "{of_transactions:?}");
            assert!(of_transactions.iter().all(|round| (1..=2).contains(round)), "{of_transactions:?}");
            if drained.is_ok() {
                check(&db, 2);
            }
        }
        if drained.is_ok() || outcomes[0] > 30 {
            break;
        }
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let disk = SimDisk::new(3);
    let refused = |result: duramen::Result<Db>| match result {
        Err(Error::InvalidOption { option: "page_tier", reason }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(refused(open(&disk, Some(tier(15)))).contains("at least"));
    let relative = TierOptions::in_directory("here", tier(20).bytes);
    assert!(refused(open(&disk, Some(relative))).contains("absolute"));
    let db = open(&disk, Some(tier(20))).unwrap();
    write(&db, 1);
    db.close().unwrap();
    assert!(refused(open(&disk, Some(tier(19)))).contains("drain"));
    let elsewhere = TierOptions::in_directory("/nowhere", tier(20).bytes);
    assert!(refused(open(&disk, Some(elsewhere))).contains("drain"));
    let db = open(&disk, Some(tier(30))).unwrap();
    assert_eq!(db.metrics().page_tier.unwrap().slots, 30);
    check(&db, 1);
    db.close().unwrap();
    disk.remove("tier-pages").unwrap();
    let error = open(&disk, None).unwrap_err().to_string();
    assert!(error.contains("tier-pages") && error.contains("missing"), "{error}");
}

#[test]
fn a_tier_may_be_in_another_directory() {
    let (home, fast) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let elsewhere = TierOptions::in_directory(fast.path(), tier(100).bytes);
    let db = Db::open(home.path(), options(Some(elsewhere))).unwrap();
    write(&db, 1);
    db.close().unwrap();
    let files = || {
        let names =
            std::fs::read_dir(fast.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains("tier")).collect::<Vec<_>>()
    };
    assert_eq!(files().len(), 1, "{:?}", files());
    let db = Db::open(home.path(), options(None)).unwrap();
    check(&db, 1);
    db.drain_page_tier().unwrap();
    assert!(files().is_empty());
    db.close().unwrap();
    check(&Db::open(home.path(), options(None)).unwrap(), 1);
}

/// A copy of the tier from an earlier generation, and the tier of another database.
#[test]
fn another_tier_is_refused() {
    let disk = SimDisk::new(4);
    let db = open(&disk, Some(tier(50))).unwrap();
    write(&db, 1);
    db.close().unwrap();
    let earlier = disk.image();
    let db = open(&disk, None).unwrap();
    write(&db, 2);
    db.close().unwrap();
    let foreign = SimDisk::new(5);
    open(&foreign, Some(tier(50))).unwrap().close().unwrap();
    for (other, reason) in [(&earlier, "older copy"), (&foreign, "another database")] {
        let image = disk.image();
        let bytes = other.durable_bytes("tier-pages").unwrap();
        image.remove("tier-pages").unwrap();
        let file = image.open("tier-pages", duramen_io::OpenMode::CreateNew).unwrap();
        let mut buffer = duramen_io::AlignedBuf::zeroed(bytes.len());
        buffer.copy_from_slice(&bytes);
        file.write_durable(&[&buffer], 0).unwrap();
        image.sync_directory("").unwrap();
        match open(&image, None) {
            Err(Error::Corrupt { file, reason: found, .. }) => {
                assert!(file.ends_with("tier-pages") && found.contains(reason), "{file}: {found}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The data file grows, its pages are durable in the tier only, and the power goes off: the file is
/// shorter than its pages reach.
#[test]
fn a_backup_has_pages_whose_space_in_the_data_file_was_lost() {
    let disk = SimDisk::new(6);
    let db = open(&disk, Some(tier(1_000))).unwrap();
    write(&db, 1);
    db.checkpoint().unwrap();
    assert_eq!(db.metrics().page_tier.unwrap().written_back, 0);
    let image = disk.crash_image(&CrashChoice::Nothing);
    assert!(image.durable_bytes("data").unwrap().len() < disk.image().durable_bytes("data").unwrap().len());

    let db = open(&image, None).unwrap();
    let copy = SimDisk::new(7);
    db.backup_to(&copy, |_| ()).unwrap();
    let restored = SimDisk::new(8);
    duramen::Restore::from_disk(Arc::new(copy)).into_disk(&restored, |_| ()).unwrap();
    check(&open(&restored, None).unwrap(), 1);
    check(&db, 1);
}

#[test]
fn a_database_without_its_tier_is_refused() {
    let disk = SimDisk::new(9);
    let db = open(&disk, Some(tier(50))).unwrap();
    write(&db, 1);
    db.close().unwrap();
    disk.remove("tier").unwrap();
    for tier in [None, Some(tier(50))] {
        let error = open(&disk, tier).unwrap_err().to_string();
        assert!(error.contains("the file `tier`") && error.contains("is missing"), "{error}");
    }
}

#[test]
fn a_tier_that_finds_no_space_leaves_nothing_behind() {
    let disk = SimDisk::new(10);
    let db = open(&disk, None).unwrap();
    write(&db, 1);
    db.close().unwrap();
    disk.set_capacity(disk.used() + (100 << 10));
    let error = open(&disk, Some(tier(1_000))).unwrap_err();
    assert!(error.to_string().contains("space"), "{error}");
    assert!(!disk.exists("tier").unwrap() && !disk.exists("tier-pages").unwrap());
    disk.set_capacity(u64::MAX);
    check(&open(&disk, None).unwrap(), 1);
}

/// A file in the place of a new tier is replaced only if it is what a crash leaves.
#[test]
fn a_file_with_an_unknown_header_is_not_replaced() {
    let disk = SimDisk::new(11);
    open(&disk, None).unwrap().close().unwrap();
    let file = disk.open("tier-pages", OpenMode::CreateNew).unwrap();
    file.set_len(8192).unwrap();
    let mut block = AlignedBuf::zeroed(4096);
    block[..8].copy_from_slice(b"NEWERONE");
    file.write_at(&[&block], 0).unwrap();
    let error = open(&disk, Some(tier(20))).unwrap_err();
    assert!(matches!(&error, Error::InvalidOption { option: "page_tier", .. }), "{error}");
    assert!(error.to_string().contains("in the way"), "{error}");
    block.fill(0);
    file.write_at(&[&block], 0).unwrap();
    drop(file);
    let db = open(&disk, Some(tier(20))).unwrap();
    write(&db, 1);
    check(&db, 1);
}

fn copy_directory(from: &std::path::Path, to: &std::path::Path) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy_directory(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// A copy of a database's directory neither shares a tier with the database nor destroys it.
#[test]
fn a_copied_directory_has_no_tier() {
    let [home, earlier, copy, fast] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let elsewhere = || Some(TierOptions::in_directory(fast.path(), tier(100).bytes));
    let db = Db::open(home.path(), options(None)).unwrap();
    write(&db, 1);
    db.close().unwrap();
    copy_directory(home.path(), earlier.path());
    let db = Db::open(home.path(), options(elsewhere())).unwrap();
    write(&db, 2);
    db.close().unwrap();
    copy_directory(home.path(), copy.path());

    let refused = Db::open(earlier.path(), options(elsewhere())).unwrap_err();
    assert!(refused.to_string().contains("copied from"), "{refused}");
    Db::open(home.path(), options(None)).unwrap().close().unwrap();
    let refused = Db::open(copy.path(), options(None)).unwrap_err();
    assert!(refused.to_string().contains("older copy"), "{refused}");
    check(&Db::open(home.path(), options(None)).unwrap(), 2);

    fast.close().unwrap();
    let refused = Db::open(home.path(), options(None)).unwrap_err();
    assert!(refused.to_string().contains("directory"), "{refused}");
}

/// A tier in a file of memory that survives the process.
fn in_memory(path: &std::path::Path, slots: usize) -> TierOptions {
    let memory = TierMemory::new(Source::File(path.to_owned()), Domain::VolatileCache);
    TierOptions { place: TierPlace::Memory(TierMemory { survive: Survive::Process, ..memory }), ..tier(slots) }
}

/// As with a file: the database remembers the tier with its domain and what it survives, and
/// removes it.
#[test]
fn a_tier_may_be_in_persistent_memory() {
    let (home, fast) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let memory = fast.path().join("memory");
    let db = Db::open(home.path(), options(Some(in_memory(&memory, 50)))).unwrap();
    assert!(db.log_shortfall().is_some(), "the memory does not survive a power cut");
    write(&db, 1);
    let metrics = db.metrics().page_tier.unwrap();
    assert!(metrics.written_back > 0 && metrics.bytes_written > metrics.written * PAGE_SIZE as u64, "{metrics:?}");
    db.close().unwrap();
    let db = Db::open(home.path(), options(None)).unwrap();
    check(&db, 1);
    db.close().unwrap();
    let db = Db::open(home.path(), options(Some(in_memory(&memory, 90)))).unwrap();
    assert_eq!(db.metrics().page_tier.unwrap().slots, 90);
    write(&db, 2);
    drop(db);
    let db = Db::open(home.path(), options(None)).unwrap();
    check(&db, 2);
    assert!(db.drain_page_tier().unwrap() && !memory.exists());
    db.close().unwrap();
    check(&Db::open(home.path(), options(None)).unwrap(), 2);
}

/// Recovery writes again what a failed sync may have lost, though it can be read; memory loses
/// nothing that was found in it when it was opened.
#[test]
fn recovery_writes_no_page_again_that_it_found_in_memory() {
    let visited_and_dirty = |is_in_memory: bool| {
        let (home, fast) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let slots = 1_000;
        let tier = if is_in_memory { in_memory(&fast.path().join("memory"), slots) } else { tier(slots) };
        // No checkpoint comes between: all pages are in the log, and most of them in the tier.
        let options = Options { checkpoint_bytes: Some(64 << 20), ..options(Some(tier)) };
        let db = Db::open(home.path(), options.clone()).unwrap();
        (1..4).for_each(|round| write(&db, round));
        drop(db);
        let db = Db::open(home.path(), options).unwrap();
        check(&db, 3);
        let metrics = db.metrics();
        (metrics.recovery.pages, metrics.page_tier.unwrap().written + metrics.dirty_pages)
    };
    let (visited, written) = visited_and_dirty(false);
    assert!(visited > 100 && written >= visited, "{visited} {written}");
    let (visited, written) = visited_and_dirty(true);
    assert!(visited > 100 && written < visited / 2, "{visited} {written}");
}

/// Regression: a power cut in the first writing of a header to memory left words of it, which were
/// taken for something of another's.
#[test]
fn a_header_that_was_torn_when_it_was_made_is_written_again() {
    let (home, fast) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let memory = fast.path().join("memory");
    for first in [b"DURATIER", &[0; 8]] {
        let torn = [&first[..], &[0; 16], &[7; 32], &[0; (16 << 10) - 56]].concat();
        std::fs::write(&memory, torn).unwrap();
        let home = home.path().join(format!("{}", first[0]));
        let db = Db::open(&home, options(Some(in_memory(&memory, 40)))).unwrap();
        write(&db, 1);
        drop(db);
        check(&Db::open(&home, options(None)).unwrap(), 1);
    }
}

#[test]
fn memory_that_makes_no_sense_is_refused() {
    let (home, fast) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let memory = fast.path().join("memory");
    let reason = |home: &std::path::Path, tier: TierOptions| match Db::open(home, options(Some(tier))) {
        Err(Error::InvalidOption { option: "page_tier", reason }) => reason,
        other => panic!("{other:?}"),
    };
    let source = || Source::File(memory.clone());
    let durable = TierOptions::in_memory(source(), Domain::VolatileCache, tier(40).bytes);
    assert!(reason(home.path(), durable).contains("a power cut"));
    let anonymous = TierOptions::in_memory(Source::Anonymous, Domain::VolatileCache, tier(40).bytes);
    assert!(reason(home.path(), anonymous).contains("anonymous"));
    assert!(reason(home.path(), in_memory("memory".as_ref(), 40)).contains("absolute"));
    assert!(reason(home.path(), in_memory(&home.path().join("data"), 40)).contains("file of the database"));
    assert!(reason(home.path(), in_memory(&fast.path().join("none/memory"), 40)).contains("create it"));
    assert!(reason(home.path(), in_memory(fast.path(), 40)).contains("is not a file"));
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "nothing was made");
    assert!(!memory.exists());
    std::fs::write(&memory, vec![7; 16 << 10]).unwrap();
    assert!(reason(home.path(), in_memory(&memory, 40)).contains("in the way"));
    // Behind a torn header there is nothing.
    let torn = [&b"DURATIER"[..], &[7; 100], &[0; (16 << 10) - 108]].concat();
    std::fs::write(&memory, torn).unwrap();
    assert!(reason(home.path(), in_memory(&memory, 40)).contains("in the way"));
    std::fs::remove_file(&memory).unwrap();
    let db = Db::open(home.path(), options(Some(in_memory(&memory, 40)))).unwrap();
    write(&db, 1);
    db.close().unwrap();
    assert!(reason(home.path(), tier(40)).contains("drain"));
    assert!(reason(home.path(), in_memory(&memory, 39)).contains("cannot shrink"));
    let other = tempfile::tempdir().unwrap();
    assert!(reason(other.path(), in_memory(&memory, 40)).contains("pages of this database"));
    std::fs::rename(&memory, fast.path().join("elsewhere")).unwrap();
    let missing = Db::open(home.path(), options(None)).unwrap_err();
    assert!(missing.to_string().contains("missing"), "{missing}");
}

/// A drained tier whose memory stays is attached again: its pages are not taken for current ones.
#[test]
fn memory_without_a_name_is_named_by_the_options() {
    let disk = SimDisk::new(12);
    let memory = SimMemory::new((BLOCK_SIZE + 60 * PAGE_SIZE) as u64, Domain::DurableCache);
    let named = || TierOptions::in_memory(Source::Simulated(memory.clone()), Domain::DurableCache, tier(60).bytes);
    let db = open(&disk, Some(named())).unwrap();
    write(&db, 1);
    db.close().unwrap();
    let refused = open(&disk, None).unwrap_err();
    assert!(refused.to_string().contains("anonymous memory"), "{refused}");
    let db = open(&disk, Some(named())).unwrap();
    check(&db, 1);
    assert!(db.drain_page_tier().unwrap());
    write(&db, 2);
    db.close().unwrap();
    let db = open(&disk, Some(named())).unwrap();
    assert_eq!(db.metrics().page_tier.unwrap().pages, 0);
    check(&db, 2);
}
