//! Skeleton of the lock manager: the interface.

use std::time::Duration;

use duramen_types::TxnId;

use super::{LockId, LockMode, TxnLocks};

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum LockError {
    #[error("waiting would close a cycle of {cycle} transactions")]
    Deadlock { cycle: usize },
    #[error("the lock wait limit ran out")]
    Timeout,
    #[error("the lock manager is closed")]
    Closed,
}

/// Sums since the manager was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct LockMetrics {
    pub(crate) acquisitions: u64,
    pub(crate) waits: u64,
    pub(crate) deadlocks: u64,
    pub(crate) timeouts: u64,
    pub(crate) wait_nanos: u64,
}

pub(crate) struct LockManager;

#[rustfmt::skip]
impl LockManager {
    pub(crate) fn new(buckets: usize) -> Self;
    pub(crate) fn with_wait_limit(self, limit: Duration) -> Self;
    pub(crate) fn acquire(&self, txn: &mut TxnLocks, id: LockId, mode: LockMode) -> Result<(), LockError>;
    pub(crate) fn try_acquire(&self, txn: &mut TxnLocks, id: LockId, mode: LockMode) -> bool;
    pub(crate) fn check_instant(&self, txn: &TxnLocks, id: LockId, mode: LockMode) -> bool;
    pub(crate) fn acquire_instant(&self, txn: &mut TxnLocks, id: LockId, mode: LockMode) -> Result<(), LockError>;
    pub(crate) fn release_one(&self, txn: &mut TxnLocks, id: LockId);
    pub(crate) fn release_all(&self, txn: &mut TxnLocks);
    pub(crate) fn is_unlocked(&self, id: LockId) -> bool;
    pub(crate) fn is_empty(&self) -> bool;
    pub(crate) fn close(&self);
    pub(crate) fn metrics(&self) -> LockMetrics;
}

#[rustfmt::skip]
impl TxnLocks {
    pub(crate) fn new(txn: TxnId) -> Self;
    pub(crate) fn renew(&mut self, txn: TxnId);
    pub(crate) fn txn(&self) -> TxnId;
    pub(crate) fn len(&self) -> usize;
    pub(crate) fn is_empty(&self) -> bool;
    pub(crate) fn held(&self, id: LockId) -> Option<LockMode>;
}
