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
        let is_needed = self.versions.needs_slot(tree.table, key);
        if is_needed {
            reach(Probe::GhostKeptForSnapshot);
        }
        !is_needed
    }

    /// Purges ghosts that have become due, and takes locks on their tables for this, which keep the
    /// trees in place. Never waits: what needs a lock that is not free, or log space that is
    /// missing, is kept for another time.
    pub(crate) fn purge(&self, locks: &mut TxnLocks, ghosts: Vec<Ghost>) {
        let mut ghosts = ghosts.into_iter();
        let mut kept = Vec::new();
        let scheme = &*self.store.scheme;
        let bytes = scheme.space_for_operation(0);
        while let Some((tree, key)) = ghosts.next() {
            if !self.locks.try_acquire(locks, LockId::table(tree.table), LockMode::IntentExclusive) {
                kept.push((tree, key));
                continue;
            }
            // Whoever frees a tree must find each of its records.
            if self.deferred.is_dropped(tree.table) {
                continue;
            }
            if scheme.reserve_system(bytes).is_err() {
                kept.push((tree, key));
                kept.extend(ghosts.by_ref());
                break;
            }
            // The tree may be freed already: then its pages are found not to be the tree's any
            // more. A page that cannot be read is reported to the operations that need it.
            let _ = self.store.purge(tree, &key, |key| self.is_purgeable(tree, key), &mut 0);
            scheme.unreserve(bytes);
        }
        if !kept.is_empty() {
            self.versions.postpone(kept);
        }
    }
}
