//! The files of a log grow with it: a new log is small, space is made ahead of need, and closing
//! the log gives back what the next opening does not need.
#![cfg(not(duramen_loom))]

use duramen_io::{CrashChoice, Disk, Fault, OpenMode, SimDisk};
use duramen_pmem::{Domain, SimMemory, Source};
use duramen_wal::{InsertDesign, Log, LogDevice, NvmOptions, WalError, WalOptions};

use crate::common::*;

const SEGMENT: u64 = 8 << 20;

fn large(spare_segments: usize) -> WalOptions {
    WalOptions {
        ring_bytes: 1 << 20,
        segment_bytes: SEGMENT,
        max_bytes: 8 * SEGMENT,
        spare_segments,
        ..options(InsertDesign::Hybrid)
    }
}

/// Returns the sizes of all files of the log.
fn sizes(disk: &SimDisk) -> Vec<u64> {
    let names = disk.list("log").unwrap();
    names.iter().map(|name| disk.open(&format!("log/{name}"), OpenMode::Existing).unwrap().len().unwrap()).collect()
}

/// Inserts `bytes` bytes under reservations, and hardens them.
fn fill(log: &Log, first: u64, bytes: u64) -> u64 {
    let mut number = first;
    let size = 4000;
    while (number - first) * record_bytes(size) < bytes {
        log.reserve(record_bytes(size)).unwrap();
        let inserted = insert(log, number, size);
        log.unreserve(record_bytes(size));
        log.wait_hardened(inserted.gsn, None).unwrap();
        number += 1;
    }
    number
}

fn check(log: &Log, records: u64) {
    let found = read_all(log, log.start()).unwrap();
    assert_eq!(found.len() as u64, records);
    found.iter().for_each(assert_intact);
}

#[test]
fn the_files_grow_with_the_log_and_shrink_when_it_is_closed() {
    for spare_segments in [0, 2] {
        let disk = SimDisk::new(1);
        let options = large(spare_segments);
        let log = Log::create(&arc(&disk), &options, DATABASE).unwrap();
        assert!(sizes(&disk).iter().sum::<u64>() <= 256 << 10, "{:?}", sizes(&disk));
        let mut records = fill(&log, 0, 300 << 10);
        let total = sizes(&disk).iter().sum::<u64>();
        assert!((300 << 10..=2 << 20).contains(&total), "{total}");
        log.close().unwrap();
        drop(log);
        let total = sizes(&disk).iter().sum::<u64>();
        assert!(total <= (300 << 10) + (256 << 10), "{total}");

        let log = Log::open(&arc(&disk), &options, DATABASE, None).unwrap();
        check(&log, records);
        records = fill(&log, records, 3 * SEGMENT);
        check(&log, records);
        assert!(log.stats().segments_live >= 4, "{:?}", log.stats());
        log.close().unwrap();
        drop(log);
        assert_eq!(disk.list("log").unwrap().len(), 4, "{:?}", disk.list("log"));
        assert!(sizes(&disk).iter().sum::<u64>() < 4 * SEGMENT, "{:?}", sizes(&disk));
        // What has been cut off is cut off durably, and in order.
        let image = disk.crash_image(&CrashChoice::Nothing);
        check(&Log::open(&arc(&image), &options, DATABASE, None).unwrap(), records);
    }
}

/// Cuts the power at each operation of closing.
#[test]
fn a_crash_while_the_files_shrink_loses_nothing() {
    let options = large(0);
    let life = |disk: &SimDisk| {
        let log = Log::create(&arc(disk), &options, DATABASE).unwrap();
        let records = fill(&log, 0, 50 << 10);
        // Makes further segments, which closing removes.
        log.reserve(3 * SEGMENT).unwrap();
        log.unreserve(3 * SEGMENT);
        (log, records)
    };
    let disk = SimDisk::new(1);
    let (log, records) = life(&disk);
    assert_eq!(disk.list("log").unwrap().len(), 4);
    let before = disk.operations();
    log.close().unwrap();
    let after = disk.operations();
    assert_eq!(disk.list("log").unwrap().len(), 1);
    let mut crashes = 0;
    for crash_at in before..after {
        let disk = SimDisk::new(1);
        let (log, _) = life(&disk);
        disk.list("log").unwrap();
        disk.crash_at(crash_at);
        log.close().unwrap_err();
        drop(log);
        crashes += 1;
        for choice in [CrashChoice::Nothing, CrashChoice::Everything, CrashChoice::Random(1), CrashChoice::Random(2)] {
            let image = disk.crash_image(&choice);
            let log = Log::open(&arc(&image), &options, DATABASE, None)
                .unwrap_or_else(|error| panic!("crash at {crash_at}, {choice:?}: {error}"));
            check(&log, records);
        }
    }
    assert!(crashes > 5, "{crashes}");
}

#[test]
fn a_file_that_has_lost_its_end_is_damaged() {
    let disk = SimDisk::new(1);
    let options = large(0);
    let log = Log::create(&arc(&disk), &options, DATABASE).unwrap();
    fill(&log, 0, 10 << 10);
    log.close().unwrap();
    drop(log);
    let name = format!("log/{}", disk.list("log").unwrap()[0]);
    let len = sizes(&disk)[0];
    assert!(len < SEGMENT);
    for (len, is_damaged) in [(len, false), (len + 4096, false), (len - 4096, true), (8192, true)] {
        let image = disk.image();
        image.open(&name, OpenMode::Existing).unwrap().set_len(len).unwrap();
        let opened = Log::open(&arc(&image), &options, DATABASE, None);
        match opened {
            Ok(_) => assert!(!is_damaged, "{len}"),
            Err(WalError::Corrupt { segment: 0, offset, .. }) => {
                assert!(is_damaged && offset == len, "{len}: {offset}")
            }
            Err(other) => panic!("{len}: {other}"),
        }
    }
}

/// A reservation on a full disk gets `Full`, takes what little there is before, and succeeds when
/// there is space again.
#[test]
fn a_full_disk_stops_the_growth_and_not_the_log() {
    for spare_segments in [0, 1] {
        let disk = SimDisk::new(1);
        let options = large(spare_segments);
        let log = Log::create(&arc(&disk), &options, DATABASE).unwrap();
        disk.set_capacity(1 << 20);
        let mut number = 0;
        let full = loop {
            if let Err(error) = log.reserve(record_bytes(4000)) {
                break error;
            }
            let inserted = insert(&log, number, 4000);
            log.unreserve(record_bytes(4000));
            log.wait_hardened(inserted.gsn, None).unwrap();
            number += 1;
        };
        assert!(matches!(full, WalError::Full { .. }), "{full}");
        assert!(number * record_bytes(4000) > 800 << 10, "the space of the disk is used: {number} records");
        disk.set_capacity(u64::MAX);
        let number = fill(&log, number, 2 * SEGMENT);
        check(&log, number);
    }
}

/// A sync that fails while a file grows is the error of the reservation; nothing hardened is lost.
#[test]
fn a_failure_of_growth_is_reported() {
    for fault in [Fault::Eio, Fault::FailedSync] {
        let disk = SimDisk::new(1);
        let options = large(0);
        let log = Log::create(&arc(&disk), &options, DATABASE).unwrap();
        let number = fill(&log, 0, 20 << 10);
        disk.fail_at(disk.operations(), fault, true);
        let error = log.reserve(1 << 20).unwrap_err();
        assert!(matches!(error, WalError::Disk(_)), "{error}");
        drop(log);
        for choice in [CrashChoice::Nothing, CrashChoice::Everything, CrashChoice::Random(3)] {
            let log = Log::open(&arc(&disk.crash_image(&choice)), &options, DATABASE, None).unwrap();
            check(&log, number);
        }
    }
}

/// Regression: a segment had got its name when the sync of the directory failed, so closing the log
/// removed the segment before it only, and the log could not be opened any more.
#[test]
fn a_failed_sync_while_segments_are_made_leaves_no_gap() {
    each_failed_sync(false);
}

/// Regression: a header stated the new size of its file when its sync failed; the next attempt
/// failed to sync the file and cut it off again, so it was shorter than its header stated.
#[test]
fn after_failed_syncs_no_file_is_shorter_than_its_header_states() {
    each_failed_sync(true);
}

/// Lets one sync fail while files grow, or all from this one on, and opens the log again.
fn each_failed_sync(persistent: bool) {
    let options = WalOptions { segment_bytes: 256 << 10, ..large(0) };
    for operation in 0.. {
        let disk = SimDisk::new(1);
        let log = Log::create(&arc(&disk), &options, DATABASE).unwrap();
        let number = fill(&log, 0, 20 << 10);
        let begun = disk.operations();
        disk.fail_at(begun + operation, Fault::FailedSync, persistent);
        // The space of three segments, in steps, some of which fail.
        let step = 100 << 10;
        let reserved = (0..8).filter(|_| log.reserve(step).is_ok()).count() as u64;
        if reserved == 8 && disk.operations() <= begun + operation {
            assert!(operation > 10);
            break;
        }
        disk.clear_faults();
        log.unreserve(reserved * step);
        let _ = log.close();
        drop(log);
        let log = Log::open(&arc(&disk), &options, DATABASE, None).unwrap();
        check(&log, number);
    }
}

/// Regression: when a segment had been removed, the one before, which was the last one then, still
/// named the ring in persistent memory that no longer held the end of the log.
#[test]
fn a_log_that_has_left_its_ring_does_not_name_it_again() {
    let mut outcomes = [0, 0];
    for operation in 0.. {
        let (disk, domain) = (SimDisk::new(1), Domain::DurableCache);
        let memory = SimMemory::new(4096 + (1 << 20), domain);
        let nvm = NvmOptions::new(Source::Simulated(memory), domain);
        let in_files = WalOptions { segment_bytes: 256 << 10, ..large(4) };
        let options = WalOptions { device: LogDevice::Nvm(nvm), ..in_files.clone() };
        let log = Log::create(&arc(&disk), &options, DATABASE).unwrap();
        let number = fill(&log, 0, 20 << 10);
        log.reserve(700 << 10).unwrap();
        log.unreserve(700 << 10);
        let names = disk.file_names().len();
        assert!(names > 2, "{names} segments");
        disk.fail_at(disk.operations() + operation, Fault::Eio, false);
        let is_over = log.close().is_ok();
        disk.clear_faults();
        drop(log);
        let opened = Log::open(&arc(&disk), &in_files, DATABASE, None);
        outcomes[usize::from(opened.is_ok())] += 1;
        match opened {
            Ok(log) => check(&log, number),
            Err(WalError::RingNeeded { .. }) => {
                assert_eq!(outcomes[1], 0, "it had left the ring after fewer operations: {operation}");
                check(&Log::open(&arc(&disk), &options, DATABASE, None).unwrap(), number);
            }
            Err(error) => panic!("{operation}: {error}"),
        }
        if is_over {
            break;
        }
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 2, "{outcomes:?}");
}

/// A log that is closed while something is reserved keeps the space, which recovery may need.
#[test]
fn space_that_is_reserved_stays() {
    let disk = SimDisk::new(1);
    let options = WalOptions { segment_bytes: 256 << 10, ..large(4) };
    let log = Log::create(&arc(&disk), &options, DATABASE).unwrap();
    let number = fill(&log, 0, 20 << 10);
    log.reserve(500 << 10).unwrap();
    log.close().unwrap();
    drop(log);
    disk.set_capacity(disk.used());
    let log = Log::open(&arc(&disk), &options, DATABASE, None).unwrap();
    log.reserve(500 << 10).unwrap();
    check(&log, number);
}

/// Regression: a spare with the name that a segment in use gets as a spare was there twice later.
#[test]
fn a_spare_with_the_number_of_a_segment_is_removed() {
    let disk = SimDisk::new(1);
    let options = WalOptions { segment_bytes: 256 << 10, ..large(4) };
    let log = Log::create(&arc(&disk), &options, DATABASE).unwrap();
    let number = fill(&log, 0, 20 << 10);
    drop(log);
    let name = "log/0000000000000000.spare";
    disk.open(name, OpenMode::CreateNew).unwrap().allocate(256 << 10).unwrap();
    let log = Log::open(&arc(&disk), &options, DATABASE, None).unwrap();
    assert!(!disk.exists(name).unwrap());
    for round in 0..6 {
        let number = fill(&log, number + round * 64, 256 << 10);
        let inserted = insert(&log, number, 100);
        log.wait_hardened(inserted.gsn, None).unwrap();
        log.recycle_to(inserted.lsn).unwrap();
    }
    log.close().unwrap();
}
