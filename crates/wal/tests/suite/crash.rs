//! Power cuts at every operation, with all kinds of un-synced writes kept. From some record on, the
//! reopened log contains a prefix of what was inserted, and the prefix contains everything
//! hardened.
#![cfg(not(duramen_loom))]

use duramen_io::{CrashChoice, Fault, SimDisk};
use duramen_wal::{InsertDesign, Log, Sealing, WalError, WalOptions};

use crate::common::history::{History, check_contents, choices, work};
use crate::common::*;

fn crash_options(design: InsertDesign) -> WalOptions {
    WalOptions { spare_segments: 1, max_bytes: 512 << 10, ..options(design) }
}

/// Opens or creates the log without the segment preallocator, so that operations are numbered the
/// same each time.
fn single_threaded(design: InsertDesign) -> WalOptions {
    WalOptions { spare_segments: 0, ..crash_options(design) }
}

/// Crashes a workload of `steps` steps at these operations, reopens what each choice leaves, and
/// continues for a while.
fn crash_everywhere(options: &WalOptions, seed: u64, steps: u64, stride: Stride) {
    let disk = SimDisk::new(seed);
    let mut history = History::default();
    work(&disk, options, &mut history, seed, steps).unwrap();
    let operations = disk.operations();
    assert!(operations > 20);
    for crash_at in stride.until(operations) {
        let disk = SimDisk::new(seed);
        disk.crash_at(crash_at);
        let mut history = History::default();
        if work(&disk, options, &mut history, seed, steps).is_ok() {
            // The segment preallocator had less to do than the first time.
            assert!(options.spare_segments > 0);
            disk.crash();
        }
        for choice in choices(crash_at) {
            let image = disk.crash_image(&choice);
            let mut history = history.clone();
            let context = format!("crash at {crash_at} in {:?}, {choice:?}", disk.crashed_in());
            let outcome = work(&image, options, &mut history, seed + 1, 3);
            outcome.unwrap_or_else(|error| panic!("{context}: {error}"));
            let mut wal_history = history.clone();
            let wal = Log::open(&arc(&image.crash_image(&CrashChoice::Nothing)), options, DATABASE, None)
                .unwrap_or_else(|error| panic!("{context}, reopened: {error}"));
            check_contents(&wal, &mut wal_history).unwrap();
        }
    }
}

#[test]
fn at_every_operation() {
    for design in InsertDesign::ALL {
        crash_everywhere(&single_threaded(design), 1, 60, Stride::sampled("crashes of a log", 1, 4));
    }
}

#[test]
fn at_every_operation_sealed_at_insertion() {
    for (seed, design) in InsertDesign::ALL.into_iter().enumerate() {
        let options = WalOptions { sealing: Sealing::AtInsertion, ..single_threaded(design) };
        crash_everywhere(&options, 2 + seed as u64, 40, Stride::sampled("crashes of a log sealed at insertion", 2, 2));
    }
}

#[test]
fn with_recycled_segments_and_the_preallocator() {
    for (seed, design) in InsertDesign::ALL.into_iter().enumerate() {
        crash_everywhere(
            &crash_options(design),
            100 + seed as u64,
            150,
            Stride::sampled("crashes of a recycled log", 2, 3),
        );
    }
}

/// Crashes, reopens with a crash at each operation of the reopening, and reopens again.
#[test]
fn during_recovery() {
    for design in InsertDesign::ALL {
        let options = single_threaded(design);
        for seed in 0..6 {
            let disk = SimDisk::new(seed);
            let mut history = History::default();
            work(&disk, &options, &mut history, seed, 40).unwrap();
            // Unflushed work, cut in the middle of its flush.
            let disk = disk.image();
            disk.crash_at(disk.operations() + 25 + seed);
            let mut steps = Rng::new(seed);
            work(&disk, &options, &mut history, steps.bits(), 1000).unwrap_err();
            let image = disk.crash_image(&CrashChoice::Random(seed));
            let clean = Log::open(&arc(&image.image()), &options, DATABASE, None).unwrap();
            let end = clean.end();
            check_contents(&clean, &mut history.clone()).unwrap();
            let opening = {
                let probe = image.image();
                Log::open(&arc(&probe), &options, DATABASE, None).unwrap();
                probe.operations()
            };
            for crash_at in Stride::sampled("crashes of a reopening", 1, 4).until(opening) {
                let probe = image.image();
                probe.crash_at(crash_at);
                Log::open(&arc(&probe), &options, DATABASE, None).unwrap_err();
                for choice in choices(crash_at) {
                    let again = probe.crash_image(&choice);
                    let wal = Log::open(&arc(&again), &options, DATABASE, None).unwrap();
                    assert_eq!(wal.end(), end, "seed {seed}, crash at {crash_at} of the reopening, {choice:?}");
                    check_contents(&wal, &mut history.clone()).unwrap();
                }
            }
        }
    }
}

/// Random lives: work, crash, reopen, many times on one disk.
#[test]
fn many_lives() {
    for design in InsertDesign::ALL {
        for seed in 0..12 {
            let mut random = Rng::new(seed);
            let mut disk = SimDisk::new(seed);
            let mut history = History::default();
            let options = if seed % 2 == 0 { single_threaded(design) } else { crash_options(design) };
            for life in 0..25 {
                disk.crash_at(20 + random.below(150));
                let outcome = work(&disk, &options, &mut history, random.bits(), 200);
                if let Err(error) = outcome {
                    assert!(disk.crashed_in().is_some(), "seed {seed}, life {life}: {error}");
                }
                disk = disk.crash_image(&CrashChoice::Random(random.bits()));
            }
        }
    }
}

/// A write or sync fails without a power cut: the log stops, and reopening it recovers what was
/// hardened, in a way that a power cut right afterwards cannot undo.
#[test]
fn failed_writes_and_syncs() {
    for design in InsertDesign::ALL {
        for fault in [Fault::Eio, Fault::FailedSync] {
            for seed in 0..40 {
                let options = single_threaded(design);
                let disk = SimDisk::new(seed);
                let mut history = History::default();
                work(&disk, &options, &mut history, seed, 20).unwrap();
                disk.fail_at(disk.operations() + 8 + seed, fault, false);
                let outcome = work(&disk, &options, &mut history, seed + 1, 400);
                let error = outcome.expect_err("the fault strikes");
                assert!(matches!(error, WalError::Failed { .. } | WalError::Disk(_)), "{error:?}");
                disk.clear_faults();

                let wal = Log::open(&arc(&disk), &options, DATABASE, None).unwrap();
                check_contents(&wal, &mut history).unwrap();
                drop(wal);
                let after = disk.crash_image(&CrashChoice::Nothing);
                let wal = Log::open(&arc(&after), &options, DATABASE, None).unwrap();
                check_contents(&wal, &mut history).unwrap();
            }
        }
    }
}
