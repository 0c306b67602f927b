//! The consolidation array: where threads that found the insertion lock taken combine their requests (Aether, sections
//! 5.1 and A.4, algorithms 2 and 4).
//!
//! A thread joins some [`Slot`] of the array. The first in a slot is the group's leader: it waits for the lock, replaces
//! the slot in the array with a fresh one from the pool, closes it, acquires space for the whole group and tells the
//! members where it is. Each member, the leader included, then fills in its own part and leaves; the last to leave
//! releases the space of the whole group and frees the slot. So the number of threads at the lock is bounded by the size
//! of the array, whatever the number of threads.
//!
//! The slots of the pool are used in turn. The one due is nearly always free, since it was closed a whole round of the
//! pool ago; if it is not, the next one is tried. Groups are bounded, so that they always fit in the log buffer; a record
//! above the bound does not join but waits for the lock by itself.

use duramen_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Backoff, CachePadded, cpu};
use duramen_types::Lsn;

use super::Shape;
use super::slot::{Join, Slot};
use crate::space::{Space, Turn};

/// Most bytes of a group, whatever the size of the buffer: beyond this, combining saves nothing any more and only delays
/// the release of those who finish early.
const MAX_GROUP_BYTES: u64 = 256 << 10;

/// The array and the pool of slots.
#[derive(Debug)]
pub(super) struct ConsolidationArray {
    /// Index in the pool of the slot at each place.
    places: Box<[CachePadded<AtomicUsize>]>,
    /// So many parts of `places` are arrays of their own.
    arrays: usize,
    pool: Box<[CachePadded<Slot>]>,
    max_group: u64,
    leaders: CachePadded<Leaders>,
}

/// What only the thread whose turn it is changes.
#[derive(Debug)]
struct Leaders {
    /// The slot of the pool that is due.
    next_slot: AtomicUsize,
    /// Records that joined a group as members.
    consolidated: AtomicU64,
}

/// A thread's part of a group's space.
#[derive(Debug)]
pub(super) struct Part<'a> {
    /// Index of the slot in the pool.
    index: usize,
    slot: &'a Slot,
    group_lsn: Lsn,
    group_bytes: u64,
    /// Where the part starts in the group's space, and its size.
    offset: u64,
    bytes: u64,
}

/// A group that everyone has left: its space can be released, and its slot must be freed then.
#[derive(Debug)]
pub(super) struct Filled<'a> {
    /// Index of the slot in the pool.
    pub(super) index: usize,
    pub(super) slot: &'a Slot,
    /// Where the group's space starts and ends.
    pub(super) lsn: Lsn,
    pub(super) end: Lsn,
}

impl ConsolidationArray {
    /// An array without groups.
    pub(super) fn new(shape: Shape) -> Self {
        let pool: Box<[_]> = (0..shape.pool).map(|_| CachePadded::new(Slot::default())).collect();
        let places = (0..shape.places * shape.arrays)
            .map(|place| {
                assert!(pool[place].open(place), "a new slot is free");
                CachePadded::new(AtomicUsize::new(place))
            })
            .collect();
        Self {
            places,
            arrays: shape.arrays,
            pool,
            max_group: MAX_GROUP_BYTES.min(shape.capacity / 4),
            leaders: CachePadded::new(Leaders {
                next_slot: AtomicUsize::new(shape.places * shape.arrays),
                consolidated: AtomicU64::new(0),
            }),
        }
    }

    /// The turn for a thread that inserts alone: it has found the lock free, or its record is too large for a group.
    #[inline]
    pub(super) fn turn_alone<'a>(&self, space: &'a Space, bytes: u64) -> Option<Turn<'a>> {
        if bytes > self.max_group { Some(space.turn()) } else { space.try_turn() }
    }

    /// Gets `bytes` as part of a group. `acquired` gets the turn and the slot's index once space for the group has been
    /// acquired, before the members learn of it.
    pub(super) fn part<'a>(&self, space: &'a Space, bytes: u64, acquired: impl FnOnce(Turn<'a>, usize)) -> Part<'_> {
        let (index, joined) = self.join(bytes);
        let slot = &*self.pool[index];
        let ((group_lsn, group_bytes), offset) = match joined {
            Join::Member { offset } => {
                reach(Probe::GroupJoined);
                (slot.wait(), offset)
            }
            _ => {
                let mut turn = space.turn();
                self.replace(slot.place());
                let group = slot.close();
                let lsn = turn.acquire(group.bytes, group.members);
                let consolidated = &self.leaders.consolidated;
                consolidated.store(consolidated.load(Ordering::Relaxed) + group.members - 1, Ordering::Relaxed);
                acquired(turn, index);
                slot.notify(lsn, group.bytes);
                ((lsn, group.bytes), 0)
            }
        };
        Part { index, slot, group_lsn, group_bytes, offset, bytes }
    }

    /// Joins some slot (algorithm 4, `slot_join`): probes the places at random until one takes it. Returns its index in
    /// the pool.
    fn join(&self, bytes: u64) -> (usize, Join) {
        let mut backoff = Backoff::new();
        let places = self.places.len() / self.arrays;
        let first = if self.arrays > 1 { cpu::node() % self.arrays * places } else { 0 };
        let mut place = random() as usize;
        loop {
            for _ in 0..places {
                place = (place + 1) % places;
                let index = self.places[first + place].load(Ordering::Relaxed);
                match self.pool[index].join(bytes, self.max_group) {
                    Join::Refused => {}
                    joined => return (index, joined),
                }
            }
            backoff.snooze();
        }
    }

    /// Puts a fresh slot at `place` of the array. It is the caller's turn.
    fn replace(&self, place: usize) {
        let index = self.take(|slot| slot.open(place));
        // Relaxed: who finds the slot here judges it by its own word.
        self.places[place].store(index, Ordering::Relaxed);
    }

    /// Takes a free slot from the pool: the first from the one due that `take` succeeds with; returns its index. It is
    /// the caller's turn.
    #[inline]
    pub(super) fn take(&self, take: impl Fn(&Slot) -> bool) -> usize {
        let mut backoff = Backoff::new();
        for probes in 1.. {
            let due = self.leaders.next_slot.load(Ordering::Relaxed);
            let index = if due < self.pool.len() { due } else { 0 };
            self.leaders.next_slot.store(index + 1, Ordering::Relaxed);
            if take(&self.pool[index]) {
                return index;
            }
            if probes % self.pool.len() == 0 {
                reach(Probe::SlotsExhausted);
                // All are in use. Those closed earlier become free without anyone's turn, so this ends.
                backoff.snooze();
            }
        }
        unreachable!("the loop has no other end")
    }

    /// The slots of the pool.
    #[inline]
    pub(super) fn pool(&self) -> &[CachePadded<Slot>] {
        &self.pool
    }

    /// Records that joined a group as members.
    pub(super) fn consolidated(&self) -> u64 {
        self.leaders.consolidated.load(Ordering::Relaxed)
    }
}

impl<'a> Part<'a> {
    /// Where the part starts.
    pub(super) fn lsn(&self) -> Lsn {
        self.group_lsn.advance(self.offset)
    }

    /// Leaves the group, after the part has been filled in. The last to leave gets the group.
    pub(super) fn leave(self) -> Option<Filled<'a>> {
        let Self { index, slot, group_lsn: lsn, group_bytes, .. } = self;
        slot.leave(self.bytes).then(|| Filled { index, slot, lsn, end: lsn.advance(group_bytes) })
    }
}

/// A cheap random number, different from thread to thread.
#[inline]
pub(super) fn random() -> u32 {
    (duramen_sync::thread::random() >> 32) as u32
}
