use std::time::Duration;

use super::*;
use crate::buffer::positions::{Hardening, Space};
use crate::group_commit::policy::GROUP_THRESHOLD;

fn policy() -> GroupCommit {
    GroupCommit::default()
}

fn fixture(policy: GroupCommit) -> (CommitQueue, Space) {
    fixture_of(policy, Hardening::Flushed)
}

fn fixture_of(policy: GroupCommit, hardening: Hardening) -> (CommitQueue, Space) {
    let event = Arc::new(WakeEvent::new());
    let space = Space::new(64, 1, 1 << 40, Lsn::new(8), Arc::clone(&event), hardening);
    (CommitQueue::new(policy, event, Arc::default()), space)
}

/// Waits as a thread of the log does; `flush` makes the released records durable.
fn wait(queue: &CommitQueue, space: &Space, lsn: Lsn, ask: Ask, flush: impl Fn()) {
    let mut waiter = queue.waiter(lsn, ask);
    while queue.must_flush(space, &mut waiter) {
        flush();
    }
}

/// Ends a waiter's flush; returns whether the daemon has been woken.
#[cfg(not(duramen_loom))]
fn end_flush(queue: &CommitQueue, space: &Space) -> bool {
    queue.state.lock().daemon_looks = None;
    queue.end_flush(space);
    queue.state.lock().daemon_looks.is_some()
}

/// With this many committers, one request may be posted in each stripe while the daemon waits for a
/// group.
const UNCOLLECTED: usize = 4 * STRIPES;

/// Inserts one byte and releases it.
fn insert(space: &Space) -> Lsn {
    let lsn = space.lock(false).acquire(1, 1);
    space.release(lsn, lsn.advance(1));
    lsn
}

#[cfg(not(duramen_loom))]
mod native {
    use duramen_sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use duramen_sync::thread;

    #[test]
    fn a_lonely_committer_flushes_by_itself() {
        let (queue, space) = fixture(policy());
        let lsn = insert(&space);
        wait(&queue, &space, lsn, Ask::Grouped, || space.set_durable(space.released()));
        let counts = queue.counts();
        assert_eq!((counts.waits, counts.inline_flushes), (1, 1));
        wait(&queue, &space, lsn, Ask::Grouped, || panic!("it is durable"));
        let counts = queue.counts();
        assert_eq!((counts.waits, counts.inline_flushes), (1, 1));
    }

    #[test]
    fn the_policy_decides_when_a_flush_is_due() {
        let policy = GroupCommit { transactions: 2, bytes: 10, time: Duration::from_secs(3600) };
        let (queue, space) = fixture(policy);
        assert_eq!(queue.due(&space), Due::Never);
        let first = insert(&space);
        assert_eq!(queue.due(&space), Due::Never);
        queue.request(&space, first);
        assert!(matches!(queue.due(&space), Due::In(_)));
        let second = insert(&space);
        queue.request(&space, second);
        assert_eq!(queue.due(&space), Due::Now);
        assert_eq!(queue.due(&space), Due::Never, "somebody flushes already");
        // Another request while the flush runs belongs to the next one.
        let third = insert(&space);
        queue.request(&space, third);
        space.set_durable(third);
        assert!(end_flush(&queue, &space));
        assert!(matches!(queue.due(&space), Due::In(_)));
        (0..10).for_each(|_| {
            insert(&space);
        });
        assert_eq!(queue.due(&space), Due::Now, "ten bytes");
    }

    #[test]
    fn a_priority_waiter_does_not_wait_for_a_group() {
        let policy = GroupCommit { transactions: 2, bytes: 1000, time: Duration::from_secs(3600) };
        let (queue, space) = fixture(policy);
        let lsn = insert(&space);
        wait(&queue, &space, lsn, Ask::AtOnce, || space.set_durable(space.released()));
        // Behind a flush of another thread, which cannot serve the record.
        let lsn = space.lock(false).acquire(1, 1);
        queue.state.lock().requests.add(lsn, Ask::AtOnce);
        for _ in 0..2 {
            assert_eq!(queue.due(&space), Due::Now);
            assert!(end_flush(&queue, &space));
        }
        space.release(lsn, lsn.advance(1));
    }

    #[test]
    fn requests_that_a_flush_could_not_serve_remain() {
        let (queue, space) = fixture(policy());
        let lsn = space.lock(false).acquire(1, 1);
        queue.request(&space, lsn);
        assert_eq!(queue.due(&space), Due::Now);
        assert!(end_flush(&queue, &space), "the record has not been released yet");
        space.release(lsn, lsn.advance(1));
        assert_eq!(queue.due(&space), Due::Now);
        space.set_durable(space.released());
        assert!(!end_flush(&queue, &space));
    }

    /// Makes so many requests at once that flushes wait for a group.
    fn group(queue: &CommitQueue, space: &Space) {
        (0..2 * GROUP_THRESHOLD).for_each(|_| queue.request(space, insert(space)));
        serve(queue, space);
        assert_eq!(committers(queue), 2 * GROUP_THRESHOLD);
    }

    fn committers(queue: &CommitQueue) -> usize {
        queue.state.lock().estimate.committers
    }

    /// Ends a flush that has made everything durable and has taken a while.
    fn serve(queue: &CommitQueue, space: &Space) {
        let mut state = queue.state.lock();
        if !state.is_flushing {
            state.begin_flush(space, false);
        }
        drop(state);
        space.set_durable(space.released());
        queue.end_flush(space);
        queue.state.lock().estimate.flush_time = Duration::from_secs(3600);
    }

    fn patient() -> GroupCommit {
        GroupCommit { time: Duration::from_secs(3600), ..policy() }
    }

    #[test]
    fn the_daemon_waits_for_half_a_group_that_goes_on() {
        let (queue, space) = fixture(patient());
        group(&queue, &space);
        for missing in (0..GROUP_THRESHOLD).rev() {
            queue.request(&space, insert(&space));
            assert_eq!(queue.due(&space) == Due::Now, missing == 0, "{missing} are missing");
        }
    }

    /// Makes the requests of a fourth of the group; returns the last of their positions.
    fn fourth(queue: &CommitQueue, space: &Space) -> Lsn {
        let asks = (0..GROUP_THRESHOLD / 2).map(|_| {
            let lsn = insert(space);
            queue.request(space, lsn);
            lsn
        });
        asks.last().unwrap()
    }

    #[test]
    fn a_self_flushing_waiter_flushes_for_a_part_of_the_group_and_the_daemon_leaves_it_to_the_next() {
        let (queue, space) = fixture(patient());
        group(&queue, &space);
        let lsn = fourth(&queue, &space);
        assert!(matches!(queue.due(&space), Due::In(_)));
        wait(&queue, &space, lsn, Ask::SelfFlushing, || space.set_durable(space.released()));
        let counts = queue.counts();
        assert_eq!((counts.waits, counts.inline_flushes), (1, 1));
        assert!(queue.state.lock().estimate.self_flushed);
        queue.state.lock().estimate.flush_time = Duration::from_secs(3600);
        // The daemon flushes only if no self-flushing waiter arrives for a long time ...
        (0..4).for_each(|_| {
            fourth(&queue, &space);
        });
        assert!(matches!(queue.due(&space), Due::In(_)));
        // ... or none can arrive, ...
        queue.state.lock().waiters.self_flushers = 1;
        assert_eq!(queue.due(&space), Due::Now);
        queue.state.lock().waiters.self_flushers = 0;
        serve(&queue, &space);
        // ... or if the last flush was not made by one.
        (0..4).for_each(|_| {
            fourth(&queue, &space);
        });
        assert_eq!(queue.due(&space), Due::Now);
    }

    #[test]
    fn a_self_flushing_waiter_that_sleeps_is_counted_until_it_is_woken() {
        let (queue, space) = fixture(policy());
        let lsn = insert(&space);
        queue.request(&space, lsn);
        assert_eq!(queue.due(&space), Due::Now);
        let shared = Arc::new((queue, space));
        let waiter = {
            let shared = Arc::clone(&shared);
            let wait = move || wait(&shared.0, &shared.1, lsn, Ask::SelfFlushing, || panic!("another thread flushes"));
            thread::spawn("waiter", wait).unwrap()
        };
        let (queue, space) = &*shared;
        while queue.counts().waits == 0 {
            thread::yield_now();
        }
        // The waiter has queued when it has released the lock.
        assert_eq!(queue.state.lock().waiters.self_flushers, 1);
        space.set_durable(space.released());
        queue.end_flush(space);
        waiter.join().unwrap();
        assert_eq!(queue.state.lock().waiters.self_flushers, 0);
    }

    #[test]
    fn flushes_that_come_too_early_leave_the_estimate_as_it_is() {
        let (queue, space) = fixture(patient());
        group(&queue, &space);
        let before = committers(&queue);
        let lsn = space.lock(false).acquire(1, 1);
        for _ in 0..20 {
            let mut state = queue.state.lock();
            state.requests.add(lsn, Ask::AtOnce);
            state.begin_flush(&space, false);
            drop(state);
            assert!(end_flush(&queue, &space), "the request remains");
        }
        assert_eq!((committers(&queue), queue.state.lock().requests.count), (before, 20));
        space.release(lsn, lsn.advance(1));
    }

    #[test]
    fn a_request_for_what_a_flush_writes_is_served_by_it() {
        let (queue, space) = fixture(policy());
        let lsns = [insert(&space), insert(&space), insert(&space), insert(&space)];
        let flush = |asks: &[Lsn], end: Lsn| {
            space.set_in_flush(end);
            asks.iter().for_each(|lsn| queue.request(&space, *lsn));
            space.set_durable(end);
            end_flush(&queue, &space)
        };
        queue.request(&space, lsns[0]);
        assert_eq!(queue.due(&space), Due::Now);
        assert!(!flush(&[lsns[1]], lsns[2]), "all have been served");
        queue.request(&space, lsns[2]);
        assert_eq!(queue.due(&space), Due::Now);
        assert!(flush(&[lsns[2], lsns[3]], lsns[3]), "one remains");
        assert_eq!(queue.due(&space), Due::Now);
        assert!(!flush(&[], space.released()));
    }

    #[test]
    fn requests_are_posted_if_somebody_will_look() {
        let (queue, space) = fixture(patient());
        let collected = || queue.state.lock().requests.count;
        queue.request(&space, insert(&space));
        assert_eq!(collected(), 1, "nobody else would look");
        assert_eq!(queue.due(&space), Due::Now);
        (0..10).for_each(|_| queue.request(&space, insert(&space)));
        assert_eq!(collected(), 0, "the flushing thread will");
        space.set_in_flush(space.durable());
        assert!(end_flush(&queue, &space));
        assert_eq!(collected(), 11);
        // The daemon waits for a group.
        serve(&queue, &space);
        queue.state.lock().estimate.committers = 4 * UNCOLLECTED;
        queue.request(&space, insert(&space));
        assert!(matches!(queue.due(&space), Due::In(_)));
        (0..4).for_each(|_| queue.request(&space, insert(&space)));
        assert_eq!(collected(), 1, "the daemon will");
        queue.request(&space, insert(&space));
        assert_eq!(collected(), 6, "so many may be enough for a flush");
        queue.request(&space, insert(&space));
        assert!(matches!(queue.due(&space), Due::In(_)));
        assert_eq!(collected(), 7, "it has looked");
    }

    #[test]
    fn the_age_of_a_posted_request_counts_from_when_it_may_have_been_posted() {
        let (queue, space) = fixture(patient());
        let first = insert(&space);
        queue.request(&space, first);
        assert_eq!(queue.due(&space), Due::Now);
        let since = queue.state.lock().posted_since.expect("requests are posted during a flush");
        let second = insert(&space);
        queue.request(&space, second);
        space.set_in_flush(second);
        space.set_durable(second);
        assert!(end_flush(&queue, &space), "the second was not in the flush");
        assert_eq!(queue.state.lock().requests.first, Some(since));
        assert_eq!(queue.state.lock().posted_since, None, "nobody is certain to look, but the daemon now");
    }

    #[test]
    fn the_daemon_is_woken_if_it_would_look_too_late() {
        let policy = GroupCommit { transactions: 3, ..patient() };
        let (queue, space) = fixture(policy);
        let looks = || queue.state.lock().daemon_looks;
        assert_eq!(looks(), None);
        queue.request(&space, insert(&space));
        let later = looks().expect("it has to look when the first has waited long enough");
        queue.request(&space, insert(&space));
        assert_eq!(looks(), Some(later), "it will");
        queue.request(&space, insert(&space));
        let now = looks().unwrap();
        assert!(now < later, "three are enough for a flush now");
        queue.request(&space, insert(&space));
        assert_eq!(looks(), Some(now), "it has been woken");
        assert_eq!(queue.due(&space), Due::Now);
        let began = looks();
        (0..3).for_each(|_| queue.request(&space, insert(&space)));
        assert_eq!(looks(), began, "it flushes, and looks afterwards");
    }

    /// In a persistent buffer, the thread that releases a record hardens it, and wakes no other
    /// thread.
    #[test]
    fn a_queued_waiter_is_woken_though_no_flush_was_needed() {
        for looks in ["a self-flushing waiter", "the daemon"] {
            let (queue, space) = fixture_of(patient(), Hardening::Released);
            let first = space.lock(false).acquire(1, 1);
            queue.request(&space, first);
            if looks == "a self-flushing waiter" {
                assert_eq!(queue.due(&space), Due::Now);
            } else {
                let mut state = queue.state.lock();
                state.estimate.committers = 4 * UNCOLLECTED;
                state.estimate.flush_time = Duration::from_secs(1);
                drop(state);
                assert!(matches!(queue.due(&space), Due::In(_)));
            }
            let lsn = space.lock(false).acquire(1, 1);
            queue.request(&space, lsn);
            let state = queue.state.lock();
            assert_eq!(state.requests.count + state.in_flush.count, 1, "the second is posted");
            drop(state);
            assert!(queue.queue(&space, lsn, Wake::Call(Box::new(|| ()))).is_none());
            space.release(first, lsn);
            space.release(lsn, lsn.advance(1));
            if looks == "the daemon" {
                queue.state.lock().estimate.flush_time = Duration::ZERO;
                assert_eq!(queue.due(&space), Due::Now);
            }
            queue.end_flush(&space);
            assert_eq!(queue.notifier.take().len(), 1, "{looks}");
        }
    }

    /// The daemon's loop. It sleeps whenever nothing is due.
    fn flush_until_stopped(queue: &CommitQueue, space: &Space) {
        while !queue.daemon.is_stopped() {
            match queue.due(space) {
                Due::Now => {
                    flush(space);
                    queue.end_flush(space);
                }
                Due::In(time) => queue.daemon.wait(Some(time)),
                Due::Never => queue.daemon.wait(None),
            }
        }
    }

    fn flush(space: &Space) {
        let released = space.released();
        space.set_in_flush(released);
        space.set_durable(released);
    }

    /// Threads block, post requests, register functions to be called and flush for each other;
    /// every waiter is served.
    #[test]
    fn nobody_is_forgotten_among_many() {
        const EACH: usize = 20_000;
        const THREADS: usize = 4;
        let shared = Arc::new(fixture(policy()));
        let (called, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let daemon = Arc::clone(&shared);
        let daemon = thread::spawn("daemon", move || flush_until_stopped(&daemon.0, &daemon.1)).unwrap();
        for number in 0..THREADS {
            let (shared, called, ended) = (Arc::clone(&shared), Arc::clone(&called), Arc::clone(&ended));
            let commit = move || {
                let (queue, space) = &*shared;
                for commit in 0..EACH {
                    let lsn = insert(space);
                    if commit % 4 == 0 {
                        wait(queue, space, lsn, Ask::Grouped, || flush(space));
                        continue;
                    }
                    queue.request(space, lsn);
                    if commit % 4 == 1 {
                        wait(queue, space, lsn, Ask::SelfFlushing, || flush(space));
                    } else if (commit + number) % 4 == 2 {
                        let called = Arc::clone(&called);
                        let call = Box::new(move || {
                            called.fetch_add(1, Ordering::Relaxed);
                        });
                        if let Some(wake) = queue.queue(space, lsn, Wake::Call(call)) {
                            wake.tell();
                        }
                    } else {
                        called.fetch_add(1, Ordering::Relaxed);
                    }
                }
                ended.fetch_add(1, Ordering::Release);
            };
            drop(thread::spawn("committer", commit).unwrap());
        }
        let (queue, space) = &*shared;
        let begun = Instant::now();
        let all_told = || {
            queue.notifier.take().into_iter().for_each(Wake::tell);
            ended.load(Ordering::Acquire) == THREADS
                && called.load(Ordering::Relaxed) == THREADS * EACH / 2
                && space.durable() == space.end()
        };
        while !all_told() {
            assert!(begun.elapsed() < Duration::from_secs(100), "a wake-up is lost: {:?}", queue.state.lock());
            thread::sleep(Duration::from_millis(1));
        }
        queue.daemon.stop();
        daemon.join().unwrap();
    }

    #[test]
    fn only_the_satisfied_are_woken() {
        use std::task::Wake as _;

        struct Count(AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (queue, space) = fixture(policy());
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let count = Arc::new(Count(AtomicUsize::new(0)));
                let lsn = insert(&space);
                let waker = Arc::new(Mutex::new(Arc::clone(&count).into()));
                queue.request(&space, lsn);
                assert!(queue.queue(&space, lsn, Wake::Task(waker)).is_none());
                (lsn, count)
            })
            .collect();
        let woken = || tasks.iter().map(|(_, count)| count.0.load(Ordering::Relaxed)).collect::<Vec<_>>();
        for expected in [[1, 0, 0], [1, 1, 0], [1, 1, 1]] {
            space.set_durable(space.durable().advance(1));
            queue.wake_resolved(&space);
            queue.notifier.take().into_iter().for_each(Wake::tell);
            assert_eq!(woken(), expected);
        }
        let late = Wake::Task(Arc::new(Mutex::new(Arc::clone(&tasks[0].1).into())));
        assert!(queue.queue(&space, tasks[0].0, late).is_some());
        Arc::clone(&tasks[0].1).wake_by_ref();
    }
}

/// Models of the queue: every interleaving of a few threads. A lost wake-up is a deadlock, which
/// loom reports.
#[cfg(duramen_loom)]
mod loom_models {
    use duramen_sync::thread;

    use super::*;

    fn model(body: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(body);
    }

    /// The daemon's loop, until `last` is durable.
    fn daemon(queue: &CommitQueue, space: &Space, last: Lsn) {
        while space.durable() <= last {
            match queue.due(space) {
                Due::Now => {
                    let released = space.released();
                    space.set_in_flush(released);
                    space.set_durable(released);
                    queue.end_flush(space);
                    if space.durable() <= last {
                        thread::yield_now();
                    }
                }
                Due::In(_) => thread::yield_now(),
                Due::Never => queue.daemon.wait(None),
            }
        }
    }

    /// Two committers. One of them may flush for itself while the other queues; the daemon serves
    /// the rest.
    #[test]
    fn every_committer_is_woken() {
        two_beside_the_daemon(
            |_| (),
            |queue, space, lsn| wait(queue, space, lsn, Ask::Grouped, || space.set_durable(space.released())),
        );
    }

    /// Two self-flushing waiters of a group: the last one to make its request may flush for both,
    /// unless the daemon flushes first.
    #[test]
    #[ignore = "long; the gate draws some of these"]
    fn every_self_flushing_waiter_goes_on() {
        two_beside_the_daemon(
            |state| state.estimate.committers = GROUP_THRESHOLD,
            |queue, space, lsn| {
                queue.request(space, lsn);
                wait(queue, space, lsn, Ask::SelfFlushing, || {
                    let released = space.released();
                    space.set_in_flush(released);
                    space.set_durable(released);
                });
            },
        );
    }

    /// Two threads harden one record each with `harden`, and the daemon serves the rest.
    fn two_beside_the_daemon(prepare: fn(&mut State<Lsn>), harden: fn(&CommitQueue, &Space, Lsn)) {
        model(move || {
            let shared = Arc::new(fixture(policy()));
            prepare(&mut shared.0.state.lock());
            // Both records are inserted before a thread waits. The order of releases has a model of
            // its own.
            let lsns = [insert(&shared.1), insert(&shared.1)];
            let threads = lsns.map(|lsn| {
                let shared = Arc::clone(&shared);
                let harden = move || {
                    harden(&shared.0, &shared.1, lsn);
                    assert!(shared.1.durable() > lsn);
                };
                thread::spawn("committer", harden).unwrap()
            });
            let flusher = {
                let shared = Arc::clone(&shared);
                thread::spawn("daemon", move || daemon(&shared.0, &shared.1, lsns[1])).unwrap()
            };
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            // The daemon sleeps for ever if the threads did not need it, so it is woken once more.
            shared.0.daemon.wake();
            flusher.join().unwrap();
        });
    }

    /// A request without a waiter is served too.
    #[test]
    fn a_request_reaches_the_daemon() {
        model(|| {
            let shared = Arc::new(fixture(policy()));
            let flusher = {
                let shared = Arc::clone(&shared);
                thread::spawn("daemon", move || daemon(&shared.0, &shared.1, Lsn::new(8))).unwrap()
            };
            let lsn = insert(&shared.1);
            shared.0.request(&shared.1, lsn);
            flusher.join().unwrap();
            assert!(shared.1.durable() > lsn);
        });
    }

    /// A thread of a model that does `work` with two records.
    fn start(
        shared: &Arc<(CommitQueue, Space)>,
        lsns: [Lsn; 2],
        name: &str,
        work: fn(&CommitQueue, &Space, [Lsn; 2]),
    ) -> thread::JoinHandle<()> {
        let shared = Arc::clone(shared);
        thread::spawn(name, move || work(&shared.0, &shared.1, lsns)).unwrap()
    }

    /// A request that is posted while a committer flushes for itself is served too, even without a
    /// waiter.
    #[test]
    fn a_request_posted_during_a_flush_is_served() {
        model(|| {
            let shared = Arc::new(fixture(policy()));
            let lsns = [insert(&shared.1), insert(&shared.1)];
            let start = |name, work| start(&shared, lsns, name, work);
            let flusher = start("daemon", |queue, space, lsns| daemon(queue, space, lsns[1]));
            let committer = start("committer", |queue, space, lsns| {
                // Its flush writes its own record only.
                wait(queue, space, lsns[0], Ask::Grouped, || {
                    space.set_in_flush(space.durable().max(lsns[1]));
                    space.set_durable(space.durable().max(lsns[1]));
                });
            });
            shared.0.request(&shared.1, lsns[1]);
            committer.join().unwrap();
            if shared.1.durable() > lsns[1] {
                // The daemon may otherwise sleep for ever.
                shared.0.daemon.wake();
            }
            flusher.join().unwrap();
        });
    }

    /// The daemon waits for the requests of a group. Some of them are posted and left to the
    /// daemon; all of them are served.
    #[test]
    fn requests_of_a_group_reach_the_daemon() {
        model(|| {
            let shared = Arc::new(fixture(policy()));
            shared.0.state.lock().estimate.committers = 2 * UNCOLLECTED;
            let lsns = [insert(&shared.1), insert(&shared.1)];
            let start = |name, work| start(&shared, lsns, name, work);
            let flusher = start("daemon", |queue, space, lsns| daemon(queue, space, lsns[1]));
            let leaver = start("leaver", |queue, space, lsns| queue.request(space, lsns[0]));
            shared.0.request(&shared.1, lsns[1]);
            leaver.join().unwrap();
            flusher.join().unwrap();
        });
    }

    /// A queued waiter is notified even if a release into a persistent buffer hardens its record
    /// while a flush ends.
    #[test]
    fn a_release_while_a_flush_ends_wakes_the_queued_waiter() {
        model(|| {
            let shared = Arc::new(fixture_of(policy(), Hardening::Released));
            let lsn = shared.1.lock(false).acquire(1, 1);
            shared.0.request(&shared.1, lsn);
            assert!(shared.0.queue(&shared.1, lsn, Wake::Call(Box::new(|| ()))).is_none());
            let start = |name, work| start(&shared, [lsn; 2], name, work);
            let flusher = start("daemon", |queue, space, _| {
                while queue.notifier.take().is_empty() {
                    match queue.due(space) {
                        Due::Now => {
                            queue.end_flush(space);
                            thread::yield_now();
                        }
                        Due::In(_) => thread::yield_now(),
                        Due::Never => queue.daemon.wait(None),
                    }
                }
            });
            shared.1.release(lsn, lsn.advance(1));
            flusher.join().unwrap();
        });
    }

    /// A thread that makes a request and then waits is served, whether the daemon sees the request
    /// or the waiter. The function of the other request, which has no waiting thread, is called
    /// exactly once.
    #[test]
    fn waiting_after_a_request_makes_no_second_one() {
        use duramen_sync::atomic::{AtomicUsize, Ordering};
        model(|| {
            let shared = Arc::new(fixture(policy()));
            let called = Arc::new(AtomicUsize::new(0));
            let lsns = [insert(&shared.1), insert(&shared.1)];
            shared.0.request(&shared.1, lsns[0]);
            let flusher = {
                let shared = Arc::clone(&shared);
                thread::spawn("daemon", move || daemon(&shared.0, &shared.1, lsns[1])).unwrap()
            };
            let call = {
                let (shared, called) = (Arc::clone(&shared), Arc::clone(&called));
                Wake::Call(Box::new(move || {
                    assert!(shared.1.durable() > lsns[0]);
                    called.fetch_add(1, Ordering::Relaxed);
                }))
            };
            if let Some(wake) = shared.0.queue(&shared.1, lsns[0], call) {
                wake.tell();
            }
            shared.0.request(&shared.1, lsns[1]);
            wait(&shared.0, &shared.1, lsns[1], Ask::Requested, || shared.1.set_durable(shared.1.released()));
            shared.0.daemon.wake();
            flusher.join().unwrap();
            shared.0.notifier.take().into_iter().for_each(Wake::tell);
            assert_eq!(called.load(Ordering::Relaxed), 1);
        });
    }

    /// The notifier gets every waiter that queues before the log fails, and ends when it is told to
    /// stop.
    #[test]
    fn the_notifier_leaves_nobody_out() {
        use duramen_sync::atomic::{AtomicUsize, Ordering};
        model(|| {
            let shared = Arc::new(fixture(policy()));
            let called = Arc::new(AtomicUsize::new(0));
            let lsns = [insert(&shared.1), insert(&shared.1)];
            let notifier = {
                let shared = Arc::clone(&shared);
                thread::spawn("notifier", move || shared.0.notifier.run()).unwrap()
            };
            for lsn in lsns {
                let called = Arc::clone(&called);
                let call = Wake::Call(Box::new(move || {
                    called.fetch_add(1, Ordering::Relaxed);
                }));
                if let Some(wake) = shared.0.queue(&shared.1, lsn, call) {
                    wake.tell();
                }
                shared.1.set_durable(lsn.advance(1));
                shared.0.wake_resolved(&shared.1);
            }
            shared.1.fail();
            shared.0.wake_resolved(&shared.1);
            shared.0.notifier.stop();
            notifier.join().unwrap();
            assert_eq!(called.load(Ordering::Relaxed), 2);
        });
    }

    /// A failure also wakes the waiters whose records the failing flush was writing.
    #[test]
    fn failure_of_a_flush_wakes_those_it_was_for() {
        model(|| {
            let shared = Arc::new(fixture(policy()));
            let lsns = [insert(&shared.1), insert(&shared.1)];
            shared.0.request(&shared.1, lsns[0]);
            assert_eq!(shared.0.due(&shared.1), Due::Now);
            let flusher = {
                let shared = Arc::clone(&shared);
                thread::spawn("waiter", move || {
                    let (queue, space) = &*shared;
                    queue.request(space, lsns[1]);
                    wait(queue, space, lsns[1], Ask::SelfFlushing, || assert!(space.has_failed()));
                    assert!(space.has_failed());
                })
                .unwrap()
            };
            shared.1.set_in_flush(shared.1.released());
            shared.1.fail();
            shared.0.wake_resolved(&shared.1);
            shared.0.end_flush(&shared.1);
            flusher.join().unwrap();
        });
    }

    /// A failure wakes all waiters.
    #[test]
    fn failure_wakes_everyone() {
        model(|| {
            let shared = Arc::new(fixture(GroupCommit { transactions: 2, ..policy() }));
            let lsn = insert(&shared.1);
            let committer = {
                let shared = Arc::clone(&shared);
                thread::spawn("committer", move || {
                    wait(&shared.0, &shared.1, lsn, Ask::Grouped, || unreachable!("the policy wants two"));
                    assert!(shared.1.has_failed());
                })
                .unwrap()
            };
            shared.1.fail();
            shared.0.wake_resolved(&shared.1);
            committer.join().unwrap();
        });
    }
}
