//! Tables that are created, dropped and renamed in one transaction.
#![cfg(not(duramen_loom))]

use std::sync::Arc;

use duramen::{Db, Error, Options, Result};
use duramen_io::{CrashChoice, SimDisk};

fn open(disk: &SimDisk) -> Db {
    Db::open_on(Arc::new(disk.clone()), Options { snapshots: true, ..Options::small() }).unwrap()
}

/// A database with the tables `a` and `b`, each with a record of its name.
fn two_tables(disk: &SimDisk) -> Db {
    let db = open(disk);
    for name in ["a", "b"] {
        let table = db.create_table(name).unwrap();
        db.run(|txn| txn.put(&table, b"key", name.as_bytes())).unwrap();
    }
    db
}

fn value(db: &Db, table: &str) -> Result<Option<Vec<u8>>> {
    let table = db.open_table(table)?;
    db.run(|txn| txn.get(&table, b"key"))
}

#[test]
fn all_of_a_change_happens() {
    let disk = SimDisk::new(1);
    let db = two_tables(&disk);
    let (a, b) = (db.open_table("a").unwrap(), db.open_table("b").unwrap());
    let before = db.snapshot().unwrap();
    let c = db
        .change_tables(|tables| {
            tables.drop("a")?;
            tables.rename("b", "a")?;
            tables.create("b")?;
            tables.create("c")
        })
        .unwrap();
    db.run(|txn| txn.put(&c, b"key", b"c")).unwrap();
    assert_eq!(db.list().unwrap(), ["a", "b", "c"]);
    assert_eq!(value(&db, "a").unwrap().as_deref(), Some(&b"b"[..]), "the records of b have the name a");
    assert_eq!(value(&db, "b").unwrap(), None);
    for (table, name) in [(&a, "a"), (&b, "b")] {
        let error = db.run(|txn| txn.get(table, b"key")).unwrap_err();
        assert!(matches!(&error, Error::NoSuchTable { name: named } if named == name), "{error}");
    }
    let old = before.open_table("a").unwrap();
    assert_eq!(before.get(&old, b"key").unwrap().as_deref(), Some(&b"a"[..]), "the snapshot is from before");
    let old = before.open_table("b").unwrap();
    assert_eq!((old.name(), before.get(&old, b"key").unwrap().as_deref()), ("b", Some(&b"b"[..])));
    drop(before);
    disk.crash();
    drop(db);
    let db = open(&disk.crash_image(&CrashChoice::Nothing));
    assert_eq!(db.list().unwrap(), ["a", "b", "c"]);
    assert_eq!(value(&db, "a").unwrap().as_deref(), Some(&b"b"[..]));
    assert_eq!(value(&db, "c").unwrap().as_deref(), Some(&b"c"[..]));
    assert!(db.check().unwrap().is_ok());
}

#[test]
fn nothing_of_a_failed_change_happens() {
    let disk = SimDisk::new(1);
    let db = two_tables(&disk);
    let (a, b) = (db.open_table("a").unwrap(), db.open_table("b").unwrap());
    let mut never = None;
    let error = db
        .change_tables(|tables| {
            tables.drop("a")?;
            tables.rename("b", "other")?;
            never = Some(tables.create("a")?);
            tables.create("other")
        })
        .unwrap_err();
    assert!(matches!(&error, Error::TableExists { name } if name == "other"), "{error}");
    let error = db.run(|txn| txn.put(never.as_ref().unwrap(), b"key", b"value")).unwrap_err();
    assert!(matches!(error, Error::NoSuchTable { .. }), "{error}");
    assert_eq!(db.list().unwrap(), ["a", "b"]);
    for (table, name) in [(&a, "a"), (&b, "b")] {
        let found = db.run(|txn| txn.get(table, b"key")).unwrap();
        assert_eq!(found.as_deref(), Some(name.as_bytes()), "handles are as before");
    }
    // The id of the table that was not created is given out again, to one with other handles.
    let created = db.create_table("c").unwrap();
    assert_eq!((created.name(), created.id()), ("c", never.unwrap().id()));
    db.run(|txn| txn.put(&created, b"key", b"c")).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        db.change_tables(|tables| -> Result<()> {
            tables.create("d")?;
            panic!("in the change")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(db.list().unwrap(), ["a", "b", "c"]);
    db.create_table("d").unwrap();
    assert!(db.check().unwrap().is_ok());
}

#[test]
fn a_snapshot_shows_a_renamed_table_after_it_is_gone() {
    let db = two_tables(&SimDisk::new(1));
    let before = db.snapshot().unwrap();
    db.change_tables(|tables| tables.rename("b", "c")).unwrap();
    assert_eq!(value(&db, "c").unwrap().as_deref(), Some(&b"b"[..]));
    let (old, new) = (before.open_table("b").unwrap(), db.open_table("c").unwrap());
    db.drop_table("c").unwrap();
    for table in [old, new, before.open_table("b").unwrap()] {
        assert_eq!(before.get(&table, b"key").unwrap().as_deref(), Some(&b"b"[..]));
    }
    assert!(matches!(before.open_table("c"), Err(Error::NoSuchTable { .. })));
    drop(before);
    assert!(db.check().unwrap().is_ok());
}

#[test]
fn a_new_table_cannot_be_used_before_the_change_is_made() {
    let db = two_tables(&SimDisk::new(1));
    let error = db
        .change_tables(|tables| {
            let table = tables.create("c")?;
            let error = db.begin().put(&table, b"key", b"value").unwrap_err();
            assert!(matches!(error, Error::Deadlock { .. }), "it would wait for itself: {error}");
            tables.create("a").map(drop)
        })
        .unwrap_err();
    assert!(matches!(error, Error::TableExists { .. }), "{error}");
    let (handle, gets) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let db = &db;
        let writer = scope.spawn(move || {
            let table = gets.recv().unwrap();
            db.run(|txn| txn.put(&table, b"key", b"value"))
        });
        let changed = db.change_tables(|tables| {
            handle.send(tables.create("c")?).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(50));
            Err::<(), _>(Error::KeyNotFound)
        });
        assert!(matches!(changed, Err(Error::KeyNotFound)));
        let error = writer.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::NoSuchTable { .. }), "it waited, and the table is not there: {error}");
    });
    assert!(db.check().unwrap().is_ok());
}

#[test]
fn an_error_that_is_ignored_takes_the_change_back() {
    let db = two_tables(&SimDisk::new(1));
    let (a, b) = (db.open_table("a").unwrap(), db.open_table("b").unwrap());
    let mut open = db.begin();
    open.put(&b, b"key", b"changed").unwrap();
    let error = db
        .change_tables(|tables| {
            tables.drop("a")?;
            tables.create("c")?;
            assert!(matches!(tables.drop("b"), Err(Error::TableInUse { .. })));
            Ok(())
        })
        .unwrap_err();
    assert!(matches!(error, Error::MustAbort), "{error}");
    open.commit().unwrap();
    assert_eq!(db.list().unwrap(), ["a", "b"]);
    assert_eq!(db.run(|txn| txn.get(&a, b"key")).unwrap().as_deref(), Some(&b"a"[..]), "the handle is valid");
}

#[test]
fn mistakes_are_named() {
    let db = two_tables(&SimDisk::new(1));
    let change = |change: fn(&mut duramen::TableChanges<'_>) -> Result<()>| db.change_tables(change).unwrap_err();
    assert!(matches!(change(|tables| tables.drop("x")), Error::NoSuchTable { .. }));
    assert!(matches!(change(|tables| tables.rename("x", "y")), Error::NoSuchTable { .. }));
    assert!(matches!(change(|tables| tables.rename("a", "b")), Error::TableExists { .. }));
    assert!(matches!(change(|tables| tables.rename("a", "")), Error::BadTableName { .. }));
    assert!(matches!(change(|tables| tables.create("a").map(drop)), Error::TableExists { .. }));
    let a = db.open_table("a").unwrap();
    let mut open = db.begin();
    open.put(&a, b"key", b"changed").unwrap();
    assert!(matches!(change(|tables| tables.rename("a", "c")), Error::TableInUse { .. }), "it would wait for itself");
    open.commit().unwrap();
    assert_eq!(value(&db, "a").unwrap().as_deref(), Some(&b"changed"[..]));
}

#[test]
fn a_crash_leaves_all_of_a_change_or_nothing() {
    for operation in 1..400 {
        let disk = SimDisk::new(operation);
        let db = two_tables(&disk);
        disk.crash_at(disk.operations() + operation - 1);
        let changed = db.change_tables(|tables| {
            tables.rename("a", "c")?;
            tables.drop("b")?;
            (0..20).try_for_each(|number| tables.create(&format!("t{number}")).map(drop))
        });
        let is_over = changed.is_ok() && disk.crashed_in().is_none();
        disk.crash();
        drop(db);
        for image in [CrashChoice::Nothing, CrashChoice::Everything, CrashChoice::Random(operation)] {
            let db = open(&disk.crash_image(&image));
            let names = db.list().unwrap();
            assert!(names.len() == 21 && names[0] == "c" || names == ["a", "b"] && changed.is_err(), "{names:?}");
            assert!(db.check().unwrap().is_ok());
        }
        if is_over {
            assert!(operation > 3, "crashes are met");
            return;
        }
    }
    panic!("the change takes more operations of the disk than expected");
}

#[test]
fn many_tables_at_once_and_threads_that_wait() {
    let db = two_tables(&SimDisk::new(1));
    let (inside, is_inside) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let db = &db;
        let waiting = scope.spawn(move || {
            is_inside.recv().unwrap();
            db.open_table("table 999").map(|table| table.name().to_owned())
        });
        db.change_tables(|tables| {
            (0..1000).try_for_each(|number| tables.create(&format!("table {number}")).map(drop))?;
            inside.send(()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            Ok(())
        })
        .unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), "table 999");
    });
    assert_eq!(db.list().unwrap().len(), 1002);
    assert!(db.check().unwrap().is_ok());
}
