//! The release queue: spaces of the log buffer in LSN order. The owner of a space releases it or,
//! if it comes too early, the owner of the space before does (Aether, section A.6, algorithm 5).
//!
//! A node stands for one acquired space. Its *next* names the node behind it. *Delegated* states
//! that its owner has filled the space in and returned.
//!
//! - *join*, with the insertion lock held: the thread links its node behind the last one.
//! - *finish*, by the owner when the space is filled in. If everything before the space is
//!   released, the owner releases it. Otherwise the owner delegates, and checks once more whether
//!   everything before has been released meanwhile; if so, it tries to take the delegation back.
//! - *hand on*, by a thread that has released a space: if the node behind it has been delegated,
//!   the thread takes the delegation, releases that space too, and hands on from there. If it has
//!   not, the node's owner will find that everything before its space is released.
//!
//! Only one thread succeeds in taking a delegation: `delegated` holds the LSN of the space, and one
//! atomic operation exchanges the LSN for nothing. Since an LSN never recurs, a thread that reads a
//! node after another space has reused it takes nothing. So a node may be free, or in use again,
//! while other threads still read it, and `next` is only a hint.
//!
//! In the paper, as in Scott's abortable MCS lock on which its design is based, a thread leaves
//! each node by an atomic operation, so of two threads that pass each other one is sure to notice.
//! Here a thread whose predecessor has released, and that has no successor yet, uses only stores
//! and loads in the queue. The price: two threads that pass each other may both return, when one
//! has delegated without seeing that the other has released, and the other has read its successor
//! too early. Then a thread that must know how far the log is released, above all a flush, or that
//! needs a node, searches for the due node ([`Node::take`]) and goes on from there.
//!
//! # The treadmill
//! A thread could go on for ever releasing what others delegate to it. So with some probability,
//! 1/32 in the paper, an owner does not delegate at once but waits until its space is due, and the
//! thread that releases the space before it is done there. The wait is short: a predecessor that
//! takes longer has lost its processor or fills in a large record, and waiting would hold up the
//! locks that the owner holds. Then the owner delegates after all.

use duramen_sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use duramen_types::Lsn;

/// No delegation; a delegation of the space at LSN `x` is stored as `x + 1`.
const NOBODY: u64 = 0;

/// No successor yet; the node at index `i` is stored as `i + 1`.
const LAST: u32 = 0;

#[derive(Debug, Default)]
pub(super) struct Node {
    delegated: AtomicU64,
    next: AtomicU32,
}

/// The queue's end.
#[derive(Debug, Default)]
pub(super) struct ReleaseQueue {
    /// Index of the node that joined last; before the first join, the index of any node. Changed
    /// and read with the insertion lock held.
    last: AtomicUsize,
}

impl ReleaseQueue {
    /// Puts the node at `index`, which is in use, at the end. The caller holds the insertion lock.
    #[inline]
    pub(super) fn join<'n>(&self, index: usize, node: impl Fn(usize) -> &'n Node) {
        let last = self.last.load(Ordering::Relaxed);
        if last == index {
            // The node has been free, and none has joined behind it.
            return;
        }
        // Relaxed: a thread that reaches the node through this link judges it by its delegation.
        // Nodes join with the lock held, so the last one has not joined again since: its space
        // waits to be released, or no thread reads its `next` any more.
        node(last).next.store(index as u32 + 1, Ordering::Relaxed);
        node(index).next.store(LAST, Ordering::Relaxed);
        self.last.store(index, Ordering::Relaxed);
    }
}

impl Node {
    /// Delegates the release of the space at `lsn`, unless `is_turn` returns that everything before
    /// it has been released. Returns whether the release is delegated; otherwise the caller
    /// releases the space. Only the owner calls this, after it has filled the space in.
    pub(super) fn delegate(&self, lsn: Lsn, is_turn: impl Fn() -> bool) -> bool {
        // Release: publishes the bytes filled in.
        self.delegated.store(lsn.get() + 1, Ordering::Release);
        // A thread that searches for the due node after this thread has returned must find it.
        fence(Ordering::SeqCst);
        !(is_turn() && self.take(lsn))
    }

    /// Takes the delegation of the space at `lsn`, if this node stands for that space and has been
    /// delegated. The caller then releases the space; everything before it has been released.
    #[inline]
    pub(super) fn take(&self, lsn: Lsn) -> bool {
        let due = lsn.get() + 1;
        // Acquire: the space is filled in. The load before saves the exchange in the common case.
        self.delegated.load(Ordering::Relaxed) == due
            && self.delegated.compare_exchange(due, NOBODY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Returns the index of the node behind this one, if there is one yet. The caller has released
    /// this node's space, and the node has not been freed for another space.
    #[inline]
    pub(super) fn next(&self) -> Option<usize> {
        self.next.load(Ordering::Relaxed).checked_sub(1).map(|index| index as usize)
    }
}
