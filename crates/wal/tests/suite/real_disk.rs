//! The same log on real files.
#![cfg(not(duramen_loom))]

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use duramen_io::{Disk, OpenMode, RealDisk, RealDiskOptions};
use duramen_wal::{FIRST_LSN, InsertDesign, Log, WalOptions};

use crate::common::*;

#[test]
fn threads_commit_recycle_and_reopen() {
    for design in InsertDesign::ALL {
        let home = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(home.path(), RealDiskOptions::default()).unwrap());
        let options = WalOptions { ring_bytes: 1 << 20, segment_bytes: 1 << 20, spare_segments: 1, ..options(design) };
        let options = WalOptions { max_bytes: 8 << 20, ..options };
        let wal = Log::create(&disk, &options, DATABASE).unwrap();
        let before = disk.counters();
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let wal = &wal;
                scope.spawn(move || {
                    for number in 0..60 {
                        wal.reserve(70_000).unwrap();
                        let inserted = insert(wal, thread << 32 | number, (number as usize * 997) % 60_000);
                        wal.unreserve(70_000);
                        wal.wait_hardened(inserted.gsn, None).unwrap();
                        if number % 20 == 19 {
                            wal.recycle_to(inserted.lsn).unwrap();
                        }
                    }
                });
            }
        });
        let stats = wal.stats();
        assert_eq!((stats.records, stats.durable), (180, stats.end));
        // At least one sync for each flush.
        assert!(disk.counters().syncs - before.syncs >= stats.flushes);
        assert!(stats.start > FIRST_LSN);
        drop(wal);
        let wal = Log::open(&disk, &options, DATABASE, None).unwrap();
        assert_eq!((wal.start(), wal.end()), (stats.start, stats.end));
        read_all(&wal, stats.start).unwrap().iter().for_each(assert_intact);
    }
}

/// Large writes go to space without zeros, so what they log is written once. It does not make the
/// log grow by a whole segment of zeros when writes are small again.
#[test]
fn files_grow_without_zeros_for_large_writes() {
    const BYTES: u64 = 10 << 20;
    const LATER: u64 = 50;
    const SIZE: usize = 30_000;
    let insert_durably = |log: &Log, numbers: Range<u64>, size| {
        let bytes = (numbers.end - numbers.start) * record_bytes(size);
        log.reserve(bytes).unwrap();
        let inserted = numbers.fold(None, |_, number| Some(insert(log, number, size))).unwrap();
        log.unreserve(bytes);
        log.wait_hardened(inserted.gsn, None).unwrap();
    };
    let home = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(home.path(), RealDiskOptions::default()).unwrap();
    disk.open("probe", OpenMode::CreateNew).unwrap().reserve(1 << 20).unwrap();
    if disk.counters().written_bytes > 0 {
        return println!("this file system reserves no space without zeros");
    }
    let records = BYTES / record_bytes(SIZE) / 10 * 10;
    let written = [1, 10].map(|at_once| {
        let home = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(home.path(), RealDiskOptions::default()).unwrap());
        let options = WalOptions { ring_bytes: 1 << 20, segment_bytes: 8 << 20, ..options(InsertDesign::Hybrid) };
        let options = WalOptions { max_bytes: 64 << 20, spare_segments: 1, ..options };
        let log = Log::create(&disk, &options, DATABASE).unwrap();
        for number in (0..records).step_by(at_once) {
            insert_durably(&log, number..number + at_once as u64, SIZE);
        }
        let written = disk.counters().written_bytes;
        if at_once > 1 {
            // What runs in the background has time to begin.
            for number in records..records + LATER {
                insert_durably(&log, number..number + 1, 1);
                thread::sleep(Duration::from_millis(2));
            }
            let later = disk.counters().written_bytes - written;
            assert!(later < 1 << 20, "{later} bytes for {LATER} small records");
        }
        log.close().unwrap();
        drop(log);
        let log = Log::open(&disk, &options, DATABASE, None).unwrap();
        let found = read_all(&log, log.start()).unwrap();
        assert_eq!(found.len() as u64, records + if at_once > 1 { LATER } else { 0 });
        found.iter().for_each(assert_intact);
        written
    });
    assert!(written[1] < written[0] - BYTES / 2, "{written:?}");
    // Until the log has noted a few large writes, its file grows with zeros, ahead of the records.
    assert!(written[1] < BYTES * 3 / 2, "{written:?}");
}
