//! Programs that would wait for ever: asynchronous tasks that hold locks while they are suspended,
//! and threads with several transactions. They get an error, or go on.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use duramen::{Db, Error, Options};
use duramen_test_support::block_on;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An executor of a few threads, as asynchronous programs have one.
#[derive(Default)]
struct Executor {
    ready: Mutex<VecDeque<Arc<Task>>>,
    changed: Condvar,
    unfinished: AtomicU32,
}

struct Task {
    work: Mutex<Option<Work>>,
    executor: Arc<Executor>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let executor = Arc::clone(&self.executor);
        executor.ready.lock().unwrap().push_back(self);
        executor.changed.notify_one();
    }
}

impl Executor {
    /// Runs `tasks` on `threads` threads to their end.
    fn run(threads: usize, tasks: impl IntoIterator<Item = Work>) {
        let executor = Arc::new(Self::default());
        for work in tasks {
            executor.unfinished.fetch_add(1, Ordering::SeqCst);
            Arc::new(Task { work: Mutex::new(Some(work)), executor: Arc::clone(&executor) }).wake();
        }
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(|| executor.work()))));
    }

    fn work(&self) {
        while let Some(task) = self.next() {
            let waker = Waker::from(Arc::clone(&task));
            let mut work = task.work.lock().unwrap();
            let is_done =
                work.as_mut().is_some_and(|work| work.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
            if is_done {
                *work = None;
                self.unfinished.fetch_sub(1, Ordering::SeqCst);
                let _ready = self.ready.lock().unwrap();
                self.changed.notify_all();
            }
        }
    }

    fn next(&self) -> Option<Arc<Task>> {
        let mut ready = self.ready.lock().unwrap();
        loop {
            if self.unfinished.load(Ordering::SeqCst) == 0 {
                return None;
            }
            match ready.pop_front() {
                Some(task) => return Some(task),
                None => ready = self.changed.wait(ready).unwrap(),
            }
        }
    }
}

/// Lets the executor run other tasks.
fn suspend() -> impl Future<Output = ()> + Send {
    let mut polled = false;
    std::future::poll_fn(move |context| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

fn small() -> Options {
    Options { pool_bytes: 4 << 20, log_segment_bytes: 1 << 20, checkpoint_bytes: Some(4 << 20), ..Options::default() }
}

/// Tasks that contend for a record, suspended while they hold its lock, on two threads. The locks
/// of suspended tasks block both threads, until the limit is reached.
#[test]
fn tasks_that_hold_locks_while_suspended_do_not_hang() {
    let home = tempfile::tempdir().unwrap();
    let options = Options { lock_wait_limit: Some(Duration::from_millis(2)), ..small() };
    let db = Db::open(home.path(), options).unwrap();
    let table = db.create_table("t").unwrap();
    let committed = Arc::new(AtomicU32::new(0));
    let task = |number: u32| -> Work {
        let (db, table, committed) = (db.clone(), table.clone(), Arc::clone(&committed));
        Box::pin(async move {
            let mut txn = db.begin();
            suspend().await;
            if txn.put(&table, b"hot", &number.to_le_bytes()).is_err() {
                return;
            }
            suspend().await;
            if txn.commit_async().await.is_ok() {
                committed.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    Executor::run(2, (0..200).map(task));
    assert!(committed.load(Ordering::SeqCst) > 0, "somebody gets through");
    db.close().unwrap();
}

/// The same work with `run_async`: everybody gets through.
#[test]
fn run_async_holds_no_lock_while_suspended() {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), Options { run_async_threads: 2, ..small() }).unwrap();
    let table = db.create_table("t").unwrap();
    let task = |number: u32| -> Work {
        let (db, table) = (db.clone(), table.clone());
        Box::pin(async move {
            let add = move |txn: &mut duramen::Txn| {
                let sum = txn
                    .get_for_update(&table, b"sum")?
                    .map_or(0, |sum| u32::from_le_bytes(sum[..4].try_into().unwrap()));
                txn.put(&table, b"sum", &(sum + number).to_le_bytes())?;
                Ok(sum)
            };
            suspend().await;
            db.run_async(add).await.unwrap();
        })
    };
    Executor::run(2, (0..200).map(task));
    let sum = db.run(|txn| txn.get(&table, b"sum")).unwrap().unwrap();
    assert_eq!(sum, (0..200_u32).sum::<u32>().to_le_bytes());
    db.close().unwrap();
}

#[test]
fn run_async_passes_errors_and_panics_on() {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), small()).unwrap();
    let table = db.create_table("t").unwrap();
    let twice = table.clone();
    let outcome = block_on(db.run_async(move |txn| {
        txn.insert(&twice, b"key", b"1")?;
        txn.insert(&twice, b"key", b"2")
    }));
    assert!(matches!(outcome, Err(Error::KeyExists)), "{outcome:?}");
    let panicking = table.clone();
    let running = db.run_async(move |txn| -> duramen::Result<()> {
        txn.put(&panicking, b"key", b"3")?;
        panic!("in the closure");
    });
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| block_on(running))).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"in the closure"));
    assert_eq!(db.run(|txn| txn.get(&table, b"key")).unwrap(), None, "both were rolled back");

    // An outcome that was given out, whether a value or an error, is not awaited for ever.
    let absent = table.clone();
    let mut read = db.run_async(move |txn| txn.get(&absent, b"key"));
    assert!(matches!(block_on(&mut read), Ok(None)));
    let mut refused = db.run_async(|_| Err::<Option<Vec<u8>>, _>(Error::KeyExists));
    assert!(matches!(block_on(&mut refused), Err(Error::KeyExists)));
    for mut over in [read, refused] {
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| block_on(&mut over)));
        assert!(again.unwrap_err().downcast_ref::<&str>().is_some_and(|panic| panic.contains("given out already")));
    }

    // A future that nobody awaits has run all the same.
    let put = table.clone();
    drop(db.run_async(move |txn| txn.put(&put, b"key", b"4")));
    let deadline = Instant::now() + Duration::from_secs(20);
    while db.run(|txn| txn.get(&table, b"key")).unwrap().is_none() {
        assert!(Instant::now() < deadline, "it is not run");
    }
    let late = db.clone();
    db.close().unwrap();
    assert!(matches!(block_on(late.run_async(move |txn| txn.get(&table, b"key"))), Err(Error::Closed)));
}

/// A waker that tells when it is used, and does not return before it may.
struct Slow {
    used: Mutex<mpsc::Sender<()>>,
    may_return: Mutex<mpsc::Receiver<()>>,
}

impl Wake for Slow {
    fn wake(self: Arc<Self>) {
        self.used.lock().unwrap().send(()).unwrap();
        self.may_return.lock().unwrap().recv().unwrap();
    }
}

/// A task that has its outcome may close the database and open it again, while the thread that ran
/// the closure still wakes it.
#[test]
fn a_task_with_its_outcome_can_open_the_database_again() {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), small()).unwrap();
    let (go, wait) = mpsc::channel();
    let mut running = db.run_async(move |_| {
        wait.recv().unwrap();
        Ok(7)
    });
    let ((used, is_used), (release, may_return)) = (mpsc::channel(), mpsc::channel());
    let waker = Waker::from(Arc::new(Slow { used: Mutex::new(used), may_return: Mutex::new(may_return) }));
    assert!(Pin::new(&mut running).poll(&mut Context::from_waker(&waker)).is_pending());
    go.send(()).unwrap();
    is_used.recv().unwrap();
    assert!(matches!(block_on(&mut running), Ok(7)));
    drop(running);
    db.close().unwrap();
    let again = Db::open(home.path(), small());
    release.send(()).unwrap();
    again.unwrap().close().unwrap();
}

/// The closure may hold the last handle.
#[test]
fn the_last_handle_may_be_dropped_by_a_run() {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), small()).unwrap();
    let table = db.create_table("t").unwrap();
    let (own, of_own) = (db.clone(), table.clone());
    let running = db.run_async(move |txn| {
        assert_eq!(own.list()?, ["t"]);
        txn.put(&of_own, b"key", b"1")
    });
    drop(db);
    let outcome = block_on(running);
    assert!(matches!(outcome, Ok(()) | Err(Error::Closed)), "{outcome:?}");
    let db = loop {
        match Db::open(home.path(), small()) {
            Err(Error::AlreadyOpen { .. }) => std::thread::yield_now(),
            db => break db.unwrap(),
        }
    };
    let found = db.run(|txn| txn.get(&db.open_table("t")?, b"key")).unwrap();
    assert!(found.is_some() || outcome.is_err(), "what was acknowledged is there");
}

#[test]
fn a_thread_with_two_transactions_on_one_key_gets_an_error() {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), Options { lock_wait_limit: None, ..small() }).unwrap();
    let table = db.create_table("t").unwrap();
    let (mut first, mut second) = (db.begin(), db.begin());
    first.put(&table, b"key", b"1").unwrap();
    assert!(matches!(second.get(&table, b"key"), Err(Error::Deadlock { .. })));
    drop(second);
    first.commit().unwrap();
}

#[test]
fn waits_have_a_limit_and_each_transaction_may_have_its_own() {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(Options::default().lock_wait_limit, Some(Duration::from_secs(10)));
    let db = Db::open(home.path(), Options { lock_wait_limit: Some(Duration::from_secs(60)), ..small() }).unwrap();
    let table = db.create_table("t").unwrap();
    let mut holder = db.begin();
    holder.put(&table, b"key", b"1").unwrap();
    let wait = |limit: Duration| {
        let mut txn = db.begin();
        txn.set_lock_wait_limit(Some(limit));
        let start = Instant::now();
        let error = txn.get(&table, b"key").unwrap_err();
        assert!(matches!(error, Error::LockTimeout { .. }) && error.is_retryable(), "{error}");
        assert!(matches!(txn.get(&table, b"other"), Err(Error::MustAbort)));
        start.elapsed()
    };
    // Another thread waits: the one that holds the lock would be told that it waits for itself.
    std::thread::scope(|scope| {
        let waited = scope.spawn(|| (wait(Duration::ZERO), wait(Duration::from_millis(60)))).join().unwrap();
        assert!(waited.0 < Duration::from_millis(50), "{waited:?}");
        assert!((60..20_000).contains(&waited.1.as_millis()), "{waited:?}");
    });
    assert_eq!(db.metrics().lock_timeouts, 2);
    holder.commit().unwrap();
}

#[test]
fn workers_share_a_queue() {
    const JOBS: u32 = 400;
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), small()).unwrap();
    let table = db.create_table("jobs").unwrap();
    db.run(|txn| (0..JOBS).try_for_each(|job| txn.put(&table, &job.to_be_bytes(), b"to do"))).unwrap();
    let take = || {
        db.run(|txn| {
            txn.set_lock_wait_limit(Some(Duration::ZERO));
            let Some(job) = txn.scan_skip_locked(&table, ..).next().transpose()? else { return Ok(None) };
            assert_eq!(job.1, b"to do");
            txn.delete(&table, &job.0)?;
            Ok(Some(job.0))
        })
    };
    let mut taken: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut own = Vec::new();
                    while own.len() < JOBS as usize / 8
                        && let Some(job) = take().unwrap()
                    {
                        own.push(job);
                    }
                    own
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    while let Some(job) = take().unwrap() {
        taken.push(job);
    }
    taken.sort();
    assert_eq!(taken, (0..JOBS).map(|job| job.to_be_bytes().to_vec()).collect::<Vec<_>>(), "each once");
    db.close().unwrap();
}

/// What a scan skips it does not lock, and what it returns stays as it is.
#[test]
fn locked_records_are_skipped_and_returned_ones_are_locked() {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), small()).unwrap();
    let table = db.create_table("t").unwrap();
    db.run(|txn| (0..6_u8).try_for_each(|key| txn.put(&table, &[key], &[key]))).unwrap();
    let mut reader = db.begin();
    reader.get(&table, &[0]).unwrap();
    let mut writer = db.begin();
    writer.put(&table, &[1], b"changed").unwrap();
    writer.delete(&table, &[2]).unwrap();
    writer.insert(&table, &[9], b"new").unwrap();
    let keys = |txn: &mut duramen::Txn| -> Vec<u8> {
        txn.scan_skip_locked(&table, ..).map(|item| item.unwrap().0[0]).collect()
    };
    let mut scanner = db.begin();
    assert_eq!(scanner.scan_skip_locked(&table, ..).next().unwrap().unwrap().0, [3]);
    let mut other = db.begin();
    assert_eq!(keys(&mut other), [4, 5]);
    assert_eq!(keys(&mut scanner), [3], "its own lock hides nothing");
    drop(other);
    writer.abort().unwrap();
    drop(reader);
    assert_eq!(keys(&mut scanner), [0, 1, 2, 3, 4, 5]);
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| {
            let mut late = db.begin();
            late.set_lock_wait_limit(Some(Duration::ZERO));
            late.put(&table, &[3], b"late").unwrap_err()
        });
        assert!(matches!(refused.join().unwrap(), Error::LockTimeout { .. }));
    });
}

/// A panic in what the work had returned, or in waking the task, took the thread: after as many of
/// them as there are threads, nothing ran any more.
#[test]
fn a_panic_in_an_outcome_costs_no_thread() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("when the outcome is dropped");
        }
    }
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), Options { run_async_threads: 1, ..small() }).unwrap();
    let table = db.create_table("t").unwrap();
    for _ in 0..3 {
        let gate = Arc::new(std::sync::Barrier::new(2));
        let inside = Arc::clone(&gate);
        let running = db.run_async(move |_| {
            inside.wait();
            Ok(Bomb)
        });
        // Nobody takes the outcome.
        drop(running);
        gate.wait();
        let put = table.clone();
        block_on(db.run_async(move |txn| txn.put(&put, b"key", b"value"))).unwrap();
    }
    db.close().unwrap();
}

/// A thread that unwinds rolls its transaction back, for which it may have to harden the log. The
/// log took that for a panic of its own and stopped.
#[test]
fn a_panic_in_a_long_transaction_stops_nothing() {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), Options { pool_bytes: 512 << 10, ..small() }).unwrap();
    let table = db.create_table("t").unwrap();
    for round in 0..5_u32 {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            db.run(|txn| -> duramen::Result<()> {
                for row in 0..2_000_u32 {
                    txn.put(&table, &row.wrapping_mul(0x9E37_79B9).to_be_bytes(), &[round as u8; 400])?;
                }
                panic!("in the closure");
            })
        }));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"in the closure"));
        db.run(|txn| txn.put(&table, b"after", &round.to_be_bytes())).unwrap();
    }
    assert_eq!(db.begin().scan(&table, ..).count(), 1);
    assert!(db.check().unwrap().is_ok());
    db.close().unwrap();
}
