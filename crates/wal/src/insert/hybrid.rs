//! `hybrid` (CD): consolidation array and decoupled fill (Aether, sections 5.1 to 5.3, algorithms 2 to 4).
//!
//! A thread first tries the insertion lock. When that succeeds it acquires its space, drops the lock *before* it fills
//! the space in, and declares it filled in: it is released when everything before it has been ([`Space::release`] waits
//! for that only a moment).
//!
//! When the lock is taken, the thread does not queue at it but joins a [`Slot`] of the consolidation array. The first
//! in a slot is the group's leader: it waits for the lock, replaces the slot in the array with a fresh one from the pool,
//! closes it, acquires space for the whole group and tells the members where it is. Each member, the leader included,
//! fills in its own part; the last to finish releases the space of the whole group and frees the slot. So the number of
//! threads at the lock is bounded by the size of the array, whatever the number of threads.
//!
//! The slots of the pool are used in turn. The one due is nearly always free, since it was closed a whole round of the
//! pool ago; if it is not, the next one is tried. Groups are bounded, so that they always fit in the log buffer; a record
//! above the bound does not join but waits for the lock by itself.

use std::cell::Cell;

use duramen_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use duramen_sync::{Backoff, CachePadded};
use duramen_types::Lsn;

use super::Insertion;
use super::slot::{Join, Slot};
use crate::space::Space;

/// Slots in the pool for each place of the array. Beyond the one in the array, a slot is in use from when it is closed
/// until its group has been released.
const SLOTS_PER_PLACE: usize = if cfg!(loom) { 2 } else { 16 };

/// Most bytes of a group, whatever the size of the buffer: beyond this, combining saves nothing any more and only delays
/// the release of those who finish early.
const MAX_GROUP_BYTES: u64 = 256 << 10;

/// The hybrid design.
#[derive(Debug)]
pub(crate) struct HybridInsertion {
    /// Index in the pool of the slot at each place.
    array: Box<[CachePadded<AtomicUsize>]>,
    pool: Box<[CachePadded<Slot>]>,
    max_group: u64,
    leaders: CachePadded<Leaders>,
}

/// What only the leader whose turn it is changes.
#[derive(Debug)]
struct Leaders {
    /// The slot of the pool that is due.
    next_slot: AtomicUsize,
    /// Records that joined a group as members.
    consolidated: AtomicU64,
}

impl HybridInsertion {
    /// An idle one with `places` in the array, for groups of at most `max_group` bytes.
    pub(crate) fn new(places: usize, max_group: u64) -> Self {
        let pool: Box<[_]> = (0..places * SLOTS_PER_PLACE).map(|_| CachePadded::new(Slot::default())).collect();
        let array = (0..places)
            .map(|place| {
                assert!(pool[place].open(place), "a new slot is free");
                CachePadded::new(AtomicUsize::new(place))
            })
            .collect();
        Self {
            array,
            pool,
            max_group: max_group.min(MAX_GROUP_BYTES),
            leaders: CachePadded::new(Leaders { next_slot: AtomicUsize::new(places), consolidated: AtomicU64::new(0) }),
        }
    }

    /// Joins some slot (algorithm 4, `slot_join`): probes the places at random until one takes it.
    fn join(&self, bytes: u64) -> (&Slot, Join) {
        let mut backoff = Backoff::new();
        let mut place = random();
        loop {
            for _ in 0..self.array.len() {
                place = (place + 1) % self.array.len();
                let slot = &self.pool[self.array[place].load(Ordering::Relaxed)];
                match slot.join(bytes, self.max_group) {
                    Join::Refused => {}
                    joined => return (slot, joined),
                }
            }
            backoff.snooze();
        }
    }

    /// Puts a fresh slot at `place` of the array. It is the caller's turn.
    fn replace(&self, place: usize) {
        let mut backoff = Backoff::new();
        for probes in 1.. {
            let index = self.leaders.next_slot.load(Ordering::Relaxed) % self.pool.len();
            self.leaders.next_slot.store(index + 1, Ordering::Relaxed);
            if self.pool[index].open(place) {
                // Relaxed: who finds the slot here judges it by its own word.
                self.array[place].store(index, Ordering::Relaxed);
                return;
            }
            if probes % self.pool.len() == 0 {
                // All are in use. Those closed earlier become free without anyone's turn, so this ends.
                backoff.snooze();
            }
        }
    }

    /// The part of a group's leader; returns where the group's space starts, and its size.
    fn lead(&self, space: &Space, slot: &Slot) -> (Lsn, u64) {
        let mut turn = space.turn();
        self.replace(slot.place());
        let group = slot.close();
        let lsn = turn.acquire(group.bytes, group.members);
        let consolidated = &self.leaders.consolidated;
        consolidated.store(consolidated.load(Ordering::Relaxed) + group.members - 1, Ordering::Relaxed);
        drop(turn);
        slot.notify(lsn, group.bytes);
        (lsn, group.bytes)
    }
}

impl Insertion for HybridInsertion {
    #[inline]
    fn insert(&self, space: &Space, bytes: u64, fill: impl FnOnce(Lsn)) -> Lsn {
        let turn = if bytes > self.max_group { Some(space.turn()) } else { space.try_turn() };
        if let Some(mut turn) = turn {
            let lsn = turn.acquire(bytes, 1);
            drop(turn);
            fill(lsn);
            space.release(lsn, lsn.advance(bytes));
            return lsn;
        }
        let (slot, joined) = self.join(bytes);
        let ((group_lsn, group_bytes), offset) = match joined {
            Join::Member { offset } => (slot.wait(), offset),
            _ => (self.lead(space, slot), 0),
        };
        let lsn = group_lsn.advance(offset);
        fill(lsn);
        if slot.leave(bytes) {
            space.release(group_lsn, group_lsn.advance(group_bytes));
            slot.free();
        }
        lsn
    }

    fn consolidated(&self) -> u64 {
        self.leaders.consolidated.load(Ordering::Relaxed)
    }
}

/// A cheap random number, different from thread to thread.
fn random() -> usize {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    STATE.with(|state| {
        let mut x = state.get();
        if x == 0 {
            // The address of a thread-local variable tells threads apart.
            x = std::ptr::from_ref(state) as u64 | 1;
        }
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        (x >> 32) as usize
    })
}
