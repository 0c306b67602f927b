//! Scans in small windows, most of which are read ahead.

use duramen_io::{Disk, Fault, SimDisk};
use duramen_types::{Gsn, LogAddress, LogId, PageId, TxnId};

use super::*;
use crate::error::WalError;
use crate::format::record::NewRecord;
use crate::options::WalOptions;
use crate::several::log::Log;

/// Returns the length of a record's payload, given its number.
type Length = fn(u64) -> usize;

/// Small records, as in most transactions; a window has many.
fn small(number: u64) -> usize {
    (number * number % 601) as usize
}

/// Some records continue in the next window; a few continue so far that they are read again instead
/// of assembled; one is longer than a window.
fn mixed(number: u64) -> usize {
    match number % 97 {
        _ if number == 1_000 => 3 * HEADROOM,
        70 => 3 * HEADROOM / 2,
        50 => HEADROOM / 2,
        20 => 9_000,
        _ => small(number),
    }
}

/// Makes a log of `records` records.
fn log(disk: &SimDisk, records: u64, length: Length) -> Log {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = WalOptions { ring_bytes: 1 << 20, segment_bytes: 256 << 10, ..WalOptions::default() };
    let wal = Log::create(&shared, &options, [7; 16]).unwrap();
    let mut last = Gsn::ZERO;
    for number in 0..records {
        let payload = vec![number as u8; length(number)];
        let (txn, page) = (TxnId::new(number), PageId::new(number));
        let record =
            NewRecord { kind: 1, flags: 0, txn, page, prev: LogAddress::ZERO, after: Gsn::ZERO, payload: &payload };
        last = wal.insert(LogId::ZERO, record).gsn;
    }
    wal.wait_hardened(last, None).unwrap();
    wal
}

fn scanner(wal: &Log, blocks: u64, is_open: bool) -> Scanner {
    let whole = wal.scan(LogId::ZERO, Lsn::ZERO);
    let end = if is_open { whole.end } else { End::FirstInvalid };
    Scanner::new(Arc::clone(&whole.files), whole.position(), end, (blocks * BLOCK) as usize, HEADROOM)
}

/// What happened during a scan.
#[derive(Default, Debug)]
struct Seen {
    failures: u64,
    /// Windows that were read ahead.
    ahead: u64,
}

/// Reads on to the end, past failures.
fn read_all(scanner: &mut Scanner, records: u64, length: Length) -> Seen {
    let (mut seen, mut number, mut window) = (Seen::default(), 0, 0);
    loop {
        match scanner.next() {
            Ok(Some(record)) => {
                assert_eq!((record.txn.get(), record.payload.len()), (number, length(number)));
                assert!(record.payload.iter().all(|byte| *byte == number as u8));
                let (lsn, end) = (record.lsn, record.end);
                assert!(scanner.again().is_some_and(|again| (again.lsn, again.end) == (lsn, end)));
                number += 1;
            }
            Ok(None) => break,
            Err(WalError::Disk { .. }) => seen.failures += 1,
            Err(error) => panic!("{error}"),
        }
        seen.ahead += u64::from(scanner.window_start != window && scanner.window_at < HEADROOM);
        window = scanner.window_start;
    }
    assert_eq!(number, records);
    seen
}

#[test]
fn a_scan_that_reads_ahead_finds_every_record() {
    let cases: [(Length, u64, u64, u64); 5] =
        [(small, 4_000, 2, 60), (small, 4_000, 5, 20), (mixed, 900, 40, 3), (mixed, 900, 50, 3), (mixed, 1_500, 40, 3)];
    for (length, records, blocks, expected) in cases {
        let wal = log(&SimDisk::new(1), records, length);
        for is_open in [true, false] {
            let mut scanner = scanner(&wal, blocks, is_open);
            let seen = read_all(&mut scanner, records, length);
            assert!(seen.failures == 0 && seen.ahead >= expected, "{records} records, {blocks} blocks: {seen:?}");
            assert!(scanner.next().unwrap().is_none());
        }
    }
}

/// A part that could not be read ahead is read again, and only a failure of that read counts.
#[test]
fn a_scan_goes_on_after_a_failure() {
    let disk = SimDisk::new(2);
    let wal = log(&disk, 3_000, small);
    let (mut seen, mut unseen) = (0, 0);
    for at in 0..40 {
        let mut scanner = scanner(&wal, 4, true);
        let fault = disk.operations() + at;
        disk.fail_at(fault, Fault::Eio, false);
        let failures = read_all(&mut scanner, 3_000, small).failures;
        assert!(disk.operations() > fault, "the scan is too short");
        disk.clear_faults();
        *if failures == 0 { &mut unseen } else { &mut seen } += 1;
    }
    assert!(seen >= 4 && unseen > 20, "{seen} failures of the scan, {unseen} in reading ahead");
}

/// A scan is dropped while a part is being read ahead.
#[test]
fn a_scan_ends_at_any_point() {
    let wal = log(&SimDisk::new(3), 1_000, small);
    for records in (0..1_000).step_by(7) {
        let mut scanner = scanner(&wal, 2, true);
        for _ in 0..records {
            scanner.next().unwrap();
        }
    }
}
