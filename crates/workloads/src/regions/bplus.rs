//! A B+-tree: entries lie in the leaves only, and lead from a key to the address of a row. A node
//! has four lines. Its pairs lie one behind the other, so that a pair which comes last is written
//! with two lines: its own and the first one. Insertion splits full nodes on its way down, so that
//! it does not come back up. Nothing is deleted, and leaves are not linked. The word of the
//! structure is the root; a tree of zeros is empty.
//!
//! | words of a node | content |
//! |---|---|
//! | 0 | number of pairs; plus 256 in a leaf |
//! | 1 | in an inner node, the child of keys below the first one |
//! | 2 to 31 | pairs: key and address of a row, or key and child of the keys from this one on |
//!
//! A full node is split in half, but if the new key is above all others of the tree, the left
//! half stays nearly full: keys that only grow leave no half-empty nodes behind.

use crate::regions::arena::{Arena, broken};
use crate::regions::memory::{Addr, AtomicMemory, RegionAccess};
use crate::regions::words::Words;

const WORDS: usize = 32;
const MOST: usize = 15;
const LEAF: u64 = 256;
const FIRST_CHILD: usize = 1;
const PAIRS: usize = 2;
/// Instructions of a search in a node.
const SEARCH: u64 = 20;
/// More levels than any tree has. A damaged tree may have a circle.
const LEVELS: usize = 24;

#[derive(Clone, Copy, Debug)]
pub(crate) struct BPlusTree {
    nodes: Arena,
}

#[derive(Clone, Debug)]
struct Node(Words<WORDS>);

impl Node {
    fn get<M: RegionAccess>(memory: &mut M, at: Addr) -> Result<Self, M::Error> {
        let node = Self(Words::get(memory, at)?);
        if node.len() > MOST {
            return Err(broken(format!("the node at {at} has {} pairs", node.len())));
        }
        Ok(node)
    }

    fn new(at: Addr, is_leaf: bool) -> Self {
        let mut node = Words::new(at);
        node.words[0] = if is_leaf { LEAF } else { 0 };
        Self(node)
    }

    fn len(&self) -> usize {
        (self.0.words[0] % LEAF) as usize
    }

    fn is_leaf(&self) -> bool {
        self.0.words[0] >= LEAF
    }

    fn pair(&self, index: usize) -> (u64, Addr) {
        (self.0.words[PAIRS + 2 * index], self.0.words[PAIRS + 2 * index + 1])
    }

    /// Returns child `index`, of one more than there are pairs.
    fn child(&self, index: usize) -> Addr {
        index.checked_sub(1).map_or(self.0.words[FIRST_CHILD], |pair| self.pair(pair).1)
    }

    /// Returns how many keys are at most `key`.
    fn count_to(&self, key: u64) -> usize {
        (0..self.len()).find(|index| self.pair(*index).0 > key).unwrap_or(self.len())
    }

    /// Returns the row of `key`, in a leaf.
    fn row(&self, key: u64) -> Option<Addr> {
        let (found, row) = self.pair(self.count_to(key).checked_sub(1)?);
        (found == key).then_some(row)
    }

    fn insert(&mut self, index: usize, (key, address): (u64, Addr)) {
        let (from, end) = (PAIRS + 2 * index, PAIRS + 2 * self.len());
        self.0.words.copy_within(from..end, from + 2);
        self.0.words[from..from + 2].copy_from_slice(&[key, address]);
        self.0.words[0] += 1;
    }
}

impl BPlusTree {
    /// Returns the tree in the arena at `base`, for at most so many entries.
    pub(crate) fn new(base: Addr, entries: u64) -> Self {
        // All nodes but those on the way to the last key have 7 pairs or more.
        Self { nodes: Arena::new(base, 1, entries / 6 + LEVELS as u64, WORDS as u64 * 8) }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.nodes.bytes()
    }

    pub(crate) fn make<M: AtomicMemory>(&self, memory: &mut M, lock: M::Lock) -> Result<(), M::Error> {
        self.nodes.make(memory, lock)
    }

    fn root(&self) -> Addr {
        self.nodes.word(0)
    }

    /// Returns the row of `key`.
    pub(crate) fn find<M: RegionAccess>(&self, memory: &mut M, key: u64) -> Result<Option<Addr>, M::Error> {
        let mut at = memory.load(self.root())?;
        for _ in 0..LEVELS {
            if at == 0 {
                return Ok(None);
            }
            memory.work(SEARCH);
            let node = Node::get(memory, at)?;
            if node.is_leaf() {
                return Ok(node.row(key));
            }
            at = node.child(node.count_to(key));
        }
        Err(broken("the way to a leaf has no end"))
    }

    /// Inserts a key that is not in the tree.
    pub(crate) fn insert<M: RegionAccess>(&self, memory: &mut M, key: u64, row: Addr) -> Result<(), M::Error> {
        let root = memory.load(self.root())?;
        let mut node = if root == 0 {
            let new = self.new_node(memory, true)?;
            memory.store(self.root(), new.0.at)?;
            new
        } else {
            Node::get(memory, root)?
        };
        // Whether all nodes so far are the last ones of their levels.
        let mut is_last = true;
        if node.len() == MOST {
            let mut top = self.new_node(memory, false)?;
            top.0.words[FIRST_CHILD] = node.0.at;
            memory.store(self.root(), top.0.at)?;
            node = self.split(memory, &mut top, 0, node, key, true)?;
        }
        for _ in 0..LEVELS {
            memory.work(SEARCH);
            let index = node.count_to(key);
            if node.is_leaf() {
                if node.row(key).is_some() {
                    return Err(broken(format!("key {key} is inserted twice")));
                }
                node.insert(index, (key, row));
                return node.0.put(memory);
            }
            is_last &= index == node.len();
            let child = Node::get(memory, node.child(index))?;
            node = if child.len() == MOST { self.split(memory, &mut node, index, child, key, is_last)? } else { child };
        }
        Err(broken("the way to a leaf has no end"))
    }

    fn new_node<M: RegionAccess>(&self, memory: &mut M, is_leaf: bool) -> Result<Node, M::Error> {
        let at = self.nodes.take(memory)?.ok_or_else(|| broken("there are too few nodes for the entries"))?;
        Ok(Node::new(at, is_leaf))
    }

    /// Splits the full child at `index`, and returns the half that `key` belongs to.
    fn split<M: RegionAccess>(
        &self,
        memory: &mut M,
        parent: &mut Node,
        index: usize,
        mut child: Node,
        key: u64,
        is_last: bool,
    ) -> Result<Node, M::Error> {
        let mut right = self.new_node(memory, child.is_leaf())?;
        let is_above = is_last && child.count_to(key) == MOST;
        // Of an inner node, the pair in the middle goes up, and its child to the right.
        let (keep, skip) = match (child.is_leaf(), is_above) {
            (true, true) => (MOST - 1, 0),
            (false, true) => (MOST - 2, 1),
            (is_leaf, false) => (MOST / 2, usize::from(!is_leaf)),
        };
        let (up, first) = child.pair(keep);
        if skip == 1 {
            right.0.words[FIRST_CHILD] = first;
        }
        for (to, from) in (keep + skip..MOST).enumerate() {
            right.insert(to, child.pair(from));
        }
        child.0.words[0] -= (MOST - keep) as u64;
        parent.insert(index, (up, right.0.at));
        right.0.put(memory)?;
        child.0.put(memory)?;
        parent.0.put(memory)?;
        Ok(if key < up { child } else { right })
    }

    /// Checks the tree, and returns its entries in the order of their keys.
    pub(crate) fn audit<M: RegionAccess>(&self, memory: &mut M) -> Result<Vec<(u64, Addr)>, M::Error> {
        let root = memory.load(self.root())?;
        let mut walk = Walk::default();
        if root != 0 {
            walk.visit(memory, root, 0, (0, u64::MAX))?;
        }
        self.nodes.audit(memory, walk.nodes)?;
        Ok(walk.entries)
    }
}

/// An audit under way.
#[derive(Default)]
struct Walk {
    entries: Vec<(u64, Addr)>,
    nodes: u64,
    /// The level of the leaves.
    leaves: Option<usize>,
}

impl Walk {
    /// Visits a node whose keys are within `bounds`, both included.
    fn visit<M: RegionAccess>(
        &mut self,
        memory: &mut M,
        at: Addr,
        level: usize,
        bounds: (u64, u64),
    ) -> Result<(), M::Error> {
        let node = Node::get(memory, at)?;
        self.nodes += 1;
        let keys: Vec<u64> = (0..node.len()).map(|index| node.pair(index).0).collect();
        let in_bounds = keys.iter().all(|key| (bounds.0..=bounds.1).contains(key));
        if !keys.is_sorted_by(|one, next| one < next) || !in_bounds || keys.is_empty() || level == LEVELS {
            return Err(broken(format!("the node at {at} has the keys {keys:?}, which should be within {bounds:?}")));
        }
        if node.is_leaf() {
            if *self.leaves.get_or_insert(level) != level {
                return Err(broken(format!("the leaf at {at} is on level {level}, others are not")));
            }
            self.entries.extend((0..node.len()).map(|index| node.pair(index)));
            return Ok(());
        }
        for index in 0..=node.len() {
            let low = index.checked_sub(1).map_or(bounds.0, |pair| keys[pair]);
            let high = keys.get(index).map_or(bounds.1, |key| key - 1);
            self.visit(memory, node.child(index), level + 1, (low, high))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "bplus_tests.rs"]
mod tests;
