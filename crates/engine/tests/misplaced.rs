//! Files and pages that are whole, but not the current ones: the result of a partial restore from a
//! copy, or of a device that loses writes. The suite `torture misplaced` tries many more.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use duramen::{Db, Error, Options, Partition};

const PAGE: usize = 8192;

fn options(instant_recovery: bool) -> Options {
    Options {
        pool_bytes: 1 << 20,
        log_buffer_bytes: 1 << 20,
        log_segment_bytes: 1 << 20,
        instant_recovery,
        ..Options::default()
    }
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Gives each of these rows a value that begins with the version.
fn put(home: &Path, rows: std::ops::Range<u32>, version: u8) {
    put_with(home, options(false), rows, version);
}

fn put_with(home: &Path, options: Options, rows: std::ops::Range<u32>, version: u8) {
    let db = Db::open(home, options).unwrap();
    let table = db.open_table("t").or_else(|_| db.create_table("t")).unwrap();
    let mut txn = db.begin();
    for row in rows {
        txn.put(&table, &key(row), &[version; 100]).unwrap();
    }
    txn.commit().unwrap();
    db.close().unwrap();
}

fn read(home: &Path, instant_recovery: bool) -> Result<Vec<u8>, Error> {
    read_with(home, options(instant_recovery))
}

fn read_with(home: &Path, options: Options) -> Result<Vec<u8>, Error> {
    let db = Db::open(home, options)?;
    let table = db.open_table("t")?;
    let mut txn = db.begin();
    let rows = txn.scan(&table, ..).map(|row| row.map(|(_, value)| value[0])).collect::<Result<_, _>>()?;
    txn.commit()?;
    Ok(rows)
}

/// Runs `work` with a time limit, because it may not end.
fn limited<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(Duration::from_secs(20)).expect("it ends within 20 seconds")
}

/// An older version of a leaf ended at a key from which the search for the next leaf led back to
/// the same leaf. A scan went round in circles and took memory until there was none.
#[test]
fn a_scan_does_not_go_round_in_circles() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    put(home.path(), 0..2_000, 1);
    let before = std::fs::read(&data).unwrap();
    // Nearly all leaves but the first are merged away.
    let db = Db::open(home.path(), options(false)).unwrap();
    let table = db.open_table("t").unwrap();
    for from in (0..1_900).step_by(100) {
        let mut txn = db.begin();
        for row in (from..from + 100).filter(|row| row % 10 != 0) {
            txn.delete(&table, &key(row)).unwrap();
        }
        txn.commit().unwrap();
    }
    db.close().unwrap();
    let after = std::fs::read(&data).unwrap();
    let is_leaf = |bytes: &[u8], page: usize| bytes.get(page * PAGE + 4) == Some(&2);
    let changed = |page: &usize| before[page * PAGE..][..PAGE] != after[page * PAGE..][..PAGE];
    let pages = before.len().min(after.len()) / PAGE;
    let leaves: Vec<usize> =
        (3..pages).filter(changed).filter(|page| is_leaf(&before, *page) && is_leaf(&after, *page)).collect();
    assert!(leaves.len() > 3, "{leaves:?}");
    let mut noticed = 0;
    for leaf in leaves.into_iter().take(8) {
        let copy = copy_of(home.path());
        let mut damaged = after.clone();
        damaged[leaf * PAGE..][..PAGE].copy_from_slice(&before[leaf * PAGE..][..PAGE]);
        std::fs::write(copy.path().join("data"), damaged).unwrap();
        // Only its fences show that the page is older.
        let _ = std::fs::remove_file(copy.path().join("versions"));
        std::fs::write(copy.path().join("doublewrite"), []).unwrap();
        noticed += usize::from(limited(move || match read(copy.path(), false) {
            Err(Error::Corrupt { page, reason, .. }) => {
                assert!(page.is_some() && reason.contains("another version of the page"), "{reason}");
                true
            }
            other => other.is_err(),
        }));
    }
    assert!(noticed > 0);
}

fn copy_of(home: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_into(home, copy.path());
    copy
}

fn copy_into(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy_into(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Makes a database with a leaf put back from a copy; returns the leaf's page number, too.
fn with_an_older_leaf() -> (tempfile::TempDir, usize) {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    put(home.path(), 0..1_000, 1);
    let before = std::fs::read(&data).unwrap();
    put(home.path(), 0..1_000, 2);
    let mut after = std::fs::read(&data).unwrap();
    let leaf = (3..).find(|page| after[page * PAGE + 4] == 2 && before[page * PAGE + 4] == 2).unwrap();
    after[leaf * PAGE..][..PAGE].copy_from_slice(&before[leaf * PAGE..][..PAGE]);
    std::fs::write(&data, after).unwrap();
    (home, leaf)
}

/// A page put back from a copy, of the same shape: only its age was wrong. With instant recovery
/// and such pools, the opening did not end, or panicked.
#[test]
fn an_older_page_is_refused() {
    for instant_recovery in [false, true] {
        let (home, leaf) = with_an_older_leaf();
        for (pool_bytes, recovery_threads) in [(512 << 10, 1), (512 << 10, 2), (8 << 20, 1), (8 << 20, 2)] {
            let copy = copy_of(home.path());
            let options = Options { pool_bytes, recovery_threads: Some(recovery_threads), ..options(instant_recovery) };
            let error = limited(move || read_with(copy.path(), options)).map(|rows| rows[0]).unwrap_err();
            assert!(matches!(&error, Error::Corrupt { page: Some(page), .. } if page.get() == leaf as u64), "{error}");
            assert!(error.to_string().contains("older version"), "{error}");
        }
    }
}

/// A backup of it was made, and the database restored from it served the older page.
#[test]
fn an_older_page_is_not_backed_up() {
    let (home, leaf) = with_an_older_leaf();
    let (backup, db) = (tempfile::tempdir().unwrap(), Db::open(home.path(), options(false)).unwrap());
    let error = db.backup(backup.path(), |_| {}).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { page: Some(page), .. } if page.get() == leaf as u64), "{error}");
    assert!(error.to_string().contains("older version"), "{error}");
}

/// The same operations made this page in another database: only its values were wrong.
#[test]
fn a_page_of_another_database_is_refused() {
    for instant_recovery in [false, true] {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        put(home.path(), 0..1_000, 1);
        put(other.path(), 0..1_000, 2);
        let data = home.path().join("data");
        let mut pages = std::fs::read(&data).unwrap();
        let foreign = std::fs::read(other.path().join("data")).unwrap();
        let leaf = (3..).find(|page| pages[page * PAGE + 4] == 2 && foreign[page * PAGE + 4] == 2).unwrap();
        pages[leaf * PAGE..][..PAGE].copy_from_slice(&foreign[leaf * PAGE..][..PAGE]);
        std::fs::write(&data, pages).unwrap();
        let error = limited(move || read(home.path(), instant_recovery)).map(|rows| rows[0]).unwrap_err();
        assert!(matches!(&error, Error::Corrupt { page: Some(page), .. } if page.get() == leaf as u64), "{error}");
        assert!(error.to_string().contains("another database"), "{error}");
    }
}

/// Opening wrote the pages of an older double-write area over newer ones.
#[test]
fn an_older_double_write_area_does_no_harm_to_a_closed_database() {
    for (instant_recovery, foreign) in [(false, false), (true, false), (false, true)] {
        let home = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let area = home.path().join("doublewrite");
        put(home.path(), 0..1_000, 1);
        put(other.path(), 0..1_000, 7);
        let older = std::fs::read(if foreign { other.path().join("doublewrite") } else { area.clone() }).unwrap();
        put(home.path(), 0..1_000, 2);
        std::fs::write(&area, older).unwrap();
        assert!(read(home.path(), instant_recovery).unwrap() == vec![2; 1_000]);
    }
}

/// The process ended for lack of memory: opening trusted a length in an older file. Here `versions`
/// reaches beyond the data file, too.
#[test]
fn an_older_double_write_area_does_no_harm_to_three_logs() {
    let options = |instant_recovery| Options { logs: 3, log_partition: Partition::Page, ..options(instant_recovery) };
    for was_closed in [true, false] {
        for instant_recovery in [false, true] {
            let home = tempfile::tempdir().unwrap();
            put_with(home.path(), options(false), 0..1_000, 1);
            let area = std::fs::read(home.path().join("doublewrite")).unwrap();
            put_with(home.path(), options(false), 0..3_000, 2);
            let copy = if was_closed {
                copy_of(home.path())
            } else {
                let db = Db::open(home.path(), options(false)).unwrap();
                let table = db.open_table("t").unwrap();
                db.run(|txn| (0..3_000).try_for_each(|row| txn.put(&table, &key(row), &[3; 100]))).unwrap();
                copy_of(home.path())
            };
            std::fs::write(copy.path().join("doublewrite"), area).unwrap();
            let versions = copy.path().join("versions");
            let longer = [std::fs::read(&versions).unwrap_or_default(), vec![0; 1 << 20]].concat();
            std::fs::write(&versions, longer).unwrap();
            match limited(move || read_with(copy.path(), options(instant_recovery))) {
                Ok(rows) => assert!(was_closed && rows == vec![2; 3_000]),
                Err(error) => assert!(!was_closed && error.to_string().contains("older copy"), "{error}"),
            }
        }
    }
}

/// Opening accepted older pages with an older double-write area beside a newer log: counters of 450
/// were read as 200.
#[test]
fn older_files_are_refused_by_name() {
    for instant_recovery in [false, true] {
        for (stale, blamed) in [
            (&["data", "doublewrite"][..], "data"),
            (&["data"], "data"),
            (&["data", "doublewrite", "versions"], "data"),
            (&["control"], "control"),
            (&["control", "versions"], "control"),
        ] {
            let home = tempfile::tempdir().unwrap();
            put(home.path(), 0..1_000, 1);
            let older: Vec<_> = stale
                .iter()
                .map(|name| home.path().join(name))
                .map(|path| (std::fs::read(&path).unwrap(), path))
                .collect();
            put(home.path(), 0..1_000, 2);
            for (bytes, path) in older {
                std::fs::write(path, bytes).unwrap();
            }
            let error = read(home.path(), instant_recovery).map(|rows| rows[0]).unwrap_err();
            assert!(matches!(&error, Error::Corrupt { file, .. } if file.ends_with(blamed)), "{stale:?}: {error}");
            assert!(error.to_string().contains("older copy"), "{stale:?}: {error}");
        }
    }
}
