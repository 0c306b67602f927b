//! Splits and merges: system transactions that change the shape of a tree and none of its contents.

use duramen_sync::probe::{Probe, reach};
use duramen_types::{PAGE_SIZE, PageId, TableId};

use super::{NOT_THE_CHILD, retry};
use crate::page::{self, Node, NodeMut, PageBuf, PageType, SlotFlags};
use crate::pool::broken;
use crate::pool::{Exclusive, Interrupt, PoolError};
use crate::record::PageOp;
use crate::record::Tree;
use crate::storage::free_space::Purpose;
use crate::storage::mini_transaction::MiniTransaction;
use crate::storage::store::Store;

/// A node with fewer bytes in it than this looks for a sibling to merge with.
pub(super) const SPARSE: usize = PAGE_SIZE / 4;

/// Two nodes merge if the result has space to grow: it takes at most this many bytes.
const MERGED: usize = PAGE_SIZE * 3 / 4;

impl Store {
    /// Splits the leaf to free space for `key` with a value of `value_len` bytes. Adds the bytes of
    /// log that this took to `logged`, even if an error ends it.
    pub(crate) fn split_leaf(
        &self,
        tree: Tree,
        key: &[u8],
        value_len: usize,
        purpose: Purpose,
        logged: &mut u64,
    ) -> Result<(), PoolError> {
        self.split(tree, key, 0, SpaceNeeded { key_len: key.len(), value_len }, purpose, logged)
    }

    fn split(
        &self,
        tree: Tree,
        key: &[u8],
        level: u8,
        needed: SpaceNeeded,
        purpose: Purpose,
        logged: &mut u64,
    ) -> Result<(), PoolError> {
        let before = *logged;
        loop {
            match retry(|| self.try_split(tree, key, level, needed, purpose))? {
                Split::Done => {
                    if *logged == before {
                        reach(Probe::SplitByAnother);
                    }
                    return Ok(());
                }
                Split::Progress(bytes) => *logged += bytes,
                Split::ParentLacks(needed) => self.split(tree, key, level + 1, needed, purpose, logged)?,
            }
        }
    }

    /// Splits the node at `level`, unless it has enough space by now: another thread may have split
    /// it since it was found full.
    fn try_split(
        &self,
        tree: Tree,
        key: &[u8],
        level: u8,
        needed: SpaceNeeded,
        purpose: Purpose,
    ) -> Result<Split, Interrupt> {
        let (parent, node) = self.node_and_parent(tree, key, level)?;
        let Some(parent) = parent else {
            let root = node.upgrade()?;
            if page::level(&root) < level || needed.is_in(&root) {
                return Ok(Split::Done);
            }
            return Ok(Split::Progress(self.push_root_down(root, purpose)?));
        };
        let parent = parent.upgrade()?;
        let node = node.upgrade()?;
        if needed.is_in(&node) {
            return Ok(Split::Done);
        }
        let view = Node(&node[..]);
        if view.slot_count() < if level == 0 { 2 } else { 3 } {
            return Err(broken(node.id(), "a full node has too few entries to be split").into());
        }
        let hint = view.lower_bound(key).0;
        let (slot, separator) = if level == 0 {
            page::split_point_for(view, hint, needed.key_len + needed.value_len)
        } else {
            page::split_point(view, hint)
        };
        let above = SpaceNeeded { key_len: separator.len(), value_len: size_of::<u64>() };
        if !above.is_in(&parent) {
            return Ok(Split::ParentLacks(above));
        }
        let (parent_slot, child) = Node(&parent[..]).child_for(key);
        if child != node.id() {
            return Err(broken(parent.id(), "a child is not at the position of its key").into());
        }

        let taken = self.space.take(&self.pool, &*self.scheme, purpose)?;
        let right = self.pool.create(taken.page)?;
        let mut bytes = PageBuf::zeroed();
        page::build_right(Node(&node[..]), slot, &separator, &mut bytes.page_mut(), right.id());
        let (slot, parent_slot, right_id) = (number(slot), number(parent_slot), right.id());

        let mut mini = MiniTransaction::new();
        let left = mini.include(node);
        let right = mini.include(right);
        let parent = mini.include(parent);
        mini.apply(right, PageOp::Image(&page::image(&bytes)));
        mini.apply(left, PageOp::Truncate { slot, separator: &separator });
        mini.apply(parent, PageOp::SplitChild { slot: parent_slot, separator: &separator, right: right_id });
        taken.record(&mut mini);
        reach(Probe::NodeSplit);
        Ok(Split::Progress(mini.finish(&*self.scheme)))
    }

    /// Moves the contents of the root into a new child, its only one.
    fn push_root_down(&self, root: Exclusive<'_>, purpose: Purpose) -> Result<u64, PoolError> {
        reach(Probe::RootPushedDown);
        let taken = self.space.take(&self.pool, &*self.scheme, purpose)?;
        let child = self.pool.create(taken.page)?;
        let mut below = PageBuf::copy_of(&root);
        page::set_page_id(&mut below.page_mut(), child.id());
        let mut above = PageBuf::zeroed();
        let level = page::level(&root) + 1;
        let (ty, table) = (PageType::Inner, page::table_id(&root));
        NodeMut::init(above.page_mut(), ty, level, root.id(), table, None, None).set_rightmost(child.id());

        let mut mini = MiniTransaction::new();
        let root = mini.include(root);
        let child = mini.include(child);
        mini.apply(child, PageOp::Image(&page::image(&below)));
        mini.apply(root, PageOp::Image(&page::image(&above)));
        taken.record(&mut mini);
        Ok(mini.finish(&*self.scheme))
    }

    /// Merges the leaf for `key` with a sibling if it has become sparse, and so on upwards. This is
    /// an optimization: it gives up when other threads interfere. Adds the bytes of log that this
    /// took to `logged`.
    pub(super) fn merge_if_sparse(&self, tree: Tree, key: &[u8], logged: &mut u64) -> Result<(), PoolError> {
        let mut level = 0;
        loop {
            match self.try_merge(tree, key, level, logged) {
                Ok(true) => level += 1,
                Ok(false) => return Ok(()),
                Err(Interrupt::Restart) => {
                    reach(Probe::MergeGivenUp);
                    return Ok(());
                }
                Err(Interrupt::Failed(error)) => return Err(error),
            }
        }
    }

    /// Merges the node at `level` with a sibling. Returns whether the parent has lost a child, and
    /// may have become sparse itself.
    fn try_merge(&self, tree: Tree, key: &[u8], level: u8, logged: &mut u64) -> Result<bool, Interrupt> {
        let (parent, node) = self.node_and_parent(tree, key, level)?;
        let Some(parent) = parent else {
            let root = node.upgrade()?;
            let view = Node(&root[..]);
            if !view.is_leaf() && view.slot_count() == 0 {
                *logged += self.pull_root_up(root)?;
            }
            return Ok(false);
        };
        let parent = parent.upgrade()?;
        let node = node.upgrade()?;
        if Node(&node[..]).used_space() >= SPARSE {
            return Ok(false);
        }
        let above = Node(&parent[..]);
        let (at, child) = above.child_for(key);
        if child != node.id() {
            return Err(broken(parent.id(), "a child is not at the position of its key").into());
        }
        if above.slot_count() == 0 {
            // An only child: the parent must find a sibling first.
            return Ok(true);
        }
        let right = (at < above.slot_count()).then(|| (at, above.child(at + 1)));
        let left = (at > 0).then(|| (at - 1, above.child(at - 1)));
        let mut partner = None;
        for (slot, sibling) in right.into_iter().chain(left) {
            let Some(sibling) = self.pool.try_exclusive(sibling)? else { return Ok(false) };
            let number = if slot == at { at + 1 } else { slot };
            if !above.is_parent(number, &Node(&sibling[..]), tree.table) {
                return Err(broken(sibling.id(), NOT_THE_CHILD).into());
            }
            let (lower, upper) = if slot == at { (&node, &sibling) } else { (&sibling, &node) };
            if can_merge(Node(&lower[..]), Node(&upper[..])) {
                partner = Some((slot, sibling));
                break;
            }
        }
        let Some((slot, sibling)) = partner else { return Ok(false) };
        let (left, right) = if slot == at { (node, sibling) } else { (sibling, node) };
        let right_view = Node(&right[..]);
        let mut separator = Vec::new();
        above.key_into(slot, &mut separator);
        let mut merged = PageBuf::copy_of(&left);
        page::merge_into(&mut merged.page_mut(), right_view, &separator);

        let slot = number(slot);
        let mut mini = MiniTransaction::new();
        let left = mini.include(left);
        let right = mini.include(right);
        let parent = mini.include(parent);
        self.space.give_back(&self.pool, &mut mini, right)?;
        mini.apply(left, PageOp::Image(&page::image(&merged)));
        mini.apply(parent, PageOp::MergeChild { slot });
        reach(Probe::NodesMerged);
        *logged += mini.finish(&*self.scheme);
        Ok(true)
    }

    /// Moves the contents of the root's only child into the root; returns the bytes of log that
    /// this took.
    fn pull_root_up(&self, root: Exclusive<'_>) -> Result<u64, Interrupt> {
        let view = Node(&root[..]);
        let Some(child) = self.pool.try_exclusive(view.child(0))? else { return Err(Interrupt::Restart) };
        if !view.is_parent(0, &Node(&child[..]), page::table_id(&root)) {
            return Err(broken(child.id(), NOT_THE_CHILD).into());
        }
        let mut contents = PageBuf::copy_of(&child);
        page::set_page_id(&mut contents.page_mut(), root.id());

        let mut mini = MiniTransaction::new();
        let root = mini.include(root);
        let child = mini.include(child);
        self.space.give_back(&self.pool, &mut mini, child)?;
        mini.apply(root, PageOp::Image(&page::image(&contents)));
        Ok(mini.finish(&*self.scheme))
    }

    /// Allocates a page for the root of a new, empty tree and describes both in `mini`; returns the
    /// root's page.
    pub(crate) fn plant<'s>(&'s self, table: TableId, mini: &mut MiniTransaction<'s>) -> Result<PageId, PoolError> {
        let taken = self.space.take(&self.pool, &*self.scheme, Purpose::Work)?;
        let root = self.pool.create(taken.page)?;
        let id = root.id();
        let index = mini.include(root);
        mini.apply(index, PageOp::Image(&page::image(&empty_root(id, table))));
        taken.record(mini);
        Ok(id)
    }
}

/// Returns the root page of an empty tree.
pub(crate) fn empty_root(id: PageId, table: TableId) -> PageBuf {
    let mut bytes = PageBuf::zeroed();
    NodeMut::init(bytes.page_mut(), PageType::Leaf, 0, id, table, None, None);
    bytes
}

enum Split {
    /// The node has enough space.
    Done,
    /// A node was split or pushed down, which took this many bytes of log.
    Progress(u64),
    /// The separator does not fit the parent, which must be split first.
    ParentLacks(SpaceNeeded),
}

/// Space for one more entry.
#[derive(Clone, Copy)]
struct SpaceNeeded {
    key_len: usize,
    value_len: usize,
}

impl SpaceNeeded {
    fn is_in(self, node: &[u8]) -> bool {
        Node(node).room_for(self.key_len, self.value_len)
    }
}

/// Returns whether two neighbours should become one: the result has space to grow, or one of them
/// is empty.
fn can_merge(left: Node<&[u8]>, right: Node<&[u8]>) -> bool {
    let empty = left.is_leaf() && (left.slot_count() == 0 || right.slot_count() == 0);
    (empty || page::merged_size(left, right) <= MERGED) && page::merge_fits(left, right)
}

/// Converts a slot number, which fits 16 bits: a page has 8,192 bytes.
pub(crate) fn number(slot: usize) -> u16 {
    u16::try_from(slot).expect("a page holds fewer than 65,536 records")
}

/// Returns whether a slot with these flags can be purged.
pub(super) fn is_ghost(flags: SlotFlags) -> bool {
    flags.contains(SlotFlags::GHOST)
}
