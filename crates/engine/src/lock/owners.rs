//! The thread that each transaction belongs to: a thread that waits blocks the other transactions
//! that it has open.
//!
//! A transaction belongs to the thread that last requested one of its locks. The locks of a
//! transaction have an [`Owner`] that names this thread; the owners of a thread's transactions are
//! listed in the thread's stripe. A transaction mostly stays with its thread, and a thread reuses
//! the same few sets of locks, so an owner is seldom entered anew: a request only compares thread
//! ids.
//!
//! Before a thread parks in a wait, it collects the other transactions that belong to it, and
//! publishes them with the wait: they wait for the same lock as the thread does. So the search for
//! deadlocks finds threads that wait for themselves.
//!
//! # Limits
//! A transaction that was handed to another thread belongs to the former thread until the new one
//! has requested a lock with it. If the former thread waits for the transaction before that, the
//! wait is taken for a deadlock. An owner that is read while it changes has the same effect, at
//! worst: a transaction has to run again without need.

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Arc, Mutex, Striped, thread};
use duramen_types::TxnId;

const STRIPES: usize = if cfg!(duramen_loom) { 1 } else { 64 };

/// From this length on, each time a list has doubled, entries that no longer belong in it are
/// removed.
const CROWDED: usize = 16;

/// The transaction and the thread that a set of locks belongs to. All accesses are relaxed: see the
/// limits.
#[derive(Debug, Default)]
pub(super) struct Owner {
    thread: AtomicU64,
    /// Zero while the locks do not belong to an open transaction.
    txn: AtomicU64,
}

impl Owner {
    pub(super) fn set_txn(&self, txn: TxnId) {
        self.txn.store(txn.get(), Ordering::Relaxed);
    }

    pub(super) fn thread(&self) -> u64 {
        self.thread.load(Ordering::Relaxed)
    }
}

/// Another open transaction of a thread that waits.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    pub(super) txn: TxnId,
    pub(super) owner: Arc<Owner>,
}

/// The owners of all sets of locks that have been used.
#[derive(Debug, Default)]
pub(super) struct Owners {
    stripes: Striped<Mutex<Vec<Arc<Owner>>>, STRIPES>,
}

impl Owners {
    /// Assigns `owner` to the calling thread.
    #[cold]
    pub(super) fn enter(&self, owner: &Arc<Owner>) {
        let thread = thread::id();
        owner.thread.store(thread, Ordering::Relaxed);
        let (stripe, owners) = self.stripes.own();
        let mut owners = owners.lock();
        if owners.len() >= CROWDED && owners.len().is_power_of_two() {
            // Removes owners whose locks are gone, and those that have moved to another thread.
            owners.retain(|owner| {
                Arc::strong_count(owner) > 1 && duramen_sync::stripe_of(owner.thread(), STRIPES) == stripe
            });
        }
        if !owners.iter().any(|other| Arc::ptr_eq(other, owner)) {
            owners.push(Arc::clone(owner));
        }
    }

    /// Returns the open transactions of the calling thread except `txn`.
    pub(super) fn carried(&self, txn: TxnId) -> Vec<Carried> {
        let thread = thread::id();
        let owners = self.stripes.own().1.lock();
        let own = owners.iter().filter(|owner| owner.thread() == thread);
        own.filter_map(|owner| match owner.txn.load(Ordering::Relaxed) {
            0 => None,
            other if other == txn.get() => None,
            other => Some(Carried { txn: TxnId::new(other), owner: Arc::clone(owner) }),
        })
        .collect()
    }
}
