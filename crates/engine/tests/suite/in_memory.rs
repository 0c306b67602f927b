//! Databases in memory, and tables that are emptied.

use duramen::pmem::{Domain, Source};
use duramen::{Archive, Db, Error, HeapOptions, LogDevice, NvmOptions, Options, Scheme, TierOptions};
use duramen_io::MemoryDisk;
use duramen_sync::Arc;

#[test]
fn it_behaves_as_one_on_disk() {
    let disk = MemoryDisk::empty();
    let open = || Db::open_on(Arc::new(disk.clone()), Options::small());
    let db = open().unwrap();
    let table = db.table("t").unwrap();
    for key in 0..20_000_u32 {
        let mut txn = db.begin();
        txn.put(&table, &key.to_be_bytes(), &[key as u8; 100]).unwrap();
        assert!(txn.commit_async().wait().is_ok());
    }
    assert!(matches!(open(), Err(Error::AlreadyOpen { .. })));
    assert!(db.check().unwrap().is_ok());
    drop((db, table));
    let db = open().unwrap();
    assert!(db.metrics().recovery.records > 0, "it was not closed");
    let table = db.open_table("t").unwrap();
    assert_eq!(db.run(|txn| Ok(txn.scan(&table, ..).count())).unwrap(), 20_000);
    db.close().unwrap();
}

#[test]
fn what_needs_something_outside_is_refused() {
    let heap = HeapOptions::new(Source::Anonymous, 16 << 20, Domain::DurableCache);
    let ring = NvmOptions::new(Source::Anonymous, Domain::DurableCache);
    for (options, name) in [
        (Options { scheme: Scheme::InPlace(heap), ..Options::small() }, "scheme"),
        (Options { log_device: LogDevice::Nvm(ring), ..Options::small() }, "log_device"),
        (Options { archive: Some(Archive::at("/nowhere").unwrap()), ..Options::small() }, "archive"),
        (Options { page_tier: Some(TierOptions::in_directory("/tmp", 1 << 20)), ..Options::small() }, "page_tier"),
    ] {
        let error = Db::in_memory(options).unwrap_err();
        assert!(matches!(error, Error::InvalidOption { option, .. } if option == name), "{error}");
    }
}

/// What is done in memory is lost, so it must not be in the tier or the archive of the database.
#[test]
fn a_database_over_a_directory_changes_nothing_outside() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    let over = |name: &str| Db::open_on(Arc::new(MemoryDisk::over(&path(name)).unwrap()), Options::small());
    std::fs::create_dir(path("fast")).unwrap();
    let tiered = Options { page_tier: Some(TierOptions::in_directory(path("fast"), 1 << 20)), ..Options::small() };
    Db::open(path("tiered"), tiered).unwrap().close().unwrap();
    assert!(matches!(over("tiered"), Err(Error::InvalidOption { option: "page_tier", .. })));
    Db::open(path("tiered"), Options::small()).unwrap().close().unwrap();

    let archived = Options { archive: Some(Archive::at(path("archive")).unwrap()), ..Options::small() };
    let db = Db::open(path("archived"), archived).unwrap();
    let table = db.create_table("t").unwrap();
    db.run(|txn| txn.put(&table, b"key", b"value")).unwrap();
    drop((db, table));
    let db = over("archived").unwrap();
    let table = db.open_table("t").unwrap();
    for key in 0..40_u8 {
        db.run(|txn| txn.put(&table, &[key], &[key; 100_000])).unwrap();
    }
    db.close().unwrap();
    assert_eq!(std::fs::read_dir(path("archive").join("log")).unwrap().count(), 0);
    let db = Db::open(path("archived"), Options::small()).unwrap();
    let table = db.open_table("t").unwrap();
    assert_eq!(db.run(|txn| Ok(txn.scan(&table, ..).count())).unwrap(), 1);
}

#[test]
fn a_truncated_table_is_empty_and_its_pages_are_free() {
    let db = Db::in_memory(Options::small()).unwrap();
    let mut before = 0;
    for round in 0..5 {
        let table = db.table("t").unwrap();
        db.run(|txn| (0..5000_u32).try_for_each(|key| txn.put(&table, &key.to_be_bytes(), &[1; 200]))).unwrap();
        let pages = db.check().unwrap().pages;
        assert!(before == 0 || pages <= before + 4, "round {round}: {pages} pages instead of {before}");
        before = pages;
        let mut user = db.begin();
        user.get(&table, b"key").unwrap();
        assert!(matches!(db.truncate_table("t"), Err(Error::TableInUse { .. })));
        drop(user);
        let empty = db.truncate_table("t").unwrap();
        assert!(matches!(db.run(|txn| txn.get(&table, b"key")), Err(Error::NoSuchTable { .. })));
        assert_eq!(db.run(|txn| txn.first(&empty)).unwrap(), None);
        db.run(|txn| txn.put(&empty, &[0; 4], b"new")).unwrap();
    }
    assert_eq!(db.list().unwrap(), ["t"]);
    assert!(matches!(db.truncate_table("other"), Err(Error::NoSuchTable { .. })));
}
