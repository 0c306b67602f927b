//! Which thread each transaction belongs to: a thread that waits blocks the other transactions that
//! it has open.
//!
//! A transaction belongs to the thread that has asked for one of its locks last. The locks of a
//! transaction have an [`Owner`] that says so; those of a thread's transactions are listed in the
//! thread's stripe. A transaction mostly stays with its thread, and a thread uses the same few sets
//! of locks over and over, so they are seldom entered anew: all that a request costs is a look at
//! its own thread's number.
//!
//! A thread that is about to sleep in a wait looks which other transactions belong to it, and
//! publishes them with the wait: they wait for the same as the thread does. So the search for
//! deadlocks finds threads that wait for themselves.
//!
//! # Limits
//! A transaction that was handed to another thread belongs to the former one until the new one has
//! asked for a lock with it. If the former one waits for it in between, that is taken for a
//! deadlock. An owner that is read while it changes has the same effect, at worst: a transaction is
//! told to run again without need.

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Arc, Mutex, Striped, thread};
use duramen_types::TxnId;

const STRIPES: usize = if cfg!(duramen_loom) { 1 } else { 64 };

/// From so many on, a list is cleared of what does not belong there each time that it has doubled.
const CROWDED: usize = 16;

/// Whose a set of locks is. All accesses are relaxed: see the limits.
#[derive(Debug, Default)]
pub(super) struct Owner {
    thread: AtomicU64,
    /// Zero while the locks are not those of an open transaction.
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
    /// Makes `owner` the calling thread's.
    #[cold]
    pub(super) fn enter(&self, owner: &Arc<Owner>) {
        let thread = thread::id();
        owner.thread.store(thread, Ordering::Relaxed);
        let (stripe, owners) = self.stripes.own();
        let mut owners = owners.lock();
        if owners.len() >= CROWDED && owners.len().is_power_of_two() {
            // Those whose locks are gone, and those that have gone to another thread.
            owners.retain(|owner| {
                Arc::strong_count(owner) > 1 && duramen_sync::stripe_of(owner.thread(), STRIPES) == stripe
            });
        }
        if !owners.iter().any(|other| Arc::ptr_eq(other, owner)) {
            owners.push(Arc::clone(owner));
        }
    }

    /// The open transactions of the calling thread but for `txn`.
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
