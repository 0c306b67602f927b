//! Grants, conversions, queues, victims and refusals, each in a small scene of its own.

use std::time::Duration;

use duramen_sync::clock::Instant;
use duramen_sync::thread::{self, JoinHandle};
use duramen_sync::{Arc, Mutex};
use duramen_types::{Gsn, TableId, TxnId};

use super::LockMode::{self, Exclusive, IntentExclusive, IntentShared, Shared, SharedIntentExclusive};
use super::{Age, LockError, LockId, LockManager, TxnLocks};

const TABLE: TableId = TableId::new(3);

fn record(number: u32) -> LockId {
    LockId::record(TABLE, &number.to_be_bytes())
}

fn txn(number: u64) -> TxnLocks {
    TxnLocks::new(TxnId::new(number))
}

fn manager() -> Arc<LockManager> {
    Arc::new(LockManager::new(8))
}

fn wait_until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "the condition never came true");
        thread::sleep(Duration::from_micros(200));
    }
}

type Blocked = JoinHandle<(TxnLocks, Result<(), LockError>)>;

/// Starts a thread that requests the lock. Returns when the request is in the queue, the queue
/// holds `queued` requests, and the thread has searched for a cycle.
fn block(manager: &Arc<LockManager>, txn: TxnLocks, id: LockId, mode: LockMode, queued: usize) -> Blocked {
    let searches = manager.searches();
    let thread = ask(manager, txn, id, mode);
    wait_until(|| manager.queue_len(id) == queued && manager.searches() > searches);
    thread
}

/// Starts a thread that requests the lock.
fn ask(manager: &Arc<LockManager>, mut txn: TxnLocks, id: LockId, mode: LockMode) -> Blocked {
    let own = Arc::clone(manager);
    let thread = thread::spawn("blocked", move || {
        let result = own.acquire(&mut txn, id, mode);
        (txn, result)
    });
    thread.expect("a thread starts")
}

fn granted(blocked: Blocked) -> TxnLocks {
    let (txn, result) = blocked.join().expect("no panic");
    assert_eq!(result, Ok(()));
    txn
}

#[test]
fn modes_are_granted_together_exactly_when_compatible() {
    let manager = manager();
    for first in LockMode::ALL {
        for second in LockMode::ALL {
            let (mut a, mut b) = (txn(1), txn(2));
            assert!(manager.try_acquire(&mut a, record(1), first));
            assert_eq!(manager.is_grantable(&b, record(1), second), first.is_compatible(second));
            assert_eq!(manager.try_acquire(&mut b, record(1), second), first.is_compatible(second));
            assert!(manager.try_acquire(&mut b, record(2), second), "another lock is not concerned");
            manager.release_all(&mut a);
            assert!(manager.try_acquire(&mut b, record(1), second));
            manager.release_all(&mut b);
            assert!(manager.is_empty());
        }
    }
}

#[test]
fn the_same_lock_again_joins_the_modes_and_is_released_once() {
    let manager = manager();
    for first in LockMode::ALL {
        for second in LockMode::ALL {
            let mut a = txn(1);
            manager.acquire(&mut a, record(1), first).expect("free");
            manager.acquire(&mut a, record(1), second).expect("nobody else is there");
            assert_eq!(a.held(record(1)), Some(first.join(second)));
            assert_eq!(a.len(), 1);
            assert_eq!(manager.is_grantable(&txn(2), record(1), IntentShared), first.join(second) != Exclusive);
            manager.release_all(&mut a);
            assert!(a.is_empty() && manager.is_empty());
        }
    }
}

#[test]
fn a_conversion_is_granted_past_the_queue() {
    let manager = manager();
    let mut a = txn(1);
    manager.acquire(&mut a, record(1), Shared).expect("free");
    let b = block(&manager, txn(2), record(1), Exclusive, 1);
    manager.acquire(&mut a, record(1), Exclusive).expect("the only holder converts");
    manager.release_all(&mut a);
    manager.release_all(&mut granted(b));
    assert!(manager.is_empty());
}

#[test]
fn a_waiting_conversion_goes_first() {
    let manager = manager();
    let (mut a, mut b) = (txn(1), txn(2));
    manager.acquire(&mut a, record(1), Shared).expect("free");
    manager.acquire(&mut b, record(1), Shared).expect("shared");
    let c = block(&manager, txn(3), record(1), Exclusive, 1);
    let b = block(&manager, b, record(1), Exclusive, 2);
    manager.release_all(&mut a);
    let mut b = granted(b);
    assert_eq!(b.held(record(1)), Some(Exclusive));
    assert_eq!(manager.queue_len(record(1)), 1);
    manager.release_all(&mut b);
    manager.release_all(&mut granted(c));
    assert!(manager.is_empty());
}

#[test]
fn a_waiting_conversion_goes_before_an_older_fresh_request() {
    let manager = manager();
    let (mut a, mut b) = (txn(1), txn(2));
    manager.acquire(&mut a, record(1), IntentExclusive).expect("free");
    manager.acquire(&mut b, record(1), IntentShared).expect("intentions agree");
    let c = block(&manager, txn(3), record(1), Shared, 1);
    let b = block(&manager, b, record(1), Exclusive, 2);
    manager.release_all(&mut a);
    let mut b = granted(b);
    assert_eq!((b.held(record(1)), manager.queue_len(record(1))), (Some(Exclusive), 1));
    manager.release_all(&mut b);
    manager.release_all(&mut granted(c));
    assert!(manager.is_empty());
}

#[test]
fn a_release_lets_nobody_pass_who_would_delay_another() {
    let manager = manager();
    let (mut a, mut b) = (txn(1), txn(2));
    manager.acquire(&mut a, record(1), Shared).expect("free");
    manager.acquire(&mut b, record(1), Shared).expect("shared");
    let writer = block(&manager, txn(3), record(1), Exclusive, 1);
    let reader = block(&manager, txn(4), record(1), Shared, 2);
    manager.release_all(&mut a);
    assert_eq!(manager.queue_len(record(1)), 2);
    manager.release_all(&mut b);
    let mut writer = granted(writer);
    assert_eq!(manager.queue_len(record(1)), 1);
    manager.release_all(&mut writer);
    manager.release_all(&mut granted(reader));
    assert!(manager.is_empty());
}

#[test]
fn requests_are_granted_in_order_of_arrival() {
    let manager = manager();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut first = txn(100);
    manager.acquire(&mut first, record(1), Exclusive).expect("free");
    let threads: Vec<_> = (0..6_u64)
        .map(|number| {
            let (own, order) = (Arc::clone(&manager), Arc::clone(&order));
            let thread = thread::spawn("ordered", move || {
                let mut txn = txn(number + 1);
                own.acquire(&mut txn, record(1), Exclusive).expect("granted in the end");
                order.lock().push(number);
                own.release_all(&mut txn);
            });
            wait_until(|| manager.queue_len(record(1)) == number as usize + 1);
            thread.expect("a thread starts")
        })
        .collect();
    manager.release_all(&mut first);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(*order.lock(), [0, 1, 2, 3, 4, 5]);
    assert!(manager.is_empty());
}

#[test]
fn readers_do_not_starve_a_writer() {
    let manager = manager();
    let mut a = txn(1);
    manager.acquire(&mut a, record(1), Shared).expect("free");
    let writer = block(&manager, txn(2), record(1), Exclusive, 1);
    let mut late = txn(3);
    assert!(!manager.try_acquire(&mut late, record(1), Shared), "a reader does not pass a writer that waits");
    assert!(!manager.is_grantable(&late, record(1), IntentShared));
    let (b, c) = (txn(4), txn(5));
    let b = block(&manager, b, record(1), Shared, 2);
    let c = block(&manager, c, record(1), Shared, 3);
    manager.release_all(&mut a);
    let mut writer = granted(writer);
    assert_eq!(manager.queue_len(record(1)), 2);
    manager.release_all(&mut writer);
    manager.release_all(&mut granted(b));
    manager.release_all(&mut granted(c));
    assert!(manager.is_empty());
}

#[test]
fn a_request_passes_only_what_it_is_compatible_with() {
    let manager = manager();
    let mut a = txn(1);
    manager.acquire(&mut a, record(1), Shared).expect("free");
    let b = block(&manager, txn(2), record(1), IntentExclusive, 1);
    let mut c = txn(3);
    assert!(manager.try_acquire(&mut c, record(1), IntentShared), "it delays nobody");
    assert!(!manager.try_acquire(&mut txn(4), record(1), Shared), "it would delay the one that waits");
    manager.release_all(&mut a);
    manager.release_all(&mut granted(b));
    manager.release_all(&mut c);
    assert!(manager.is_empty());
}

#[test]
fn many_holders_come_and_go_in_any_order() {
    let manager = manager();
    let table = LockId::table(TABLE);
    let mut txns: Vec<_> = (1..=70).map(txn).collect();
    for round in 0..5_usize {
        for txn in &mut txns {
            let mode = if txn.txn().get() % 2 == 0 { IntentShared } else { IntentExclusive };
            manager.acquire(txn, table, mode).expect("intentions agree");
        }
        assert!(!manager.is_grantable(&txn(1000), table, Shared));
        for at in 0..txns.len() {
            let at = (at * (2 * round + 1) + round) % txns.len();
            manager.release_all(&mut txns[at]);
        }
        txns.iter_mut().for_each(|txn| manager.release_all(txn));
        assert!(manager.is_unlocked(table) && manager.is_empty());
    }
}

#[test]
fn a_check_takes_nothing_and_sees_its_own_locks() {
    let manager = manager();
    let gap = LockId::gap(TABLE, b"m");
    let (mut reader, mut inserter) = (txn(1), txn(2));
    assert!(manager.is_grantable(&inserter, gap, IntentExclusive));
    assert!(manager.is_unlocked(gap));
    manager.acquire(&mut reader, gap, Shared).expect("free");
    assert!(manager.is_grantable(&reader, gap, IntentExclusive), "one's own gap lock is no obstacle");
    assert!(!manager.is_grantable(&inserter, gap, IntentExclusive));
    manager.acquire(&mut inserter, gap, Shared).expect("shared");
    assert!(!manager.is_grantable(&reader, gap, IntentExclusive), "another's is");
    assert_eq!(reader.held(gap), Some(Shared));
    manager.release_all(&mut reader);
    assert!(manager.is_grantable(&inserter, gap, IntentExclusive));
    manager.release_all(&mut inserter);
    assert!(manager.is_empty());
}

#[test]
fn an_insertion_holds_its_gap_against_those_behind_it_and_then_restores_it() {
    for before in [None, Some(Shared)] {
        let manager = manager();
        let gap = LockId::gap_end(TABLE);
        let (mut a, mut b) = (txn(1), txn(2));
        manager.acquire(&mut a, gap, Shared).expect("free");
        if let Some(before) = before {
            manager.acquire(&mut b, gap, before).expect("shared");
        }
        let inserter = block(&manager, b, gap, IntentExclusive, 1);
        let behind = block(&manager, txn(3), gap, Shared, 2);
        manager.release_all(&mut a);
        let mut inserter = granted(inserter);
        assert_eq!(manager.queue_len(gap), 1, "the reader behind it waits for the insertion");
        assert!(manager.is_grantable(&inserter, gap, IntentExclusive));
        manager.restore(&mut inserter, gap, before);
        assert_eq!(inserter.held(gap), before);
        manager.release_all(&mut granted(behind));
        assert!(manager.is_grantable(&txn(4), gap, Shared));
        manager.release_all(&mut inserter);
        assert!(manager.is_empty());
    }
}

#[test]
fn a_lone_lock_is_restored() {
    let (manager, mut a) = (manager(), txn(1));
    for before in [None, Some(Shared)] {
        if let Some(before) = before {
            manager.acquire(&mut a, record(1), before).expect("free");
        }
        manager.acquire(&mut a, record(1), Exclusive).expect("nobody else is there");
        manager.restore(&mut a, record(1), before);
        assert_eq!(a.held(record(1)), before);
        assert_eq!(manager.is_grantable(&txn(2), record(1), Exclusive), before.is_none());
        assert!(manager.is_grantable(&txn(2), record(1), Shared));
    }
    manager.release_all(&mut a);
    assert!(manager.is_empty());
}

#[test]
fn one_lock_is_released_without_the_others() {
    let manager = manager();
    let mut a = txn(1);
    for number in 0..40 {
        manager.acquire(&mut a, record(number), Shared).expect("free");
    }
    let b = block(&manager, txn(2), record(7), Exclusive, 1);
    manager.release_one(&mut a, record(7));
    manager.release_all(&mut granted(b));
    assert_eq!(a.held(record(7)), None);
    assert_eq!(a.len(), 39);
    assert!(manager.is_unlocked(record(7)) && !manager.is_unlocked(record(8)));
    manager.release_all(&mut a);
    assert!(manager.is_empty());
}

#[test]
fn a_large_transaction_leaves_no_trace() {
    let manager = manager();
    let mut a = txn(1);
    for number in 0..20_000 {
        manager.acquire(&mut a, record(number), Exclusive).expect("free");
    }
    for number in 0..20_000 {
        manager.acquire(&mut a, record(number), Shared).expect("covered");
    }
    assert_eq!(a.len(), 20_000);
    manager.release_all(&mut a);
    assert!(manager.is_empty());
    a.renew(TxnId::new(2));
    assert_eq!(a.held(record(1)), None);
    assert!(manager.try_acquire(&mut a, record(1), Exclusive));
    manager.release_all(&mut a);
}

#[test]
fn the_wait_limit_ends_a_wait_and_lets_others_pass() {
    let manager = Arc::new(LockManager::new(1).with_wait_limit(Duration::from_millis(600)));
    let (mut a, mut b) = (txn(1), txn(2));
    manager.acquire(&mut a, record(1), Shared).expect("free");
    manager.acquire(&mut b, record(2), Shared).expect("free");
    let writer = block(&manager, b, record(1), Exclusive, 1);
    // The writer must give up before the reader's own limit is reached, however busy the machine.
    thread::sleep(Duration::from_millis(300));
    let own = Arc::clone(&manager);
    let reader = thread::spawn("reader", move || {
        let mut txn = txn(3);
        let result = own.acquire(&mut txn, record(1), Shared);
        (txn, result)
    });
    let (mut b, result) = writer.join().expect("no panic");
    assert_eq!(result, Err(LockError::Timeout));
    assert_eq!((b.held(record(1)), b.held(record(2))), (None, Some(Shared)));
    manager.release_all(&mut granted(reader.expect("a thread starts")));
    manager.release_all(&mut a);
    manager.release_all(&mut b);
    let metrics = manager.metrics();
    assert_eq!((metrics.timeouts, metrics.deadlocks), (1, 0));
    assert!(metrics.waits >= 1 && metrics.wait_nanos >= 600_000_000);
    assert!(manager.is_empty());
}

#[test]
fn closing_ends_waits_and_leaves_holders_alone() {
    let manager = manager();
    let mut a = txn(1);
    manager.acquire(&mut a, record(1), Shared).expect("free");
    let blocked: Vec<_> = (0..3).map(|n| block(&manager, txn(n + 2), record(1), Exclusive, n as usize + 1)).collect();
    manager.close();
    for blocked in blocked {
        let (txn, result) = blocked.join().expect("no panic");
        assert_eq!(result, Err(LockError::Closed));
        assert!(txn.is_empty());
    }
    assert_eq!(manager.acquire(&mut txn(9), record(1), Exclusive), Err(LockError::Closed));
    manager.acquire(&mut a, record(2), Exclusive).expect("a free lock needs no wait");
    manager.release_all(&mut a);
    assert!(manager.is_empty());
}

#[test]
fn two_holders_that_both_convert_are_a_deadlock() {
    let manager = manager();
    let (mut a, mut b) = (txn(1), txn(2));
    manager.acquire(&mut a, record(1), Shared).expect("free");
    manager.acquire(&mut b, record(1), Shared).expect("shared");
    let a = block(&manager, a, record(1), Exclusive, 1);
    assert_eq!(manager.acquire(&mut b, record(1), Exclusive), Err(LockError::Deadlock { cycle: 2 }));
    assert_eq!(b.held(record(1)), Some(Shared), "the victim keeps what it held");
    manager.release_all(&mut b);
    let mut a = granted(a);
    assert_eq!(a.held(record(1)), Some(Exclusive));
    manager.release_all(&mut a);
    assert_eq!(manager.metrics().deadlocks, 1);
    assert!(manager.is_empty());
}

#[test]
fn cycles_of_every_length_are_found_by_their_last_member() {
    for length in 2..=5_u32 {
        let manager = manager();
        let mut txns: Vec<_> = (0..length).map(|number| txn(u64::from(number) + 1)).collect();
        for (number, txn) in txns.iter_mut().enumerate() {
            manager.acquire(txn, record(number as u32), Exclusive).expect("free");
        }
        let mut last = txns.pop().expect("there are some");
        let blocked: Vec<_> =
            (0..).zip(txns).map(|(number, txn)| block(&manager, txn, record(number + 1), Exclusive, 1)).collect();
        let result = manager.acquire(&mut last, record(0), Exclusive);
        assert_eq!(result, Err(LockError::Deadlock { cycle: length as usize }));
        manager.release_all(&mut last);
        for blocked in blocked.into_iter().rev() {
            manager.release_all(&mut granted(blocked));
        }
        assert!(manager.is_empty());
    }
}

/// Makes transactions of these ages wait for each other in a ring; the one at `last` closes it.
fn ring(ages: &[u64], last: usize) {
    let (manager, length) = (manager(), ages.len());
    let mut txns: Vec<_> = ages.iter().map(|age| Some(txn(*age))).collect();
    for (number, txn) in txns.iter_mut().flatten().enumerate() {
        manager.acquire(txn, record(number as u32), Exclusive).expect("free");
    }
    let next = |at: usize| record(((at + 1) % length) as u32);
    let mut blocked: Vec<_> = txns.iter().map(|_| None).collect();
    for at in (0..length).filter(|at| *at != last) {
        blocked[at] = Some(block(&manager, txns[at].take().expect("each blocks once"), next(at), Exclusive, 1));
    }
    blocked[last] = Some(ask(&manager, txns[last].take().expect("each blocks once"), next(last), Exclusive));
    let victim = (0..length).max_by_key(|at| ages[*at]).expect("there are some");
    for step in 0..length {
        let at = (victim + length - step) % length;
        let (mut txn, result) = blocked[at].take().expect("each ends once").join().expect("no panic");
        let expected = if step == 0 { Err(LockError::Deadlock { cycle: length }) } else { Ok(()) };
        assert_eq!(result, expected, "{at} of {ages:?}, closed by {last}");
        assert_eq!(txn.held(record(at as u32)), Some(Exclusive), "it keeps what it held");
        manager.release_all(&mut txn);
    }
    assert_eq!(manager.metrics().deadlocks, 1);
    assert!(manager.is_empty());
}

#[test]
fn the_youngest_is_the_victim_whoever_closes_the_cycle() {
    for ages in [&[1, 2][..], &[2, 1], &[1, 2, 3], &[3, 1, 2], &[7, 9, 8, 1], &[5, 4, 3, 2, 1]] {
        for last in 0..ages.len() {
            ring(ages, last);
        }
    }
}

#[test]
fn a_transaction_that_runs_again_is_as_old_as_its_first_attempt() {
    let manager = manager();
    let (mut again, mut other) = (txn(9), txn(5));
    again.set_age(Age::of(3));
    assert!(again.age() < other.age());
    manager.acquire(&mut again, record(1), Exclusive).expect("free");
    manager.acquire(&mut other, record(2), Exclusive).expect("free");
    let again = block(&manager, again, record(2), Exclusive, 1);
    assert_eq!(manager.acquire(&mut other, record(1), Exclusive), Err(LockError::Deadlock { cycle: 2 }));
    manager.release_all(&mut other);
    let mut locks = granted(again);
    manager.release_all(&mut locks);
    locks.renew(TxnId::new(11));
    assert_eq!(locks.age(), Age::of(11), "the age is that of one transaction");
    assert!(manager.is_empty());
}

/// Several transactions guard a gap and wait for the row of a transaction that inserts into the
/// gap: one request closes a cycle with each of them.
#[test]
fn one_request_may_close_many_cycles() {
    let (manager, gap) = (manager(), LockId::gap_end(TABLE));
    let mut oldest = txn(1);
    manager.acquire(&mut oldest, record(1), Exclusive).expect("free");
    manager.acquire(&mut oldest, gap, Shared).expect("free");
    let others: Vec<_> = (2..7)
        .map(|number| {
            let mut other = txn(number);
            manager.acquire(&mut other, gap, Shared).expect("shared");
            block(&manager, other, record(1), Exclusive, number as usize - 1)
        })
        .collect();
    let oldest = block(&manager, oldest, gap, IntentExclusive, 1);
    for other in others {
        let (mut other, result) = other.join().expect("no panic");
        assert_eq!(result, Err(LockError::Deadlock { cycle: 2 }));
        manager.release_all(&mut other);
    }
    manager.release_all(&mut granted(oldest));
    assert_eq!(manager.metrics().deadlocks, 5);
    assert!(manager.is_empty());
}

#[test]
fn the_victim_lets_those_behind_it_pass() {
    let manager = manager();
    let (mut old, mut young, mut reader) = (txn(1), txn(3), txn(2));
    manager.acquire(&mut old, record(1), Shared).expect("free");
    manager.acquire(&mut young, record(2), Exclusive).expect("free");
    let young = block(&manager, young, record(1), Exclusive, 1);
    manager.acquire(&mut reader, record(3), Shared).expect("free");
    let reader = block(&manager, reader, record(1), Shared, 2);
    let old = block(&manager, old, record(2), Exclusive, 1);
    let (mut young, result) = young.join().expect("no panic");
    assert_eq!(result, Err(LockError::Deadlock { cycle: 2 }));
    manager.release_all(&mut granted(reader));
    manager.release_all(&mut young);
    manager.release_all(&mut granted(old));
    assert!(manager.is_empty());
}

#[test]
fn a_cycle_through_a_place_in_the_queue_is_found() {
    let manager = manager();
    let (mut a, mut b, mut c) = (txn(4), txn(2), txn(3));
    manager.acquire(&mut a, record(1), Shared).expect("free");
    manager.acquire(&mut c, record(2), Exclusive).expect("free");
    manager.acquire(&mut b, record(3), Shared).expect("free");
    // b waits for a; c waits for b's request in the queue, not for a holder; a waits for c.
    let b = block(&manager, b, record(1), Exclusive, 1);
    let c = block(&manager, c, record(1), Shared, 2);
    assert_eq!(manager.acquire(&mut a, record(2), Shared), Err(LockError::Deadlock { cycle: 3 }));
    manager.release_all(&mut a);
    manager.release_all(&mut granted(b));
    manager.release_all(&mut granted(c));
    assert!(manager.is_empty());
}

#[test]
fn a_cycle_behind_other_requests_is_found() {
    let manager = manager();
    let (mut a, mut z) = (txn(100), txn(99));
    manager.acquire(&mut a, record(1), Exclusive).expect("free");
    manager.acquire(&mut z, record(2), SharedIntentExclusive).expect("free");
    let queue: Vec<_> = (2..6_u64).map(|n| block(&manager, txn(n), record(1), Exclusive, n as usize - 1)).collect();
    let z = block(&manager, z, record(1), Exclusive, 5);
    assert_eq!(manager.acquire(&mut a, record(2), Exclusive), Err(LockError::Deadlock { cycle: 2 }));
    manager.release_all(&mut a);
    for blocked in queue.into_iter().chain([z]) {
        manager.release_all(&mut granted(blocked));
    }
    assert!(manager.is_empty());
}

#[test]
fn two_inserters_into_a_gap_that_both_guard_are_a_deadlock() {
    let manager = manager();
    let gap = LockId::gap(TABLE, b"k");
    let (mut a, mut b) = (txn(1), txn(2));
    manager.acquire(&mut a, gap, Shared).expect("free");
    manager.acquire(&mut b, gap, Shared).expect("shared");
    let inserter = block(&manager, a, gap, IntentExclusive, 1);
    assert_eq!(manager.acquire(&mut b, gap, IntentExclusive), Err(LockError::Deadlock { cycle: 2 }));
    manager.release_all(&mut b);
    manager.release_all(&mut granted(inserter));
    assert!(manager.is_empty());
}

#[test]
fn an_inherited_lock_is_used_again_and_revoked_when_needed() {
    let manager = Arc::new(LockManager::new(8).with_inheritance(true));
    let table = LockId::table(TABLE);
    let mut a = txn(1);
    manager.acquire(&mut a, table, IntentExclusive).expect("free");
    manager.release_all(&mut a);
    assert!(a.held(table).is_none() && !manager.is_empty(), "the agent keeps it");
    a.renew(TxnId::new(2));
    manager.acquire(&mut a, table, IntentShared).expect("inherited");
    assert_eq!(a.held(table), Some(IntentExclusive), "the stronger mode is what is there");
    // In use: a conflicting request waits, and is granted when the transaction ends.
    let b = block(&manager, txn(3), table, Exclusive, 1);
    manager.release_all(&mut a);
    let mut b = granted(b);
    // The agent's next transaction no longer has the lock, and waits.
    a.renew(TxnId::new(4));
    let a = block(&manager, a, table, IntentShared, 1);
    manager.release_all(&mut b);
    let mut a = granted(a);
    manager.release_all(&mut a);
    // Idle: the lock is taken away without a wait.
    assert!(manager.try_acquire(&mut b, table, Exclusive));
    manager.release_all(&mut b);
    manager.disinherit(&mut a);
    manager.disinherit(&mut b);
    assert!(manager.is_empty());
}

#[test]
fn agents_go_on_to_inherit_when_they_change_tables() {
    let manager = LockManager::new(16).with_inheritance(true);
    let mut txn = TxnLocks::new(TxnId::new(1));
    let mut next = 2;
    for number in 0..100_u32 {
        let table = LockId::table(TableId::new(number));
        for round in 0..3 {
            manager.acquire(&mut txn, table, IntentExclusive).unwrap();
            assert!(!manager.is_unlocked(table));
            manager.release_all(&mut txn);
            assert!(!manager.is_unlocked(table), "table {number} is inherited, round {round}");
            txn.renew(TxnId::new(next));
            next += 1;
        }
    }
    manager.disinherit(&mut txn);
    assert!(manager.is_empty());
}

#[test]
fn a_holder_is_alone_with_idle_agents_and_not_with_others() {
    let manager = LockManager::new(16).with_inheritance(true);
    let (mut one, mut other) = (txn(1), txn(2));
    let table = LockId::table(TABLE);
    for txn in [&mut one, &mut other] {
        manager.acquire(txn, table, IntentExclusive).expect("intentions agree");
    }
    assert!(!manager.is_held_alone(table));
    manager.release_all(&mut other);
    assert!(manager.is_held_alone(table), "the other agent is idle");
    other.renew(TxnId::new(3));
    manager.acquire(&mut other, table, IntentShared).expect("inherited");
    assert!(!manager.is_held_alone(table), "the other agent uses its lock");
    manager.release_all(&mut other);
    manager.release_all(&mut one);
    manager.disinherit(&mut one);
    manager.acquire(&mut one, table, Exclusive).expect("the idle agent is revoked");
    assert!(manager.is_held_alone(table));
    manager.release_all(&mut one);
    manager.disinherit(&mut other);
    assert!(manager.is_empty());
}

#[test]
fn an_inherited_lock_can_be_converted() {
    let manager = Arc::new(LockManager::new(8).with_inheritance(true));
    let table = LockId::table(TABLE);
    for stronger in [IntentExclusive, Shared, SharedIntentExclusive, Exclusive] {
        let (mut a, mut b) = (txn(1), txn(2));
        for locks in [&mut a, &mut b] {
            manager.acquire(locks, table, IntentShared).expect("compatible");
            manager.release_all(locks);
        }
        a.renew(TxnId::new(3));
        b.renew(TxnId::new(4));
        manager.acquire(&mut a, table, IntentShared).expect("inherited");
        manager.acquire(&mut b, table, IntentShared).expect("inherited");
        if stronger == Exclusive {
            let a_waits = block(&manager, a, table, stronger, 1);
            manager.release_all(&mut b);
            a = granted(a_waits);
        } else {
            manager.acquire(&mut a, table, stronger).expect("compatible");
            manager.release_all(&mut b);
        }
        assert_eq!(a.held(table), Some(stronger));
        manager.release_all(&mut a);
        manager.disinherit(&mut a);
        manager.disinherit(&mut b);
        assert!(manager.is_empty());
    }
}

#[test]
fn a_deadlock_over_inherited_locks_is_found() {
    let manager = Arc::new(LockManager::new(8).with_inheritance(true));
    let tables = [1, 2].map(|number| LockId::table(TableId::new(number)));
    let (mut a, mut b) = (txn(1), txn(2));
    for (locks, table) in [(&mut a, tables[0]), (&mut b, tables[1])] {
        manager.acquire(locks, table, IntentExclusive).expect("free");
        manager.release_all(locks);
    }
    a.renew(TxnId::new(3));
    b.renew(TxnId::new(4));
    manager.acquire(&mut a, tables[0], IntentExclusive).expect("inherited");
    manager.acquire(&mut b, tables[1], IntentExclusive).expect("inherited");
    let a = block(&manager, a, tables[1], Shared, 1);
    assert_eq!(manager.acquire(&mut b, tables[0], Shared), Err(LockError::Deadlock { cycle: 2 }));
    manager.release_all(&mut b);
    let mut a = granted(a);
    manager.release_all(&mut a);
    manager.disinherit(&mut a);
    manager.disinherit(&mut b);
    assert!(manager.is_empty());
}

#[test]
fn a_lock_tells_of_the_commit_that_released_it_early() {
    let manager = manager();
    let commit = Gsn::new(77);
    let mut a = txn(1);
    manager.acquire(&mut a, record(1), Exclusive).expect("free");
    manager.release_fine(&mut a, commit);
    let mut b = txn(2);
    manager.acquire(&mut b, record(1), Shared).expect("free");
    assert_eq!(b.seen(), commit);
    // A lock that was only read reports no commit.
    manager.release_fine(&mut b, Gsn::new(99));
    b.renew(TxnId::new(3));
    assert_eq!(b.seen(), Gsn::ZERO);
    assert!(manager.try_acquire(&mut b, record(1), Exclusive));
    assert_eq!(b.seen(), commit);
    // A transaction that had to wait sees the commit, too.
    let c = block(&manager, txn(4), record(1), Shared, 1);
    manager.release_fine(&mut b, Gsn::new(88));
    let mut c = granted(c);
    assert_eq!(c.seen(), Gsn::new(88));
    manager.release_all(&mut c);
    assert!(manager.is_empty());
}
