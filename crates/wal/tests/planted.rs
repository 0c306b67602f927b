//! Each planted bug of the log breaks a promise that the suites check:
//!
//! ```sh
//! RUSTFLAGS="--cfg duramen_planted" cargo test --profile instrumented --target-dir target/planted \
//!     -p duramen-wal --test planted
//! ```
#![cfg(all(duramen_planted, not(duramen_loom)))]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard};

use common::several::{History, Sweep, crash_everywhere, reopen};
use common::world::World;
use common::*;
use duramen_io::{CrashChoice, Fault, SimDisk};
use duramen_pmem::{Domain, SimMemory, Source, Survivors};
use duramen_types::planted::{Bug, Planted, plant};
use duramen_types::{Gsn, LogId, Lsn};
use duramen_wal::{
    Archive, FIRST_LSN, InsertDesign, Log, LogDevice, LogReader, NewRecord, NvmOptions, WalError, WalOptions,
};

/// The switch is global, so only one test runs at a time.
static SWITCH: Mutex<()> = Mutex::new(());

fn with(bug: Option<Bug>) -> (Option<Planted>, MutexGuard<'static, ()>) {
    // Dropped in this order: the bug is removed before the next test may run.
    let turn = SWITCH.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    (bug.map(plant), turn)
}

/// Inserts and hardens, cuts the power, and returns whether what was acknowledged is present.
fn keeps_what_it_acknowledges(bug: Option<Bug>) -> bool {
    let _planted = with(bug);
    let disk = SimDisk::new(1);
    let wal = create(&disk, InsertDesign::Hybrid);
    for number in 0..100 {
        let inserted = insert(&wal, number, 1000);
        wal.wait_hardened(inserted.gsn, None).unwrap();
    }
    let end = wal.end();
    let image = disk.crash_image(&CrashChoice::Nothing);
    drop(wal);
    match open(&image, InsertDesign::Hybrid) {
        Ok(wal) => wal.end() == end,
        Err(WalError::MissingSegment { .. } | WalError::Corrupt { .. } | WalError::NoLog { .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn losing_acknowledged_records_is_noticed() {
    assert!(keeps_what_it_acknowledges(None));
    for bug in [Bug::SkipLogSync, Bug::AcknowledgeBeforeFlush, Bug::SkipDirectorySync, Bug::GrowthUnsynced] {
        assert!(!keeps_what_it_acknowledges(Some(bug)), "{bug:?}");
    }
}

/// Does the same as [`keeps_what_it_acknowledges`], with a ring in persistent memory.
fn ring_keeps_what_it_acknowledges(bug: Option<Bug>, domain: Domain) -> bool {
    let _planted = with(bug);
    let disk = SimDisk::new(1);
    let memory = SimMemory::new(4096 + (64 << 10), domain);
    let on = |memory: SimMemory| {
        let nvm = NvmOptions::new(Source::Simulated(memory), domain);
        WalOptions { device: LogDevice::Nvm(nvm), ..options(InsertDesign::Hybrid) }
    };
    let wal = Log::create(&arc(&disk), &on(memory.clone()), DATABASE).unwrap();
    let inserted = insert(&wal, 1, 1000);
    wal.wait_hardened(inserted.gsn, None).unwrap();
    let image = memory.crash_image(Survivors::Nothing, None);
    drop(wal);
    Log::open(&arc(&disk), &on(image), DATABASE, None).unwrap().end() == inserted.end
}

#[test]
fn a_forgotten_fence_is_noticed() {
    for domain in [Domain::DurableCache, Domain::VolatileCache] {
        assert!(ring_keeps_what_it_acknowledges(None, domain), "{domain}");
        assert!(!ring_keeps_what_it_acknowledges(Some(Bug::RingFenceDropped), domain), "{domain}");
    }
}

/// Two threads share a ring whose platform has volatile caches, and the power goes off after one
/// has committed. Returns whether what was acknowledged is present. The other thread has inserted
/// and sleeps.
fn shared_ring_keeps_what_it_acknowledges(bug: Option<Bug>) -> bool {
    let _planted = with(bug);
    let disk = SimDisk::new(1);
    let memory = SimMemory::new(4096 + (64 << 10), Domain::VolatileCache);
    let on = |memory: SimMemory| {
        let nvm = NvmOptions::new(Source::Simulated(memory), Domain::VolatileCache);
        WalOptions { device: LogDevice::Nvm(nvm), ..options(InsertDesign::Hybrid) }
    };
    let wal = Log::create(&arc(&disk), &on(memory.clone()), DATABASE).unwrap();
    // A thread that stays alive.
    let (inserted, wait) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    let (end, images) = std::thread::scope(|scope| {
        scope.spawn(|| {
            insert(&wal, 1, 1000);
            inserted.wait();
            wait.wait();
        });
        inserted.wait();
        let commit = insert(&wal, 2, 100);
        wal.wait_hardened(commit.gsn, None).unwrap();
        let images: Vec<_> = memory.images(40, 7).collect();
        wait.wait();
        (commit.end, images)
    });
    drop(wal);
    images.into_iter().all(|(survivors, image)| {
        let disk = disk.crash_image(&CrashChoice::Nothing);
        let wal = Log::open(&arc(&disk), &on(image), DATABASE, None);
        wal.unwrap_or_else(|error| panic!("{survivors:?}: {error}")).end() == end
    })
}

#[test]
fn acknowledging_what_others_have_not_made_durable_is_noticed() {
    assert!(shared_ring_keeps_what_it_acknowledges(None));
    for bug in Bug::MEMORY {
        assert!(!shared_ring_keeps_what_it_acknowledges(Some(*bug)), "{bug:?}");
    }
}

/// A thread commits in one of two logs a record that depends on another thread's record in the
/// other log; that thread sleeps. The power goes off, and each memory keeps what it may keep.
/// Returns whether what was acknowledged is present.
fn rings_keep_what_they_acknowledge(bug: Option<Bug>) -> bool {
    let _planted = with(bug);
    let world = World::new(1, Some(Domain::VolatileCache), 2);
    let options = options(InsertDesign::Hybrid);
    let logs = Log::create(&arc(&world.disk), &WalOptions { logs: 2, ..world.options(&options) }, DATABASE).unwrap();
    let (inserted, wait) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    let (first, last, images) = std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let first = logs.insert(LogId::new(1), record(1, &[7; 500]));
            if bug == Some(Bug::RingFenceDropped) {
                // Otherwise processors are drained for it.
                logs.before_blocking();
            }
            inserted.wait();
            wait.wait();
            first
        });
        inserted.wait();
        let commit = NewRecord { after: Gsn::new(logs.latest().get() - 1), ..record(2, &[8; 100]) };
        let last = logs.insert(LogId::ZERO, commit);
        logs.wait_hardened(last.gsn, Some(last.address())).unwrap();
        let choices = (0..20).map(CrashChoice::Random).chain([CrashChoice::Nothing, CrashChoice::Everything]);
        let images: Vec<_> = choices.map(|choice| world.crash_image(&choice)).collect();
        wait.wait();
        (sleeper.join().unwrap(), last, images)
    });
    images.into_iter().all(|image| {
        let mut history = History::default();
        let logs = reopen(&image.disk, &image.options(&options), 2, &mut history).unwrap();
        let mut reader = logs.read_back();
        [first, last].iter().all(|record| reader.read(record.address()).is_ok())
    })
}

#[test]
fn a_record_that_only_one_of_several_rings_has_is_noticed() {
    assert!(rings_keep_what_they_acknowledge(None));
    for bug in Bug::MEMORY.iter().copied().chain([Bug::RingFenceDropped, Bug::OwnLogHardenedOnly]) {
        assert!(!rings_keep_what_they_acknowledge(Some(bug)), "{bug:?}");
    }
}

/// Recovers a torn flush and returns whether all records found are intact.
fn recovers_intact_records(bug: Option<Bug>) -> bool {
    let _planted = with(bug);
    (0..40).all(|seed| {
        let disk = SimDisk::new(seed);
        let wal = create(&disk, InsertDesign::Hybrid);
        let last = (0..10).map(|number| insert(&wal, number, 1500)).last().unwrap();
        disk.crash_at(disk.operations());
        wal.wait_hardened(last.gsn, None).unwrap_err();
        drop(wal);
        // Bytes that are no record may also be noticed at opening.
        let Ok(wal) = open(&disk.crash_image(&CrashChoice::Random(seed)), InsertDesign::Hybrid) else { return false };
        let records = read_all(&wal, FIRST_LSN).unwrap();
        catch_unwind(AssertUnwindSafe(|| records.iter().for_each(assert_intact))).is_ok()
    })
}

#[test]
fn unchecked_checksums_are_noticed() {
    assert!(recovers_intact_records(None));
    assert!(!recovers_intact_records(Some(Bug::IgnoreLogChecksum)));
}

/// Recycles below the oldest record that is still needed, and returns whether that record is
/// present afterwards.
fn keeps_what_is_needed(bug: Option<Bug>) -> bool {
    let _planted = with(bug);
    let disk = SimDisk::new(1);
    let wal = create(&disk, InsertDesign::Hybrid);
    let inserted: Vec<_> = (0..100).map(|number| insert(&wal, number, 1000)).collect();
    wal.wait_hardened(inserted[99].gsn, None).unwrap();
    wal.recycle_to(inserted[10].lsn).unwrap();
    let from: Lsn = inserted[10].lsn;
    drop(wal);
    Log::open(&arc(&disk), &options(InsertDesign::Hybrid), DATABASE, Some(from)).is_ok()
}

#[test]
fn early_recycling_is_noticed() {
    assert!(keeps_what_is_needed(None));
    assert!(!keeps_what_is_needed(Some(Bug::RecycleTooEarly)));
}

#[test]
fn holes_between_several_logs_are_noticed() {
    let holds = |bug: Option<Bug>| {
        let _planted = with(bug);
        let held = catch_unwind(|| {
            let sweep = |seed| Sweep {
                design: InsertDesign::Hybrid,
                count: 3,
                domain: None,
                seed,
                stride: Stride::of(5),
                steps: 60,
            };
            (0..4).all(|seed| crash_everywhere(sweep(seed)).is_ok())
        });
        held.unwrap_or(false)
    };
    assert!(holds(None));
    for bug in [Bug::HoleKept, Bug::OwnLogHardenedOnly, Bug::EpochNotEnded, Bug::PageTimeIgnored] {
        assert!(!holds(Some(bug)), "{bug:?}");
    }
}

/// Fills segments, cuts the power, and returns whether the archive has what the log no longer has.
fn archive_keeps_what_is_recycled(bug: Option<Bug>) -> bool {
    let _planted = with(bug);
    let (disk, archive) = (SimDisk::new(1), SimDisk::new(2));
    let archiving = WalOptions { archive: Some(Archive::on(arc(&archive))), ..options(InsertDesign::Hybrid) };
    let wal = Log::create(&arc(&disk), &archiving, DATABASE).unwrap();
    for number in 0..60 {
        if number == 30 {
            wal.await_archive();
            archive.fail_at(archive.operations(), Fault::Eio, true);
        }
        let inserted = insert(&wal, number, 10_000);
        wal.wait_hardened(inserted.gsn, None).unwrap();
        wal.recycle_to(inserted.lsn).unwrap();
    }
    let start = wal.start();
    let archive = archive.crash_image(&CrashChoice::Nothing);
    let Ok(reader) = reader(&archive, Some(DATABASE)) else { return false };
    let mut scanner = reader.scan(Some(FIRST_LSN)).unwrap();
    while scanner.next().unwrap().is_some() {}
    // All segments below the segment of the log's start; the last record may continue in the next
    // one.
    let data = (64 << 10) - 4096;
    let needed = FIRST_LSN.get() + (start.get() - FIRST_LSN.get()) / data * data;
    scanner.position().get() + record_bytes(10_000) > needed
}

#[test]
fn an_archive_with_a_gap_is_noticed() {
    assert!(archive_keeps_what_is_recycled(None));
    for bug in [Bug::ArchiveRenamedUnsynced, Bug::RecycledUnarchived] {
        assert!(!archive_keeps_what_is_recycled(Some(bug)), "{bug:?}");
    }
}

/// A log is written and archived although it depends on a record of another log, which is not. The
/// power goes off. Returns whether the logs can continue with their archive.
fn archive_has_what_stays(bug: Option<Bug>) -> bool {
    let _planted = with(bug);
    let (disk, archive) = (SimDisk::new(1), SimDisk::new(2));
    let archiving =
        |archive: &SimDisk| WalOptions { archive: Some(Archive::on(arc(archive))), ..options(InsertDesign::Hybrid) };
    let logs = Log::create(&arc(&disk), &WalOptions { logs: 2, ..archiving(&archive) }, DATABASE).unwrap();
    let commit = logs.insert(LogId::ZERO, record(1, &[]));
    logs.wait_hardened(commit.gsn, None).unwrap();
    let lost = logs.insert(LogId::ZERO, record(2, &[7; 100]));
    let payload = payload(3, 10_000);
    for _ in 0..20 {
        logs.insert(LogId::new(1), NewRecord { after: lost.gsn, ..record(3, &payload) });
    }
    logs.await_archive();
    let (disk, archive) = (disk.crash_image(&CrashChoice::Nothing), archive.crash_image(&CrashChoice::Nothing));
    drop(logs);
    assert!(LogReader::open(&archive, LogId::new(1), Some((DATABASE, 2))).is_ok(), "something is archived");
    reopen(&disk, &archiving(&archive), 2, &mut History::default()).is_ok()
}

#[test]
fn archiving_what_recovery_cuts_off_is_noticed() {
    assert!(archive_has_what_stays(None));
    assert!(!archive_has_what_stays(Some(Bug::ArchivedIncomplete)));
}
