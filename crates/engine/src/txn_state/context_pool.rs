//! Working memory of transactions, kept for later ones.
//!
//! Each transaction takes one and gives it back, so there is a store for every few threads: one for
//! all would be what they wait for most. A thread mostly finds again what it has given back itself,
//! with the locks that its next transaction inherits.

use std::ops::Range;

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{CachePadded, Mutex, MutexGuard, Striped};
use duramen_types::TxnId;

use super::log::TxnLog;
use crate::lock::{Age, LockManager, TxnLocks};

/// Stores: a power of two.
const STORES: usize = 64;

/// ContextPool that a store keeps.
const KEPT: usize = 16;

/// Numbers that a store takes at a time.
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
}

impl Context {
    /// One that belongs to no store and to no transaction.
    pub(crate) fn unused() -> Box<Self> {
        Box::new(Self::new())
    }

    fn new() -> Self {
        Self { locks: TxnLocks::new(TxnId::ZERO), log: TxnLog::default(), value: Vec::new(), key: Vec::new() }
    }
}

/// ContextPool that no transaction uses, and numbers that no transaction has.
#[derive(Debug, Default)]
pub(crate) struct ContextPool {
    stores: Striped<Mutex<Store>, STORES>,
    /// The first number that no store has.
    next: CachePadded<AtomicU64>,
}

#[derive(Debug, Default)]
struct Store {
    #[expect(clippy::vec_box, reason = "contexts are handed on without being copied")]
    contexts: Vec<Box<Context>>,
    numbers: Range<u64>,
}

impl ContextPool {
    /// One that is used by nobody.
    pub(crate) fn take(&self) -> Box<Context> {
        self.store().take()
    }

    /// One for a new transaction.
    pub(crate) fn begin(&self) -> Box<Context> {
        let mut store = self.store();
        let txn = store.number(&self.next);
        let mut context = store.take();
        drop(store);
        context.locks.renew(txn);
        context.locks.set_age(Age::now(txn));
        context.log.begin(txn);
        context
    }

    /// No transaction has this number yet, or a higher one.
    pub(crate) fn next_txn(&self) -> TxnId {
        TxnId::new(self.next.load(Ordering::Relaxed))
    }

    /// Has numbers given out from this one on.
    pub(crate) fn set_next_txn(&self, txn: TxnId) {
        self.next.store(txn.get(), Ordering::Relaxed);
    }

    /// Takes the working memory of a finished transaction back.
    pub(crate) fn recycle(&self, mut context: Box<Context>, locks: &LockManager) {
        const LARGEST_VALUE: usize = 1 << 20;
        // One whose clean-up failed stays in the transaction table and cannot be used again.
        if context.value.capacity() <= LARGEST_VALUE && !context.log.has_written() {
            match self.keep(context) {
                None => return,
                Some(refused) => context = refused,
            }
        }
        locks.disinherit(&mut context.locks);
    }

    /// Keeps `context` for a later transaction, or gives it back if there are enough.
    fn keep(&self, context: Box<Context>) -> Option<Box<Context>> {
        let mut store = self.store();
        if store.contexts.len() >= KEPT {
            return Some(context);
        }
        store.contexts.push(context);
        None
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.stores.own().1.lock()
    }
}

impl Store {
    fn take(&mut self) -> Box<Context> {
        self.contexts.pop().unwrap_or_else(Context::unused)
    }

    fn number(&mut self, next: &AtomicU64) -> TxnId {
        if self.numbers.is_empty() {
            let first = next.fetch_add(NUMBERS, Ordering::Relaxed);
            self.numbers = first..first + NUMBERS;
        }
        let number = self.numbers.start;
        self.numbers.start += 1;
        TxnId::new(number)
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_finds_what_it_gave_back_and_keeps_only_so_many() {
        let contexts = ContextPool::default();
        let mut first = contexts.take();
        first.value.extend_from_slice(b"left over");
        assert!(contexts.keep(first).is_none());
        assert_eq!(contexts.take().value, b"left over");
        assert!(contexts.take().value.is_empty(), "a new one");
        let refused = (0..KEPT + 3).filter(|_| contexts.keep(Box::new(Context::new())).is_some()).count();
        assert_eq!(refused, 3);
    }

    #[test]
    fn every_transaction_has_a_number_of_its_own_and_few_are_lost() {
        let contexts = ContextPool::default();
        contexts.set_next_txn(TxnId::new(5));
        let mut numbers: Vec<u64> = (0..200).map(|_| contexts.begin().locks.txn().get()).collect();
        numbers.dedup();
        assert_eq!(numbers, (5..205).collect::<Vec<_>>(), "also if contexts are not kept");
    }
}
