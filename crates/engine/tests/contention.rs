//! Transactions that conflict all the time, and run again at once: some of them must succeed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use duramen::{Db, Error, Options, Result, Table, Txn};

/// The order of the keys that the threads insert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keys {
    /// Each thread has a range of its own. The threads share the gap at the end until each has a
    /// row.
    Ranges,
    /// All rows go to the end of the table, into one gap.
    End,
}

impl Keys {
    fn key(self, thread: u64, number: u64) -> [u8; 16] {
        let (high, low) = if self == Self::Ranges { (thread, number) } else { (number, thread) };
        (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
    }
}

/// How a transaction is run again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Retry {
    /// A loop begins a new transaction at once.
    AtOnce,
    /// The same loop, and each transaction lets other threads run between its steps, so that nearly
    /// all of them conflict.
    AtOnceMeeting,
    /// [`Db::run`] runs it again.
    Run,
}

fn open(commit: duramen::CommitMode) -> (tempfile::TempDir, Db) {
    // In memory where that is possible: these tests do not measure the device.
    let home = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    // Making a file of the usual size takes longer than a run lasts.
    let log_segment_bytes = 4 << 20;
    let options = Options { pool_bytes: 16 << 20, commit, log_segment_bytes, ..Options::default() };
    let db = Db::open(home.path(), options).unwrap();
    (home, db)
}

/// Reads an absent row, which locks its gap; changes a row that all share; inserts the absent row.
fn step(txn: &mut Txn, tables: &(Table, Table), key: &[u8], retry: Retry) -> Result<()> {
    let (rows, shared) = tables;
    assert_eq!(txn.get(rows, key)?, None);
    if retry == Retry::AtOnceMeeting {
        thread::yield_now();
    }
    let count = txn.get_for_update(shared, b"count")?.expect("the row is there");
    let count = u64::from_be_bytes(count.try_into().expect("eight bytes")) + 1;
    txn.put(shared, b"count", &count.to_be_bytes())?;
    txn.insert(rows, key, b"row")
}

/// The result of a run.
#[derive(Debug)]
struct Outcome {
    /// Commits of each thread.
    commits: Vec<u64>,
    deadlocks: u64,
    elapsed: Duration,
}

impl Outcome {
    fn per_second(&self) -> f64 {
        self.commits.iter().sum::<u64>() as f64 / self.elapsed.as_secs_f64()
    }
}

/// Makes `threads` threads run [`step`] over and over for `time`, and on a busy machine until there
/// are `least` commits, but at most 20 seconds.
fn contend(threads: u64, keys: Keys, retry: Retry, time: Duration, least: u64) -> Outcome {
    let (_home, db) = open(duramen::CommitMode::default());
    let tables = (db.create_table("rows").unwrap(), db.create_table("shared").unwrap());
    let mut txn = db.begin();
    txn.insert(&tables.1, b"count", &0_u64.to_be_bytes()).unwrap();
    txn.commit().unwrap();
    let deadlocks_before = db.metrics().deadlocks;
    let (stop, commits) = (AtomicBool::new(false), (0..threads).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    let start = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads {
            let (db, tables, stop, commits) = (&db, &tables, &stop, &commits[thread as usize]);
            scope.spawn(move || {
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    let key = keys.key(thread, number);
                    let result = match retry {
                        Retry::Run => db.run(|txn| step(txn, tables, &key, retry)),
                        Retry::AtOnce | Retry::AtOnceMeeting => {
                            let mut txn = db.begin();
                            step(&mut txn, tables, &key, retry).and_then(|()| txn.commit())
                        }
                    };
                    match result {
                        Ok(()) => {
                            number += 1;
                            commits.store(number, Ordering::Relaxed);
                        }
                        Err(Error::Deadlock { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        thread::sleep(time);
        let all = || commits.iter().map(|commits| commits.load(Ordering::Relaxed)).sum::<u64>();
        while all() < least && start.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let elapsed = start.elapsed();
    let commits: Vec<_> = commits.into_iter().map(AtomicU64::into_inner).collect();
    let deadlocks = db.metrics().deadlocks - deadlocks_before;
    let mut txn = db.begin();
    let count = txn.get(&tables.1, b"count").unwrap().expect("the row is there");
    assert_eq!(count, commits.iter().sum::<u64>().to_be_bytes(), "each commit counted once");
    assert_eq!(txn.scan(&tables.0, ..).count() as u64, commits.iter().sum::<u64>());
    txn.commit().unwrap();
    db.close().unwrap();
    Outcome { commits, deadlocks, elapsed }
}

/// Each of several threads held the gap into which another thread, which held the shared row, was
/// about to insert. The thread with the most work done was the victim each time. So all threads ran
/// again at once for minutes, and none committed.
#[test]
fn threads_that_run_again_at_once_make_progress() {
    for (threads, keys) in [(2, Keys::End), (3, Keys::Ranges), (4, Keys::End), (6, Keys::Ranges), (32, Keys::End)] {
        for retry in [Retry::AtOnce, Retry::AtOnceMeeting, Retry::Run] {
            let outcome = contend(threads, keys, retry, Duration::from_millis(100), 50);
            let (per_second, deadlocks) = (outcome.per_second(), outcome.deadlocks);
            println!("{threads} threads, {keys:?}, {retry:?}: {per_second:.0} commits/s, {deadlocks} deadlocks");
            // Counts attempts, because a busy machine preempts a thread at each step. There were
            // 2,000 deadlocks per commit.
            let commits = outcome.commits.iter().sum::<u64>();
            assert!(
                commits > 0 && deadlocks <= 10 * commits + 100,
                "{threads} threads, {keys:?}, {retry:?}: {outcome:?}"
            );
        }
    }
}

#[test]
#[ignore = "takes eight minutes: run with --release --nocapture"]
fn a_thousand_commits_a_second_whatever_the_number_of_threads() {
    for threads in [2, 3, 4, 6, 8, 16, 32] {
        for keys in [Keys::Ranges, Keys::End] {
            for retry in [Retry::AtOnce, Retry::AtOnceMeeting, Retry::Run] {
                let outcomes: Vec<_> =
                    (0..20).map(|_| contend(threads, keys, retry, Duration::from_millis(500), 0)).collect();
                let rates: Vec<_> = outcomes.iter().map(Outcome::per_second).collect();
                let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
                let mean = rates.iter().sum::<f64>() / rates.len() as f64;
                let deadlocks: u64 = outcomes.iter().map(|outcome| outcome.deadlocks).sum();
                println!(
                    "{threads} threads, {keys:?}, {retry:?}: {least:.0} commits/s at least, {mean:.0} on average, \
                     {deadlocks} deadlocks"
                );
                // A thread that yields its processor gets it back only when other programs let it.
                let expected = if retry == Retry::AtOnceMeeting { 20.0 } else { 1000.0 };
                assert!(least >= expected, "{threads} threads, {keys:?}, {retry:?}: {rates:.0?}");
            }
        }
    }
}
