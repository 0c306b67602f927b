//! Working memory of transactions, kept for later ones.
//!
//! Each transaction takes one and gives it back, so there is a store for every few threads: one for all would be what they
//! wait for most. A thread mostly finds again what it has given back itself, with the locks that its next transaction
//! inherits.

use duramen_sync::{CachePadded, Mutex, stripe};
use duramen_types::TxnId;

use crate::lock::TxnLocks;
use crate::txn_log::TxnLog;

/// Stores: a power of two.
const STORES: usize = 64;

/// Contexts that a store keeps.
const KEPT: usize = 16;

/// A transaction's working memory, handed from transaction to transaction.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) locks: TxnLocks,
    pub(crate) log: TxnLog,
    /// A value under construction or just read.
    pub(crate) value: Vec<u8>,
    /// A key just read.
    pub(crate) key: Vec<u8>,
}

impl Context {
    fn new() -> Self {
        Self { locks: TxnLocks::new(TxnId::ZERO), log: TxnLog::default(), value: Vec::new(), key: Vec::new() }
    }
}

/// Contexts that no transaction uses.
#[derive(Debug)]
pub(crate) struct Contexts {
    #[expect(clippy::vec_box, reason = "contexts are handed on without being copied")]
    stores: [CachePadded<Mutex<Vec<Box<Context>>>>; STORES],
}

impl Contexts {
    pub(crate) fn new() -> Self {
        Self { stores: std::array::from_fn(|_| CachePadded::default()) }
    }

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
        &self.stores[stripe(STORES)]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_finds_what_it_gave_back_and_keeps_only_so_many() {
        let contexts = Contexts::new();
        let mut first = contexts.take();
        first.value.extend_from_slice(b"left over");
        assert!(contexts.keep(first).is_none());
        assert_eq!(contexts.take().value, b"left over");
        assert!(contexts.take().value.is_empty(), "a new one");
        let refused = (0..KEPT + 3).filter(|_| contexts.keep(Box::new(Context::new())).is_some()).count();
        assert_eq!(refused, 3);
    }
}
