//! The commit queue: who waits for which part of the log to be hardened, and who flushes for them.
//!
//! At most one thread flushes at a time (`flushing`). It may be any of:
//! - the daemon, woken by its event;
//! - a thread that must wait anyway, if nobody flushes. Handing the work to the daemon and being woken again would cost two
//!   thread switches, which can take as long as the write. It is so for a committer, if nobody else waits; and for a
//!   *helper*: a thread that has left commits on their way and waits for one of them now, when a part of those who commit
//!   have asked. That is how a thread that carries many sessions comes here: with nothing else to do.
//!
//! Everyone else queues with a wake-up of its own and is woken when its position is durable, and not before. Threads are
//! unparked by whoever ends the flush; wakers of tasks and functions to be called are code that is not the log's, and
//! the *teller*, a thread that does nothing else, runs them: it may take its time, and may even drop the log. Those who
//! ask during a flush for what it writes are served by it. The others are served by the next one, which whoever ends a flush
//! sees to: the daemon goes on at once, others ring for the daemon if something is due before it looks by itself.
//!
//! With the default policy a flush begins as soon as the device is free, but for one thing. When many commit at once
//! ([`CROWD`]), those whom the last flush has released come back soon, and the next flush waits for them. One flush then
//! serves several times as many, and the processor does the crowd's work meanwhile. If the crowd is of threads that
//! sleep, the flush waits until most of them have come back, for at most twice the time that a flush takes. If they go on
//! without waiting (flush pipelining; Aether, section 4), it waits for at most four times that time, and for half of them,
//! so that the other half keeps the processors busy while the device works; or until a helper comes, if it was a helper that
//! flushed last and no thread waits as yet.
//!
//! Who asks and goes on leaves its request without the lock, if somebody will look in time ([`crate::group_commit::work_signal`]): who
//! flushes will when the flush ends, and the daemon at the time that it has been told. Who finds that a part of the crowd have
//! left theirs until then looks before, and rings for the daemon if they are enough.
//!
//! No wake-up is lost: a waiter queues, and a flusher ends its flush, under the same lock; a waiter that queues before
//! the flush ends is seen there, one that comes after sees the new durable position.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use duramen_sync::clock::Instant;
use duramen_sync::probe::{Probe, reach};
use duramen_sync::thread::Parker;
use duramen_sync::{Arc, Backoff, Mutex, MutexGuard};
use duramen_types::Lsn;
use duramen_types::planted::{Bug, is_on};

use crate::buffer::positions::Space;
use crate::group_commit::requests::{Ask, Requests};
use crate::group_commit::wake::Wake;
use crate::group_commit::work_signal::{PendingCounters, STRIPES};
use crate::options::GroupCommit;
use crate::wake_event::WakeEvent;

/// The queue and the group commit policy.
#[derive(Debug)]
pub(crate) struct CommitQueue {
    policy: GroupCommit,
    daemon: Arc<WakeEvent>,
    teller: Arc<WakeEvent>,
    pending: PendingCounters,
    state: Mutex<State>,
}

/// So many waiters of one flush are a crowd.
const CROWD: usize = 8;

/// One in so many of a crowd have asked for a flush when a helper flushes at once.
const HELPED_SHARE: usize = 4;

/// One in so many of the company may leave its request in each stripe while the daemon waits for more to come: a fourth of
/// the company in all.
const LEFT_SHARE: usize = 4 * STRIPES;

#[derive(Debug, Default)]
struct State {
    waiters: BinaryHeap<Reverse<Waiter>>,
    /// Those whom the teller has to tell.
    told: Vec<Wake>,
    /// Somebody flushes.
    flushing: bool,
    /// When the flush in progress, or the last one, began, and what was hardened then.
    began: Option<(Instant, Lsn)>,
    /// About how long a flush takes.
    flush_time: Duration,
    /// About how many commit at present: those whom a flush served and those who by then waited for the next.
    company: usize,
    /// Most of the company sleeps until it is woken.
    sleeps: bool,
    /// A helper flushes, or was the last to flush.
    helped: bool,
    /// Helpers among the waiters: they cannot help before what they wait for is settled.
    helpers_asleep: usize,
    /// Requests that no flush has begun for.
    requests: Requests,
    /// Those that the flush in progress is for.
    in_flush: Requests,
    /// When requests that had been left were last looked for.
    looked: Option<Instant>,
    /// When the daemon will look what is due, if it will: it sleeps until then, or who has set this rings, or it is about
    /// to.
    daemon_looks: Option<Instant>,
    waits: u64,
    inline_flushes: u64,
}

/// One who waits until the durable position is beyond `lsn`.
#[derive(Debug)]
struct Waiter {
    lsn: Lsn,
    wake: Wake,
    /// It is a helper.
    helps: bool,
}

impl PartialEq for Waiter {
    fn eq(&self, other: &Self) -> bool {
        self.lsn == other.lsn
    }
}

impl Eq for Waiter {}

impl PartialOrd for Waiter {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiter {
    fn cmp(&self, other: &Self) -> Ordering {
        self.lsn.cmp(&other.lsn)
    }
}

/// What remains to be done, without the lock, for those who need not wait any more.
#[derive(Debug, Default)]
struct Settled {
    threads: Vec<Arc<Parker>>,
    news_for_teller: bool,
}

/// What the daemon should do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Flush, which it has been given the right to: [`CommitQueue::end_flush`] must follow.
    Flush,
    /// Sleep until then, unless the bell rings.
    At(Instant),
    /// Sleep until the bell rings.
    Never,
}

impl State {
    fn request(&mut self, space: &Space, lsn: Lsn, ask: Ask) {
        let requests = if self.is_in_flush(space, lsn) { &mut self.in_flush } else { &mut self.requests };
        requests.add(lsn, ask);
    }

    /// Whether the flush in progress writes the record at `lsn`, for all that is known.
    fn is_in_flush(&self, space: &Space, lsn: Lsn) -> bool {
        self.flushing && space.in_flush() > lsn
    }

    /// Takes note of `left` requests, which came after `since`; just now, if that is `None`. Of those in one stripe only the
    /// highest position is known: if the flush in progress does not serve that, none of them is counted as served by it.
    fn see(&mut self, space: &Space, left: impl Iterator<Item = (usize, Lsn)>, since: Option<Instant>) {
        for (count, highest) in left {
            if self.is_in_flush(space, highest) {
                self.in_flush.add_left(count, highest, since);
            } else if !is_settled(space, highest) || !self.waiters.is_empty() {
                // Even if they are settled: where that needs no flush, it takes one to wake those who have queued meanwhile.
                self.requests.add_left(count, highest, since);
            }
        }
    }

    /// How many requests may be left in each stripe until somebody looks, as it is now.
    fn admitted(&self, policy: &GroupCommit) -> usize {
        match self.daemon_looks {
            _ if policy.transactions != 1 => 0,
            _ if self.flushing => usize::MAX,
            Some(_) => self.company / LEFT_SHARE,
            None => 0,
        }
    }

    fn begin_flush(&mut self, space: &Space, helped: bool) {
        assert!(!self.flushing, "one thread flushes at a time");
        self.flushing = true;
        self.helped = helped;
        self.began = Some((Instant::now(), space.hardened()));
        self.in_flush = std::mem::take(&mut self.requests);
    }

    fn end_flush(&mut self, space: &Space) {
        self.flushing = false;
        let mut served = std::mem::take(&mut self.in_flush);
        if self.requests.count > 0 && is_settled(space, self.requests.highest) {
            // They came before it was known what the flush writes.
            served.join(std::mem::take(&mut self.requests));
        }
        if served.count > 0 && !is_settled(space, served.highest) {
            reach(Probe::FlushCameTooEarly);
            // Inserted, but its release still waits for a thread that is filling in: part of the next flush.
            return self.requests.join(served);
        }
        self.count_company(space, &served);
    }

    /// Takes those out who need not wait any more.
    fn take_settled(&mut self, space: &Space) -> Settled {
        let mut settled = Settled::default();
        while self.waiters.peek().is_some_and(|Reverse(first)| is_settled(space, first.lsn)) {
            let Some(Reverse(Waiter { wake, helps, .. })) = self.waiters.pop() else { break };
            self.helpers_asleep -= usize::from(helps);
            match wake {
                Wake::Thread(parker) => settled.threads.push(parker),
                // Under the lock: once the log has failed and this has been called, nobody comes any more.
                foreign => {
                    self.told.push(foreign);
                    settled.news_for_teller = true;
                }
            }
        }
        settled
    }

    /// Takes note of how many requests a flush has served, and how long it took.
    fn count_company(&mut self, space: &Space, served: &Requests) {
        if let Some((began, hardened)) = self.began
            && served.count > 0
            && space.hardened() > hardened
        {
            self.sleeps = 2 * served.threads > served.count;
            self.flush_time = (self.flush_time * 7 + began.elapsed()) / 8;
        }
        let present = served.count.max(1) + self.requests.count;
        self.company = if present >= self.company { present } else { (self.company * 7 + present) / 8 };
    }

    /// Whether so many commit at once that a flush waits for company.
    fn is_crowded(&self, policy: &GroupCommit) -> bool {
        policy.transactions == 1 && self.company >= CROWD
    }

    /// What should be done now, by whoever may flush.
    fn due(&self, policy: &GroupCommit, space: &Space) -> Due {
        if self.flushing {
            return Due::Never;
        }
        let unflushed = space.end().get() - space.durable().get();
        let (enough, patience) = if self.is_crowded(policy) {
            reach(Probe::FlushWaitsForCrowd);
            // It is left to helpers as long as no thread is held up: a helper, too, cannot help before it is woken.
            let is_helped = self.helped && self.helpers_asleep == 0 && self.requests.threads == 0;
            let (enough, flushes) = match (self.sleeps, is_helped) {
                (true, _) => (self.company * 3 / 4, 2),
                (false, false) => (self.company / 2, 4),
                (false, true) => (usize::MAX, 4),
            };
            (enough, policy.time.min(self.flush_time * flushes))
        } else {
            (policy.transactions, policy.time)
        };
        if self.requests.count >= enough
            || self.requests.at_once
            || unflushed >= policy.bytes as u64
            || space.waiting_for_room() > 0
        {
            return Due::Flush;
        }
        match self.requests.first {
            Some(first) if first.elapsed() >= patience => Due::Flush,
            Some(first) => Due::At(first.after(patience)),
            None => Due::Never,
        }
    }

    /// Whether the daemon, which may be asleep, has to be rung for: something is due before it looks by itself. If so, the
    /// caller rings.
    fn is_news(&mut self, policy: &GroupCommit, space: &Space) -> bool {
        let time = match self.due(policy, space) {
            Due::Flush => Instant::now(),
            Due::At(time) => time,
            Due::Never => return false,
        };
        let is_news = self.daemon_looks.is_none_or(|looks| looks > time);
        if is_news {
            self.daemon_looks = Some(time);
        }
        is_news
    }
}

impl CommitQueue {
    /// An empty queue; the daemon and the teller sleep at these events.
    pub(crate) fn new(policy: GroupCommit, daemon: Arc<WakeEvent>, teller: Arc<WakeEvent>) -> Self {
        Self { policy, daemon, teller, pending: PendingCounters::default(), state: Mutex::new(State::default()) }
    }

    /// How often somebody had to wait, and how often one who had to flushed by itself.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.waits, state.inline_flushes)
    }

    /// Blocks until the durable position is beyond `lsn`, or the log has failed. `flush` makes durable what is released.
    pub(crate) fn wait(&self, space: &Space, lsn: Lsn, ask: Ask, flush: impl Fn()) {
        // By the default policy nobody waits long for company.
        let by_default = self.policy.transactions == 1;
        let at_once = ask == Ask::AtOnce && !by_default;
        let ask = if ask == Ask::AtOnce && by_default { Ask::InCompany } else { ask };
        let helps = by_default && ask == Ask::Helping;
        let mut is_asked = matches!(ask, Ask::Requested | Ask::Helping);
        let mut backoff = Backoff::new();
        let mut counted = false;
        while !is_settled(space, lsn) {
            let mut state = self.state.lock();
            if is_settled(space, lsn) {
                return;
            }
            state.waits += u64::from(!std::mem::replace(&mut counted, true));
            if helps {
                self.look(&mut state, space);
            }
            let is_crowded = state.is_crowded(&self.policy);
            let alone = by_default && state.waiters.is_empty() && !is_crowded;
            // Not for the first few of a crowd of threads that all come to wait.
            let helps_now = helps && is_crowded && state.requests.count >= state.company / HELPED_SHARE;
            // Who has not got its record written after many tries leaves it to the daemon, which sleeps between its own.
            if !state.flushing && !backoff.is_long() && (at_once || helps_now || alone) {
                state.begin_flush(space, helps_now);
                state.inline_flushes += 1;
                self.let_go(state);
                flush();
                reach(Probe::FlushedByCommitter);
                self.end_flush(space, true);
                if !is_settled(space, lsn) {
                    // Inserted, but its release waits for a thread that is still filling in.
                    backoff.snooze();
                }
                continue;
            }
            let parker = Arc::new(Parker::new());
            if !std::mem::replace(&mut is_asked, true) {
                state.request(space, lsn, ask);
            }
            state.waiters.push(Reverse(Waiter { lsn, wake: Wake::Thread(Arc::clone(&parker)), helps }));
            state.helpers_asleep += usize::from(helps);
            let news = state.is_news(&self.policy, space);
            self.let_go(state);
            if news {
                self.daemon.wake();
            }
            parker.park();
        }
    }

    /// Asks for everything up to `lsn` to be hardened some time.
    pub(crate) fn request(&self, space: &Space, lsn: Lsn) {
        let by_default = self.policy.transactions == 1;
        if by_default && !self.pending.post(lsn) {
            return;
        }
        let mut state = self.state.lock();
        if by_default {
            self.look(&mut state, space);
        } else if !is_settled(space, lsn) {
            state.request(space, lsn, Ask::Requested);
        }
        let news = state.is_news(&self.policy, space);
        self.let_go(state);
        if news {
            self.daemon.wake();
        }
    }

    /// Queues somebody to be told; gives them back when there is nothing to wait for any more. The request has been made.
    pub(crate) fn queue(&self, space: &Space, lsn: Lsn, wake: Wake) -> Option<Wake> {
        let mut state = self.state.lock();
        if !is_on(Bug::QueuedUnseen) && is_settled(space, lsn) {
            return Some(wake);
        }
        state.waits += 1;
        state.waiters.push(Reverse(Waiter { lsn, wake, helps: false }));
        None
    }

    /// What the daemon should do now. On [`Due::Flush`] it is the one that flushes.
    pub(crate) fn due(&self, space: &Space) -> Due {
        let mut state = self.state.lock();
        state.daemon_looks = None;
        if space.has_failed() {
            return Due::Never;
        }
        self.close_and_look(&mut state, space);
        let due = state.due(&self.policy, space);
        match due {
            Due::Flush => state.begin_flush(space, false),
            Due::At(time) => state.daemon_looks = Some(time),
            Due::Never => {}
        }
        self.let_go(state);
        due
    }

    /// Ends a flush: wakes those it has satisfied. With `ring`, rings for the daemon if it would look too late. Without, the
    /// caller is the daemon, which must go on to [`CommitQueue::due`].
    pub(crate) fn end_flush(&self, space: &Space, ring: bool) {
        let (satisfied, is_news) = {
            let mut state = self.state.lock();
            if !is_on(Bug::LeftUnseen) {
                self.close_and_look(&mut state, space);
            }
            state.end_flush(space);
            // Afterwards: what is counted as served by then, perhaps without a flush, is woken here.
            let settled = state.take_settled(space);
            let is_news = ring && state.is_news(&self.policy, space);
            if !ring {
                state.daemon_looks = Some(Instant::now());
            }
            self.let_go(state);
            (settled, is_news)
        };
        // Before those are woken who may take this thread's processor.
        if is_news && !is_on(Bug::DaemonNotRung) {
            self.daemon.wake();
        }
        self.wake(satisfied);
    }

    /// Takes note of the requests that have been left.
    fn look(&self, state: &mut State, space: &Space) {
        self.see_left(state, space, self.pending.signal.is_attended());
    }

    /// The same, for who was to look and does so now.
    fn close_and_look(&self, state: &mut State, space: &Space) {
        let admitted = self.pending.signal.is_attended();
        self.pending.signal.withdraw();
        self.see_left(state, space, admitted);
    }

    /// If none were `admitted`, who has left one looks at once.
    fn see_left(&self, state: &mut State, space: &Space, admitted: bool) {
        let since = state.looked.filter(|_| admitted);
        state.see(space, self.pending.collect(), since);
        state.looked = Some(Instant::now());
    }

    /// Gives the lock back, and says how many requests may be left until somebody looks.
    fn let_go(&self, state: MutexGuard<'_, State>) {
        self.pending.signal.attend(state.admitted(&self.policy));
    }

    /// Wakes all who need not wait any more, because the log has failed.
    pub(crate) fn wake_settled(&self, space: &Space) {
        let settled = self.state.lock().take_settled(space);
        self.wake(settled);
    }

    fn wake(&self, settled: Settled) {
        settled.threads.iter().for_each(|parker| parker.unpark());
        if settled.news_for_teller && !is_on(Bug::TellerNotRung) {
            self.teller.wake();
        }
    }

    /// Has the teller tell somebody who did not wait here.
    pub(crate) fn tell(&self, wakes: Vec<Wake>) {
        self.state.lock().told.extend(wakes);
        if !is_on(Bug::TellerNotRung) {
            self.teller.wake();
        }
    }

    /// Those whom the teller has to tell by now.
    pub(crate) fn take_told(&self) -> Vec<Wake> {
        std::mem::take(&mut self.state.lock().told)
    }
}

/// Whether waiting for `lsn` has come to an end, one way or the other.
pub(crate) fn is_settled(space: &Space, lsn: Lsn) -> bool {
    space.hardened() > lsn || space.has_failed()
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
