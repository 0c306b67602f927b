//! Errors of failed openings: each says that the opening failed, why, and what to do. A failed
//! opening does no harm.
#![cfg(not(any(duramen_loom, duramen_machine)))]

use std::sync::Arc;

use duramen::pmem::{Domain, SimMemory, Source};
use duramen::{Archive, Db, Error, HeapOptions, LogId, Options, Restore, Scheme, inspect};
use duramen_io::{Disk, Fault, OpenMode, SimDisk};
use duramen_types::{Lsn, PageId};

use crate::common::small;

fn open(disk: &SimDisk) -> Result<Db, Error> {
    Db::open_on(Arc::new(disk.clone()), small())
}

/// Makes a database that crashed with two rows in it.
fn crashed() -> SimDisk {
    let disk = SimDisk::new(1);
    let db = open(&disk).unwrap();
    let table = db.create_table("t").unwrap();
    for key in [b"one", b"two"] {
        let mut txn = db.begin();
        txn.put(&table, key, b"value").unwrap();
        txn.commit().unwrap();
    }
    drop(db);
    disk.image()
}

fn assert_says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "no `{word}` in {text}");
    }
    for wrong in ["out of service", "transaction again", "close and reopen", "``"] {
        assert!(!text.contains(wrong), "`{wrong}` in {text}");
    }
}

// The error of an opening that met a broken disk said that the database was out of service until it
// was reopened. The error of an opening that met a full disk said that the transaction was to be
// run again.
#[test]
fn an_opening_that_fails_says_so() {
    let whole = crashed();
    let before = whole.operations();
    drop(open(&whole).unwrap());
    let operations = whole.operations() - before;
    assert!(operations > 20);
    let mut failed = 0;
    for (fault, reason) in [(Fault::Eio, "simulated"), (Fault::Enospc, "no space")] {
        for at in (0..operations).step_by(3) {
            let disk = crashed();
            disk.fail_at(disk.operations() + at, fault, true);
            let Err(error) = open(&disk) else { continue };
            assert!(matches!(error, Error::OpenFailed { .. }), "{fault:?} at {at}: {error:?}");
            assert_says(
                &error,
                &["cannot open the database", &whole_name(), "correct the cause and open the database again"],
            );
            failed += usize::from(error.to_string().contains(reason));
            disk.clear_faults();
            let db = open(&disk).unwrap();
            assert!(db.check().unwrap().is_ok());
            assert_eq!(db.list().unwrap(), ["t"]);
        }
    }
    assert!(failed > 10, "{failed}");
}

fn whole_name() -> String {
    SimDisk::new(1).location()
}

#[test]
fn inspection_that_fails_says_so() {
    let disk = crashed();
    let broken = || {
        disk.clear_faults();
        disk.fail_at(disk.operations(), Fault::Eio, true);
        Arc::new(disk.clone())
    };
    let words = ["cannot open the database", "correct the cause"];
    assert_says(&inspect::page(broken(), PageId::new(2)).unwrap_err(), &words);
    assert_says(&inspect::checkpoint(broken()).unwrap_err(), &words);
    assert_says(&inspect::log_of(broken(), LogId::ZERO, None).unwrap_err(), &words);
    disk.clear_faults();
    let refused = inspect::log(Arc::new(disk.clone()), Some(Lsn::new(1))).unwrap_err();
    assert!(matches!(refused, Error::InvalidOption { option: "from", .. }), "{refused}");
}

// The error of the operating system named the directory as ``.
#[test]
fn a_path_that_names_nothing_is_refused() {
    let db = open(&SimDisk::new(1)).unwrap();
    let refusals = [
        Db::open("", small()).map(drop),
        db.backup("", |_| {}).map(drop),
        Restore::from("").map(drop),
        Restore::from_disk(Arc::new(SimDisk::new(1))).archive("").map(drop),
        Restore::from_disk(Arc::new(SimDisk::new(1))).log("").map(drop),
        Restore::from_disk(Arc::new(SimDisk::new(1))).into_directory("", |_| {}).map(drop),
    ];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        assert!(matches!(error, Error::InvalidOption { option: "path", .. }), "{error:?}");
        assert_says(&error, &["empty", "name a directory"]);
    }
    assert!(Archive::at("").unwrap_err().to_string().contains("archive"));
}

// A directory in which there was nothing but the files of a second log counted as empty. If the
// database that was then created in it was interrupted, the next opening removed those files.
#[test]
fn a_directory_of_another_log_is_no_place_for_a_new_database() {
    let disk = SimDisk::new(1);
    disk.create_directory("log1").unwrap();
    disk.open("log1/diary", OpenMode::CreateNew).unwrap();
    let before = disk.list("").unwrap();
    for _ in 0..2 {
        let error = open(&disk).unwrap_err();
        assert!(matches!(error, Error::NotADatabase { .. }), "{error:?}");
        assert_says(&error, &["`log1`", "`control`", "choose an empty or new directory"]);
        assert_eq!((disk.list("").unwrap(), disk.list("log1").unwrap()), (before.clone(), vec!["diary".to_owned()]));
    }
}

// The control file was written, perhaps in a newer version, before the scheme was compared.
#[test]
fn an_opening_with_another_scheme_writes_nothing() {
    let disk = crashed();
    let written = || {
        let counters = disk.counters();
        (counters.writes, counters.syncs)
    };
    let before = written();
    let memory = SimMemory::new(4 << 20, Domain::DurableCache);
    let heap = HeapOptions::new(Source::Simulated(memory), 4 << 20, Domain::DurableCache);
    let options = Options { scheme: Scheme::InPlace(heap), pool_bytes: 1 << 20, ..Options::default() };
    let refused = Db::open_on(Arc::new(disk.clone()), options);
    assert!(matches!(refused, Err(Error::InvalidOption { option: "scheme", .. })), "{refused:?}");
    assert_eq!(written(), before, "writes and syncs");
}

// Archived segments lay among the database's own files.
#[test]
fn an_archive_lies_beside_the_database() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    let with = |archive: &std::path::Path| Options { archive: Some(Archive::at(archive).unwrap()), ..small() };
    for archive in [dir.join("archive"), dir.clone(), root.path().to_owned()] {
        let error = Db::open(&dir, with(&archive)).unwrap_err();
        assert!(matches!(error, Error::InvalidOption { option: "archive", .. }), "{error:?}");
        assert_says(&error, &[archive.to_str().unwrap(), dir.to_str().unwrap(), "choose a directory outside it"]);
        assert!(!dir.exists(), "nothing has been made");
    }
    let db = Db::open(&dir, with(&root.path().join("archive"))).unwrap();
    let other = Db::open(root.path().join("other"), with(&root.path().join("archive"))).unwrap_err();
    assert!(matches!(other, Error::AlreadyOpen { .. }), "{other:?}");
    assert_says(&other, &["other", "the archive", root.path().join("archive").to_str().unwrap()]);
    db.close().unwrap();
    assert!(root.path().join("archive").is_dir());
}
