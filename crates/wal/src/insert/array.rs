//! The consolidation array: threads that found the insertion lock taken combine their requests in
//! it (Aether, sections 5.1 and A.4, algorithms 2 and 4).
//!
//! A thread joins some [`Slot`] of the array; the first thread in a slot is the group's leader. It
//! waits for the lock, replaces the slot in the array with a fresh one from the pool, closes the
//! slot, acquires space for the whole group and publishes it to the members. Each member, the
//! leader included, then fills in its own part and leaves. The last to leave releases the group's
//! space and frees the slot. So the size of the array bounds the number of threads at the lock.
//!
//! Slots are used in rotation. The slot behind the one taken last is nearly always free, since its
//! group was closed a whole round ago; if not, the holder of the lock tries the next one. A round
//! covers only as many slots of the pool as this needs, because the records themselves push slots
//! that were used long ago out of the caches. When the next slot was not free more than once in a
//! round, the next round is twice as long; after a round without such a miss, a little shorter.
//!
//! Groups are bounded so that they fit in the log buffer; a larger record waits for the lock alone.

use duramen_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Backoff, CachePadded, cpu, thread};
use duramen_types::Lsn;

use super::Shape;
use super::slot::{Group, Join, Slot};
use crate::buffer::positions::{InsertionGuard, Space};

/// The largest size of a group in bytes. Beyond it, combining saves nothing and only delays the
/// release of members that finish early. A lower bound would leave large records no group to join.
const MAX_GROUP_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct ConsolidationArray {
    /// Index in the pool of the slot at each place.
    places: Box<[CachePadded<AtomicUsize>]>,
    /// Number of arrays into which `places` is divided.
    arrays: usize,
    pub(super) pool: Box<[CachePadded<Slot>]>,
    /// Slots in the shortest round.
    shortest: usize,
    max_group: u64,
    leaders: CachePadded<Leaders>,
}

/// What only the holder of the insertion lock changes.
#[derive(Debug)]
struct Leaders {
    /// The slot of the pool that was taken last.
    last_slot: AtomicUsize,
    /// Number of slots of the pool used in rotation.
    round: AtomicUsize,
    /// How many times in this round the next slot was not free.
    missed: AtomicUsize,
    /// Records that joined a group as members.
    consolidated: AtomicU64,
}

/// A thread's part of a group's space.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) lsn: Lsn,
    bytes: u64,
    group: GroupSpace<'a>,
    /// Whether the group has no other member.
    alone: bool,
}

/// The space of a group. The last member to leave releases it, and then frees the slot.
#[derive(Debug)]
pub(super) struct GroupSpace<'a> {
    pub(super) slot: &'a Slot,
    pub(super) lsn: Lsn,
    pub(super) end: Lsn,
}

impl ConsolidationArray {
    pub(super) fn new(shape: Shape) -> Self {
        let pool: Box<[_]> = (0..shape.pool).map(|_| CachePadded::new(Slot::default())).collect();
        let places: Box<[_]> = (0..shape.places * shape.arrays)
            .map(|place| {
                assert!(pool[place].open(place), "a new slot is free");
                CachePadded::new(AtomicUsize::new(place))
            })
            .collect();
        // Half of them are in the array.
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

    /// Takes the insertion lock for a thread that inserts alone: its record is too large for a
    /// group, or the lock is free. `tried` is as for [`super::Insertion::insert`].
    pub(super) fn lock_alone<'a>(&self, space: &'a Space, bytes: u64, tried: bool) -> Option<InsertionGuard<'a>> {
        if bytes > self.max_group {
            return Some(space.lock(tried));
        }
        space.try_lock(tried)
    }

    /// Acquires `bytes` as part of a group. `acquired` receives the held lock and the slot's index
    /// before the members learn of the group's space. For `relieve` see [`Self::take`].
    #[cold]
    pub(super) fn part<'a>(
        &self,
        space: &'a Space,
        bytes: u64,
        relieve: impl Fn(),
        acquired: impl FnOnce(InsertionGuard<'a>, usize),
    ) -> Part<'_> {
        let (index, joined) = self.join(bytes);
        let slot = &*self.pool[index];
        if let Join::Member { offset } = joined {
            reach(Probe::GroupJoined);
            let (start, all) = slot.wait();
            let group = GroupSpace { slot, lsn: start, end: start.advance(all) };
            return Part { lsn: start.advance(offset), bytes, group, alone: false };
        }
        let mut guard = space.lock_with_priority();
        let place = slot.place();
        // Where groups form, the slot taken last is in use.
        let last = self.leaders.last_slot.load(Ordering::Relaxed);
        let (fresh, _) = self.take_next(last, |slot| slot.open(place), relieve);
        // Relaxed: a thread that finds the slot here judges it by the slot's own word.
        self.places[place].store(fresh, Ordering::Relaxed);
        let Group { bytes: all, members } = slot.close();
        let lsn = guard.acquire(all, members);
        let consolidated = &self.leaders.consolidated;
        consolidated.store(consolidated.load(Ordering::Relaxed) + members - 1, Ordering::Relaxed);
        acquired(guard, index);
        slot.notify(lsn, all);
        Part { lsn, bytes, group: GroupSpace { slot, lsn, end: lsn.advance(all) }, alone: members == 1 }
    }

    /// Joins some slot (algorithm 4, `slot_join`): probes the places from a random one until a slot
    /// accepts it. Returns the slot's index in the pool.
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

    /// Takes a free slot from the pool: the first, from the one taken last, with which `take`
    /// succeeds. Returns its index and the slot. The caller holds the insertion lock. While no slot
    /// is free, calls `relieve`: perhaps no thread has noticed yet that some are no longer needed.
    #[inline(always)]
    pub(super) fn take(&self, take: impl Fn(&Slot) -> bool, relieve: impl Fn()) -> (usize, &Slot) {
        let last = self.leaders.last_slot.load(Ordering::Relaxed);
        // A thread without competitors always finds the same slot, which is in its cache.
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
                // All are in use. Those closed earlier become free without the lock: the loop ends.
                relieve();
                backoff.snooze();
            }
        }
        unreachable!("the loop has no other end")
    }

    /// Begins a new round and returns its number of slots. The caller holds the insertion lock.
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

    pub(super) fn consolidated(&self) -> u64 {
        self.leaders.consolidated.load(Ordering::Relaxed)
    }
}

impl<'a> Part<'a> {
    /// Leaves the group after filling in the part. The last member to leave gets the group.
    pub(super) fn leave(self) -> Option<GroupSpace<'a>> {
        (self.alone || self.group.slot.leave(self.bytes)).then_some(self.group)
    }
}
