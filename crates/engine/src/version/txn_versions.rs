//! The versions of one context's transactions: kept, or published.

use duramen_sync::{Arc, SpinLock};

use super::kept::Kept;
use super::node::Node;
use super::runs::Place;
use super::values::End;
use super::writer::{Outcome, Writer};

/// The versions of the transactions of one context, which follow each other. The store knows of
/// them from the first one on.
#[derive(Debug, Default)]
pub(crate) struct TxnVersions {
    pub(super) shared: Option<Arc<SpinLock<Versions>>>,
    /// Whether the transaction, which has committed, had published its versions.
    pub(super) has_published: bool,
}

/// What a context shares with threads that open snapshots.
#[derive(Debug, Default)]
pub(super) struct Versions {
    /// The values of the running transaction, unless they are published, and of those before it.
    pub(super) kept: Kept,
    /// How the running transaction has ended, while nothing of it is published.
    pub(super) outcome: Outcome,
    /// The versions of the running transaction; new ones are published, too.
    pub(super) published: Option<Published>,
    /// The writer of an earlier transaction, to be used again.
    pub(super) spare: Option<Arc<Writer>>,
}

impl Versions {
    /// Sets the outcome of the running transaction.
    pub(super) fn set(&mut self, outcome: Outcome) {
        match &self.published {
            Some(published) => published.writer.set(outcome),
            None => self.outcome = outcome,
        }
    }
}

/// The published versions of one transaction.
#[derive(Debug)]
pub(super) struct Published {
    /// The outcome, and the values. The nodes refer to it.
    pub(super) writer: Arc<Writer>,
    /// The end of the values.
    pub(super) end: End,
    /// The places of the runs.
    pub(super) runs: Vec<Place>,
    /// The bytes that were counted, except those of runs.
    pub(super) bytes: u64,
    /// The bytes of values that the transaction has stored in runs.
    pub(super) stored: u64,
}

impl Published {
    /// Makes those of a transaction that has published nothing yet.
    pub(super) fn new(writer: Arc<Writer>, outcome: Outcome) -> Self {
        writer.set(outcome);
        Self { writer, end: End::default(), runs: Vec::new(), bytes: 0, stored: 0 }
    }

    /// Returns the bytes of values and nodes that were added since the values ended at `begin`.
    pub(super) fn added_since(&self, begin: End) -> u64 {
        (self.end.bytes() - begin.bytes() + size_of::<Node>()) as u64
    }

    /// Returns whether neither a node nor a run refers to them.
    pub(super) fn are_unlinked(&self) -> bool {
        self.runs.is_empty() && Arc::strong_count(&self.writer) == 1
    }
}
