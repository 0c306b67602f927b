//! A log that is at its limit for a temporary reason: writers wait for the log space that they
//! need, and none is refused.
#![cfg(not(duramen_loom))]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use duramen::{Archive, CommitMode, Db, Error, Options, Partition, Table};
use duramen_io::{DelayDisk, SimDisk};

const SEGMENT: u64 = 256 << 10;
const LIMIT: u64 = 8 * SEGMENT;

fn options(logs: u16) -> Options {
    Options {
        logs,
        log_partition: Partition::RoundRobin,
        log_segment_bytes: SEGMENT,
        log_max_bytes: LIMIT,
        checkpoint_bytes: Some(512 << 10),
        ..common::small()
    }
}

/// Makes the written values different: an unchanged value is not logged.
static VERSION: AtomicU8 = AtomicU8::new(0);

/// Commits a transaction that writes `rows` rows of 1,000 bytes; returns the longest time that one
/// of the rows took.
fn write(db: &Db, table: &Table, first: u32, rows: u32) -> Result<Duration, Error> {
    let (mut longest, version) = (Duration::ZERO, VERSION.fetch_add(1, Ordering::Relaxed));
    let mut txn = db.begin();
    for row in first..first + rows {
        let begun = Instant::now();
        txn.put(table, &row.to_be_bytes(), &[version; 1000])?;
        longest = longest.max(begun.elapsed());
    }
    txn.commit()?;
    Ok(longest)
}

/// Runs a test with all of these at once: they mostly wait.
fn beside_each_other<T: Send, const N: usize>(cases: [T; N], test: impl Fn(T) + Sync) {
    let test = &test;
    std::thread::scope(|scope| cases.into_iter().for_each(|case| drop(scope.spawn(move || test(case)))));
}

/// Runs writers, each with rows of its own, until `rounds` are over or `stop` is set; returns their
/// errors.
fn write_beside_each_other(
    db: &Db,
    table: &Table,
    writers: u32,
    rows: u32,
    rounds: u32,
    stop: &AtomicBool,
) -> Vec<Error> {
    std::thread::scope(|scope| {
        let work = |writer| {
            move || {
                let rounds = (0..rounds).take_while(|_| !stop.load(Ordering::Relaxed));
                rounds.filter_map(|_| write(db, table, 10_000 * writer, rows).err()).collect::<Vec<_>>()
            }
        };
        let threads: Vec<_> = (0..writers).map(|writer| scope.spawn(work(writer))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// A writer that found the log full waited until the whole log was archived. A transaction that a
/// checkpoint had met meanwhile was then refused: the error said that it kept the log, although it
/// kept little, and the space that had become free was not tried.
#[test]
fn writers_wait_for_no_more_of_a_slow_archive_than_they_need() {
    beside_each_other([1, 3], |logs| {
        let archive = DelayDisk::new(Arc::new(SimDisk::new(2)), "", Duration::from_millis(30));
        let archive = Some(Archive::on(Arc::new(archive)));
        let db = Db::open_on(Arc::new(SimDisk::new(1)), Options { archive, ..options(logs) }).unwrap();
        let table = db.create_table("rows").unwrap();
        let mut most_behind = 0;
        for round in 0..50 * u32::from(logs) {
            let longest =
                write(&db, &table, round % 4 * 100, 100).unwrap_or_else(|error| panic!("round {round}: {error}"));
            if longest > Duration::from_millis(10) {
                let log = db.metrics().log;
                let lives = log.segments_live / u64::from(logs);
                most_behind = most_behind.max(lives);
            }
        }
        // A writer that waits for the whole log to be archived finds the log almost empty
        // afterwards.
        assert!(most_behind >= 6, "{most_behind} of {} segments were left after a wait, {logs} logs", LIMIT / SEGMENT);
        assert_eq!(db.metrics().log.archive_failures, 0);
        db.close().unwrap();
    });
}

/// There was one more attempt after a checkpoint, but other writers had taken the freed space
/// before it.
#[test]
fn writers_near_the_limit_wait_for_each_other() {
    // Rows of a transaction, which needs some 120 KiB, and some 10 KiB more for each row.
    beside_each_other([(1, 6, 8), (1, 32, 1), (3, 16, 1)], |(logs, writers, rows)| {
        let disk = DelayDisk::new(Arc::new(SimDisk::new(3)), "log", Duration::from_millis(1));
        let db = Db::open_on(Arc::new(disk), Options { commit: CommitMode::Sync, ..options(logs) }).unwrap();
        let table = db.create_table("rows").unwrap();
        let rounds = 150 * u32::from(logs);
        let errors = write_beside_each_other(&db, &table, writers, rows, rounds, &AtomicBool::new(false));
        assert!(errors.is_empty(), "{writers} writers, {logs} logs: {} errors, the first: {}", errors.len(), errors[0]);
        assert!(db.metrics().log.end.get() > LIMIT, "the log was never full");
        db.close().unwrap();
    });
}

/// A backup kept the log from the position where the previous backup had started, because the log
/// that the previous backup had released was not recycled. The refused writer was then told of a
/// transaction.
#[test]
fn backups_in_a_row_refuse_no_writer() {
    beside_each_other([1, 2], |logs| {
        // Enough space for a transaction that makes no progress for a while as others commit.
        let with = Options { log_max_bytes: 3 * LIMIT, commit: CommitMode::Sync, ..options(logs) };
        let disk = DelayDisk::new(Arc::new(SimDisk::new(4)), "log", Duration::from_millis(1));
        let db = Db::open_on(Arc::new(disk), with).unwrap();
        let table = db.create_table("rows").unwrap();
        write(&db, &table, 90_000, 400).unwrap();
        let stop = AtomicBool::new(false);
        let errors = std::thread::scope(|scope| {
            let writers = scope.spawn(|| write_beside_each_other(&db, &table, 3, 20, u32::MAX, &stop));
            for number in 0..8 {
                let target = DelayDisk::new(Arc::new(SimDisk::new(100 + number)), "", Duration::from_millis(30));
                let taken = db.backup_to(&target, |_| {});
                stop.store(number == 7 || taken.is_err(), Ordering::Relaxed);
                taken.unwrap();
            }
            writers.join().unwrap()
        });
        assert!(errors.is_empty(), "{logs} logs: {} errors, the first: {}", errors.len(), errors[0]);
        assert!(db.metrics().log.end.get() > 4 * LIMIT, "the log was hardly ever full");
        db.close().unwrap();
    });
}

/// A transaction that does keep the log is named at once, with the log that it keeps, whether it is
/// the writer's own or another one.
#[test]
fn a_transaction_that_keeps_the_log_is_named() {
    let db = Db::open_on(Arc::new(SimDisk::new(7)), options(1)).unwrap();
    let table = db.create_table("rows").unwrap();
    let mut long = db.begin();
    let own = (0_u32..).find_map(|row| long.put(&table, &row.to_be_bytes(), &[1; 1000]).err()).unwrap();
    assert!(matches!(&own, Error::Full { reason } if reason.contains("itself, which began at gsn")), "{own}");
    long.abort().unwrap();

    let mut long = db.begin();
    long.put(&table, b"long", b"").unwrap();
    let begun = Instant::now();
    let refused = (0..).find_map(|round| write(&db, &table, round % 100, 20).err()).unwrap();
    let Error::Full { reason } = &refused else { panic!("{refused}") };
    let kept: u64 = reason.split("keeps ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap();
    assert!(!reason.contains("itself") && kept > LIMIT / 2 && kept < LIMIT, "{reason}");
    assert!(begun.elapsed() < Duration::from_secs(8));
    long.abort().unwrap();
    write(&db, &table, 0, 100).unwrap();
    db.close().unwrap();
}
