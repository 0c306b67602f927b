//! The group commit policy: when a flush is due, and whether a thread that has to wait starts it.
//!
//! Everything here is a function of plain values; the [queue](crate::group_commit::queue) supplies them.
//!
//! # Rules
//! A flush is due when X requests wait, L bytes are unflushed or the oldest request is T old,
//! whichever comes first (Aether, section 4.1). [`GroupCommit`] has the three limits.
//!
//! With X = 1, the default, X follows the number of committers. While few commit at once, a flush
//! is due as soon as the device is free. From [`GROUP_THRESHOLD`] committers on, a flush waits for
//! a group: one flush then serves several times as many commits, and the processors execute
//! transactions meanwhile. How large the group is and how long the flush waits depend on what the
//! committers do while they wait:
//!
//! | committers | the flush waits for | but at most for |
//! |---|---|---|
//! | blocked threads | three quarters of them | 2 flush times |
//! | threads that go on (flush pipelining) | half of them: the other half keeps the processors busy | 4 flush times |
//! | the same, and a self-flushing waiter flushed last | the next self-flushing waiter | 4 flush times |
//!
//! # Self-flushing waiters
//! If the daemon flushes, a thread that has to wait costs two thread switches, which can take as
//! long as the write. So such a thread flushes by itself
//! - if it is the only waiter, and there is no group to wait for; or
//! - if it has left commits of several sessions in flight, waits for one of them because it has
//!   nothing else to do, and at least a quarter of the committers have asked for a flush.
//!   (Otherwise the first of many threads that all come to wait would flush for itself alone.)

use std::time::Duration;

use duramen_sync::clock::Instant;

use crate::group_commit::requests::Ask;
use crate::options::GroupCommit;

/// From so many committers on, a flush waits for a group.
pub(crate) const GROUP_THRESHOLD: usize = 8;

/// One in so many committers has asked for a flush when a self-flushing waiter starts it.
const SELF_FLUSH_SHARE: usize = 4;

/// One in so many committers may post a request that nobody has collected while the daemon waits
/// for a group.
const UNCOLLECTED_SHARE: usize = 4;

/// What should be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// Flush.
    Now,
    /// Decide again after this time, or when something has changed.
    In(Duration),
    /// Nothing, until something changes.
    Never,
}

impl Due {
    /// When somebody should look, if this was decided `now`.
    pub(crate) fn at(self, now: Instant) -> Option<Instant> {
        match self {
            Self::Now => Some(now),
            Self::In(time) => Some(now.after(time)),
            Self::Never => None,
        }
    }
}

/// What the last flushes tell about the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Estimate {
    /// About how many commit at present: those served by a flush and those that waited for the next
    /// one when it ended.
    pub(crate) committers: usize,
    /// Most of them are blocked threads.
    pub(crate) are_blocked: bool,
    /// About how long a flush takes.
    pub(crate) flush_time: Duration,
    /// A self-flushing waiter made the last flush of a group.
    pub(crate) self_flushed: bool,
}

impl Estimate {
    /// A flush has served so many requests, `blocked` of them of blocked threads, and left
    /// `waiting` ones; `took` is its time, if it has moved the durable position.
    pub(crate) fn update(&mut self, served: usize, blocked: usize, waiting: usize, took: Option<Duration>) {
        if let Some(took) = took.filter(|_| served > 0) {
            self.are_blocked = 2 * blocked > served;
            self.flush_time = (self.flush_time * 7 + took) / 8;
        }
        let present = served.max(1) + waiting;
        self.committers = if present >= self.committers { present } else { (self.committers * 7 + present) / 8 };
    }
}

/// The queue at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Snapshot {
    /// A flush is running.
    pub(crate) is_flushing: bool,
    /// Bytes inserted and not flushed. Of no interest during a flush.
    pub(crate) unflushed: u64,
    /// Requests that no flush has begun for.
    pub(crate) requests: usize,
    /// Those of them whose threads are blocked until they are served, and cannot be served by
    /// self-flushing waiters.
    pub(crate) blocked: usize,
    /// The age of the oldest of them.
    pub(crate) oldest: Option<Duration>,
    /// Somebody must not wait for a group: it commits nothing, or waits for room in the buffer.
    pub(crate) has_priority: bool,
    /// All waiters that are not told yet.
    pub(crate) waiters: usize,
    /// Self-flushing waiters among them. They are asleep and cannot flush.
    pub(crate) sleeping_self_flushers: usize,
    pub(crate) estimate: Estimate,
}

/// The policy with its limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy(pub(crate) GroupCommit);

impl Policy {
    /// What should be done now.
    pub(crate) fn due(&self, now: &Snapshot) -> Due {
        if now.is_flushing {
            return Due::Never;
        }
        let (enough, longest) = self.group(now);
        if now.requests >= enough || now.has_priority || now.unflushed >= self.0.bytes as u64 {
            return Due::Now;
        }
        match now.oldest.map(|age| longest.saturating_sub(age)) {
            Some(Duration::ZERO) => Due::Now,
            Some(rest) => Due::In(rest),
            None => Due::Never,
        }
    }

    /// The number of requests that a flush waits for, and how long it waits for them.
    fn group(&self, now: &Snapshot) -> (usize, Duration) {
        let Estimate { committers, are_blocked, flush_time, self_flushed } = now.estimate;
        if !self.waits_for_group(now) {
            return (self.0.transactions, self.0.time);
        }
        // No thread may depend on a self-flushing waiter that is itself asleep.
        let is_left_to_waiters = self_flushed && now.sleeping_self_flushers == 0 && now.blocked == 0;
        let (enough, flushes) = match (are_blocked, is_left_to_waiters) {
            (true, _) => (committers * 3 / 4, 2),
            (false, false) => (committers / 2, 4),
            (false, true) => (usize::MAX, 4),
        };
        (enough, self.0.time.min(flush_time * flushes))
    }

    /// Whether so many commit at once that a flush waits for a group whose size follows their
    /// number.
    pub(crate) fn waits_for_group(&self, now: &Snapshot) -> bool {
        self.is_adaptive() && now.estimate.committers >= GROUP_THRESHOLD
    }

    fn is_adaptive(&self) -> bool {
        self.0.transactions == 1
    }

    /// What comes of `ask` under this policy: nobody waits long for a group of adaptive size, and
    /// nobody flushes for a group of fixed size.
    pub(crate) fn admit(&self, ask: Ask) -> Ask {
        match ask {
            Ask::AtOnce if self.is_adaptive() => Ask::Grouped,
            Ask::SelfFlushing if !self.is_adaptive() => Ask::Requested,
            ask => ask,
        }
    }

    /// Whether a thread that has to wait starts a flush now; `ask` has been admitted.
    pub(crate) fn flushes_itself(&self, now: &Snapshot, ask: Ask) -> bool {
        let is_called_for = match ask {
            Ask::AtOnce => true,
            Ask::SelfFlushing if self.waits_for_group(now) => {
                now.requests >= now.estimate.committers / SELF_FLUSH_SHARE
            }
            _ => self.is_adaptive() && !self.waits_for_group(now) && now.waiters == 0,
        };
        is_called_for && !now.is_flushing
    }

    /// How many requests may be posted that nobody has collected. Somebody collects them in time:
    /// whoever flushes does so at the end, and the daemon at the time that it `is_scheduled` for.
    pub(crate) fn uncollected(&self, now: &Snapshot, is_scheduled: bool) -> usize {
        match self.is_adaptive() {
            true if now.is_flushing => usize::MAX,
            true if is_scheduled => now.estimate.committers / UNCOLLECTED_SHARE,
            _ => 0,
        }
    }
}

#[cfg(all(test, not(duramen_loom)))]
#[path = "policy_tests.rs"]
mod tests;
