//! A b-tree of order 8. Its nodes have up to 7 keys with links to their entries, and up to 8
//! children; entries are nodes of an arena of their own. Insertion splits full nodes on its way
//! down, deletion fills nodes of 3 keys, so that neither comes back up. The word of the structure
//! is the root.
//!
//! | words of a node | content |
//! |---|---|
//! | 0 | number of keys; plus 256 in a leaf |
//! | 1 to 7 | keys |
//! | 8 to 14 | their entries |
//! | 15 to 22 | children |

use crate::regions::arena::{Arena, Scale, broken, check_entry, write_node};
use crate::regions::memory::{Addr, AtomicMemory, RegionAccess};
use crate::regions::words::Words;

const WORDS: usize = 24;
const MOST: usize = 7;
const LEAST: usize = 3;
const KEYS: usize = 1;
const ENTRIES: usize = 8;
const CHILDREN: usize = 15;
const LEAF: u64 = 256;
/// Words of an entry's node before the entry: the key.
const ENTRY_WORDS: u64 = 1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct BTree {
    nodes: Arena,
    entries: Arena,
    scale: Scale,
}

#[derive(Clone, Debug)]
struct Node(Words<WORDS>);

impl Node {
    fn get<M: RegionAccess>(memory: &mut M, at: Addr) -> Result<Self, M::Error> {
        Ok(Self(Words::get(memory, at)?))
    }

    /// Returns an empty node. All its words are stored.
    fn new(at: Addr, is_leaf: bool) -> Self {
        let mut node = Words::new(at);
        node.words[0] = if is_leaf { LEAF } else { 0 };
        Self(node)
    }

    fn put<M: RegionAccess>(&mut self, memory: &mut M) -> Result<(), M::Error> {
        self.0.put(memory)
    }

    fn len(&self) -> usize {
        (self.0.words[0] % LEAF) as usize
    }

    fn is_leaf(&self) -> bool {
        self.0.words[0] >= LEAF
    }

    fn key(&self, index: usize) -> u64 {
        self.0.words[KEYS + index]
    }

    fn child(&self, index: usize) -> Addr {
        self.0.words[CHILDREN + index]
    }

    fn pair(&self, index: usize) -> (u64, Addr) {
        (self.0.words[KEYS + index], self.0.words[ENTRIES + index])
    }

    fn set_pair(&mut self, index: usize, (key, entry): (u64, Addr)) {
        (self.0.words[KEYS + index], self.0.words[ENTRIES + index]) = (key, entry);
    }

    /// Returns the first key that is not below `key`, and whether it is the key.
    fn search(&self, key: u64) -> (usize, bool) {
        let index = (0..self.len()).find(|index| self.key(*index) >= key).unwrap_or(self.len());
        (index, index < self.len() && self.key(index) == key)
    }

    /// Inserts a pair, and a child at `child` if the node has children.
    fn insert(&mut self, index: usize, pair: (u64, Addr), child: Option<(usize, Addr)>) {
        let len = self.len();
        self.0.words.copy_within(KEYS + index..KEYS + len, KEYS + index + 1);
        self.0.words.copy_within(ENTRIES + index..ENTRIES + len, ENTRIES + index + 1);
        self.set_pair(index, pair);
        if let Some((place, at)) = child {
            self.0.words.copy_within(CHILDREN + place..CHILDREN + len + 1, CHILDREN + place + 1);
            self.0.words[CHILDREN + place] = at;
        }
        self.0.words[0] += 1;
    }

    /// Removes a pair, and the child at `child` if the node has children.
    fn remove(&mut self, index: usize, child: Option<usize>) {
        let len = self.len();
        self.0.words.copy_within(KEYS + index + 1..KEYS + len, KEYS + index);
        self.0.words.copy_within(ENTRIES + index + 1..ENTRIES + len, ENTRIES + index);
        if let Some(place) = child {
            self.0.words.copy_within(CHILDREN + place + 1..CHILDREN + len + 1, CHILDREN + place);
        }
        self.0.words[0] -= 1;
    }
}

impl BTree {
    pub(crate) fn new(base: Addr, scale: Scale) -> Self {
        // All nodes but the root have 3 keys or more.
        let nodes = Arena::new(base, 1, scale.entries / LEAST as u64 + 2, WORDS as u64 * 8);
        let entries = Arena::new(base + nodes.bytes(), 0, scale.entries, scale.size.bytes());
        Self { nodes, entries, scale }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.nodes.bytes() + self.entries.bytes()
    }

    pub(crate) fn make<M: AtomicMemory>(&self, memory: &mut M, lock: M::Lock) -> Result<(), M::Error> {
        self.nodes.make(memory, lock)?;
        self.entries.make(memory, lock)
    }

    fn root(&self) -> Addr {
        self.nodes.word(0)
    }

    /// Deletes the key if it is there, else inserts it; a full tree stays as it is.
    pub(crate) fn toggle<M: RegionAccess>(&self, memory: &mut M, key: u64) -> Result<(), M::Error> {
        if let Some(entry) = self.find(memory, key)? {
            self.delete(memory, key)?;
            return self.entries.give_back(memory, entry);
        }
        let Some(entry) = self.entries.take(memory)? else { return Ok(()) };
        write_node(memory, entry, [key], self.scale.size, key)?;
        self.insert(memory, (key, entry))
    }

    fn find<M: RegionAccess>(&self, memory: &mut M, key: u64) -> Result<Option<Addr>, M::Error> {
        let mut at = memory.load(self.root())?;
        while at != 0 {
            memory.work(20);
            let node = Node::get(memory, at)?;
            let (index, is_found) = node.search(key);
            if is_found {
                return Ok(Some(node.pair(index).1));
            }
            at = if node.is_leaf() { 0 } else { node.child(index) };
        }
        Ok(None)
    }

    fn new_node<M: RegionAccess>(&self, memory: &mut M, is_leaf: bool) -> Result<Node, M::Error> {
        let at = self.nodes.take(memory)?.ok_or_else(|| broken("there are too few nodes for the entries"))?;
        Ok(Node::new(at, is_leaf))
    }

    fn insert<M: RegionAccess>(&self, memory: &mut M, pair: (u64, Addr)) -> Result<(), M::Error> {
        let root = memory.load(self.root())?;
        let mut node = if root == 0 {
            let new = self.new_node(memory, true)?;
            memory.store(self.root(), new.0.at)?;
            new
        } else {
            Node::get(memory, root)?
        };
        if node.len() == MOST {
            let mut top = self.new_node(memory, false)?;
            top.0.words[CHILDREN] = node.0.at;
            memory.store(self.root(), top.0.at)?;
            self.split(memory, &mut top, 0, node)?;
            node = top;
        }
        while !node.is_leaf() {
            let (mut index, _) = node.search(pair.0);
            let child = Node::get(memory, node.child(index))?;
            if child.len() == MOST {
                self.split(memory, &mut node, index, child)?;
                index += usize::from(pair.0 > node.key(index));
                node = Node::get(memory, node.child(index))?;
            } else {
                node = child;
            }
        }
        let (index, _) = node.search(pair.0);
        node.insert(index, pair, None);
        node.put(memory)
    }

    /// Splits the full child at `index`.
    fn split<M: RegionAccess>(
        &self,
        memory: &mut M,
        parent: &mut Node,
        index: usize,
        mut child: Node,
    ) -> Result<(), M::Error> {
        let mut right = self.new_node(memory, child.is_leaf())?;
        for place in LEAST + 1..MOST {
            right.set_pair(place - LEAST - 1, child.pair(place));
        }
        if !child.is_leaf() {
            for place in LEAST + 1..=MOST {
                right.0.words[CHILDREN + place - LEAST - 1] = child.child(place);
            }
        }
        right.0.words[0] += (MOST - LEAST - 1) as u64;
        child.0.words[0] -= (MOST - LEAST) as u64;
        parent.insert(index, child.pair(LEAST), Some((index + 1, right.0.at)));
        right.put(memory)?;
        child.put(memory)?;
        parent.put(memory)
    }

    /// Removes a key that is in the tree; its entry stays.
    fn delete<M: RegionAccess>(&self, memory: &mut M, mut key: u64) -> Result<(), M::Error> {
        let root = memory.load(self.root())?;
        let mut node = Node::get(memory, root)?;
        loop {
            let (index, is_found) = node.search(key);
            if node.is_leaf() {
                if !is_found {
                    return Err(broken(format!("key {key} is in no leaf")));
                }
                node.remove(index, None);
                if node.len() == 0 {
                    // Only a root can be empty.
                    memory.store(self.root(), 0)?;
                    return self.nodes.give_back(memory, node.0.at);
                }
                return node.put(memory);
            }
            if is_found {
                let left = Node::get(memory, node.child(index))?;
                let right = Node::get(memory, node.child(index + 1))?;
                let side = if left.len() > LEAST {
                    Some((left.clone(), true))
                } else if right.len() > LEAST {
                    Some((right.clone(), false))
                } else {
                    None
                };
                node = match side {
                    Some((child, is_left)) => {
                        let pair = self.outermost(memory, child.clone(), is_left)?;
                        node.set_pair(index, pair);
                        node.put(memory)?;
                        key = pair.0;
                        child
                    }
                    None => self.merge(memory, node, index, left, right)?,
                };
            } else {
                node = self.fill(memory, node, index)?;
            }
        }
    }

    /// Returns the last pair of a subtree, or the first.
    fn outermost<M: RegionAccess>(
        &self,
        memory: &mut M,
        mut node: Node,
        is_last: bool,
    ) -> Result<(u64, Addr), M::Error> {
        while !node.is_leaf() {
            node = Node::get(memory, node.child(if is_last { node.len() } else { 0 }))?;
        }
        Ok(node.pair(if is_last { node.len() - 1 } else { 0 }))
    }

    /// Returns the child at `index` after it has more than the least number of keys.
    fn fill<M: RegionAccess>(&self, memory: &mut M, mut parent: Node, index: usize) -> Result<Node, M::Error> {
        let mut child = Node::get(memory, parent.child(index))?;
        if child.len() > LEAST {
            return Ok(child);
        }
        if index > 0 {
            let mut left = Node::get(memory, parent.child(index - 1))?;
            if left.len() > LEAST {
                let last = left.len() - 1;
                let moved = (!child.is_leaf()).then(|| (0, left.child(last + 1)));
                child.insert(0, parent.pair(index - 1), moved);
                parent.set_pair(index - 1, left.pair(last));
                left.remove(last, (!left.is_leaf()).then_some(last + 1));
                put_all(memory, [&mut left, &mut parent, &mut child])?;
                return Ok(child);
            }
        }
        if index < parent.len() {
            let mut right = Node::get(memory, parent.child(index + 1))?;
            if right.len() > LEAST {
                let len = child.len();
                let moved = (!child.is_leaf()).then(|| (len + 1, right.child(0)));
                child.insert(len, parent.pair(index), moved);
                parent.set_pair(index, right.pair(0));
                right.remove(0, (!right.is_leaf()).then_some(0));
                put_all(memory, [&mut right, &mut parent, &mut child])?;
                return Ok(child);
            }
            return self.merge(memory, parent, index, child, right);
        }
        let left = Node::get(memory, parent.child(index - 1))?;
        self.merge(memory, parent, index - 1, left, child)
    }

    /// Merges two children of the least size with the pair between them; returns the result.
    fn merge<M: RegionAccess>(
        &self,
        memory: &mut M,
        mut parent: Node,
        index: usize,
        mut left: Node,
        right: Node,
    ) -> Result<Node, M::Error> {
        let first_child = (!right.is_leaf()).then(|| right.child(0));
        let len = left.len();
        left.insert(len, parent.pair(index), first_child.map(|at| (len + 1, at)));
        for place in 0..right.len() {
            let len = left.len();
            let child = (!right.is_leaf()).then(|| (len + 1, right.child(place + 1)));
            left.insert(len, right.pair(place), child);
        }
        left.put(memory)?;
        self.nodes.give_back(memory, right.0.at)?;
        parent.remove(index, Some(index + 1));
        if parent.len() == 0 {
            memory.store(self.root(), left.0.at)?;
            self.nodes.give_back(memory, parent.0.at)?;
        } else {
            parent.put(memory)?;
        }
        Ok(left)
    }

    /// Returns the keys in order.
    pub(crate) fn audit<M: RegionAccess>(&self, memory: &mut M) -> Result<Vec<u64>, M::Error> {
        let root = memory.load(self.root())?;
        let (mut keys, mut nodes) = (Vec::new(), 0);
        if root != 0 {
            self.audit_below(memory, root, true, &mut keys, &mut nodes)?;
        }
        if !keys.is_sorted_by(|one, other| one < other) {
            return Err(broken("the keys are not in order"));
        }
        self.nodes.audit(memory, nodes)?;
        self.entries.audit(memory, keys.len() as u64)?;
        Ok(keys)
    }

    /// Returns the height of a subtree.
    fn audit_below<M: RegionAccess>(
        &self,
        memory: &mut M,
        at: Addr,
        is_root: bool,
        keys: &mut Vec<u64>,
        nodes: &mut u64,
    ) -> Result<u64, M::Error> {
        let node = Node::get(memory, at)?;
        *nodes += 1;
        let least = if is_root { 1 } else { LEAST };
        if !(least..=MOST).contains(&node.len()) || *nodes > self.scale.entries {
            return Err(broken(format!("node {at} has {} keys", node.len())));
        }
        let mut height = None;
        for index in 0..=node.len() {
            if !node.is_leaf() {
                let below = self.audit_below(memory, node.child(index), false, keys, nodes)?;
                if *height.get_or_insert(below) != below {
                    return Err(broken(format!("the subtrees of node {at} differ in height")));
                }
            }
            if index < node.len() {
                let (key, entry) = node.pair(index);
                if memory.load(entry)? != key {
                    return Err(broken(format!("the entry of key {key} has another key")));
                }
                check_entry(memory, entry, ENTRY_WORDS, self.scale.size, key)?;
                keys.push(key);
            }
        }
        Ok(height.unwrap_or(0) + 1)
    }
}

fn put_all<M: RegionAccess, const N: usize>(memory: &mut M, nodes: [&mut Node; N]) -> Result<(), M::Error> {
    nodes.into_iter().try_for_each(|node| node.put(memory))
}
