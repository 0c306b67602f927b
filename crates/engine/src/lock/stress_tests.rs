//! Many threads, random locks, and a checker that is independent of the manager.

use std::time::Duration;

use duramen_sync::atomic::{AtomicI64, AtomicU64, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::{Arc, thread};
use duramen_test_support::Rng;
use duramen_types::{TableId, TxnId};

use super::LockMode::{self, Exclusive, IntentExclusive, IntentShared, Shared, SharedIntentExclusive};
use super::{LockError, LockId, LockManager, TxnLocks};

const TABLE: TableId = TableId::new(1);

fn record(number: usize) -> LockId {
    LockId::record(TABLE, &number.to_be_bytes())
}

/// The locks that are really held: per lock and mode, a count that the holders themselves maintain.
struct Checker(Vec<[AtomicI64; 5]>);

impl Checker {
    fn new(locks: usize) -> Self {
        Self((0..locks).map(|_| std::array::from_fn(|_| AtomicI64::new(0))).collect())
    }

    fn enter(&self, lock: usize, mode: LockMode) {
        let counts = &self.0[lock];
        counts[mode.index()].fetch_add(1, Ordering::SeqCst);
        for other in LockMode::ALL {
            let own = i64::from(other == mode);
            let others = counts[other.index()].load(Ordering::SeqCst) - own;
            assert!(
                others == 0 || mode.is_compatible(other),
                "{mode:?} is held together with {others} times {other:?}"
            );
        }
    }

    fn leave(&self, lock: usize, mode: LockMode) {
        self.0[lock][mode.index()].fetch_sub(1, Ordering::SeqCst);
    }
}

fn run(threads: usize, body: impl Fn(usize) + Send + Sync + 'static) {
    let body = Arc::new(body);
    let threads: Vec<_> = (0..threads)
        .map(|number| {
            let body = Arc::clone(&body);
            thread::spawn("stress", move || body(number)).expect("a thread starts")
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

fn table(number: usize) -> LockId {
    LockId::table(TableId::new(number as u32))
}

/// Runs one transaction with random requests, conversions among them. It gives up on a deadlock.
fn transact(
    manager: &LockManager,
    checker: &Checker,
    txn: &mut TxnLocks,
    random: &mut Rng,
    locks: usize,
    record: fn(usize) -> LockId,
) -> Result<(), LockError> {
    for _ in 0..1 + random.within(0..6) {
        let lock = random.within(0..locks);
        let mode =
            [Shared, Exclusive, IntentShared, IntentExclusive, SharedIntentExclusive, Shared][random.within(0..6)];
        let before = txn.held(record(lock));
        match random.within(0..8) {
            0 => {
                // Like an insertion: the lock is held only for a moment.
                manager.acquire(txn, record(lock), mode)?;
                let now = txn.held(record(lock)).expect("it was granted");
                before.iter().for_each(|before| checker.leave(lock, *before));
                checker.enter(lock, now);
                checker.leave(lock, now);
                before.iter().for_each(|before| checker.enter(lock, *before));
                manager.restore(txn, record(lock), before);
                assert_eq!(txn.held(record(lock)), before);
                continue;
            }
            1 if !manager.try_acquire(txn, record(lock), mode) => {
                assert_eq!(txn.held(record(lock)), before);
                continue;
            }
            _ => manager.acquire(txn, record(lock), mode)?,
        }
        let now = txn.held(record(lock)).expect("it was granted");
        assert!(now.covers(mode));
        if let Some(before) = before {
            checker.leave(lock, before);
        }
        checker.enter(lock, now);
        if random.within(0..4) == 0 {
            thread::yield_now();
        }
        if before.is_none() && random.within(0..8) == 0 {
            checker.leave(lock, now);
            manager.release_one(txn, record(lock));
        }
    }
    Ok(())
}

fn random_locks_under_a_checker(
    locks: usize,
    buckets: usize,
    record: fn(usize) -> LockId,
    manager: impl Fn(LockManager) -> LockManager,
) {
    const COMMITS: u64 = 1500;
    let manager = Arc::new(manager(LockManager::new(buckets)));
    let (own, ids) = (Arc::clone(&manager), AtomicU64::new(1));
    let checker = Checker::new(locks);
    run(8, move |thread| {
        let mut random = Rng::new(0x9e37_79b9 + thread as u64);
        let mut txn = TxnLocks::new(TxnId::new(ids.fetch_add(1, Ordering::Relaxed)));
        let mut commits = 0;
        while commits < COMMITS {
            match transact(&own, &checker, &mut txn, &mut random, locks, record) {
                Ok(()) => commits += 1,
                Err(LockError::Deadlock { cycle }) => assert!((2..=8).contains(&cycle), "{cycle}"),
                Err(LockError::Timeout | LockError::Refused { .. }) => {}
                Err(LockError::Closed) => panic!("nobody closes"),
            }
            for lock in 0..locks {
                if let Some(mode) = txn.held(record(lock)) {
                    checker.leave(lock, mode);
                }
            }
            own.release_all(&mut txn);
            txn.renew(TxnId::new(ids.fetch_add(1, Ordering::Relaxed)));
        }
        own.disinherit(&mut txn);
    });
    assert!(manager.is_empty());
    assert!(manager.metrics().waits > 0);
}

#[test]
fn random_locks_keep_their_promises() {
    random_locks_under_a_checker(12, 4, record, |manager| manager);
}

#[test]
fn very_hot_locks_keep_their_promises() {
    random_locks_under_a_checker(2, 1, record, |manager| manager);
}

#[test]
fn random_locks_with_a_wait_limit_keep_their_promises() {
    random_locks_under_a_checker(5, 4, record, |manager| manager.with_wait_limit(Duration::from_micros(100)));
}

#[test]
fn inherited_locks_keep_their_promises() {
    random_locks_under_a_checker(3, 2, table, |manager| manager.with_inheritance(true));
    random_locks_under_a_checker(8, 8, table, |manager| manager.with_inheritance(true));
    let limit = Duration::from_micros(100);
    random_locks_under_a_checker(2, 1, table, |manager| manager.with_inheritance(true).with_wait_limit(limit));
}

#[test]
fn ordered_requests_never_deadlock() {
    const LOCKS: usize = 6;
    let manager = Arc::new(LockManager::new(4));
    let (own, ids) = (Arc::clone(&manager), AtomicU64::new(1));
    run(8, move |thread| {
        let mut random = Rng::new(77 + thread as u64);
        for _ in 0..1500 {
            let mut txn = TxnLocks::new(TxnId::new(ids.fetch_add(1, Ordering::Relaxed)));
            own.acquire(&mut txn, LockId::table(TABLE), IntentExclusive).expect("no cycle");
            for lock in 0..LOCKS {
                if random.within(0..2) == 0 {
                    let mode = if random.within(0..2) == 0 { Shared } else { Exclusive };
                    own.acquire(&mut txn, record(lock), mode).expect("no cycle is possible in an ordered sequence");
                    if random.within(0..3) == 0 {
                        // Other transactions may request the lock again while the search reads it.
                        own.release_one(&mut txn, record(lock));
                        thread::yield_now();
                    }
                }
            }
            own.release_all(&mut txn);
        }
    });
    assert!(manager.is_empty());
    assert_eq!(manager.metrics().deadlocks, 0);
}

#[test]
fn a_ring_of_threads_resolves_every_deadlock() {
    let manager = Arc::new(LockManager::new(16));
    for size in 2..=5_usize {
        let (own, ids) = (Arc::clone(&manager), AtomicU64::new(1));
        let done = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&done);
        run(size, move |thread| {
            for _ in 0..300 {
                let mut first = None;
                loop {
                    let mut txn = TxnLocks::new(TxnId::new(ids.fetch_add(1, Ordering::Relaxed)));
                    first = first.or(Some(txn.age()));
                    txn.set_age(first.expect("it was set"));
                    let result = own.acquire(&mut txn, record(thread), Exclusive).and_then(|()| {
                        thread::yield_now();
                        own.acquire(&mut txn, record((thread + 1) % size), Exclusive)
                    });
                    own.release_all(&mut txn);
                    if result.is_ok() {
                        break;
                    }
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(done.load(Ordering::Relaxed), size as u64 * 300);
    }
    assert!(manager.is_empty());
}

#[test]
#[ignore = "a measurement: run with --release --nocapture"]
fn cost_of_an_uncontended_lock() {
    const ROUNDS: u32 = 2_000_000;
    let manager = LockManager::new(4096);
    let report = |what: &str, locks: u32, elapsed: Duration| {
        println!("{what}: {:.1} ns per acquire and release", elapsed.as_nanos() as f64 / f64::from(ROUNDS * locks));
    };
    let mut txn = TxnLocks::new(TxnId::new(1));
    for repeat in 0..3 {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            manager.acquire(&mut txn, record(1), Exclusive).expect("free");
            manager.release_all(&mut txn);
        }
        report(&format!("{repeat}: one lock, warm"), 1, start.elapsed());

        let ids: Vec<_> = (0..1024).map(record).collect();
        let start = Instant::now();
        for round in 0..ROUNDS as usize {
            for lock in 0..4 {
                manager.acquire(&mut txn, ids[(round * 4 + lock) % ids.len()], Exclusive).expect("free");
            }
            manager.release_all(&mut txn);
        }
        report(&format!("{repeat}: four locks of 1024"), 4, start.elapsed());

        let mut others: Vec<_> = (10..74).map(|number| TxnLocks::new(TxnId::new(number))).collect();
        for other in &mut others {
            manager.acquire(other, LockId::table(TABLE), IntentExclusive).expect("free");
        }
        let start = Instant::now();
        for _ in 0..ROUNDS {
            manager.acquire(&mut txn, LockId::table(TABLE), IntentExclusive).expect("shared");
            manager.release_all(&mut txn);
        }
        report(&format!("{repeat}: one table with 64 other holders"), 1, start.elapsed());
        others.iter_mut().for_each(|other| manager.release_all(other));
    }
    assert!(manager.is_empty());
    let manager = manager.with_inheritance(true);
    let start = Instant::now();
    for _ in 0..ROUNDS {
        manager.acquire(&mut txn, LockId::table(TABLE), IntentExclusive).expect("shared");
        manager.release_all(&mut txn);
    }
    report("an inherited lock", 1, start.elapsed());
    manager.disinherit(&mut txn);
}
