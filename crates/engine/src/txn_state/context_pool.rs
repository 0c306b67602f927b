//! Working memory of transactions, kept for reuse.
//!
//! Each transaction takes a context and gives it back. There is one store for every few threads,
//! because threads would mostly contend for a single one. A thread usually takes the context that
//! it gave back itself, with the locks that its next transaction inherits.

use std::ops::Range;

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{CachePadded, Mutex, MutexGuard, Striped};
use duramen_types::TxnId;

use super::log::TxnLog;
use crate::lock::{Age, LockManager, TxnLocks};
use crate::version::TxnVersions;

/// Number of stores: a power of two.
const STORES: usize = 64;

/// Contexts that a store keeps.
const KEPT: usize = 16;

/// Transaction ids that a store takes at a time.
const NUMBERS: u64 = 64;

/// A transaction's working memory, passed from transaction to transaction.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) locks: TxnLocks,
    pub(crate) log: TxnLog,
    /// What the records that it has changed were before.
    pub(crate) versions: TxnVersions,
    /// A value under construction or just read.
    pub(crate) value: Vec<u8>,
    /// A key just read.
    pub(crate) key: Vec<u8>,
}

impl Context {
    /// Creates a context that belongs to no store and to no transaction.
    pub(crate) fn unused() -> Box<Self> {
        Box::new(Self::new())
    }

    fn new() -> Self {
        Self {
            locks: TxnLocks::new(TxnId::ZERO),
            log: TxnLog::default(),
            versions: TxnVersions::default(),
            value: Vec::new(),
            key: Vec::new(),
        }
    }
}

/// Contexts that no transaction uses, and ids that no transaction has.
#[derive(Debug, Default)]
pub(crate) struct ContextPool {
    stores: Striped<Mutex<Store>, STORES>,
    /// The first id that no store has taken.
    next: CachePadded<AtomicU64>,
}

#[derive(Debug, Default)]
struct Store {
    #[expect(clippy::vec_box, reason = "contexts are handed on without being copied")]
    contexts: Vec<Box<Context>>,
    numbers: Range<u64>,
}

impl ContextPool {
    /// Returns an unused context.
    pub(crate) fn take(&self) -> Box<Context> {
        self.store().take()
    }

    /// Returns a context for a new transaction. Calls `note_limit` with an id above those that may
    /// be given out before the next such call.
    pub(crate) fn begin(&self, note_limit: impl FnOnce(TxnId)) -> Box<Context> {
        let mut store = self.store();
        let txn = store.number(&self.next, note_limit);
        let mut context = store.take();
        drop(store);
        context.locks.renew(txn);
        context.locks.set_age(Age::now(txn));
        context.log.begin(txn);
        context
    }

    /// Returns an id such that no transaction has it or a higher one yet.
    pub(crate) fn next_txn(&self) -> TxnId {
        TxnId::new(self.next.load(Ordering::Relaxed))
    }

    /// Sets the next id to be given out.
    pub(crate) fn set_next_txn(&self, txn: TxnId) {
        self.next.store(txn.get(), Ordering::Relaxed);
    }

    /// Takes back the working memory of a finished transaction.
    pub(crate) fn recycle(&self, mut context: Box<Context>, locks: &LockManager) {
        const LARGEST_VALUE: usize = 1 << 20;
        // A transaction whose clean-up failed stays in the transaction table; its context cannot be
        // reused.
        if context.value.capacity() <= LARGEST_VALUE && !context.log.has_written() {
            match self.keep(context) {
                None => return,
                Some(refused) => context = refused,
            }
        }
        locks.disinherit(&mut context.locks);
    }

    /// Keeps `context` for a later transaction, or returns it if the store has enough.
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

    fn number(&mut self, next: &AtomicU64, note_limit: impl FnOnce(TxnId)) -> TxnId {
        if self.numbers.is_empty() {
            let first = next.fetch_add(NUMBERS, Ordering::Relaxed);
            self.numbers = first..first + NUMBERS;
            note_limit(TxnId::new(first + NUMBERS));
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
        let mut numbers: Vec<u64> = (0..200).map(|_| contexts.begin(|_| {}).locks.txn().get()).collect();
        numbers.dedup();
        assert_eq!(numbers, (5..205).collect::<Vec<_>>(), "also if contexts are not kept");
    }
}
