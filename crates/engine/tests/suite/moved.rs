//! Another program moves, replaces or removes the files of an open database.

use std::fs;
use std::path::Path;

use duramen::{Db, Error, Options};

fn open(path: &Path, create: bool) -> duramen::Result<Db> {
    let options = Options {
        create,
        pool_bytes: 1 << 20,
        log_segment_bytes: 64 << 10,
        log_buffer_bytes: 64 << 10,
        log_max_bytes: 4 << 20,
        checkpoint_bytes: Some(256 << 10),
        ..Options::default()
    };
    Db::open(path, options)
}

/// Commits `count` more counters, until a commit is refused.
fn count_up(db: &Db, from: u32, count: u32) -> Result<(), (u32, Error)> {
    let table = db.open_table("t").or_else(|_| db.create_table("t")).map_err(|error| (from, error))?;
    for number in from..from + count {
        let mut txn = db.begin();
        let put = txn.put(&table, b"counter", &number.to_be_bytes());
        let put = put.and_then(|()| txn.put(&table, &number.to_be_bytes(), &[7; 2000]));
        put.and_then(|()| txn.commit()).map_err(|error| (number, error))?;
    }
    Ok(())
}

fn counter(db: &Db) -> u32 {
    let table = db.open_table("t").unwrap();
    let value = db.begin().get(&table, b"counter").unwrap().unwrap();
    u32::from_be_bytes(value[..].try_into().unwrap())
}

/// A database went on writing to whatever directory had got the name of its own. It exchanged log
/// segments and file names with the other database there. Both were lost, without an error.
#[test]
fn a_database_that_is_moved_while_it_is_open_goes_out_of_service() {
    let root = tempfile::tempdir().unwrap();
    let (path, moved) = (root.path().join("db"), root.path().join("db.old"));
    let db = open(&path, true).unwrap();
    count_up(&db, 0, 50).unwrap();
    fs::rename(&path, &moved).unwrap();
    let other = open(&path, true).unwrap();
    count_up(&other, 1000, 20).unwrap();
    other.close().unwrap();

    let (acknowledged, error) = count_up(&db, 50, 3000).expect_err("a checkpoint looks");
    assert!(matches!(error, Error::Poisoned { .. } | Error::Io { .. }), "{error}");
    let text = error.to_string();
    for words in ["/db`: another directory is in its place", "moved or replaced", "open them at their new place"] {
        assert!(text.contains(words), "{text}");
    }
    assert!(db.close().is_err());
    assert_eq!(counter(&open(&path, false).unwrap()), 1019, "the other database is as it was");
    let found = counter(&open(&moved, false).unwrap());
    assert!((acknowledged - 1..=acknowledged).contains(&found), "{found} of {acknowledged}");
}

/// The same for single files.
#[test]
fn a_database_whose_files_are_replaced_goes_out_of_service() {
    for name in ["control", "data"] {
        let root = tempfile::tempdir().unwrap();
        let db = open(root.path(), true).unwrap();
        count_up(&db, 0, 10).unwrap();
        fs::rename(root.path().join(name), root.path().join("away")).unwrap();
        fs::copy(root.path().join("away"), root.path().join(name)).unwrap();
        let error = db.checkpoint().unwrap_err().to_string();
        assert!(error.contains(&format!("/{name}`: another file is in its place")), "{error}");
        assert!(matches!(count_up(&db, 10, 1), Err((_, Error::Poisoned { .. }))));
        drop(db);
        fs::rename(root.path().join("away"), root.path().join(name)).unwrap();
        assert_eq!(counter(&open(root.path(), false).unwrap()), 9);
    }
}

/// A program that removed the file `lock` could open the database beside the first opener, and
/// could make the first opener panic.
#[test]
fn a_second_opener_is_kept_out_without_the_lock_file() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("db");
    let db = open(&path, true).unwrap();
    count_up(&db, 0, 10).unwrap();
    let refused = |path: &Path| {
        let error = open(path, false).unwrap_err();
        assert!(matches!(error, Error::AlreadyOpen { .. }), "{error}");
        error.to_string()
    };
    fs::remove_file(path.join("lock")).unwrap();
    let text = refused(&path);
    assert!(text.contains("already open in this process") && text.contains("removing files does not change"), "{text}");
    // The second opener has left a file of this name; that file does not matter either.
    refused(&path);
    // The files are still the same files when another directory has them.
    let other = root.path().join("other");
    fs::create_dir(&other).unwrap();
    for entry in fs::read_dir(&path).unwrap() {
        let entry = entry.unwrap();
        fs::rename(entry.path(), other.join(entry.file_name())).unwrap();
    }
    refused(&other);
    drop(db);
    assert_eq!(counter(&open(&other, false).unwrap()), 9);
}
