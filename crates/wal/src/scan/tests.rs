//! Scans in small windows, most of which are read ahead.

use duramen_io::{Disk, Fault, SimDisk};
use duramen_types::{Gsn, PageId, Place, TxnId};

use super::*;
use crate::options::WalOptions;
use crate::record::NewRecord;
use crate::wal::Wal;

/// A log of so many records: mostly small ones, some longer than many windows.
fn log(disk: &SimDisk, records: u64) -> Wal {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = WalOptions { ring_bytes: 1 << 20, segment_bytes: 256 << 10, ..WalOptions::default() };
    let wal = Wal::create(shared, options, [7; 16]).unwrap();
    let mut last = Gsn::ZERO;
    for number in 0..records {
        let len = match number % 97 {
            96 => 200_000,
            50 => 30_000,
            other => (other * other % 601) as usize,
        };
        let payload = vec![number as u8; len];
        let (txn, page) = (TxnId::new(number), PageId::new(number));
        let record = NewRecord { kind: 1, flags: 0, txn, page, prev: Place::ZERO, after: Gsn::ZERO, payload: &payload };
        last = wal.insert(record).gsn;
    }
    wal.wait_hardened(last).unwrap();
    wal
}

fn scanner(wal: &Wal, blocks: u64, is_open: bool) -> Scanner {
    let whole = wal.scan(Lsn::ZERO);
    let end = if is_open { whole.end } else { End::FirstInvalid };
    Scanner::new(Arc::clone(&whole.files), whole.position(), end, (blocks * BLOCK) as usize)
}

/// Reads on to the end, past failures; returns how many there were.
fn read_all(scanner: &mut Scanner, records: u64) -> u64 {
    let (mut failures, mut number) = (0, 0);
    loop {
        match scanner.next() {
            Ok(Some(record)) => {
                assert_eq!(record.txn.get(), number);
                assert!(record.payload.iter().all(|byte| *byte == number as u8));
                let (lsn, end) = (record.lsn, record.end);
                assert!(scanner.again().is_some_and(|again| (again.lsn, again.end) == (lsn, end)));
                number += 1;
            }
            Ok(None) => break,
            Err(WalError::Disk { .. }) => failures += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(number, records);
    failures
}

#[test]
fn a_scan_that_reads_ahead_finds_every_record() {
    let wal = log(&SimDisk::new(1), 700);
    for blocks in [2, 3, 16, 40] {
        for is_open in [true, false] {
            let mut scanner = scanner(&wal, blocks, is_open);
            assert_eq!(read_all(&mut scanner, 700), 0);
            assert!(scanner.ahead.is_some() && scanner.next().unwrap().is_none());
        }
    }
}

/// What could not be read ahead is read again, and only then is a failure one.
#[test]
fn a_scan_goes_on_after_a_failure() {
    let disk = SimDisk::new(2);
    let wal = log(&disk, 300);
    let (mut seen, mut unseen) = (0, 0);
    for at in 0..60 {
        let mut scanner = scanner(&wal, 4, true);
        disk.fail_at(disk.operations() + at, Fault::Eio, false);
        match read_all(&mut scanner, 300) {
            0 => unseen += 1,
            _ => seen += 1,
        }
        disk.clear_faults();
    }
    assert!(seen > 2 && unseen > 20, "{seen} failures of the scan, {unseen} in reading ahead");
}

/// One that is let go while a part is being read ahead.
#[test]
fn a_scan_ends_at_any_point() {
    let wal = log(&SimDisk::new(3), 300);
    for records in 0..300 {
        let mut scanner = scanner(&wal, 2, true);
        for _ in 0..records {
            scanner.next().unwrap();
        }
    }
}
