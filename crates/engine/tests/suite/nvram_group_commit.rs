//! NVRAM group commit: batches of transactions in a heap in persistent memory.

use std::path::Path;
use std::time::Duration;

use duramen::pmem::{Domain, Power, SimMemory, Source, Survive, Survivors};
use duramen::{
    Barriers, BatchOptions, CommitMode, Db, Error, HeapMetrics, HeapOptions, LogDevice, NvmOptions, Options, Scheme,
};
use duramen_io::{CrashChoice, SimDisk};
use duramen_sync::Arc;
use duramen_test_support::{Stride, block_on};

use crate::every_scheme;

const MIB: u64 = 1 << 20;

/// Short batches, so that tests need not wait.
fn short() -> BatchOptions {
    BatchOptions { period: Duration::from_micros(300), drain: Duration::from_micros(50), log_bytes: Some(MIB) }
}

fn in_file(path: &Path, bytes: u64) -> Options {
    let heap = HeapOptions::new(Source::File(path.to_owned()), bytes, Domain::VolatileCache);
    let heap = HeapOptions { survive: Survive::Process, ..heap };
    Options { scheme: Scheme::NvramGroupCommit(heap, short()), ..Options::default() }
}

fn in_memory(memory: &SimMemory) -> Options {
    with_batches(memory, short())
}

/// The same with other barriers.
fn with_barriers(options: Options, barriers: Barriers) -> Options {
    match options.scheme {
        Scheme::NvramGroupCommit(heap, batches) => {
            Options { scheme: Scheme::NvramGroupCommit(HeapOptions { barriers, ..heap }, batches), ..options }
        }
        _ => unreachable!("all options here are for batches"),
    }
}

/// Barriers for one opening after the other: recovery reads what either has left.
fn turn(number: u64) -> Barriers {
    if number.is_multiple_of(2) { Barriers::Fewest } else { Barriers::Paper }
}

fn with_batches(memory: &SimMemory, batches: BatchOptions) -> Options {
    let heap = HeapOptions::new(Source::Simulated(memory.clone()), memory.len(), memory.domain());
    Options { scheme: Scheme::NvramGroupCommit(heap, batches), pool_bytes: 1 << 20, ..Options::default() }
}

fn heap_of(db: &Db) -> HeapMetrics {
    db.metrics().heap.expect("the database is in a heap")
}

#[test]
fn what_is_committed_is_there_after_closing_and_after_a_kill() {
    let home = tempfile::tempdir().unwrap();
    let options = in_file(&home.path().join("heap"), 16 * MIB);
    let db = Db::open(home.path().join("db"), options.clone()).unwrap();
    let table = db.create_table("t").unwrap();
    for number in 0..2000_u32 {
        db.run(|txn| txn.put(&table, &number.to_be_bytes(), &[number as u8; 50])).unwrap();
    }
    let mut open = db.begin();
    open.put(&table, b"never committed", b"x").unwrap();
    drop(open);
    db.close().unwrap();
    for round in 0..2 {
        let db = Db::open(home.path().join("db"), options.clone()).unwrap();
        let table = db.open_table("t").unwrap();
        let mut txn = db.begin();
        let found = txn.scan(&table, ..).count();
        assert_eq!(found, 2000 + round);
        txn.put(&table, b"one more", b"").unwrap();
        txn.commit().unwrap();
        assert!(db.check().unwrap().is_ok());
        // Without closing.
        drop(db);
    }
}

#[test]
fn large_values_dropped_tables_and_savepoints_work() {
    let memory = SimMemory::new(16 * MIB, Domain::VolatileCache);
    let disk = SimDisk::new(1);
    let db = Db::open_on(Arc::new(disk), in_memory(&memory)).unwrap();
    every_scheme::work_with_large_values(&db);
    db.close().unwrap();
}

/// Exactly two barriers for each batch, whatever is in it, or the four of the paper.
#[test]
fn barriers_are_counted() {
    count_barriers(Barriers::Fewest, 2);
    count_barriers(Barriers::Paper, 4);
}

fn count_barriers(barriers: Barriers, of_batch: u64) {
    let memory = SimMemory::new(16 * MIB, Domain::VolatileCache);
    let db = Db::open_on(Arc::new(SimDisk::new(1)), with_barriers(in_memory(&memory), barriers)).unwrap();
    let table = db.create_table("t").unwrap();
    let before = quiescent(&db);
    let mut left = db.begin();
    left.put(&table, b"carried", b"value").unwrap();
    for number in 0..100_u32 {
        let mut txn = db.begin();
        for change in 0..5_u32 {
            txn.put(&table, &(number * 5 + change).to_be_bytes(), &[7; 400]).unwrap();
        }
        if number % 10 == 3 { txn.abort().unwrap() } else { txn.commit().unwrap() }
    }
    left.abort().unwrap();
    let after = quiescent(&db);
    let batches = after.batches - before.batches;
    assert!(batches >= 20 && after.carried > before.carried, "{after:?}");
    assert_eq!(after.barriers - before.barriers, of_batch * batches);
    let mut txn = db.begin();
    txn.get(&table, b"key").unwrap();
    txn.commit().unwrap();
    assert_eq!(heap_of(&db), after, "readers need none");
}

/// Returns the counters when no batch is under way.
fn quiescent(db: &Db) -> HeapMetrics {
    // This makes everything before it durable, at once.
    let marker = format!("marker {}", heap_of(db).changes);
    db.create_table(&marker).unwrap();
    let mut before = heap_of(db);
    loop {
        std::thread::sleep(Duration::from_millis(30));
        let now = heap_of(db);
        if now == before {
            return now;
        }
        before = now;
    }
}

/// A transaction that does not fit the journals is refused while it can still be rolled back.
#[test]
fn a_transaction_that_is_too_long_is_refused_and_rolled_back() {
    let memory = SimMemory::new(6 * MIB, Domain::DurableCache);
    let db = Db::open_on(Arc::new(SimDisk::new(1)), in_memory(&memory)).unwrap();
    let table = db.create_table("t").unwrap();
    db.run(|txn| txn.put(&table, b"key", &[0; 1000])).unwrap();
    let mut txn = db.begin();
    let mut count = 0_u32;
    let refused = loop {
        match txn.put(&table, b"key", &count.to_be_bytes().repeat(250)) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, Error::Full { reason } if reason.contains("journals")), "{refused}");
    assert!(count > 100, "{count}");
    txn.abort().unwrap();
    let mut txn = db.begin();
    assert_eq!(txn.get(&table, b"key").unwrap().unwrap(), [0; 1000]);
    txn.put(&table, b"key", b"fits").unwrap();
    txn.commit().unwrap();
    let heap = quiescent(&db);
    assert_eq!(heap.journal_bytes, heap.journal_bytes_free, "the blocks are free again");
}

/// The blocks of a carried transaction are free when a batch is durable that lists them no more. A
/// writer that comes before does not wait for the end of the period, and is not refused.
#[test]
fn the_space_of_an_ended_transaction_comes_back_at_once() {
    let memory = SimMemory::new(6 * MIB, Domain::DurableCache);
    let batches = BatchOptions { period: Duration::from_secs(10), ..short() };
    let db = Db::open_on(Arc::new(SimDisk::new(1)), with_batches(&memory, batches)).unwrap();
    let table = db.create_table("t").unwrap();
    for round in 0..3_u32 {
        let mut txn = db.begin();
        // More than half of the space.
        for count in 0..600_u32 {
            txn.put(&table, b"key", &count.to_be_bytes().repeat(250)).unwrap();
        }
        // This ends a batch, which carries the transaction.
        db.create_table(&format!("table {round}")).unwrap();
        txn.abort().unwrap();
    }
}

#[test]
fn a_full_heap_refuses_and_a_larger_one_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("heap");
    let db = Db::open(home.path().join("db"), in_file(&path, 4 * MIB)).unwrap();
    let table = db.create_table("t").unwrap();
    let mut number = 0_u32;
    let refused = loop {
        match db.run(|txn| txn.put(&table, &number.to_be_bytes(), &[3; 1000])) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, Error::Full { reason } if reason.contains("pages")), "{refused}");
    db.close().unwrap();
    let db = Db::open(home.path().join("db"), in_file(&path, 10 * MIB)).unwrap();
    let table = db.open_table("t").unwrap();
    for more in 0..1000 {
        db.run(|txn| txn.put(&table, &(number + more).to_be_bytes(), &[3; 1000])).unwrap();
    }
    assert!(db.check().unwrap().is_ok());
    db.close().unwrap();
    // A smaller number does not make it shrink.
    let db = Db::open(home.path().join("db"), in_file(&path, 4 * MIB)).unwrap();
    assert_eq!(db.begin().scan(&db.open_table("t").unwrap(), ..).count(), number as usize + 1000);
}

/// Every moment of a short run, in both domains, with every kind of image.
#[test]
fn a_power_cut_at_any_operation_leaves_whole_transactions() {
    for (domain, barriers) in [
        (Domain::DurableCache, Barriers::Fewest),
        (Domain::VolatileCache, Barriers::Fewest),
        (Domain::DurableCache, Barriers::Paper),
        (Domain::VolatileCache, Barriers::Paper),
    ] {
        let (_, whole, first, _) = run_until(domain, barriers, None);
        let operations = whole.operations() - first;
        for at in Stride::sampled("power cuts of group commit", 1, 13).until(operations) {
            // Batches end by the clock, so another run may have fewer operations.
            let (disk, memory, _, acknowledged) = run_until(domain, barriers, Some(at));
            for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Random(at), Survivors::Random(!at)]
            {
                let memory = memory.crash_image(survivors, None);
                let disk = disk.crash_image(&CrashChoice::Everything);
                let db = Db::open_on(Arc::new(disk), with_barriers(in_memory(&memory), turn(at / 7))).unwrap();
                let table = db.open_table("t").unwrap();
                let mut txn = db.begin();
                let read = |txn: &mut duramen::Txn, key: &[u8]| {
                    txn.get(&table, key).unwrap().map(|value| u32::from_le_bytes(value[..4].try_into().unwrap()))
                };
                let (one, two) = (read(&mut txn, b"one"), read(&mut txn, b"two"));
                assert_eq!(one, two, "{domain}, {barriers}, operation {at}, {survivors:?}");
                let found = one.map_or(0, |number| number + 1);
                assert!(found == acknowledged || found == acknowledged + 1, "{found} of {acknowledged}");
                assert_eq!(txn.get(&table, b"carried").unwrap(), None);
                drop(txn);
                assert!(db.check().unwrap().is_ok());
            }
        }
    }
}

/// Runs transactions; the power goes off `at` operations after the table has been made. Returns at
/// which operation that was, and how many transactions were acknowledged before the power went off.
/// One transaction is under way all the time.
fn run_until(domain: Domain, barriers: Barriers, at: Option<u64>) -> (SimDisk, SimMemory, u64, u32) {
    let disk = SimDisk::new(1);
    let memory = SimMemory::new(4 * MIB, domain);
    let batches = BatchOptions { period: Duration::from_micros(100), drain: Duration::ZERO, ..short() };
    let options = with_barriers(with_batches(&memory, batches), barriers);
    let db = Db::open_on(Arc::new(disk.clone()), options).unwrap();
    let table = db.create_table("t").unwrap();
    let first = memory.operations();
    if let Some(at) = at {
        memory.crash_at(first + at);
    }
    let mut acknowledged = 0;
    let mut carried = db.begin();
    for number in 0..6_u32 {
        carried.put(&table, b"carried", &[number as u8; 300]).unwrap();
        let mut txn = db.begin();
        txn.put(&table, b"one", &number.to_le_bytes().repeat(1 + number as usize * 20)).unwrap();
        txn.put(&table, b"two", &number.to_le_bytes()).unwrap();
        if number == 3 {
            txn.abort().unwrap();
            let mut txn = db.begin();
            txn.put(&table, b"one", &number.to_le_bytes()).unwrap();
            txn.put(&table, b"two", &number.to_le_bytes()).unwrap();
            txn.commit().unwrap();
        } else {
            txn.commit().unwrap();
        }
        if !memory.is_off() {
            acknowledged += 1;
        }
    }
    (disk, memory, first, acknowledged)
}

#[test]
fn what_needs_a_log_is_refused_before_anything_is_made() {
    let home = tempfile::tempdir().unwrap();
    let (dir, path) = (home.path().join("db"), home.path().join("heap"));
    let good = in_file(&path, 4 * MIB);
    let wrong = |batches| match good.scheme.clone() {
        Scheme::NvramGroupCommit(heap, _) => {
            Options { scheme: Scheme::NvramGroupCommit(heap, batches), ..good.clone() }
        }
        _ => unreachable!(),
    };
    let nvm = NvmOptions::new(Source::Anonymous, Domain::VolatileCache);
    for (option, options) in [
        ("commit", Options { commit: CommitMode::Sync, ..good.clone() }),
        ("log_insert", Options { log_insert: duramen::InsertDesign::Mutex, ..good.clone() }),
        ("logs", Options { logs: 2, ..good.clone() }),
        ("log_device", Options { log_device: LogDevice::Nvm(nvm), ..good.clone() }),
        ("archive", Options { archive: Some(duramen::Archive::at(home.path().join("a")).unwrap()), ..good.clone() }),
        ("cleaner_pages_per_second", Options { cleaner_pages_per_second: Some(5), ..good.clone() }),
        ("checkpoint_bytes", Options { checkpoint_bytes: Some(1 << 20), ..good.clone() }),
        ("recovery_target", Options { recovery_target: Some(Options::RECOVERY_TARGET), ..good.clone() }),
        ("log", Options { log_max_bytes: 1 << 30, ..good.clone() }),
        ("group_commit", Options { group_commit_transactions: 5, ..good.clone() }),
        ("redo_memory_bytes", Options { redo_memory_bytes: Some(1 << 20), ..good.clone() }),
        ("scheme", in_file(&path, 1000)),
        ("scheme", in_file(&path, 3 * MIB)),
        ("scheme", wrong(BatchOptions { period: Duration::ZERO, ..short() })),
        ("scheme", wrong(BatchOptions { period: Duration::from_secs(11), ..short() })),
        ("scheme", wrong(BatchOptions { drain: Duration::from_secs(2), ..short() })),
        ("scheme", wrong(BatchOptions { log_bytes: Some(1000), ..short() })),
        ("scheme", wrong(BatchOptions { log_bytes: Some(3 * MIB), ..short() })),
        ("scheme", in_file(&path, u64::MAX)),
        ("scheme", {
            let heap = HeapOptions::new(Source::Anonymous, 4 * MIB, Domain::VolatileCache);
            let heap = HeapOptions { survive: Survive::Nothing, ..heap };
            Options { scheme: Scheme::NvramGroupCommit(heap, short()), ..Options::default() }
        }),
        // This memory does not survive a power cut.
        ("scheme", {
            let heap = HeapOptions::new(Source::File(path.clone()), 4 * MIB, Domain::VolatileCache);
            Options { scheme: Scheme::NvramGroupCommit(heap, short()), ..Options::default() }
        }),
        ("scheme", in_file(Path::new(""), 4 * MIB)),
    ] {
        match Db::open(&dir, options) {
            Err(Error::InvalidOption { option: found, .. }) => assert_eq!(found, option),
            other => panic!("{option}: {other:?}"),
        }
        assert!(!dir.exists() && !path.exists(), "{option}");
    }
}

/// Every way to learn that a commit is durable.
#[test]
fn asynchronous_commits_are_done_with_their_batch() {
    let home = tempfile::tempdir().unwrap();
    let options = in_file(&home.path().join("heap"), 16 * MIB);
    let options = Options { commit: duramen::CommitMode::Pipelined, ..options };
    let db = Db::open(home.path().join("db"), options.clone()).unwrap();
    let table = db.create_table("t").unwrap();
    let (sender, outcomes) = std::sync::mpsc::channel();
    for number in 0..400_u32 {
        let mut txn = db.begin();
        txn.put(&table, &number.to_be_bytes(), b"value").unwrap();
        let commit = txn.commit_async();
        match number % 4 {
            0 => commit.wait().unwrap(),
            1 => block_on(commit).unwrap(),
            2 => {
                let sender = sender.clone();
                commit.on_done(move |outcome| sender.send(outcome).unwrap());
            }
            _ => drop(commit),
        }
    }
    // The readers of the last commits wait for their batch.
    db.begin().commit().unwrap();
    let mut reader = db.begin();
    reader.get(&table, &399_u32.to_be_bytes()).unwrap();
    reader.commit().unwrap();
    assert!((0..100).all(|_| outcomes.recv_timeout(std::time::Duration::from_secs(60)).unwrap().is_ok()));
    // As a kill would. The notifier may hold the database for a moment longer.
    drop(db);
    let started = std::time::Instant::now();
    let db = loop {
        match Db::open(home.path().join("db"), options.clone()) {
            Err(Error::AlreadyOpen { .. }) if started.elapsed() < Duration::from_secs(60) => std::thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    assert_eq!(db.begin().scan(&db.open_table("t").unwrap(), ..).count(), 400);
    db.close().unwrap();
}

/// The outcome of unsafe commits is lost with the batch, and the database is whole.
#[test]
fn unsafe_commits_do_not_wait() {
    let memory = SimMemory::new(8 * MIB, Domain::VolatileCache);
    let disk = SimDisk::new(1);
    let long = BatchOptions { period: Duration::from_secs(5), ..short() };
    let options = Options { commit: CommitMode::Async, ..with_batches(&memory, long) };
    let db = Db::open_on(Arc::new(disk.clone()), options).unwrap();
    let table = db.create_table("t").unwrap();
    let started = std::time::Instant::now();
    for number in 0..50_u32 {
        db.run(|txn| txn.put(&table, &number.to_be_bytes(), b"lost")).unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(4), "no commit waited for its batch");
    let (disk, image) = (disk.crash_image(&CrashChoice::Everything), memory.crash_image(Survivors::Nothing, None));
    let db = Db::open_on(Arc::new(disk), in_memory(&image)).unwrap();
    assert_eq!(db.begin().scan(&db.open_table("t").unwrap(), ..).count(), 0);
}

/// A transaction that changes far more than a batch, or the pool, can hold.
fn long_transaction(db: &Db, txn: &mut duramen::Txn, rows: u32) {
    let table = db.open_table("t").unwrap();
    for number in 0..rows {
        txn.put(&table, &number.to_be_bytes(), &[number as u8; 700]).unwrap();
    }
}

fn count(db: &Db) -> usize {
    db.begin().scan(&db.open_table("t").unwrap(), ..).count()
}

#[test]
fn a_long_transaction_spans_batches() {
    let memory = SimMemory::new(16 * MIB, Domain::VolatileCache);
    let disk = SimDisk::new(1);
    let options = in_memory(&memory);
    let db = Db::open_on(Arc::new(disk.clone()), options).unwrap();
    db.create_table("t").unwrap();
    // Two transactions of one thread, of which one ends.
    let before = heap_of(&db);
    let mut first = db.begin();
    let other = db.create_table("other").unwrap();
    first.put(&other, b"key", b"undone").unwrap();
    let mut txn = db.begin();
    long_transaction(&db, &mut txn, 4000);
    assert!(heap_of(&db).batches > before.batches + 5 && heap_of(&db).carried > before.carried + 5);
    txn.commit().unwrap();
    assert_eq!(count(&db), 4000);
    let mut txn = db.begin();
    let large = vec![9; 200_000];
    txn.put(&db.open_table("t").unwrap(), b"large", &large).unwrap();
    quiescent(&db);
    let memory = memory.crash_image(Survivors::Nothing, None);
    let disk = disk.crash_image(&CrashChoice::Everything);
    let db = Db::open_on(Arc::new(disk), in_memory(&memory)).unwrap();
    assert_eq!((count(&db), db.metrics().recovery.losers), (4000, 2));
    let other = db.open_table("other").unwrap();
    assert_eq!(db.begin().get(&other, b"key").unwrap(), None);
    let report = db.check().unwrap();
    assert!(report.is_ok(), "the pages of the large value are free again: {:?}", report.problems);
    // The space comes back with the batch in which they ended.
    let started = std::time::Instant::now();
    let is_free = |heap: HeapMetrics| heap.journal_bytes == heap.journal_bytes_free;
    while !is_free(quiescent(&db)) {
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", heap_of(&db));
    }
    db.close().unwrap();
}

/// With the smallest pool and the smallest batch log, many threads, none of which hangs.
#[test]
fn a_tiny_pool_and_a_tiny_batch_log_hold_writers_up_and_no_longer() {
    let memory = SimMemory::new(24 * MIB, Domain::VolatileCache);
    let disk = SimDisk::new(1);
    let slow = BatchOptions { period: Duration::from_secs(1), drain: Duration::ZERO, log_bytes: Some(MIB) };
    let options = Options { pool_bytes: 64 * 8192, ..with_batches(&memory, slow) };
    let db = Db::open_on(Arc::new(disk.clone()), options).unwrap();
    let table = db.create_table("t").unwrap();
    let threads: Vec<_> = (0..6_u32)
        .map(|thread| {
            let (db, table) = (db.clone(), table.clone());
            std::thread::spawn(move || {
                let mut commits = Vec::new();
                for round in 0..60_u32 {
                    let mut txn = db.begin();
                    for number in 0..10_u32 {
                        let key = (number * 977 + round).wrapping_mul(2_654_435_761) << 3 | thread;
                        txn.put(&table, &key.to_be_bytes(), &[thread as u8; 600]).unwrap();
                    }
                    commits.push(txn.commit_async());
                }
                commits.into_iter().for_each(|commit| commit.wait().unwrap());
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let found = count(&db);
    let report = db.check().unwrap();
    assert!(report.is_ok(), "{:?}", report.problems);
    let heap = heap_of(&db);
    assert!(heap.batches > 5, "batches ended before their period: {heap:?}");
    let (disk, image) = (disk.crash_image(&CrashChoice::Everything), memory.crash_image(Survivors::Nothing, None));
    let db = Db::open_on(Arc::new(disk), in_memory(&image)).unwrap();
    assert_eq!(count(&db), found);
    assert!(db.check().unwrap().is_ok());
}

/// Carried undo information is cut back and grows again, and the power goes off at any moment.
#[test]
fn rolling_back_and_going_on_keeps_what_the_batch_before_needs() {
    for at in (0..).step_by(if cfg!(debug_assertions) { 31 } else { 5 }) {
        let memory = SimMemory::new(4 * MIB, Domain::VolatileCache);
        let disk = SimDisk::new(1);
        let quick = BatchOptions { period: Duration::from_micros(50), drain: Duration::ZERO, ..short() };
        let options = with_barriers(with_batches(&memory, quick), turn(at));
        let db = Db::open_on(Arc::new(disk.clone()), options).unwrap();
        let table = db.create_table("t").unwrap();
        let rows: Vec<[u8; 4]> = (0..60_u32).map(u32::to_be_bytes).collect();
        db.run(|txn| rows.iter().try_for_each(|key| txn.put(&table, key, &[1; 400]))).unwrap();
        memory.crash_at(memory.operations() + at);
        let mut txn = db.begin();
        for round in 2..8_u8 {
            let savepoint = txn.savepoint();
            rows.iter().for_each(|key| txn.put(&table, key, &[round; 400]).unwrap());
            std::thread::sleep(Duration::from_micros(200));
            if round % 3 != 0 {
                txn.rollback_to(&savepoint).unwrap();
                txn.put(&table, &rows[round as usize], &[round + 100; 300]).unwrap();
            }
        }
        let is_off = memory.is_off();
        let image = memory.crash_image(Survivors::Random(at), None);
        let disk = disk.crash_image(&CrashChoice::Everything);
        let db = Db::open_on(Arc::new(disk), in_memory(&image)).unwrap();
        let table = db.open_table("t").unwrap();
        let mut reader = db.begin();
        for key in &rows {
            assert_eq!(reader.get(&table, key).unwrap().unwrap(), [1; 400], "operation {at}, {key:?}");
        }
        drop(reader);
        assert!(db.check().unwrap().is_ok());
        if !is_off {
            break;
        }
    }
}

/// Creating a table ends the batch, because it holds the lock on the catalog meanwhile.
#[test]
fn a_new_table_does_not_wait_for_the_period() {
    let memory = SimMemory::new(8 * MIB, Domain::DurableCache);
    let long = BatchOptions { period: Duration::from_secs(10), ..short() };
    let db = Db::open_on(Arc::new(SimDisk::new(1)), with_batches(&memory, long)).unwrap();
    let started = std::time::Instant::now();
    for number in 0..20 {
        db.create_table(&format!("t{number}")).unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    db.close().unwrap();
}

/// The power of the disk is that of the memory.
struct DiskPower(SimDisk);

impl Power for DiskPower {
    fn is_on(&self) -> bool {
        self.0.crashed_in().is_none()
    }

    fn cut(&self) {
        self.0.crash();
    }
}

/// Recovery is interrupted again and again.
#[test]
fn recovery_may_crash_and_start_over() {
    let memory = SimMemory::new(4 * MIB, Domain::VolatileCache);
    let disk = SimDisk::new(1);
    let db = Db::open_on(Arc::new(disk.clone()), in_memory(&memory)).unwrap();
    let table = db.create_table("t").unwrap();
    db.run(|txn| (0..50_u32).try_for_each(|key| txn.put(&table, &key.to_be_bytes(), &[1; 300]))).unwrap();
    let mut txn = db.begin();
    for key in 0..50_u32 {
        txn.put(&table, &key.to_be_bytes(), &[2; 500]).unwrap();
    }
    quiescent(&db);
    let crashed = memory.crash_image(Survivors::Nothing, None);
    let disk = disk.crash_image(&CrashChoice::Everything);
    for at in (0..).step_by(if cfg!(debug_assertions) { 5 } else { 1 }) {
        let disk = disk.crash_image(&CrashChoice::Everything);
        let memory = crashed.crash_image(Survivors::Everything, Some(Arc::new(DiskPower(disk.clone()))));
        memory.crash_at(at);
        // The opening fails or not; the memory stays as it was when the power went off.
        let opened = Db::open_on(Arc::new(disk.clone()), with_barriers(in_memory(&memory), turn(at))).map(drop);
        let is_off = memory.is_off();
        let memory = memory.crash_image(Survivors::Random(at), None);
        let disk = disk.crash_image(&CrashChoice::Everything);
        let db = Db::open_on(Arc::new(disk), with_barriers(in_memory(&memory), turn(at / 5))).unwrap();
        let table = db.open_table("t").unwrap();
        let mut reader = db.begin();
        for key in 0..50_u32 {
            assert_eq!(reader.get(&table, &key.to_be_bytes()).unwrap().unwrap(), [1; 300], "operation {at}");
        }
        drop(reader);
        assert!(db.check().unwrap().is_ok());
        if !is_off {
            opened.unwrap();
            break;
        }
    }
}
