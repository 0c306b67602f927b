//! Finds keys.

use duramen_types::{PAGE_SIZE, PageId, planted};

use super::{MAX_LEVELS, NOT_THE_CHILD, retry, step_up};
use crate::page::{Node, PageBytes, SlotFlags};
use crate::pool::broken;
use crate::pool::{Exclusive, Interrupt, Optimistic, PoolError};
use crate::record::Tree;
use crate::storage::store::Store;

/// What a lookup finds at a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lookup {
    /// A record; its value was read.
    Record(SlotFlags),
    /// A deleted record that has not been purged.
    Ghost,
    /// Nothing.
    Absent,
}

/// The direction of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// The next key of a tree, or its end.
pub(crate) type Neighbour = Option<Vec<u8>>;

/// The leaf that a descent looks for.
#[derive(Clone, Copy)]
enum Target<'k> {
    /// The leaf whose fences enclose the key.
    Key(&'k [u8]),
    /// The last leaf of the tree.
    Last,
}

impl Target<'_> {
    /// Returns the child of an inner node that the descent enters next, and its number.
    #[inline(always)]
    fn child_of<B: PageBytes>(self, node: &Node<B>) -> (usize, PageId) {
        match self {
            Self::Key(key) => node.child_for(key),
            Self::Last => (node.slot_count(), node.child(node.slot_count())),
        }
    }
}

impl Store {
    /// Returns the leaf whose fences enclose `key`. What is read from it counts only once the guard
    /// has been validated.
    pub(crate) fn leaf(&self, tree: Tree, key: &[u8]) -> Result<Optimistic<'_>, Interrupt> {
        self.descend(tree, 0, Target::Key(key)).map(|(_, leaf)| leaf)
    }

    /// Returns the last leaf of the tree.
    pub(crate) fn last_leaf(&self, tree: Tree) -> Result<Optimistic<'_>, Interrupt> {
        self.descend(tree, 0, Target::Last).map(|(_, leaf)| leaf)
    }

    /// Returns the node at `level` (the root, if the tree is lower) whose fences enclose `key`, and
    /// its parent if it has one.
    pub(super) fn node_and_parent(
        &self,
        tree: Tree,
        key: &[u8],
        level: u8,
    ) -> Result<(Option<Optimistic<'_>>, Optimistic<'_>), Interrupt> {
        self.descend(tree, level, Target::Key(key))
    }

    /// Descends to the node at `level`. Checks each node that it enters against the parent: the
    /// node must belong to this tree, lie one level below, and have the parent's separators as its
    /// fences. The check detects a page that was replaced by an older version of itself, which
    /// would mislead a search, or make a scan loop.
    #[inline]
    fn descend<'s>(
        &'s self,
        tree: Tree,
        level: u8,
        target: Target<'_>,
    ) -> Result<(Option<Optimistic<'s>>, Optimistic<'s>), Interrupt> {
        let mut parent: Option<Optimistic<'s>> = None;
        let mut current = self.pool.optimistic(tree.root)?;
        let root = Node(current.page());
        if !root.is_of(tree.table, root.level()) {
            current.validate()?;
            return Err(broken(current.id(), "the page is not the root of its table").into());
        }
        for _ in 0..MAX_LEVELS {
            let node = Node(current.page());
            let at = node.level();
            if at <= level {
                current.validate()?;
                return Ok((parent, current));
            }
            let (slot, child) = target.child_of(&node);
            current.validate()?;
            if child.is_zero() {
                return Err(broken(current.id(), "a child pointer is zero").into());
            }
            let next = self.pool.optimistic(child)?;
            if !planted!(SplitNotSeen) {
                current.validate()?;
            }
            if at == 1 {
                next.page().fetch_ahead();
            }
            if !next.is_known_child_of(&current) && !planted!(FencesNotCompared) {
                let kinship = next.kinship(&current);
                let is_child = node.is_parent(slot, &Node(next.page()), tree.table);
                // The comparison counts only if neither node has changed since it was read.
                next.validate()?;
                if !planted!(SplitNotSeen) {
                    current.validate()?;
                }
                if !is_child {
                    return Err(broken(child, NOT_THE_CHILD).into());
                }
                next.note_child(kinship);
            }
            parent = Some(current);
            current = next;
        }
        Err(broken(tree.root, "the tree has more levels than a tree can have").into())
    }

    /// Copies the node at `level` (the root, if the tree is lower) whose fences enclose `key` into
    /// `bytes` (which is cleared first).
    pub(crate) fn copy_node(&self, tree: Tree, level: u8, key: &[u8], bytes: &mut Vec<u8>) -> Result<(), PoolError> {
        retry(|| {
            let (_, node) = self.descend(tree, level, Target::Key(key))?;
            bytes.clear();
            node.page().copy_into(0, PAGE_SIZE, bytes);
            Ok(node.validate()?)
        })
    }

    /// Returns the leaf for `key`, latched exclusively.
    pub(crate) fn leaf_exclusive(&self, tree: Tree, key: &[u8]) -> Result<Exclusive<'_>, PoolError> {
        retry(|| Ok(self.leaf(tree, key)?.upgrade()?))
    }

    /// Looks up `key` and copies its value into `value` (which is cleared first).
    pub(crate) fn lookup(&self, tree: Tree, key: &[u8], value: &mut Vec<u8>) -> Result<Lookup, PoolError> {
        retry(|| {
            let leaf = self.leaf(tree, key)?;
            let found = look(&Node(leaf.page()), key, value);
            leaf.validate()?;
            Ok(found)
        })
    }

    /// Copies a record into `value` (which is cleared first), if it can be had without its leaf,
    /// which is in no frame. The caller has a lock on the record.
    pub(crate) fn lookup_tuple(
        &self,
        tree: Tree,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<Option<SlotFlags>, PoolError> {
        let Some(tuples) = self.pool.tuples() else { return Ok(None) };
        retry(|| {
            let (_, parent) = self.descend(tree, 1, Target::Key(key))?;
            let node = Node(parent.page());
            let leaf = (node.level() == 1).then(|| node.child_for(key).1);
            parent.validate()?;
            let Some(leaf) = leaf.filter(|leaf| !self.pool.is_resident(*leaf)) else { return Ok(None) };
            let found = tuples.record(leaf, key, value);
            // A structure change may have moved the key to another leaf.
            parent.validate()?;
            Ok(found)
        })
    }

    /// Looks up `key` as [`Self::lookup`] does. If nothing (not even a ghost) is there, also
    /// returns the next key above it: the key whose gap lock protects the absence.
    ///
    /// Returns none where so many empty leaves lie between them that they cannot be seen at one
    /// moment ([`TooFar`]).
    pub(crate) fn lookup_or_next(
        &self,
        tree: Tree,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<Option<(Lookup, Neighbour)>, PoolError> {
        let mut too_far = TooFar::new();
        retry(|| {
            let leaf = self.leaf(tree, key)?;
            let node = Node(leaf.page());
            let found = look(&node, key, value);
            if found != Lookup::Absent {
                leaf.validate()?;
                return Ok(Some((found, None)));
            }
            let (slot, _) = node.lower_bound(key);
            let mut seen = Vec::new();
            let next = self.key_at_or_above(tree, leaf, slot, &mut seen)?;
            // Other threads may have inserted keys into these leaves while later ones were read.
            if seen.iter().all(|leaf| leaf.validate().is_ok()) {
                return Ok(Some((found, next)));
            }
            if too_far.is_reached(seen.len()) { Ok(None) } else { Err(Interrupt::Restart) }
        })
    }

    /// Returns the key (ghosts included) at `slot` of a leaf or, if there is none, the first one in
    /// the leaves above it. Then it adds all these leaves to `seen`.
    pub(crate) fn key_at_or_above<'s>(
        &'s self,
        tree: Tree,
        leaf: Optimistic<'s>,
        slot: usize,
        seen: &mut Vec<Optimistic<'s>>,
    ) -> Result<Neighbour, Interrupt> {
        let (node, mut key) = (Node(leaf.page()), Vec::new());
        if slot < node.slot_count() {
            node.key_into(slot, &mut key);
            leaf.validate()?;
            return Ok(Some(key));
        }
        let is_bounded = node.upper_fence_into(&mut key);
        leaf.validate()?;
        seen.push(leaf);
        if is_bounded { self.first_key_above(tree, key, seen) } else { Ok(None) }
    }

    /// Returns the smallest key (ghosts included) above a leaf's upper fence. Adds all leaves that
    /// it has read to `seen`.
    pub(crate) fn first_key_above<'s>(
        &'s self,
        tree: Tree,
        fence: Vec<u8>,
        seen: &mut Vec<Optimistic<'s>>,
    ) -> Result<Neighbour, Interrupt> {
        let mut key = fence;
        key.push(0);
        loop {
            let leaf = self.leaf(tree, &key)?;
            seen.push(leaf);
            let node = Node(leaf.page());
            // An emptied leaf may have been merged with the leaf below the fence: then this leaf
            // holds keys below the fence, too.
            let (slot, _) = node.lower_bound(&key);
            if slot < node.slot_count() {
                node.key_into(slot, &mut key);
                leaf.validate()?;
                return Ok(Some(key));
            }
            if !step_up(&leaf, &mut key)? {
                return Ok(None);
            }
        }
    }
}

/// Notices that a read steps over so many empty leaves in a row that it may never see all of them
/// at one moment: the first ones leave the pool, or change, before the last one is read. The reader
/// then locks the table; under that lock it need not see them at one moment.
#[derive(Debug)]
pub(crate) struct TooFar {
    attempts: u32,
}

impl TooFar {
    const ATTEMPTS: u32 = 8;
    const LEAVES: usize = 8;

    pub(crate) fn new() -> Self {
        Self { attempts: 0 }
    }

    /// Counts an attempt that failed, and read `leaves`. Returns whether it should be the last.
    pub(crate) fn is_reached(&mut self, leaves: usize) -> bool {
        self.attempts += u32::from(leaves > Self::LEAVES);
        self.attempts >= Self::ATTEMPTS
    }
}

#[inline]
fn look<B: PageBytes>(node: &Node<B>, key: &[u8], value: &mut Vec<u8>) -> Lookup {
    value.clear();
    let (slot, found) = node.lower_bound(key);
    if !found {
        return Lookup::Absent;
    }
    let flags = node.flags(slot);
    if flags.contains(SlotFlags::GHOST) {
        return Lookup::Ghost;
    }
    node.value_into(slot, value);
    Lookup::Record(flags)
}
