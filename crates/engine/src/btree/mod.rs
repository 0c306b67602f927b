//! The B+-tree: ordered byte keys over pages, for many threads.
//!
//! * Readers descend with optimistic latch coupling: a reader checks a node's version after it has
//!   found the child, so that readers write nothing that other threads read. A thread that changes
//!   a leaf upgrades the leaf's version to an exclusive latch.
//! * A node stores its fence keys (lower exclusive, upper inclusive). There are no sibling
//!   pointers: a thread that leaves a leaf descends again with the leaf's fence.
//! * Splits and merges (`structure.rs`) are system transactions: one log record each, never undone.
//!   They latch parent before child, and never wait for a tree page's latch while they hold
//!   another: they restart or give up.
//! * A root never moves: it is pushed down or pulled up in place.
//! * A tree of sorted records is built from its leaves upwards (`build.rs`).
//! * A deleted record stays as a ghost until no transaction can need it; `purge.rs` removes it.
//!
//! Nothing here depends on transactions or waits for a lock.

mod build;
mod descend;
mod purge;
mod steps;
mod structure;

pub(crate) use build::{Fill, NewPages, TreeBuilder};
pub(crate) use structure::{empty_root, number};

pub(crate) use descend::{Direction, Lookup, Neighbour, TooFar};
pub(crate) use steps::{OUT_OF_ORDER, step_down, step_up};

use duramen_sync::Backoff;

use crate::pool::{Interrupt, PoolError};

/// The most levels of a tree: a page holds at least two children, and there are at most 2^64 pages.
pub(crate) const MAX_LEVELS: usize = 64;

/// The damage of a page that is not the child that its parent refers to.
pub(crate) const NOT_THE_CHILD: &str =
    "its table, level or fences do not match its parent: another version of the page is in its place";

/// Repeats `attempt` until no other thread interrupts it.
pub(crate) fn retry<T>(mut attempt: impl FnMut() -> Result<T, Interrupt>) -> Result<T, PoolError> {
    let mut backoff = Backoff::new();
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(Interrupt::Restart) => backoff.snooze(),
            Err(Interrupt::Failed(error)) => return Err(error),
        }
    }
}
