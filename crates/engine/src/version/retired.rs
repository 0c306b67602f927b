//! Retired transactions: committed ones whose published versions snapshots may need, or which leave
//! something to be cleared away later.

use std::collections::VecDeque;

use duramen_sync::Arc;
use duramen_types::Gsn;

use super::txn_versions::Published;
use super::writer::Writer;
use crate::record::Tree;

/// Retired transactions that one commit frees, at most, and that a thread takes from a stripe at
/// once.
pub(super) const FREED_AT_ONCE: usize = 64;

/// Commits that have nothing to clear away free versions whenever the queue of a stripe has grown
/// by this many transactions, or this many have passed.
const FREE_EVERY: usize = 16;

/// The memory is compared with its limit whenever the queue of a stripe has grown by this many
/// transactions, or by more bytes than these, or by runs.
const LIMIT_EVERY: usize = 32;
const LIMIT_BYTES: u64 = 1 << 20;

/// Ghosts that are locked and that a stripe keeps in mind. Further ones stay until their space is
/// needed.
const MOST_LOCKED: usize = 256;

/// Ghosts that were locked and that a commit tries to purge again, at least.
const TRIED_AGAIN: usize = 2;

/// Writers that a stripe keeps for later transactions.
const SPARE: usize = 256;

/// A stripe looks for transactions whose nodes are gone when its queue has doubled, and has this
/// many: fewer where a run is short.
const SWEPT: usize = if cfg!(any(duramen_loom, duramen_machine)) { 4 } else { 64 };

/// A deleted record that has to be purged, or all those from one key to another that were deleted
/// together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ghost {
    pub(crate) tree: Tree,
    pub(crate) key: Vec<u8>,
    /// The last key, if there are several.
    pub(crate) last: Option<Vec<u8>>,
}

/// What is to be done when no snapshot needs a commit's versions.
#[derive(Debug)]
pub(crate) struct Cleanup {
    /// The position of the commit.
    pub(crate) at: Gsn,
    /// The GSN of the transaction's first record.
    pub(crate) first: Gsn,
    pub(crate) ghosts: Vec<Ghost>,
    /// Whether the transaction has deferred frees.
    pub(crate) has_frees: bool,
}

impl Cleanup {
    /// Returns whether nothing is to be done.
    pub(super) fn is_empty(&self) -> bool {
        self.ghosts.is_empty() && !self.has_frees
    }
}

/// A committed transaction whose versions snapshots may need, or which leaves something.
#[derive(Debug)]
pub(super) struct Retired {
    pub(super) published: Option<Published>,
    pub(super) cleanup: Cleanup,
}

/// The retired transactions of a few threads.
#[derive(Debug, Default)]
pub(super) struct Stripe {
    pub(super) queue: VecDeque<Retired>,
    /// Ghosts that may be purged.
    pub(super) ghosts: VecDeque<Ghost>,
    /// Ghosts that may be purged when no other transaction has a lock on them.
    locked: VecDeque<Ghost>,
    /// Deferred frees of a transaction that has left the queue may be carried out.
    pub(super) has_frees: bool,
    /// Those of earlier transactions.
    spare: Vec<Arc<Writer>>,
    /// The commits that have passed.
    passed: usize,
    /// The length of the queue when it was last swept.
    swept: usize,
    /// The bytes that were added since the memory was last compared with its limit.
    uncompared: u64,
}

impl Stripe {
    /// Returns whether it holds nothing that a commit may have to clear away.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.is_clear() && self.locked.is_empty()
    }

    /// Returns whether there is nothing to be cleared away now.
    fn is_clear(&self) -> bool {
        self.ghosts.is_empty() && !self.has_frees
    }

    /// Adds a transaction; returns what is to be done.
    pub(super) fn add(&mut self, retired: Retired) -> Chores {
        let is_clear = self.is_clear() && retired.cleanup.is_empty();
        let has_runs = retired.published.as_ref().is_some_and(|published| !published.runs.is_empty());
        self.enter(retired);
        let is_large = self.uncompared > LIMIT_BYTES || has_runs;
        let len = self.queue.len();
        let compare = is_large || len.is_multiple_of(LIMIT_EVERY);
        if compare {
            self.uncompared = 0;
        }
        Chores {
            free: !is_clear || is_large || len.is_multiple_of(FREE_EVERY),
            sweep: len >= SWEPT.max(2 * self.swept),
            compare,
        }
    }

    /// Adds a transaction; whatever is to be done is left to a later one.
    pub(super) fn enter(&mut self, retired: Retired) {
        self.uncompared += retired.published.as_ref().map_or(0, |published| published.bytes + published.stored);
        self.queue.push_back(retired);
    }

    /// Notes a commit that leaves nothing; returns what is to be done.
    pub(super) fn pass(&mut self) -> Chores {
        self.passed += 1;
        let free = !self.is_clear() || self.passed.is_multiple_of(FREE_EVERY);
        Chores { free, sweep: false, compare: false }
    }

    /// Takes the writer of an earlier transaction.
    pub(super) fn take_spare(&mut self) -> Option<Arc<Writer>> {
        self.spare.pop()
    }

    /// Takes the first transactions, a few, as far as no snapshot shows less than the commits up to
    /// `until`.
    pub(super) fn take_reclaimable(&mut self, until: Gsn) -> Vec<Retired> {
        let is_reclaimable = |retired: &&Retired| retired.cleanup.at <= until;
        let count = self.queue.iter().take(FREED_AT_ONCE).take_while(is_reclaimable).count();
        let taken = self.queue.drain(..count).collect();
        self.swept = self.swept.min(self.queue.len());
        taken
    }

    /// Notes what a transaction has left whose versions are dropped, and its writer.
    pub(super) fn note_dropped(&mut self, writer: Option<Arc<Writer>>, cleanup: Cleanup) {
        if self.spare.len() < SPARE {
            self.spare.extend(writer);
        }
        self.ghosts.extend(cleanup.ghosts);
        self.has_frees |= cleanup.has_frees;
    }

    /// Takes what has become possible, with up to `most` ghosts and a few that were locked.
    pub(super) fn take_due(&mut self, most: usize) -> Due {
        let purged = self.ghosts.len().min(most);
        let tried = self.locked.len().min(TRIED_AGAIN.max(most / 16));
        let ghosts = self.ghosts.drain(..purged).chain(self.locked.drain(..tried)).collect();
        Due { ghosts, has_frees: std::mem::take(&mut self.has_frees) }
    }

    /// Keeps ghosts for another time that other transactions have locks on, unless there are many
    /// already.
    pub(super) fn postpone_locked(&mut self, ghosts: impl IntoIterator<Item = Ghost>) {
        for ghost in ghosts {
            if self.locked.len() < MOST_LOCKED && !self.locked.contains(&ghost) {
                self.locked.push_back(ghost);
            }
        }
    }

    /// Drops the versions that neither a node nor a run refers to, and the transactions that have
    /// nothing else. Returns the bytes that they were counted with, and what is to be dropped.
    ///
    /// They have changed records that earlier transactions had changed, which the open snapshots do
    /// not show either; so [`VersionStore::unchanged_below`](super::VersionStore::unchanged_below)
    /// is right without them.
    pub(super) fn sweep(&mut self) -> (u64, Vec<Arc<Writer>>) {
        let (mut bytes, mut unused) = (0, Vec::new());
        let spare = &mut self.spare;
        self.queue.retain_mut(|Retired { published, cleanup }| {
            let Some(mut dropped) = published.take_if(|published| published.are_unlinked()) else { return true };
            bytes += dropped.bytes;
            match Arc::get_mut(&mut dropped.writer).filter(|_| spare.len() < SPARE) {
                Some(again) => {
                    again.reset();
                    spare.push(dropped.writer);
                }
                None => unused.push(dropped.writer),
            }
            !cleanup.is_empty()
        });
        self.swept = self.queue.len();
        (bytes, unused)
    }
}

/// What is to be done after a transaction has retired.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chores {
    /// Free versions and ghosts.
    pub(super) free: bool,
    /// Drop the versions that nothing refers to.
    pub(super) sweep: bool,
    /// Compare the memory with its limit.
    pub(super) compare: bool,
}

/// What has become possible because no snapshot needs it.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Ghosts to be purged.
    pub(crate) ghosts: Vec<Ghost>,
    /// Whether there are deferred frees to be carried out.
    pub(crate) has_frees: bool,
}
