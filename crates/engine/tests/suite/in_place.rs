//! In-place updates of a heap in persistent memory.

use std::path::Path;

use duramen::pmem::{Domain, Power, SimMemory, Source, Survive, Survivors};
use duramen::{Barriers, Db, Error, HeapOptions, LogDevice, NvmOptions, Options, Residence, Scheme};
use duramen_io::{CrashChoice, SimDisk};
use duramen_sync::Arc;
use duramen_test_support::{Stride, block_on};

use crate::every_scheme;

const MIB: u64 = 1 << 20;

fn in_file(path: &Path, bytes: u64) -> Options {
    let heap = HeapOptions::new(Source::File(path.to_owned()), bytes, Domain::VolatileCache);
    Options { scheme: Scheme::InPlace(HeapOptions { survive: Survive::Process, ..heap }), ..Options::default() }
}

fn in_memory(memory: &SimMemory) -> Options {
    let heap = HeapOptions::new(Source::Simulated(memory.clone()), memory.len(), memory.domain());
    Options { scheme: Scheme::InPlace(heap), pool_bytes: 1 << 20, ..Options::default() }
}

/// How a heap is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Use {
    barriers: Barriers,
    residence: Residence,
}

impl Use {
    fn all() -> impl Iterator<Item = Self> {
        let residences = [Residence::Cached, Residence::Direct];
        residences
            .into_iter()
            .flat_map(|residence| [Barriers::Fewest, Barriers::Paper].map(|barriers| Self { barriers, residence }))
    }

    /// Everything the other way.
    fn other(self) -> Self {
        Self::all().find(|other| other.barriers != self.barriers && other.residence != self.residence).unwrap()
    }

    fn of(self, options: Options) -> Options {
        let Scheme::InPlace(heap) = options.scheme else { panic!("not in a heap") };
        let Self { barriers, residence } = self;
        let pool_bytes = match residence {
            Residence::Cached => options.pool_bytes,
            Residence::Direct => Options::default().pool_bytes,
        };
        Options { scheme: Scheme::InPlace(HeapOptions { barriers, residence, ..heap }), pool_bytes, ..options }
    }
}

fn barriers(db: &Db) -> u64 {
    db.metrics().heap.expect("the database is in a heap").barriers
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
    Use::all().for_each(work_with_large_values);
}

fn work_with_large_values(used: Use) {
    let memory = SimMemory::new(16 * MIB, Domain::VolatileCache);
    let disk = SimDisk::new(1);
    let db = Db::open_on(Arc::new(disk), used.of(in_memory(&memory))).unwrap();
    every_scheme::work_with_large_values(&db);
    let metrics = db.metrics();
    let pages = metrics.heap.unwrap().pages;
    assert_eq!(metrics.pool_pages == pages, used.residence == Residence::Direct, "{pages} pages: {used:?}");
    db.close().unwrap();
}

/// Threads that change the same pages while others read them without latches: a reader sees whole
/// transactions, whatever is copied to and from the heap meanwhile.
#[test]
fn readers_and_writers_share_pages() {
    for used in Use::all() {
        let home = tempfile::tempdir().unwrap();
        let options = used.of(in_file(&home.path().join("heap"), 16 * MIB));
        let db = Db::open(home.path().join("db"), options.clone()).unwrap();
        let table = db.create_table("t").unwrap();
        let sum_of = |db: &Db, table: &duramen::Table| {
            let values: Vec<u64> = db
                .run(|txn| txn.scan(table, ..).map(|found| found.map(|(_, value)| number(&value))).collect())
                .unwrap();
            (values.len(), values.iter().sum::<u64>())
        };
        for key in 0..200_u32 {
            db.run(|txn| txn.put(&table, &key.to_be_bytes(), &value(100, key))).unwrap();
        }
        std::thread::scope(|scope| {
            for thread in 0..3_u32 {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    for round in 0..300_u32 {
                        let (from, to) = ((round * 7 + thread) % 200, (round * 13 + 5 * thread + 1) % 200);
                        if from == to {
                            continue;
                        }
                        db.run(|txn| {
                            let [less, more] = [from, to].map(|key| key.to_be_bytes());
                            let taken = number(&txn.get_for_update(table, &less)?.unwrap()).min(1);
                            let before = number(&txn.get_for_update(table, &less)?.unwrap());
                            txn.put(table, &less, &value(before - taken, round))?;
                            let before = number(&txn.get_for_update(table, &more)?.unwrap());
                            txn.put(table, &more, &value(before + taken, round))
                        })
                        .unwrap();
                    }
                });
            }
            let (db, table) = (&db, &table);
            scope.spawn(move || (0..40).for_each(|_| assert_eq!(sum_of(db, table), (200, 20_000), "{used:?}")));
        });
        // As a kill would.
        drop(db);
        let db = Db::open(home.path().join("db"), used.other().of(in_file(&home.path().join("heap"), 16 * MIB)));
        let db = db.unwrap();
        assert_eq!(sum_of(&db, &db.open_table("t").unwrap()), (200, 20_000), "{used:?}");
        assert!(db.check().unwrap().is_ok());
    }
}

/// A value whose length varies, so that records move within their pages.
fn value(number: u64, length: u32) -> Vec<u8> {
    [&number.to_le_bytes()[..], &vec![7; length as usize % 90]].concat()
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

/// With the fewest barriers exactly two for each change, with those of the paper six; one for the
/// commit.
#[test]
fn barriers_are_counted() {
    for used in Use::all() {
        count_barriers(used, if used.barriers == Barriers::Paper { 6 } else { 2 });
    }
}

fn count_barriers(used: Use, each: u64) {
    let memory = SimMemory::new(16 * MIB, Domain::VolatileCache);
    let options = used.of(in_memory(&memory));
    let db = Db::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
    let table = db.create_table("t").unwrap();
    db.run(|txn| txn.put(&table, b"key", b"value")).unwrap();
    for changes in [1, 2, 10] {
        let before = barriers(&db);
        let mut txn = db.begin();
        for _ in 0..changes {
            txn.put(&table, b"key", b"other").unwrap();
        }
        assert_eq!(barriers(&db) - before, each * changes);
        txn.commit().unwrap();
        assert_eq!(barriers(&db) - before, each * changes + 1);
    }
    let before = barriers(&db);
    let mut txn = db.begin();
    txn.put(&table, b"key", b"undone").unwrap();
    txn.abort().unwrap();
    assert_eq!(barriers(&db) - before, each + each + 1);
    let before = barriers(&db);
    let mut txn = db.begin();
    txn.get(&table, b"key").unwrap();
    txn.commit().unwrap();
    assert_eq!(barriers(&db), before, "readers need none");
    // Nothing but changes of transactions and of the engine itself, deferred frees and commits: a
    // change of the engine is never undone, so the paper's protocol saves its undo entry.
    let (before, changes) = (barriers(&db), db.metrics().heap.unwrap().changes);
    let mut txn = db.begin();
    for number in 0..500_u32 {
        txn.put(&table, &number.to_be_bytes(), &[3; 100]).unwrap();
    }
    let changes = db.metrics().heap.unwrap().changes - changes;
    let splits = changes - 500;
    assert!(splits > 5, "{splits}");
    let of_split = if used.barriers == Barriers::Paper { 4 } else { 2 };
    assert_eq!(barriers(&db) - before, each * 500 + of_split * splits);
    txn.commit().unwrap();
}

/// A transaction that does not fit the journals is refused while it can still be rolled back.
#[test]
fn a_transaction_that_is_too_long_is_refused_and_rolled_back() {
    let memory = SimMemory::new(4 * MIB, Domain::DurableCache);
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
    let heap = db.metrics().heap.unwrap();
    assert_eq!(heap.journal_bytes, heap.journal_bytes_free);
}

#[test]
fn a_full_heap_refuses_and_a_larger_one_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("heap");
    let db = Db::open(home.path().join("db"), in_file(&path, 2 * MIB)).unwrap();
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
    let db = Db::open(home.path().join("db"), in_file(&path, 8 * MIB)).unwrap();
    let table = db.open_table("t").unwrap();
    for more in 0..1000 {
        db.run(|txn| txn.put(&table, &(number + more).to_be_bytes(), &[3; 1000])).unwrap();
    }
    assert!(db.check().unwrap().is_ok());
    db.close().unwrap();
    // A smaller number does not make it shrink.
    let db = Db::open(home.path().join("db"), in_file(&path, 2 * MIB)).unwrap();
    assert_eq!(db.begin().scan(&db.open_table("t").unwrap(), ..).count(), number as usize + 1000);
}

/// A sample of the moments of a short run (in the long suite all), in both domains, with every kind
/// of image. The next opening uses the same barriers or the others.
#[test]
fn a_power_cut_at_any_operation_leaves_whole_transactions() {
    for (domain, used) in combinations() {
        let (_, whole, first, _) = run_until(domain, used, None);
        let operations = whole.operations() - first;
        for at in Stride::sampled("power cuts in a heap", 1, 19).until(operations) {
            let (disk, memory, _, acknowledged) = run_until(domain, used, Some(at));
            assert!(memory.is_off(), "{domain}, {used:?}, operation {at} of {operations}");
            for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Random(at), Survivors::Random(!at)]
            {
                let memory = memory.crash_image(survivors, None);
                let disk = disk.crash_image(&CrashChoice::Everything);
                let next = if at % 2 == 0 { used } else { used.other() };
                let place = format!("{domain}, {used:?}, operation {at}, {survivors:?}, then {next:?}");
                assert_whole(&disk, &memory, next, acknowledged, &place);
            }
        }
    }
}

/// A sample of the moments of the recovery of a transaction with several changes of one page, the
/// latest of which is recorded and, with the barriers of the paper, not made.
#[test]
fn a_power_cut_during_recovery_leaves_whole_transactions() {
    for (domain, used) in combinations() {
        let (_, whole, first, _) = run_until(domain, used, None);
        let operations = whole.operations() - first;
        for at in Stride::sampled("power cuts during recovery in a heap", 5, 10).until(operations) {
            let (disk, memory, _, acknowledged) = run_until(domain, used, Some(at));
            let disk = disk.crash_image(&CrashChoice::Everything);
            let left = memory.crash_image(Survivors::Random(at), None);
            let mut cut = at % 13;
            loop {
                let disk = disk.crash_image(&CrashChoice::Everything);
                let power: Arc<dyn Power> = Arc::new(PowerOf(disk.clone()));
                let memory = left.crash_image(Survivors::Everything, Some(power));
                memory.crash_at(memory.operations() + cut);
                drop(Db::open_on(Arc::new(disk.clone()), used.of(in_memory(&memory))));
                if !memory.is_off() {
                    break;
                }
                let memory = memory.crash_image(Survivors::Random(at + cut), None);
                let disk = disk.crash_image(&CrashChoice::Random(at));
                let next = if cut % 2 == 0 { used } else { used.other() };
                let place = format!("{domain}, {used:?}, operation {at}, cut again after {cut}, then {next:?}");
                assert_whole(&disk, &memory, next, acknowledged, &place);
                cut += 13;
            }
        }
    }
}

/// The power of a disk, which a memory shares.
struct PowerOf(SimDisk);

impl Power for PowerOf {
    fn is_on(&self) -> bool {
        self.0.crashed_in().is_none()
    }

    fn cut(&self) {
        self.0.crash();
    }
}

fn combinations() -> impl Iterator<Item = (Domain, Use)> {
    let domains = [Domain::DurableCache, Domain::VolatileCache];
    domains.into_iter().flat_map(|domain| Use::all().map(move |used| (domain, used)))
}

/// Opens what a crash left and checks that it has the transactions that were acknowledged, and
/// perhaps one more, as a whole.
fn assert_whole(disk: &SimDisk, memory: &SimMemory, used: Use, acknowledged: u32, place: &str) {
    let options = used.of(in_memory(memory));
    let db = Db::open_on(Arc::new(disk.clone()), options).unwrap_or_else(|error| panic!("{place}: {error}"));
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    let read = |txn: &mut duramen::Txn, key: &[u8]| {
        txn.get(&table, key).unwrap().map(|value| u32::from_le_bytes(value[..4].try_into().unwrap()))
    };
    let (one, two) = (read(&mut txn, b"one"), read(&mut txn, b"two"));
    assert_eq!(one, two, "{place}");
    let found = one.map_or(0, |number| number + 1);
    assert!(found == acknowledged || found == acknowledged + 1, "{place}: {found} of {acknowledged}");
}

/// Runs transactions; the power goes off `at` operations after the table has been made. Returns at
/// which operation that was, and how many transactions were acknowledged before the power went off.
fn run_until(domain: Domain, used: Use, at: Option<u64>) -> (SimDisk, SimMemory, u64, u32) {
    let disk = SimDisk::new(1);
    let memory = SimMemory::new(2 * MIB, domain);
    let db = Db::open_on(Arc::new(disk.clone()), used.of(in_memory(&memory))).unwrap();
    let table = db.create_table("t").unwrap();
    let first = memory.operations();
    if let Some(at) = at {
        memory.crash_at(first + at);
    }
    let mut acknowledged = 0;
    for number in 0..6_u32 {
        let mut txn = db.begin();
        txn.put(&table, b"one", &number.to_le_bytes().repeat(1 + number as usize * 20)).unwrap();
        if number == 2 {
            txn.put(&table, b"one", b"overwritten").unwrap();
            txn.put(&table, b"one", &number.to_le_bytes()).unwrap();
        }
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
    let nvm = NvmOptions::new(Source::Anonymous, Domain::VolatileCache);
    for (option, options) in [
        ("commit", Options { commit: duramen::CommitMode::Async, ..good.clone() }),
        ("log_insert", Options { log_insert: duramen::InsertDesign::Mutex, ..good.clone() }),
        ("logs", Options { logs: 2, ..good.clone() }),
        ("log_device", Options { log_device: LogDevice::Nvm(nvm), ..good.clone() }),
        ("archive", Options { archive: Some(duramen::Archive::at(home.path().join("a")).unwrap()), ..good.clone() }),
        ("cleaner_pages_per_second", Options { cleaner_pages_per_second: Some(5), ..good.clone() }),
        ("dirty_pages", Options { dirty_pages: Some(100), ..good.clone() }),
        ("checkpoint_bytes", Options { checkpoint_bytes: Some(1 << 20), ..good.clone() }),
        ("recovery_target", Options { recovery_target: Some(Options::RECOVERY_TARGET), ..good.clone() }),
        ("log", Options { log_max_bytes: 1 << 30, ..good.clone() }),
        ("group_commit", Options { group_commit_transactions: 5, ..good.clone() }),
        ("recovery_threads", Options { recovery_threads: Some(2), ..good.clone() }),
        ("instant_recovery", Options { instant_recovery: true, ..good.clone() }),
        ("redo_memory_bytes", Options { redo_memory_bytes: Some(1 << 20), ..good.clone() }),
        ("scheme", in_file(&path, 1000)),
        ("scheme", in_file(&path, u64::MAX)),
        ("scheme", {
            let heap = HeapOptions::new(Source::Anonymous, 4 * MIB, Domain::VolatileCache);
            Options { scheme: Scheme::InPlace(HeapOptions { survive: Survive::Nothing, ..heap }), ..Options::default() }
        }),
        // This memory does not survive a power cut.
        ("scheme", {
            let heap = HeapOptions::new(Source::File(path.clone()), 4 * MIB, Domain::VolatileCache);
            Options { scheme: Scheme::InPlace(heap), ..Options::default() }
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

/// A commit that nobody has waited for is durable, too: nothing is left to wait for.
#[test]
fn asynchronous_commits_are_done_at_once() {
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
        assert!(commit.is_done());
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
    assert!((0..100).all(|_| outcomes.recv_timeout(std::time::Duration::from_secs(60)).unwrap().is_ok()));
    // As a kill would.
    drop(db);
    let db = Db::open(home.path().join("db"), options).unwrap();
    assert_eq!(db.begin().scan(&db.open_table("t").unwrap(), ..).count(), 400);
    db.close().unwrap();
}
