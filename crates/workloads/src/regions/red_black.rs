//! A red-black tree with parent links (Cormen and others, "Introduction to Algorithms", chapter
//! 13). A node is an entry; the sentinel that stands for "none" is a line of the instance.

use duramen_sync::SplitMix64;

use super::entries::Entries;
use super::{AtomicMemory, Instance, Plain};

const ROOT: u64 = 8;
const SENTINEL: u64 = 64;

const LEFT: u64 = 0;
const RIGHT: u64 = 8;
const PARENT: u64 = 16;
const RED: u64 = 24;
const KEY: u64 = 32;
const PAYLOAD: u64 = 40;

fn entries(instance: &Instance) -> Entries {
    Entries::of(instance, SENTINEL + 64)
}

pub(super) fn bytes(instance: &Instance) -> u64 {
    entries(instance).end() - instance.base
}

pub(super) fn build<M: AtomicMemory>(
    instance: &Instance,
    memory: &mut M,
    random: &mut SplitMix64,
) -> Result<(), M::Error> {
    entries(instance).free_all(memory)?;
    memory.store(instance.base + ROOT, instance.base + SENTINEL)?;
    for key in 0..instance.entries {
        toggle(instance, memory, 2 * key + 1, random.bits())?;
    }
    Ok(())
}

pub(super) fn toggle<M: AtomicMemory>(
    instance: &Instance,
    memory: &mut M,
    key: u64,
    seed: u64,
) -> Result<(), M::Error> {
    let mut tree = Tree { memory, root: instance.base + ROOT, none: instance.base + SENTINEL };
    let (mut parent, mut side) = (tree.none, LEFT);
    let mut at = tree.memory.load(tree.root)?;
    while at != tree.none {
        let of = tree.get(at, KEY)?;
        tree.memory.work(4);
        if of == key {
            tree.delete(at)?;
            return entries(instance).free(memory, at);
        }
        (parent, side) = (at, if key < of { LEFT } else { RIGHT });
        at = tree.get(at, side)?;
    }
    let node = entries(instance).take(tree.memory)?;
    for (field, value) in [(LEFT, tree.none), (RIGHT, tree.none), (PARENT, parent), (RED, 1), (KEY, key)] {
        tree.set(node, field, value)?;
    }
    entries(instance).fill(tree.memory, node, PAYLOAD, seed)?;
    if parent == tree.none {
        tree.memory.store(tree.root, node)?;
    } else {
        tree.set(parent, side, node)?;
    }
    tree.mend_insertion(node)
}

struct Tree<'a, M> {
    memory: &'a mut M,
    /// Address of the root's address.
    root: u64,
    none: u64,
}

fn other(side: u64) -> u64 {
    RIGHT - side
}

impl<M: AtomicMemory> Tree<'_, M> {
    fn get(&mut self, node: u64, field: u64) -> Result<u64, M::Error> {
        self.memory.load(node + field)
    }

    fn set(&mut self, node: u64, field: u64, value: u64) -> Result<(), M::Error> {
        self.memory.store(node + field, value)
    }

    /// Puts `new` into the place of `old`, which may be the root.
    fn replace(&mut self, old: u64, new: u64) -> Result<(), M::Error> {
        let parent = self.get(old, PARENT)?;
        if parent == self.none {
            self.memory.store(self.root, new)?;
        } else {
            let side = if self.get(parent, LEFT)? == old { LEFT } else { RIGHT };
            self.set(parent, side, new)?;
        }
        self.set(new, PARENT, parent)
    }

    /// Rotates so that `node` goes down on `side`.
    fn rotate(&mut self, node: u64, side: u64) -> Result<(), M::Error> {
        let up = self.get(node, other(side))?;
        let between = self.get(up, side)?;
        self.set(node, other(side), between)?;
        if between != self.none {
            self.set(between, PARENT, node)?;
        }
        self.replace(node, up)?;
        self.set(up, side, node)?;
        self.set(node, PARENT, up)
    }

    fn mend_insertion(&mut self, mut node: u64) -> Result<(), M::Error> {
        loop {
            let mut parent = self.get(node, PARENT)?;
            self.memory.work(4);
            if parent == self.none || self.get(parent, RED)? == 0 {
                break;
            }
            let grandparent = self.get(parent, PARENT)?;
            let side = if self.get(grandparent, LEFT)? == parent { LEFT } else { RIGHT };
            let uncle = self.get(grandparent, other(side))?;
            if uncle != self.none && self.get(uncle, RED)? == 1 {
                self.set(parent, RED, 0)?;
                self.set(uncle, RED, 0)?;
                self.set(grandparent, RED, 1)?;
                node = grandparent;
                continue;
            }
            if self.get(parent, other(side))? == node {
                self.rotate(parent, side)?;
                parent = node;
            }
            self.set(parent, RED, 0)?;
            self.set(grandparent, RED, 1)?;
            self.rotate(grandparent, other(side))?;
            break;
        }
        let root = self.memory.load(self.root)?;
        if self.get(root, RED)? == 1 {
            self.set(root, RED, 0)?;
        }
        Ok(())
    }

    fn delete(&mut self, node: u64) -> Result<(), M::Error> {
        let (left, right) = (self.get(node, LEFT)?, self.get(node, RIGHT)?);
        let (gone_red, child);
        if left == self.none || right == self.none {
            gone_red = self.get(node, RED)?;
            child = if left == self.none { right } else { left };
            self.replace(node, child)?;
        } else {
            let mut next = right;
            loop {
                let left = self.get(next, LEFT)?;
                self.memory.work(2);
                if left == self.none {
                    break;
                }
                next = left;
            }
            gone_red = self.get(next, RED)?;
            child = self.get(next, RIGHT)?;
            if self.get(next, PARENT)? == node {
                self.set(child, PARENT, next)?;
            } else {
                self.replace(next, child)?;
                self.set(next, RIGHT, right)?;
                self.set(right, PARENT, next)?;
            }
            self.replace(node, next)?;
            self.set(next, LEFT, left)?;
            self.set(left, PARENT, next)?;
            let red = self.get(node, RED)?;
            self.set(next, RED, red)?;
        }
        if gone_red == 0 { self.mend_deletion(child) } else { Ok(()) }
    }

    fn mend_deletion(&mut self, mut node: u64) -> Result<(), M::Error> {
        loop {
            self.memory.work(4);
            if self.memory.load(self.root)? == node || self.get(node, RED)? == 1 {
                break;
            }
            let parent = self.get(node, PARENT)?;
            let side = if self.get(parent, LEFT)? == node { LEFT } else { RIGHT };
            let mut sibling = self.get(parent, other(side))?;
            if self.get(sibling, RED)? == 1 {
                self.set(sibling, RED, 0)?;
                self.set(parent, RED, 1)?;
                self.rotate(parent, side)?;
                sibling = self.get(parent, other(side))?;
            }
            let (near, far) = (self.get(sibling, side)?, self.get(sibling, other(side))?);
            if self.get(near, RED)? == 0 && self.get(far, RED)? == 0 {
                self.set(sibling, RED, 1)?;
                node = parent;
                continue;
            }
            if self.get(far, RED)? == 0 {
                self.set(near, RED, 0)?;
                self.set(sibling, RED, 1)?;
                self.rotate(sibling, other(side))?;
                sibling = self.get(parent, other(side))?;
            }
            let red = self.get(parent, RED)?;
            self.set(sibling, RED, red)?;
            self.set(parent, RED, 0)?;
            let far = self.get(sibling, other(side))?;
            self.set(far, RED, 0)?;
            self.rotate(parent, side)?;
            break;
        }
        if self.get(node, RED)? == 1 { self.set(node, RED, 0) } else { Ok(()) }
    }
}

pub(super) fn check(instance: &Instance, memory: &mut Plain) -> Result<u64, String> {
    let none = instance.base + SENTINEL;
    let root = memory.word(instance.base + ROOT);
    if memory.word(root + RED) != 0 {
        return Err("the root is red".to_owned());
    }
    let mut count = 0;
    let mut checker = Checker { entries: entries(instance), memory, none, count: &mut count };
    checker.black_height(root, none, (0, u64::MAX), 0)?;
    entries(instance).check_free(memory, count)?;
    Ok(count)
}

struct Checker<'a> {
    entries: Entries,
    memory: &'a Plain,
    none: u64,
    count: &'a mut u64,
}

impl Checker<'_> {
    fn black_height(&mut self, node: u64, parent: u64, range: (u64, u64), depth: u32) -> Result<u64, String> {
        if node == self.none {
            return Ok(1);
        }
        let of = |field| self.memory.word(node + field);
        let (key, red) = (of(KEY), of(RED));
        if !self.entries.is_entry(node) || depth > 64 || !self.entries.is_filled(self.memory, node, PAYLOAD) {
            return Err(format!("the tree leads to {node}, which is no whole entry"));
        }
        if !(range.0 < key && key < range.1) || red > 1 {
            return Err(format!("key {key} of colour {red} is at the wrong place"));
        }
        if parent != self.none && (of(PARENT) != parent || red == 1 && self.memory.word(parent + RED) == 1) {
            return Err(format!("node {key} has a wrong parent"));
        }
        *self.count += 1;
        let (left, right) = (of(LEFT), of(RIGHT));
        let heights = (
            self.black_height(left, node, (range.0, key), depth + 1)?,
            self.black_height(right, node, (key, range.1), depth + 1)?,
        );
        if heights.0 == heights.1 {
            Ok(heights.0 + 1 - red)
        } else {
            Err(format!("the heights below {key} are {heights:?}"))
        }
    }
}
