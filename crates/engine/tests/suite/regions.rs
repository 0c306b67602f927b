//! Regions for the log's rings that cannot be used, because they hold data or belong to another
//! owner.
#![cfg(not(any(duramen_loom, duramen_machine)))]

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use duramen::pmem::{Domain, Source, Survive};
use duramen::{Archive, Db, Error, LogDevice, NvmOptions, Options};

use crate::common::small;

/// Size of a ring in bytes. A region has one block more, and is smaller than a new data file.
const RING: usize = 256 << 10;

/// Returns options with these regions, one for each log.
fn with_regions(regions: &[&Path]) -> Options {
    let mut sources = regions.iter().map(|path| Source::File(path.to_path_buf()));
    let first = NvmOptions::new(sources.next().unwrap(), Domain::VolatileCache);
    let nvm = NvmOptions { survive: Survive::Process, further: sources.collect(), ..first };
    Options { log_device: LogDevice::Nvm(nvm), log_buffer_bytes: RING, logs: regions.len() as u16, ..small() }
}

/// Makes a closed database with a record in it.
fn make(dir: &Path, options: Options) {
    let db = Db::open(dir, options).unwrap();
    let table = db.create_table("t").unwrap();
    let mut txn = db.begin();
    txn.put(&table, b"key", b"value").unwrap();
    txn.commit().unwrap();
    db.close().unwrap();
}

fn assert_whole(dir: &Path, options: Options) {
    let db = Db::open(dir, options).unwrap();
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    assert_eq!(txn.get(&table, b"key").unwrap().as_deref(), Some(&b"value"[..]));
    txn.commit().unwrap();
    db.close().unwrap();
}

/// Returns every file below `dir` with its contents.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

fn refusal(dir: &Path, options: Options) -> String {
    match Db::open(dir, options) {
        Err(error @ Error::InvalidOption { option: "log_device", .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

// A region named `data` in the database's directory was taken for blank, because the first page of
// a data file is zero, and the catalog was overwritten with zeros.
#[test]
fn a_region_is_never_a_file_of_the_database() {
    let root = tempfile::tempdir().unwrap();
    let (dir, archive) = (root.path().join("db"), root.path().join("archive"));
    let archived = || Options { archive: Some(Archive::at(&archive).unwrap()), ..small() };
    make(&dir, archived());
    let (log, copy) = (dir.join("log"), archive.join("log/copy"));
    fs::write(&copy, [0; 64]).unwrap();
    let segment = fs::read_dir(&log).unwrap().next().unwrap().unwrap().path();
    let (soft, hard, below) = (root.path().join("soft"), root.path().join("hard"), root.path().join("below"));
    std::os::unix::fs::symlink(dir.join("data"), &soft).unwrap();
    std::os::unix::fs::symlink(&dir, &below).unwrap();
    fs::hard_link(dir.join("data"), &hard).unwrap();
    let held = fs::File::open(dir.join("data")).unwrap();
    let by_number = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    let before = (contents(&dir), contents(&archive));
    let data = dir.join("data");
    let files = ["data", "control", "doublewrite", "lock"].map(|name| (dir.join(name), dir.join(name)));
    let others = [
        (segment.clone(), segment),
        (soft, data.clone()),
        (hard, data.clone()),
        (by_number, data.clone()),
        (below.join("data"), data),
        (copy.clone(), copy),
    ];
    for (region, file) in files.into_iter().chain(others) {
        let nvm = Options { archive: archived().archive, ..with_regions(&[&region]) };
        let text = refusal(&dir, nvm);
        for word in [region.to_str().unwrap(), file.to_str().unwrap(), "another file"] {
            assert!(text.contains(word), "no `{word}` in {text}");
        }
    }
    // Names that a file of the database may still get.
    for region in [dir.join("control.new"), log.join("ring"), archive.join("ring")] {
        let nvm = Options { archive: archived().archive, ..with_regions(&[&region]) };
        assert!(refusal(&dir, nvm).contains(region.to_str().unwrap()));
        assert!(!region.exists());
    }
    assert!((contents(&dir), contents(&archive)) == before, "nothing has been touched");
    drop(held);
    assert_whole(&dir, archived());
    // Other names beside the database's files can be used for a region.
    let ring = dir.join("ring");
    for _ in 0..2 {
        assert_whole(&dir, Options { archive: archived().archive, ..with_regions(&[&ring]) });
    }
}

#[test]
fn of_a_new_database_nothing_is_made() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    fs::create_dir(&dir).unwrap();
    refusal(&dir, with_regions(&[&dir.join("data")]));
    let (ring, link) = (root.path().join("ring"), root.path().join("link"));
    let text = refusal(&dir, with_regions(&[&ring, &root.path().join("./ring")]));
    assert!(text.contains("log 0 and log 1") && text.contains("ring"), "{text}");
    fs::write(&ring, b"").unwrap();
    fs::hard_link(&ring, &link).unwrap();
    let text = refusal(&dir, with_regions(&[&ring, &root.path().join("third"), &link]));
    assert!(text.contains("log 0 and log 2"), "{text}");
    fs::remove_file(&link).unwrap();
    fs::write(&ring, vec![0; 1 << 20]).unwrap();
    let with_letter = |at: usize| {
        let mut bytes = vec![0; 1 << 20];
        bytes[at] = b'x';
        bytes
    };
    for at in [0, 40, 130, 4095, 4096, RING - 1, RING + 4095] {
        fs::write(&ring, with_letter(at)).unwrap();
        let error = Db::open(&dir, with_regions(&[&ring])).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::NotADatabase { .. }), "{at}: {error:?}");
        for word in [ring.to_str().unwrap(), "neither blank nor a ring", "another file", "zeros"] {
            assert!(text.contains(word), "{at}: no `{word}` in {text}");
        }
        assert!(fs::read(&ring).unwrap() == with_letter(at), "{at}: it has not been touched");
    }
    let names: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.is_empty() || names == ["lock"], "nothing has been made but {names:?}");
    // Bytes after the used part do not matter.
    fs::write(&ring, with_letter(RING + 4096)).unwrap();
    make(&dir, with_regions(&[&ring]));
    assert_whole(&dir, with_regions(&[&ring]));
}

#[test]
fn a_region_of_another_database_is_only_taken_when_it_holds_nothing() {
    let root = tempfile::tempdir().unwrap();
    let (one, two, ring) = (root.path().join("one"), root.path().join("two"), root.path().join("ring"));
    make(&one, small());
    let db = Db::open(&one, with_regions(&[&ring])).unwrap();
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    txn.put(&table, b"other", b"value").unwrap();
    txn.commit().unwrap();
    let open = Db::open(&two, with_regions(&[&ring])).unwrap_err();
    assert!(matches!(open, Error::AlreadyOpen { .. }), "{open}");
    // As after a crash.
    drop(db);
    let before = fs::read(&ring).unwrap();
    let held = Db::open(&two, with_regions(&[&ring])).unwrap_err();
    let text = held.to_string();
    assert!(matches!(held, Error::NotADatabase { .. }), "{held:?}");
    for word in [ring.to_str().unwrap(), "another log", "only copy", "open and close"] {
        assert!(text.contains(word), "no `{word}` in {text}");
    }
    assert!(fs::read(&ring).unwrap() == before, "it has not been touched");
    assert_whole(&one, with_regions(&[&ring]));
    make(&two, with_regions(&[&ring]));
    assert_whole(&two, with_regions(&[&ring]));
}

/// A directory, and a device that is no persistent memory, are refused.
#[test]
fn a_region_is_a_file_or_persistent_memory() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    make(&dir, small());
    for region in ["/dev/zero", "/dev/null", root.path().to_str().unwrap()] {
        let error = Db::open(&dir, with_regions(&[Path::new(region)])).unwrap_err().to_string();
        assert!(error.contains(region) && error.contains("neither a file nor"), "{error}");
    }
    assert_whole(&dir, small());
}
