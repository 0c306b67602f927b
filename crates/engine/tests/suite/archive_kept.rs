//! A database keeps the archive that it was opened with.
#![cfg(not(duramen_loom))]

use std::fs;
use std::path::Path;

use duramen::{Archive, Db, Error, Options, Restore};

use crate::common;

fn options() -> Options {
    Options {
        log_segment_bytes: 256 << 10,
        checkpoint_bytes: Some(512 << 10),
        log_max_bytes: 4 << 20,
        ..common::small()
    }
}

fn in_archive(path: &Path) -> Options {
    Options { archive: Some(Archive::at(path).unwrap()), ..options() }
}

/// Writes some segments of log. In the end each value is [`last`].
fn write(db: &Db, round: u8) {
    let table = db.open_table("rows").or_else(|_| db.create_table("rows")).unwrap();
    for row in 0..2000_u32 {
        // An unchanged value would not be logged.
        let value = [20 * round + (row / 100) as u8; 1000];
        db.run(|txn| txn.put(&table, &(row % 100).to_be_bytes(), &value)).unwrap();
    }
}

/// Makes a database that has written a first round to its archive, and closes it.
fn archived(place: &Path, archive: &Path) {
    let db = Db::open(place, in_archive(archive)).unwrap();
    write(&db, 1);
    db.await_archive();
    db.close().unwrap();
}

fn last(round: u8) -> [u8; 1000] {
    [20 * round + 19; 1000]
}

fn refusal(outcome: Result<Db, Error>) -> String {
    match outcome {
        Err(Error::InvalidOption { option: "archive", reason }) => reason,
        other => panic!("{other:?}"),
    }
}

/// One opening without the option ended the archive: the log was recycled unarchived.
#[test]
fn an_opening_that_names_no_archive_goes_on_with_the_one_that_is_kept() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    let db = Db::open(path("db"), in_archive(&path("archive"))).unwrap();
    write(&db, 1);
    db.backup(path("backup"), |_| {}).unwrap();
    db.close().unwrap();
    for round in [2, 3] {
        let db = Db::open(path("db"), options()).unwrap();
        write(&db, round);
        db.await_archive();
        assert!(db.metrics().log.segments_archived > 3, "the log goes on to the archive");
        db.close().unwrap();
    }
    let restore = Restore::from(path("backup")).unwrap().archive(path("archive")).unwrap();
    restore.log(path("db")).unwrap().into_directory(path("restored"), |_| {}).unwrap();
    // The restored database has no archive yet.
    let db = Db::open(path("restored"), options()).unwrap();
    let table = db.open_table("rows").unwrap();
    assert!(db.begin().scan(&table, ..).all(|row| row.unwrap().1 == last(3)));
    write(&db, 4);
    assert_eq!(db.metrics().log.segments_archived, 0);
}

#[test]
fn an_archive_that_is_gone_is_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    Db::open(path("db"), in_archive(&path("archive"))).unwrap().close().unwrap();
    fs::rename(path("archive"), path("elsewhere")).unwrap();
    let reason = refusal(Db::open(path("db"), options()));
    assert!(reason.contains(path("archive").to_str().unwrap()) && reason.contains("give_up_archive"), "{reason}");
    assert!(!path("archive").exists(), "no new archive is made in its place");
    // It may be named in its new place, which is kept from then on.
    Db::open(path("db"), in_archive(&path("elsewhere"))).unwrap().close().unwrap();
    let db = Db::open(path("db"), options()).unwrap();
    write(&db, 1);
    db.await_archive();
    assert!(fs::read_dir(path("elsewhere").join("log")).unwrap().count() > 0);
}

/// An archive began in it, after a gap: for instance where a file system was not mounted.
#[test]
fn an_empty_directory_is_not_the_archive() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    let db = Db::open(path("db"), in_archive(&path("archive"))).unwrap();
    db.backup(path("backup"), |_| {}).unwrap();
    write(&db, 1);
    db.close().unwrap();
    fs::rename(path("archive"), path("unmounted")).unwrap();
    fs::create_dir(path("archive")).unwrap();
    for options in [options(), in_archive(&path("archive"))] {
        let reason = refusal(Db::open(path("db"), options));
        assert!(reason.contains("is its file system mounted?"), "{reason}");
    }
    assert_eq!(fs::read_dir(path("archive")).unwrap().count(), 0);
    let restore = Restore::from(path("backup")).unwrap().archive(path("archive")).unwrap();
    let refused = restore.into_directory(path("restored"), |_| {}).unwrap_err();
    assert!(matches!(refused, Error::NotABackup { .. }), "{refused}");
    fs::remove_dir_all(path("archive")).unwrap();
    fs::rename(path("unmounted"), path("archive")).unwrap();
    Db::open(path("db"), options()).unwrap().close().unwrap();
}

#[test]
fn an_archive_that_is_given_up_ends() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    archived(&path("db"), &path("archive"));
    let both = Options { give_up_archive: true, ..in_archive(&path("archive")) };
    assert!(matches!(Db::open(path("db"), both), Err(Error::InvalidOption { option: "give_up_archive", .. })));
    let db = Db::open(path("db"), Options { give_up_archive: true, ..options() }).unwrap();
    write(&db, 2);
    db.close().unwrap();
    let db = Db::open(path("db"), options()).unwrap();
    write(&db, 3);
    assert_eq!(db.metrics().log.segments_archived, 0);
    db.close().unwrap();
    let reason = refusal(Db::open(path("db"), in_archive(&path("archive"))));
    assert!(reason.contains("archive"), "{reason}");
    Db::open(path("db"), in_archive(&path("another"))).unwrap().close().unwrap();
}

/// The file that names the archive is checked as every other file.
#[test]
fn a_damaged_or_foreign_file_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    for name in ["one", "two"] {
        Db::open(path(name), in_archive(&path(&format!("{name}-archive")))).unwrap().close().unwrap();
    }
    let file = |name: &str| path(name).join("archive");
    let whole = fs::read(file("one")).unwrap();
    let corrupt =
        |outcome: Result<Db, Error>| matches!(outcome, Err(Error::Corrupt { file, .. }) if file.ends_with("archive"));
    for at in (0..34).chain([40]) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x41;
        fs::write(file("one"), &bytes).unwrap();
        assert!(corrupt(Db::open(path("one"), options())), "byte {at}");
    }
    fs::write(file("one"), &whole[..100]).unwrap();
    assert!(corrupt(Db::open(path("one"), options())));
    fs::copy(file("two"), file("one")).unwrap();
    assert!(corrupt(Db::open(path("one"), options())));
    // Naming the archive replaces the file.
    Db::open(path("one"), in_archive(&path("one-archive"))).unwrap().close().unwrap();
    assert_eq!(fs::read(file("one")).unwrap(), whole);
}

#[test]
fn no_database_is_created_if_its_archive_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    archived(&path("db"), &path("archive"));
    let reason = refusal(Db::open(path("other"), in_archive(&path("archive"))));
    assert!(reason.contains("another database"), "{reason}");
    assert!(!path("other").join("control").exists());
    // The directory may be used with another archive.
    let db = Db::open(path("other"), in_archive(&path("archive2"))).unwrap();
    write(&db, 2);
    db.await_archive();
    assert!(db.metrics().log.segments_archived > 3);
}
