//! Requests to harden the log, as group commit counts them.

use duramen_sync::clock::Instant;

use crate::group_commit::progress::Position;

/// What a waiter needs from the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// A flush for a group of commits, when the policy says so.
    Grouped,
    /// A flush as soon as possible, for a waiter that does not commit but may delay commits.
    AtOnce,
    /// Nothing more: [`crate::group_commit::queue::CommitQueue::request`] has been called.
    Requested,
    /// As `Requested`; the thread may have other commits in flight, and can flush for all.
    SelfFlushing,
}

impl Ask {
    /// Returns whether the request has been made before the wait.
    pub(crate) fn is_requested(self) -> bool {
        matches!(self, Self::Requested | Self::SelfFlushing)
    }
}

/// The sum of several requests.
#[derive(Debug, Default)]
pub(crate) struct Requests<A> {
    pub(crate) count: usize,
    /// How many of them block a thread.
    pub(crate) blocked: usize,
    /// The highest position among them.
    pub(crate) highest: A,
    /// When the first of them arrived.
    pub(crate) first: Option<Instant>,
    /// Whether one of them cannot wait for a group.
    pub(crate) has_priority: bool,
}

impl<A: Position> Requests<A> {
    pub(crate) fn add(&mut self, at: A, ask: Ask) {
        self.blocked += usize::from(ask == Ask::Grouped);
        self.has_priority |= ask == Ask::AtOnce;
        self.add_posted(1, at, None);
    }

    /// Adds `count` requests that block no thread, for records up to `highest`. They arrived after
    /// `since`, or now if that is `None`.
    pub(crate) fn add_posted(&mut self, count: usize, highest: A, since: Option<Instant>) {
        self.count += count;
        self.highest = self.highest.max(highest);
        self.first.get_or_insert_with(|| since.unwrap_or_else(Instant::now));
    }

    pub(crate) fn join(&mut self, earlier: Self) {
        self.count += earlier.count;
        self.blocked += earlier.blocked;
        self.has_priority |= earlier.has_priority;
        self.highest = self.highest.max(earlier.highest);
        self.first = earlier.first.or(self.first);
    }
}
