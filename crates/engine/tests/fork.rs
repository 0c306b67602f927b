//! A process that has a database open forks: the child cannot use the database, and does not damage
//! it.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use duramen::{Commit, CommitMode, Db, Error, Options, Result, Running};

fn options() -> Options {
    Options { pool_bytes: 8 << 20, commit: CommitMode::Pipelined, ..Options::default() }
}

/// Allows one test at a time. A child has one thread, and locks that the threads of another test
/// held stay locked in the child, also in the standard library and in other crates.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_forked<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Forked))
}

/// Runs `body` in a forked child and returns the number that `body` returned, from the child's exit
/// code. A child that hangs is killed after 30 seconds.
fn in_child(body: impl FnOnce() -> u8) -> u8 {
    // SAFETY: the child only runs `body`, which takes no lock that another thread may have held,
    // and then exits at once.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: no memory is involved.
            unsafe { libc::alarm(30) };
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(255);
            // SAFETY: the child exits without running anything that the parent's threads have left
            // half done.
            unsafe { libc::_exit(code.into()) }
        }
        child => {
            assert!(child > 0, "the process cannot fork");
            let mut status = 0;
            // SAFETY: `status` is valid and writable.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert!(libc::WIFEXITED(status), "the child was killed by signal {}", libc::WTERMSIG(status));
            libc::WEXITSTATUS(status) as u8
        }
    }
}

/// Returns the number of the first line that does not hold, or zero.
macro_rules! all_hold {
    ($($condition:expr,)*) => {{
        let mut number = 0;
        $(
            number += 1;
            if !$condition {
                return number;
            }
        )*
        let _ = number;
        0
    }};
}

fn check(home: &Path, expected: usize) {
    let db = Db::open(home, options()).unwrap();
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    let keys: Vec<_> = txn.scan(&table, ..).map(|record| record.unwrap().0).collect();
    assert!(!keys.iter().any(|key| key.starts_with(b"child")), "nothing of the child is there");
    assert_eq!(keys.len(), expected);
    txn.commit().unwrap();
    assert!(db.check().unwrap().is_ok());
    db.close().unwrap();
}

/// A commit in a child was acknowledged by a copy of the parent's log in the child's memory, which
/// had no flush thread. The child's records lay at the file offset where the parent wrote next.
#[test]
fn every_call_of_a_child_is_refused() {
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), options()).unwrap();
    let table = db.create_table("t").unwrap();
    let stop = AtomicBool::new(false);
    let mut failed = (0, 0);
    let committed: usize = thread::scope(|scope| {
        // So that threads hold locks of all kinds when the process forks.
        let writers: Vec<_> = (0..3_u32)
            .map(|writer| {
                let (db, table, stop) = (&db, &table, &stop);
                scope.spawn(move || {
                    let mut number = 0_u32;
                    while !stop.load(Ordering::Relaxed) {
                        let key = [&b"parent"[..], &writer.to_be_bytes(), &number.to_be_bytes()].concat();
                        db.run(|txn| txn.put(table, &key, &[7; 100])).unwrap();
                        number += 1;
                    }
                    number as usize
                })
            })
            .collect();
        for round in 0..20_u32 {
            thread::sleep(Duration::from_millis(5));
            let mut txn = db.begin();
            txn.put(&table, b"child", b"inherited").unwrap();
            let savepoint = txn.savepoint();
            let [mut other, aborted, dropped] = [(); 3].map(|()| db.begin());
            let commits = [b"x", b"y", b"z"].map(|key| {
                let mut txn = db.begin();
                txn.put(&table, &[&b"kept"[..], key, &round.to_be_bytes()].concat(), b"").unwrap();
                txn.commit_async()
            });
            // The child may get the outcome of a commit that another thread has flushed by now.
            let known = commits.each_ref().map(Commit::is_done);
            // From now on, threads wait for transactions to run.
            let begun = db.run_async(|_| Ok(()));
            let child = || {
                let (mut txn, table, [commit, waited, told]) = (txn, &table, commits);
                let is_forked_or_known =
                    |outcome: &Result<()>, known: bool| is_forked(outcome) || known && outcome.is_ok();
                let is_refused =
                    |running: Running<()>| match pin!(running).poll(&mut Context::from_waker(Waker::noop())) {
                        Poll::Ready(outcome) => is_forked(&outcome),
                        Poll::Pending => false,
                    };
                all_hold! {
                    is_forked(&txn.get(table, b"child")),
                    is_forked(&txn.put(table, b"child", b"changed")),
                    is_forked(&txn.insert(table, b"child", b"changed")),
                    is_forked(&txn.delete(table, b"child")),
                    is_forked(&txn.rollback_to(&savepoint)),
                    is_forked(&txn.scan(table, ..).next().unwrap()),
                    is_forked(&txn.commit()),
                    is_forked(&other.get_for_update(table, b"child")),
                    is_forked(&other.commit_async().wait()),
                    is_forked(&aborted.abort()),
                    { drop(dropped); true },
                    is_forked_or_known(&waited.wait(), known[1]),
                    commit.is_done(),
                    matches!(
                        pin!(commit).poll(&mut Context::from_waker(Waker::noop())),
                        Poll::Ready(outcome) if is_forked_or_known(&outcome, known[0])
                    ),
                    {
                        let (sender, receiver) = std::sync::mpsc::channel();
                        told.on_done(move |outcome| sender.send(outcome).unwrap());
                        receiver.try_recv().is_ok_and(|outcome| is_forked_or_known(&outcome, known[2]))
                    },
                    is_forked(&db.begin().get(table, b"child")),
                    is_forked(&{ db.begin().commit() }),
                    is_forked(&db.run(|txn| txn.put(table, b"child", b"run"))),
                    is_refused(begun),
                    is_refused(db.run_async(|_| Ok(()))),
                    is_forked(&db.create_table("child")),
                    is_forked(&db.open_table("t")),
                    is_forked(&db.drop_table("t")),
                    is_forked(&db.list()),
                    is_forked(&db.checkpoint()),
                    is_forked(&db.check()),
                    is_forked(&db.backup(home.path().join("backup"), |_| {})),
                    db.metrics().commits == 0,
                    db.archive_failure().is_some(),
                    { db.await_archive(); true },
                    is_forked(&db.clone().close()),
                }
            };
            failed = (round, in_child(child));
            if failed.1 != 0 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    assert_eq!(failed.1, 0, "this line did not hold in the child of round {}", failed.0);
    db.close().unwrap();
    check(home.path(), committed + 20 * 3);
}

/// A child that dropped its handle emptied the lock file. The child had no thread to join, so it
/// never exited.
#[test]
fn a_child_that_drops_the_database_leaves_it_to_the_parent() {
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), options()).unwrap();
    let table = db.create_table("t").unwrap();
    let before = std::fs::read(home.path().join("lock")).unwrap();
    let mut txn = db.begin();
    txn.put(&table, b"parent", b"1").unwrap();
    let (handle, other) = (db.clone(), db.begin());
    // The child has a copy of every object, and drops it.
    let mut everything = Some((db, handle, txn, other, table));
    let code = in_child(|| {
        drop(everything.take());
        all_hold! {
            matches!(Db::open(home.path(), options()), Err(Error::AlreadyOpen { .. })),
        }
    });
    assert_eq!(code, 0);
    let (db, handle, txn, other, table) = everything.expect("the parent still has it");
    assert_eq!(std::fs::read(home.path().join("lock")).unwrap(), before);
    assert!(matches!(Db::open(home.path(), options()), Err(Error::AlreadyOpen { .. })), "the lock is the parent's");
    txn.commit().unwrap();
    other.abort().unwrap();
    drop((handle, table));
    db.close().unwrap();
    check(home.path(), 1);
}

/// The lock belonged to the open file that the child had inherited, and lasted as long as the
/// child.
#[test]
fn a_child_that_lives_on_does_not_keep_the_lock() {
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), options()).unwrap();
    db.create_table("t").unwrap();
    // SAFETY: the child only waits for a signal.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no memory is involved.
        unsafe {
            libc::alarm(60);
            libc::pause();
            libc::_exit(0);
        }
    }
    assert!(child > 0);
    db.close().unwrap();
    let opened = Db::open(home.path(), options());
    // SAFETY: the child is this process's own and has not been waited for.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, &mut 0, 0);
    }
    opened.expect("the parent has closed it").close().unwrap();
}
