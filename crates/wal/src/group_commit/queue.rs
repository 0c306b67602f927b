//! The commit queue: it collects requests to harden the log, has one thread at a time flush for all
//! of them, and wakes the waiters whose records are durable.
//!
//! # Flushing
//! At most one thread flushes at a time ([`State::is_flushing`]): the daemon, which
//! [`CommitQueue::due`] tells when to flush, or a thread that has to wait anyway, which
//! [`CommitQueue::must_flush`] tells. The [policy](crate::group_commit::policy) decides. All other
//! threads sleep until their position is durable. The flush in progress serves the requests for the
//! records that it writes; the next one serves the others.
//!
//! # Wake-ups
//! All users of the queue follow one protocol:
//! 1. A committer that does not wait posts its request without the lock
//!    ([`PendingCounters::post`]). If the [protocol of posts](crate::group_commit::work_signal)
//!    says that some thread will look in time, nothing else is needed.
//! 2. Otherwise, or if the committer waits, it takes the lock, collects the posted requests if they
//!    matter, and changes the state.
//! 3. A thread whose change may make a flush due releases the lock by [`CommitQueue::unlock`],
//!    which evaluates the policy. It schedules and wakes the daemon if something is due before the
//!    next scheduled check of the daemon. It then sets how much may be posted until the next check:
//!    at the end of a flush, or at the scheduled time of the daemon.
//!
//! A waiter queues, and a flusher ends its flush, under the same lock: the flusher sees earlier
//! waiters, and a later waiter sees the new durable position.
//!
//! The thread that ends a flush unparks the waiting threads. It leaves wakers of tasks and
//! functions to be called to the [notifier](crate::group_commit::notifier).

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::probe::{Probe, reach};
use duramen_sync::thread::Parker;
use duramen_sync::{Arc, Backoff, CachePadded, Mutex, MutexGuard};
use duramen_types::{Lsn, planted};

use crate::group_commit::notifier::Notifier;
use crate::group_commit::policy::{Due, Estimate, Policy, Snapshot};
use crate::group_commit::progress::{Position, Progress};
use crate::group_commit::requests::{Ask, Requests};
use crate::group_commit::wake::{Waiters, Wake};
use crate::group_commit::work_signal::{PendingCounters, STRIPES};
use crate::options::GroupCommit;
use crate::wake_event::WakeEvent;

/// The queue of committers of one log, or of several that harden together.
#[derive(Debug)]
pub(crate) struct CommitQueue<A = Lsn> {
    policy: Policy,
    daemon: Arc<WakeEvent>,
    notifier: Arc<Notifier>,
    pending: PendingCounters,
    /// Whether so few threads commit that flushes do not wait for groups.
    is_quiet: CachePadded<AtomicBool>,
    state: Mutex<State<A>>,
}

#[derive(Debug, Default)]
struct State<A> {
    waiters: Waiters<A>,
    is_flushing: bool,
    /// When the flush in progress, or the last one, began, and the hardened position at that time.
    began: Option<(Instant, A)>,
    estimate: Estimate,
    /// Requests for which no flush has begun.
    requests: Requests<A>,
    /// Requests that the flush in progress is for.
    in_flush: Requests<A>,
    /// The earliest time at which an uncollected request may have been posted, if there may be any.
    posted_since: Option<Instant>,
    /// When the daemon will next decide, if that is scheduled: it sleeps until then or is about to
    /// be woken. While it flushes, this is when the flush began, and it decides afterwards.
    daemon_looks: Option<Instant>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Waiters that had to wait.
    pub(crate) waits: u64,
    /// Flushes by waiters.
    pub(crate) inline_flushes: u64,
    pub(crate) requests: u64,
}

/// A thread that waits for a record, with what it has done so far.
#[derive(Debug)]
pub(crate) struct Waiter<A> {
    at: A,
    ask: Ask,
    /// Whether the request has been made.
    is_asked: bool,
    is_counted: bool,
    /// Whether [`CommitQueue::must_flush`] has returned true and not been called since.
    has_flushed: bool,
    /// Grows with every flush that did not cover the record.
    backoff: Backoff,
}

impl<A: Position> State<A> {
    /// Returns whether the flush in progress writes the record at `at`, as far as is known.
    fn is_in_flush(&self, space: &impl Progress<At = A>, at: A) -> bool {
        self.is_flushing && space.in_flush() > at
    }

    /// Returns the requests to which a request for the record at `at` belongs.
    fn requests_at(&mut self, space: &impl Progress<At = A>, at: A) -> &mut Requests<A> {
        if self.is_in_flush(space, at) { &mut self.in_flush } else { &mut self.requests }
    }

    /// Adds posted requests. Of the requests in one stripe only the highest position is known: if
    /// the flush in progress does not serve it, none of them counts as served.
    fn collect(&mut self, space: &impl Progress<At = A>, posted: impl Iterator<Item = (usize, u64)>) {
        let since = self.posted_since.take();
        for (count, highest) in posted {
            let highest = A::of(highest);
            self.counts.requests += count as u64;
            // If there are waiters, even resolved requests are added. Where records are hardened
            // without a flush, only a flush wakes the waiters that have queued.
            if self.is_in_flush(space, highest) || !space.is_resolved(highest) || self.waiters.len() > 0 {
                self.requests_at(space, highest).add_posted(count, highest, since);
            }
        }
    }

    /// Returns the time if the policy needs it, which it does not for a lone, uncounted committer.
    fn now(&self) -> Option<Instant> {
        self.requests.first.map(|_| Instant::now())
    }

    /// Returns the part of the state that the policy needs, at the time [`State::now`].
    fn snapshot(&self, space: &impl Progress<At = A>, now: Option<Instant>) -> Snapshot {
        Snapshot {
            is_flushing: self.is_flushing,
            unflushed: if self.is_flushing { 0 } else { space.unflushed() },
            requests: self.requests.count,
            blocked: self.requests.blocked,
            oldest: self.requests.first.zip(now).map(|(first, now)| now.since(first)),
            has_priority: self.requests.has_priority || space.is_short_of_room(),
            waiters: self.waiters.len(),
            sleeping_self_flushers: self.waiters.self_flushers,
            estimate: self.estimate,
        }
    }

    fn begin_flush(&mut self, space: &impl Progress<At = A>, self_flushed: bool) {
        assert!(!self.is_flushing, "one thread flushes at a time");
        self.is_flushing = true;
        self.estimate.self_flushed = self_flushed;
        let now = Instant::now();
        self.began = Some((now, space.hardened()));
        // Requests are posted without the lock from now on.
        self.posted_since.get_or_insert(now);
        self.in_flush = std::mem::take(&mut self.requests);
    }

    fn end_flush(&mut self, space: &impl Progress<At = A>) {
        self.is_flushing = false;
        let mut served = std::mem::take(&mut self.in_flush);
        if self.requests.count > 0 && space.is_resolved(self.requests.highest) {
            // These requests arrived before it was known what the flush writes.
            served.join(std::mem::take(&mut self.requests));
        }
        if served.count > 0 && !space.is_resolved(served.highest) {
            reach(Probe::FlushCameTooEarly);
            // A thread filling in an earlier record delays the release until the next flush.
            return self.requests.join(served);
        }
        // A lone committer, for which no request is counted, saves reading the clock.
        let timed = self.began.filter(|(_, hardened)| served.count > 0 && space.hardened() > *hardened);
        let took = timed.map(|(began, _)| began.elapsed());
        self.estimate.update(served.count, served.blocked, self.requests.count, took);
    }
}

impl<A: Position> CommitQueue<A> {
    /// Creates an empty queue, whose daemon waits for this event.
    pub(crate) fn new(policy: GroupCommit, daemon: Arc<WakeEvent>, notifier: Arc<Notifier>) -> Self {
        let policy = Policy(policy);
        let is_quiet = CachePadded::new(AtomicBool::new(!policy.forms_groups(&Estimate::default())));
        Self { policy, daemon, notifier, pending: PendingCounters::default(), is_quiet, state: Mutex::default() }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// Returns whether so few threads commit that flushes do not wait for groups.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Relaxed)
    }

    /// Returns a waiter for the record at `at`, which blocks its thread.
    pub(crate) fn waiter(&self, at: A, ask: Ask) -> Waiter<A> {
        let ask = self.policy.admit(ask);
        let is_asked = ask.is_requested();
        Waiter { at, ask, is_asked, is_counted: false, has_flushed: false, backoff: Backoff::new() }
    }

    /// Blocks until the waiter's record is durable or the log has failed; then returns false. On
    /// true, the thread flushes the released records and calls this again, which ends the flush.
    pub(crate) fn must_flush(&self, space: &impl Progress<At = A>, waiter: &mut Waiter<A>) -> bool {
        if std::mem::take(&mut waiter.has_flushed) {
            self.end_flush(space);
            if !space.is_resolved(waiter.at) {
                // A thread is still filling in an earlier record, which delays the release.
                waiter.backoff.snooze();
            }
        }
        let is_self_flushing = waiter.ask == Ask::SelfFlushing;
        while !space.is_resolved(waiter.at) {
            let mut state = self.state.lock();
            if space.is_resolved(waiter.at) {
                break;
            }
            if !std::mem::replace(&mut waiter.is_counted, true) {
                state.counts.waits += 1;
                state.counts.requests += u64::from(!waiter.is_asked);
            }
            if is_self_flushing {
                state.collect(space, self.pending.collect());
            }
            let now = state.snapshot(space, state.now());
            // After many vain attempts, this is left to the daemon, which sleeps between its own.
            if !waiter.backoff.is_long() && self.policy.flushes_itself(&now, waiter.ask) {
                state.begin_flush(space, is_self_flushing && self.policy.waits_for_group(&now));
                state.counts.inline_flushes += 1;
                self.unlock(state, space);
                reach(Probe::FlushedByCommitter);
                waiter.has_flushed = true;
                return true;
            }
            let parker = Arc::new(Parker::new());
            if !std::mem::replace(&mut waiter.is_asked, true) {
                state.requests_at(space, waiter.at).add(waiter.at, waiter.ask);
            }
            let kind = if is_self_flushing { Wake::SelfFlusher } else { Wake::Thread };
            state.waiters.push(waiter.at, kind(Arc::clone(&parker)));
            self.unlock(state, space);
            parker.park();
        }
        false
    }

    /// Requests that everything up to `at` be hardened, without waiting for it.
    pub(crate) fn request(&self, space: &impl Progress<At = A>, at: A) {
        if self.pending.post(at.raw()) {
            let mut state = self.state.lock();
            state.collect(space, self.pending.collect());
            self.unlock(state, space);
        }
    }

    /// Queues a waiter that has made its request; returns it if there is nothing to wait for.
    pub(crate) fn queue(&self, space: &impl Progress<At = A>, at: A, wake: Wake) -> Option<Wake> {
        let mut state = self.state.lock();
        if !planted!(QueuedUnseen) && space.is_resolved(at) {
            return Some(wake);
        }
        state.counts.waits += 1;
        state.waiters.push(at, wake);
        None
    }

    /// Returns what the daemon should do now. On [`Due::Now`] the daemon has the right to flush,
    /// and [`CommitQueue::end_flush`] must follow.
    pub(crate) fn due(&self, space: &impl Progress<At = A>) -> Due {
        let mut state = self.lock_to_decide(space);
        if space.has_failed() {
            return Due::Never;
        }
        let now = state.now();
        let due = self.policy.due(&state.snapshot(space, now));
        state.daemon_looks = due.at(now);
        match due {
            Due::Now => state.begin_flush(space, false),
            Due::In(_) => reach(Probe::FlushWaitsForGroup),
            Due::Never => {}
        }
        self.unlock(state, space);
        due
    }

    /// Ends a flush: wakes the waiters that it has served. If the daemon has flushed, it must then
    /// call [`CommitQueue::due`].
    pub(crate) fn end_flush(&self, space: &impl Progress<At = A>) {
        let mut state = if planted!(PendingUnseen) { self.state.lock() } else { self.lock_to_decide(space) };
        state.end_flush(space);
        let is_quiet = !self.policy.forms_groups(&state.estimate);
        if self.is_quiet() != is_quiet {
            self.is_quiet.store(is_quiet, Ordering::Relaxed);
        }
        // After `State::end_flush`, which may have counted requests as served without a flush.
        let resolved = self.notifier.take_resolved(&mut state.waiters, |at| space.is_resolved(at));
        // The daemon is woken before the waiters, which may take this thread's processor.
        self.unlock(state, space);
        self.notifier.wake(resolved);
    }

    /// Takes the lock and collects everything posted; until its release, publishers of new requests
    /// have to collect them. For threads that may lower the number of requests that can be posted.
    /// A publisher that acts does not lower it: withdrawing would only draw others to the lock.
    fn lock_to_decide(&self, space: &impl Progress<At = A>) -> MutexGuard<'_, State<A>> {
        let mut state = self.state.lock();
        self.pending.signal.withdraw();
        state.collect(space, self.pending.collect());
        state
    }

    /// Releases the lock: schedules the daemon, and limits what may be posted until the next check.
    fn unlock(&self, mut state: MutexGuard<'_, State<A>>, space: &impl Progress<At = A>) {
        let now = state.now();
        let snapshot = state.snapshot(space, now);
        let looks = self.policy.due(&snapshot).at(now);
        let has_to_be_woken = looks.is_some_and(|time| state.daemon_looks.is_none_or(|looks| looks > time));
        if has_to_be_woken {
            state.daemon_looks = looks;
        }
        let uncollected = self.policy.uncollected(&snapshot, state.daemon_looks.is_some()) / STRIPES;
        if uncollected > 0 {
            state.posted_since.get_or_insert_with(Instant::now);
        } else {
            state.posted_since = None;
        }
        self.pending.signal.attend(uncollected);
        drop(state);
        if has_to_be_woken && !planted!(DaemonNotWoken) {
            self.daemon.wake();
        }
    }

    /// Wakes all waiters, because the log has failed.
    pub(crate) fn wake_resolved(&self, space: &impl Progress<At = A>) {
        let resolved = self.notifier.take_resolved(&mut self.state.lock().waiters, |at| space.is_resolved(at));
        self.notifier.wake(resolved);
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
