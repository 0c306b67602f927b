//! The micro-benchmarks of atomic regions (Joshi et al., ATOM, HPCA 2017, table II), over any
//! memory that has such regions: the heap of `duramen-heap`, or a simulated one.
//!
//! | benchmark | structure | operation |
//! |---|---|---|
//! | `queue` | a ring of entries | enqueue and dequeue in turn |
//! | `hash` | 64 chains of entries | search a key; found: delete it, else insert it |
//! | `rbtree` | red-black tree, nodes with parent links | likewise |
//! | `btree` | b-tree of order 8, entries out of the nodes | likewise |
//! | `sdg` | graph of 256 vertices with adjacency lists | toggle a random edge |
//! | `sps` | array of entries | swap two random ones |
//!
//! An entry has 512 bytes (*small*) or 4,096 (*large*), as in the paper. Each instance lies in an
//! arena of its own. Its free entries are a list whose head is in the arena, so that allocation is
//! a part of the region.
//!
//! [`Structure::audit`] checks an instance, and returns what it holds, so that tests can compare
//! it with a model.
//!
//! | module | what it does |
//! |---|---|
//! | `memory` | the trait, and plain memory that implements it for tests |
//! | `arena` | layout of arenas, their free lists, and entries |
//! | `queue`, `hash`, `rbtree`, `btree`, `sdg`, `sps` | the structures |
//! | `structure` | the choice among them |
//! | `words` | copies of tree nodes, for `btree` and `bplus` |
//! | `bplus`, `new_order` | a B+-tree, and TPC-C's new-order transaction on such trees |
//! | `heap` | `duramen-heap` as such a memory |

mod arena;
mod bplus;
mod btree;
mod hash;
mod heap;
mod memory;
mod new_order;
mod queue;
mod rbtree;
mod sdg;
mod sps;
mod structure;
mod words;

pub use arena::{EntrySize, Scale};
pub use heap::{HeapMemory, HeapRegion, HeapRegionError};
pub use memory::{Addr, AtomicMemory, PlainMemory, RegionAccess, RegionError};
pub use new_order::{OrderEntry, OrderRequest, Ordered, Terminal};
pub use structure::{Kind, SIZES, Structure};
