//! Atomic regions on persistent memory: a heap of objects in which a program changes several
//! objects together, or none of them.
//!
//! ```
//! use duramen_heap::{Heap, HeapOptions, Ptr, Root, Source, Survive};
//! use zerocopy::{FromBytes, Immutable, IntoBytes};
//!
//! #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
//! #[repr(C)]
//! struct Node { value: u64, next: Ptr<Node> }
//!
//! #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
//! #[repr(C)]
//! struct Stack { top: Ptr<Node>, len: u64 }
//!
//! impl Root for Stack { const NAME: &'static str = "stack, version 1"; }
//!
//! # fn main() -> Result<(), duramen_heap::Error> {
//! // In a file on persistent memory, leave `survive` as it is.
//! let options = HeapOptions { survive: Survive::Nothing, ..HeapOptions::new(16 << 20) };
//! let heap = Heap::open(&Source::Anonymous, &options)?;
//! let root = heap.root::<Stack>()?;
//! heap.atomic(|tx| {
//!     let stack = tx.get(root)?;
//!     let top = tx.alloc(Node { value: 42, next: stack.top })?;
//!     tx.set(root, Stack { top, len: stack.len + 1 })
//! })?; // durable now: the node, and the stack that has it
//! assert_eq!(heap.atomic(|tx| Ok(tx.get(root)?.len))?, 1);
//! # Ok(())
//! # }
//! ```
//!
//! It is the software counterpart of the hardware log of Joshi et al. (ATOM, HPCA 2017), whose
//! program begins a region, writes in place, and ends the region. Its undo records have the paper's
//! format. Without the hardware, a program waits for a barrier before it first changes a line; that
//! is the paper's design *BASE*, with log entry collation.
//!
//! # What is promised
//! - *Atomicity and durability.* When [`Heap::atomic`] returns `Ok`, all changes of the closure are
//!   durable, as far as [`HeapOptions::survive`] asks. After an error, a panic or a crash none has
//!   happened, and no space is lost.
//! - *Isolation.* Transactions of several threads are serializable, and each sees one state of the
//!   heap from its beginning to its end. (The paper leaves isolation to the program.) A closure
//!   that meets another one is rolled back and run again.
//! - *Safety.* Objects are copied in and out, and any bytes are a value of their types ([`Plain`]).
//!   A wrong pointer is an error or a wrong value, never undefined behaviour; so is a damaged heap.
//!   The crate has no `unsafe` code.
//! - *Rejection.* [`Heap::open`] returns a typed error for a foreign file, another version, a
//!   damaged header, and a heap that is already open.
//!
//! # What is not
//! Objects have no checksums: a bit that the memory has lost changes a value. No destructors run;
//! an object is freed by [`Tx::free`]. A transaction's changes must fit into the log.
//!
//! # Costs
//! A transaction has one barrier for each batch of lines that it changes for the first time, one
//! for the bitmaps if it allocates or frees, and two at its end. [`Tx::log`] makes one batch of all
//! that a closure is going to change. Objects that the transaction has allocated are not logged. A
//! transaction that only reads has no barrier. [`Heap::stats`] counts them.
//!
//! # Locks
//! From the outermost to the innermost: the right to run alone (`Heap::alone`), the words of the
//! lines (`line_locks`, never waited for long, so that they form no deadlock), then one of the
//! leaves: the slots, the buckets, the space of the slabs. A thread takes its slot before the first
//! of these, and waits for one without holding any.
//!
//! # Failure
//! Nothing fails between the first store of a commit and its end: space in the log is taken before
//! anything is stored. After a power cut, opening undoes what was interrupted (`recovery`).
//!
//! # Parts
//! | module | what it does |
//! |---|---|
//! | `heap`, `tx` | what a program uses: heaps, and transactions in closures |
//! | `pointer` | addresses, typed pointers, and the types that objects may have |
//! | `update` | the order of log, lines and commit, and why recovery is right |
//! | `undo_log` | records and buckets |
//! | `recovery`, `open` | undoing after a crash; making, opening and growing |
//! | `line_locks` | one writer for each line; readers see one state |
//! | `line_set` | a set of lines, as runs |
//! | `slabs` | the allocator |
//! | `layout` | the format |
//! | `medium`, `options`, `error` | memory with counted barriers; options; errors |

#![forbid(unsafe_code)]

mod error;
mod heap;
mod layout;
mod line_locks;
mod line_set;
mod medium;
mod open;
mod options;
mod pointer;
mod recovery;
mod slabs;
mod tx;
mod undo_log;
mod update;

pub use duramen_pmem::{Domain, Guarantee, Placement, PmemError, SimMemory, Source, Survive, Timing};
pub use error::{Error, Result};
pub use heap::{Heap, HeapStats};
pub use options::{HeapOptions, LogShape};
pub use pointer::{Addr, Plain, Ptr, Root};
pub use recovery::Recovered;
pub use tx::Tx;
pub use zerocopy;
