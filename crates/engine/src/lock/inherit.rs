//! Speculative lock inheritance: an intention lock on a table stays with the agent that held it,
//! for its next transaction (Johnson, Pandis, Ailamaki: "Improving OLTP scalability using
//! speculative lock inheritance", VLDB 2009).
//!
//! Nearly every transaction takes the same few intention locks, and they never conflict with each
//! other; but to take and give them back all threads queue at the mutex of the same bucket. So an
//! agent (here: the working memory that one transaction hands to the next) that ends a transaction
//! keeps them. The holder's entry stays in the lock's head, with an [`Agent`] in place of a
//! transaction, whose one word says who uses it:
//!
//! ```text
//!              next transaction             its end
//!    IDLE ---------------------> used by T ----------> IDLE
//!     |                             |
//!     | somebody's request          | somebody's request conflicts
//!     | conflicts                   v
//!     v                          used by T, wanted ---> REVOKED, by T at its end
//!    REVOKED
//! ```
//!
//! Only the agent itself goes along the upper arrows, with one compare-and-swap each and no mutex.
//! The others are gone along with the mutex of the lock's bucket held: who wants a mode that
//! conflicts revokes the idle agents and marks those in use; one that is marked is given back in
//! the usual way, which grants to who waits. While anybody waits for the lock, no agent is added to
//! it. The word decides each race: a transaction that uses an inherited lock found it idle, and who
//! revokes it found it idle, and only one of them can have done so.
//!
//! REVOKED is for good: the agent makes a new word when it inherits the lock again.

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
    /// One that nobody uses.
    pub(super) fn idle() -> Arc<Self> {
        Arc::default()
    }

    /// The agent's next transaction takes the lock; `false` when it is gone.
    #[inline]
    pub(super) fn take(&self, txn: TxnId) -> bool {
        // Acquire and, in `give_back`, release: as if the lock had been taken and released under a
        // mutex.
        self.0.compare_exchange(IDLE, txn.get() << 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// The transaction ends; `false` when the lock has to be given back to its head.
    #[inline]
    pub(super) fn give_back(&self, txn: TxnId) -> bool {
        self.0.compare_exchange(txn.get() << 1, IDLE, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock away if it is idle, or else marks it; returns whether it was taken away. With
    /// the bucket's mutex.
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

    /// Ends the word's use. With the bucket's mutex, by the transaction that uses it.
    pub(super) fn retire(&self) {
        self.0.store(REVOKED, Ordering::Relaxed);
    }

    /// Who uses the lock.
    pub(super) fn user(&self) -> Option<TxnId> {
        match self.0.load(Ordering::Relaxed) {
            IDLE | REVOKED => None,
            word => Some(TxnId::new(word >> 1)),
        }
    }
}
