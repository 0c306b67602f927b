//! Threads that have several transactions open, and the locks and savepoints of each of these.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use duramen::{Db, Error, Options, Result, Table};

fn open() -> (tempfile::TempDir, Db, Table) {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), Options { pool_bytes: 8 << 20, ..Options::default() }).unwrap();
    let table = db.create_table("t").unwrap();
    (home, db, table)
}

/// Runs `work` on a thread of its own; panics if it does not end.
fn ends(work: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || {
        work();
        sender.send(()).unwrap();
    });
    match receiver.recv_timeout(Duration::from_secs(20)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it waits for ever"),
        _ => thread.join().unwrap(),
    }
}

fn is_deadlock<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Deadlock { .. }))
}

/// Transactions of two databases may have the same number, and each accepted the other's
/// savepoints.
#[test]
fn a_savepoint_of_another_database_is_refused() {
    let [(_a, first, one), (_b, second, other)] = [open(), open()];
    let (mut mine, mut foreign) = (first.begin(), second.begin());
    assert_eq!(mine.id(), foreign.id(), "or this shows nothing");
    mine.put(&one, b"kept", b"1").unwrap();
    let savepoint = mine.savepoint();
    foreign.savepoint();
    foreign.put(&other, b"kept", b"2").unwrap();
    assert!(matches!(foreign.rollback_to(&savepoint), Err(Error::NoSuchSavepoint)));
    assert!(matches!(first.begin().rollback_to(&savepoint), Err(Error::NoSuchSavepoint)));
    assert_eq!(foreign.get(&other, b"kept").unwrap().as_deref(), Some(&b"2"[..]));
    mine.put(&one, b"taken back", b"3").unwrap();
    mine.rollback_to(&savepoint).unwrap();
    mine.commit().unwrap();
    foreign.commit().unwrap();
    assert_eq!(first.run(|txn| Ok(txn.scan(&one, ..).count())).unwrap(), 1);
}

/// The table's lock belonged to the calling thread, and the internal transaction that was to drop
/// the table waited for it.
#[test]
fn a_table_in_use_by_the_calling_thread_is_not_dropped() {
    ends(|| {
        let (_home, db, table) = open();
        let mut txn = db.begin();
        txn.put(&table, b"key", b"value").unwrap();
        let dropped = db.drop_table("t");
        assert!(matches!(&dropped, Err(Error::TableInUse { name }) if name == "t"), "{dropped:?}");
        txn.put(&table, b"another key", b"value").unwrap();
        txn.commit().unwrap();
        db.drop_table("t").unwrap();
    });
}

/// Two transactions of one thread used one key: the thread waited for itself.
#[test]
fn a_thread_that_waits_for_itself_gets_a_deadlock() {
    ends(|| {
        let (_home, db, table) = open();
        let (mut first, mut second) = (db.begin(), db.begin());
        first.put(&table, b"key", b"1").unwrap();
        assert!(is_deadlock(second.put(&table, b"key", b"2")));
        second.abort().unwrap();
        assert!(is_deadlock(db.run(|txn| txn.put(&table, b"key", b"3"))), "to run it again would not help");
        first.commit().unwrap();
        assert_eq!(db.run(|txn| txn.get(&table, b"key")).unwrap().as_deref(), Some(&b"1"[..]));
    });
}

/// The inner transaction waited for the outer one, whose thread runs it: the outer one was run
/// again for ever, because of an error that was not its own.
#[test]
fn a_transaction_within_another_one_gets_a_deadlock() {
    ends(|| {
        let (_home, db, table) = open();
        let mut attempts = 0;
        let result = db.run(|outer| {
            attempts += 1;
            outer.put(&table, b"key", b"1")?;
            db.run(|inner| inner.get(&table, b"key"))
        });
        assert!(is_deadlock(result) && attempts == 1, "{attempts} attempts");
        assert_eq!(db.run(|txn| txn.get(&table, b"key")).unwrap(), None);
        // What the inner one does with other keys is done.
        db.run(|outer| {
            outer.put(&table, b"key", b"1")?;
            db.run(|inner| inner.put(&table, b"another", b"2"))
        })
        .unwrap();
        assert_eq!(db.run(|txn| Ok(txn.scan(&table, ..).count())).unwrap(), 2);
    });
}

/// A transaction that does not wait, and was refused a lock of its own thread, was run again for
/// ever.
#[test]
fn a_transaction_that_does_not_wait_is_refused_what_its_thread_holds() {
    ends(|| {
        let (_home, db, table) = open();
        let is_refused = |result| matches!(result, Err(Error::LockTimeout { of_own_thread: true, .. }));
        let change = || {
            db.run(|txn| {
                txn.set_lock_wait_limit(Some(Duration::ZERO));
                txn.put(&table, b"key", b"2")
            })
        };
        let mut first = db.begin();
        first.put(&table, b"key", b"1").unwrap();
        assert!(is_refused(change()));
        // Another thread waits for this one's transaction, and the refused one for that thread's.
        thread::scope(|scope| {
            let (ready, is_ready) = mpsc::channel();
            let (db, table) = (&db, &table);
            let other = scope.spawn(move || {
                let mut other = db.begin();
                other.put(table, b"another", b"1").unwrap();
                ready.send(()).unwrap();
                other.put(table, b"key", b"3").unwrap();
                other.commit().unwrap();
            });
            is_ready.recv().unwrap();
            assert!(is_refused(db.run(|txn| {
                txn.set_lock_wait_limit(Some(Duration::ZERO));
                txn.put(table, b"another", b"2")
            })));
            first.commit().unwrap();
            other.join().unwrap();
        });
        change().unwrap();
        let nested = db.run(|outer| {
            outer.put(&table, b"key", b"1")?;
            change()
        });
        assert!(is_refused(nested));
        // What another thread holds is free in the end.
        let mut first = db.begin();
        first.put(&table, b"key", b"3").unwrap();
        thread::scope(|scope| {
            let other = scope.spawn(change);
            thread::sleep(Duration::from_millis(20));
            first.commit().unwrap();
            other.join().unwrap().unwrap();
        });
        assert_eq!(db.run(|txn| txn.get(&table, b"key")).unwrap().as_deref(), Some(&b"2"[..]));
    });
}

/// Two threads, each with a transaction within another one that waits for the other thread's outer
/// one: one of the outer ones is rolled back and run again.
#[test]
fn transactions_within_others_that_wait_for_each_other_are_run_again() {
    ends(|| {
        let (_home, db, table) = open();
        let (db, table) = (&db, &table);
        let both = std::sync::Barrier::new(2);
        thread::scope(|scope| {
            let run = |mine: &'static [u8], others: &'static [u8]| {
                let mut attempts = 0;
                db.run(|outer| {
                    attempts += 1;
                    outer.put(table, mine, b"outer")?;
                    if attempts == 1 {
                        both.wait();
                    }
                    db.run(|inner| inner.get(table, others))
                })
                .map(|_| attempts)
                .unwrap()
            };
            let other = scope.spawn(move || run(b"a", b"b"));
            let attempts = run(b"b", b"a") + other.join().unwrap();
            assert!(attempts > 2, "{attempts} attempts");
        });
        assert_eq!(db.run(|txn| Ok(txn.scan(table, ..).count())).unwrap(), 2);
    });
}

/// A thread waits for another one, which waits for another transaction of the first.
#[test]
fn threads_that_wait_for_each_other_by_other_transactions_get_a_deadlock() {
    for mine_first in [false, true] {
        ends(move || {
            let (_home, db, table) = open();
            let (mut first, mut second) = (db.begin(), db.begin());
            first.put(&table, b"a", b"1").unwrap();
            thread::scope(|scope| {
                let (ready, go) = mpsc::channel();
                let (db, table) = (&db, &table);
                let other = scope.spawn(move || {
                    let mut other = db.begin();
                    other.put(table, b"b", b"2").unwrap();
                    ready.send(()).unwrap();
                    thread::sleep(Duration::from_millis(if mine_first { 200 } else { 0 }));
                    let result = other.put(table, b"a", b"2");
                    drop(other);
                    is_deadlock(result)
                });
                go.recv().unwrap();
                thread::sleep(Duration::from_millis(if mine_first { 0 } else { 200 }));
                let mine = second.put(table, b"b", b"1");
                // The other transaction began last.
                assert!(mine.is_ok() && other.join().unwrap(), "{mine:?}");
            });
            second.commit().unwrap();
            first.commit().unwrap();
        });
    }
}

/// The rollback of the youngest transaction changed nothing if the other transaction waited for a
/// different transaction of the same thread: `Db::run` tried it again forever.
#[test]
fn of_a_deadlock_by_another_transaction_the_one_that_is_waited_for_gives_way() {
    ends(|| {
        let (_home, db, table) = open();
        let mut first = db.begin();
        first.put(&table, b"a", b"1").unwrap();
        thread::scope(|scope| {
            let (ready, go) = mpsc::channel();
            let (db, table) = (&db, &table);
            let other = scope.spawn(move || {
                let mut other = db.begin();
                other.put(table, b"b", b"2").unwrap();
                ready.send(()).unwrap();
                is_deadlock(other.put(table, b"a", b"2"))
            });
            go.recv().unwrap();
            thread::sleep(Duration::from_millis(100));
            // It begins last, and waits for the other transaction, which waits for `first`.
            db.run(|txn| txn.put(table, b"b", b"1")).unwrap();
            assert!(other.join().unwrap());
        });
        first.commit().unwrap();
    });
}

/// A transaction that another thread only commits belongs to that thread from then on, and other
/// transactions can wait for it.
#[test]
fn a_transaction_that_another_thread_commits_is_waited_for() {
    ends(|| {
        let (_home, db, table) = open();
        for _ in 0..50 {
            let mut handed = db.begin();
            handed.put(&table, b"key", b"1").unwrap();
            thread::scope(|scope| {
                scope.spawn(move || handed.commit().unwrap());
                // Until the other thread has it, it counts as this thread's transaction.
                while matches!(db.run(|txn| txn.put(&table, b"key", b"2")), Err(Error::Deadlock { .. })) {}
            });
        }
    });
}

/// A transaction that was moved to another thread belongs to that thread, and other transactions
/// can wait for it.
#[test]
fn a_transaction_that_is_handed_on_is_waited_for() {
    ends(|| {
        let (_home, db, table) = open();
        let mut handed = db.begin();
        handed.put(&table, b"key", b"1").unwrap();
        thread::scope(|scope| {
            let (used, go) = mpsc::channel();
            let table = &table;
            scope.spawn(move || {
                handed.put(table, b"another", b"1").unwrap();
                used.send(()).unwrap();
                thread::sleep(Duration::from_millis(100));
                handed.commit().unwrap();
            });
            go.recv().unwrap();
            let mut mine = db.begin();
            mine.put(table, b"key", b"2").unwrap();
            mine.commit().unwrap();
        });
        db.drop_table("t").unwrap();
    });
}
