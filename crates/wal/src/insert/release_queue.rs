//! The release queue: spaces of the log buffer in the order of their LSNs, each of which is
//! released by its owner or, if the owner comes too early, by the owner of the one before (Aether,
//! section A.6, algorithm 5).
//!
//! A node stands for one acquired space. Its *next* leads to the node behind it, and *delegated*
//! says whether its owner has filled the space in and gone.
//!
//! - *join*, with the insertion lock held: the node that joined last is told which one comes next.
//! - *finish*, by the owner when the space is filled in. If all before it is released, the owner
//!   releases it. Otherwise it delegates, and looks once more whether all before has been released
//!   meanwhile; if so, it tries to take the delegation back.
//! - *hand on*, by who has released a space: if the node behind it has been delegated, take the
//!   delegation, release that one's space, too, and hand on from there. If not, its owner will find
//!   all before it released.
//!
//! A delegation is taken by one atomic operation that only one thread succeeds with: `delegated`
//! holds the LSN of the space and is exchanged for nothing. Since an LSN never comes again, who
//! looks at a node that has been used for another space by then takes nothing. So a node may be
//! free, or in use again, while others still look at it, and `next` is no more than a hint.
//!
//! In the paper, as in Scott's abortable MCS lock that it follows, each node is left by an atomic
//! operation, so that of two threads that pass each other one is sure to notice. Here a thread
//! whose predecessor has released, and that has no successor yet, takes part in the queue with
//! stores and loads alone. The price: two that pass each other may both go, when one has delegated
//! and not seen yet that the other has released, while the other has looked for a successor too
//! early. The space is then released, with all behind it, by who wants to know how far the log is
//! released, a flush above all, or needs a node: they look through the nodes for the one that is
//! due ([`Node::take`]).
//!
//! # The treadmill
//! A thread could go on for ever with releasing what others delegate to it. So an owner does not
//! delegate at once with some probability, 1/32 in the paper, but waits for its turn, and who comes
//! to it is done. It does not wait for long: a predecessor that takes longer has lost its processor
//! or fills in a large record, in neither case does it release, and to wait would hold up what the
//! owner holds. Then it delegates after all.

use duramen_sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use duramen_types::Lsn;

/// No delegation; one of the space at LSN `x` is `x + 1`.
const NOBODY: u64 = 0;

/// No successor yet; the node at index `i` is `i + 1`.
const LAST: u32 = 0;

/// A node of the queue.
#[derive(Debug, Default)]
pub(super) struct Node {
    delegated: AtomicU64,
    next: AtomicU32,
}

/// The queue's end.
#[derive(Debug, Default)]
pub(super) struct ReleaseQueue {
    /// Index of the node that joined last; before there was one, that of any node. Changed and read
    /// with the insertion lock held.
    last: AtomicUsize,
}

impl ReleaseQueue {
    /// Puts the node at `index` at the end. The caller holds the insertion lock, and has taken the
    /// node into use.
    #[inline]
    pub(super) fn join<'n>(&self, index: usize, node: impl Fn(usize) -> &'n Node) {
        let last = self.last.load(Ordering::Relaxed);
        if last == index {
            // It has been free, and none has joined behind it.
            return;
        }
        // Relaxed: who comes to the node by this judges it by its delegation. Nodes join with the
        // lock held, so the last one has not joined again since: its space waits to be released, or
        // nobody looks at its `next` any more.
        node(last).next.store(index as u32 + 1, Ordering::Relaxed);
        node(index).next.store(LAST, Ordering::Relaxed);
        self.last.store(index, Ordering::Relaxed);
    }
}

impl Node {
    /// Leaves the release of the space at `lsn` to others, unless `is_turn` says that all before it
    /// has been released; returns whether it has. Otherwise the caller releases it. For the owner,
    /// which has filled the space in.
    pub(super) fn delegate(&self, lsn: Lsn, is_turn: impl Fn() -> bool) -> bool {
        // Release: the space is filled in.
        self.delegated.store(lsn.get() + 1, Ordering::Release);
        // So that whoever looks for the node that is due, after this thread has gone, finds it.
        fence(Ordering::SeqCst);
        !(is_turn() && self.take(lsn))
    }

    /// Takes the delegation of the space at `lsn`, if that is this node's and has been delegated.
    /// Then the caller releases it; everything before has been.
    #[inline]
    pub(super) fn take(&self, lsn: Lsn) -> bool {
        let due = lsn.get() + 1;
        // Acquire: the space is filled in. The first look saves the exchange in the common case.
        self.delegated.load(Ordering::Relaxed) == due
            && self.delegated.compare_exchange(due, NOBODY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Index of the node behind this one, if there is one yet. For who has released this one's
    /// space, before the node can be used for another.
    #[inline]
    pub(super) fn next(&self) -> Option<usize> {
        self.next.load(Ordering::Relaxed).checked_sub(1).map(|index| index as usize)
    }
}
