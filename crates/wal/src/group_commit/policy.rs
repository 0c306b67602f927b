//! The group commit policy: when a flush is due, and whether a waiting thread starts it. It
//! consists of functions of plain values, which the [queue](crate::group_commit::queue) supplies.
//!
//! # Rules
//! A flush is due when X requests wait, L bytes are unflushed or the oldest request is T old,
//! whichever comes first (Aether, section 4.1). [`GroupCommit`] contains the three limits.
//!
//! With X = 1, the default, the group size follows the number of committers. Below
//! [`GROUP_THRESHOLD`] committers, a flush is due as soon as the device is free. From there on, a
//! flush waits for a group, to serve several times as many commits while the processors execute
//! transactions. Group size and waiting time depend on what the committers do while they wait:
//!
//! | committers | the flush waits for | but at most for |
//! |---|---|---|
//! | blocked threads | three quarters of them | 2 flush times |
//! | threads that do not block (flush pipelining) | half of them: the other half keeps the processors busy | 4 flush times |
//! | the same, and a self-flushing waiter flushed last | the next self-flushing waiter | 4 flush times |
//!
//! # Self-flushing waiters
//! If the daemon flushes, a waiting thread costs two thread switches, which can take as long as the
//! write. So such a thread flushes by itself
//! - if it is the only waiter and no group is forming; or
//! - if it has commits of several sessions in flight, waits for one of them because it has no other
//!   work, and at least a quarter of the committers have requested a flush. (Otherwise the first of
//!   many threads that begin to wait would flush for itself alone.)

use std::time::Duration;

use duramen_sync::clock::Instant;

use crate::group_commit::requests::Ask;
use crate::options::GroupCommit;

/// The group-commit threshold: from this number of committers on, a flush waits for a group.
pub(crate) const GROUP_THRESHOLD: usize = 8;

/// A self-flushing waiter starts a flush when one in this many committers has requested one.
const SELF_FLUSH_SHARE: usize = 4;

/// While the daemon waits for a group, one committer in this many may post uncollected.
const UNCOLLECTED_SHARE: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    Now,
    /// Decide again after this time, or when the state changes.
    In(Duration),
    /// Do nothing until the state changes.
    Never,
}

impl Due {
    /// Returns the time of the next decision, if this one was made at `now`. Without it, the clock
    /// is read if necessary.
    pub(crate) fn at(self, now: Option<Instant>) -> Option<Instant> {
        let now = || now.unwrap_or_else(Instant::now);
        match self {
            Self::Now => Some(now()),
            Self::In(time) => Some(now().after(time)),
            Self::Never => None,
        }
    }
}

/// The committer estimate: a prediction for the next flush from the last ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Estimate {
    /// About the number of committers: those that a flush served and those waiting when it ended.
    pub(crate) committers: usize,
    /// Whether most of them are blocked threads.
    pub(crate) are_blocked: bool,
    /// The approximate duration of a flush.
    pub(crate) flush_time: Duration,
    /// Whether a self-flushing waiter made the last flush of a group.
    pub(crate) self_flushed: bool,
}

impl Estimate {
    /// Notes a flush that served `served` requests, `blocked` of them from blocked threads, and
    /// left `waiting` requests. `took` is its duration, if it has moved the durable position.
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
    pub(crate) is_flushing: bool,
    /// Bytes inserted and not flushed. Not used during a flush.
    pub(crate) unflushed: u64,
    /// Requests for which no flush has begun.
    pub(crate) requests: usize,
    /// How many of them block a thread until they are served, self-flushing waiters not counted.
    pub(crate) blocked: usize,
    /// The age of the oldest of these requests.
    pub(crate) oldest: Option<Duration>,
    /// Whether a waiter must not wait for a group: it commits nothing, or waits for buffer space.
    pub(crate) has_priority: bool,
    /// All waiters that have not been notified yet.
    pub(crate) waiters: usize,
    /// The self-flushing waiters among them. They are parked and cannot flush.
    pub(crate) sleeping_self_flushers: usize,
    pub(crate) estimate: Estimate,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy(pub(crate) GroupCommit);

impl Policy {
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

    /// Returns the number of requests that a flush waits for, and how long it waits for them.
    fn group(&self, now: &Snapshot) -> (usize, Duration) {
        let Estimate { committers, are_blocked, flush_time, self_flushed } = now.estimate;
        if !self.waits_for_group(now) {
            return (self.0.transactions, self.0.time);
        }
        // No thread may depend on a self-flushing waiter that is itself parked.
        let is_left_to_waiters = self_flushed && now.sleeping_self_flushers == 0 && now.blocked == 0;
        let (enough, flushes) = match (are_blocked, is_left_to_waiters) {
            (true, _) => (committers * 3 / 4, 2),
            (false, false) => (committers / 2, 4),
            (false, true) => (usize::MAX, 4),
        };
        (enough, self.0.time.min(flush_time * flushes))
    }

    /// Returns whether flushes wait for groups whose size follows the number of committers.
    pub(crate) fn waits_for_group(&self, now: &Snapshot) -> bool {
        self.is_adaptive() && now.estimate.committers >= GROUP_THRESHOLD
    }

    /// Returns whether flushes wait for groups, of a fixed or an adaptive size.
    pub(crate) fn forms_groups(&self, estimate: &Estimate) -> bool {
        !self.is_adaptive() || estimate.committers >= GROUP_THRESHOLD
    }

    fn is_adaptive(&self) -> bool {
        self.0.transactions == 1
    }

    /// Returns what this policy makes of `ask`: groups of adaptive size delay briefly, so `AtOnce`
    /// becomes `Grouped`; no waiter flushes for a fixed one, so `SelfFlushing` becomes `Requested`.
    pub(crate) fn admit(&self, ask: Ask) -> Ask {
        match ask {
            Ask::AtOnce if self.is_adaptive() => Ask::Grouped,
            Ask::SelfFlushing if !self.is_adaptive() => Ask::Requested,
            ask => ask,
        }
    }

    /// Returns whether a waiting thread starts a flush now; `ask` has been admitted.
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

    /// Returns how many requests may be posted uncollected: a flushing thread collects them when
    /// its flush ends, or the daemon at the time for which it `is_scheduled`.
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
