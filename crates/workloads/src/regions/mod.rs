//! Data structures in persistent memory that are updated in atomic regions: the micro-benchmarks of
//! ATOM (HPCA 2017, Table II).
//!
//! All are written over [`AtomicMemory`], so the same code runs on a simulated machine and
//! natively. An [`Instance`] is one structure at an address of its own; its operations toggle
//! random entries, so that about half of the possible ones are there.
//!
//! # Parts
//! | module | what it does |
//! |---|---|
//! | `memory` | the trait, and plain memory without durability |
//! | `entries` | entries and the list of free ones |
//! | `hash`, `graph`, `swap`, `ring`, `red_black`, `b_tree` | the structures |

mod b_tree;
mod entries;
mod graph;
mod hash;
mod memory;
mod red_black;
mod ring;
mod swap;

use duramen_sync::SplitMix64;

pub use memory::{AtomicMemory, Plain};

/// A structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Chains of a hash table: insert or delete.
    Hash,
    /// A ring: enqueue and dequeue in turn, copying while it is locked.
    Queue,
    /// A red-black tree with parent links: insert or delete.
    RedBlack,
    /// A B-tree of order 8 whose entries lie outside of its nodes: insert or delete.
    BTree,
    /// Adjacency lists of a graph: insert or delete an edge.
    Graph,
    /// An array: swap two entries.
    Swap,
}

impl Kind {
    /// All of them, in the paper's order.
    pub const ALL: [Self; 6] = [Self::BTree, Self::Hash, Self::Queue, Self::RedBlack, Self::Graph, Self::Swap];

    /// Its name in the paper.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Queue => "queue",
            Self::RedBlack => "rbtree",
            Self::BTree => "btree",
            Self::Graph => "sdg",
            Self::Swap => "sps",
        }
    }

    /// Whether all programs share one instance.
    pub fn is_shared(self) -> bool {
        self == Self::Queue
    }
}

/// A structure at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instance {
    /// What it is.
    pub kind: Kind,
    /// Its first byte; a multiple of 64.
    pub base: u64,
    /// Entries that it has when it is new; twice as many are possible.
    pub entries: u64,
    /// Bytes of an entry: a multiple of 64, at least 64.
    pub entry_bytes: u64,
}

impl Instance {
    /// Bytes that it takes, a multiple of 64.
    pub fn bytes(&self) -> u64 {
        match self.kind {
            Kind::Hash => hash::bytes(self),
            Kind::Queue => ring::bytes(self),
            Kind::RedBlack => red_black::bytes(self),
            Kind::BTree => b_tree::bytes(self),
            Kind::Graph => graph::bytes(self),
            Kind::Swap => swap::bytes(self),
        }
    }

    /// Makes it in memory that is zero.
    ///
    /// # Errors
    /// Those of the memory.
    pub fn build<M: AtomicMemory>(&self, memory: &mut M, random: &mut SplitMix64) -> Result<(), M::Error> {
        match self.kind {
            Kind::Hash => hash::build(self, memory, random),
            Kind::Queue => ring::build(self, memory),
            Kind::RedBlack => red_black::build(self, memory, random),
            Kind::BTree => b_tree::build(self, memory, random),
            Kind::Graph => graph::build(self, memory, random),
            Kind::Swap => swap::build(self, memory),
        }
    }

    /// Runs an operation in a region under `lock`; `number` counts the caller's operations.
    ///
    /// # Errors
    /// Those of the memory.
    pub fn operation<M: AtomicMemory>(
        &self,
        memory: &mut M,
        lock: M::Lock,
        random: &mut SplitMix64,
        number: u64,
    ) -> Result<(), M::Error> {
        // Drawing the inputs and calling the structure.
        memory.work(40);
        let (first, second) = (random.bits(), random.bits());
        memory.atomic(lock, |memory| match self.kind {
            Kind::Hash => hash::toggle(self, memory, first % (2 * self.entries), second),
            Kind::Queue => ring::step(self, memory, number, second),
            Kind::RedBlack => red_black::toggle(self, memory, first % (2 * self.entries) + 1, second),
            Kind::BTree => b_tree::toggle(self, memory, first % (2 * self.entries) + 1, second),
            Kind::Graph => graph::toggle(self, memory, first, second),
            Kind::Swap => swap::swap(self, memory, first % self.entries, second % self.entries),
        })
    }

    /// Checks its invariants and returns how many entries it has.
    ///
    /// # Errors
    /// What is broken, in words.
    pub fn check(&self, memory: &mut Plain) -> Result<u64, String> {
        match self.kind {
            Kind::Hash => hash::check(self, memory),
            Kind::Queue => ring::check(self, memory),
            Kind::RedBlack => red_black::check(self, memory),
            Kind::BTree => b_tree::check(self, memory),
            Kind::Graph => graph::check(self, memory),
            Kind::Swap => swap::check(self, memory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_keep_their_invariants() {
        for kind in Kind::ALL {
            for entry_bytes in [64, 512] {
                let instance = Instance { kind, base: 128, entries: 64, entry_bytes };
                let mut random = SplitMix64::new(7);
                let mut memory = Plain::new(128 + instance.bytes());
                instance.build(&mut memory, &mut random).unwrap();
                let mut sizes = Vec::new();
                for number in 0..3_000 {
                    instance.operation(&mut memory, (), &mut random, number).unwrap();
                    if number % 49 == 0 {
                        sizes.push(instance.check(&mut memory).unwrap());
                    }
                }
                let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
                assert!(kind == Kind::Swap || least < most, "{kind:?} changes");
                assert!((32..=96).contains(least) && (32..=96).contains(most), "{kind:?}: {least} to {most}");
                assert_eq!(memory.word(0), 0, "{kind:?} stays within its bytes");
            }
        }
    }

    #[test]
    fn checks_notice_damage() {
        for kind in [Kind::RedBlack, Kind::BTree, Kind::Hash, Kind::Graph, Kind::Swap] {
            let instance = Instance { kind, base: 0, entries: 64, entry_bytes: 64 };
            let mut random = SplitMix64::new(7);
            let mut memory = Plain::new(instance.bytes());
            instance.build(&mut memory, &mut random).unwrap();
            let noticed = (0..instance.bytes() / 8).filter(|word| {
                let mut damaged = memory.clone();
                damaged.store(word * 8, damaged.word(word * 8) ^ (1 << 6)).unwrap();
                instance.check(&mut damaged).is_err()
            });
            assert!(noticed.count() > 60, "{kind:?}");
        }
    }
}
