//! The B+-tree: ordered byte keys over pages, for many threads.
//!
//! * Readers descend with optimistic latch coupling: a node's version is checked after the child
//!   has been found, so that readers write nothing that others read. Who changes a leaf upgrades
//!   its version to an exclusive latch.
//! * A node knows its fence keys (lower exclusive, upper inclusive). There are no sibling pointers:
//!   who leaves a leaf descends again by its fence.
//! * Splits and merges (`structure.rs`) are system transactions: one log record each, never undone.
//!   They latch parent before child, and never wait for a tree page's latch while they hold
//!   another: they restart or give up.
//! * A root never moves: it is pushed down or pulled up in place.
//! * A deleted record stays as a ghost until nobody can need it; `purge.rs` removes it.
//!
//! Nothing here knows of transactions or waits for a lock.

mod descend;
mod purge;
mod structure;

pub(crate) use structure::{empty_root, number};

pub(crate) use descend::{Direction, Lookup, Neighbour};

use duramen_sync::Backoff;

use crate::pool::{Interrupt, PoolError};

/// Deepest tree that can be: a page holds at least two children, and there are at most 2^64 pages.
pub(crate) const MAX_LEVELS: usize = 64;

/// What is wrong with a page that its parent does not mean.
pub(crate) const NOT_THE_CHILD: &str =
    "its table, level or fences are not what its parent says: another version of the page is in its place";

/// Runs `attempt` until it is not interrupted by another thread.
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
