//! What a new database with one table and one commit costs, with default options: time, memory and
//! disk.
#![cfg(not(duramen_loom))]

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use duramen::{Db, Options};

/// Bounds: bytes on disk, bytes of memory, and times, of which tests on busy machines allow five
/// times as much.
const DISK: u64 = 1_000_000;
const MEMORY: u64 = 4_000_000;
const TIME: Duration = Duration::from_millis(5 * 20);
const TIME_IN_MEMORY: Duration = Duration::from_millis(5 * 2);

/// Names the place of the database for the process that is measured.
const PLACE: &str = "DURAMEN_FOOTPRINT";

/// Returns the memory of this process in bytes, without the pages of the program itself.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    };
    of("RssAnon:") + of("RssShmem:")
}

/// Returns the bytes that files take up on the disk.
fn on_disk(path: &Path) -> u64 {
    let found = std::fs::symlink_metadata(path).unwrap();
    if !found.is_dir() {
        return found.blocks() * 512;
    }
    std::fs::read_dir(path).unwrap().map(|entry| on_disk(&entry.unwrap().path())).sum()
}

/// Commits once in a new table; `place` is empty for a database in memory.
fn create(place: &str) -> Db {
    let options = Options::default();
    let db = if place.is_empty() { Db::in_memory(options) } else { Db::open(place, options) }.unwrap();
    let table = db.table("t").unwrap();
    let mut txn = db.begin();
    txn.put(&table, b"key", b"value").unwrap();
    txn.commit().unwrap();
    db
}

/// Returns the shortest time and the most memory of several creations at `place`, each in a process
/// of its own. After each, `check` examines what is there.
fn measure(place: &str, check: impl Fn()) -> (Duration, u64) {
    let (mut shortest, mut most) = (Duration::MAX, 0);
    for _ in 0..3 {
        let arguments = ["--exact", "the_process_that_is_measured", "--ignored", "--nocapture", "--test-threads=1"];
        let program = std::env::current_exe().unwrap();
        let output = Command::new(program).args(arguments).env(PLACE, place).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find_map(|line| line.split_once("measured: ")).expect("the process has measured").1;
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>().unwrap());
        shortest = shortest.min(Duration::from_micros(numbers.next().unwrap()));
        most = most.max(numbers.next().unwrap());
        check();
    }
    (shortest, most)
}

#[test]
#[ignore = "the other tests start it as a process of its own"]
fn the_process_that_is_measured() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let (before, start) = (resident(), Instant::now());
    let db = create(&place);
    let time = start.elapsed();
    // Background threads do what they have to do.
    std::thread::sleep(Duration::from_millis(300));
    println!("measured: {} {}", time.as_micros(), resident() - before);
    // Not closed: what a running database has on disk is measured.
    std::mem::forget(db);
    std::process::exit(0);
}

fn on(parent: &Path) {
    let home = tempfile::tempdir_in(parent).unwrap();
    let place = home.path().join("db");
    let (time, memory) = measure(place.to_str().unwrap(), || {
        let disk = on_disk(&place);
        println!("{} bytes on the disk under {}", disk, parent.display());
        assert!(disk <= DISK, "{disk} bytes on the disk under {}", parent.display());
        std::fs::remove_dir_all(&place).unwrap();
    });
    println!("{time:?}, {memory} bytes of memory, under {}", parent.display());
    assert!(memory <= MEMORY, "{memory} bytes of memory under {}", parent.display());
    assert!(time <= TIME, "{time:?} under {}", parent.display());
}

#[test]
fn a_new_database_is_small() {
    on(&std::env::temp_dir());
    if Path::new("/dev/shm").is_dir() {
        on(Path::new("/dev/shm"));
    }
}

#[test]
fn a_new_database_in_memory_is_small() {
    let (time, memory) = measure("", || {});
    println!("{time:?}, {memory} bytes of memory, in memory");
    assert!(memory <= MEMORY, "{memory} bytes of memory");
    assert!(time <= TIME_IN_MEMORY, "{time:?}");
}

/// A clean close leaves what the next opening needs.
#[test]
fn a_closed_database_is_small() {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().join("db");
    let db = create(place.to_str().unwrap());
    let table = db.table("t").unwrap();
    // 10 MB of log for 100 bytes of data.
    for _ in 0..100 {
        db.run(|txn| (0..1000).try_for_each(|_| txn.put(&table, b"key", &[7; 100]))).unwrap();
    }
    db.checkpoint().unwrap();
    db.close().unwrap();
    let closed = on_disk(&place);
    println!("{closed} bytes on the disk");
    assert!(closed <= 64 << 20, "{closed} bytes on the disk");
    for _ in 0..3 {
        let db = Db::open(&place, Options::default()).unwrap();
        assert_eq!(db.run(|txn| txn.get(&table_of(&db), b"key")).unwrap(), Some(vec![7; 100]));
        db.close().unwrap();
        assert!(on_disk(&place) <= closed + (1 << 20), "it does not grow by being opened");
    }
}

fn table_of(db: &Db) -> duramen::Table {
    db.open_table("t").unwrap()
}
