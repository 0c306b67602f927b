//! Working memory of transactions, kept for later ones.
//!
//! Each transaction takes one and gives it back, so there is a store for every few threads: one for all would be what they
//! wait for most. A thread mostly finds again what it has given back itself, with the locks that its next transaction
//! inherits.

use std::ops::Range;

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Mutex, Striped};
use duramen_types::TxnId;

use crate::lock::TxnLocks;
use crate::txn_log::TxnLog;

/// Stores: a power of two.
const STORES: usize = 64;

/// Contexts that a store keeps.
const KEPT: usize = 16;

/// Numbers that are taken at a time for a context's transactions.
const NUMBERS: u64 = 64;

/// A transaction's working memory, handed from transaction to transaction.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) locks: TxnLocks,
    pub(crate) log: TxnLog,
    /// A value under construction or just read.
    pub(crate) value: Vec<u8>,
    /// A key just read.
    pub(crate) key: Vec<u8>,
    /// Numbers for its next transactions.
    numbers: Range<u64>,
}

impl Context {
    fn new() -> Self {
        Self {
            locks: TxnLocks::new(TxnId::ZERO),
            log: TxnLog::default(),
            value: Vec::new(),
            key: Vec::new(),
            numbers: 0..0,
        }
    }

    /// Gets it ready for a transaction. `next` is the first number that no context has.
    pub(crate) fn begin(&mut self, next: &AtomicU64) {
        if self.numbers.is_empty() {
            let first = next.fetch_add(NUMBERS, Ordering::Relaxed);
            self.numbers = first..first + NUMBERS;
        }
        let txn = TxnId::new(self.numbers.start);
        self.numbers.start += 1;
        self.locks.renew(txn);
        self.log.begin(txn);
    }
}

/// Contexts that no transaction uses.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    #[expect(clippy::vec_box, reason = "contexts are handed on without being copied")]
    stores: Striped<Mutex<Vec<Box<Context>>>, STORES>,
}

impl Contexts {
    /// One that is used by nobody.
    pub(crate) fn take(&self) -> Box<Context> {
        self.store().lock().pop().unwrap_or_else(|| Box::new(Context::new()))
    }

    /// Keeps `context` for a later transaction, or gives it back if there are enough.
    pub(crate) fn keep(&self, context: Box<Context>) -> Option<Box<Context>> {
        let mut store = self.store().lock();
        if store.len() >= KEPT {
            return Some(context);
        }
        store.push(context);
        None
    }

    #[expect(clippy::vec_box, reason = "as above")]
    fn store(&self) -> &Mutex<Vec<Box<Context>>> {
        self.stores.own().1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_finds_what_it_gave_back_and_keeps_only_so_many() {
        let contexts = Contexts::default();
        let mut first = contexts.take();
        first.value.extend_from_slice(b"left over");
        assert!(contexts.keep(first).is_none());
        assert_eq!(contexts.take().value, b"left over");
        assert!(contexts.take().value.is_empty(), "a new one");
        let refused = (0..KEPT + 3).filter(|_| contexts.keep(Box::new(Context::new())).is_some()).count();
        assert_eq!(refused, 3);
    }
}
