//! Many threads, over every insertion design: every record exists exactly once, intact, in LSN
//! order, and each thread's records are in its order; with full buffers, records of all sizes, and
//! a device that fails in the middle.
#![cfg(not(duramen_loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use duramen_io::{Fault, SimDisk};
use duramen_types::{Gsn, Lsn};
use duramen_wal::{FIRST_LSN, InsertDesign, Log, Sealing, WalError, WalOptions};

use crate::common::*;

/// Each thread's records carry the thread's number in the upper bits of the transaction and a count
/// in the lower ones.
const THREAD_SHIFT: u32 = 32;

/// Checks the records of a whole log; returns the number of records of each thread.
fn check(records: &[Record], threads: u64) -> Vec<u64> {
    let mut next = vec![0; threads as usize];
    let mut position = FIRST_LSN;
    for record in records {
        assert_eq!((record.lsn, record.gsn), (position, Gsn::new(position.get())));
        position = record.end;
        let (thread, number) = (record.txn.get() >> THREAD_SHIFT, record.txn.get() & u64::from(u32::MAX));
        assert_eq!(number, next[thread as usize], "order of thread {thread}");
        next[thread as usize] += 1;
        assert_intact(record);
    }
    next
}

fn stress(options: WalOptions, threads: u64, per_thread: u64, size: fn(&mut Rng) -> usize, harden_one_in: u64) {
    let disk = SimDisk::new(1);
    let wal = Arc::new(Log::create(&arc(&disk), &options, DATABASE).unwrap());
    let joined: Vec<_> = (0..threads)
        .map(|thread| {
            let wal = Arc::clone(&wal);
            std::thread::spawn(move || {
                let mut random = Rng::new(thread);
                for number in 0..per_thread {
                    let txn = thread << THREAD_SHIFT | number;
                    let inserted = insert(&wal, txn, size(&mut random));
                    if random.below(harden_one_in) == 0 {
                        wal.wait_hardened(inserted.gsn, None).unwrap();
                        assert!(wal.durable() >= inserted.end);
                    }
                }
            })
        })
        .collect();
    joined.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(wal.stats().records, threads * per_thread);
    wal.close().unwrap();
    let stats = wal.stats();
    assert_eq!(stats.durable, stats.end);
    let live = read_all(&wal, FIRST_LSN).unwrap();
    assert_eq!(check(&live, threads), vec![per_thread; threads as usize]);
    drop(wal);
    let wal = Log::open(&arc(&disk), &options, DATABASE, None).unwrap();
    assert_eq!(read_all(&wal, FIRST_LSN).unwrap(), live);
}

fn roomy(design: InsertDesign, ring_bytes: usize) -> WalOptions {
    WalOptions { ring_bytes, segment_bytes: 1 << 20, max_bytes: 1 << 30, spare_segments: 1, ..options(design) }
}

#[test]
fn small_records_in_a_large_ring() {
    for design in InsertDesign::ALL {
        stress(roomy(design, 4 << 20), 4, 5000, |random| random.below(200) as usize, 200);
    }
}

#[test]
fn all_sizes() {
    for design in InsertDesign::ALL {
        let size = |random: &mut Rng| match random.below(4) {
            0 => 0,
            1 => random.below(200) as usize,
            2 => random.below(4096) as usize,
            _ => random.below(65536 - 48) as usize,
        };
        stress(roomy(design, 1 << 20), 4, 400, size, 10);
    }
}

#[test]
fn a_ring_that_is_always_full() {
    for design in InsertDesign::ALL {
        stress(roomy(design, 64 << 10), 4, 500, |random| random.below(16384 - 48) as usize, 1_000_000);
    }
}

/// From the smallest record, 24 bytes, to 1 MiB, the largest that this ring allows. A large record
/// then often finds the ring full, and small ones are next to large ones.
#[test]
fn from_the_smallest_record_to_a_mebibyte() {
    for design in InsertDesign::ALL {
        let size = |random: &mut Rng| match random.below(24) {
            0 => (1 << 20) - 48,
            1..4 => random.below(64 << 10) as usize,
            4..12 => 0,
            _ => random.below(200) as usize,
        };
        stress(WalOptions { segment_bytes: 4 << 20, ..roomy(design, 4 << 20) }, 4, 150, size, 50);
    }
}

/// Few slots, many threads, and records that occupy slots for long: slots run out.
#[test]
fn a_pool_that_is_used_up() {
    for design in InsertDesign::ALL {
        let options = WalOptions { array_slots: 1, slot_pool: 2, ..roomy(design, 64 << 10) };
        let size = |random: &mut Rng| if random.below(30) == 0 { 16384 - 48 } else { random.below(100) as usize };
        stress(options, 8, 500, size, 100);
    }
}

/// The device fails while many threads insert. Some of them wait for room, and some for their
/// records to be durable. Every thread finishes, no record is reported as hardened that is not, and
/// what was hardened is read back, each record once, in order, without a hole in any thread's
/// sequence.
#[test]
fn a_device_that_fails_in_the_middle() {
    const THREADS: u64 = 6;
    for design in InsertDesign::ALL {
        for fail_after in [3, 20, 60] {
            let disk = SimDisk::new(1);
            let options = roomy(design, 64 << 10);
            let wal = Log::create(&arc(&disk), &options, DATABASE).unwrap();
            disk.fail_at(disk.operations() + fail_after, Fault::Eio, true);
            // For each thread, how many of its records were reported as hardened.
            let hardened: Vec<u64> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|thread| {
                        let wal = &wal;
                        scope.spawn(move || {
                            let (mut random, mut hardened) = (Rng::new(thread), 0);
                            for number in 0..400 {
                                let len = random.below(2000) as usize;
                                let inserted = insert(wal, thread << THREAD_SHIFT | number, len);
                                if number % 16 == thread {
                                    match wal.wait_hardened(inserted.gsn, None) {
                                        Ok(()) => hardened = number + 1,
                                        Err(error) => assert!(matches!(error, WalError::Failed { .. }), "{error}"),
                                    }
                                }
                            }
                            hardened
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(matches!(wal.failure(), Some(WalError::Disk(_))), "{design}: {:?}", wal.failure());
            assert!(matches!(wal.close(), Err(WalError::Failed { .. })));
            drop(wal);
            disk.clear_faults();
            let wal = Log::open(&arc(&disk), &options, DATABASE, None).unwrap();
            let found = check(&read_all(&wal, FIRST_LSN).unwrap(), THREADS);
            for (found, hardened) in found.iter().zip(&hardened) {
                assert!(found >= hardened, "{design}: {hardened} records were hardened, {found} are there");
            }
        }
    }
}

#[test]
fn many_threads_that_all_commit() {
    for design in InsertDesign::ALL {
        stress(roomy(design, 256 << 10), 16, 300, |random| random.below(300) as usize, 1);
    }
}

#[test]
fn sealed_at_insertion() {
    for design in InsertDesign::ALL {
        let options = WalOptions { sealing: Sealing::AtInsertion, ..roomy(design, 256 << 10) };
        stress(options, 4, 1000, |random| random.below(2000) as usize, 20);
    }
}

#[test]
fn one_slot_for_many_threads() {
    for design in InsertDesign::ALL {
        let options = WalOptions { array_slots: 1, arrays: 2, ..roomy(design, 64 << 10) };
        stress(options, 16, 1000, |random| random.below(100) as usize, 100);
    }
}

#[test]
fn reading_recycling_and_reserving_meanwhile() {
    for design in InsertDesign::ALL {
        let disk = SimDisk::new(1);
        let options = WalOptions { segment_bytes: 64 << 10, max_bytes: 1 << 20, ..roomy(design, 64 << 10) };
        let wal = Log::create(&arc(&disk), &options, DATABASE).unwrap();
        let (stop, keep) = (AtomicBool::new(false), AtomicU64::new(FIRST_LSN.get()));
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|thread| {
                    let (wal, keep) = (&wal, &keep);
                    scope.spawn(move || {
                        for number in 0..1500_u64 {
                            while wal.reserve(2000).is_err() {
                                std::thread::yield_now();
                            }
                            let inserted = insert(wal, thread << THREAD_SHIFT | number, 1900);
                            wal.unreserve(2000);
                            if number % 7 == 0 {
                                wal.wait_hardened(inserted.gsn, None).unwrap();
                                keep.fetch_max(inserted.lsn.get(), Ordering::Relaxed);
                            }
                        }
                    })
                })
                .collect();
            let recycler = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    wal.recycle_to(Lsn::new(keep.load(Ordering::Relaxed))).unwrap();
                    read_all(&wal, wal.start()).unwrap().iter().for_each(assert_intact);
                    std::thread::yield_now();
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            stop.store(true, Ordering::Relaxed);
            recycler.join().unwrap();
        });
        wal.close().unwrap();
        assert!(wal.stats().segments_recycled > 0);
        let end = wal.end();
        drop(wal);
        let wal = Log::open(&arc(&disk), &options, DATABASE, None).unwrap();
        assert_eq!(wal.end(), end);
        read_all(&wal, wal.start()).unwrap().iter().for_each(assert_intact);
    }
}
