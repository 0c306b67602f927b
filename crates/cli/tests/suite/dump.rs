//! `duramen dump` and `duramen load`, with the real binary.

use std::fs;
use std::path::{Path, PathBuf};

use duramen::{Db, Options};

use crate::common::{self, arg, duramen};

/// Dumps a database into a file; returns its bytes.
fn dump(dir: &Path, file: &Path, more: &[&str]) -> Vec<u8> {
    let output = common::command(&[&["dump", arg(dir)], more].concat()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::write(file, &output.stdout).unwrap();
    output.stdout
}

/// Each benchmark database is the same after a dump, a load and another dump, and its audit finds
/// nothing.
#[test]
fn benchmark_databases_survive_a_dump_and_a_load() {
    for workload in ["tpcb", "tatp", "tpcc", "ycsb:a"] {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let (from, to) = (at("from"), at("to"));
        let mut run = vec!["bench", workload, "--dir", arg(&from), "--rows-per-unit", "200", "--scale", "1"];
        run.extend(["--transactions", "200", "--clients", "4", "--pool-mb", "8", "--json"]);
        duramen(&run).exits_with(0);
        let first = dump(&from, &at("first"), &[]);
        let loaded = duramen(&["load", arg(&to), arg(&at("first"))]).exits_with(0);
        assert!(loaded.stdout.starts_with("loaded "), "{loaded:?}");
        assert!(dump(&to, &at("second"), &[]) == first, "{workload}: the dumps differ");
        duramen(&["check", arg(&to)]).exits_with(0);
        // The same into a heap, with and without batches, and into memory that is smaller than the
        // tables.
        let (heap, memory) = (["--heap-mb", "256"], ["--pcm-mb", "2"]);
        for (scheme, size) in [("in-place", heap), ("nvram-group-commit", heap), ("pcm-logging", memory)] {
            let to = at(scheme);
            let more = [&["--scheme", scheme][..], &size].concat();
            duramen(&[&["load", arg(&to), arg(&at("first"))][..], &more].concat()).exits_with(0);
            assert!(dump(&to, &at("second"), &[]) == first, "{workload}, {scheme}: the dumps differ");
        }
    }
}

fn sample(root: &Path) -> PathBuf {
    let dir = root.join("db");
    let db = Db::open(&dir, Options::small()).unwrap();
    for (name, count) in [("a", 300_u32), ("b", 0), ("c", 5)] {
        let table = db.table(name).unwrap();
        db.run(|txn| (0..count).try_for_each(|key| txn.put(&table, &key.to_be_bytes(), b"a value"))).unwrap();
    }
    let large = db.open_table("c").unwrap();
    db.run(|txn| txn.put(&large, b"large", &vec![0xee; 3 << 20])).unwrap();
    db.close().unwrap();
    dir
}

#[test]
fn single_tables_are_dumped_and_an_unknown_one_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let dir = sample(root.path());
    let text = String::from_utf8(dump(&dir, &root.path().join("b.dump"), &["b", "c"])).unwrap();
    assert!(text.starts_with("duramen-dump 1\ntable b\ntable c\n #00000000 a\\x20value\n"), "{}", &text[..80]);
    assert!(text.lines().last().unwrap().starts_with("end 2 6 "));
    duramen(&["dump", arg(&dir), "d"]).exits_with(2).says(&["`d`", "a, b, c"]);
    duramen(&["dump", arg(&root.path().join("none"))]).exits_with(1).says(&["no such directory"]);
}

#[test]
fn a_load_refuses_what_would_not_give_the_same_tables() {
    let root = tempfile::tempdir().unwrap();
    let (dir, file) = (sample(root.path()), root.path().join("dump"));
    let whole = dump(&dir, &file, &[]);
    // Into tables with records.
    duramen(&["load", arg(&dir), arg(&file)]).exits_with(2).says(&["`a`", "has records already"]);
    // A truncated or a changed dump changes nothing.
    let (bad, other) = (root.path().join("bad"), root.path().join("other"));
    let mut changed = whole.clone();
    changed[100] ^= 4;
    for bytes in [&whole[..whole.len() - 1], &whole[..whole.len() / 2], &whole[..0], &changed] {
        fs::write(&bad, bytes).unwrap();
        duramen(&["load", arg(&other), arg(&bad)]).exits_with(3).says(&["line"]);
        assert!(!other.exists());
    }
    duramen(&["load", arg(&other), arg(&root.path().join("none"))]).exits_with(2).says(&["cannot open the dump"]);
    duramen(&["load", arg(&other), arg(&file)]).exits_with(0);
    assert!(dump(&other, &bad, &[]) == whole);
}

#[test]
fn a_compacted_database_dumps_the_same() {
    let root = tempfile::tempdir().unwrap();
    let (dir, copy, file) = (sample(root.path()), root.path().join("copy"), root.path().join("dump"));
    let compacted = duramen(&["compact", arg(&dir), arg(&copy)]).exits_with(0);
    assert!(compacted.stdout.starts_with("compacted 306 records of 3 tables: "), "{compacted:?}");
    duramen(&["check", arg(&copy)]).exits_with(0);
    assert!(dump(&dir, &file, &[]) == dump(&copy, &file, &[]));
    duramen(&["compact", arg(&dir), arg(&copy)]).exits_with(2).says(&["is not empty"]);
    duramen(&["compact", arg(&root.path().join("none")), arg(&root.path().join("new"))])
        .exits_with(1)
        .says(&["no such directory"]);
    assert!(!root.path().join("new").exists());
}

/// The process that has the database open here is this one.
#[test]
fn an_open_database_is_dumped_through_a_snapshot() {
    let root = tempfile::tempdir().unwrap();
    let (dir, file) = (sample(root.path()), root.path().join("dump"));
    let closed = dump(&dir, &file, &[]);
    let options = Options { snapshots: true, ..Options::small() };
    let db = Db::open(&dir, options).unwrap();
    let table = db.open_table("a").unwrap();
    let mut writing = db.begin();
    writing.put(&table, b"not committed", b"").unwrap();
    assert!(dump(&dir, &file, &[]) == closed);
    assert!(dump(&dir, &file, &["b", "c"]).starts_with(b"duramen-dump 1\ntable b\ntable c\n #00000000"));
    duramen(&["dump", arg(&dir), "d"]).exits_with(2).says(&["`d`", "a, b, c"]);
    writing.commit().unwrap();
    let open = dump(&dir, &file, &[]);
    assert!(open != closed);
    db.close().unwrap();
    assert!(dump(&dir, &file, &[]) == open);
}
