//! The four positions that say what may be done with each part of the log buffer.
//!
//! ```text
//!   reclaimed      durable            released                  next          reclaimed + capacity
//!  ----+--------------+-------------------+------------------------+--------------------+----
//!      |  kept: the   |  stable: may be   |  handed out, being     |  free              |
//!      |  last block  |  written to disk  |  filled in             |                    |
//! ```
//!
//! - `next` is where the next record goes. Only the thread whose [`Turn`] it is moves it.
//! - `released` follows it in LSN order as threads finish filling in; only the owner of the space that starts at
//!   `released` moves it, or who acts on the owner's note. Everything below is stable.
//! - `durable` follows that; only the one thread that flushes moves it.
//! - `reclaimed` is `durable` rounded down to a whole block: the last block is written again when it has filled up, so
//!   its beginning has to stay in the buffer.
//!
//! # Release
//! An owner whose turn it is moves `released` over its space. One who is early spins for a moment, as in algorithm 3 of
//! Aether. But there may be more threads than processors, and the one before may have lost its processor in the middle:
//! to wait for it would hold up the page latches and locks that the waiter has. So it leaves a note of its space instead,
//! and whoever moves `released` to where a noted space starts moves it on.
//!
//! No note is overlooked: who moves `released` looks for notes afterwards, and who leaves a note looks at `released`
//! afterwards, with a sequentially consistent fence between the two steps of each; one of them sees the other. Both act
//! on notes with their mutex held, so that each note is acted on once.
//!
//! `next` never passes `reclaimed + capacity`: [`Turn::acquire`] waits. When the log has failed it waits no more, and
//! space is handed out that must not be filled in: [`Space::durable_if_room`] tells the filler.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use duramen_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use duramen_sync::{Arc, Backoff, CachePadded, Condvar, Mutex, MutexGuard};
use duramen_types::Lsn;

use crate::bell::Bell;

/// The positions of a log buffer.
#[derive(Debug)]
pub(crate) struct Space {
    capacity: u64,
    block: u64,
    next: CachePadded<Next>,
    released: CachePadded<AtomicU64>,
    durable: CachePadded<AtomicU64>,
    notes: CachePadded<Notes>,
    failed: AtomicBool,
    /// Rung when an insertion finds the buffer full, so that the daemon flushes.
    flusher: Arc<Bell>,
    /// Threads in `wait_for_room`. Changed with `room` locked, read without.
    waiting: AtomicUsize,
    room: Mutex<()>,
    room_made: Condvar,
}

/// Spaces that were filled in before it was their turn to be released.
#[derive(Debug, Default)]
struct Notes {
    /// How many there are. Changed with `spaces` locked, read without.
    count: AtomicUsize,
    /// Start and end of each, the lowest first.
    spaces: Mutex<BinaryHeap<Reverse<(u64, u64)>>>,
}

/// What the thread whose turn it is changes, together with the lock that makes it its turn: one cache line, so that
/// taking the lock brings the rest along.
#[derive(Debug)]
struct Next {
    turn: Mutex<()>,
    lsn: AtomicU64,
    records: AtomicU64,
    full_waits: AtomicU64,
}

/// The right to hand out space: the insertion lock, held.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    space: &'a Space,
    _lock: MutexGuard<'a, ()>,
}

impl Space {
    /// An empty buffer of `capacity` bytes, flushed in blocks of `block` bytes, for a log that ends at `end`.
    pub(crate) fn new(capacity: u64, block: u64, end: Lsn, flusher: Arc<Bell>) -> Self {
        let next = Next {
            turn: Mutex::new(()),
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
            notes: CachePadded::new(Notes::default()),
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
        Lsn::new(self.released.load(Ordering::Acquire))
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

    /// Waits for the insertion lock.
    #[inline]
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn { space: self, _lock: self.next.turn.lock() }
    }

    /// Takes the insertion lock if it is free.
    #[inline]
    pub(crate) fn try_turn(&self) -> Option<Turn<'_>> {
        Some(Turn { space: self, _lock: self.next.turn.try_lock()? })
    }

    #[inline]
    fn has_room(&self, end: u64, durable: Lsn) -> bool {
        end <= durable.get() / self.block * self.block + self.capacity
    }

    /// The durable position, if space that ends at `end` may be filled in. It may not when it was handed out after the
    /// log failed: the bytes it would overwrite may never have reached the device, and a reader may be at them.
    #[inline]
    pub(crate) fn durable_if_room(&self, end: Lsn) -> Option<Lsn> {
        let durable = self.durable();
        self.has_room(end.get(), durable).then_some(durable)
    }

    #[cold]
    fn wait_for_room(&self, end: u64) {
        let mut guard = self.room.lock();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.next.full_waits.store(self.next.full_waits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Pairs with the fence in `set_durable`: either that one sees us waiting, or we see its position.
        fence(Ordering::SeqCst);
        self.flusher.ring();
        while !self.has_room(end, self.durable()) && !self.has_failed() {
            self.room_made.wait(&mut guard);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Declares the space from `lsn` to `end` filled in. It counts as released when all before it is (Aether, algorithm
    /// 3), which may be after the return.
    #[inline]
    pub(crate) fn release(&self, lsn: Lsn, end: Lsn) {
        if self.released.load(Ordering::Acquire) != lsn.get() && !self.is_turn_soon(lsn) {
            self.leave_note(lsn, end);
            return;
        }
        self.released.store(end.get(), Ordering::Release);
        // Pairs with the fence in `leave_note`.
        fence(Ordering::SeqCst);
        if self.notes.count.load(Ordering::Relaxed) > 0 {
            self.follow_notes(&mut self.notes.spaces.lock());
        }
    }

    /// Spins for about as long as others need that are at work.
    #[cold]
    fn is_turn_soon(&self, lsn: Lsn) -> bool {
        let mut backoff = Backoff::new();
        while backoff.is_spinning() {
            backoff.snooze();
            if self.released.load(Ordering::Acquire) == lsn.get() {
                return true;
            }
        }
        false
    }

    #[cold]
    fn leave_note(&self, lsn: Lsn, end: Lsn) {
        let mut spaces = self.notes.spaces.lock();
        spaces.push(Reverse((lsn.get(), end.get())));
        self.notes.count.store(spaces.len(), Ordering::Relaxed);
        // Pairs with the fence in `release`.
        fence(Ordering::SeqCst);
        self.follow_notes(&mut spaces);
    }

    /// Moves `released` over the noted spaces that it has come to.
    #[cold]
    fn follow_notes(&self, spaces: &mut BinaryHeap<Reverse<(u64, u64)>>) {
        let mut released = self.released.load(Ordering::Acquire);
        while let Some(&Reverse((start, end))) = spaces.peek()
            && start == released
        {
            spaces.pop();
            released = end;
            self.released.store(released, Ordering::Release);
        }
        self.notes.count.store(spaces.len(), Ordering::Relaxed);
    }

    /// Declares everything below `lsn` durable. Only the flusher calls this.
    pub(crate) fn set_durable(&self, lsn: Lsn) {
        assert!(lsn >= self.durable() && lsn <= self.released(), "only stable bytes become durable");
        self.durable.store(lsn.get(), Ordering::Release);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
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
            self.space.wait_for_room(end);
        }
        // No read-modify-write is needed: nobody else writes these.
        next.records.store(next.records.load(Ordering::Relaxed) + records, Ordering::Relaxed);
        next.lsn.store(end, Ordering::Release);
        Lsn::new(lsn)
    }
}

#[cfg(test)]
#[path = "space_tests.rs"]
mod tests;
