//! Speculative lock inheritance: an intention lock on a table stays with the agent that held it,
//! for its next transaction (Johnson, Pandis, Ailamaki: "Improving OLTP scalability using
//! speculative lock inheritance", VLDB 2009).
//!
//! Nearly every transaction takes the same few intention locks, and they never conflict with each
//! other. But to acquire and release them, all threads would queue at the mutex of the same bucket.
//! So an agent (here: the working memory that passes from one transaction to the next) keeps these
//! locks when a transaction ends. The holder's entry stays in the lock's head, with an [`Agent`] in
//! place of a transaction. The agent's one word gives the current user of the lock:
//!
//! ```text
//!              next transaction             its end
//!    IDLE ---------------------> used by T ----------> IDLE
//!     |                             |
//!     | a request                   | a request conflicts
//!     | conflicts                   v
//!     v                          used by T, wanted ---> REVOKED, by T at its end
//!    REVOKED
//! ```
//!
//! Only the agent itself makes the transitions of the upper row, with one compare-and-swap each and
//! no mutex. The other transitions need the mutex of the lock's bucket: a request for a conflicting
//! mode revokes the idle agents and marks the busy ones. A marked agent's transaction releases the
//! lock in the usual way, which grants it to waiting requests. While a request waits for the lock,
//! no agent is added to it. The word decides each race: both a transaction that uses an inherited
//! lock and a request that revokes it must find the word IDLE, and only one of their
//! compare-and-swaps succeeds. A thread that asks whether the lock is unused swaps IDLE for IDLE:
//! then a transaction that takes the lock later sees what that thread did before it asked.
//!
//! REVOKED is final: the agent makes a new word when it inherits the lock again.

use duramen_sync::Arc;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_types::{TxnId, planted};

const IDLE: u64 = 0;
const REVOKED: u64 = u64::MAX;
const WANTED: u64 = 1;

/// The word of one inherited lock; see the module's header.
#[derive(Debug, Default)]
pub(super) struct Agent(AtomicU64);

impl Agent {
    /// Creates an agent that no transaction uses.
    pub(super) fn idle() -> Arc<Self> {
        Arc::default()
    }

    /// Takes the lock for the agent's next transaction; returns `false` if the lock was revoked.
    #[inline]
    pub(super) fn take(&self, txn: TxnId) -> bool {
        // Acquire here, and release in `give_back`: as if the lock were taken and released under a
        // mutex.
        self.0.compare_exchange(IDLE, txn.get() << 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Makes the agent idle at the end of the transaction; returns `false` if the lock must be
    /// given back to its head.
    #[inline]
    pub(super) fn give_back(&self, txn: TxnId) -> bool {
        self.0.compare_exchange(txn.get() << 1, IDLE, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock away if it is idle, or else marks it; returns whether it was taken away.
    /// Called under the bucket's mutex.
    pub(super) fn revoke(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let next = match word {
                IDLE => REVOKED,
                _ if planted!(InheritedLockKept) => word,
                _ => word | WANTED,
            };
            match self.0.compare_exchange(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    if word == IDLE {
                        reach(Probe::InheritedLockRevoked);
                    }
                    return word == IDLE;
                }
                Err(found) => word = found,
            }
        }
    }

    /// Ends the word's use. Called under the bucket's mutex, by the transaction that uses the lock.
    pub(super) fn retire(&self) {
        self.0.store(REVOKED, Ordering::Relaxed);
    }

    /// Returns whether no transaction uses the lock. A transaction that takes it later sees what
    /// the caller has done before. Called under the bucket's mutex.
    pub(super) fn is_unused(&self) -> bool {
        // Not a load: `take` and this must not miss each other, as two writes do not.
        match self.0.compare_exchange(IDLE, IDLE, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => true,
            Err(word) => word == REVOKED,
        }
    }

    /// Returns the transaction that uses the lock.
    pub(super) fn user(&self) -> Option<TxnId> {
        match self.0.load(Ordering::Relaxed) {
            IDLE | REVOKED => None,
            word => Some(TxnId::new(word >> 1)),
        }
    }
}
