//! Purges the ghosts that committed transactions have left.

use std::cell::{OnceCell, RefCell};

use duramen_sync::probe::{Probe, reach};

use crate::error::{Error, Result};
use crate::lock::{LockId, LockManager, LockMode, TxnLocks};
use crate::pool::PoolError;
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

/// The first and the last ghost that could not be purged because of other transactions' locks.
#[derive(Debug, Default)]
pub(crate) struct Locked(RefCell<Option<(Vec<u8>, Vec<u8>)>>);

impl Locked {
    fn note(&self, key: &[u8]) {
        match &mut *self.0.borrow_mut() {
            Some((first, _)) if key < &first[..] => *first = key.to_vec(),
            Some((_, last)) if key > &last[..] => *last = key.to_vec(),
            Some(_) => {}
            none => *none = Some((key.to_vec(), key.to_vec())),
        }
    }

    /// Returns what is to be purged another time.
    pub(crate) fn into_ghost(self, tree: Tree) -> Option<Ghost> {
        let (key, last) = self.0.into_inner()?;
        let last = (last != key).then_some(last);
        Some(Ghost { tree, key, last })
    }
}

impl Purging<'_> {
    /// Returns whether a ghost may be purged: no transaction holds or waits for a lock on the key
    /// or the gap below it, and no snapshot needs its slot. The caller holds the leaf's latch.
    pub(crate) fn is_purgeable(&self, tree: Tree, key: &[u8]) -> bool {
        self.is_unlocked(tree, key) && self.is_unneeded(tree, key)
    }

    /// As [`Self::is_purgeable`]; notes a ghost that is locked.
    pub(crate) fn is_purgeable_now(&self, tree: Tree, key: &[u8], locked: &Locked) -> bool {
        if !self.is_unlocked(tree, key) {
            reach(Probe::GhostLocked);
            locked.note(key);
            return false;
        }
        self.is_unneeded(tree, key)
    }

    fn is_unlocked(&self, tree: Tree, key: &[u8]) -> bool {
        let is_free = |id| self.locks.is_unlocked(id);
        is_free(LockId::record(tree.table, key)) && is_free(LockId::gap(tree.table, key))
    }

    /// Returns whether no snapshot needs a ghost's slot. The caller holds the leaf's latch.
    pub(crate) fn is_unneeded(&self, tree: Tree, key: &[u8]) -> bool {
        let is_needed = self.versions.needs_slot(tree.table, key);
        if is_needed {
            reach(Probe::GhostKeptForSnapshot);
        }
        !is_needed
    }

    /// Does one step of purging with log space of its own.
    ///
    /// # Errors
    /// [`Error::Full`], before anything is done; those of the step.
    fn step<T>(&self, step: impl FnOnce() -> std::result::Result<T, PoolError>) -> Result<T> {
        let scheme = &*self.store.scheme;
        let bytes = scheme.space_for_operation(0);
        scheme.reserve_system(bytes)?;
        let done = step();
        scheme.unreserve(bytes);
        Ok(done?)
    }

    /// Purges the ghosts from `key` to `last` in up to `most` leaves, but not those that are
    /// `locked`, then merges these leaves. Returns the key to go on with another time. The caller
    /// holds a lock on the table.
    fn purge_leaves(&self, tree: Tree, key: Vec<u8>, last: &[u8], most: usize, locked: &Locked) -> Option<Vec<u8>> {
        let (mut next, mut sparse) = (Some(key), Vec::new());
        for _ in 0..most {
            let Some(key) = next.take() else { break };
            // Asked once the leaf is latched. Without another holder of the table's lock, no other
            // transaction has a lock in the table, and one that takes a lock later reads the leaf
            // again.
            let is_alone = OnceCell::new();
            let is_purgeable =
                |key: &[u8]| match is_alone.get_or_init(|| self.locks.is_held_alone(LockId::table(tree.table))) {
                    true => self.is_unneeded(tree, key),
                    false => self.is_purgeable_now(tree, key, locked),
                };
            match self.step(|| self.store.purge_run(tree, &key, last, is_purgeable, &mut 0)) {
                Ok((is_sparse, behind)) => {
                    next = behind;
                    if is_sparse {
                        sparse.push(key);
                    }
                }
                Err(error) => {
                    next = is_passing(&error).then_some(key);
                    break;
                }
            }
        }
        // Once all of them are empty, because a merge with a full leaf would log that leaf.
        for key in sparse {
            if let Err(error) = self.step(|| self.store.merge(tree, &key, &mut 0)) {
                if is_passing(&error) {
                    next = Some(key);
                }
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
        let (mut kept, mut still_locked) = (Vec::new(), Vec::new());
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
            // The tree may be freed already: then its pages are found not to be the tree's any
            // more. A page that cannot be read is reported to the operations that need it.
            let locked = Locked::default();
            if let Some(last) = ghost.last {
                let key = self.purge_leaves(tree, ghost.key, &last, most_leaves, &locked);
                kept.extend(key.map(|key| Ghost { tree, key, last: Some(last) }));
                still_locked.extend(locked.into_ghost(tree));
                continue;
            }
            let is_purgeable = |key: &[u8]| self.is_purgeable_now(tree, key, &locked);
            match self.step(|| self.store.purge(tree, &ghost.key, is_purgeable, &mut 0)) {
                Err(error) if is_passing(&error) => {
                    kept.push(ghost);
                    kept.extend(ghosts.by_ref());
                }
                _ => still_locked.extend(locked.into_ghost(tree)),
            }
        }
        if !kept.is_empty() {
            self.versions.postpone(kept);
        }
        if !still_locked.is_empty() {
            self.versions.postpone_locked(still_locked);
        }
    }
}

/// Returns whether a step that failed may succeed another time.
fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Full { .. } | Error::PoolExhausted { .. })
}
