//! A red-black tree whose nodes have links to their parents. A node has the words key, left, right,
//! parent and colour, then the entry. The word of the structure is the root. After Cormen,
//! Leiserson, Rivest, Stein: *Introduction to Algorithms*, chapter 13, with 0 for the sentinel.

use crate::regions::arena::{Arena, Scale, broken, check_entry, write_node};
use crate::regions::memory::{Addr, RegionAccess};

const KEY: u64 = 0;
const LEFT: u64 = 8;
const RIGHT: u64 = 16;
const PARENT: u64 = 24;
const COLOUR: u64 = 32;
const WORDS: u64 = 5;

const BLACK: u64 = 0;
const RED: u64 = 1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct RbTree {
    arena: Arena,
    scale: Scale,
}

impl RbTree {
    pub(crate) fn new(base: Addr, scale: Scale) -> Self {
        Self { arena: Arena::new(base, 1, scale.entries, scale.size.bytes()), scale }
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    fn root(&self) -> Addr {
        self.arena.word(0)
    }

    /// Deletes the key if it is there, else inserts it; a full tree stays as it is.
    pub(crate) fn toggle<M: RegionAccess>(&self, memory: &mut M, key: u64) -> Result<(), M::Error> {
        let (mut parent, mut node) = (0, memory.load(self.root())?);
        while node != 0 {
            memory.work(10);
            let found = memory.load(node + KEY)?;
            if found == key {
                self.delete(memory, node)?;
                return self.arena.give_back(memory, node);
            }
            parent = node;
            node = memory.load(node + if key < found { LEFT } else { RIGHT })?;
        }
        let Some(node) = self.arena.take(memory)? else { return Ok(()) };
        write_node(memory, node, [key, 0, 0, parent, RED], self.scale.size, key)?;
        if parent == 0 {
            memory.store(self.root(), node)?;
        } else {
            let side = if key < memory.load(parent + KEY)? { LEFT } else { RIGHT };
            memory.store(parent + side, node)?;
        }
        self.balance_insertion(memory, node)
    }

    fn balance_insertion<M: RegionAccess>(&self, memory: &mut M, mut node: Addr) -> Result<(), M::Error> {
        loop {
            let mut parent = memory.load(node + PARENT)?;
            if colour(memory, parent)? == BLACK {
                break;
            }
            let grandparent = memory.load(parent + PARENT)?;
            let (side, other) = if memory.load(grandparent + LEFT)? == parent { (LEFT, RIGHT) } else { (RIGHT, LEFT) };
            let uncle = memory.load(grandparent + other)?;
            if colour(memory, uncle)? == RED {
                memory.store(parent + COLOUR, BLACK)?;
                memory.store(uncle + COLOUR, BLACK)?;
                memory.store(grandparent + COLOUR, RED)?;
                node = grandparent;
                continue;
            }
            if memory.load(parent + other)? == node {
                self.rotate(memory, parent, side)?;
                (node, parent) = (parent, node);
                debug_assert_ne!(node, parent);
            }
            memory.store(parent + COLOUR, BLACK)?;
            memory.store(grandparent + COLOUR, RED)?;
            self.rotate(memory, grandparent, other)?;
        }
        let root = memory.load(self.root())?;
        set_colour(memory, root, BLACK)
    }

    /// Rotates `node` down to `side`.
    fn rotate<M: RegionAccess>(&self, memory: &mut M, node: Addr, side: u64) -> Result<(), M::Error> {
        let other = LEFT + RIGHT - side;
        let child = memory.load(node + other)?;
        let inner = memory.load(child + side)?;
        memory.store(node + other, inner)?;
        if inner != 0 {
            memory.store(inner + PARENT, node)?;
        }
        self.replace(memory, node, child)?;
        memory.store(child + side, node)?;
        memory.store(node + PARENT, child)
    }

    /// Puts `new` where `old` is below its parent.
    fn replace<M: RegionAccess>(&self, memory: &mut M, old: Addr, new: Addr) -> Result<(), M::Error> {
        let parent = memory.load(old + PARENT)?;
        if parent == 0 {
            memory.store(self.root(), new)?;
        } else {
            let side = if memory.load(parent + LEFT)? == old { LEFT } else { RIGHT };
            memory.store(parent + side, new)?;
        }
        if new != 0 {
            memory.store(new + PARENT, parent)?;
        }
        Ok(())
    }

    fn delete<M: RegionAccess>(&self, memory: &mut M, node: Addr) -> Result<(), M::Error> {
        let (left, right) = (memory.load(node + LEFT)?, memory.load(node + RIGHT)?);
        let mut lost = colour(memory, node)?;
        let (child, parent);
        if left == 0 || right == 0 {
            child = if left == 0 { right } else { left };
            parent = memory.load(node + PARENT)?;
            self.replace(memory, node, child)?;
        } else {
            let mut next = right;
            loop {
                match memory.load(next + LEFT)? {
                    0 => break,
                    further => next = further,
                }
            }
            lost = colour(memory, next)?;
            child = memory.load(next + RIGHT)?;
            if next == right {
                parent = next;
            } else {
                parent = memory.load(next + PARENT)?;
                self.replace(memory, next, child)?;
                memory.store(next + RIGHT, right)?;
                memory.store(right + PARENT, next)?;
            }
            self.replace(memory, node, next)?;
            memory.store(next + LEFT, left)?;
            memory.store(left + PARENT, next)?;
            let of_node = colour(memory, node)?;
            memory.store(next + COLOUR, of_node)?;
        }
        if lost == BLACK { self.balance_deletion(memory, child, parent) } else { Ok(()) }
    }

    /// Restores the black heights where the subtree `node` below `parent` has lost one.
    fn balance_deletion<M: RegionAccess>(
        &self,
        memory: &mut M,
        mut node: Addr,
        mut parent: Addr,
    ) -> Result<(), M::Error> {
        while parent != 0 && colour(memory, node)? == BLACK {
            let (side, other) = if memory.load(parent + LEFT)? == node { (LEFT, RIGHT) } else { (RIGHT, LEFT) };
            let mut sibling = memory.load(parent + other)?;
            if colour(memory, sibling)? == RED {
                memory.store(sibling + COLOUR, BLACK)?;
                memory.store(parent + COLOUR, RED)?;
                self.rotate(memory, parent, side)?;
                sibling = memory.load(parent + other)?;
            }
            let (near, far) = (memory.load(sibling + side)?, memory.load(sibling + other)?);
            let (near_colour, far_colour) = (colour(memory, near)?, colour(memory, far)?);
            if near_colour == BLACK && far_colour == BLACK {
                memory.store(sibling + COLOUR, RED)?;
                node = parent;
                parent = memory.load(node + PARENT)?;
                continue;
            }
            if far_colour == BLACK {
                memory.store(near + COLOUR, BLACK)?;
                memory.store(sibling + COLOUR, RED)?;
                self.rotate(memory, sibling, other)?;
                sibling = near;
            }
            let of_parent = colour(memory, parent)?;
            memory.store(sibling + COLOUR, of_parent)?;
            memory.store(parent + COLOUR, BLACK)?;
            let far = memory.load(sibling + other)?;
            set_colour(memory, far, BLACK)?;
            self.rotate(memory, parent, side)?;
            node = memory.load(self.root())?;
            parent = 0;
        }
        set_colour(memory, node, BLACK)
    }

    /// Returns the keys in order.
    pub(crate) fn audit<M: RegionAccess>(&self, memory: &mut M) -> Result<Vec<u64>, M::Error> {
        let root = memory.load(self.root())?;
        let mut keys = Vec::new();
        self.audit_below(memory, root, 0, &mut keys)?;
        if colour(memory, root)? != BLACK || !keys.is_sorted_by(|one, other| one < other) {
            return Err(broken("the root is red, or the keys are not in order"));
        }
        self.arena.audit(memory, keys.len() as u64)?;
        Ok(keys)
    }

    /// Returns the number of black nodes on each path down.
    fn audit_below<M: RegionAccess>(
        &self,
        memory: &mut M,
        node: Addr,
        parent: Addr,
        keys: &mut Vec<u64>,
    ) -> Result<u64, M::Error> {
        if node == 0 {
            return Ok(1);
        }
        if memory.load(node + PARENT)? != parent || keys.len() as u64 > self.scale.entries {
            return Err(broken(format!("node {node} has another parent")));
        }
        let of_node = colour(memory, node)?;
        if of_node == RED && colour(memory, parent)? == RED {
            return Err(broken(format!("node {node} is red as its parent is")));
        }
        let (left, right) = (memory.load(node + LEFT)?, memory.load(node + RIGHT)?);
        let height = self.audit_below(memory, left, node, keys)?;
        let key = memory.load(node + KEY)?;
        check_entry(memory, node, WORDS, self.scale.size, key)?;
        keys.push(key);
        if self.audit_below(memory, right, node, keys)? != height {
            return Err(broken(format!("the paths below node {node} differ in black nodes")));
        }
        Ok(height + u64::from(of_node == BLACK))
    }
}

fn colour<M: RegionAccess>(memory: &mut M, node: Addr) -> Result<u64, M::Error> {
    if node == 0 { Ok(BLACK) } else { memory.load(node + COLOUR) }
}

fn set_colour<M: RegionAccess>(memory: &mut M, node: Addr, colour: u64) -> Result<(), M::Error> {
    if node == 0 { Ok(()) } else { memory.store(node + COLOUR, colour) }
}
