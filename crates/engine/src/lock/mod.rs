//! Logical locks: what transactions hold until they end, as opposed to latches, which threads hold
//! for an instant.
//!
//! - [`mode`]: the five modes of hierarchical locking and how they combine;
//! - [`id`]: what can be locked: the catalog, a table, a record, a gap between keys;
//! - [`txn`]: what one transaction holds;
//! - [`owners`]: which thread a transaction belongs to;
//! - [`inherit`]: intention locks that stay with an agent for its next transaction;
//! - [`head`]: who holds one lock and who waits, and the rule by which requests are granted;
//! - [`table`]: the locks of one hash bucket;
//! - [`deadlock`]: the search for cycles among blocked transactions;
//! - [`manager`]: the protocol that ties them together. Read its header first.

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
