//! The consolidation array: threads that found the insertion lock taken combine their requests in
//! it (Aether, sections 5.1 and A.4, algorithms 2 and 4).
//!
//! A thread joins some [`Slot`] of the array. The first thread in a slot is the group's leader. It
//! waits for the lock, replaces the slot in the array with a fresh one from the pool, closes the
//! slot, acquires space for the whole group and publishes the space to the members. Each member,
//! the leader included, then fills in its own part and leaves. The last member to leave releases
//! the space of the whole group and frees the slot. So the size of the array bounds the number of
//! threads at the lock, whatever the number of threads.
//!
//! Slots are used in rotation. The slot behind the one taken last is nearly always free, since its
//! group was closed a whole round ago; if it is not free, the holder of the lock tries the next
//! one. A round covers only as many slots of the pool as this needs, because a slot that was used
//! long ago has left the caches: the records themselves have pushed it out. When the next slot was
//! not free more than once in a round, the next round is twice as long; after a round without such
//! a miss, it is a little shorter. Groups are bounded so that they always fit in the log buffer. A
//! thread with a record above the bound does not join a group but waits for the lock by itself.

use duramen_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Backoff, CachePadded, cpu, thread};
use duramen_types::Lsn;

use super::Shape;
use super::slot::{Join, Slot};
use crate::buffer::positions::{InsertionGuard, Space};

/// The largest size of a group in bytes, whatever the size of the buffer. Beyond this size,
/// combining saves nothing more and only delays the release of members that finish early. The bound
/// is this high because large records must find groups that still have space for them.
const MAX_GROUP_BYTES: u64 = 1 << 20;

/// The array and the pool of slots.
#[derive(Debug)]
pub(super) struct ConsolidationArray {
    /// Index in the pool of the slot at each place.
    places: Box<[CachePadded<AtomicUsize>]>,
    /// Number of arrays into which `places` is divided.
    arrays: usize,
    pool: Box<[CachePadded<Slot>]>,
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
    slot: &'a Slot,
    group_lsn: Lsn,
    group_bytes: u64,
    /// Where the part starts in the group's space, and its size.
    offset: u64,
    bytes: u64,
    /// Whether the group has no other member.
    alone: bool,
}

/// A group that all members have left: its space can be released, after which its slot must be
/// freed.
#[derive(Debug)]
pub(super) struct Filled<'a> {
    pub(super) slot: &'a Slot,
    /// Where the group's space starts, and its size.
    pub(super) lsn: Lsn,
    bytes: u64,
}

impl ConsolidationArray {
    /// Makes an array without groups.
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

    /// Takes the insertion lock for a thread that inserts alone: because the lock is free, which is
    /// not worth checking if the lock has been `tried`, or because its record is too large for a
    /// group.
    pub(super) fn lock_alone<'a>(&self, space: &'a Space, bytes: u64, tried: bool) -> Option<InsertionGuard<'a>> {
        if bytes > self.max_group {
            return Some(space.lock(tried));
        }
        if tried { None } else { space.try_lock() }
    }

    /// Acquires `bytes` as part of a group. `acquired` receives the held lock and the slot's index
    /// after space for the group has been acquired and before the members learn of it. For
    /// `relieve` see [`Self::take`].
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
        let mut alone = false;
        let ((group_lsn, group_bytes), offset) = match joined {
            Join::Member { offset } => {
                reach(Probe::GroupJoined);
                (slot.wait(), offset)
            }
            _ => {
                let mut guard = space.lock_with_priority();
                self.replace(slot.place(), relieve);
                let group = slot.close();
                let lsn = guard.acquire(group.bytes, group.members);
                let consolidated = &self.leaders.consolidated;
                consolidated.store(consolidated.load(Ordering::Relaxed) + group.members - 1, Ordering::Relaxed);
                acquired(guard, index);
                alone = group.members == 1;
                slot.notify(lsn, group.bytes);
                ((lsn, group.bytes), 0)
            }
        };
        Part { slot, group_lsn, group_bytes, offset, bytes, alone }
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

    /// Puts a fresh slot at `place` of the array. The caller holds the insertion lock.
    fn replace(&self, place: usize, relieve: impl Fn()) {
        // Where groups form, the slot taken last is in use.
        let last = self.leaders.last_slot.load(Ordering::Relaxed);
        let (index, _) = self.take_next(last, |slot| slot.open(place), relieve);
        // Relaxed: a thread that finds the slot here judges it by the slot's own word.
        self.places[place].store(index, Ordering::Relaxed);
    }

    /// Takes a free slot from the pool: the first slot, from the one taken last, with which `take`
    /// succeeds. Returns its index and the slot. The caller holds the insertion lock. While no slot
    /// is free, calls `relieve`: some slots may be in use only because no thread has noticed yet
    /// that they are no longer needed.
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
                // All slots are in use. Those closed earlier become free without the insertion
                // lock, so this loop ends.
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

    /// Returns the slots of the pool.
    #[inline]
    pub(super) fn pool(&self) -> &[CachePadded<Slot>] {
        &self.pool
    }

    /// Returns the number of records that joined a group as members.
    pub(super) fn consolidated(&self) -> u64 {
        self.leaders.consolidated.load(Ordering::Relaxed)
    }
}

impl<'a> Part<'a> {
    /// Returns where the part starts.
    pub(super) fn lsn(&self) -> Lsn {
        self.group_lsn.advance(self.offset)
    }

    /// Leaves the group after filling in the part. The last member to leave gets the group.
    pub(super) fn leave(self) -> Option<Filled<'a>> {
        let Self { slot, group_lsn: lsn, group_bytes, .. } = self;
        (self.alone || slot.leave(self.bytes)).then_some(Filled { slot, lsn, bytes: group_bytes })
    }
}

impl Filled<'_> {
    /// Returns where the group's space ends.
    pub(super) fn end(&self) -> Lsn {
        self.lsn.advance(self.bytes)
    }
}
