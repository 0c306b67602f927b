//! Another process can ask about a database that is open. Here it is this process itself.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use duramen::inspect::{Answer, Question, RemoteSnapshot, ask};
use duramen::{Db, Error, Options, inspect};
use duramen_io::connect_locally;

use crate::common::small;

fn stats(home: &Path) -> Option<Answer> {
    ask(home, &Question::Stats).unwrap()
}

#[test]
fn an_open_database_tells_its_counters_until_it_is_closed() {
    let home = tempfile::tempdir().unwrap();
    assert!(stats(home.path()).is_none());
    let db = Db::open(home.path(), small()).unwrap();
    let table = db.create_table("accounts").unwrap();
    for round in 0..3 {
        db.run(|txn| txn.put(&table, b"key", b"value")).unwrap();
        let Answer { process, text, is_damaged, .. } = stats(home.path()).unwrap();
        assert!(process == std::process::id() && !is_damaged);
        let commits = db.metrics().commits;
        assert!(text.starts_with("tables\taccounts\n") && text.contains(&format!("\ncommits\t{commits}\n")), "{text}");
        assert!(commits > round);
    }
    // A second opener is refused, and what it has tried does no harm.
    assert!(matches!(Db::open(home.path(), small()), Err(Error::AlreadyOpen { .. })));
    assert!(stats(home.path()).is_some());
    db.close().unwrap();
    assert!(stats(home.path()).is_none());

    let again = Db::open(home.path(), small()).unwrap();
    assert!(stats(home.path()).is_some());
    // Without a close.
    drop(again);
    assert!(stats(home.path()).is_none());
    let silent = Db::open(home.path(), Options { answers_questions: false, ..small() }).unwrap();
    assert!(stats(home.path()).is_none());
    silent.close().unwrap();
}

#[test]
fn counters_are_told_while_the_tables_are_being_changed() {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), small()).unwrap();
    let told = db.change_tables(|tables| tables.create("new").map(|_| stats(home.path()).unwrap())).unwrap();
    assert!(told.text.starts_with("tables\t(being changed)\n") && told.text.contains("\ncommits\t"), "{told:?}");
    assert!(stats(home.path()).unwrap().text.starts_with("tables\tnew\n"));
    db.close().unwrap();
}

#[test]
fn a_check_reads_a_snapshot_while_transactions_write() {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), Options { snapshots: true, ..small() }).unwrap();
    let (one, two) = (db.create_table("one").unwrap(), db.create_table("two").unwrap());
    db.run(|txn| (0..2_000_u32).try_for_each(|key| txn.put(&one, &key.to_be_bytes(), &[1; 100]))).unwrap();
    let mut writing = db.begin();
    writing.put(&two, b"key", &[2; 20_000]).unwrap();
    let answer = ask(home.path(), &Question::Check).unwrap().unwrap();
    assert_eq!((answer.is_damaged, &answer.text[..]), (false, "read through a snapshot: 2 tables, 2000 records\n"));
    writing.commit().unwrap();
    let answer = ask(home.path(), &Question::Check).unwrap().unwrap();
    assert!(answer.text.ends_with("2001 records\n"), "{answer:?}");
    db.close().unwrap();

    let db = Db::open(home.path(), small()).unwrap();
    let refused = ask(home.path(), &Question::Check).unwrap_err().to_string();
    assert!(refused.contains("snapshots"), "{refused}");
    db.close().unwrap();
}

#[test]
fn a_check_finds_a_damaged_page() {
    let root = tempfile::tempdir().unwrap();
    // A longer path than any question.
    let home = ["x", "y", "z"].iter().fold(root.path().to_owned(), |path, part| path.join(part.repeat(220)));
    std::fs::create_dir_all(&home).unwrap();
    let options = Options { snapshots: true, ..small() };
    let db = Db::open(&home, options.clone()).unwrap();
    let table = db.create_table("t").unwrap();
    db.run(|txn| (0..5_000_u32).try_for_each(|key| txn.put(&table, &key.to_be_bytes(), &[7; 100]))).unwrap();
    db.close().unwrap();
    let data = home.join("data");
    let mut bytes = std::fs::read(&data).unwrap();
    let leaf = (0..bytes.len() / 8192).rfind(|page| bytes[page * 8192 + 4096] == 7).unwrap();
    bytes[leaf * 8192 + 4096] = 8;
    std::fs::write(&data, bytes).unwrap();
    let db = Db::open(&home, options).unwrap();
    let answer = ask(&home, &Question::Check).unwrap().unwrap();
    assert!(answer.is_damaged && answer.text.contains("problem: table `t`"), "{answer:?}");
    let damage = records(&mut RemoteSnapshot::open(&home).unwrap().unwrap(), "t").unwrap_err();
    assert!(matches!(&damage, Error::Corrupt { file, page: Some(_), .. } if file.ends_with("/data")), "{damage:?}");
    drop(db);
}

/// The thread that answers may be the last one with a handle, and a process that asks may stop in
/// the middle.
#[test]
fn nothing_keeps_a_database_open_that_is_asked() {
    let home = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let db = Db::open(home.path(), small()).unwrap();
        let (began, begins) = mpsc::channel();
        let path = home.path().to_owned();
        let asking = std::thread::spawn(move || {
            began.send(()).unwrap();
            (0..5).map(|_| ask(&path, &Question::Stats)).collect::<Vec<_>>()
        });
        begins.recv().unwrap();
        // It sends nothing.
        let idle = duramen_io::connect_locally(home.path()).unwrap();
        std::thread::sleep(Duration::from_micros(50 * round));
        drop(idle);
        if round % 2 == 0 {
            db.close().unwrap();
        } else {
            drop(db);
        }
        for answer in asking.join().unwrap() {
            assert!(answer.is_err() || answer.is_ok_and(|answer| answer.is_none_or(|answer| !answer.is_damaged)));
        }
    }
}

#[test]
fn a_table_is_measured_while_transactions_write() {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), small()).unwrap();
    let (films, empty) = (db.create_table("two\nwords").unwrap(), db.create_table("empty").unwrap());
    db.run(|txn| (0..5_000_u32).try_for_each(|key| txn.put(&films, &key.to_be_bytes(), &[1; 50]))).unwrap();
    let question = |name: &str, keys| Question::Table { name: name.to_owned(), keys };
    let answer = |name: &str, keys| ask(home.path(), &question(name, keys)).unwrap().unwrap().text;
    let whole = answer("two\nwords", 3);
    let (report, records) = whole.split_once("\n\n").unwrap();
    assert_eq!(report, inspect::table(&db, &films).unwrap().to_string());
    assert!(report.contains("\n5000 records, 0 ghosts\n"), "{report}");
    assert_eq!(records, "00000000\t50\n00000001\t50\n00000002\t50\n");
    let mut writing = db.begin();
    writing.put(&films, &2_u32.to_be_bytes(), b"locked").unwrap();
    writing.put(&empty, b"new", &[1; 20_000]).unwrap();
    assert!(answer("two\nwords", 3).ends_with("\n00000002\t6\n"), "as the leaf has it");
    assert!(answer("empty", 9).ends_with("\n\n6e6577\t20000\n"), "of a large value only its length");
    drop(writing);
    let unknown = ask(home.path(), &question("three", 0));
    assert!(matches!(unknown, Err(Error::Io { reason }) if reason.contains("`three`")));
    db.close().unwrap();
}

/// Regression: the error that says so was taken for one of the disk.
#[test]
fn an_asker_that_goes_away_harms_nothing() {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), small()).unwrap();
    let table = db.create_table("t").unwrap();
    db.run(|txn| (0..20_000_u32).try_for_each(|key| txn.put(&table, &key.to_be_bytes(), &[1; 50]))).unwrap();
    let begin = || {
        let (stream, _) = connect_locally(home.path()).unwrap().expect("the database is open");
        let mut greeting = String::new();
        BufReader::new(&stream).read_line(&mut greeting).unwrap();
        writeln!(&stream, "table 10 74").unwrap();
        stream
    };
    for round in 0..20_u32 {
        drop(begin());
        db.run(|txn| txn.put(&table, &round.to_be_bytes(), b"more")).unwrap();
    }
    let aborts = db.metrics().aborts;
    assert!(stats(home.path()).is_some());
    assert_eq!(db.metrics().aborts, aborts, "a question is no aborted transaction");
    let _asker = begin();
    db.close().unwrap();
    assert_eq!(Db::open(home.path(), small()).unwrap().metrics().recovery.redone, 0);
}

type Records = Vec<(Vec<u8>, Vec<u8>)>;

fn records(snapshot: &mut RemoteSnapshot, table: &str) -> Result<Records, Error> {
    snapshot.read(table)?;
    let mut records = Vec::new();
    while let Some((key, value)) = snapshot.next()? {
        records.push((key.to_vec(), value.to_vec()));
    }
    Ok(records)
}

#[test]
fn another_process_reads_a_snapshot_while_transactions_write() {
    let home = tempfile::tempdir().unwrap();
    assert!(RemoteSnapshot::open(home.path()).unwrap().is_none());
    let db = Db::open(home.path(), Options { snapshots: true, ..small() }).unwrap();
    let tables = ["films", "no\nrecords", "\u{fc}ber"].map(|name| db.create_table(name).unwrap());
    db.run(|txn| (0..5_000_u32).try_for_each(|key| txn.put(&tables[0], &key.to_be_bytes(), &[1; 50]))).unwrap();
    db.run(|txn| {
        txn.put(&tables[2], b"", b"")?;
        txn.put(&tables[2], b"large", &[2; 300_000])
    })
    .unwrap();
    let open = || RemoteSnapshot::open(home.path()).unwrap().expect("the database is open");
    let (mut one, mut other) = (open(), open());
    assert_eq!(one.process(), std::process::id());
    assert_eq!(one.list(), ["films", "no\nrecords", "\u{fc}ber"]);
    db.run(|txn| (0..5_000_u32).try_for_each(|key| txn.put(&tables[0], &key.to_be_bytes(), b"later"))).unwrap();
    // The one that stops in the middle of a table hinders neither the other nor a question.
    one.read("films").unwrap();
    assert_eq!(one.next().unwrap(), Some((&[0; 4][..], &[1; 50][..])));
    let expected: Records = (0..5_000_u32).map(|key| (key.to_be_bytes().to_vec(), vec![1; 50])).collect();
    assert!(records(&mut other, "films").unwrap() == expected);
    assert!(stats(home.path()).is_some());
    assert!(records(&mut one, "no\nrecords").unwrap().is_empty());
    let large = [(b"large".to_vec(), vec![2; 300_000]), (Vec::new(), Vec::new())];
    assert!(records(&mut one, "\u{fc}ber").unwrap().iter().rev().eq(&large));
    assert_eq!(one.next().unwrap(), None);
    assert!(records(&mut open(), "films").unwrap().iter().all(|(_, value)| value == b"later"));
    assert!(matches!(one.read(""), Err(Error::BadTableName { .. })));
    assert!(matches!(one.read("cats"), Err(Error::NoSuchTable { .. })));
    assert!(records(&mut one, "films").unwrap() == expected, "a wrong name has no consequences");
    db.close().unwrap();

    let db = Db::open(home.path(), small()).unwrap();
    let refused = RemoteSnapshot::open(home.path()).unwrap_err().to_string();
    assert!(refused.contains("snapshots"), "{refused}");
    db.close().unwrap();
}

#[test]
fn a_snapshot_that_has_failed_does_not_seem_to_end() {
    let home = tempfile::tempdir().unwrap();
    let options = Options { snapshots: true, version_bytes: Some(1 << 16), ..small() };
    let db = Db::open(home.path(), options).unwrap();
    let table = db.table("t").unwrap();
    let put = |byte| db.run(|txn| (0..20_000_u32).try_for_each(|key| txn.put(&table, &key.to_be_bytes(), &[byte; 50])));
    put(1).unwrap();
    let mut snapshot = RemoteSnapshot::open(home.path()).unwrap().unwrap();
    put(2).unwrap();
    let failed = records(&mut snapshot, "t").unwrap_err().to_string();
    assert!(failed.contains("snapshot"), "{failed}");
    assert_eq!(snapshot.next().unwrap_err().to_string(), failed);
    assert_eq!(snapshot.read("t").unwrap_err().to_string(), failed);
    db.close().unwrap();
}

/// As many processes read as may, and none of them takes what it is sent.
#[test]
fn readers_that_stop_harm_nobody() {
    let home = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let db = Db::open(home.path(), Options { snapshots: true, ..small() }).unwrap();
        let table = db.table("t").unwrap();
        // More than a socket holds.
        db.run(|txn| txn.put(&table, b"key", &vec![1; 16 << 20])).unwrap();
        let mut readers: Vec<_> = (0..6).map(|_| RemoteSnapshot::open(home.path()).unwrap().unwrap()).collect();
        readers.iter_mut().for_each(|reader| reader.read("t").unwrap());
        let refused = RemoteSnapshot::open(home.path()).unwrap_err().to_string();
        assert!(refused.contains("6 processes read snapshots"), "{refused}");
        assert!(stats(home.path()).is_some());
        // A place that becomes free is given away.
        drop(readers.pop());
        while RemoteSnapshot::open(home.path()).is_err() {
            std::thread::yield_now();
        }
        let idle: Vec<_> = (0..3).map(|_| connect_locally(home.path()).unwrap()).collect();
        // It waits behind those that send nothing.
        let path = home.path().to_owned();
        let waiting = std::thread::spawn(move || ask(&path, &Question::Stats));
        std::thread::sleep(Duration::from_millis(20));
        if round % 2 == 0 {
            db.close().unwrap();
        } else {
            drop(db);
        }
        for mut reader in readers {
            let broken_off = reader.next().unwrap_err().to_string();
            assert!(broken_off.contains("has broken off"), "{broken_off}");
        }
        let _ = waiting.join().unwrap();
        assert!(RemoteSnapshot::open(home.path()).unwrap().is_none());
        drop(idle);
    }
}
