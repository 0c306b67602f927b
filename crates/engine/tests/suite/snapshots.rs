//! Snapshots, over every scheme, device and commit mode.
#![cfg(not(any(duramen_loom, duramen_machine)))]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use duramen::pmem::{Domain, SimMemory, Source};
use duramen::{
    BatchOptions, CommitMode, Db, Error, HeapOptions, LogDevice, NvmOptions, Options, Partition, PcmOptions, Scheme,
    Snapshot, Table, Txn,
};
use duramen_io::{CrashChoice, SimDisk};
use duramen_test_support::{Rng, Stride, is_long};

const MIB: u64 = 1 << 20;

/// Values of every kind of length, in parts: as they are now, and as they were.
#[test]
fn values_are_read_in_parts() {
    const FULL: usize = 8148;
    let db = Db::open_on(Arc::new(SimDisk::new(1)), small()).unwrap();
    let table = db.create_table("t").unwrap();
    let lengths = [0, 1, 1000, 3000, FULL - 4, FULL, FULL + 4, 3 * FULL, 300_000];
    let value =
        |length: usize, version: usize| (0..length).map(|at| ((at * (7 + version)) >> 3) as u8).collect::<Vec<_>>();
    let write = |version| {
        let entries = lengths.iter().enumerate();
        let put = |txn: &mut Txn| {
            entries.clone().try_for_each(|(key, length)| txn.put(&table, &[key as u8], &value(*length, version)))
        };
        db.run(put).unwrap();
    };
    write(0);
    let snapshot = db.snapshot().unwrap();
    write(1);
    db.run(|txn| txn.delete(&table, &[8])).unwrap();
    for (key, length) in lengths.into_iter().enumerate() {
        for limit in [1, FULL + 1, usize::MAX] {
            let [mut now, mut then] = [Vec::new(), Vec::new()];
            let until = |read: &mut Vec<u8>, part: &[u8]| {
                read.extend_from_slice(part);
                if read.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            let found = db.run(|txn| {
                now.clear();
                txn.get_in_parts(&table, &[key as u8], |part| until(&mut now, part))
            });
            assert_eq!(found.unwrap(), (key != 8).then_some(length as u64));
            let found = snapshot.get_in_parts(&table, &[key as u8], |part| until(&mut then, part));
            assert_eq!(found.unwrap(), Some(length as u64));
            let is_enough = |read: &[u8], all: Vec<u8>| read.len() >= limit.min(all.len()) && all.starts_with(read);
            assert!(is_enough(&then, value(length, 0)), "{length} bytes up to {limit}: {} read", then.len());
            assert!(key == 8 || is_enough(&now, value(length, 1)), "{length} bytes up to {limit}: {} read", now.len());
        }
    }
    let none = db.run(|txn| txn.get_in_parts(&table, b"absent", |_| unreachable!()));
    assert_eq!((none.unwrap(), snapshot.get_in_parts(&table, b"absent", |_| unreachable!()).unwrap()), (None, None));
}

/// A checkpoint purges ghosts, and merges leaves, while another thread checks the database.
#[test]
fn a_check_sees_no_half_of_what_a_checkpoint_clears_away() {
    let db = Db::open_on(Arc::new(SimDisk::new(1)), small()).unwrap();
    let table = db.create_table("t").unwrap();
    for round in 0..if is_long() { 20 } else { 8_u32 } {
        let snapshot = db.snapshot().unwrap();
        db.run(|txn| (0..2000_u32).try_for_each(|key| txn.put(&table, &key.to_be_bytes(), &[1; 500]))).unwrap();
        db.run(|txn| (0..2000_u32).try_for_each(|key| txn.delete(&table, &key.to_be_bytes()).map(drop))).unwrap();
        drop(snapshot);
        let other = db.clone();
        let checkpoint = thread::spawn(move || other.checkpoint());
        // About as long as the checkpoint takes to begin.
        thread::sleep(Duration::from_micros(u64::from(round % 10) * 100));
        let report = db.check().unwrap();
        assert!(report.is_ok(), "round {round}: {:?}", report.problems);
        checkpoint.join().unwrap().unwrap();
    }
}

/// A way to keep a database.
struct Way {
    name: String,
    options: Options,
}

fn small() -> Options {
    Options {
        snapshots: true,
        pool_bytes: 1 << 20,
        log_buffer_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        log_max_bytes: 16 << 20,
        checkpoint_bytes: Some(1 << 20),
        // So that nothing is too old unless a test wants it.
        version_bytes: Some(64 << 20),
        ..Options::default()
    }
}

fn ring() -> Source {
    Source::Simulated(SimMemory::new(MIB, Domain::VolatileCache))
}

fn all_ways() -> Vec<Way> {
    let mut ways = Vec::new();
    let mut add = |name: &str, options: Options| ways.push(Way { name: name.to_owned(), options });
    for commit in [CommitMode::Sync, CommitMode::Elr, CommitMode::Pipelined, CommitMode::Async] {
        add(&format!("a log, {commit}"), Options { commit, ..small() });
        let logs = Options { commit, logs: 3, log_partition: Partition::RoundRobin, ..small() };
        add(&format!("three logs, {commit}"), logs);
        let nvm = NvmOptions::new(ring(), Domain::VolatileCache);
        add(&format!("a ring, {commit}"), Options { commit, log_device: LogDevice::Nvm(nvm), ..small() });
        let nvm = NvmOptions { further: vec![ring()], ..NvmOptions::new(ring(), Domain::VolatileCache) };
        let rings = Options { commit, logs: 2, log_device: LogDevice::Nvm(nvm), ..small() };
        add(&format!("two rings, {commit}"), rings);
        let in_heap = |scheme| {
            let usual = Options { snapshots: true, ..Options::default() };
            Options { commit, pool_bytes: 1 << 20, version_bytes: Some(64 << 20), scheme, ..usual }
        };
        let heap = || {
            // Journals for some hundred commits whose frees wait for a snapshot.
            let memory = SimMemory::new(64 * MIB, Domain::VolatileCache);
            let heap = HeapOptions::new(Source::Simulated(memory), 64 * MIB, Domain::VolatileCache);
            HeapOptions { journal_bytes: Some(32 * MIB), ..heap }
        };
        if commit != CommitMode::Async {
            add(&format!("in place, {commit}"), in_heap(Scheme::InPlace(heap())));
            let memory = SimMemory::new(64 * MIB, Domain::VolatileCache);
            let pcm = PcmOptions::new(Source::Simulated(memory), 64 * MIB, Domain::VolatileCache);
            add(&format!("PCM, {commit}"), in_heap(Scheme::PcmLogging(pcm)));
        }
        if commit != CommitMode::Sync {
            let batches = BatchOptions {
                period: Duration::from_micros(300),
                drain: Duration::from_micros(50),
                log_bytes: Some(MIB),
            };
            add(&format!("batches, {commit}"), in_heap(Scheme::NvramGroupCommit(heap(), batches)));
        }
    }
    ways
}

/// Returns every other way, from a random one on; all of them in the long suite.
fn ways(suite: &str) -> impl Iterator<Item = Way> {
    let all = all_ways();
    let chosen: Vec<u64> = Stride::sampled(suite, 1, 2).until(all.len() as u64).collect();
    (0..).zip(all).filter(move |(number, _)| chosen.contains(number)).map(|(_, way)| way)
}

fn open(way: &Way) -> Db {
    Db::open_on(Arc::new(SimDisk::new(1)), way.options.clone()).unwrap()
}

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns what a snapshot shows of a table, by a scan; the point reads and the parts must agree.
fn all_of(snapshot: &Snapshot, table: &Table) -> Records {
    records_of(snapshot, table).unwrap()
}

/// Does the same for a snapshot that may have given way.
fn records_of(snapshot: &Snapshot, table: &Table) -> Result<Records, Error> {
    let records: Records = snapshot.scan(table, ..).collect::<Result<_, _>>()?;
    for (key, value) in &records {
        assert_eq!(snapshot.get(table, key)?.as_ref(), Some(value), "{key:?}");
    }
    let parts = snapshot.split(table, 3)?;
    let of_parts = parts.into_iter().flat_map(|part| snapshot.scan(table, part)).collect::<Result<Vec<_>, _>>()?;
    assert_eq!(of_parts, records.clone().into_iter().collect::<Vec<_>>(), "each part in order, each record once");
    Ok(records)
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

#[test]
fn a_snapshot_shows_the_same_whatever_comes_later() {
    let numbers = if is_long() { 300 } else { 80 };
    for way in ways("a snapshot shows the same whatever comes later") {
        let db = open(&way);
        let table = db.create_table("t").unwrap();
        let large = vec![3_u8; 20_000];
        let mut expected = Records::new();
        for number in 0..numbers {
            let value = if number % 50 == 7 { large.clone() } else { vec![number as u8; 40] };
            db.run(|txn| txn.put(&table, &key(number), &value)).unwrap();
            expected.insert(key(number), value);
        }
        let snapshot = db.snapshot().unwrap();
        assert_eq!(all_of(&snapshot, &table), expected, "{}", way.name);
        let mut open = db.begin();
        open.put(&table, &key(0), b"dirty").unwrap();
        open.put(&table, b"dirty", b"dirty").unwrap();
        for round in 0..3_u64 {
            for number in 1..numbers {
                match (number + round) % 4 {
                    0 => db.run(|txn| txn.put(&table, &key(number), b"changed")).unwrap(),
                    1 => db.run(|txn| txn.delete(&table, &key(number)).map(|_| ())).unwrap(),
                    2 => db.run(|txn| txn.put(&table, &key(1000 + number), &large)).unwrap(),
                    _ => {
                        let mut txn = db.begin();
                        txn.put(&table, &key(number), &large).unwrap();
                        txn.delete(&table, &key(number + 1)).unwrap();
                        txn.abort().unwrap();
                    }
                }
            }
            assert_eq!(all_of(&snapshot, &table), expected, "{}, round {round}", way.name);
        }
        open.commit().unwrap();
        assert_eq!(all_of(&snapshot, &table), expected, "{}", way.name);
        let clone = snapshot.clone();
        drop(snapshot);
        assert_eq!(all_of(&clone, &table), expected, "{}", way.name);
        let later = db.snapshot().unwrap();
        assert!(later.gsn() > clone.gsn());
        assert_eq!(later.get(&table, &key(0)).unwrap().as_deref(), Some(&b"dirty"[..]), "{}", way.name);
        assert_eq!(db.metrics().snapshots, 2);
        drop((later, clone));
        // Nothing is left behind: two commits see to what the others have left.
        assert!(db.check().unwrap().is_ok(), "{}", way.name);
        assert_eq!(db.metrics().snapshots, 0);
        db.close().unwrap();
    }
}

#[test]
fn versions_ghosts_and_pages_go_when_no_snapshot_needs_them() {
    for way in ways("versions ghosts and pages go when no snapshot needs them") {
        let db = open(&way);
        let table = db.create_table("t").unwrap();
        db.run(|txn| (0..200).try_for_each(|number| txn.put(&table, &key(number), &[1; 100]))).unwrap();
        db.run(|txn| txn.put(&table, b"large", &[1; 30_000])).unwrap();
        let snapshot = db.snapshot().unwrap();
        db.run(|txn| (0..200).try_for_each(|number| txn.delete(&table, &key(number)).map(|_| ()))).unwrap();
        db.run(|txn| txn.put(&table, b"large", b"small")).unwrap();
        let kept = db.check().unwrap();
        assert!(kept.is_ok(), "{}: {:?}", way.name, kept.problems);
        assert_eq!((kept.ghosts, kept.records), (200, 1), "{}", way.name);
        assert!(db.metrics().version_bytes > 200 * 100, "{}", way.name);
        assert_eq!(snapshot.scan(&table, ..).count(), 201, "{}", way.name);
        drop(snapshot);
        let after = db.check().unwrap();
        assert!(after.is_ok(), "{}: {:?}", way.name, after.problems);
        assert_eq!(after.ghosts, 0, "{}", way.name);
        assert!(after.pages + 3 < kept.pages, "{}: {} of {} pages", way.name, after.pages, kept.pages);
        assert_eq!(db.metrics().version_bytes, 0, "{}", way.name);
        db.close().unwrap();
    }
}

#[test]
fn dropped_and_created_tables_are_as_they_were() {
    for way in ways("dropped and created tables are as they were") {
        let db = open(&way);
        let gone = db.create_table("gone").unwrap();
        db.run(|txn| txn.put(&gone, b"k", b"0")).unwrap();
        db.drop_table("gone").unwrap();
        let table = db.create_table("t").unwrap();
        db.run(|txn| (0..500).try_for_each(|number| txn.put(&table, &key(number), &[2; 60]))).unwrap();
        let snapshot = db.snapshot().unwrap();
        db.drop_table("t").unwrap();
        let again = db.create_table("t").unwrap();
        let other = db.create_table("other").unwrap();
        db.run(|txn| (0..500).try_for_each(|number| txn.put(&again, &key(number), b"again"))).unwrap();
        db.run(|txn| (0..500).try_for_each(|number| txn.put(&other, &key(number), b"other"))).unwrap();
        assert_eq!(snapshot.scan(&table, ..).filter(|record| record.is_ok()).count(), 500, "{}", way.name);
        let found = snapshot.open_table("t").unwrap();
        assert_eq!(snapshot.get(&found, &key(7)).unwrap(), Some(vec![2; 60]), "{}", way.name);
        assert!(matches!(db.begin().get(&found, &key(7)), Err(Error::NoSuchTable { .. })), "{}", way.name);
        assert!(matches!(snapshot.open_table("other"), Err(Error::NoSuchTable { .. })), "{}", way.name);
        assert_eq!(snapshot.scan(&other, ..).count(), 0, "{}", way.name);
        assert_eq!(snapshot.scan(&again, ..).count(), 0, "{}", way.name);
        assert!(matches!(snapshot.get(&gone, b"k"), Err(Error::NoSuchTable { .. })), "{}", way.name);
        drop(snapshot);
        let later = db.snapshot().unwrap();
        assert!(matches!(later.get(&table, &key(7)), Err(Error::NoSuchTable { .. })), "{}", way.name);
        let opened = later.open_table("other").unwrap();
        db.run(|txn| txn.put(&opened, b"usable", b"by transactions")).unwrap();
        drop(later);
        assert!(db.check().unwrap().is_ok(), "{}", way.name);
        db.close().unwrap();
    }
}

const ACCOUNTS: u64 = 40;
const START: i64 = 1000;

fn balance(value: &[u8]) -> i64 {
    i64::from_le_bytes(value[..8].try_into().unwrap())
}

/// Moves money between accounts, deletes accounts and creates others with the same money, writes
/// large values, aborts. The sum stays.
fn transfer(db: &Db, table: &Table, random: &mut Rng) -> Result<(), Error> {
    let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
    let (amount, kind, size) = (random.below(100) as i64, random.below(8), random.below(50));
    if from == to {
        return Ok(());
    }
    let mut txn = db.begin();
    let found = |value: Option<Vec<u8>>| value.map_or(0, |value| balance(&value));
    let mut read = |number| txn.get_for_update(table, &key(number)).map(found);
    let (mut source, mut target) = (read(from)?, read(to)?);
    let padding = vec![9; if size == 0 { 12_000 } else { size as usize }];
    let value = |balance: i64| [&balance.to_le_bytes()[..], &padding].concat();
    match kind {
        0 => {
            target += source;
            txn.delete(table, &key(from))?;
        }
        _ => {
            source -= amount;
            target += amount;
            txn.put(table, &key(from), &value(source))?;
        }
    }
    txn.put(table, &key(to), &value(target))?;
    if kind == 1 {
        return txn.abort();
    }
    txn.commit()
}

/// Every snapshot has the invariant sum, shows the same twice, and contains what was acknowledged
/// before it.
#[test]
fn every_snapshot_of_a_bank_has_the_same_sum() {
    for way in ways("every snapshot of a bank has the same sum") {
        let db = open(&way);
        let table = db.create_table("accounts").unwrap();
        let acknowledged = db.create_table("acknowledged").unwrap();
        for number in 0..ACCOUNTS {
            db.run(|txn| txn.put(&table, &key(number), &START.to_le_bytes())).unwrap();
        }
        let stop = AtomicBool::new(false);
        let latest = AtomicU64::new(0);
        let snapshots = AtomicU64::new(0);
        let is_in_heap = !matches!(way.options.scheme, Scheme::Wal);
        thread::scope(|scope| {
            for writer in 0..3_u64 {
                let (db, table, stop) = (&db, &table, &stop);
                scope.spawn(move || {
                    let mut random = Rng::new(writer);
                    while !stop.load(Ordering::Relaxed) {
                        match transfer(db, table, &mut random) {
                            Ok(()) => {}
                            Err(error) if error.is_retryable() => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            scope.spawn(|| {
                let mut number = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    number += 1;
                    db.run(|txn| txn.put(&acknowledged, b"number", &number.to_le_bytes())).unwrap();
                    latest.store(number, Ordering::Release);
                }
            });
            let reader = || {
                let mut kept: Option<(Snapshot, Records)> = None;
                let begun = Instant::now();
                let is_over = |time: Duration| match snapshots.load(Ordering::Relaxed) {
                    0..=2 => time > Duration::from_secs(30),
                    _ => time > Duration::from_millis(if is_long() { 500 } else { 40 }),
                };
                while !is_over(begun.elapsed()) {
                    let least = latest.load(Ordering::Acquire);
                    let snapshot = db.snapshot().unwrap();
                    let look = || {
                        let seen = snapshot.get(&acknowledged, b"number")?;
                        let seen = seen.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()));
                        assert!(seen >= least, "{}: {seen} of {least}", way.name);
                        let first = records_of(&snapshot, &table)?;
                        let sum: i64 = first.values().map(|value| balance(value)).sum();
                        assert_eq!(sum, ACCOUNTS as i64 * START, "{}: {first:?}", way.name);
                        assert_eq!(records_of(&snapshot, &table)?, first, "{}: repeatable", way.name);
                        if let Some((snapshot, records)) = &kept {
                            assert_eq!(&records_of(snapshot, &table)?, records, "{}: repeatable for long", way.name);
                        }
                        Ok(first)
                    };
                    match look() {
                        Ok(first) => {
                            if snapshots.fetch_add(1, Ordering::Relaxed).is_multiple_of(8) {
                                kept = Some((snapshot, first));
                            }
                        }
                        // It has given way to the journals of transactions.
                        Err(Error::SnapshotTooOld { .. }) if is_in_heap => kept = None,
                        Err(error) => panic!("{}: {error}", way.name),
                    }
                }
            };
            let readers = [scope.spawn(reader), scope.spawn(reader)];
            let outcomes = readers.map(|reader| reader.join());
            stop.store(true, Ordering::Relaxed);
            for outcome in outcomes {
                outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
        });
        assert!(snapshots.load(Ordering::Relaxed) > 2, "{}", way.name);
        let report = db.check().unwrap();
        assert!(report.is_ok(), "{}: {:?}", way.name, report.problems);
        db.close().unwrap();
    }
}

/// A snapshot never shows a commit that a power cut at the same moment would lose.
#[test]
fn nothing_is_shown_that_is_not_durable() {
    for logs in [1, 3] {
        let disk = SimDisk::new(7);
        let options = Options { logs, ..small() };
        let db = Db::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
        let table = db.create_table("t").unwrap();
        for number in 0..200_u64 {
            let mut commits = Vec::new();
            for part in 0..4 {
                let mut txn = db.begin();
                txn.put(&table, &key(number * 4 + part), b"").unwrap();
                commits.push(txn.commit_async());
            }
            let snapshot = db.snapshot().unwrap();
            let shown: Vec<_> = snapshot.scan(&table, ..).map(|record| record.unwrap().0).collect();
            if number % 20 == 3 {
                let copy = disk.crash_image(&CrashChoice::Nothing);
                let restored = Db::open_on(Arc::new(copy), options.clone()).unwrap();
                let again = restored.open_table("t").unwrap();
                let mut txn = restored.begin();
                for key in &shown {
                    assert!(txn.contains(&again, key).unwrap(), "{logs} logs: {key:?} was shown and is lost");
                }
            }
            drop(snapshot);
            for commit in commits {
                commit.wait().unwrap();
            }
            assert_eq!(db.snapshot().unwrap().scan(&table, ..).count() as u64, (number + 1) * 4);
        }
        db.close().unwrap();
    }
}

#[test]
fn a_snapshot_that_needs_too_much_memory_says_so() {
    let options = Options { snapshots: true, version_bytes: Some(256 << 10), ..Options::small() };
    let db = Db::in_memory(options).unwrap();
    let table = db.create_table("t").unwrap();
    for number in 0..2000 {
        db.run(|txn| txn.put(&table, &key(number), &[1; 200])).unwrap();
    }
    db.run(|txn| txn.put(&table, b"large", &[1; 20_000])).unwrap();
    let old = db.snapshot().unwrap();
    let mut cursor = old.cursor(&table, ..);
    assert_eq!(cursor.next().unwrap().unwrap().0, key(0));
    for number in 0..2000 {
        db.run(|txn| txn.put(&table, &key(number), &[2; 200])).unwrap();
    }
    db.run(|txn| txn.put(&table, b"large", b"small")).unwrap();
    let too_old = |result: Result<(), Error>| assert!(matches!(result, Err(Error::SnapshotTooOld { .. })));
    too_old(old.get(&table, &key(1)).map(|_| ()));
    too_old(old.get(&table, b"large").map(|_| ()));
    // What the cursor had read counts.
    let rest = loop {
        match cursor.next() {
            Ok(Some((_, value))) => assert_eq!(value, [1; 200]),
            other => break other.map(|_| ()),
        }
    };
    too_old(rest);
    // It goes on to say so, and shows nothing of later commits.
    too_old(cursor.next().map(|_| ()));
    too_old(old.scan(&table, ..).next().unwrap().map(|_| ()));
    assert_eq!(db.metrics().snapshots_too_old, 1);
    let new = db.snapshot().unwrap();
    assert_eq!(new.scan(&table, ..).filter(|record| record.is_ok()).count(), 2001);
    assert!(db.metrics().version_bytes <= 512 << 10);
}

/// A snapshot protects what it shows only until it is too old. A part lent from its page would then
/// keep the thread that uses the page again waiting: here, the reader itself.
#[test]
fn a_reader_of_parts_may_write_and_make_its_snapshot_too_old() {
    let options = Options { snapshots: true, version_bytes: Some(256 << 10), ..Options::small() };
    let db = Db::in_memory(options).unwrap();
    let table = db.create_table("t").unwrap();
    let value = vec![1; 200_000];
    db.run(|txn| txn.put(&table, b"large", &value)).unwrap();
    for number in 0..2000 {
        db.run(|txn| txn.put(&table, &key(number), &[1; 200])).unwrap();
    }
    let snapshot = db.snapshot().unwrap();
    db.run(|txn| txn.put(&table, b"large", b"small")).unwrap();
    let mut read = 0;
    let found = snapshot.get_in_parts(&table, b"large", |part| {
        assert!(part.iter().all(|byte| *byte == 1));
        if read == 0 {
            for number in 0..2000 {
                db.run(|txn| txn.put(&table, &key(number), &[2; 200])).unwrap();
            }
            db.checkpoint().unwrap();
            let free = db.check().unwrap().free_pages;
            assert!(free >= 20, "{free} pages are free");
            db.run(|txn| (0..free / 20).try_for_each(|n| txn.put(&table, &[n as u8], &[3; 200_000]))).unwrap();
        }
        read += part.len();
        ControlFlow::Continue(())
    });
    assert!(matches!(found, Err(Error::SnapshotTooOld { .. })), "{found:?} after {read} bytes");
    assert_eq!(db.metrics().snapshots_too_old, 1);
    assert!(db.check().unwrap().is_ok());
}

#[test]
fn a_database_without_versions_has_no_snapshots() {
    let db = Db::in_memory(Options { snapshots: false, ..Options::small() }).unwrap();
    assert!(matches!(db.snapshot(), Err(Error::InvalidOption { option: "snapshots", .. })));
    let table = db.create_table("t").unwrap();
    db.run(|txn| txn.put(&table, b"key", b"value")).unwrap();
    db.run(|txn| txn.delete(&table, b"key").map(|_| ())).unwrap();
    let report = db.check().unwrap();
    assert!(report.is_ok() && report.ghosts == 0);
    assert_eq!(db.metrics().version_bytes, 0);
}

#[test]
fn a_snapshot_of_a_closed_database_is_of_no_use() {
    let disk: Arc<SimDisk> = Arc::new(SimDisk::new(1));
    let db = Db::open_on(disk.clone(), small()).unwrap();
    let table = db.create_table("t").unwrap();
    db.run(|txn| txn.put(&table, b"key", &[1; 30_000])).unwrap();
    let snapshot = db.snapshot().unwrap();
    db.run(|txn| txn.delete(&table, b"key").map(|_| ())).unwrap();
    db.close().unwrap();
    assert!(matches!(snapshot.get(&table, b"key"), Err(Error::Closed)));
    drop(snapshot);
    let db = Db::open_on(disk, small()).unwrap();
    assert!(!db.metrics().recovery.was_needed());
    let report = db.check().unwrap();
    assert!(report.is_ok() && report.ghosts == 0, "{:?}", report.problems);
}

/// A log that is smaller than what is written while a snapshot is open.
#[test]
fn what_waits_for_a_snapshot_does_not_keep_the_log() {
    let disk: Arc<SimDisk> = Arc::new(SimDisk::new(1));
    let options = Options { log_max_bytes: 4 << 20, pool_bytes: 2 << 20, ..small() };
    let db = Db::open_on(disk.clone(), options.clone()).unwrap();
    let table = db.create_table("t").unwrap();
    for number in 0..20 {
        db.run(|txn| txn.put(&table, &key(number), &[1; 20_000])).unwrap();
    }
    let snapshot = db.snapshot().unwrap();
    for round in 0..60_u64 {
        for number in 0..20 {
            db.run(|txn| txn.put(&table, &key(number), &[round as u8; 10_000])).unwrap();
        }
    }
    assert_eq!(snapshot.get(&table, &key(7)).unwrap(), Some(vec![1; 20_000]));
    // A crash, while frees wait.
    let copy = Arc::new(disk.crash_image(&CrashChoice::Everything));
    let again = Db::open_on(copy, options).unwrap();
    let report = again.check().unwrap();
    assert!(report.is_ok(), "{:?}", report.problems);
    assert_eq!(report.records, 20);
    assert_eq!(report.pages, again.check().unwrap().pages);
    drop(snapshot);
    assert!(db.check().unwrap().is_ok());
    db.close().unwrap();
}

/// After a crash with instant recovery, a snapshot does not show what losers had written.
#[test]
fn a_snapshot_waits_until_losers_are_undone() {
    let disk = SimDisk::new(1);
    let options = Options { instant_recovery: true, ..small() };
    let db = Db::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
    let table = db.create_table("t").unwrap();
    for number in 0..100 {
        db.run(|txn| txn.put(&table, &key(number), b"committed")).unwrap();
    }
    let mut loser = db.begin();
    for number in 0..100 {
        loser.put(&table, &key(number), b"abandoned").unwrap();
    }
    db.run(|txn| txn.put(&table, b"last", b"")).unwrap();
    let copy = disk.crash_image(&CrashChoice::Nothing);
    let again = Db::open_on(Arc::new(copy), options).unwrap();
    let snapshot = again.snapshot().unwrap();
    let table = snapshot.open_table("t").unwrap();
    for number in 0..100 {
        assert_eq!(snapshot.get(&table, &key(number)).unwrap().as_deref(), Some(&b"committed"[..]));
    }
    drop(loser);
}

#[test]
fn cursors_read_any_range() {
    let db = Db::in_memory(Options { snapshots: true, ..Options::small() }).unwrap();
    let table = db.create_table("t").unwrap();
    for number in 0..2000 {
        db.run(|txn| txn.put(&table, &key(2 * number), &[1; 30])).unwrap();
    }
    let snapshot = db.snapshot().unwrap();
    db.run(|txn| {
        (0..2000).try_for_each(|number| txn.delete(&table, &key(2 * number)).map(|_| ()))?;
        (0..2000).try_for_each(|number| txn.put(&table, &key(2 * number + 1), &[2; 90]))
    })
    .unwrap();
    let mut random = Rng::new(3);
    for _ in 0..300 {
        let (from, to) = (random.below(4100), random.below(4100));
        let keys = |records: duramen::SnapshotScan<'_>| -> Vec<_> { records.map(|record| record.unwrap().0).collect() };
        let even = |range: std::ops::Range<u64>| -> Vec<_> {
            range.filter(|number| number % 2 == 0 && *number < 4000).map(key).collect()
        };
        assert_eq!(keys(snapshot.scan(&table, key(from)..key(to))), even(from..to));
        assert_eq!(keys(snapshot.scan(&table, key(from)..=key(to))), even(from..to + 1));
        let above = (std::ops::Bound::Excluded(key(from)), std::ops::Bound::Unbounded);
        assert_eq!(keys(snapshot.scan(&table, above)), even(from + 1..4000));
    }
    assert_eq!(snapshot.scan(&table, b"z".to_vec()..).count(), 0);
    let parts = snapshot.split(&table, 4).unwrap();
    assert_eq!(parts.len(), 4);
    let sizes: Vec<_> = parts.into_iter().map(|part| snapshot.scan(&table, part).count()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 2000);
    assert!(sizes.iter().all(|size| *size > 200), "{sizes:?}");
}

/// Regression: a transaction whose frees waited for a snapshot kept a block of the journals that it
/// did not count, so a writer looked for a free block for ever.
#[test]
fn what_waits_for_a_snapshot_does_not_take_all_journals() {
    let batches = BatchOptions { log_bytes: Some(MIB), ..BatchOptions::default() };
    let schemes: [fn(HeapOptions, BatchOptions) -> Scheme; 2] =
        [|heap, _| Scheme::InPlace(heap), |heap, batches| Scheme::NvramGroupCommit(heap, batches)];
    for in_heap in schemes {
        let memory = SimMemory::new(32 * MIB, Domain::VolatileCache);
        let heap = HeapOptions {
            journal_bytes: Some(MIB),
            ..HeapOptions::new(Source::Simulated(memory), 32 * MIB, Domain::VolatileCache)
        };
        let scheme = in_heap(heap, batches);
        let commit = CommitMode::Elr;
        let options = Options { commit, scheme, snapshots: true, pool_bytes: 1 << 20, ..Options::default() };
        let (done, waits) = std::sync::mpsc::channel();
        let writer = thread::spawn(move || {
            let db = Db::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
            let table = db.create_table("t").unwrap();
            for number in 0..100 {
                db.run(|txn| txn.put(&table, &key(number), &[1; 10_000])).unwrap();
            }
            let _snapshot = db.snapshot().unwrap();
            // Deletions have small records, so a journal is mostly empty.
            for number in 0..100 {
                db.run(|txn| txn.delete(&table, &key(number)).map(|_| ())).unwrap();
            }
            done.send(db.metrics().snapshots_too_old).unwrap();
        });
        match waits.recv_timeout(Duration::from_secs(100)) {
            Ok(ended) => assert_eq!(ended, 1, "the snapshot gave way"),
            Err(_) if writer.is_finished() => writer.join().unwrap(),
            Err(_) => panic!("the writers wait for ever"),
        }
    }
}
