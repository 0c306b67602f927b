//! The consolidation array: where threads that found the insertion lock taken combine their
//! requests (Aether, sections 5.1 and A.4, algorithms 2 and 4).
//!
//! A thread joins some [`Slot`] of the array. The first in a slot is the group's leader: it waits
//! for the lock, replaces the slot in the array with a fresh one from the pool, closes it, acquires
//! space for the whole group and tells the members where it is. Each member, the leader included,
//! then fills in its own part and leaves; the last to leave releases the space of the whole group
//! and frees the slot. So the number of threads at the lock is bounded by the size of the array,
//! whatever the number of threads.
//!
//! Slots are used in turn, so that the one behind the one that was taken last is nearly always
//! free, since it was closed a whole round ago; if it is not, the next one is tried. A round goes
//! through as many slots of the pool as are needed for that: few, because a slot that was used long
//! ago has left the caches, pushed out by the records themselves. When the next slot was not free
//! more than once in a round, the next round is twice as long; after one without, it is a little
//! shorter. Groups are bounded, so that they always fit in the log buffer; a record above the bound
//! does not join but waits for the lock by itself.

use duramen_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Backoff, CachePadded, cpu, thread};
use duramen_types::Lsn;

use super::Shape;
use super::slot::{Join, Slot};
use crate::buffer::positions::{Space, Turn};

/// Most bytes of a group, whatever the size of the buffer: beyond this, combining saves nothing any
/// more and only delays the release of those who finish early. It is so much because large records
/// must find groups with that much room left.
const MAX_GROUP_BYTES: u64 = 1 << 20;

/// The array and the pool of slots.
#[derive(Debug)]
pub(super) struct ConsolidationArray {
    /// Index in the pool of the slot at each place.
    places: Box<[CachePadded<AtomicUsize>]>,
    /// So many parts of `places` are arrays of their own.
    arrays: usize,
    pool: Box<[CachePadded<Slot>]>,
    /// Slots in the shortest round.
    shortest: usize,
    max_group: u64,
    leaders: CachePadded<Leaders>,
}

/// What only the thread whose turn it is changes.
#[derive(Debug)]
struct Leaders {
    /// The slot of the pool that was taken last.
    last_slot: AtomicUsize,
    /// So many slots of the pool are used in turn.
    round: AtomicUsize,
    /// So often in this round the next slot was not free.
    missed: AtomicUsize,
    /// Records that joined a group as members.
    consolidated: AtomicU64,
}

/// A thread's part of a group's space.
#[derive(Debug)]
pub(super) struct Part<'a> {
    slot: &'a Slot,
    group_lsn: Lsn,
    group_bytes: u64,
    /// Where the part starts in the group's space, and its size.
    offset: u64,
    bytes: u64,
    /// The group has no other member.
    alone: bool,
}

/// A group that everyone has left: its space can be released, and its slot must be freed then.
#[derive(Debug)]
pub(super) struct Filled<'a> {
    pub(super) slot: &'a Slot,
    /// Where the group's space starts, and its size.
    pub(super) lsn: Lsn,
    bytes: u64,
}

impl ConsolidationArray {
    /// An array without groups.
    pub(super) fn new(shape: Shape) -> Self {
        let pool: Box<[_]> = (0..shape.pool).map(|_| CachePadded::new(Slot::default())).collect();
        let places: Box<[_]> = (0..shape.places * shape.arrays)
            .map(|place| {
                assert!(pool[place].open(place), "a new slot is free");
                CachePadded::new(AtomicUsize::new(place))
            })
            .collect();
        // Half of them lie in the array.
        let shortest = (2 * places.len()).min(pool.len());
        Self {
            places,
            arrays: shape.arrays,
            shortest,
            pool,
            max_group: MAX_GROUP_BYTES.min(shape.capacity / 4),
            leaders: CachePadded::new(Leaders {
                last_slot: AtomicUsize::new(shape.places * shape.arrays % shape.pool),
                round: AtomicUsize::new(shortest),
                missed: AtomicUsize::new(0),
                consolidated: AtomicU64::new(0),
            }),
        }
    }

    /// The turn for a thread that inserts alone: it finds the lock free, which makes no sense to
    /// look for if it has been `tried`, or its record is too large for a group.
    pub(super) fn turn_alone<'a>(&self, space: &'a Space, bytes: u64, tried: bool) -> Option<Turn<'a>> {
        if bytes > self.max_group {
            return Some(space.turn(tried));
        }
        if tried { None } else { space.try_turn() }
    }

    /// Gets `bytes` as part of a group. `acquired` gets the turn and the slot's index once space
    /// for the group has been acquired, before the members learn of it. For `relieve` see
    /// [`Self::take`].
    #[cold]
    pub(super) fn part<'a>(
        &self,
        space: &'a Space,
        bytes: u64,
        relieve: impl Fn(),
        acquired: impl FnOnce(Turn<'a>, usize),
    ) -> Part<'_> {
        let (index, joined) = self.join(bytes);
        let slot = &*self.pool[index];
        let mut alone = false;
        let ((group_lsn, group_bytes), offset) = match joined {
            Join::Member { offset } => {
                reach(Probe::GroupJoined);
                (slot.wait(), offset)
            }
            _ => {
                let mut turn = space.turn_of_few();
                self.replace(slot.place(), relieve);
                let group = slot.close();
                let lsn = turn.acquire(group.bytes, group.members);
                let consolidated = &self.leaders.consolidated;
                consolidated.store(consolidated.load(Ordering::Relaxed) + group.members - 1, Ordering::Relaxed);
                acquired(turn, index);
                alone = group.members == 1;
                slot.notify(lsn, group.bytes);
                ((lsn, group.bytes), 0)
            }
        };
        Part { slot, group_lsn, group_bytes, offset, bytes, alone }
    }

    /// Joins some slot (algorithm 4, `slot_join`): probes the places at random until one takes it.
    /// Returns its index in the pool.
    fn join(&self, bytes: u64) -> (usize, Join) {
        let mut backoff = Backoff::new();
        let places = self.places.len() / self.arrays;
        let first = if self.arrays > 1 { cpu::node() % self.arrays * places } else { 0 };
        let mut place = thread::random() as usize;
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
    fn replace(&self, place: usize, relieve: impl Fn()) {
        // Where groups form, the slot taken last is in use.
        let last = self.leaders.last_slot.load(Ordering::Relaxed);
        let (index, _) = self.take_next(last, |slot| slot.open(place), relieve);
        // Relaxed: who finds the slot here judges it by its own word.
        self.places[place].store(index, Ordering::Relaxed);
    }

    /// Takes a free slot from the pool: the first from the one taken last that `take` succeeds
    /// with; returns it and its index. It is the caller's turn. While none is free, `relieve` is
    /// called: some may be in use only because somebody has to notice that they are not needed any
    /// more.
    #[inline(always)]
    pub(super) fn take(&self, take: impl Fn(&Slot) -> bool, relieve: impl Fn()) -> (usize, &Slot) {
        let last = self.leaders.last_slot.load(Ordering::Relaxed);
        // A thread that meets nobody always finds the same one, which is in its cache.
        let slot = &*self.pool[last];
        if take(slot) { (last, slot) } else { self.take_next(last, take, relieve) }
    }

    #[cold]
    fn take_next(&self, last: usize, take: impl Fn(&Slot) -> bool, relieve: impl Fn()) -> (usize, &Slot) {
        let mut backoff = Backoff::new();
        let mut index = last;
        let mut round = self.leaders.round.load(Ordering::Relaxed);
        for probes in 1.. {
            index += 1;
            if index >= round {
                round = self.next_round();
                index = 0;
            }
            let slot = &*self.pool[index];
            if take(slot) {
                self.leaders.last_slot.store(index, Ordering::Relaxed);
                return (index, slot);
            }
            let missed = &self.leaders.missed;
            missed.store(missed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            if probes % self.pool.len() == 0 {
                reach(Probe::SlotsExhausted);
                // All are in use. Those closed earlier become free without anyone's turn, so this
                // ends.
                relieve();
                backoff.snooze();
            }
        }
        unreachable!("the loop has no other end")
    }

    /// Begins a new round; returns how many slots it has. It is the caller's turn.
    fn next_round(&self) -> usize {
        let Leaders { round, missed, .. } = &*self.leaders;
        let now = round.load(Ordering::Relaxed);
        let next = match missed.load(Ordering::Relaxed) {
            0 => (now - now / 8).max(self.shortest),
            1 => now,
            _ => (2 * now).min(self.pool.len()),
        };
        round.store(next, Ordering::Relaxed);
        missed.store(0, Ordering::Relaxed);
        next
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
        let Self { slot, group_lsn: lsn, group_bytes, .. } = self;
        (self.alone || slot.leave(self.bytes)).then_some(Filled { slot, lsn, bytes: group_bytes })
    }
}

impl Filled<'_> {
    /// Where the group's space ends.
    pub(super) fn end(&self) -> Lsn {
        self.lsn.advance(self.bytes)
    }
}
