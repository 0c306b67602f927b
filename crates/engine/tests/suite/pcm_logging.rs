//! PCMLogging: changed pages in persistent memory above the data file, which are the log, too.

use std::path::Path;

use duramen::pmem::{Domain, Power, SimMemory, Source, Survive, Survivors};
use duramen::{
    Barriers, Db, Error, Granularity, LogDevice, NvmOptions, Options, PcmMetrics, PcmOptions, Scheme, TierOptions,
};
use duramen_io::{CrashChoice, Fault, SimDisk};
use duramen_sync::Arc;
use duramen_test_support::{Stride, block_on, is_long};

use crate::every_scheme;

const MIB: u64 = 1 << 20;

/// A protocol, and what a transaction stores at its end.
type Way = (Barriers, Granularity);

const WAYS: [Way; 4] = [
    (Barriers::Fewest, Granularity::Page),
    (Barriers::Paper, Granularity::Page),
    (Barriers::Fewest, Granularity::Tuple),
    (Barriers::Paper, Granularity::Tuple),
];

const FEWEST: [Way; 2] = [WAYS[0], WAYS[2]];

fn in_file(path: &Path, bytes: u64) -> Options {
    let pcm = PcmOptions::new(Source::File(path.to_owned()), bytes, Domain::VolatileCache);
    let pcm = PcmOptions { survive: Survive::Process, ..pcm };
    Options { scheme: Scheme::PcmLogging(pcm), pool_bytes: 1 << 20, ..Options::default() }
}

fn in_memory(memory: &SimMemory, (barriers, granularity): Way) -> Options {
    let pcm = PcmOptions::new(Source::Simulated(memory.clone()), memory.len(), memory.domain());
    Options {
        scheme: Scheme::PcmLogging(PcmOptions { barriers, granularity, ..pcm }),
        pool_bytes: 1 << 20,
        ..Options::default()
    }
}

fn pcm_of(db: &Db) -> PcmMetrics {
    db.metrics().pcm.expect("the database has PCM")
}

/// Regression: the file of the smallest memory has whole slots only, and was refused as too short.
#[test]
fn the_smallest_memory_is_opened_again() {
    let home = tempfile::tempdir().unwrap();
    let options = in_file(&home.path().join("pcm"), PcmOptions::LEAST_BYTES);
    for life in 0..3_u8 {
        let db = Db::open(home.path().join("db"), options.clone()).unwrap();
        let table = db.table("t").unwrap();
        db.run(|txn| txn.put(&table, &[life], b"here")).unwrap();
        assert_eq!(db.begin().scan(&table, ..).count(), usize::from(life) + 1);
        db.close().unwrap();
    }
}

/// The other protocol with the other granularity: what one has left, the other reads.
fn other(way: Way) -> Way {
    WAYS[3 - WAYS.iter().position(|some| *some == way).unwrap()]
}

#[test]
fn what_is_committed_is_there_after_closing_and_after_a_kill() {
    let home = tempfile::tempdir().unwrap();
    let options = in_file(&home.path().join("pcm"), 4 * MIB);
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
        assert_eq!(txn.scan(&table, ..).count(), 2000 + round);
        txn.put(&table, b"one more", b"").unwrap();
        txn.commit().unwrap();
        assert!(db.check().unwrap().is_ok());
        // Without closing.
        drop(db);
    }
}

#[test]
fn large_values_dropped_tables_and_savepoints_work() {
    for way in FEWEST {
        let memory = SimMemory::new(2 * MIB, Domain::VolatileCache);
        let disk = SimDisk::new(1);
        let db = Db::open_on(Arc::new(disk), in_memory(&memory, way)).unwrap();
        every_scheme::work_with_large_values(&db);
        db.close().unwrap();
    }
}

/// Two barriers for a commit and three with the paper's protocol, however many pages it has
/// changed; as many for a rollback; none for a reader.
#[test]
fn barriers_are_counted() {
    for (way, each) in WAYS.into_iter().zip([2, 3, 2, 3]) {
        let memory = SimMemory::new(8 * MIB, Domain::VolatileCache);
        let db = Db::open_on(Arc::new(SimDisk::new(1)), in_memory(&memory, way)).unwrap();
        let table = db.create_table("t").unwrap();
        for number in 0..500_u32 {
            db.run(|txn| txn.put(&table, &number.to_be_bytes(), &[3; 100])).unwrap();
        }
        for changes in [1, 2, 10] {
            let before = pcm_of(&db);
            let mut txn = db.begin();
            for number in 0..changes {
                txn.put(&table, &(number * 40_u32).to_be_bytes(), &[4; 100]).unwrap();
            }
            assert_eq!(pcm_of(&db).barriers, before.barriers);
            txn.commit().unwrap();
            assert_eq!(pcm_of(&db).barriers - before.barriers, each, "{way:?}, {changes} changes");
            assert!(pcm_of(&db).written - before.written <= changes.into());
        }
        let before = pcm_of(&db).barriers;
        let mut txn = db.begin();
        txn.put(&table, &7_u32.to_be_bytes(), b"undone").unwrap();
        txn.abort().unwrap();
        assert_eq!(pcm_of(&db).barriers - before, each, "{way:?}");
        let before = pcm_of(&db).barriers;
        let mut txn = db.begin();
        txn.get(&table, &7_u32.to_be_bytes()).unwrap();
        txn.commit().unwrap();
        assert_eq!(pcm_of(&db).barriers, before, "readers need none");
        // A page with changes of other transactions costs no more.
        let mut one = db.begin();
        one.put(&table, &7_u32.to_be_bytes(), b"first").unwrap();
        let mut two = db.begin();
        two.put(&table, &8_u32.to_be_bytes(), b"second").unwrap();
        let before = pcm_of(&db).barriers;
        one.commit().unwrap();
        assert_eq!(pcm_of(&db).barriers - before, each, "{way:?}");
        two.commit().unwrap();
    }
}

/// A transaction whose leaves come from splits of its own leaves hardly reserved anything: all
/// slots were in use before it was refused, which put the database out of service.
#[test]
fn a_transaction_that_splits_its_leaves_is_refused_in_time() {
    for way in FEWEST {
        let memory = SimMemory::new(8 * MIB, Domain::VolatileCache);
        let db = Db::open_on(Arc::new(SimDisk::new(1)), in_memory(&memory, way)).unwrap();
        let table = db.create_table("t").unwrap();
        db.run(|txn| txn.put(&table, b"kept", b"")).unwrap();
        let mut txn = db.begin();
        // Descending, so that a split leaves nearly all rows of the leaf to the new one.
        let refused = (0..20_000_u32).rev().find_map(|number| txn.put(&table, &number.to_be_bytes(), &[1; 1000]).err());
        assert!(matches!(refused, Some(Error::Full { .. })), "{way:?}: {refused:?}");
        txn.abort().unwrap();
        db.run(|txn| txn.put(&table, b"later", b"")).unwrap();
        assert_eq!(db.begin().scan(&table, ..).count(), 2);
        assert!(db.check().unwrap().is_ok());
        db.close().unwrap();
    }
}

/// The data is many times as large as the PCM, and the PCM as the pool.
#[test]
fn pages_go_on_to_the_data_file_and_come_back() {
    let rows = if is_long() { 12_000_u32 } else { 2_500 };
    for way in WAYS {
        let memory = SimMemory::new(2 * MIB, Domain::VolatileCache);
        let disk = SimDisk::new(1);
        let db = Db::open_on(Arc::new(disk.clone()), in_memory(&memory, way)).unwrap();
        let table = db.create_table("t").unwrap();
        let key = |number: u32| number.wrapping_mul(0x9E37_79B9).to_be_bytes();
        for number in 0..rows {
            db.run(|txn| txn.put(&table, &key(number), &number.to_le_bytes().repeat(350))).unwrap();
        }
        let mut open = db.begin();
        open.put(&table, &key(5), b"never committed").unwrap();
        let pcm = pcm_of(&db);
        assert!(pcm.written_back > 500 && pcm.misses > 500 && pcm.hits > 10, "{pcm:?}");
        let (disk, memory) = (disk.crash_image(&CrashChoice::Nothing), memory.crash_image(Survivors::Nothing, None));
        let db = Db::open_on(Arc::new(disk), in_memory(&memory, other(way))).unwrap();
        let table = db.open_table("t").unwrap();
        let mut txn = db.begin();
        for number in 0..rows {
            let value = txn.get(&table, &key(number)).unwrap();
            assert_eq!(value.as_deref(), Some(&number.to_le_bytes().repeat(350)[..]), "{number}");
        }
        drop(txn);
        assert!(db.check().unwrap().is_ok());
        drop(open);
    }
}

/// A transaction that does not fit the PCM is refused while it can still be rolled back.
#[test]
fn a_transaction_that_is_too_long_is_refused_and_rolled_back() {
    for way in FEWEST {
        let memory = SimMemory::new(MIB, Domain::DurableCache);
        let db = Db::open_on(Arc::new(SimDisk::new(1)), in_memory(&memory, way)).unwrap();
        let table = db.create_table("t").unwrap();
        for number in 0..2000_u32 {
            db.run(|txn| txn.put(&table, &number.to_be_bytes(), &[1; 500])).unwrap();
        }
        for _ in 0..2 {
            let mut txn = db.begin();
            let mut count = 0_u32;
            let refused = loop {
                match txn.put(&table, &(count * 13 % 2000).to_be_bytes(), &[2; 490]) {
                    Ok(()) => count += 1,
                    Err(error) => break error,
                }
            };
            assert!(matches!(&refused, Error::Full { reason } if reason.contains("PCM")), "{refused}");
            assert!(count > 20, "{count}");
            txn.abort().unwrap();
            let mut txn = db.begin();
            assert!((0..2000_u32).all(|number| txn.get(&table, &number.to_be_bytes()).unwrap().unwrap() == [1; 500]));
            txn.put(&table, b"key", b"fits").unwrap();
            txn.commit().unwrap();
        }
        assert!(db.check().unwrap().is_ok());
    }
}

/// Regression: the rollback of a transaction that had changed nearly all pages of a large PCM found
/// no slots for the batches in which a small pool writes them, and poisoned the database.
#[test]
fn a_transaction_over_all_of_a_large_pcm_is_rolled_back() {
    for way in FEWEST {
        let memory = SimMemory::new(8 * MIB, Domain::DurableCache);
        let db = Db::open_on(Arc::new(SimDisk::new(1)), in_memory(&memory, way)).unwrap();
        let table = db.create_table("t").unwrap();
        let keys = || (0..6000_u32).map(u32::to_be_bytes);
        // Five rows in a leaf.
        for key in keys() {
            db.run(|txn| txn.put(&table, &key, &[1; 1500])).unwrap();
        }
        for rounds in 0..2 {
            let mut txn = db.begin();
            let refused = keys().step_by(4).find_map(|key| txn.update(&table, &key, &[2; 1500]).err());
            assert!(matches!(&refused, Some(Error::Full { reason }) if reason.contains("PCM")), "{refused:?}");
            txn.abort().unwrap();
            let mut txn = db.begin();
            assert!(keys().all(|key| txn.get(&table, &key).unwrap().unwrap() == [1; 1500]));
            txn.commit().unwrap();
            db.run(|txn| txn.put(&table, b"key", &[rounds])).unwrap();
        }
        assert!(db.check().unwrap().is_ok());
    }
}

/// A transaction that writes much more than the PCM holds, in large values, is none that is too
/// long: only pages with records have to stay.
#[test]
fn large_values_may_be_larger_than_the_pcm() {
    for way in FEWEST {
        let memory = SimMemory::new(MIB, Domain::DurableCache);
        let disk = SimDisk::new(1);
        let db = Db::open_on(Arc::new(disk.clone()), in_memory(&memory, way)).unwrap();
        let table = db.create_table("t").unwrap();
        let large = vec![9; 5 << 20];
        db.run(|txn| txn.put(&table, b"large", &large)).unwrap();
        let (disk, memory) = (disk.crash_image(&CrashChoice::Nothing), memory.crash_image(Survivors::Nothing, None));
        let db = Db::open_on(Arc::new(disk), in_memory(&memory, way)).unwrap();
        let table = db.open_table("t").unwrap();
        assert_eq!(db.run(|txn| txn.get(&table, b"large")).unwrap().unwrap(), large);
        db.run(|txn| txn.delete(&table, b"large")).unwrap();
        assert!(db.check().unwrap().is_ok());
    }
}

/// A page that is durable because of one transaction has changes of another one, which is lost.
#[test]
fn changes_beside_committed_ones_are_discarded() {
    for (way, domain) in WAYS.into_iter().zip([Domain::DurableCache, Domain::VolatileCache].repeat(2)) {
        let memory = SimMemory::new(2 * MIB, domain);
        let disk = SimDisk::new(1);
        let db = Db::open_on(Arc::new(disk.clone()), in_memory(&memory, way)).unwrap();
        let table = db.create_table("t").unwrap();
        let mut txn = db.begin();
        for key in ["changed", "deleted", "shorter"] {
            txn.put(&table, key.as_bytes(), b"before").unwrap();
        }
        txn.commit().unwrap();
        let mut loser = db.begin();
        loser.put(&table, b"changed", b"by the loser, and longer").unwrap();
        loser.delete(&table, b"deleted").unwrap();
        loser.put(&table, b"inserted", b"by the loser").unwrap();
        loser.put(&table, b"shorter", b"b").unwrap();
        loser.put(&table, b"shorter", b"").unwrap();
        loser.put(&table, b"large", &[5; 20_000]).unwrap();
        db.run(|txn| txn.put(&table, b"committed", b"value")).unwrap();
        let (disk, memory) = (disk.crash_image(&CrashChoice::Nothing), memory.crash_image(Survivors::Nothing, None));
        let db = Db::open_on(Arc::new(disk), in_memory(&memory, way)).unwrap();
        let metrics = db.metrics();
        // Of tuples, only those that count are there.
        assert_eq!(metrics.recovery.losers, u64::from(way.1 == Granularity::Page));
        assert_eq!(metrics.page_reads, 0, "recovery reads no page");
        let table = db.open_table("t").unwrap();
        let mut txn = db.begin();
        let found: Vec<(Vec<u8>, Vec<u8>)> = txn.scan(&table, ..).map(Result::unwrap).collect();
        let of = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        let before = ["changed", "deleted", "shorter"].map(|key| of(key, "before"));
        let expected = [before[0].clone(), of("committed", "value"), before[1].clone(), before[2].clone()];
        assert_eq!(found, expected);
        drop(txn);
        assert!(db.check().unwrap().is_ok());
        drop(loser);
    }
}

/// A loser has made values shorter, and others have used the space, so that the values do not fit
/// back into their page.
#[test]
fn values_that_do_not_fit_back_are_rolled_back_with_a_split() {
    for way in WAYS {
        let memory = SimMemory::new(2 * MIB, Domain::VolatileCache);
        let disk = SimDisk::new(1);
        let db = Db::open_on(Arc::new(disk.clone()), in_memory(&memory, way)).unwrap();
        let table = db.create_table("t").unwrap();
        for number in 0..5_u8 {
            db.run(|txn| txn.put(&table, &[number], &[number; 1400])).unwrap();
        }
        let mut loser = db.begin();
        (0..5_u8).for_each(|number| loser.put(&table, &[number], b"short").unwrap());
        for number in 10..14_u8 {
            db.run(|txn| txn.put(&table, &[number], &[number; 1400])).unwrap();
        }
        let mut image = (disk.crash_image(&CrashChoice::Nothing), memory.crash_image(Survivors::Nothing, None));
        drop(loser);
        // The rollback is interrupted, again and again, by a power cut at a later operation.
        let mut cut = 0;
        loop {
            let disk = image.0.crash_image(&CrashChoice::Everything);
            let power: Arc<dyn Power> = Arc::new(PowerOf(disk.clone()));
            let memory = image.1.crash_image(Survivors::Everything, Some(power));
            memory.crash_at(memory.operations() + cut);
            drop(Db::open_on(Arc::new(disk.clone()), in_memory(&memory, way)));
            if !memory.is_off() {
                break;
            }
            image = (disk.crash_image(&CrashChoice::Random(cut)), memory.crash_image(Survivors::Random(cut), None));
            cut += 97;
        }
        assert!(cut > 1000, "{cut}");
        let db = Db::open_on(Arc::new(image.0), in_memory(&image.1, way)).unwrap();
        let table = db.open_table("t").unwrap();
        let mut txn = db.begin();
        for number in (0..5_u8).chain(10..14) {
            assert_eq!(txn.get(&table, &[number]).unwrap().as_deref(), Some(&[number; 1400][..]), "{number}");
        }
        drop(txn);
        assert!(db.check().unwrap().is_ok());
    }
}

/// A sample of the moments of a short run (in the long suite all), in both domains, with every kind
/// of image. The next opening uses the same barriers or the others.
#[test]
fn a_power_cut_at_any_operation_leaves_whole_transactions() {
    for (domain, way) in combinations() {
        let (_, whole, first, _) = run_until(domain, way, None);
        let operations = whole.operations() - first;
        for at in Stride::sampled("power cuts of pcm-logging", 1, 31).until(operations) {
            let (disk, memory, _, acknowledged) = run_until(domain, way, Some(at));
            assert!(memory.is_off(), "{domain}, {way:?}, operation {at} of {operations}");
            for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Random(at), Survivors::Random(!at)]
            {
                let memory = memory.crash_image(survivors, None);
                let disk = disk.crash_image(&CrashChoice::Everything);
                let next = if at % 2 == 0 { way } else { other(way) };
                let place = format!("{domain}, {way:?}, operation {at}, {survivors:?}, then {next:?}");
                assert_whole(&disk, &memory, next, acknowledged, &place);
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

fn combinations() -> impl Iterator<Item = (Domain, Way)> {
    [Domain::DurableCache, Domain::VolatileCache].into_iter().flat_map(|domain| WAYS.map(|way| (domain, way)))
}

/// Opens what a crash left and checks that it has the transactions that were acknowledged, and
/// perhaps one more, as a whole.
fn assert_whole(disk: &SimDisk, memory: &SimMemory, way: Way, acknowledged: u32, place: &str) {
    let options = in_memory(memory, way);
    let db = Db::open_on(Arc::new(disk.clone()), options).unwrap_or_else(|error| panic!("{place}: {error}"));
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    let read = |txn: &mut duramen::Txn, key: &[u8]| {
        txn.get(&table, key).unwrap().map(|value| u32::from_le_bytes(value[..4].try_into().unwrap()))
    };
    let (one, two) = (read(&mut txn, b"one"), read(&mut txn, b"two"));
    assert_eq!(one, two, "{place}");
    assert_eq!(read(&mut txn, b"beside"), None, "{place}");
    let found = one.map_or(0, |number| number + 1);
    assert!(found == acknowledged || found == acknowledged + 1, "{place}: {found} of {acknowledged}");
}

/// Runs transactions beside one that never commits; the power goes off `at` operations after the
/// table has been made. Returns at which operation that was, and how many transactions were
/// acknowledged before the power went off.
fn run_until(domain: Domain, way: Way, at: Option<u64>) -> (SimDisk, SimMemory, u64, u32) {
    let disk = SimDisk::new(1);
    let memory = SimMemory::new(MIB, domain);
    let db = Db::open_on(Arc::new(disk.clone()), in_memory(&memory, way)).unwrap();
    let table = db.create_table("t").unwrap();
    let first = memory.operations();
    if let Some(at) = at {
        memory.crash_at(first + at);
    }
    let mut beside = db.begin();
    beside.put(&table, b"beside", b"never committed").unwrap();
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
    // It stays in the database that has crashed.
    std::mem::forget(beside);
    (disk, memory, first, acknowledged)
}

/// Threads that change the same pages: a reader sees whole transactions, also after a kill.
#[test]
fn readers_and_writers_share_pages() {
    for way in WAYS {
        let memory = SimMemory::new(2 * MIB, Domain::VolatileCache);
        let disk = SimDisk::new(1);
        let db = Db::open_on(Arc::new(disk.clone()), in_memory(&memory, way)).unwrap();
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
                    for round in 0..200_u32 {
                        let (from, to) = ((round * 7 + thread) % 200, (round * 13 + 5 * thread + 1) % 200);
                        if from == to {
                            continue;
                        }
                        db.run(|txn| {
                            let [less, more] = [from, to].map(|key| key.to_be_bytes());
                            let before = number(&txn.get_for_update(table, &less)?.unwrap());
                            let taken = before.min(1);
                            txn.put(table, &less, &value(before - taken, round))?;
                            let before = number(&txn.get_for_update(table, &more)?.unwrap());
                            txn.put(table, &more, &value(before + taken, round))
                        })
                        .unwrap();
                    }
                });
            }
            let (db, table) = (&db, &table);
            scope.spawn(move || (0..30).for_each(|_| assert_eq!(sum_of(db, table), (200, 20_000), "{way:?}")));
        });
        let (disk, memory) = (disk.crash_image(&CrashChoice::Nothing), memory.crash_image(Survivors::Nothing, None));
        let db = Db::open_on(Arc::new(disk), in_memory(&memory, other(way))).unwrap();
        assert_eq!(sum_of(&db, &db.open_table("t").unwrap()), (200, 20_000), "{way:?}");
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

#[test]
fn what_needs_a_log_is_refused_before_anything_is_made() {
    let home = tempfile::tempdir().unwrap();
    let (dir, path) = (home.path().join("db"), home.path().join("pcm"));
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
        ("page_tier", Options { page_tier: Some(TierOptions::at_home(1 << 20)), ..good.clone() }),
        ("scheme", in_file(&path, 1000)),
        ("scheme", in_file(&path, u64::MAX)),
        ("scheme", {
            let pcm = PcmOptions::new(Source::Anonymous, 4 * MIB, Domain::VolatileCache);
            let pcm = PcmOptions { survive: Survive::Nothing, ..pcm };
            Options { scheme: Scheme::PcmLogging(pcm), ..Options::default() }
        }),
        // This memory does not survive a power cut.
        ("scheme", {
            let pcm = PcmOptions::new(Source::File(path.clone()), 4 * MIB, Domain::VolatileCache);
            Options { scheme: Scheme::PcmLogging(pcm), ..Options::default() }
        }),
        ("scheme", in_file(Path::new(""), 4 * MIB)),
        ("scheme", in_file(&dir.join("data"), 4 * MIB)),
    ] {
        match Db::open(&dir, options) {
            Err(Error::InvalidOption { option: found, .. }) => assert_eq!(found, option),
            other => panic!("{option}: {other:?}"),
        }
        assert!(!dir.exists() && !path.exists(), "{option}");
    }
    let db = Db::open(&dir, good.clone()).unwrap();
    match db.backup(home.path().join("copy"), |_| {}) {
        Err(Error::InvalidOption { option: "backup", .. }) => {}
        other => panic!("{other:?}"),
    }
    db.close().unwrap();
    // The scheme of a database does not change.
    match Db::open(&dir, Options { pool_bytes: 1 << 20, ..Options::default() }) {
        Err(Error::InvalidOption { option: "scheme", .. }) => {}
        other => panic!("{other:?}"),
    }
}

/// The memory belongs to one database and one generation of its files; without it, the database is
/// not opened.
#[test]
fn a_wrong_or_missing_pcm_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let paths = ["one", "two"].map(|name| (home.path().join(name), home.path().join(format!("{name}.pcm"))));
    for (dir, pcm) in &paths {
        let db = Db::open(dir, in_file(pcm, 2 * MIB)).unwrap();
        db.create_table("t").unwrap();
        db.close().unwrap();
    }
    let [(dir, pcm), (_, foreign)] = &paths;
    let old = home.path().join("old");
    std::fs::copy(pcm, &old).unwrap();
    for _ in 0..2 {
        Db::open(dir, in_file(pcm, 2 * MIB)).unwrap().close().unwrap();
    }
    for (path, word) in [(foreign, "another database"), (&old, "older"), (&home.path().join("none"), "does not exist")]
    {
        let refused = Db::open(dir, in_file(path, 2 * MIB)).unwrap_err().to_string();
        assert!(refused.contains(word), "{refused}");
    }
    // It grows, and does not shrink.
    for bytes in [8 * MIB, 2 * MIB] {
        let db = Db::open(dir, in_file(pcm, bytes)).unwrap();
        assert!(pcm_of(&db).slots > 800);
        db.open_table("t").unwrap();
        db.close().unwrap();
    }
    let new = home.path().join("three");
    let refused = Db::open(&new, in_file(pcm, 2 * MIB)).unwrap_err().to_string();
    assert!(refused.contains("is the PCM of a database") && !new.join("control").exists(), "{refused}");
}

/// A commit that nobody has waited for is durable, too: nothing is left to wait for.
#[test]
fn asynchronous_commits_are_done_at_once() {
    let home = tempfile::tempdir().unwrap();
    let options = in_file(&home.path().join("pcm"), 4 * MIB);
    let options = Options { commit: duramen::CommitMode::Pipelined, ..options };
    let db = Db::open(home.path().join("db"), options.clone()).unwrap();
    let table = db.create_table("t").unwrap();
    for number in 0..200_u32 {
        let mut txn = db.begin();
        txn.put(&table, &number.to_be_bytes(), b"value").unwrap();
        let commit = txn.commit_async();
        assert!(commit.is_done());
        match number % 3 {
            0 => commit.wait().unwrap(),
            1 => block_on(commit).unwrap(),
            _ => drop(commit),
        }
    }
    // As a kill would.
    drop(db);
    let db = Db::open(home.path().join("db"), options).unwrap();
    assert_eq!(db.begin().scan(&db.open_table("t").unwrap(), ..).count(), 200);
    db.close().unwrap();
}

/// When pages cannot leave for the data file, the commit that needs their slots fails, and what was
/// acknowledged is kept.
#[test]
fn a_failing_disk_fails_the_commit_in_every_mode() {
    for way in FEWEST {
        use duramen::CommitMode::{Elr, Pipelined, Sync};
        for commit in [Sync, Elr, Pipelined] {
            let memory = SimMemory::new(MIB, Domain::DurableCache);
            let disk = SimDisk::new(1);
            let options = Options { commit, ..in_memory(&memory, way) };
            let db = Db::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
            let table = db.create_table("t").unwrap();
            let mut acknowledged = 0_u32;
            let mut failed = None;
            for number in 0..4000_u32 {
                if number == 400 {
                    disk.fail_at(disk.operations(), Fault::Eio, true);
                }
                match db.run(|txn| txn.put(&table, &number.to_be_bytes(), &[1; 1000])) {
                    Ok(()) => acknowledged = number + 1,
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
            let failed = failed.expect("the disk fails");
            assert!(matches!(failed, Error::Io { .. } | Error::Poisoned { .. }), "{failed}");
            assert!(acknowledged >= 400);
            drop(db);
            let (disk, memory) =
                (disk.crash_image(&CrashChoice::Nothing), memory.crash_image(Survivors::Nothing, None));
            let options = Options { commit, ..in_memory(&memory, way) };
            let db = Db::open_on(Arc::new(disk), options).unwrap();
            let table = db.open_table("t").unwrap();
            let found = db.begin().scan(&table, ..).count() as u32;
            assert!(found == acknowledged || found == acknowledged + 1, "{found} of {acknowledged}, {commit}");
            assert!(db.check().unwrap().is_ok());
        }
    }
}
