//! Logical locks, which transactions hold until they end, as opposed to latches, which threads hold
//! for an instant.
//!
//! - [`mode`]: the five modes of hierarchical locking and how they combine;
//! - [`id`]: the lockable resources: the catalog, a table, a record, a gap between keys;
//! - [`txn`]: the locks of one transaction;
//! - [`owners`]: the thread that a transaction belongs to;
//! - [`inherit`]: intention locks that stay with an agent for its next transaction;
//! - [`head`]: the holders and the queue of one lock, and the rule by which requests are granted;
//! - [`table`]: the locks of one hash bucket;
//! - [`deadlock`]: the search for cycles among blocked transactions;
//! - [`manager`]: the protocol that connects them. Read its header first.

mod deadlock;
mod head;
mod id;
mod inherit;
mod manager;
mod mode;
mod owners;
mod table;
mod txn;

#[cfg(all(test, duramen_loom))]
mod loom_tests;
#[cfg(all(test, not(duramen_loom)))]
mod stress_tests;
#[cfg(all(test, not(duramen_loom)))]
mod tests;

pub(crate) use id::LockId;
pub(crate) use manager::{LockError, LockManager};
pub(crate) use mode::LockMode;
pub(crate) use txn::{Age, TxnLocks};
