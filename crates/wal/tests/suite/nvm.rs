//! Logs whose buffer is a ring in persistent memory: what they preserve, and what they refuse.
#![cfg(not(duramen_loom))]

use std::path::PathBuf;

use duramen_io::{CrashChoice, SimDisk};
use duramen_pmem::{Domain, DrainBy, PmemError, SimMemory, Source, Survive};
use duramen_test_support::is_long;
use duramen_wal::{FIRST_LSN, InsertDesign, Log, LogDevice, NvmOptions, WalError, WalOptions};

use crate::common::history::{History, check_contents, choices, work};
use crate::common::world::{REGION, RING, World};
use crate::common::*;

const DOMAINS: [Domain; 2] = [Domain::DurableCache, Domain::VolatileCache];

fn create_in(world: &World, design: InsertDesign) -> Log {
    Log::create(&arc(&world.disk), &world.options(&options(design)), DATABASE).unwrap()
}

fn open_in(world: &World, design: InsertDesign) -> Result<Log, WalError> {
    Log::open(&arc(&world.disk), &world.options(&options(design)), DATABASE, None)
}

fn for_each_log(check: impl Fn(World, InsertDesign)) {
    for domain in DOMAINS {
        for design in InsertDesign::ALL {
            check(World::new(1, Some(domain), 1), design);
        }
    }
}

#[test]
fn a_commit_writes_nothing_to_the_disk() {
    for_each_log(|world, design| {
        let wal = create_in(&world, design);
        let before = world.disk.operations();
        for number in 0..50 {
            let inserted = insert(&wal, number, 100);
            wal.wait_hardened(inserted.gsn, None).unwrap();
            assert!(wal.harden(inserted.gsn).is_ready());
        }
        assert_eq!(world.disk.operations(), before, "{design}");
        drop(wal);
        let after = world.crash_image(&CrashChoice::Nothing);
        let wal = open_in(&after, design).unwrap();
        let records = read_all(&wal, FIRST_LSN).unwrap();
        assert_eq!(records.len(), 50);
        records.iter().for_each(assert_intact);
    });
}

#[test]
fn a_full_ring_is_destaged() {
    for_each_log(|world, design| {
        let wal = create_in(&world, design);
        let mut last = None;
        for number in 0..300 {
            last = Some(insert(&wal, number, 1000));
        }
        wal.wait_hardened(last.unwrap().gsn, None).unwrap();
        let stats = wal.stats();
        assert!(stats.flushes >= 4 && stats.flushed_bytes > 3 * RING as u64, "{stats:?}");
        assert!(stats.flushes < 60, "big writes: {stats:?}");
        assert_eq!(read_all(&wal, FIRST_LSN).unwrap().len(), 300);
        assert_eq!(wal.read_at(last.unwrap().lsn).unwrap().txn.get(), 299);
        wal.close().unwrap();
        drop(wal);
        let wal = open_in(&world, design).unwrap();
        assert_eq!(read_all(&wal, FIRST_LSN).unwrap().len(), 300);
    });
}

#[test]
fn many_threads_share_a_ring() {
    for_each_log(|world, design| {
        let wal = create_in(&world, design);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let wal = &wal;
                scope.spawn(move || {
                    for number in 0..200 {
                        let inserted = insert(wal, thread * 1000 + number, 50 + number as usize);
                        if number % 3 == 0 {
                            wal.wait_hardened(inserted.gsn, None).unwrap();
                        }
                    }
                });
            }
        });
        let end = wal.end();
        wal.wait_hardened(duramen_types::Gsn::new(end.get() - 1), None).unwrap();
        assert_eq!(wal.durable(), end);
        drop(wal);
        let wal = open_in(&world.crash_image(&CrashChoice::Nothing), design).unwrap();
        assert_eq!(wal.end(), end);
        assert_eq!(read_all(&wal, FIRST_LSN).unwrap().len(), 800);
    });
}

/// Power cuts at operations of the disk and of the memory.
fn crash_everywhere(domain: Domain, design: InsertDesign, seed: u64, steps: u64, strides: [Stride; 2]) {
    crash_in(&|| World::new(seed, Some(domain), 1), design, seed, steps, strides);
}

fn crash_in(make: &dyn Fn() -> World, design: InsertDesign, seed: u64, steps: u64, strides: [Stride; 2]) {
    let base = options(design);
    let world = make();
    let domain = world.memory().domain();
    let mut history = History::default();
    work(&world.disk, &world.options(&base), &mut history, seed, steps).unwrap();
    let operations = [world.disk.operations(), world.memory().operations()];
    assert!(operations[0] > 20 && operations[1] > 100, "{operations:?}");
    for device in 0..2 {
        for crash_at in strides[device].until(operations[device]) {
            let world = make();
            if device == 0 {
                world.disk.crash_at(crash_at);
            } else {
                world.memory().crash_at(crash_at);
            }
            let mut history = History::default();
            if work(&world.disk, &world.options(&base), &mut history, seed, steps).is_ok() {
                world.memory().crash();
            }
            for choice in choices(crash_at) {
                let image = world.crash_image(&choice);
                let mut history = history.clone();
                let context = format!("{domain}, {design}: crash at {crash_at} of device {device}, {choice:?}");
                let outcome = work(&image.disk, &image.options(&base), &mut history, seed + 1, 3);
                outcome.unwrap_or_else(|error| panic!("{context}: {error}"));
                let again = image.crash_image(&choice);
                let wal = open_in(&again, design).unwrap_or_else(|error| panic!("{context}, reopened: {error}"));
                check_contents(&wal, &mut history).unwrap();
            }
        }
    }
}

#[test]
fn at_every_operation() {
    for domain in DOMAINS {
        let strides = [1, 2].map(|step| Stride::sampled("crashes of disk and ring", step, 5));
        crash_everywhere(domain, InsertDesign::Hybrid, 1, 60, strides);
    }
}

#[test]
fn a_log_that_stays_in_its_ring_at_every_operation() {
    for domain in DOMAINS {
        let strides = [1, 2].map(|step| Stride::sampled("crashes of a log that stays", step, 5));
        crash_in(&|| World::staying(1, domain), InsertDesign::Hybrid, 1, 80, strides);
    }
}

/// Recycling makes room, so the segments are never written; a log that is not recycled is full.
#[test]
fn a_log_that_stays_in_its_ring_is_not_destaged() {
    for domain in DOMAINS {
        for design in InsertDesign::ALL {
            let world = World::staying(2, domain);
            let wal = create_in(&world, design);
            let mut kept = Vec::new();
            for number in 0..2_000 {
                let bytes = record_bytes(500);
                wal.reserve(bytes).unwrap();
                let inserted = insert(&wal, number, 500);
                wal.unreserve(bytes);
                kept.push(inserted);
                if kept.len() == 150 {
                    wal.wait_hardened(inserted.gsn, None).unwrap();
                    kept.drain(..130);
                    wal.recycle_to(kept[0].lsn).unwrap();
                    kept.truncate(20);
                }
            }
            let stats = wal.stats();
            assert_eq!(stats.flushes, 0, "{design}: {stats:?}");
            assert!(stats.segments_recycled + stats.segments_created > 10, "{stats:?}");
            wal.wait_hardened(kept[kept.len() - 1].gsn, None).unwrap();
            let start = wal.start();
            drop(wal);
            let image = world.crash_image(&CrashChoice::Nothing);
            let wal = open_in(&image, design).unwrap();
            assert_eq!(wal.start(), start);
            let records = read_all(&wal, start).unwrap();
            assert_eq!(records.last().unwrap().txn.get(), 1_999);
            records.iter().for_each(assert_intact);
            let full = (0..2_000).find_map(|number| {
                let reserved = wal.reserve(record_bytes(500));
                reserved.map(|()| insert(&wal, number, 500)).err()
            });
            assert!(matches!(full, Some(WalError::Full { .. })), "{full:?}");
            // Beyond the limit there is room, for what frees space.
            for number in 0..600 {
                wal.reserve_beyond_limit(record_bytes(500)).unwrap();
                insert(&wal, number, 500);
            }
            assert!(wal.stats().flushes > 0);
            wal.close().unwrap();
        }
    }
}

/// Without reservations no segments were made ahead. The start of the log could then lie beyond the
/// last one, and the log could not be opened after a crash.
#[test]
fn a_log_that_stays_in_its_ring_needs_no_reservations() {
    for domain in DOMAINS {
        let world = World::staying(4, domain);
        let wal = create_in(&world, InsertDesign::Hybrid);
        let mut recycled = 0;
        for number in 0..1_000 {
            let inserted = insert(&wal, number, 500);
            if number % 100 == 99 {
                wal.wait_hardened(inserted.gsn, None).unwrap();
                wal.recycle_to(inserted.lsn).unwrap();
                recycled += 1;
                let image = world.crash_image(&CrashChoice::Nothing);
                let reopened = open_in(&image, InsertDesign::Hybrid).unwrap();
                assert_eq!((reopened.start(), reopened.stats().records), (inserted.lsn, 0));
                assert_eq!(read_all(&reopened, inserted.lsn).unwrap().last().unwrap().txn.get(), number);
            }
        }
        assert_eq!((recycled, wal.stats().flushes), (10, 0));
    }
}

#[test]
fn a_log_that_stays_is_smaller_than_its_ring() {
    let world = World::staying(3, Domain::DurableCache);
    let large = WalOptions { max_bytes: 256 << 10, ..world.options(&options(InsertDesign::Hybrid)) };
    let error = Log::create(&arc(&world.disk), &large, DATABASE).unwrap_err();
    assert!(matches!(&error, WalError::InvalidOption { option: "max_bytes", .. }), "{error}");
}

#[test]
fn in_every_design() {
    for domain in DOMAINS {
        for (seed, design) in InsertDesign::ALL.into_iter().enumerate() {
            let strides = [11, 19].map(|step| Stride::sampled("crashes of disk and ring in every design", step, 3));
            crash_everywhere(domain, design, 10 + seed as u64, 60, strides);
        }
    }
}

/// Work, crash, reopen, with crashes in recoveries too, many times on one disk and one memory.
#[test]
fn many_lives() {
    for domain in DOMAINS {
        for design in InsertDesign::ALL {
            for seed in 0..if is_long() { 8 } else { 2 } {
                let mut random = Rng::new(seed);
                let mut world = World::new(seed, Some(domain), 1);
                let mut history = History::default();
                for life in 0..25 {
                    if random.below(2) == 0 {
                        world.disk.crash_at(random.below(60));
                    } else {
                        world.memory().crash_at(random.below(400));
                    }
                    let outcome = work(&world.disk, &world.options(&options(design)), &mut history, random.bits(), 200);
                    if let Err(error) = outcome {
                        assert!(world.memory().is_off(), "seed {seed}, life {life}: {error}");
                    }
                    world = world.crash_image(&CrashChoice::Random(random.bits()));
                }
            }
        }
    }
}

/// Threads insert and commit in parallel until the power goes off. Everything reported to any of
/// them as hardened is found again, whichever of the unsure words have survived.
#[test]
fn no_acknowledged_record_is_lost() {
    let mut acknowledged_in_all = 0;
    for (domain, seed) in DOMAINS.into_iter().flat_map(|domain| (0..24).map(move |seed| (domain, seed))) {
        let design = InsertDesign::ALL[seed as usize % InsertDesign::ALL.len()];
        let world = World::new(seed, Some(domain), 1);
        let wal = create_in(&world, design);
        let mut random = Rng::new(seed);
        world.memory().crash_at(world.memory().operations() + random.below(1500));
        let (wal_ref, memory) = (&wal, world.memory());
        let acknowledged: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3_u64)
                .map(|thread| {
                    scope.spawn(move || {
                        let mut random = Rng::new(seed * 8 + thread);
                        let mut acknowledged = Vec::new();
                        for number in 0..200 {
                            let number = thread * 1000 + number;
                            let inserted = insert(wal_ref, number, random.below(300) as usize);
                            if random.below(4) == 0 {
                                let outcome = wal_ref.wait_hardened(inserted.gsn, None);
                                if memory.is_off() {
                                    break;
                                }
                                outcome.unwrap();
                                acknowledged.push(number);
                            }
                        }
                        acknowledged
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        world.memory().crash();
        drop(wal);
        acknowledged_in_all += acknowledged.len();
        for choice in choices(seed) {
            let wal = open_in(&world.crash_image(&choice), design).unwrap();
            let found = read_all(&wal, FIRST_LSN).unwrap();
            found.iter().for_each(assert_intact);
            let lost = acknowledged.iter().find(|number| found.iter().all(|record| record.txn.get() != **number));
            assert_eq!(lost, None, "{domain}, {design}, seed {seed}, {choice:?}");
        }
    }
    assert!(acknowledged_in_all > 200, "{acknowledged_in_all}");
}

/// A thread that has inserted and sleeps is drained, by either means; natively, on memory of the
/// process.
#[test]
fn stragglers_are_drained() {
    let directory = tempfile::tempdir().unwrap();
    for drain in [DrainBy::Membarrier, DrainBy::Signal] {
        let path = directory.path().join(format!("{drain:?}"));
        let nvm = NvmOptions { survive: Survive::Process, drain, ..NvmOptions::new(Source::File(path), domain()) };
        let options = WalOptions { device: LogDevice::Nvm(nvm), ..options(InsertDesign::Hybrid) };
        let wal = Log::create(&arc(&SimDisk::new(1)), &options, DATABASE).unwrap();
        let (inserted, over) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                insert(&wal, 1, 100);
                inserted.wait();
                over.wait();
            });
            inserted.wait();
            for number in 2..10 {
                wal.wait_hardened(insert(&wal, number, 100).gsn, None).unwrap();
            }
            over.wait();
        });
        let stats = wal.stats();
        assert_eq!((stats.drains, stats.fences), (1, 8), "the straggler has inserted nothing since: {stats:?}");
        assert_eq!(stats.drain_signals > 0, drain == DrainBy::Signal);
    }
}

/// Opening made a segment out of the file of a spare and then searched for the spare.
#[test]
fn a_spare_becomes_a_segment_when_the_ring_is_brought_to_the_segments() {
    use duramen_io::{Disk, OpenMode};
    let world = World::new(1, Some(domain()), 1);
    let wal = create_in(&world, InsertDesign::Hybrid);
    let add =
        |range: std::ops::Range<u64>| range.map(|number| insert(&wal, number, 1000)).reduce(|_, last| last).unwrap();
    wal.wait_hardened(add(0..50).gsn, None).unwrap();
    read_all(&wal, FIRST_LSN).unwrap();
    wal.wait_hardened(add(50..70).gsn, None).unwrap();
    let image = world.crash_image(&CrashChoice::Everything);
    drop(wal);
    assert!(!image.disk.exists("log/0000000000000001.log").unwrap(), "what is behind the first segment is in the ring");
    let spare = image.disk.open("log/0000000000000001.spare", OpenMode::CreateNew).unwrap();
    spare.set_len(64 << 10).unwrap();
    let wal = open_in(&image, InsertDesign::Hybrid).unwrap();
    assert_eq!(read_all(&wal, FIRST_LSN).unwrap().len(), 70);
}

// ----- rings and logs that do not belong together -----

fn domain() -> Domain {
    Domain::VolatileCache
}

#[test]
fn a_log_with_its_end_in_a_ring_is_not_opened_without() {
    let world = World::new(1, Some(domain()), 1);
    let wal = create_in(&world, InsertDesign::Hybrid);
    insert(&wal, 1, 100);
    drop(wal);
    let without = open(&world.disk, InsertDesign::Hybrid).unwrap_err();
    assert!(matches!(without, WalError::RingNeeded { .. }), "{without}");
    let other = World { disk: world.disk.clone(), memories: vec![SimMemory::new(REGION, domain())], stays: false };
    let refused = open_in(&other, InsertDesign::Hybrid).unwrap_err();
    assert!(matches!(&refused, WalError::WrongRing { reason, .. } if reason.contains("empty")), "{refused}");
    assert_eq!(read_all(&open_in(&world, InsertDesign::Hybrid).unwrap(), FIRST_LSN).unwrap().len(), 1);
}

#[test]
fn the_device_may_change_when_the_log_is_closed() {
    let world = World::new(1, Some(domain()), 1);
    let file = create(&world.disk, InsertDesign::Hybrid);
    let mut count = 0;
    let mut add = |wal: &Log, close: bool| {
        for _ in 0..70 {
            let inserted = insert(wal, count, 1000);
            wal.wait_hardened(inserted.gsn, None).unwrap();
            count += 1;
        }
        assert_eq!(read_all(wal, FIRST_LSN).unwrap().len() as u64, count);
        if close {
            wal.close().unwrap();
        }
    };
    add(&file, false);
    drop(file);
    add(&open_in(&world, InsertDesign::Hybrid).unwrap(), false);
    add(&open_in(&world, InsertDesign::Hybrid).unwrap(), true);
    add(&open(&world.disk, InsertDesign::Hybrid).unwrap(), false);
    add(&open_in(&world, InsertDesign::Reserved).unwrap(), true);
    // Another ring is now accepted.
    let other = World { disk: world.disk.clone(), memories: vec![SimMemory::new(REGION, domain())], stays: false };
    add(&open_in(&other, InsertDesign::Hybrid).unwrap(), false);
    let first = open_in(&world, InsertDesign::Hybrid).unwrap_err();
    assert!(matches!(first, WalError::WrongRing { .. }), "{first}");
    add(&open_in(&other, InsertDesign::Hybrid).unwrap(), true);
}

#[test]
fn a_ring_in_use_is_not_given_away() {
    let world = World::new(1, Some(domain()), 1);
    let wal = create_in(&world, InsertDesign::Hybrid);
    let shared = World { disk: SimDisk::new(2), memories: world.memories.clone(), stays: false };
    let create = || Log::create(&arc(&shared.disk), &shared.options(&options(InsertDesign::Hybrid)), [7; 16]);
    assert!(matches!(create(), Err(WalError::Region { error: PmemError::Busy { .. } })));
    drop(wal);
    let shared = World { disk: SimDisk::new(3), ..shared };
    let create = || Log::create(&arc(&shared.disk), &shared.options(&options(InsertDesign::Hybrid)), [7; 16]);
    let refused = create().unwrap_err();
    assert!(matches!(&refused, WalError::WrongRing { reason, .. } if reason.contains("another log")), "{refused}");
    open_in(&world, InsertDesign::Hybrid).unwrap().close().unwrap();
    let shared = World { disk: SimDisk::new(4), ..shared };
    Log::create(&arc(&shared.disk), &shared.options(&options(InsertDesign::Hybrid)), [7; 16]).unwrap();
    assert!(matches!(open_in(&world, InsertDesign::Hybrid), Err(WalError::WrongRing { .. })));
}

#[test]
fn regions_that_will_not_do_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("ring");
    let disk = SimDisk::new(1);
    let with = |survive, ring_bytes| {
        let nvm = NvmOptions { survive, ..NvmOptions::new(Source::File(path.clone()), domain()) };
        WalOptions { device: LogDevice::Nvm(nvm), ring_bytes, ..options(InsertDesign::Hybrid) }
    };
    let not_durable = Log::create(&arc(&disk), &with(Survive::PowerCut, RING), DATABASE).unwrap_err();
    assert!(matches!(not_durable, WalError::Region { error: PmemError::NotDurable { .. } }), "{not_durable}");
    std::fs::remove_file(&path).unwrap();
    let disk = SimDisk::new(2);
    let wal = Log::create(&arc(&disk), &with(Survive::Process, RING), DATABASE).unwrap();
    assert!(wal.shortfall().is_some_and(|warning| warning.contains("not a power cut")));
    insert(&wal, 1, 100);
    drop(wal);
    let too_small = Log::open(&arc(&disk), &with(Survive::Process, 2 * RING), DATABASE, None).unwrap_err();
    assert!(matches!(too_small, WalError::Region { error: PmemError::TooSmall { .. } }), "{too_small}");
    let wal = Log::open(&arc(&disk), &with(Survive::Process, RING), DATABASE, None).unwrap();
    assert_eq!(read_all(&wal, FIRST_LSN).unwrap().len(), 1);
    drop(wal);
    let moved = directory.path().join("elsewhere");
    std::fs::rename(&path, &moved).unwrap();
    let missing = Log::open(&arc(&disk), &with(Survive::Process, RING), DATABASE, None).unwrap_err();
    assert!(matches!(missing, WalError::Region { error: PmemError::Missing { .. } }), "{missing}");
    std::fs::write(&path, vec![b'x'; REGION as usize]).unwrap();
    let foreign = Log::open(&arc(&disk), &with(Survive::Process, RING), DATABASE, None).unwrap_err();
    assert!(
        matches!(&foreign, WalError::WrongRing { reason, .. } if reason.contains("neither blank nor a ring")),
        "{foreign}"
    );
    std::fs::rename(&moved, &path).unwrap();
    Log::open(&arc(&disk), &with(Survive::Process, RING), DATABASE, None).unwrap().close().unwrap();
}
