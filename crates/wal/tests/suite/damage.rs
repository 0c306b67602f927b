//! Damage that no crash explains, and disks that refuse operations.
#![cfg(not(duramen_loom))]

use std::time::Duration;

use duramen_io::{CrashChoice, Disk, Fault, SimDisk};
use duramen_types::{Gsn, Lsn};
use duramen_wal::{FIRST_LSN, InsertDesign, Inserted, Log, WalError, WalOptions};

use crate::common::*;

/// Makes a log of `count` records, each hardened separately.
fn hardened_log(disk: &SimDisk, design: InsertDesign, count: u64, size: usize) -> Vec<Inserted> {
    let wal = create(disk, design);
    let inserted = (0..count).map(|number| {
        let inserted = insert(&wal, number, size);
        wal.wait_hardened(inserted.gsn, None).unwrap();
        inserted
    });
    inserted.collect()
}

/// Returns the file name and byte offset of an LSN in a log of 64 KiB segments.
fn place(lsn: Lsn) -> (String, u64) {
    let data = (64 << 10) - 4096;
    let offset = lsn.get() - FIRST_LSN.get();
    (format!("log/{:016x}.log", offset / data), 4096 + offset % data)
}

#[test]
fn a_flipped_bit_in_the_middle_is_damage() {
    for design in InsertDesign::ALL {
        for victim in [0, 1, 10, 30, 47] {
            for byte in [0, 5, 50, 900] {
                let disk = SimDisk::new(1);
                let inserted = hardened_log(&disk, design, 50, 1500);
                let (name, offset) = place(inserted[victim].lsn.advance(byte));
                disk.flip_bit(&name, offset, 3);
                match open(&disk, design) {
                    Err(WalError::Corrupt { segment, offset, .. }) => {
                        let at = (format!("log/{segment:016x}.log"), offset);
                        assert_eq!(at, place(inserted[victim].lsn), "victim {victim}, byte {byte}");
                    }
                    other => panic!("victim {victim}, byte {byte}: {other:?}"),
                }
                let mut scanner = reader(&disk, None).unwrap().scan(None).unwrap();
                let mut readable = 0;
                while scanner.next().unwrap().is_some() {
                    readable += 1;
                }
                assert_eq!(readable, victim);
                // Records behind it can be read from a known position.
                let known = inserted[victim + 1].lsn;
                let reader = reader(&disk, None).unwrap();
                assert!(reader.scan(Some(known)).unwrap().next().unwrap().is_some());
                open_from(&disk, design, known).unwrap();
            }
        }
    }
}

/// Destroys all records between the end and the furthest position that a flush can have reached:
/// only the records behind show that the log continued.
#[test]
fn records_beyond_the_reach_of_a_flush_are_damage() {
    let design = InsertDesign::Mutex;
    // In the window's last segment; at the start of the segment behind, with a window that ends
    // there; one segment further.
    for (count, end, window) in [(25, 5, 21), (35, 14, 30), (50, 14, 45)] {
        let disk = SimDisk::new(1);
        let inserted = hardened_log(&disk, design, count, 4096 - HEADER_BYTES);
        assert!(inserted.iter().enumerate().all(|(i, record)| record.lsn.get() == 4096 * (i as u64 + 1)));
        for record in &inserted[end..window] {
            let (name, offset) = place(record.lsn.advance(100));
            disk.flip_bit(&name, offset, 0);
        }
        let error = open(&disk, design).map(|wal| wal.end()).unwrap_err();
        let (name, at) = place(inserted[end].lsn);
        let WalError::Corrupt { segment, offset, .. } = error else { panic!("{count} records: {error}") };
        assert_eq!((format!("log/{segment:016x}.log"), offset), (name, at));
    }
}

fn open_from(disk: &SimDisk, design: InsertDesign, from: Lsn) -> duramen_wal::Result<Log> {
    Log::open(&arc(disk), &options(design), DATABASE, Some(from))
}

#[test]
fn opening_from_a_position_without_a_record_is_refused() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        let inserted = hardened_log(&disk, design, 50, 1500);
        let end = inserted[49].end;
        assert_eq!(open_from(&disk, design, inserted[20].lsn).unwrap().end(), end);
        assert!(matches!(open_from(&disk, design, inserted[20].lsn.advance(8)), Err(WalError::Corrupt { .. })));
        assert!(matches!(open_from(&disk, design, end), Err(WalError::Corrupt { .. })));
        for beyond in [1 << 40, u64::MAX] {
            assert!(matches!(open_from(&disk, design, Lsn::new(beyond)), Err(WalError::MissingSegment { .. })));
        }
        assert!(matches!(open_from(&disk, design, Lsn::ZERO), Err(WalError::OutOfRange { .. })));
        disk.remove("log/0000000000000001.log").unwrap();
        assert!(matches!(
            open_from(&disk, design, inserted[2].lsn),
            Err(WalError::MissingSegment { .. } | WalError::Corrupt { .. })
        ));
    }
}

#[test]
fn a_missing_segment_is_named() {
    for design in InsertDesign::ALL {
        for missing in [0, 1, 2] {
            let disk = SimDisk::new(1);
            hardened_log(&disk, design, 150, 1500);
            disk.remove(&format!("log/{missing:016x}.log")).unwrap();
            match open(&disk, design) {
                Err(WalError::MissingSegment { segment, .. }) => assert_eq!(segment, missing),
                other => panic!("segment {missing}: {other:?}"),
            }
        }
    }
}

#[test]
fn damaged_headers_are_named() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        hardened_log(&disk, design, 50, 1500);
        for (byte, bit) in [(0, 0), (13, 1), (20, 7), (50, 2), (500, 0)] {
            let damaged = disk.image();
            damaged.flip_bit("log/0000000000000000.log", byte, bit);
            let error = open(&damaged, design).unwrap_err();
            assert!(matches!(error, WalError::Corrupt { segment: 0, offset: 0, .. }), "byte {byte}: {error}");
        }
        let newer = disk.image();
        newer.flip_bit("log/0000000000000000.log", 8, 4);
        assert!(matches!(open(&newer, design), Err(WalError::WrongVersion { found: 19, supported: 6 })));
        let short = disk.image();
        short.open("log/0000000000000001.log", duramen_io::OpenMode::Existing).unwrap().set_len(8192).unwrap();
        assert!(matches!(open(&short, design), Err(WalError::Corrupt { segment: 1, offset: 8192, .. })));
    }
}

#[test]
fn a_segment_of_an_old_life_under_a_new_name_is_refused() {
    let disk = SimDisk::new(1);
    hardened_log(&disk, InsertDesign::Mutex, 50, 1500);
    disk.rename("log/0000000000000000.log", "log/0000000000000002.log").unwrap();
    assert!(matches!(open(&disk, InsertDesign::Mutex), Err(WalError::Corrupt { segment: 2, offset: 0, .. })));
}

#[test]
fn a_torn_tail_is_the_end() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        let inserted = hardened_log(&disk, design, 20, 1500);
        let last = inserted[19];
        let (name, offset) = place(last.lsn.advance(700));
        disk.flip_bit(&name, offset, 0);
        let wal = open(&disk, design).unwrap();
        assert_eq!(wal.end(), last.lsn);
        // The record that takes its place is not confused with it.
        insert(&wal, 77, 1500);
        wal.close().unwrap();
        let wal = open(&disk, design).unwrap();
        assert_eq!(read_all(&wal, last.lsn).unwrap()[0].txn.get(), 77);
    }
}

/// A flush of many records of which only some reached the disk leaves valid records behind the
/// hole. When as many bytes are inserted again as the hole had, the next records must not be the
/// old ones.
#[test]
fn records_behind_a_hole_do_not_come_back() {
    for design in InsertDesign::ALL {
        for seed in 0..30 {
            let disk = SimDisk::new(1);
            let wal = create(&disk, design);
            let inserted: Vec<_> = (0..20).map(|number| insert(&wal, number, 976)).collect();
            disk.crash_at(disk.operations());
            wal.wait_hardened(inserted[19].gsn, None).unwrap_err();
            drop(wal);
            let image = disk.crash_image(&CrashChoice::Random(seed));
            let wal = open(&image, design).unwrap();
            let survivors = read_all(&wal, FIRST_LSN).unwrap().len();
            let refill = insert(&wal, 1000, 976);
            wal.wait_hardened(refill.gsn, None).unwrap();
            drop(wal);
            let wal = open(&image, design).unwrap();
            let records = read_all(&wal, FIRST_LSN).unwrap();
            assert_eq!(records.len(), survivors + 1, "seed {seed}");
            assert_eq!(records[survivors].txn.get(), 1000);
        }
    }
}

/// The zeros that an opening wrote before its sync failed can be read, but they are not on the
/// medium: the next opening must write them again, or the records behind the hole return with the
/// next power cut.
#[test]
fn records_behind_a_hole_do_not_come_back_after_a_failed_erasure() {
    let design = InsertDesign::Mutex;
    for seed in 0..30 {
        let disk = SimDisk::new(1);
        let wal = create(&disk, design);
        let inserted: Vec<_> = (0..20).map(|number| insert(&wal, number, 976)).collect();
        disk.crash_at(disk.operations());
        wal.wait_hardened(inserted[19].gsn, None).unwrap_err();
        drop(wal);
        let image = disk.crash_image(&CrashChoice::Random(seed));
        image.fail_at(0, Fault::FailedSync, false);
        open(&image, design).unwrap_err();
        let wal = open(&image, design).unwrap();
        let survivors = read_all(&wal, FIRST_LSN).unwrap().len();
        for number in 0..8 {
            let refill = insert(&wal, 1000, 976);
            wal.wait_hardened(refill.gsn, None).unwrap();
            let after = image.crash_image(&CrashChoice::Nothing);
            let records = read_all(&open(&after, design).unwrap(), FIRST_LSN).unwrap();
            assert_eq!(records.len(), survivors + number + 1, "seed {seed}");
            assert!(records[survivors..].iter().all(|record| record.txn.get() == 1000), "seed {seed}");
        }
    }
}

/// The size of the log buffer in a segment's header tells the next recovery how far a flush can
/// have reached. A header whose write failed can be read, but it is not on the medium.
#[test]
fn headers_are_written_again_after_a_failed_write() {
    let design = InsertDesign::Mutex;
    let large = WalOptions { ring_bytes: 256 << 10, ..options(design) };
    let open_large = |disk: &SimDisk| Log::open(&arc(disk), &large, DATABASE, None);
    let ring_on_medium = |disk: &SimDisk, segment: u64| {
        let bytes = disk.durable_bytes(&format!("log/{segment:016x}.log")).unwrap();
        u64::from_le_bytes(bytes[72..80].try_into().unwrap())
    };
    let disk = SimDisk::new(1);
    hardened_log(&disk, design, 50, 1500);
    let before = {
        let probe = disk.image();
        open_large(&probe).unwrap();
        probe.operations()
    };
    for failing in 0..before {
        let disk = disk.image();
        disk.fail_at(failing, Fault::FailedSync, false);
        let failed = open_large(&disk).is_err();
        disk.clear_faults();
        open_large(&disk).unwrap();
        // The log ends in the second segment.
        assert_eq!(ring_on_medium(&disk, 1), 256 << 10, "operation {failing} failed: {failed}");
    }
}

#[test]
fn a_full_disk_fails_reservations_only() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        disk.set_capacity(150 << 10);
        let wal = create(&disk, design);
        let mut number = 0;
        let error = loop {
            match wal.reserve(2000) {
                Ok(()) => {
                    let inserted = insert(&wal, number, 1900);
                    wal.unreserve(2000);
                    wal.wait_hardened(inserted.gsn, None).unwrap();
                    number += 1;
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(error, WalError::Full { .. }), "{error:?}");
        assert!(wal.failure().is_none());
        assert_eq!(disk.file_names().iter().filter(|name| name.ends_with(".spare")).count(), 0);
        assert!(matches!(wal.reserve(2000), Err(WalError::Full { .. })));
        // The last segment still has room for a small record.
        let inserted = insert(&wal, number, 10);
        wal.wait_hardened(inserted.gsn, None).unwrap();
        disk.set_capacity(1 << 30);
        wal.reserve(2000).unwrap();
        wal.unreserve(2000);
        wal.close().unwrap();
        let wal = open(&disk, design).unwrap();
        assert_eq!(read_all(&wal, FIRST_LSN).unwrap().len() as u64, number + 1);
    }
}

#[test]
fn insertions_without_reservation_on_a_full_disk_stop_the_log() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        disk.set_capacity(100 << 10);
        let wal = create(&disk, design);
        let mut hardened = 0;
        let error = loop {
            let inserted = insert(&wal, hardened, 3000);
            match wal.wait_hardened(inserted.gsn, None) {
                Ok(()) => hardened += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(&error, WalError::Failed { first } if matches!(**first, WalError::Full { .. })), "{error:?}");
        drop(wal);
        disk.set_capacity(1 << 30);
        let wal = open(&disk, design).unwrap();
        assert_eq!(read_all(&wal, FIRST_LSN).unwrap().len() as u64, hardened);
    }
}

#[test]
fn a_failed_log_answers_everyone_and_blocks_nobody() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        let wal = create(&disk, design);
        let first = insert(&wal, 0, 100);
        wal.wait_hardened(first.gsn, None).unwrap();
        disk.fail_at(disk.operations(), Fault::Eio, true);
        std::thread::scope(|scope| {
            for thread in 1..4 {
                let wal = &wal;
                scope.spawn(move || {
                    for number in 0..100 {
                        // More than the buffer holds.
                        let inserted = insert(wal, thread * 1000 + number, 8000);
                        if number == 50 {
                            assert!(matches!(wal.wait_hardened(inserted.gsn, None), Err(WalError::Failed { .. })));
                        }
                    }
                });
            }
        });
        assert!(matches!(wal.failure(), Some(WalError::Disk(_))), "{:?}", wal.failure());
        let late = insert(&wal, 9999, 10);
        let hardened = wal.harden(late.gsn);
        assert!(hardened.is_ready());
        assert!(matches!(hardened.wait(), Err(WalError::Failed { .. })));
        assert!(matches!(wal.close(), Err(WalError::Failed { .. })));
        // What was hardened before stays hardened.
        wal.wait_hardened(first.gsn, None).unwrap();
        disk.clear_faults();
        drop(wal);
        let wal = open(&disk, design).unwrap();
        assert!(!read_all(&wal, FIRST_LSN).unwrap().is_empty());
    }
}

#[test]
fn dropping_a_log_is_like_a_crash() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        let mut options = options(design);
        options.group_commit.transactions = 100;
        options.group_commit.time = Duration::from_secs(10);
        let wal = Log::create(&arc(&disk), &options, DATABASE).unwrap();
        let pending = wal.harden(insert(&wal, 0, 100).gsn);
        drop(wal);
        assert!(matches!(pending.wait(), Err(WalError::Closed)));
        let wal = open(&disk, design).unwrap();
        assert_eq!(wal.end(), FIRST_LSN);
    }
}

#[test]
fn a_reservation_is_worth_its_bytes() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        let options = WalOptions { max_bytes: 256 << 10, ..options(design) };
        let wal = Log::create(&arc(&disk), &options, DATABASE).unwrap();
        wal.reserve(200 << 10).unwrap();
        assert!(matches!(wal.reserve(100 << 10), Err(WalError::Full { .. })));
        // The disk is full from here on, but the space has been reserved.
        disk.set_capacity(0);
        let mut last = Gsn::ZERO;
        for number in 0..20 {
            last = insert(&wal, number, 10_000 - HEADER_BYTES).gsn;
        }
        wal.wait_hardened(last, None).unwrap();
        wal.unreserve(200 << 10);
        assert_eq!(wal.stats().reserved_bytes, 0);
    }
}
