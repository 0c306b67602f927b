//! The four positions that say what may be done with each part of the log buffer.
//!
//! ```text
//!   reclaimed      durable            released                  next          reclaimed + capacity
//!  ----+--------------+-------------------+------------------------+--------------------+----
//!      |  kept: the   |  stable: may be   |  handed out, being     |  free              |
//!      |  last block  |  written to disk  |  filled in             |                    |
//! ```
//!
//! - `next` is where the next record goes. Only the thread whose [`Turn`] it is moves it; or, in a log whose design has no
//!   turns, everyone does with an atomic addition ([`Space::reserve`]).
//! - `released` follows it in LSN order as threads finish filling in. Everything below is stable. Who moves it is up to
//!   the insertion design, and it is never two threads at a time: [`Space::release_in_order`] is for designs that see to
//!   the order themselves, [`Space::release`] for those that do not.
//! - `durable` follows that; only the one thread that flushes moves it.
//! - `reclaimed` is `durable` rounded down to a whole block: the last block is written again when it has filled up, so
//!   its beginning has to stay in the buffer.
//!
//! # Room
//! What is filled in never passes `reclaimed + capacity`. With turns neither does `next`: [`Turn::acquire`] waits before
//! it moves it, and everyone else waits for the turn. Without turns a reservation is made before it is known whether there
//! is room, and cannot be taken back, since others have reserved behind it. So `next` may pass the limit by what the
//! threads that are in `reserve` ask for, and they wait with their reservations. That ends: the first of them waits for
//! records to become durable that all have room, so nothing that it waits for waits for it. To keep it rare, threads that
//! come while others wait for room back off before they reserve.
//!
//! When the log has failed nobody waits for room any more, and space is handed out that must not be filled in:
//! [`Space::durable_if_room`] tells the filler.
//!
//! # Release
//! With [`Space::release`], an owner whose turn it is moves `released` over its space. One who is early spins for a moment,
//! as in algorithm 3 of Aether. But there may be more threads than processors, and the one before may have lost its
//! processor in the middle: to wait for it would hold up the page latches and locks that the waiter has. So it leaves a
//! note of its space instead, and whoever moves `released` to where a noted space starts moves it on.
//!
//! No note is overlooked: a note is announced by a bit in the word of `released` itself, so who moves `released` with an
//! atomic swap either finds the bit, or comes first and the one who sets it finds the new position. Either acts on notes
//! with their mutex held, so that each note is acted on once, and sets the bit again if notes are left.

use std::collections::BTreeMap;

use duramen_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, Backoff, CachePadded, Condvar, Mutex, RawMutex, thread};
use duramen_types::Lsn;
use duramen_types::planted::{Bug, is_on};

use crate::bell::Bell;

/// Bit in the word of `released`: there are notes.
const NOTED: u64 = 1 << 63;

/// The positions of a log buffer.
#[derive(Debug)]
pub(crate) struct Space {
    capacity: u64,
    block: u64,
    next: CachePadded<Next>,
    /// The position, and [`NOTED`].
    released: CachePadded<AtomicU64>,
    durable: CachePadded<AtomicU64>,
    notes: CachePadded<Mutex<Notes>>,
    failed: AtomicBool,
    /// Rung when an insertion finds the buffer full, so that the daemon flushes.
    flusher: Arc<Bell>,
    /// Threads in `wait_for_room`. Changed with `room` locked, read without.
    waiting: AtomicUsize,
    room: Mutex<()>,
    room_made: Condvar,
}

/// Start and end of the spaces that were filled in before it was their turn to be released. Spaces that follow each other
/// are mostly one note: behind a thread that has lost its processor there may be many.
type Notes = BTreeMap<u64, u64>;

/// What the thread whose turn it is changes, together with the lock that makes it its turn: one cache line, so that
/// taking the lock brings the rest along.
#[derive(Debug)]
struct Next {
    turn: RawMutex,
    lsn: AtomicU64,
    records: AtomicU64,
    full_waits: AtomicU64,
}

/// The right to hand out space: the insertion lock, held. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    space: &'a Space,
}

impl Space {
    /// An empty buffer of `capacity` bytes, flushed in blocks of `block` bytes, a power of two, for a log that ends at
    /// `end`.
    pub(crate) fn new(capacity: u64, block: u64, end: Lsn, flusher: Arc<Bell>) -> Self {
        assert!(block.is_power_of_two(), "blocks are rounded to with a mask");
        let next = Next {
            turn: RawMutex::new(),
            lsn: AtomicU64::new(end.get()),
            records: AtomicU64::new(0),
            full_waits: AtomicU64::new(0),
        };
        Self {
            capacity,
            block,
            next: CachePadded::new(next),
            released: CachePadded::new(AtomicU64::new(end.get())),
            durable: CachePadded::new(AtomicU64::new(end.get())),
            notes: CachePadded::new(Mutex::new(Notes::new())),
            failed: AtomicBool::new(false),
            flusher,
            waiting: AtomicUsize::new(0),
            room: Mutex::new(()),
            room_made: Condvar::new(),
        }
    }

    /// Where the next record goes: a snapshot.
    pub(crate) fn end(&self) -> Lsn {
        Lsn::new(self.next.lsn.load(Ordering::Acquire))
    }

    /// Everything below is stable.
    pub(crate) fn released(&self) -> Lsn {
        Lsn::new(self.released.load(Ordering::Acquire) & !NOTED)
    }

    /// Everything below is on the device.
    #[inline]
    pub(crate) fn durable(&self) -> Lsn {
        Lsn::new(self.durable.load(Ordering::Acquire))
    }

    /// Whether the log has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Insertions that wait for room.
    pub(crate) fn waiting_for_room(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Records that got space, and how often one had to wait for it.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.next.records.load(Ordering::Relaxed), self.next.full_waits.load(Ordering::Relaxed))
    }

    /// Waits for the insertion lock. It is held for nanoseconds, unless there is no room or its holder has lost its
    /// processor; so a waiter spins for longer than it would for another lock before it sleeps: with many threads, each
    /// of which would be woken in its turn, a sleep costs a hundred times as much as the work that they wait for.
    #[inline]
    pub(crate) fn turn(&self) -> Turn<'_> {
        let mut backoff = Backoff::new();
        while !self.next.turn.try_lock() {
            if !backoff.spin() {
                self.next.turn.lock();
                break;
            }
        }
        Turn { space: self }
    }

    /// Takes the insertion lock if it is free.
    #[inline]
    pub(crate) fn try_turn(&self) -> Option<Turn<'_>> {
        self.next.turn.try_lock().then(|| Turn { space: self })
    }

    /// The turn that another thread has given away with [`Turn::entrust`].
    ///
    /// # Safety
    /// Each entrusted turn is taken over once.
    #[inline]
    pub(crate) unsafe fn entrusted_turn(&self) -> Turn<'_> {
        Turn { space: self }
    }

    /// Hands out `bytes` without a turn, for designs that have none; waits while there is no room.
    #[inline]
    pub(crate) fn reserve(&self, bytes: u64) -> Lsn {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.back_off(bytes);
        }
        // What this thread did before happens before any later insertion; checkpoints rest on that.
        let lsn = self.next.lsn.fetch_add(bytes, Ordering::AcqRel);
        if !self.has_room(lsn + bytes, self.durable()) {
            self.wait_for_room(|| lsn + bytes);
        }
        Lsn::new(lsn)
    }

    /// Waits, without a reservation, until it looks as if there were room for `bytes`.
    #[cold]
    fn back_off(&self, bytes: u64) {
        reach(Probe::BackedOff);
        let end = || self.next.lsn.load(Ordering::Relaxed) + bytes;
        if !self.has_room(end(), self.durable()) {
            self.wait_for_room(end);
        }
    }

    #[inline]
    fn has_room(&self, end: u64, durable: Lsn) -> bool {
        end <= (durable.get() & !(self.block - 1)) + self.capacity
    }

    /// The durable position, if space that ends at `end` may be filled in. It may not when it was handed out after the
    /// log failed: the bytes it would overwrite may never have reached the device, and a reader may be at them.
    #[inline]
    pub(crate) fn durable_if_room(&self, end: Lsn) -> Option<Lsn> {
        let durable = self.durable();
        self.has_room(end.get(), durable).then_some(durable)
    }

    /// Waits until there is room up to `end`, which may move meanwhile, or the log has failed.
    #[cold]
    fn wait_for_room(&self, end: impl Fn() -> u64) {
        reach(Probe::BufferFull);
        let mut guard = self.room.lock();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.next.full_waits.store(self.next.full_waits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Pairs with the fence in `set_durable`: either that one sees us waiting, or we see its position.
        fence(Ordering::SeqCst);
        self.flusher.ring();
        while !self.has_room(end(), self.durable()) && !self.has_failed() {
            self.room_made.wait(&mut guard);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Moves `released` from `from` to `to`, in a log whose design calls this in LSN order, one thread at a time, and
    /// never calls [`Space::release`].
    #[inline]
    pub(crate) fn release_in_order(&self, from: Lsn, to: Lsn) {
        assert_eq!(self.released.load(Ordering::Relaxed), from.get(), "space is released in order");
        self.released.store(to.get(), Ordering::Release);
    }

    /// Counts records that got space without a turn. One thread at a time.
    pub(crate) fn count_records(&self, records: u64) {
        self.next.records.store(self.next.records.load(Ordering::Relaxed) + records, Ordering::Relaxed);
    }

    /// Declares the space from `lsn` to `end` filled in. It counts as released when all before it is (Aether, algorithm
    /// 3), which may be after the return.
    #[inline]
    pub(crate) fn release(&self, lsn: Lsn, end: Lsn) {
        if !is_on(Bug::ReleaseOutOfOrder) && self.released() != lsn && !self.is_turn_soon(lsn) {
            reach(Probe::NoteLeft);
            self.leave_note(lsn, end);
            return;
        }
        // Acquire: the fillings before a note are passed on by who acts on it.
        if self.released.swap(end.get(), Ordering::AcqRel) & NOTED != 0 {
            self.follow_notes(&mut self.notes.lock());
        }
    }

    /// Spins for about as long as others need that are at work. Not when there are notes: somebody before has spun in vain.
    #[cold]
    fn is_turn_soon(&self, lsn: Lsn) -> bool {
        let mut backoff = Backoff::new();
        loop {
            match self.released.load(Ordering::Acquire) {
                noted if noted & NOTED != 0 => return noted == lsn.get() | NOTED,
                released if released == lsn.get() => return true,
                _ if !backoff.is_spinning() => return false,
                _ => backoff.snooze(),
            }
        }
    }

    #[cold]
    fn leave_note(&self, lsn: Lsn, end: Lsn) {
        let mut notes = self.notes.lock();
        if let Some((_, noted_end)) = notes.range_mut(..lsn.get()).next_back()
            && *noted_end == lsn.get()
        {
            // That note has been announced, and who acts on it finds it longer.
            *noted_end = end.get();
            return;
        }
        notes.insert(lsn.get(), end.get());
        if is_on(Bug::NoteNotAnnounced) {
            return;
        }
        self.follow_notes(&mut notes);
    }

    /// Moves `released` over the noted spaces that it has come to, and announces the others.
    #[cold]
    fn follow_notes(&self, notes: &mut Notes) {
        while let Some(first) = notes.first_entry() {
            // Acquire, because who moved `released` there has not passed on what it did by our mutex; Release, in case
            // that one finds the bit instead.
            let released = self.released.fetch_or(NOTED, Ordering::AcqRel) & !NOTED;
            if released != *first.key() {
                return;
            }
            reach(Probe::NoteFollowed);
            // The space at `released` is the noted one, so nobody else moves `released`.
            self.released.store(first.remove(), Ordering::Release);
        }
    }

    /// Declares everything below `lsn` durable. Only the flusher calls this.
    pub(crate) fn set_durable(&self, lsn: Lsn) {
        assert!(lsn >= self.durable() && lsn <= self.released(), "only stable bytes become durable");
        let unseen = is_on(Bug::RoomFenceDropped) && self.waiting.load(Ordering::Relaxed) == 0;
        if is_on(Bug::RoomFenceDropped) {
            // As long as the store waits in a store buffer.
            (0..16).for_each(|_| thread::yield_now());
        }
        self.durable.store(lsn.get(), Ordering::Release);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 && !unseen {
            // With the lock held: a waiter that saw the old position is then asleep, not about to be.
            let _room = self.room.lock();
            self.room_made.notify_all();
        }
    }

    /// Declares the log failed: nobody waits for room any more.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::SeqCst);
        let _room = self.room.lock();
        self.room_made.notify_all();
    }
}

impl Turn<'_> {
    /// Hands out `bytes` for `records` records; waits while there is no room.
    #[inline]
    pub(crate) fn acquire(&mut self, bytes: u64, records: u64) -> Lsn {
        let next = &self.space.next;
        let lsn = next.lsn.load(Ordering::Relaxed);
        let end = lsn + bytes;
        if !self.space.has_room(end, self.space.durable()) {
            self.space.wait_for_room(|| end);
        }
        // No read-modify-write is needed: nobody else writes these.
        next.records.store(next.records.load(Ordering::Relaxed) + records, Ordering::Relaxed);
        next.lsn.store(end, Ordering::Release);
        Lsn::new(lsn)
    }

    /// Keeps the turn when this thread has gone on: another one takes it over with [`Space::entrusted_turn`].
    #[inline]
    pub(crate) fn entrust(self) {
        std::mem::forget(self);
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a turn exists while the lock is held, and only once.
        unsafe { self.space.next.turn.unlock() };
    }
}

#[cfg(test)]
#[path = "space_tests.rs"]
mod tests;
