//! The log archive: it contains every segment before the log may lose it, whatever happens to
//! either disk.
#![cfg(not(duramen_loom))]

use std::time::{Duration, Instant};

use duramen_io::{CrashChoice, Disk, Fault, SimDisk};
use duramen_pmem::{Domain, SimMemory, Source};
use duramen_test_support::Stride;
use duramen_types::Lsn;
use duramen_wal::{Archive, FIRST_LSN, InsertDesign, Log, LogDevice, LogReader, NvmOptions, WalError, WalOptions};

use crate::common::history::choices;
use crate::common::*;

fn archiving(archive: &SimDisk) -> WalOptions {
    WalOptions { archive: Some(Archive::on(arc(archive))), ..options(InsertDesign::Hybrid) }
}

fn start(disk: &SimDisk, archive: &SimDisk) -> Log {
    Log::create(&arc(disk), &archiving(archive), DATABASE).unwrap()
}

fn reopen(disk: &SimDisk, archive: &SimDisk) -> Result<Log, WalError> {
    Log::open(&arc(disk), &archiving(archive), DATABASE, None)
}

/// Inserts and hardens records `numbers`. Each takes about 10 KB, so that seven fill a segment.
/// Then requests that the log start at the last of them.
fn fill(wal: &Log, numbers: std::ops::Range<u64>) -> Result<(), WalError> {
    for number in numbers {
        let reserve = || wal.reserve(record_bytes(10_000));
        match reserve() {
            Err(WalError::Full { .. }) => {
                wal.await_archive();
                reserve()?;
            }
            other => other?,
        }
        let inserted = insert(wal, number, 10_000);
        wal.unreserve(record_bytes(10_000));
        wal.wait_hardened(inserted.gsn, None)?;
        wal.recycle_to(inserted.lsn)?;
    }
    Ok(())
}

fn until(what: &str, is_done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_done() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Reads the archive from the first record on; returns the number of whole records and where they
/// end.
fn records_in(archive: &SimDisk) -> (u64, Lsn) {
    let reader = match reader(archive, Some(DATABASE)) {
        Err(WalError::NoLog { .. }) => return (0, FIRST_LSN),
        reader => reader.unwrap(),
    };
    assert_eq!(reader.ring(), None);
    let mut scanner = reader.scan(Some(FIRST_LSN)).unwrap();
    let mut number = 0;
    while let Some(record) = scanner.next().unwrap() {
        assert_eq!(record.txn.get(), number);
        assert_intact(&Record::of(record));
        number += 1;
    }
    let (reaches, position) = (end_of(&reader).get(), scanner.position());
    assert!(position.get() <= reaches && reaches - position.get() <= record_bytes(10_000), "a segment is not whole");
    (number, position)
}

/// Checks that the archive has all segments that the log lacks.
fn check_complete(archive: &SimDisk, wal: &Log) {
    records_in(archive);
    let data = (64 << 10) - 4096;
    let needed = FIRST_LSN.get() + (wal.start().get() - FIRST_LSN.get()) / data * data;
    let reaches = archive_reaches(archive);
    assert!(reaches.get() >= needed, "the log starts at {}, and the archive ends at {reaches}", wal.start());
}

fn archive_reaches(archive: &SimDisk) -> Lsn {
    reader(archive, None).map_or(FIRST_LSN, |reader| end_of(&reader))
}

fn end_of(reader: &LogReader) -> Lsn {
    FIRST_LSN.advance((reader.segments().1 + 1) * ((64 << 10) - 4096))
}

#[test]
fn segments_are_archived_and_then_recycled() {
    let (disk, archive) = (SimDisk::new(1), SimDisk::new(2));
    let wal = start(&disk, &archive);
    fill(&wal, 0..100).unwrap();
    wal.await_archive();
    until("recycling", || wal.stats().segments_live <= 2);
    let stats = wal.stats();
    assert!(stats.segments_archived >= 15, "{stats:?}");
    assert_eq!(stats.archive_failures, 0);
    assert!(stats.archived <= wal.end());
    check_complete(&archive, &wal);
    let (records, _) = records_in(&archive.crash_image(&CrashChoice::Nothing));
    assert!((90..100).contains(&records));
    wal.close().unwrap();
    drop(wal);

    let wal = reopen(&disk, &archive).unwrap();
    fill(&wal, 100..150).unwrap();
    wal.await_archive();
    assert!((140..150).contains(&records_in(&archive).0));
    check_complete(&archive, &wal);
}

#[test]
fn a_log_in_persistent_memory_is_archived_too() {
    for domain in [Domain::DurableCache, Domain::VolatileCache] {
        let (disk, archive) = (SimDisk::new(1), SimDisk::new(2));
        let memory = SimMemory::new(4096 + (64 << 10), domain);
        let nvm = NvmOptions::new(Source::Simulated(memory), domain);
        let options = WalOptions { device: LogDevice::Nvm(nvm), ..archiving(&archive) };
        let wal = Log::create(&arc(&disk), &options, DATABASE).unwrap();
        fill(&wal, 0..100).unwrap();
        wal.await_archive();
        until("recycling", || wal.stats().segments_live <= 3);
        assert!(records_in(&archive).0 >= 80);
        wal.close().unwrap();
        drop(wal);
        let wal = Log::open(&arc(&disk), &options, DATABASE, None).unwrap();
        fill(&wal, 100..150).unwrap();
        wal.await_archive();
        assert!(records_in(&archive).0 >= 130);
        check_complete(&archive, &wal);
    }
}

/// While the archive cannot be written, the log keeps everything, up to its limit, and reports the
/// reason.
#[test]
fn an_archive_that_cannot_be_written_holds_recycling_back() {
    let broken: [fn(&SimDisk); 2] = [
        |archive| archive.fail_at(archive.operations(), Fault::Eio, true),
        |archive| archive.set_capacity(archive.used() + (100 << 10)),
    ];
    for make in broken {
        let (disk, archive) = (SimDisk::new(1), SimDisk::new(2));
        let wal = start(&disk, &archive);
        fill(&wal, 0..20).unwrap();
        wal.await_archive();
        make(&archive);
        let refused = (20..200).find_map(|number| fill(&wal, number..number + 1).err().map(|error| (number, error)));
        let (number, error) = refused.expect("the log has a limit");
        assert!(matches!(&error, WalError::Full { cause, .. } if cause.contains("archived")), "{error}");
        until("a failure", || wal.archive_failure().is_some());
        let error = fill(&wal, number..number + 1).unwrap_err();
        assert!(error.to_string().contains("simulated disk/log"), "{error}");
        assert!(wal.stats().archive_failures > 0 && wal.stats().segments_live >= 15);
        assert!(wal.failure().is_none());
        check_complete(&archive.image(), &wal);

        archive.clear_faults();
        archive.set_capacity(1 << 30);
        until("archiving", || wal.stats().archived.get() + (64 << 10) > wal.durable().get());
        assert!(wal.archive_failure().is_none());
        fill(&wal, number..number + 30).unwrap();
        check_complete(&archive, &wal);
        // The copies that failed midway have left no files.
        until("the last copy", || archive.file_names().iter().all(|name| !name.ends_with(".copy")));
    }
}

/// A log that had to be kept for the archive is archived when it is opened again.
#[test]
fn what_was_not_archived_is_when_the_log_is_opened_again() {
    let (disk, archive) = (SimDisk::new(1), SimDisk::new(2));
    let wal = start(&disk, &archive);
    fill(&wal, 0..20).unwrap();
    wal.await_archive();
    archive.fail_at(archive.operations(), Fault::Eio, true);
    fill(&wal, 20..60).unwrap();
    wal.close().unwrap();
    drop(wal);
    archive.clear_faults();
    let wal = reopen(&disk, &archive).unwrap();
    wal.await_archive();
    assert!(records_in(&archive).0 >= 50);
    fill(&wal, 60..90).unwrap();
    wal.await_archive();
    assert!(records_in(&archive).0 >= 80);
}

fn refusal(outcome: Result<Log, WalError>) -> String {
    match outcome {
        Err(WalError::WrongArchive { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_archive_that_does_not_belong_to_the_log_is_refused() {
    let (disk, archive) = (SimDisk::new(1), SimDisk::new(2));
    let wal = start(&disk, &archive);
    fill(&wal, 0..30).unwrap();
    wal.await_archive();
    wal.close().unwrap();
    drop(wal);
    let early = (disk.image(), archive.image());

    let other = Log::create(&arc(&SimDisk::new(3)), &archiving(&archive), *b"another database");
    assert!(refusal(other).contains("another database"));

    // An archive that two databases have used.
    let wal = reopen(&disk, &archive).unwrap();
    assert!(matches!(reopen(&early.0.image(), &archive), Err(WalError::Disk(_))));
    fill(&wal, 30..60).unwrap();
    wal.await_archive();
    wal.close().unwrap();
    drop(wal);

    // Put back from a copy: the archive is ahead, or belongs to another history.
    assert!(refusal(reopen(&early.0.image(), &archive)).contains("earlier state"));
    let back = early.0.image();
    let wal = open(&back, InsertDesign::Hybrid).unwrap();
    for number in 1000..1080 {
        wal.wait_hardened(insert(&wal, number, 5_000).gsn, None).unwrap();
    }
    wal.close().unwrap();
    drop(wal);
    assert!(refusal(reopen(&back, &archive)).contains("continued differently"));

    // Not archived for a while.
    let wal = open(&disk, InsertDesign::Hybrid).unwrap();
    fill(&wal, 60..100).unwrap();
    wal.close().unwrap();
    drop(wal);
    assert!(refusal(reopen(&disk, &archive)).contains("recycled while nothing was archived"));
    let empty = SimDisk::new(4);
    let wal = reopen(&disk, &empty).unwrap();
    fill(&wal, 100..120).unwrap();
    wal.await_archive();
    let first = empty.file_names().into_iter().next();
    assert!(first.is_some_and(|name| *name > *"log/0000000000000005.log"));
}

/// Regression: a process ended after it had created the archive's directory. The next one took the
/// name for durable, and a power cut took the whole archive.
#[test]
fn a_directory_that_is_there_may_not_be_durable() {
    let (disk, archive) = (SimDisk::new(1), SimDisk::new(2));
    archive.create_directory("log").unwrap();
    let wal = start(&disk, &archive);
    fill(&wal, 0..40).unwrap();
    wal.await_archive();
    let (records, _) = records_in(&archive);
    assert!(records > 25);
    assert_eq!(records_in(&archive.crash_image(&CrashChoice::Nothing)).0, records);
}

/// Cuts the power of both disks at an operation of one of them.
fn crash(at: u64, of_archive: bool, choice: &CrashChoice) -> bool {
    let (disk, archive) = (SimDisk::new(at), SimDisk::new(at + 1));
    if of_archive {
        archive.crash_at(at);
    } else {
        disk.crash_at(at);
    }
    let mut written = 0;
    let outcome = Log::create(&arc(&disk), &archiving(&archive), DATABASE).and_then(|wal| {
        for number in 0..40 {
            fill(&wal, number..number + 1)?;
            written = number + 1;
            if archive.crashed_in().is_some() {
                break;
            }
            wal.await_archive();
        }
        Ok(())
    });
    let was_in_time = outcome.is_err() || archive.crashed_in().is_some();
    let (disk, archive) = (disk.crash_image(choice), archive.crash_image(choice));
    let wal = match reopen(&disk, &archive) {
        Err(WalError::NoLog { .. }) if written == 0 => return was_in_time,
        wal => wal.unwrap_or_else(|error| panic!("{at}, {of_archive}, {choice:?}: {error}")),
    };
    check_complete(&archive, &wal);
    let next = read_all(&wal, wal.start()).unwrap().last().map_or(written, |record| record.txn.get() + 1);
    assert!(next >= written);
    fill(&wal, next..next + 20).unwrap();
    wal.await_archive();
    check_complete(&archive, &wal);
    assert!(records_in(&archive).0 + 8 >= next + 20);
    was_in_time
}

#[test]
fn power_cuts_at_every_operation_of_the_archive() {
    let last = (0..).find(|at| !choices(*at).all(|choice| crash(*at, true, &choice))).unwrap();
    assert!(last > 25, "{last} operations");
}

#[test]
fn power_cuts_at_every_operation_of_the_log() {
    let mut points = Stride::sampled("power cuts of an archived log", 1, 6).until(u64::MAX);
    let last = points.find(|at| !choices(*at).all(|choice| crash(*at, false, &choice))).unwrap();
    assert!(last > 100, "{last} operations");
}
