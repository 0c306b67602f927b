//! The commit queue: it collects requests to harden the log, has one thread at a time flush for all
//! of them, and wakes those whose records are durable.
//!
//! # Flushing
//! At most one thread flushes at a time ([`State::is_flushing`]): the daemon, or a thread that has
//! to wait anyway ([`CommitQueue::wait`]). The [policy](crate::group_commit::policy) decides who
//! and when. All others wait until their position is durable, and are not woken before. The flush
//! in progress serves those who ask for what it writes; the next one serves the others.
//!
//! # Wake-ups
//! There is one protocol for everybody who wants something of the queue:
//! 1. A committer that goes on posts its request without the lock ([`PendingCounters::post`]). If
//!    the [protocol of posts](crate::group_commit::work_signal) says that somebody will look in
//!    time, that is all.
//! 2. Otherwise, and if it waits, it takes the lock, collects what has been posted if that matters,
//!    and changes the state.
//! 3. Every thread that has changed what may be due leaves by [`CommitQueue::unlock`], which asks
//!    the policy what is due. If something is due before the daemon looks by itself, the daemon is
//!    scheduled and woken. Then it says how much may be posted until somebody looks: whoever
//!    flushes looks when the flush ends, and the daemon at the time that it is scheduled for.
//!
//! A waiter queues, and a flusher ends its flush, under the same lock: a waiter that queues before
//! the flush ends is seen there, one that comes afterwards sees the new durable position.
//!
//! Threads are unparked by whoever ends the flush. Wakers of tasks and functions to be called are
//! code that is not the log's, and the *notifier*, a thread that does nothing else, runs them: they
//! may take their time, and may even drop the log.

use duramen_sync::clock::Instant;
use duramen_sync::probe::{Probe, reach};
use duramen_sync::thread::Parker;
use duramen_sync::{Arc, Backoff, Mutex, MutexGuard};
use duramen_types::{Lsn, planted};

use crate::buffer::positions::Space;
use crate::group_commit::policy::{Due, Estimate, Policy, Snapshot};
use crate::group_commit::requests::{Ask, Requests};
use crate::group_commit::wake::{Waiters, Wake};
use crate::group_commit::work_signal::{PendingCounters, STRIPES};
use crate::options::GroupCommit;
use crate::wake_event::WakeEvent;

/// The queue of committers.
#[derive(Debug)]
pub(crate) struct CommitQueue {
    policy: Policy,
    daemon: Arc<WakeEvent>,
    notifier: Arc<WakeEvent>,
    pending: PendingCounters,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiters: Waiters<Lsn>,
    /// Those whom the notifier has to tell.
    to_notify: Vec<Wake>,
    /// Some thread flushes.
    is_flushing: bool,
    /// When the flush in progress, or the last one, began, and what was hardened then.
    began: Option<(Instant, Lsn)>,
    estimate: Estimate,
    /// Requests that no flush has begun for.
    requests: Requests,
    /// Those that the flush in progress is for.
    in_flush: Requests,
    /// The earliest time at which a request may have been posted that is not collected yet, if any
    /// may.
    posted_since: Option<Instant>,
    /// When the daemon will look what is due, if it will: it sleeps until then, is about to be
    /// woken, or flushes, which it began at that time, and will look afterwards.
    daemon_looks: Option<Instant>,
    waits: u64,
    inline_flushes: u64,
}

impl State {
    /// Whether the flush in progress writes the record at `lsn`, for all that is known.
    fn is_in_flush(&self, space: &Space, lsn: Lsn) -> bool {
        self.is_flushing && space.in_flush() > lsn
    }

    /// Where a request for the record at `lsn` belongs.
    fn requests_at(&mut self, space: &Space, lsn: Lsn) -> &mut Requests {
        if self.is_in_flush(space, lsn) { &mut self.in_flush } else { &mut self.requests }
    }

    /// Takes note of requests that were posted. Of those in one stripe only the highest position is
    /// known: if the flush in progress does not serve that, none of them is counted as served by
    /// it.
    fn collect(&mut self, space: &Space, posted: impl Iterator<Item = (usize, Lsn)>) {
        let since = self.posted_since.take();
        for (count, highest) in posted {
            // With waiters even if they are resolved: where that needs no flush, it takes one to
            // wake those who have queued.
            if self.is_in_flush(space, highest) || !is_resolved(space, highest) || self.waiters.len() > 0 {
                self.requests_at(space, highest).add_posted(count, highest, since);
            }
        }
    }

    /// The state, as far as the policy is concerned with it.
    fn snapshot(&self, space: &Space, now: Instant) -> Snapshot {
        let unflushed = || space.end().get() - space.durable().get();
        Snapshot {
            is_flushing: self.is_flushing,
            unflushed: if self.is_flushing { 0 } else { unflushed() },
            requests: self.requests.count,
            blocked: self.requests.blocked,
            oldest: self.requests.first.map(|first| now.since(first)),
            has_priority: self.requests.has_priority || space.waiting_for_room() > 0,
            waiters: self.waiters.len(),
            sleeping_self_flushers: self.waiters.self_flushers,
            estimate: self.estimate,
        }
    }

    fn begin_flush(&mut self, space: &Space, self_flushed: bool) {
        assert!(!self.is_flushing, "one thread flushes at a time");
        self.is_flushing = true;
        self.estimate.self_flushed = self_flushed;
        self.began = Some((Instant::now(), space.hardened()));
        self.in_flush = std::mem::take(&mut self.requests);
    }

    fn end_flush(&mut self, space: &Space) {
        self.is_flushing = false;
        let mut served = std::mem::take(&mut self.in_flush);
        if self.requests.count > 0 && is_resolved(space, self.requests.highest) {
            // They came before it was known what the flush writes.
            served.join(std::mem::take(&mut self.requests));
        }
        if served.count > 0 && !is_resolved(space, served.highest) {
            reach(Probe::FlushCameTooEarly);
            // Inserted, but its release still waits for a thread that is filling in: part of the
            // next flush.
            return self.requests.join(served);
        }
        let took = self.began.filter(|(_, hardened)| space.hardened() > *hardened).map(|(began, _)| began.elapsed());
        self.estimate.update(served.count, served.blocked, self.requests.count, took);
    }

    /// Takes those out who need not wait any more; returns the threads among them, and whether
    /// there is news for the notifier.
    fn take_resolved(&mut self, space: &Space) -> (Vec<Arc<Parker>>, bool) {
        let (threads, foreign) = self.waiters.take(|lsn| is_resolved(space, lsn));
        let has_news = !foreign.is_empty();
        // Under the lock: once the log has failed and this has been called, nobody comes any more.
        self.to_notify.extend(foreign);
        (threads, has_news)
    }
}

impl CommitQueue {
    /// An empty queue; the daemon and the notifier sleep at these events.
    pub(crate) fn new(policy: GroupCommit, daemon: Arc<WakeEvent>, notifier: Arc<WakeEvent>) -> Self {
        let (pending, state) = (PendingCounters::default(), Mutex::default());
        Self { policy: Policy(policy), daemon, notifier, pending, state }
    }

    /// How often somebody had to wait, and how often a waiter flushed by itself.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.waits, state.inline_flushes)
    }

    /// Blocks until the durable position is beyond `lsn`, or the log has failed. `flush` makes
    /// durable what is released.
    pub(crate) fn wait(&self, space: &Space, lsn: Lsn, ask: Ask, flush: impl Fn()) {
        let ask = self.policy.admit(ask);
        let is_self_flushing = ask == Ask::SelfFlushing;
        let mut is_asked = matches!(ask, Ask::Requested | Ask::SelfFlushing);
        let mut backoff = Backoff::new();
        let mut counted = false;
        while !is_resolved(space, lsn) {
            let mut state = self.state.lock();
            if is_resolved(space, lsn) {
                return;
            }
            state.waits += u64::from(!std::mem::replace(&mut counted, true));
            if is_self_flushing {
                state.collect(space, self.pending.collect());
            }
            let now = state.snapshot(space, Instant::now());
            // A thread whose record was not written after many tries leaves it to the daemon, which
            // sleeps between its own.
            if !backoff.is_long() && self.policy.flushes_itself(&now, ask) {
                state.begin_flush(space, is_self_flushing && self.policy.waits_for_group(&now));
                state.inline_flushes += 1;
                self.unlock(state, space);
                flush();
                reach(Probe::FlushedByCommitter);
                self.end_flush(space);
                if !is_resolved(space, lsn) {
                    // Inserted, but its release waits for a thread that is still filling in.
                    backoff.snooze();
                }
                continue;
            }
            let parker = Arc::new(Parker::new());
            if !std::mem::replace(&mut is_asked, true) {
                state.requests_at(space, lsn).add(lsn, ask);
            }
            let kind = if is_self_flushing { Wake::SelfFlusher } else { Wake::Thread };
            state.waiters.push(lsn, kind(Arc::clone(&parker)));
            self.unlock(state, space);
            parker.park();
        }
    }

    /// Asks for everything up to `lsn` to be hardened some time.
    pub(crate) fn request(&self, space: &Space, lsn: Lsn) {
        if self.pending.post(lsn) {
            let mut state = self.state.lock();
            state.collect(space, self.pending.collect());
            self.unlock(state, space);
        }
    }

    /// Queues somebody to be told; gives them back when there is nothing to wait for any more. The
    /// request has been made.
    pub(crate) fn queue(&self, space: &Space, lsn: Lsn, wake: Wake) -> Option<Wake> {
        let mut state = self.state.lock();
        if !planted!(QueuedUnseen) && is_resolved(space, lsn) {
            return Some(wake);
        }
        state.waits += 1;
        state.waiters.push(lsn, wake);
        None
    }

    /// What the daemon should do now. On [`Due::Now`] it has the right to flush, and
    /// [`CommitQueue::end_flush`] must follow.
    pub(crate) fn due(&self, space: &Space) -> Due {
        let mut state = self.lock_to_decide(space);
        if space.has_failed() {
            return Due::Never;
        }
        let now = Instant::now();
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

    /// Ends a flush: wakes those it has satisfied. If the daemon has flushed, it must go on to
    /// [`CommitQueue::due`].
    pub(crate) fn end_flush(&self, space: &Space) {
        let mut state = if planted!(LeftUnseen) { self.state.lock() } else { self.lock_to_decide(space) };
        state.end_flush(space);
        // Afterwards: requests that are counted as served by now, perhaps without a flush, have
        // their waiters woken here.
        let resolved = state.take_resolved(space);
        // The daemon is woken before those who may take this thread's processor.
        self.unlock(state, space);
        self.wake(resolved);
    }

    /// Takes the lock, and note of all that has been posted. A request that is posted from now on
    /// has to be collected by its publisher, until the lock is given back.
    ///
    /// For threads that may lower the number of requests that can be posted. A publisher that acts
    /// does not, so it collects without withdrawing, which would only draw others to the lock.
    fn lock_to_decide(&self, space: &Space) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        self.pending.signal.withdraw();
        state.collect(space, self.pending.collect());
        state
    }

    /// Gives the lock back: has the daemon look in time, and says how many requests may be posted
    /// until somebody looks.
    fn unlock(&self, mut state: MutexGuard<'_, State>, space: &Space) {
        let now = Instant::now();
        let snapshot = state.snapshot(space, now);
        let looks = self.policy.due(&snapshot).at(now);
        let has_to_be_woken = looks.is_some_and(|time| state.daemon_looks.is_none_or(|looks| looks > time));
        if has_to_be_woken {
            state.daemon_looks = looks;
        }
        let uncollected = self.policy.uncollected(&snapshot, state.daemon_looks.is_some()) / STRIPES;
        state.posted_since = if uncollected > 0 { state.posted_since.or(Some(now)) } else { None };
        self.pending.signal.attend(uncollected);
        drop(state);
        if has_to_be_woken && !planted!(DaemonNotRung) {
            self.daemon.wake();
        }
    }

    /// Wakes all who need not wait any more, because the log has failed.
    pub(crate) fn wake_resolved(&self, space: &Space) {
        let resolved = self.state.lock().take_resolved(space);
        self.wake(resolved);
    }

    fn wake(&self, (threads, has_news): (Vec<Arc<Parker>>, bool)) {
        threads.iter().for_each(|parker| parker.unpark());
        if has_news && !planted!(TellerNotRung) {
            self.notifier.wake();
        }
    }

    /// Has the notifier tell somebody who did not wait here.
    pub(crate) fn notify(&self, wakes: Vec<Wake>) {
        self.state.lock().to_notify.extend(wakes);
        self.wake((Vec::new(), true));
    }

    /// Those whom the notifier has to tell by now.
    pub(crate) fn take_to_notify(&self) -> Vec<Wake> {
        std::mem::take(&mut self.state.lock().to_notify)
    }
}

/// Whether waiting for `lsn` has come to an end, one way or the other.
pub(crate) fn is_resolved(space: &Space, lsn: Lsn) -> bool {
    space.hardened() > lsn || space.has_failed()
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
