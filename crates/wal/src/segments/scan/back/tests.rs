//! Records read backwards, by the addresses that other records name.

use duramen_io::{Disk, SimDisk};
use duramen_types::{Gsn, LogAddress, LogId, PageId, TxnId};

use super::*;
use crate::error::WalError;
use crate::format::record::NewRecord;
use crate::options::WalOptions;
use crate::several::log::Log;

/// Makes a log of `records` records whose segments hold some windows each.
fn log(disk: &SimDisk, records: u64, length: fn(u64) -> usize) -> (Log, Vec<Lsn>) {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = WalOptions { ring_bytes: 8 << 20, segment_bytes: 3 << 20, ..WalOptions::default() };
    let wal = Log::create(&shared, &options, [7; 16]).unwrap();
    let mut places = Vec::new();
    for number in 0..records {
        let payload = vec![number as u8; length(number)];
        let (txn, page) = (TxnId::new(number), PageId::new(number));
        let record =
            NewRecord { kind: 1, flags: 0, txn, page, prev: LogAddress::ZERO, after: Gsn::ZERO, payload: &payload };
        places.push(wal.insert(LogId::ZERO, record).lsn);
    }
    wal.wait_hardened(Gsn::new(places.last().unwrap().get()), None).unwrap();
    (wal, places)
}

fn place(lsn: Lsn) -> LogAddress {
    LogAddress::of(LogId::ZERO, lsn)
}

/// Reads every `step`-th record, the last first; returns the number of operations and bytes.
fn read_all(disk: &SimDisk, wal: &Log, step: usize) -> (u64, u64) {
    let mut forward = wal.scan(LogId::ZERO, Lsn::ZERO);
    let mut expected = Vec::new();
    while let Some(record) = forward.next().unwrap() {
        expected.push((record.address(), record.txn, record.page, record.payload.to_vec()));
    }
    drop(forward);
    let (before, mut scanner) = (disk.counters(), wal.read_back());
    for (address, txn, page, payload) in expected.iter().rev().step_by(step) {
        let record = scanner.read(*address).unwrap();
        assert!((record.txn, record.page, record.payload) == (*txn, *page, &payload[..]), "the record at {address}");
    }
    let after = disk.counters();
    (after.reads - before.reads, after.read_bytes - before.read_bytes)
}

/// Some records are longer than the first windows, and some longer than any.
fn mixed(number: u64) -> usize {
    match number % 500 {
        499 => 1_300_000,
        250 => 70_000,
        number if number % 50 == 7 => 12_000,
        number => (number * number % 601) as usize,
    }
}

#[test]
fn windows_grow_where_records_are_near() {
    assert_eq!(next_size(1 << 30, None, 1 << 20, MOST), LEAST);
    assert_eq!(next_size((1 << 30) - 100, Some(1 << 30), LEAST, MOST), 2 * LEAST);
    assert_eq!(next_size((1 << 30) - 100, Some(1 << 30), MOST, MOST), MOST);
    assert_eq!(next_size((1 << 30) - MOST, Some(1 << 30), MOST, MOST), LEAST);
    assert_eq!(next_size((1 << 30) + 100, Some(1 << 30), MOST, MOST), LEAST);
}

#[test]
fn neighbours_are_read_together() {
    let disk = SimDisk::new(1);
    let (wal, _) = log(&disk, 40_000, |number| (number % 300) as usize);
    let bytes = wal.extents()[0].end.get();
    for step in [1, 3, 70] {
        let (reads, read) = read_all(&disk, &wal, step);
        assert!(reads < 12 + 2 * bytes / MOST, "{reads} reads of {bytes} bytes, every {step}th record");
        assert!(read < bytes + (1 << 20), "{read} bytes read of {bytes}");
    }
}

#[test]
fn records_of_all_lengths_are_found() {
    let disk = SimDisk::new(2);
    let (wal, _) = log(&disk, 4_000, mixed);
    for step in [1, 2, 17] {
        let (reads, _) = read_all(&disk, &wal, step);
        assert!(reads < 100, "{reads} reads, every {step}th record");
    }
}

/// Where records are far apart, the bytes between them are not read.
#[test]
fn what_lies_between_is_not_read() {
    let disk = SimDisk::new(3);
    let (wal, _) = log(&disk, 40_000, |number| (number % 300) as usize);
    let step = 4_000;
    let (reads, bytes) = read_all(&disk, &wal, step);
    assert!(reads <= 2 * 10 && bytes <= reads * LEAST, "{reads} reads of {bytes} bytes");
}

/// The window's last block was being filled when it was read.
#[test]
fn what_was_not_hardened_is_read_again() {
    let disk = SimDisk::new(4);
    let (wal, places) = log(&disk, 10, |_| 100);
    let mut scanner = wal.read_back();
    scanner.read(place(places[9])).unwrap();
    let record = NewRecord {
        kind: 2,
        flags: 0,
        txn: TxnId::new(1),
        page: PageId::ZERO,
        prev: LogAddress::ZERO,
        after: Gsn::ZERO,
        payload: b"later",
    };
    let later = wal.insert(LogId::ZERO, record);
    assert!(matches!(scanner.read(place(later.lsn)), Err(WalError::OutOfRange { .. })));
    wal.wait_hardened(later.gsn, None).unwrap();
    assert_eq!(scanner.read(place(later.lsn)).unwrap().payload, b"later");
    assert_eq!(scanner.read(place(places[0])).unwrap().txn, TxnId::new(0));
}

/// An address at which no record begins, as damage or a malformed record may name it.
#[test]
fn a_place_without_a_record_is_refused() {
    let disk = SimDisk::new(5);
    let (wal, places) = log(&disk, 3_000, |number| (number % 200) as usize);
    for first in [2_999, 1_500] {
        let mut scanner = wal.read_back();
        scanner.read(place(places[first])).unwrap();
        for wrong in [places[700].advance(8), Lsn::new(places[first].get() - 1)] {
            let refused = scanner.read(place(wrong)).unwrap_err();
            assert!(matches!(refused, WalError::Corrupt { .. }), "{refused}");
        }
        // The reader works after that.
        assert_eq!(scanner.read(place(places[600])).unwrap().txn, TxnId::new(600));
    }
    let mut scanner = wal.read_back();
    for outside in [Lsn::ZERO, wal.extents()[0].end] {
        assert!(matches!(scanner.read(place(outside)), Err(WalError::OutOfRange { .. })));
    }
}
