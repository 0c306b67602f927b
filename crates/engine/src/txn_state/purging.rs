//! Purges the ghosts that committed transactions have left.

use duramen_sync::probe::{Probe, reach};

use crate::lock::{LockId, LockManager, LockMode, TxnLocks};
use crate::record::Tree;
use crate::storage::store::Store;
use crate::version::{Ghost, VersionStore};

use super::deferred_free::DeferredFrees;

/// Purges ghosts that no transaction and no snapshot needs.
#[derive(Clone, Copy)]
pub(crate) struct Purging<'e> {
    pub(crate) store: &'e Store,
    pub(crate) locks: &'e LockManager,
    pub(crate) versions: &'e VersionStore,
    pub(crate) deferred: &'e DeferredFrees,
}

impl Purging<'_> {
    /// Returns whether a ghost may be purged: no transaction holds or waits for a lock on the key
    /// or the gap below it, and no snapshot needs its slot. The caller holds the leaf's latch.
    pub(crate) fn is_purgeable(&self, tree: Tree, key: &[u8]) -> bool {
        let is_free = |id| self.locks.is_unlocked(id);
        if !is_free(LockId::record(tree.table, key)) || !is_free(LockId::gap(tree.table, key)) {
            return false;
        }
        self.is_unneeded(tree, key)
    }

    /// Returns whether no snapshot needs a ghost's slot. The caller holds the leaf's latch.
    pub(crate) fn is_unneeded(&self, tree: Tree, key: &[u8]) -> bool {
        let is_needed = self.versions.needs_slot(tree.table, key);
        if is_needed {
            reach(Probe::GhostKeptForSnapshot);
        }
        !is_needed
    }

    /// Purges the ghosts from `key` to `last` in up to `most` leaves, then merges these leaves.
    /// Returns the key to go on with. Each step has little log at a time; for the first one it is
    /// reserved.
    fn purge_leaves(&self, tree: Tree, key: Vec<u8>, last: &[u8], most: usize) -> Option<Vec<u8>> {
        let (mut next, mut sparse) = (Some(key), Vec::new());
        for _ in 0..most {
            let Some(key) = next.take() else { break };
            let Ok((is_sparse, behind)) =
                self.store.purge_run(tree, &key, last, |key| self.is_purgeable(tree, key), &mut 0)
            else {
                break;
            };
            next = behind;
            if is_sparse {
                sparse.push(key);
            }
        }
        // Once all of them are empty, because a merge with a full leaf would log that leaf.
        for key in sparse {
            if self.store.merge(tree, &key, &mut 0).is_err() {
                break;
            }
        }
        next
    }

    /// Purges ghosts that have become due, of those that were deleted together in up to
    /// `most_leaves` leaves, and takes locks on their tables for this, which keep the
    /// trees in place. Never waits: what needs a lock that is not free, or log space that is
    /// missing, is kept for another time.
    pub(crate) fn purge(&self, locks: &mut TxnLocks, ghosts: Vec<Ghost>, most_leaves: usize) {
        let mut ghosts = ghosts.into_iter();
        let mut kept = Vec::new();
        let scheme = &*self.store.scheme;
        let bytes = scheme.space_for_operation(0);
        while let Some(ghost) = ghosts.next() {
            let tree = ghost.tree;
            if !self.locks.try_acquire(locks, LockId::table(tree.table), LockMode::IntentExclusive) {
                kept.push(ghost);
                continue;
            }
            // Whoever frees a tree must find each of its records.
            if self.deferred.is_dropped(tree.table) {
                continue;
            }
            if scheme.reserve_system(bytes).is_err() {
                kept.push(ghost);
                kept.extend(ghosts.by_ref());
                break;
            }
            // The tree may be freed already: then its pages are found not to be the tree's any
            // more. A page that cannot be read is reported to the operations that need it.
            match ghost.last {
                Some(last) => {
                    let key = self.purge_leaves(tree, ghost.key, &last, most_leaves);
                    kept.extend(key.map(|key| Ghost { tree, key, last: Some(last) }));
                }
                None => drop(self.store.purge(tree, &ghost.key, |key| self.is_purgeable(tree, key), &mut 0)),
            }
            scheme.unreserve(bytes);
        }
        if !kept.is_empty() {
            self.versions.postpone(kept);
        }
    }
}
