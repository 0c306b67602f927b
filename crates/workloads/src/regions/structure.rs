//! The choice among the structures, and their operations.

use std::str::FromStr;

use rand::{Rng, RngExt};

use crate::regions::arena::{EntrySize, Scale};
use crate::regions::btree::BTree;
use crate::regions::hash::Hash;
use crate::regions::memory::{Addr, AtomicMemory, RegionAccess};
use crate::regions::queue::Queue;
use crate::regions::rbtree::RbTree;
use crate::regions::sdg::{Sdg, VERTICES};
use crate::regions::sps::Sps;

/// A benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Enqueue and dequeue.
    Queue,
    /// Hash table.
    Hash,
    /// Red-black tree.
    RbTree,
    /// B-tree.
    BTree,
    /// Graph.
    Sdg,
    /// Swaps in an array.
    Sps,
}

impl Kind {
    /// The benchmarks, with the names that the paper has for them.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("queue", Self::Queue),
        ("hash", Self::Hash),
        ("rbtree", Self::RbTree),
        ("btree", Self::BTree),
        ("sdg", Self::Sdg),
        ("sps", Self::Sps),
    ];

    /// Returns the benchmark's name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
        let names = Self::NAMES.map(|(name, _)| name).join(", ");
        known.ok_or_else(|| format!("there is no benchmark `{name}`; there are {names}"))
    }
}

/// An operation with its random choices, which stay the same if its region runs again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Enqueue(u64),
    Dequeue,
    Toggle(u64),
    Edge(u64, u64),
    Swap(u64, u64),
}

/// An instance of a benchmark in an arena.
#[derive(Clone, Copy, Debug)]
pub struct Structure {
    inner: Inner,
    scale: Scale,
}

#[derive(Clone, Copy, Debug)]
enum Inner {
    Queue(Queue),
    Hash(Hash),
    RbTree(RbTree),
    BTree(BTree),
    Sdg(Sdg),
    Sps(Sps),
}

impl Structure {
    /// Returns the number of bytes of an instance's arena.
    pub fn bytes(kind: Kind, scale: Scale) -> u64 {
        match Self::at(kind, scale, 0).inner {
            Inner::Queue(queue) => queue.arena().bytes(),
            Inner::Hash(hash) => hash.arena().bytes(),
            Inner::RbTree(tree) => tree.arena().bytes(),
            Inner::BTree(tree) => tree.bytes(),
            Inner::Sdg(graph) => graph.arena().bytes(),
            Inner::Sps(array) => array.arena().bytes(),
        }
    }

    /// Returns the instance in the arena at `base`, which is a multiple of 64.
    pub fn at(kind: Kind, scale: Scale, base: Addr) -> Self {
        let inner = match kind {
            Kind::Queue => Inner::Queue(Queue::new(base, scale)),
            Kind::Hash => Inner::Hash(Hash::new(base, scale)),
            Kind::RbTree => Inner::RbTree(RbTree::new(base, scale)),
            Kind::BTree => Inner::BTree(BTree::new(base, scale)),
            Kind::Sdg => Inner::Sdg(Sdg::new(base, scale)),
            Kind::Sps => Inner::Sps(Sps::new(base, scale)),
        };
        Self { inner, scale }
    }

    /// Makes the instance in an arena of zeros.
    ///
    /// # Errors
    /// The memory's.
    pub fn make<M: AtomicMemory>(&self, memory: &mut M, lock: M::Lock) -> Result<(), M::Error> {
        match self.inner {
            // Zeros are an empty queue.
            Inner::Queue(_) => Ok(()),
            Inner::Hash(hash) => hash.arena().make(memory, lock),
            Inner::RbTree(tree) => tree.arena().make(memory, lock),
            Inner::BTree(tree) => tree.make(memory, lock),
            Inner::Sdg(graph) => graph.arena().make(memory, lock),
            Inner::Sps(array) => array.make(memory, lock),
        }
    }

    /// Runs operation number `number` of a client, with random choices from `random`, as one
    /// region.
    ///
    /// # Errors
    /// The memory's.
    pub fn operate<M: AtomicMemory>(
        &self,
        memory: &mut M,
        lock: M::Lock,
        number: u64,
        random: &mut impl Rng,
    ) -> Result<(), M::Error> {
        let operation = self.draw(number, random);
        memory.atomic(lock, |memory| self.perform(memory, operation))
    }

    /// Checks the instance, and returns what it holds: keys, or edges.
    ///
    /// # Errors
    /// [`crate::regions::RegionError::Broken`], and the memory's.
    pub fn audit<M: AtomicMemory>(&self, memory: &mut M, lock: M::Lock) -> Result<Vec<u64>, M::Error> {
        memory.atomic(lock, |memory| match self.inner {
            Inner::Queue(queue) => queue.audit(memory),
            Inner::Hash(hash) => hash.audit(memory),
            Inner::RbTree(tree) => tree.audit(memory),
            Inner::BTree(tree) => tree.audit(memory),
            Inner::Sdg(graph) => graph.audit(memory),
            Inner::Sps(array) => array.audit(memory),
        })
    }

    fn draw(&self, number: u64, random: &mut impl Rng) -> Operation {
        let key = random.random_range(0..self.scale.keys());
        match self.inner {
            Inner::Queue(_) if number.is_multiple_of(2) => Operation::Enqueue(key),
            Inner::Queue(_) => Operation::Dequeue,
            Inner::Hash(_) | Inner::RbTree(_) | Inner::BTree(_) => Operation::Toggle(key),
            // As many possible edges as there are keys of the other structures.
            Inner::Sdg(_) => Operation::Edge(key % VERTICES, key / VERTICES),
            Inner::Sps(_) => Operation::Swap(key % self.scale.entries, random.random_range(0..self.scale.entries)),
        }
    }

    fn perform<M: RegionAccess>(&self, memory: &mut M, operation: Operation) -> Result<(), M::Error> {
        match (self.inner, operation) {
            (Inner::Queue(queue), Operation::Enqueue(key)) => queue.enqueue(memory, key),
            (Inner::Queue(queue), Operation::Dequeue) => queue.dequeue(memory).map(drop),
            (Inner::Hash(hash), Operation::Toggle(key)) => hash.toggle(memory, key),
            (Inner::RbTree(tree), Operation::Toggle(key)) => tree.toggle(memory, key),
            (Inner::BTree(tree), Operation::Toggle(key)) => tree.toggle(memory, key),
            (Inner::Sdg(graph), Operation::Edge(from, to)) => graph.toggle(memory, from, to),
            (Inner::Sps(array), Operation::Swap(one, other)) => array.swap(memory, one, other),
            (_, operation) => unreachable!("{operation:?} is drawn for another structure"),
        }
    }
}

/// Returns both sizes, with the names that the paper has for them.
pub const SIZES: [(&str, EntrySize); 2] = [("small", EntrySize::Small), ("large", EntrySize::Large)];

#[cfg(test)]
#[path = "structure_tests.rs"]
mod tests;
