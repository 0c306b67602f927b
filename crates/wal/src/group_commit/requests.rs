//! Requests to harden the log, as far as group commit is concerned with them: how many, how far, since when.

use duramen_sync::clock::Instant;
use duramen_types::Lsn;

/// What one who waits wants of the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// A flush in company of others, as the policy says.
    InCompany,
    /// A flush as soon as possible: no commit, but something that commits may have to wait for.
    AtOnce,
    /// Nothing: [`crate::group_commit::queue::CommitQueue::request`] has been called.
    Requested,
    /// Nothing for itself, as before. Its thread may have left other commits on their way, too, and can flush for all of them.
    Helping,
}

/// Some requests together.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) count: usize,
    /// Those of them that hold up a thread.
    pub(crate) threads: usize,
    /// The highest position among them.
    pub(crate) highest: Lsn,
    /// When the first of them came.
    pub(crate) first: Option<Instant>,
    /// One of them cannot wait for company.
    pub(crate) at_once: bool,
}

impl Requests {
    /// One more, for the record at `lsn`.
    pub(crate) fn add(&mut self, lsn: Lsn, ask: Ask) {
        self.count += 1;
        self.threads += usize::from(ask == Ask::InCompany);
        self.at_once |= ask == Ask::AtOnce;
        self.highest = self.highest.max(lsn);
        self.first.get_or_insert_with(Instant::now);
    }

    /// So many more that do not hold up a thread, for records up to `highest`. They came after `since`; now, if that is
    /// `None`.
    pub(crate) fn add_left(&mut self, count: usize, highest: Lsn, since: Option<Instant>) {
        self.count += count;
        self.highest = self.highest.max(highest);
        self.first.get_or_insert_with(|| since.unwrap_or_else(Instant::now));
    }

    /// `earlier` ones join them.
    pub(crate) fn join(&mut self, earlier: Self) {
        self.count += earlier.count;
        self.threads += earlier.threads;
        self.at_once |= earlier.at_once;
        self.highest = self.highest.max(earlier.highest);
        self.first = earlier.first.or(self.first);
    }
}
