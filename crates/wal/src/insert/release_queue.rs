//! The release queue: spaces of the log buffer in the order of their LSNs, each of which is released by its owner or, if
//! the owner comes too early, by the owner of the one before (Aether, section A.6, algorithm 5; the protocol follows
//! Scott's abortable MCS lock).
//!
//! A node stands for one acquired space. Its *status* says who releases it, and its *next* leads to the node behind it.
//!
//! ```text
//!  status:  WAITING -> GRANTED      the predecessor has released its space: the owner releases this one itself
//!           WAITING -> DELEGATED    the owner has filled the space in and gone: the predecessor releases this one, too
//!  next:    LAST    -> a node       another space has been acquired
//!           LAST    -> LEFT         the space has been released and there was nothing behind it
//! ```
//!
//! Each change is one compare-and-swap, and of two threads that want to make a different one, the one that fails does
//! what the other's change asks for. So nobody ever waits for anybody:
//! - *join*, with the insertion lock held: link the new node behind the last one. If that has left, there is no
//!   predecessor, and the new node is granted at once.
//! - *finish*, by the owner when the space is filled in: delegate, or else the node is granted: release the space, then
//!   hand off.
//! - *hand off*: leave, if there is nothing behind. Otherwise grant the next node, or else it has been delegated: release
//!   its space and hand off from there.
//!
//! In the paper's queue the last node is found by a pointer that a thread swaps before it links, so that who leaves must
//! wait for a thread between the two. Here joins exclude each other by the insertion lock anyway, which leaves one step
//! less.
//!
//! A node can be used for another space when it has been handed off from, and nodes are taken into use with the insertion
//! lock held only. So the last node, which a join looks at, is either still the same, or free.
//!
//! # The treadmill
//! A thread could go on for ever with releasing what others delegate to it. So an owner does not delegate at once with
//! some probability, 1/32 in the paper, but waits to be granted, and who comes to it is done. It does not wait for long: a
//! predecessor that takes longer has lost its processor or fills in a large record, in neither case does it release, and
//! to wait would hold up what the owner holds. Then it delegates after all.

use duramen_sync::Backoff;
use duramen_sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_types::planted::{Bug, is_on};

const WAITING: u32 = 0;
const GRANTED: u32 = 1;
const DELEGATED: u32 = 2;

/// Values of `next` that are no node; the node at index `i` is `FIRST + i`.
const LEFT: u32 = 0;
const LAST: u32 = 1;
const FIRST: u32 = 2;

/// A node of the queue.
#[derive(Debug, Default)]
pub(super) struct Node {
    status: AtomicU32,
    next: AtomicU32,
}

/// The queue's end.
#[derive(Debug, Default)]
pub(super) struct ReleaseQueue {
    /// Index of the node that joined last; before there was one, that of any node, which has left. Changed and read with
    /// the insertion lock held.
    last: AtomicUsize,
}

impl ReleaseQueue {
    /// Puts the node at `index` at the end. The caller holds the insertion lock.
    #[inline]
    pub(super) fn join<'n>(&self, index: usize, node: impl Fn(usize) -> &'n Node) {
        let last = self.last.load(Ordering::Relaxed);
        let new = node(index);
        let link = u32::try_from(index).expect("a pool has few nodes") + FIRST;
        new.status.store(WAITING, Ordering::Relaxed);
        // When the last node is the new one, it has been free, so it had left.
        let previous = if last == index { LEFT } else { node(last).next.load(Ordering::Acquire) };
        new.next.store(LAST, Ordering::Relaxed);
        self.last.store(index, Ordering::Relaxed);
        // Release: who finds the link finds the node ready. Acquire: who has left has released what is before us.
        let linked = previous == LAST
            && node(last).next.compare_exchange(LAST, link, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if !linked {
            // Nobody else knows the node yet.
            new.status.store(GRANTED, Ordering::Relaxed);
        }
    }
}

impl Node {
    /// Tries to leave the release of the node's space to its predecessor; returns whether it has. Otherwise the caller
    /// releases it. If `patient`, it waits a moment to be granted before. For the owner, which has filled the space in.
    #[inline]
    pub(super) fn delegate(&self, patient: bool) -> bool {
        let mut backoff = Backoff::new();
        while patient && backoff.is_spinning() && self.status.load(Ordering::Relaxed) == WAITING {
            backoff.snooze();
        }
        // Release: the space is filled in. Acquire: what is before it has been released.
        self.status.load(Ordering::Acquire) == WAITING
            && self.status.compare_exchange(WAITING, DELEGATED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Ends the node's part in the queue, after its space has been released. Returns the index of the next node if the
    /// caller must release that one's space, too. Afterwards the caller may free this one.
    #[inline]
    pub(super) fn hand_off<'n>(&self, node: impl Fn(usize) -> &'n Node) -> Option<usize> {
        // Release: what this thread has released. Acquire: the next node is ready.
        let next = match self.next.compare_exchange(LAST, LEFT, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return None,
            Err(link) => (link - FIRST) as usize,
        };
        // Release: as above. Acquire: the next space is filled in, if it has been delegated.
        let granted = node(next).status.compare_exchange(WAITING, GRANTED, Ordering::AcqRel, Ordering::Acquire);
        if granted.is_err() {
            reach(Probe::DelegatedReleased);
        }
        (granted.is_err() && !is_on(Bug::DelegatedReleaseForgotten)).then_some(next)
    }
}
