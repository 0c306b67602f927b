//! Models of the hand-off and of the deadlock search, over every interleaving; with three
//! transactions, over the interleavings with a bounded number of preemptions.
//!
//! Run with `RUSTFLAGS="--cfg duramen_loom" cargo test --release lock::loom`. A lost wake-up or an
//! overlooked deadlock shows as a model in which every thread is blocked, which loom reports. Each
//! model also counts, across its runs, how often the modelled event occurred.

// Not part of the models: these counters outlive a single run.
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use duramen_sync::cell::UnsafeCell;
use duramen_sync::{Arc, thread};
use duramen_types::{TableId, TxnId};

use super::LockMode::{self, Exclusive, Shared};
use super::{LockError, LockId, LockManager, TxnLocks};

fn record(number: u32) -> LockId {
    LockId::record(TableId::new(1), &number.to_be_bytes())
}

fn model(preemptions: Option<usize>, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 100_000;
    builder.check(body);
}

/// Acquires the two locks one after the other, then releases everything.
fn two(manager: &LockManager, txn: u64, locks: [(u32, LockMode); 2]) -> Result<(), LockError> {
    let mut txn = TxnLocks::new(TxnId::new(txn));
    let result = locks.into_iter().try_for_each(|(lock, mode)| manager.acquire(&mut txn, record(lock), mode));
    manager.release_all(&mut txn);
    result
}

/// How often an event occurred in all runs of a model.
#[derive(Default)]
struct Seen {
    runs: AtomicUsize,
    waits: AtomicUsize,
    victims: AtomicUsize,
}

impl Seen {
    fn add(&self, manager: &LockManager) {
        let metrics = manager.metrics();
        self.runs.fetch_add(1, Relaxed);
        self.waits.fetch_add(metrics.waits as usize, Relaxed);
        self.victims.fetch_add(metrics.deadlocks as usize, Relaxed);
    }

    fn check(&self, what: &str, victims: bool) {
        let [runs, waits, victims_seen] = [&self.runs, &self.waits, &self.victims].map(|count| count.load(Relaxed));
        println!("{what}: {runs} runs, {waits} waits, {victims_seen} victims");
        assert!(waits > 0 && waits < 3 * runs);
        assert!(victims_seen < runs && (victims_seen > 0) == victims);
    }
}

/// Runs each transaction on a thread of its own. The last one is the youngest and may meet a
/// deadlock; any other error is a failure.
fn cross<const N: usize>(seen: &Seen, locks: [[(u32, LockMode); 2]; N]) {
    let manager = Arc::new(LockManager::new(1));
    let others: Vec<_> = (1..N)
        .map(|at| {
            let own = Arc::clone(&manager);
            thread::spawn("other", move || two(&own, at as u64 + 1, locks[at])).expect("a thread starts")
        })
        .collect();
    let mut results = vec![two(&manager, 1, locks[0])];
    results.extend(others.into_iter().map(|other| other.join().expect("no panic")));
    assert!(manager.is_empty());
    let (youngest, older) = results.split_last().expect("there are some");
    assert!(older.iter().all(|result| *result == Ok(())), "only the youngest gives way: {results:?}");
    assert!([Ok(()), Err(LockError::Deadlock { cycle: N })].contains(youngest), "{results:?}");
    seen.add(&manager);
}

/// Models the runs of [`cross`].
fn crossed<const N: usize>(what: &str, preemptions: Option<usize>, locks: [[(u32, LockMode); 2]; N], victims: bool) {
    let seen = Arc::new(Seen::default());
    let all = Arc::clone(&seen);
    model(preemptions, move || cross(&all, locks));
    seen.check(what, victims);
}

#[test]
fn hand_off_loses_no_wake_up_and_orders_memory() {
    let seen = Arc::new(Seen::default());
    let all = Arc::clone(&seen);
    model(None, move || {
        struct Cell(UnsafeCell<u32>);
        // SAFETY: the cell is touched only by the holder of the exclusive lock, which is what the
        // model checks.
        unsafe impl Sync for Cell {}
        // SAFETY: as above.
        unsafe impl Send for Cell {}

        let manager = Arc::new(LockManager::new(1));
        let cell = Arc::new(Cell(UnsafeCell::new(0)));
        let increment = |manager: Arc<LockManager>, cell: Arc<Cell>, txn: u64| {
            let mut txn = TxnLocks::new(TxnId::new(txn));
            manager.acquire(&mut txn, record(1), Exclusive).expect("one lock makes no cycle");
            // SAFETY: the lock is held exclusively.
            cell.0.with_mut(|value| unsafe { *value += 1 });
            manager.release_all(&mut txn);
        };
        let (own, own_cell) = (Arc::clone(&manager), Arc::clone(&cell));
        let other = thread::spawn("other", move || increment(own, own_cell, 2)).expect("a thread starts");
        increment(Arc::clone(&manager), Arc::clone(&cell), 1);
        other.join().expect("no panic");
        // SAFETY: the other thread has ended.
        assert_eq!(cell.0.with(|value| unsafe { *value }), 2);
        assert!(manager.is_empty());
        all.add(&manager);
    });
    seen.check("hand-off", false);
}

#[test]
#[ignore = "long; the gate draws some of these"]
fn crossed_locks_have_at_most_one_victim() {
    crossed("crossed", None, [[(1, Exclusive), (2, Exclusive)], [(2, Exclusive), (1, Exclusive)]], true);
}

#[test]
#[ignore = "long; the gate draws some of these"]
fn a_cycle_of_three_has_at_most_one_victim() {
    let locks = [[(1, Exclusive), (2, Shared)], [(2, Exclusive), (3, Shared)], [(3, Exclusive), (1, Shared)]];
    crossed("three", Some(3), locks, true);
}

/// The oldest transaction inserts into a gap that two others guard, while these wait for its row:
/// its request closes two cycles, and it wakes both victims, in any state of their waits.
#[test]
#[ignore = "long; the gate draws some of these"]
fn one_request_ends_the_waits_of_several_victims() {
    let seen = Arc::new(Seen::default());
    let all = Arc::clone(&seen);
    model(Some(2), move || {
        let manager = Arc::new(LockManager::new(1));
        let mut oldest = TxnLocks::new(TxnId::new(1));
        assert!(manager.try_acquire(&mut oldest, record(2), Exclusive));
        let others = [2, 3].map(|number| {
            let mut txn = TxnLocks::new(TxnId::new(number));
            assert!(manager.try_acquire(&mut txn, record(1), Shared));
            let own = Arc::clone(&manager);
            let other = thread::spawn("other", move || {
                let result = own.acquire(&mut txn, record(2), Exclusive);
                own.release_all(&mut txn);
                result
            });
            other.expect("a thread starts")
        });
        assert_eq!(manager.acquire(&mut oldest, record(1), Exclusive), Ok(()));
        manager.release_all(&mut oldest);
        for other in others {
            assert_eq!(other.join().expect("no panic"), Err(LockError::Deadlock { cycle: 2 }));
        }
        assert!(manager.is_empty());
        all.add(&manager);
    });
    let [runs, victims] = [&seen.runs, &seen.victims].map(|count| count.load(Relaxed));
    println!("several victims: {runs} runs, {victims} victims");
    assert_eq!(victims, 2 * runs);
}

/// Two transactions wait for each other; the oldest ends the wait of the other one while the
/// manager is closed. That wait has exactly one outcome.
#[test]
fn a_victim_of_a_manager_that_is_closed_has_one_outcome() {
    let outcomes: Arc<[AtomicUsize; 3]> = Arc::default();
    let all = Arc::clone(&outcomes);
    model(Some(2), move || {
        let manager = Arc::new(LockManager::new(1));
        let mut txns = [1, 2].map(|number| TxnLocks::new(TxnId::new(number)));
        for (number, txn) in (1..).zip(&mut txns) {
            assert!(manager.try_acquire(txn, record(number), Exclusive));
        }
        let [mut oldest, mut youngest] = txns;
        let own = Arc::clone(&manager);
        let other = thread::spawn("other", move || {
            let result = own.acquire(&mut youngest, record(1), Exclusive);
            own.release_all(&mut youngest);
            result
        });
        let own = Arc::clone(&manager);
        let closer = thread::spawn("closer", move || own.close());
        let result = manager.acquire(&mut oldest, record(2), Exclusive);
        manager.release_all(&mut oldest);
        let other = other.expect("a thread starts").join().expect("no panic");
        closer.expect("a thread starts").join().expect("no panic");
        let at = match (result, other) {
            (Ok(()), Err(LockError::Deadlock { cycle: 2 })) => 0,
            (Ok(()) | Err(LockError::Closed), Err(LockError::Closed)) => 1,
            // The second was a victim, and the oldest met the closing before the lock was released.
            (Err(LockError::Closed), Ok(()) | Err(LockError::Deadlock { cycle: 2 })) => 2,
            other => panic!("{other:?}"),
        };
        all[at].fetch_add(1, Relaxed);
        assert!(manager.is_empty());
    });
    let outcomes: Vec<_> = outcomes.iter().map(|count| count.load(Relaxed)).collect();
    println!("closed: {outcomes:?} victims, closed, victims or owners of a lock while the oldest was refused");
    assert!(outcomes[0] > 0 && outcomes[1] > 0);
}

#[test]
#[ignore = "long; the gate draws some of these"]
fn crossed_conversions_have_at_most_one_victim() {
    crossed("conversions", None, [[(1, Shared), (1, Exclusive)], [(1, Shared), (1, Exclusive)]], true);
}

#[test]
fn ordered_locks_have_no_victim() {
    crossed("ordered", None, [[(1, Exclusive), (2, Exclusive)], [(1, Exclusive), (2, Exclusive)]], false);
}

#[test]
fn closing_misses_no_waiter() {
    let seen = Arc::new(Seen::default());
    let all = Arc::clone(&seen);
    model(None, move || {
        let manager = Arc::new(LockManager::new(1));
        let mut holder = TxnLocks::new(TxnId::new(1));
        assert!(manager.try_acquire(&mut holder, record(1), Exclusive));
        let own = Arc::clone(&manager);
        let waiter =
            thread::spawn("waiter", move || two(&own, 2, [(1, Shared), (1, Shared)])).expect("a thread starts");
        manager.close();
        assert_eq!(waiter.join().expect("no panic"), Err(LockError::Closed));
        manager.release_all(&mut holder);
        assert!(manager.is_empty());
        all.add(&manager);
    });
    seen.check("closing", false);
}

/// One agent runs two transactions under an inherited lock on a table, while another transaction
/// revokes the lock: the two sides never touch the protected cell at the same time.
#[test]
fn an_inherited_lock_is_used_or_revoked_and_never_both() {
    struct Cell(UnsafeCell<u32>);
    // SAFETY: the cell is touched only by the transaction that holds the lock, which is what the
    // model checks.
    unsafe impl Sync for Cell {}
    // SAFETY: as above.
    unsafe impl Send for Cell {}

    let used = Arc::new(AtomicUsize::new(0));
    let all = Arc::clone(&used);
    model(Some(3), move || {
        let table = LockId::table(TableId::new(1));
        let manager = Arc::new(LockManager::new(1).with_inheritance(true));
        let cell = Arc::new(Cell(UnsafeCell::new(0)));
        let mut agent = TxnLocks::new(TxnId::new(1));
        manager.acquire(&mut agent, table, LockMode::IntentExclusive).expect("free");
        manager.release_all(&mut agent);
        let other = {
            let (manager, cell) = (Arc::clone(&manager), Arc::clone(&cell));
            thread::spawn("other", move || {
                let mut txn = TxnLocks::new(TxnId::new(9));
                manager.acquire(&mut txn, table, Exclusive).expect("one lock makes no cycle");
                // SAFETY: the lock is held exclusively.
                cell.0.with_mut(|value| unsafe { *value += 10 });
                manager.release_all(&mut txn);
            })
        };
        for number in 2..4 {
            agent.renew(TxnId::new(number));
            manager.acquire(&mut agent, table, LockMode::IntentExclusive).expect("one lock makes no cycle");
            // SAFETY: the other transaction holds the lock exclusively or not at all.
            cell.0.with_mut(|value| unsafe { *value += 1 });
            manager.release_all(&mut agent);
        }
        other.expect("a thread starts").join().expect("no panic");
        // SAFETY: the other thread has ended.
        assert_eq!(cell.0.with(|value| unsafe { *value }), 12);
        manager.disinherit(&mut agent);
        assert!(manager.is_empty());
        all.fetch_add(1, Relaxed);
    });
    println!("inheritance: {} runs", used.load(Relaxed));
}

/// An agent takes its inherited lock and looks at a latch, while a thread that holds another lock
/// of the table sets the latch and asks whether it is alone: they do not miss each other.
#[test]
fn a_transaction_sees_what_was_done_before_its_lock_was_found_unused() {
    use duramen_sync::atomic::{AtomicBool, Ordering};

    let outcomes = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let all = Arc::clone(&outcomes);
    model(Some(3), move || {
        let table = LockId::table(TableId::new(1));
        let manager = Arc::new(LockManager::new(1).with_inheritance(true));
        let latched = Arc::new(AtomicBool::new(false));
        let mut agent = TxnLocks::new(TxnId::new(1));
        let mut purger = TxnLocks::new(TxnId::new(9));
        for txn in [&mut agent, &mut purger] {
            manager.acquire(txn, table, LockMode::IntentExclusive).expect("intentions agree");
        }
        manager.release_all(&mut agent);
        let reader = {
            let (manager, latched) = (Arc::clone(&manager), Arc::clone(&latched));
            thread::spawn("reader", move || {
                agent.renew(TxnId::new(2));
                manager.acquire(&mut agent, table, LockMode::IntentShared).expect("intentions agree");
                let sees = latched.load(Ordering::Relaxed);
                (agent, sees)
            })
        };
        assert!(!latched.swap(true, Ordering::Acquire));
        let is_alone = manager.is_held_alone(table);
        let (mut agent, sees) = reader.expect("a thread starts").join().expect("no panic");
        assert!(!is_alone || sees, "the reader uses the lock and has seen no latch");
        manager.release_all(&mut agent);
        manager.release_all(&mut purger);
        manager.disinherit(&mut agent);
        manager.disinherit(&mut purger);
        assert!(manager.is_empty());
        all[usize::from(is_alone)].fetch_add(1, Relaxed);
    });
    assert!(outcomes.iter().all(|count| count.load(Relaxed) > 0), "{outcomes:?}");
}
