//! Commits in progress: when each committer gets its answer, and what readers of its changes get.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use duramen::{CommitMode, Db, Error, Options, Table, Txn};
use duramen_io::{CrashChoice, DelayDisk, Disk, Fault, SimDisk};
use duramen_test_support::block_on;

use crate::common;

const LATENCY: Duration = Duration::from_millis(40);

/// Makes a database on a disk whose log is slow.
fn slow(commit: CommitMode) -> (SimDisk, Db, Table) {
    slow_with(Options { commit, ..common::small() })
}

fn slow_with(options: Options) -> (SimDisk, Db, Table) {
    let medium = SimDisk::new(1);
    let disk = Arc::new(DelayDisk::new(Arc::new(medium.clone()), "log/", Duration::ZERO));
    let db = Db::open_on(Arc::clone(&disk) as Arc<dyn Disk>, options).unwrap();
    let table = db.create_table("t").unwrap();
    disk.set_latency(LATENCY);
    (medium, db, table)
}

/// Returns the keys below `keys` that would survive a power cut at this moment.
fn durable(medium: &SimDisk, keys: u32) -> Vec<u32> {
    let image = medium.crash_image(&CrashChoice::Nothing);
    let db = Db::open_on(Arc::new(image), common::small()).unwrap();
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    (0..keys).filter(|key| txn.get(&table, &key.to_be_bytes()).unwrap().is_some()).collect()
}

fn put(db: &Db, table: &Table, key: u32) -> duramen::Txn {
    let mut txn = db.begin();
    txn.put(table, &key.to_be_bytes(), b"value").unwrap();
    txn
}

#[test]
fn a_pipelined_commit_is_durable_when_it_says_so_and_not_before() {
    let (medium, db, table) = slow(CommitMode::Pipelined);
    let commits: Vec<_> = (0..20).map(|key| put(&db, &table, key).commit_async()).collect();
    assert!(!commits[19].is_done());
    assert_eq!(durable(&medium, 20), []);
    // Other transactions see the changes at once, but a reader's commit is acknowledged only when
    // the changes that it read are durable.
    let mut reader = db.begin();
    assert!(reader.get(&table, &19_u32.to_be_bytes()).unwrap().is_some());
    reader.commit().unwrap();
    assert!(commits[19].is_done());
    assert_eq!(durable(&medium, 20), (0..20).collect::<Vec<_>>());
    for commit in commits {
        commit.wait().unwrap();
    }
    let metrics = db.metrics();
    assert!(metrics.log.flushes < 15, "{} flushes for 20 commits", metrics.log.flushes);
}

#[test]
fn in_the_other_modes_it_has_happened_on_return() {
    for commit in [CommitMode::Sync, CommitMode::Elr, CommitMode::Async] {
        let (medium, db, table) = slow(commit);
        let outcome = put(&db, &table, 0).commit_async();
        assert!(outcome.is_done(), "{commit}");
        outcome.wait().unwrap();
        let expected: &[u32] = if commit == CommitMode::Async { &[] } else { &[0] };
        assert_eq!(durable(&medium, 1), expected, "{commit}");
    }
}

/// A reader of changes that are not hardened yet gets its answer when they are. It ends by commit
/// or by abort, and reads keys and ranges, existing and deleted records.
#[test]
fn a_reader_of_an_unhardened_commit_is_told_when_it_hardens() {
    type Read = fn(&mut Txn, &Table);
    let reads: [(&str, Read); 4] = [
        ("get", |txn, table| assert!(txn.get(table, &1_u32.to_be_bytes()).unwrap().is_some())),
        ("get of a deleted key", |txn, table| assert!(txn.get(table, &0_u32.to_be_bytes()).unwrap().is_none())),
        ("scan", |txn, table| assert_eq!(txn.scan(table, ..).count(), 1)),
        ("get for update", |txn, table| assert!(txn.get_for_update(table, &1_u32.to_be_bytes()).unwrap().is_some())),
    ];
    for mode in [CommitMode::Pipelined, CommitMode::Elr] {
        for (what, read) in reads {
            for aborts in [false, true] {
                let (_medium, db, table) = slow(mode);
                put(&db, &table, 0).commit().unwrap();
                let (sender, writer) = mpsc::channel();
                let other = db.clone();
                let shared = table.clone();
                let thread = std::thread::spawn(move || {
                    let mut txn = put(&other, &shared, 1);
                    txn.delete(&shared, &0_u32.to_be_bytes()).unwrap();
                    sender.send(()).unwrap();
                    txn.commit().unwrap();
                });
                writer.recv().unwrap();
                let before = db.metrics().log.durable;
                let mut reader = db.begin();
                read(&mut reader, &table);
                let outcome = if aborts { reader.abort() } else { reader.commit() };
                outcome.unwrap();
                assert!(db.metrics().log.durable > before, "{mode}, {what}, aborts: {aborts}");
                thread.join().unwrap();
            }
        }
    }
}

/// A transaction that had locked the whole table has no locks on the records that it changed last.
/// So a reader learns of its commit from the lock of the table, also from one that it inherits.
#[test]
fn a_reader_that_inherits_the_lock_of_the_table_is_told_of_a_commit_under_it() {
    let options = Options { commit: CommitMode::Pipelined, lock_escalation: 16, ..common::small() };
    let (_medium, db, table) = slow_with(options);
    let mut txn = db.begin();
    (0..200_u32).for_each(|key| txn.put(&table, &key.to_be_bytes(), b"value").unwrap());
    txn.commit().unwrap();
    let mut txn = db.begin();
    assert_eq!(txn.delete_range(&table, ..).unwrap(), 200);
    let deletion = txn.commit_async();
    let read = || {
        let mut reader = db.begin();
        assert_eq!(reader.get(&table, &199_u32.to_be_bytes()).unwrap(), None);
        reader
    };
    // The first reader leaves the lock to the second one.
    drop(read());
    let second = read().commit_async();
    assert!(!second.is_done() || deletion.is_done());
    second.wait().unwrap();
    assert!(deletion.is_done());
}

#[test]
fn a_commit_is_a_future_and_can_be_handed_a_function() {
    let (_medium, db, table) = slow(CommitMode::Pipelined);
    block_on(async {
        let commits: Vec<_> = (0..10).map(|key| put(&db, &table, key).commit_async()).collect();
        for commit in commits {
            commit.await.unwrap();
        }
        // A transaction without changes has nothing to wait for.
        db.begin().commit_async().await.unwrap();
    });
    let (sender, outcomes) = mpsc::channel();
    for key in 0..10 {
        let sender = sender.clone();
        put(&db, &table, key).commit_async().on_done(move |outcome| {
            sender.send(outcome).unwrap();
            assert!(key != 3, "a panic harms nobody else");
        });
    }
    for _ in 0..10 {
        outcomes.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
    }
    // The function may be the last user of the database.
    let commit = put(&db, &table, 10).commit_async();
    drop(table);
    commit.on_done(move |outcome| {
        drop(db);
        sender.send(outcome).unwrap();
    });
    outcomes.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
}

#[test]
fn a_commit_whose_flush_fails_says_so_in_every_way() {
    for how in 0..3 {
        let (medium, db, table) = slow(CommitMode::Pipelined);
        let commit = put(&db, &table, 0).commit_async();
        medium.fail_at(medium.operations(), Fault::Eio, true);
        let (sender, outcomes) = mpsc::channel();
        let outcome = match how {
            0 => commit.wait(),
            1 => block_on(commit),
            _ => {
                commit.on_done(move |outcome| sender.send(outcome).unwrap());
                outcomes.recv_timeout(Duration::from_secs(60)).unwrap()
            }
        };
        assert!(matches!(outcome, Err(Error::Io { .. } | Error::Poisoned { .. })), "{outcome:?}");
        // The change was visible, but no reader may act on it.
        let mut reader = db.begin();
        let read = reader.get(&table, &0_u32.to_be_bytes()).and_then(|_| reader.commit());
        assert!(read.is_err());
    }
}

#[test]
fn an_abandoned_commit_happens_all_the_same() {
    let (medium, db, table) = slow(CommitMode::Pipelined);
    drop(put(&db, &table, 0).commit_async());
    put(&db, &table, 1).commit().unwrap();
    assert_eq!(durable(&medium, 2), [0, 1]);
    // A commit in progress keeps the database open; it ends after the last handle is dropped.
    let commit = put(&db, &table, 2).commit_async();
    drop((db, table));
    commit.wait().unwrap();
    assert_eq!(durable(&medium, 3), [0, 1, 2]);
}

#[test]
fn a_dropped_table_is_seen_to_be_gone_when_that_is_durable() {
    let (medium, db, table) = slow(CommitMode::Pipelined);
    let other = db.clone();
    let thread = std::thread::spawn(move || other.drop_table("t").unwrap());
    loop {
        let mut txn = db.begin();
        match txn.get(&table, b"key") {
            Ok(_) => txn.abort().unwrap(),
            Err(error) => {
                assert!(matches!(error, Error::NoSuchTable { .. }), "{error}");
                break;
            }
        }
    }
    let after = Db::open_on(Arc::new(medium.crash_image(&CrashChoice::Nothing)), common::small()).unwrap();
    assert!(matches!(after.open_table("t"), Err(Error::NoSuchTable { .. })));
    thread.join().unwrap();
}

/// A group-commit threshold that is not reached delays commits, for as long as configured, and
/// nothing else.
#[test]
fn only_commits_wait_for_others() {
    let options = Options {
        group_commit_transactions: 1000,
        group_commit_time: Duration::from_secs(1),
        pool_bytes: Options::MIN_POOL_PAGES * 8192,
        commit: CommitMode::Async,
        ..common::small()
    };
    let start = std::time::Instant::now();
    let db = Db::open_on(Arc::new(SimDisk::new(1)), options.clone()).unwrap();
    let table = db.create_table("t").unwrap();
    // More pages than the pool holds: pages have to be written, and the log before them.
    for key in 0..200_u32 {
        let mut txn = db.begin();
        txn.put(&table, &key.to_be_bytes(), &[7; 7000]).unwrap();
        txn.commit().unwrap();
    }
    db.checkpoint().unwrap();
    drop(table);
    db.close().unwrap();
    // The creation of the table is one commit that waits.
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    let options = Options { group_commit_time: Duration::from_secs(11), ..options };
    assert!(matches!(Db::open_on(Arc::new(SimDisk::new(1)), options), Err(Error::InvalidOption { .. })));
}
