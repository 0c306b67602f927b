//! Tables of queue states and the decisions of the policy for them.

use super::*;

const MS: Duration = Duration::from_millis(1);
const NONE: Duration = Duration::ZERO;

/// X requests, L bytes, T milliseconds.
fn policy(transactions: usize, bytes: usize, time: u32) -> Policy {
    Policy(GroupCommit { transactions, bytes, time: time * MS })
}

/// No flush waits for a group: X is 1, and few threads commit.
fn few() -> Snapshot {
    Snapshot { estimate: Estimate { committers: GROUP_THRESHOLD - 1, ..threads().estimate }, ..Snapshot::default() }
}

/// Sixteen threads that block; a flush takes 10 ms.
fn threads() -> Snapshot {
    let estimate = Estimate { committers: 16, are_blocked: true, flush_time: 10 * MS, self_flushed: false };
    Snapshot { estimate, ..Snapshot::default() }
}

/// Sixteen sessions of threads that do not block; a flush takes 10 ms.
fn sessions() -> Snapshot {
    Snapshot { estimate: Estimate { are_blocked: false, ..threads().estimate }, ..Snapshot::default() }
}

/// The same, and a self-flushing waiter flushed last.
fn self_flushed() -> Snapshot {
    Snapshot { estimate: Estimate { self_flushed: true, ..sessions().estimate }, ..Snapshot::default() }
}

/// Adds `requests` requests, the first of which is `age` milliseconds old.
fn asked(base: Snapshot, requests: usize, age: u32) -> Snapshot {
    Snapshot { requests, oldest: Some(age * MS), ..base }
}

#[test]
fn a_flush_is_due_at_the_first_limit_that_is_reached() {
    let idle = few();
    let rest = |millis: u32| Due::In(millis * MS);
    // Requests, bytes, milliseconds.
    let fixed = policy(3, 100, 50);
    let adaptive = policy(1, 100, 1000);
    let short = policy(1, 100, 15);
    let immediate = policy(3, 100, 0);
    let flushing = Snapshot { is_flushing: true, has_priority: true, unflushed: 1000, ..asked(idle, 9, 99) };
    let table: [(&str, Policy, Snapshot, Due); 36] = [
        ("nothing has been asked for", fixed, idle, Due::Never),
        ("a flush is running", fixed, flushing, Due::Never),
        ("a flush is running", adaptive, flushing, Due::Never),
        // X.
        ("two of three", fixed, asked(idle, 2, 0), rest(50)),
        ("three of three", fixed, asked(idle, 3, 0), Due::Now),
        ("one, and X is 1", adaptive, asked(idle, 1, 0), Due::Now),
        ("X is fixed, however many commit", fixed, asked(threads(), 3, 0), Due::Now),
        ("X is fixed, however many commit", fixed, asked(threads(), 2, 0), rest(50)),
        // L.
        ("one byte too few", fixed, Snapshot { unflushed: 99, ..idle }, Due::Never),
        ("enough bytes", fixed, Snapshot { unflushed: 100, ..idle }, Due::Now),
        ("enough bytes, and a group is waited for", adaptive, Snapshot { unflushed: 100, ..sessions() }, Due::Now),
        // T.
        ("one millisecond too young", fixed, asked(idle, 1, 49), rest(1)),
        ("old enough", fixed, asked(idle, 1, 50), Due::Now),
        ("older", fixed, asked(idle, 1, 51), Due::Now),
        ("no time at all", immediate, asked(idle, 1, 0), Due::Now),
        ("no time at all, and nothing asked for", immediate, idle, Due::Never),
        // Priority.
        ("priority", fixed, Snapshot { has_priority: true, ..idle }, Due::Now),
        ("priority, and a group is waited for", adaptive, Snapshot { has_priority: true, ..threads() }, Due::Now),
        // Groups.
        ("nobody has asked", adaptive, threads(), Due::Never),
        ("a quarter of the threads is missing and one", adaptive, asked(threads(), 11, 0), rest(20)),
        ("a quarter of the threads is missing", adaptive, asked(threads(), 12, 0), Due::Now),
        ("two flush times but one millisecond", adaptive, asked(threads(), 1, 19), rest(1)),
        ("two flush times", adaptive, asked(threads(), 1, 20), Due::Now),
        ("less than half of the sessions", adaptive, asked(sessions(), 7, 0), rest(40)),
        ("half of the sessions", adaptive, asked(sessions(), 8, 0), Due::Now),
        ("four flush times but one millisecond", adaptive, asked(sessions(), 1, 39), rest(1)),
        ("four flush times", adaptive, asked(sessions(), 1, 40), Due::Now),
        ("T is less than two flush times", short, asked(threads(), 1, 0), rest(15)),
        ("T is less than four flush times", short, asked(sessions(), 1, 14), rest(1)),
        ("T is over", short, asked(sessions(), 1, 15), Due::Now),
        // Groups of self-flushing waiters.
        ("all of them, but a waiter will flush", adaptive, asked(self_flushed(), 16, 0), rest(40)),
        ("no waiter has come", adaptive, asked(self_flushed(), 1, 40), Due::Now),
        (
            "a self-flushing waiter sleeps",
            adaptive,
            Snapshot { sleeping_self_flushers: 1, ..asked(self_flushed(), 8, 0) },
            Due::Now,
        ),
        ("a thread is blocked", adaptive, Snapshot { blocked: 1, ..asked(self_flushed(), 8, 0) }, Due::Now),
        (
            "a thread is blocked, and few have asked",
            adaptive,
            Snapshot { blocked: 1, ..asked(self_flushed(), 7, 0) },
            rest(40),
        ),
        ("few commit, after any kind of flush", adaptive, asked(few(), 1, 0), Due::Now),
    ];
    for (case, policy, snapshot, due) in table {
        assert_eq!(policy.due(&snapshot), due, "{case}: {policy:?}, {snapshot:?}");
    }
}

#[test]
fn a_group_begins_at_the_threshold() {
    for (transactions, committers, waits) in
        [(1, GROUP_THRESHOLD - 1, false), (1, GROUP_THRESHOLD, true), (2, GROUP_THRESHOLD, false)]
    {
        let snapshot = Snapshot { estimate: Estimate { committers, ..Estimate::default() }, ..Snapshot::default() };
        let policy = policy(transactions, 100, 1000);
        assert_eq!(policy.waits_for_group(&snapshot), waits, "X {transactions}, {committers} committers");
    }
}

#[test]
fn a_waiter_flushes_if_nobody_can_do_it_better() {
    use Ask::{AtOnce, Grouped, Requested, SelfFlushing};
    let (adaptive, fixed) = (policy(1, 100, 1000), policy(2, 100, 1000));
    let flushing = |base: Snapshot| Snapshot { is_flushing: true, ..base };
    let waited_for = |base: Snapshot| Snapshot { waiters: 1, ..base };
    let table = [
        // Alone.
        (adaptive, Grouped, few(), true),
        (adaptive, Requested, few(), true),
        (adaptive, SelfFlushing, few(), true),
        (adaptive, Grouped, flushing(few()), false),
        (adaptive, Grouped, waited_for(few()), false),
        (adaptive, SelfFlushing, waited_for(few()), false),
        // In a group, once a quarter of it has made requests.
        (adaptive, SelfFlushing, asked(sessions(), 4, 0), true),
        (adaptive, SelfFlushing, asked(sessions(), 3, 0), false),
        (adaptive, SelfFlushing, asked(threads(), 4, 0), true),
        (adaptive, SelfFlushing, waited_for(asked(sessions(), 4, 0)), true),
        (adaptive, SelfFlushing, flushing(asked(sessions(), 4, 0)), false),
        (adaptive, Requested, asked(sessions(), 16, 0), false),
        (adaptive, Grouped, asked(threads(), 16, 0), false),
        // A group of fixed size.
        (fixed, Grouped, few(), false),
        (fixed, Requested, few(), false),
        (fixed, AtOnce, few(), true),
        (fixed, AtOnce, waited_for(few()), true),
        (fixed, AtOnce, flushing(few()), false),
    ];
    for (policy, ask, snapshot, flushes) in table {
        assert_eq!(policy.flushes_itself(&snapshot, ask), flushes, "{ask:?}: {policy:?}, {snapshot:?}");
    }
}

#[test]
fn the_size_of_groups_decides_what_can_be_asked_for() {
    use Ask::{AtOnce, Grouped, Requested, SelfFlushing};
    let asks = [Grouped, AtOnce, Requested, SelfFlushing];
    for (transactions, admitted) in
        [(1, [Grouped, Grouped, Requested, SelfFlushing]), (2, [Grouped, AtOnce, Requested, Requested])]
    {
        assert_eq!(asks.map(|ask| policy(transactions, 100, 1000).admit(ask)), admitted, "X {transactions}");
    }
}

#[test]
fn requests_are_posted_unseen_if_somebody_will_collect_them() {
    let flushing = Snapshot { is_flushing: true, ..sessions() };
    for (transactions, snapshot, is_scheduled, uncollected) in [
        (1, flushing, false, usize::MAX),
        (1, flushing, true, usize::MAX),
        (1, sessions(), true, 4),
        (1, few(), true, 1),
        (1, sessions(), false, 0),
        (2, flushing, true, 0),
        (2, sessions(), true, 0),
    ] {
        let policy = policy(transactions, 100, 1000);
        assert_eq!(policy.uncollected(&snapshot, is_scheduled), uncollected, "{policy:?}, {snapshot:?}");
    }
}

#[test]
fn the_estimate_grows_at_once_and_shrinks_slowly() {
    let mut estimate = Estimate::default();
    // Requests served, how many of them blocked a thread, requests waiting, milliseconds;
    // committers, whether they are blocked, microseconds.
    for (served, blocked, waiting, took, committers, are_blocked, flush_time) in [
        (0, 0, 0, None, 1, false, 0),
        (6, 4, 10, Some(8), 16, true, 1000),
        (16, 8, 0, Some(8), 16, false, 1875),
        (8, 8, 0, None, 15, false, 1875),
        (8, 8, 0, Some(0), 14, true, 1640),
        (0, 0, 0, Some(99), 12, true, 1640),
        (0, 0, 12, None, 13, true, 1640),
    ] {
        estimate.update(served, blocked, waiting, took.map(|took: u32| took * MS));
        let found = (estimate.committers, estimate.are_blocked, estimate.flush_time.as_micros());
        assert_eq!(found, (committers, are_blocked, flush_time), "after {served} served, {waiting} waiting");
    }
    let lone = (0..100).fold(estimate, |mut estimate, _| {
        estimate.update(1, 1, 0, Some(NONE));
        estimate
    });
    assert_eq!((lone.committers, lone.flush_time < MS), (1, true), "{lone:?}");
}
