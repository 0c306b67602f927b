//! One thread, no failures: what is inserted and hardened can be read again.
#![cfg(not(duramen_loom))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use duramen_io::{AlignedBuf, Disk, OpenMode, SimDisk};
use duramen_test_support::block_on;
use duramen_types::{Gsn, LogId, Lsn};
use duramen_wal::{FIRST_LSN, GroupCommit, InsertDesign, Inserted, Log, Sealing, WalError, WalOptions, segment_name};

use crate::common::*;

#[test]
fn records_survive_reopening() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        let wal = create(&disk, design);
        assert_eq!((wal.start(), wal.end(), wal.durable()), (FIRST_LSN, FIRST_LSN, FIRST_LSN));
        let mut last = None;
        for number in 0..200 {
            last = Some(insert(&wal, number, number as usize * 7 % 900));
            if number % 10 == 9 {
                wal.wait_hardened(last.unwrap().gsn, None).unwrap();
            }
        }
        let last = last.unwrap();
        assert_eq!((wal.end(), wal.durable()), (last.end, last.end));
        assert!(wal.is_hardened(last.gsn) && !wal.is_hardened(Gsn::new(last.end.get())));
        let before = read_all(&wal, FIRST_LSN).unwrap();
        drop(wal);

        for round in 0..3 {
            let wal = open(&disk.crash_image(&duramen_io::CrashChoice::Nothing), design).unwrap();
            assert_eq!((wal.end(), wal.durable()), (last.end, last.end), "round {round}");
            let after = read_all(&wal, FIRST_LSN).unwrap();
            assert_eq!(before, after);
            assert_eq!(after.len(), 200);
            for (number, record) in after.iter().enumerate() {
                assert_eq!(record.txn.get(), number as u64);
                assert_intact(record);
                assert_eq!(wal.read_at(record.lsn).unwrap(), *record);
            }
        }
    }
}

#[test]
fn a_log_goes_on_where_it_ended() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        create(&disk, design).close().unwrap();
        for round in 0..20 {
            let wal = open(&disk, design).unwrap();
            assert_eq!(read_all(&wal, FIRST_LSN).unwrap().len() as u64, round);
            insert(&wal, round, 5000);
            wal.close().unwrap();
        }
        let reader = reader(&disk, Some(DATABASE)).unwrap();
        assert!(reader.segments().1 >= 1, "the records fill more than one segment");
        let mut scanner = reader.scan(None).unwrap();
        let mut count = 0;
        while let Some(record) = scanner.next().unwrap() {
            assert_eq!(record.txn.get(), count);
            assert_intact(&Record::of(record));
            count += 1;
        }
        assert_eq!(count, 20);
        assert!(scanner.stopped_because().is_some());
    }
}

#[test]
fn large_records_with_a_large_ring() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        let options =
            WalOptions { ring_bytes: 8 << 20, segment_bytes: 1 << 20, max_bytes: 64 << 20, ..options(design) };
        assert_eq!(options.max_payload(), (2 << 20) - 48);
        let wal = Log::create(&arc(&disk), &options, DATABASE).unwrap();
        for number in 0..12 {
            insert(&wal, number, (1 << 20) + number as usize * 1000);
            insert(&wal, number + 100, 3);
        }
        wal.close().unwrap();
        let wal = Log::open(&arc(&disk), &options, DATABASE, None).unwrap();
        let records = read_all(&wal, FIRST_LSN).unwrap();
        assert_eq!(records.len(), 24);
        records.iter().for_each(assert_intact);
        wal.read_at(records[4].lsn).unwrap();
    }
}

/// A log does not show which thread sealed its records: flushes in the middle of a block, over
/// several blocks, and of a block that is written again leave the same bytes either way.
#[test]
fn logs_are_the_same_with_every_sealing() {
    for design in InsertDesign::ALL {
        let [at_flush, at_insertion] = [Sealing::AtFlush, Sealing::AtInsertion].map(|sealing| {
            let disk = SimDisk::new(1);
            let options = WalOptions { sealing, ..options(design) };
            let wal = Log::create(&arc(&disk), &options, DATABASE).unwrap();
            // Wait after each, so that each flush covers the same records: a record states how far
            // the log was durable.
            for number in 0..150 {
                let inserted = insert(&wal, number, number as usize * 37 % 2000);
                if number % 3 != 0 {
                    wal.wait_hardened(inserted.gsn, None).unwrap();
                }
            }
            wal.close().unwrap();
            let segments = 0..=reader(&disk, None).unwrap().segments().1;
            let files: Vec<Vec<u8>> = segments
                .map(|number| {
                    let file = disk.open(&format!("log/{number:016x}.log"), OpenMode::Existing).unwrap();
                    let mut bytes = AlignedBuf::zeroed(file.len().unwrap() as usize);
                    file.read_at(&mut bytes, 0).unwrap();
                    bytes.to_vec()
                })
                .collect();
            // Each also continues what the other has begun.
            let other = if sealing == Sealing::AtFlush { Sealing::AtInsertion } else { Sealing::AtFlush };
            let wal = Log::open(&arc(&disk), &WalOptions { sealing: other, ..options }, DATABASE, None).unwrap();
            insert(&wal, 150, 100);
            wal.close().unwrap();
            let records = read_all(&wal, FIRST_LSN).unwrap();
            assert_eq!(records.len(), 151);
            records.iter().for_each(assert_intact);
            files
        });
        assert!(at_flush == at_insertion, "{design}");
    }
}

#[test]
fn reading_outside_the_log_is_refused() {
    let disk = SimDisk::new(1);
    let wal = create(&disk, InsertDesign::Mutex);
    let inserted = insert(&wal, 0, 100);
    for lsn in [Lsn::ZERO, FIRST_LSN, inserted.end] {
        assert!(matches!(wal.read_at(lsn), Err(WalError::OutOfRange { .. })), "{lsn}");
    }
    assert!(matches!(wal.wait_hardened(Gsn::new(inserted.end.get()), None), Err(WalError::OutOfRange { .. })));
    assert!(matches!(wal.harden(Gsn::new(1 << 40)).wait(), Err(WalError::OutOfRange { .. })));
    wal.wait_hardened(Gsn::ZERO, None).unwrap();
    wal.wait_hardened(inserted.gsn, None).unwrap();
    wal.read_at(inserted.lsn).unwrap();
    assert!(matches!(wal.read_at(inserted.lsn.advance(8)), Err(WalError::Corrupt { .. })));
    assert!(wal.scan(LogId::ZERO, Lsn::new(1 << 40)).next().unwrap().is_none());
}

#[test]
fn requests_are_served_by_the_daemon() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        let wal = create(&disk, design);
        let hardened = wal.harden(insert(&wal, 0, 10).gsn);
        while !hardened.is_ready() {
            std::thread::yield_now();
        }
        hardened.wait().unwrap();
        let hardened: Vec<_> = (1..20).map(|number| wal.harden(insert(&wal, number, 10).gsn)).collect();
        hardened.iter().for_each(|hardened| hardened.wait().unwrap());
        assert_eq!(wal.durable(), wal.end());
        let stats = wal.stats();
        assert_eq!((stats.records, stats.bytes), (20, 20 * record_bytes(10)));
        assert!(stats.flushes >= 1 && stats.flushes <= 20);
    }
}

/// A log for whose records no thread waited once stayed unflushed: only a record that crossed a
/// multiple of the limit woke the daemon, and too little was unflushed at that moment.
#[test]
fn the_byte_limit_flushes_though_nobody_waits() {
    const LIMIT: u64 = 8192;
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        let mut options = options(design);
        let (bytes, time) = (LIMIT as usize, Duration::from_secs(10));
        options.group_commit = GroupCommit { transactions: 1_000_000, bytes, time };
        let wal = Log::create(&arc(&disk), &options, DATABASE).unwrap();
        for round in 0..10 {
            // The daemon has parked, with nothing to do, so its check at the start does not cause
            // the flush.
            std::thread::sleep(Duration::from_millis(5));
            let durable = wal.durable();
            let len = 100 + 100 * round;
            while wal.end().get() + record_bytes(len) < durable.get() + LIMIT {
                insert(&wal, round as u64, len);
            }
            assert_eq!(wal.durable(), durable, "{design}: the limit is not reached");
            insert(&wal, round as u64, len);
            let asked = Instant::now();
            while wal.durable() == durable {
                assert!(asked.elapsed() < Duration::from_secs(60), "{design}: nobody has flushed {LIMIT} bytes");
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        let stats = wal.stats();
        assert_eq!((stats.inline_flushes, stats.hardening_waits), (0, 0));
    }
}

#[test]
fn group_commit_waits_for_other_commits_or_time() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        let mut options = options(design);
        options.group_commit.transactions = 3;
        options.group_commit.time = Duration::from_secs(10);
        let wal = Log::create(&arc(&disk), &options, DATABASE).unwrap();
        let first = wal.harden(insert(&wal, 0, 10).gsn);
        let second = wal.harden(insert(&wal, 1, 10).gsn);
        std::thread::sleep(Duration::from_millis(20));
        assert!(!first.is_ready() && !second.is_ready());
        wal.wait_hardened(insert(&wal, 2, 10).gsn, None).unwrap();
        assert!(first.is_ready() && second.is_ready());
        assert_eq!(wal.stats().flushes, 1);
        drop(wal);

        options.group_commit.time = Duration::from_millis(10);
        let wal = Log::open(&arc(&disk), &options, DATABASE, None).unwrap();
        wal.wait_hardened(insert(&wal, 3, 10).gsn, None).unwrap();
    }
}

#[test]
fn hardened_is_a_future() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        let wal = create(&disk, design);
        for number in 0..50 {
            let inserted = insert(&wal, number, 10);
            block_on(wal.harden(inserted.gsn)).unwrap();
            assert!(wal.is_hardened(inserted.gsn));
        }
        let never = wal.harden(insert(&wal, 50, 10).gsn);
        wal.close().unwrap();
        block_on(never).unwrap();
        assert!(matches!(block_on(wal.harden(insert(&wal, 51, 10).gsn)), Err(WalError::Closed)));
    }
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn functions_are_called_when_a_record_is_hardened() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        let wal = Arc::new(create(&disk, design));
        let (sender, outcomes) = std::sync::mpsc::channel();
        for number in 0..50 {
            let sender = sender.clone();
            let inserted = insert(&wal, number, 10);
            let reader = Arc::clone(&wal);
            let hardened = wal.harden(inserted.gsn);
            let call = move |outcome: duramen_wal::Result<()>| {
                sender.send((number, outcome.is_ok() && reader.is_hardened(inserted.gsn))).unwrap();
                if number % 7 == 3 {
                    // A panic does not affect other threads, not even a panic whose payload panics.
                    std::panic::panic_any(PanicsWhenDropped);
                }
            };
            // If the record is already hardened, this thread makes the call.
            let called = catch_unwind(AssertUnwindSafe(|| hardened.on_ready(call)));
            called.unwrap_or_else(std::mem::forget);
        }
        let mut called: Vec<_> = (0..50).map(|_| outcomes.recv_timeout(Duration::from_secs(60)).unwrap()).collect();
        called.sort_unstable();
        assert_eq!(called, (0..50).map(|number| (number, true)).collect::<Vec<_>>());
        // The last user of the log may be a function that the log calls.
        let inserted = insert(&wal, 50, 10);
        let hardened = wal.harden(inserted.gsn);
        let last = sender.clone();
        hardened.on_ready(move |outcome| {
            drop(wal);
            last.send((50, outcome.is_ok())).unwrap();
        });
        assert_eq!(outcomes.recv_timeout(Duration::from_secs(60)), Ok((50, true)));
        // After the end, and without effect.
        let wal = open(&disk, design).unwrap();
        wal.close().unwrap();
        let late = wal.harden(insert(&wal, 51, 10).gsn);
        wal.close().unwrap();
        late.on_ready(move |outcome| sender.send((51, matches!(outcome, Err(WalError::Closed)))).unwrap());
        assert_eq!(outcomes.recv(), Ok((51, true)));
    }
}

/// A spare that an interrupted creation has left has the name of a future segment.
#[test]
fn a_spare_left_by_an_interrupted_creation_is_used_once() {
    for design in InsertDesign::ALL {
        for left in 1..8_u64 {
            let disk = SimDisk::new(1);
            let options = WalOptions { spare_segments: 2, ..options(design) };
            Log::create(&arc(&disk), &options, DATABASE).unwrap().close().unwrap();
            for number in [left, left + 1] {
                let spare = disk.open(&format!("log/{number:016x}.spare"), OpenMode::CreateNew).unwrap();
                spare.allocate(options.segment_bytes).unwrap();
                spare.sync().unwrap();
            }
            disk.sync_directory("log").unwrap();
            let wal = Log::open(&arc(&disk), &options, DATABASE, None).unwrap();
            for number in 0..240 {
                wal.reserve(4200).unwrap();
                let inserted = insert(&wal, number, 4000);
                wal.unreserve(4200);
                wal.wait_hardened(inserted.gsn, None).unwrap();
                // At first the segments are recycled so soon that one of the spares is left over;
                // then all spares are used up.
                if number < 16 * (left + 3) {
                    wal.recycle_to(inserted.lsn).unwrap();
                }
            }
        }
    }
}

#[test]
fn recycling_moves_the_start_and_reuses_segments() {
    for (design, spare_segments) in InsertDesign::ALL.into_iter().flat_map(|design| [(design, 0), (design, 2)]) {
        let disk = SimDisk::new(1);
        let options = WalOptions { spare_segments, max_bytes: 256 << 10, ..options(design) };
        let wal = Log::create(&arc(&disk), &options, DATABASE).unwrap();
        let mut kept = Vec::new();
        for number in 0..300 {
            wal.reserve(4200).unwrap();
            let inserted = insert(&wal, number, 4000);
            wal.unreserve(4200);
            kept.push(inserted.lsn);
            if number % 8 == 7 {
                wal.wait_hardened(inserted.gsn, None).unwrap();
                kept.drain(..kept.len() - 5);
                wal.recycle_to(kept[0]).unwrap();
                assert_eq!(wal.start(), kept[0]);
            }
        }
        wal.wait_hardened(Gsn::new(kept.last().unwrap().get()), None).unwrap();
        let stats = wal.stats();
        assert!(stats.segments_live <= 4, "{stats:?}");
        assert_eq!(stats.segments_recycled > 0, spare_segments > 0, "{stats:?}");
        assert!(matches!(wal.read_at(FIRST_LSN), Err(WalError::OutOfRange { .. })));
        let start = wal.start();
        drop(wal);
        let wal = Log::open(&arc(&disk), &options, DATABASE, None).unwrap();
        assert_eq!(wal.start(), start);
        let found: Vec<Lsn> = read_all(&wal, start).unwrap().iter().map(|record| record.lsn).collect();
        assert_eq!(found, kept);
        // Nothing is needed any more: the log may start at its end.
        wal.recycle_to(wal.durable()).unwrap();
        assert_eq!(wal.start(), wal.end());
        assert!(matches!(wal.recycle_to(wal.end().advance(8)), Err(WalError::OutOfRange { .. })));
    }
}

#[test]
fn a_log_may_start_at_the_very_end_of_its_last_segment() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        let wal = create(&disk, design);
        let data = (64 << 10) - 4096;
        for number in 0..data / 4096 {
            insert(&wal, number, 4096 - HEADER_BYTES);
        }
        wal.wait_hardened(Gsn::new(wal.end().get() - 4096), None).unwrap();
        assert_eq!(wal.end().get(), FIRST_LSN.get() + data);
        wal.recycle_to(wal.end()).unwrap();
        let end = wal.end();
        drop(wal);
        let wal = open(&disk, design).unwrap();
        assert_eq!((wal.start(), wal.end()), (end, end));
        insert(&wal, 7, 10);
        wal.close().unwrap();
        drop(wal);
        let wal = open(&disk, design).unwrap();
        assert_eq!(read_all(&wal, end).unwrap().len(), 1);
        wal.recycle_to(wal.end()).unwrap();
        assert_eq!(wal.stats().segments_live, 1);
    }
}

#[test]
fn a_full_log_refuses_reservations_and_recovers() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        let options = WalOptions { max_bytes: 128 << 10, ..options(design) };
        let wal = Log::create(&arc(&disk), &options, DATABASE).unwrap();
        let mut number = 0;
        let full = loop {
            match wal.reserve(4096) {
                Ok(()) => {
                    insert(&wal, number, 4000);
                    wal.unreserve(4096);
                    number += 1;
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(full, WalError::Full { .. }), "{full}");
        assert_eq!(number, 2 * (64 - 4) * 1024 / record_bytes(4000));
        assert!(wal.failure().is_none());
        assert_eq!(wal.stats().reserved_bytes, 0);
        let last = insert(&wal, number, 10);
        wal.wait_hardened(last.gsn, None).unwrap();
        wal.recycle_to(last.lsn).unwrap();
        wal.reserve(4096).unwrap();
    }
}

#[test]
fn other_sizes_at_reopening() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        let wal = create(&disk, design);
        for number in 0..30 {
            insert(&wal, number, 3000);
        }
        wal.close().unwrap();
        let larger = WalOptions { ring_bytes: 1 << 20, segment_bytes: 128 << 10, spare_segments: 1, ..options(design) };
        let wal = Log::open(&arc(&disk), &larger, DATABASE, None).unwrap();
        for number in 30..60 {
            insert(&wal, number, 3000);
        }
        wal.close().unwrap();
        let last = segment_name(LogId::ZERO, reader(&disk, None).unwrap().segments().1);
        assert_eq!(disk.open(&last, OpenMode::Existing).unwrap().len().unwrap(), 64 << 10);
        let wal = open(&disk, design).unwrap();
        assert_eq!(read_all(&wal, FIRST_LSN).unwrap().len(), 60);
    }
}

#[test]
fn wrong_places_are_refused() {
    let disk = SimDisk::new(1);
    assert!(matches!(open(&disk, InsertDesign::Mutex), Err(WalError::NoLog { .. })));
    assert!(matches!(reader(&disk, None), Err(WalError::NoLog { .. })));
    create(&disk, InsertDesign::Mutex).close().unwrap();
    let again = Log::create(&arc(&disk), &options(InsertDesign::Mutex), DATABASE);
    assert!(matches!(again, Err(WalError::AlreadyExists { .. })));
    let other = Log::open(&arc(&disk), &options(InsertDesign::Mutex), [9; 16], None);
    assert!(matches!(other, Err(WalError::WrongDatabase { .. })));
    assert!(matches!(reader(&disk, Some([9; 16])), Err(WalError::WrongDatabase { .. })));
    assert!(reader(&disk, Some(DATABASE)).is_ok());
}

#[test]
fn invalid_options_are_refused() {
    let base = options(InsertDesign::Mutex);
    WalOptions::default().validate().unwrap();
    let wrong = [
        ("ring_bytes", WalOptions { ring_bytes: 65535, ..base.clone() }),
        ("ring_bytes", WalOptions { ring_bytes: 4096, ..base.clone() }),
        ("array_slots", WalOptions { array_slots: 0, ..base.clone() }),
        ("arrays", WalOptions { arrays: 0, ..base.clone() }),
        ("segment_bytes", WalOptions { segment_bytes: 65537, ..base.clone() }),
        ("segment_bytes", WalOptions { segment_bytes: 4096, ..base.clone() }),
        ("max_bytes", WalOptions { max_bytes: 65536, ..base }),
    ];
    for (name, options) in wrong {
        match Log::create(&arc(&SimDisk::new(1)), &options, DATABASE) {
            Err(WalError::InvalidOption { option, .. }) => assert_eq!(option, name),
            other => panic!("{name}: {other:?}"),
        }
    }
    for design in InsertDesign::ALL {
        assert_eq!(design.to_string().parse::<InsertDesign>().unwrap(), design);
    }
    assert!("fastest".parse::<InsertDesign>().unwrap_err().to_string().contains("fastest"));
}

/// The log that a backup had kept was recycled only at the next checkpoint; each backup kept the
/// log that the one before it had kept.
#[test]
fn what_a_hold_has_kept_is_recycled_when_it_is_let_go() {
    let disk = SimDisk::new(1);
    let wal = create(&disk, InsertDesign::Hybrid);
    let places: Vec<Inserted> = (0..2_000).map(|number| insert(&wal, number, 400)).collect();
    wal.wait_hardened(places[1_999].gsn, None).unwrap();
    let (one, two) = (wal.hold(), wal.hold());
    wal.recycle_to(places[500].lsn).unwrap();
    wal.recycle_to(places[1_500].lsn).unwrap();
    assert_eq!(wal.start(), FIRST_LSN, "it is held");
    drop(one);
    two.keep_from(&[places[1_000].lsn]);
    assert_eq!(wal.start(), places[500].lsn, "the latest position that is not held");
    drop(two);
    assert_eq!(wal.start(), places[1_500].lsn);
    wal.close().unwrap();
}
