//! Requests to harden the log, as far as group commit is concerned with them: how many, how far,
//! since when.

use duramen_sync::clock::Instant;
use duramen_types::Lsn;

/// What a waiter wants of the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// A flush for a group of commits, as the policy says.
    Grouped,
    /// A flush as soon as possible: no commit, but something that commits may have to wait for.
    AtOnce,
    /// Nothing: [`crate::group_commit::queue::CommitQueue::request`] has been called.
    Requested,
    /// Nothing, as before. The thread may have left other commits in flight, too, and can flush for
    /// all of them.
    SelfFlushing,
}

/// Some requests together.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) count: usize,
    /// Those of them that block a thread.
    pub(crate) blocked: usize,
    /// The highest position among them.
    pub(crate) highest: Lsn,
    /// When the first of them came.
    pub(crate) first: Option<Instant>,
    /// One of them cannot wait for a group.
    pub(crate) has_priority: bool,
}

impl Requests {
    /// One more, for the record at `lsn`.
    pub(crate) fn add(&mut self, lsn: Lsn, ask: Ask) {
        self.blocked += usize::from(ask == Ask::Grouped);
        self.has_priority |= ask == Ask::AtOnce;
        self.add_posted(1, lsn, None);
    }

    /// So many more that block no thread, for records up to `highest`. They came after `since`;
    /// now, if that is `None`.
    pub(crate) fn add_posted(&mut self, count: usize, highest: Lsn, since: Option<Instant>) {
        self.count += count;
        self.highest = self.highest.max(highest);
        self.first.get_or_insert_with(|| since.unwrap_or_else(Instant::now));
    }

    /// `earlier` ones join them.
    pub(crate) fn join(&mut self, earlier: Self) {
        self.count += earlier.count;
        self.blocked += earlier.blocked;
        self.has_priority |= earlier.has_priority;
        self.highest = self.highest.max(earlier.highest);
        self.first = earlier.first.or(self.first);
    }
}
