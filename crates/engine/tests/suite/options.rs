//! Options with impossible values: opening refuses them by name before it makes anything.
#![cfg(not(any(duramen_loom, duramen_machine)))]

use std::path::PathBuf;
use std::time::Duration;

use duramen::pmem::{Domain, Source, Survive, Timing};
use duramen::{Archive, Db, Error, InsertDesign, LogDevice, NvmOptions, Options};

use crate::common::small;

fn in_memory(timing: Timing) -> LogDevice {
    let nvm = NvmOptions::new(Source::Anonymous, Domain::VolatileCache);
    LogDevice::Nvm(NvmOptions { survive: Survive::Nothing, timing, ..nvm })
}

type Change = Box<dyn Fn(&mut Options)>;

/// Returns impossible values: the option, the function that sets it, and a word of the error.
fn nonsense() -> Vec<(&'static str, Change, &'static str)> {
    let mut all: Vec<(&'static str, Change, &'static str)> = Vec::new();
    let mut add = |option, change: Change, word| all.push((option, change, word));
    for bytes in [0, 1, 64 * 8192 - 1] {
        add("pool_bytes", Box::new(move |options| options.pool_bytes = bytes), "524288");
    }
    for bytes in [usize::MAX, usize::MAX / 2, (8 << 40) + 1] {
        add("pool_bytes", Box::new(move |options| options.pool_bytes = bytes), "8796093022208");
    }
    for logs in [0, 25, u16::MAX] {
        add("logs", Box::new(move |options| options.logs = logs), "24");
    }
    let reserved = |options: &mut Options| (options.logs, options.log_insert) = (2, InsertDesign::Reserved);
    add("log_insert", Box::new(reserved), "reserved");
    for bytes in [0, 1, 4096, 65_535, 65_537, 3 << 20, 1 << 37, usize::MAX, 1 << 63] {
        add("log_buffer_bytes", Box::new(move |options| options.log_buffer_bytes = bytes), "power of two");
        let nvm = move |options: &mut Options| {
            (options.log_buffer_bytes, options.log_device) = (bytes, in_memory(Timing::NONE));
        };
        add("log_buffer_bytes", Box::new(nvm), "power of two");
    }
    for slots in [0, 65, usize::MAX] {
        add("log_array_slots", Box::new(move |options| options.log_array_slots = slots), "64");
        add("log_arrays", Box::new(move |options| options.log_arrays = slots), "64");
    }
    for slots in [0, 7, 65_537, usize::MAX] {
        add("log_slot_pool", Box::new(move |options| options.log_slot_pool = slots), "65536");
    }
    for bytes in [0, 1, 4096, (1 << 20) + 1, (1 << 40) + 4096, u64::MAX, 1 << 63] {
        add("log_segment_bytes", Box::new(move |options| options.log_segment_bytes = bytes), "64 KiB to 1 TiB");
    }
    for bytes in [0, 1, (2 << 20) - 1] {
        add("log_max_bytes", Box::new(move |options| options.log_max_bytes = bytes), "two segments");
    }
    for bytes in [0, (32 << 20) + 1, u64::MAX] {
        add("checkpoint_bytes", Box::new(move |options| options.checkpoint_bytes = Some(bytes)), "must");
    }
    for bytes in [0, 4095, (4 << 30) + 1, usize::MAX] {
        add("redo_memory_bytes", Box::new(move |options| options.redo_memory_bytes = Some(bytes)), "4 GiB");
    }
    for threads in [0, 33, usize::MAX] {
        add("recovery_threads", Box::new(move |options| options.recovery_threads = Some(threads)), "32");
    }
    add("group_commit_transactions", Box::new(|options| options.group_commit_transactions = 0), "at least 1");
    add("group_commit_bytes", Box::new(|options| options.group_commit_bytes = 0), "at least 1");
    for time in [Duration::from_millis(10_001), Duration::MAX] {
        add("group_commit_time", Box::new(move |options| options.group_commit_time = time), "10 seconds");
    }
    add("lock_escalation", Box::new(|options| options.lock_escalation = 0), "at least 1");
    add("run_async_threads", Box::new(|options| options.run_async_threads = 0), "at least 1");
    add("cleaner_pages_per_second", Box::new(|options| options.cleaner_pages_per_second = Some(0)), "zero");
    add("dirty_pages", Box::new(|options| options.dirty_pages = Some(0)), "zero");
    for time in [Duration::from_millis(1001), Duration::MAX] {
        for timing in [
            Timing { write: time, ..Timing::NONE },
            Timing { barrier: time, ..Timing::NONE },
            Timing { read: time, ..Timing::NONE },
        ] {
            add("log_device", Box::new(move |options| options.log_device = in_memory(timing)), "one second");
        }
    }
    let nowhere = || NvmOptions::new(Source::File(PathBuf::new()), Domain::VolatileCache);
    add("log_device", Box::new(move |options| options.log_device = LogDevice::Nvm(nowhere())), "empty");
    all
}

// A huge pool ended in a panic because its size overflowed. A log buffer whose size is no power of
// two was refused only when the new database had half of its files. The log's errors had the word
// "option" twice.
#[test]
fn nonsense_is_refused_before_anything_is_made() {
    let root = tempfile::tempdir().unwrap();
    let (new, old) = (root.path().join("new"), root.path().join("old"));
    Db::open(&old, small()).unwrap().close().unwrap();
    let names = || -> Vec<PathBuf> {
        let mut names: Vec<_> = old.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names
    };
    let before = names();
    for (name, change, word) in nonsense() {
        let mut options = small();
        change(&mut options);
        for dir in [&new, &old] {
            let error = Db::open(dir, options.clone()).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::InvalidOption { option, .. } if option == name), "{name}: {error:?}");
            assert!(text.contains(word), "{name}: no `{word}` in {text}");
            assert_eq!(text.matches("option").count(), 1, "{text}");
        }
        assert!(!new.exists(), "{name}: nothing has been made");
    }
    assert!(Archive::at("").is_err(), "no path");
    assert_eq!(names(), before);
    Db::open(&old, Options { create: false, ..small() }).unwrap().close().unwrap();
}

/// Large but possible values: they act as no limit.
#[test]
fn no_limit_is_no_nonsense() {
    let root = tempfile::tempdir().unwrap();
    let options = Options {
        log_max_bytes: u64::MAX,
        checkpoint_bytes: Some(u64::MAX / 2),
        group_commit_bytes: usize::MAX,
        lock_wait_limit: Some(Duration::MAX),
        cleaner_pages_per_second: Some(u32::MAX),
        dirty_pages: Some(usize::MAX),
        ..small()
    };
    let db = Db::open(root.path().join("db"), options).unwrap();
    let table = db.create_table("t").unwrap();
    let mut holder = db.begin();
    holder.put(&table, b"key", b"1").unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut txn = db.begin();
            txn.put(&table, b"key", b"2").unwrap();
            txn.commit().unwrap();
        });
        std::thread::sleep(Duration::from_millis(50));
        holder.commit().unwrap();
        waiter.join().unwrap();
    });
    db.close().unwrap();
}

/// Returns the number in the line of a system file that begins with `name`.
fn number_in(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or_default()
}

// A pool or a log buffer that needed more memory than the machine has ended the process.
#[test]
fn memory_that_cannot_be_had_is_an_error() {
    let memory = (number_in("/proc/meminfo", "MemTotal:") + number_in("/proc/meminfo", "SwapTotal:")) << 10;
    if number_in("/proc/sys/vm/overcommit_memory", "") == 1 || memory >= 64 << 30 {
        // The system would promise the requested memory, or even has it.
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    Db::open(&dir, small()).unwrap().close().unwrap();
    let pool = Options { pool_bytes: 8 << 40, ..small() };
    let buffer = Options { log_buffer_bytes: 64 << 30, ..small() };
    let wanted =
        [(pool, ["8796093022208 bytes", "lower `pool_bytes`"]), (buffer, ["68719476736 bytes", "choose a smaller"])];
    for (options, words) in wanted {
        let error = Db::open(&dir, options).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::OpenFailed { .. }), "{error:?}");
        for word in [dir.to_str().unwrap(), "cannot open the database"].into_iter().chain(words) {
            assert!(text.contains(word), "no `{word}` in {text}");
        }
        let db = Db::open(&dir, small()).unwrap();
        assert!(db.check().unwrap().is_ok());
        db.close().unwrap();
    }
}
