//! Removes ghosts for good.
//!
//! A ghost keeps the place of a deleted key, so that the locks on the key and on the gap before it
//! continue to protect the same key range. A ghost may be removed when no transaction holds or
//! waits for either lock, which is checked under the leaf's exclusive latch: a transaction that
//! takes such a lock later reads the leaf again and finds that the ghost is gone. (A transaction
//! that has locked the table knows that there is none.)

use duramen_sync::probe::{Probe, reach};

use super::number;
use super::structure::{SPARSE, is_ghost};
use crate::page::{self, Node, NodeMut, PageBuf, PageType};
use crate::pool::{Exclusive, PoolError};
use crate::record::PageOp;
use crate::record::Tree;
use crate::storage::mini_transaction::MiniTransaction;
use crate::storage::store::Store;

impl Store {
    /// Removes the ghost at `key` if it still is one and `unlocked` permits it; merges the leaf if
    /// the removal makes it sparse. Adds the bytes of log that this took to `logged`, even if an
    /// error ends it.
    pub(crate) fn purge(
        &self,
        tree: Tree,
        key: &[u8],
        unlocked: impl Fn(&[u8]) -> bool,
        logged: &mut u64,
    ) -> Result<(), PoolError> {
        let leaf = self.leaf_exclusive(tree, key)?;
        let (slot, found) = Node(&leaf[..]).lower_bound(key);
        if !found || !is_ghost(Node(&leaf[..]).flags(slot)) || !unlocked(key) {
            return Ok(());
        }
        reach(Probe::GhostPurged);
        let mut mini = MiniTransaction::new();
        let leaf = mini.include(leaf);
        mini.apply(leaf, PageOp::Remove { slot: number(slot) });
        let sparse = Node(mini.page(leaf)).used_space() < SPARSE;
        *logged += mini.finish(&*self.scheme);
        if sparse { self.merge_if_sparse(tree, key, logged) } else { Ok(()) }
    }

    /// Removes the ghosts that `unlocked` permits from the leaf for `key`, up to the key `last`.
    /// Returns whether the leaf is sparse now, and the lowest key behind it, if that is not beyond
    /// `last`. Adds the bytes of log that this took to `logged`.
    pub(crate) fn purge_run(
        &self,
        tree: Tree,
        key: &[u8],
        last: &[u8],
        unlocked: impl Fn(&[u8]) -> bool,
        logged: &mut u64,
    ) -> Result<(bool, Option<Vec<u8>>), PoolError> {
        let leaf = self.leaf_exclusive(tree, key)?;
        let mut next = Vec::new();
        let is_bounded = Node(&leaf[..]).upper_fence_into(&mut next);
        next.push(0);
        let next = (is_bounded && &next[..] <= last).then_some(next);
        let was_sparse = Node(&leaf[..]).used_space() < SPARSE;
        match self.purge_leaf(leaf, |found| key <= found && found <= last && unlocked(found)) {
            Ok(Purged { bytes, is_sparse }) => {
                reach(Probe::GhostPurged);
                *logged += bytes;
                Ok((is_sparse, next))
            }
            Err(_) => Ok((was_sparse, next)),
        }
    }

    /// Merges the leaf for `key` with a sibling if it is sparse, and so on upwards.
    /// Adds the bytes of log that this took to `logged`.
    pub(crate) fn merge(&self, tree: Tree, key: &[u8], logged: &mut u64) -> Result<(), PoolError> {
        self.merge_if_sparse(tree, key, logged)
    }

    /// Removes every ghost of a latched leaf that `unlocked` allows; returns the leaf if there was
    /// none.
    pub(crate) fn purge_leaf<'s>(
        &'s self,
        leaf: Exclusive<'s>,
        unlocked: impl Fn(&[u8]) -> bool,
    ) -> Result<Purged, Exclusive<'s>> {
        let node = Node(&leaf[..]);
        let mut key = Vec::new();
        let mut ghosts = Vec::new();
        for slot in (0..node.slot_count()).rev().filter(|&slot| is_ghost(node.flags(slot))) {
            node.key_into(slot, &mut key);
            if unlocked(&key) {
                ghosts.push(number(slot));
            }
        }
        if ghosts.is_empty() {
            return Err(leaf);
        }
        let emptied = (ghosts.len() == node.slot_count()).then(|| emptied(&leaf));
        let mut mini = MiniTransaction::new();
        let leaf = mini.include(leaf);
        match emptied {
            Some(bytes) => mini.apply(leaf, PageOp::Image(&page::image(&bytes))),
            None => ghosts.into_iter().for_each(|slot| mini.apply(leaf, PageOp::Remove { slot })),
        }
        let is_sparse = Node(mini.page(leaf)).used_space() < SPARSE;
        Ok(Purged { bytes: mini.finish(&*self.scheme), is_sparse })
    }
}

/// What the removal of the ghosts of a leaf has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purged {
    /// Bytes of log that this took.
    pub(crate) bytes: u64,
    is_sparse: bool,
}

/// Returns the leaf without its records.
fn emptied(leaf: &Exclusive<'_>) -> PageBuf {
    let (node, table) = (Node(&leaf[..]), page::table_id(leaf));
    let mut bytes = PageBuf::zeroed();
    let (lower, upper) = (node.lower_fence(), node.upper_fence());
    NodeMut::init(bytes.page_mut(), PageType::Leaf, 0, leaf.id(), table, lower, upper);
    bytes
}
