//! The positions that say what may be done with each part of the log buffer.
//!
//! ```text
//!   reclaimed      durable            released                  next          reclaimed + capacity
//!  ----+--------------+-------------------+------------------------+--------------------+----
//!      |  kept: the   |  stable: may be   |  handed out, being     |  free              |
//!      |  last block  |  written to disk  |  filled in             |                    |
//! ```
//!
//! - `next` is where the next record goes. Only the thread whose [`Turn`] it is moves it; or, in a
//!   log whose design has no turns, everyone does with an atomic addition ([`Space::reserve`]).
//! - `released` follows it in LSN order as threads finish filling in. Everything below is stable.
//!   Who moves it is up to the insertion design, and it is never two threads at a time:
//!   [`Space::release_in_order`] is for designs that see to the order themselves,
//!   [`Space::release`] for those that do not ([`crate::buffer::released`]).
//! - `durable` follows that; only the one thread that flushes moves it. Up to where the flush in
//!   progress will move it is told as soon as that is known ([`Space::in_flush`]). Where the buffer
//!   itself is persistent, all that is released is hardened ([`Space::hardened`]), and `durable`
//!   tells what is in the segments, too.
//! - `reclaimed` is `durable` rounded down to a whole block: the last block is written again when
//!   it has filled up, so its beginning has to stay in the buffer.
//!
//! # LogReservation
//! What is filled in never passes `reclaimed + capacity`. With turns neither does `next`:
//! [`Turn::acquire`] waits before it moves it, and everyone else waits for the turn. Without turns
//! a reservation is made before it is known whether there is room, and cannot be taken back, since
//! others have reserved behind it. So `next` may pass the limit by what the threads that are in
//! `reserve` ask for, and they wait with their reservations. That ends: the first of them waits for
//! records to become durable that all have room, so nothing that it waits for waits for it. To keep
//! it rare, threads that come while others wait for room back off before they reserve.
//!
//! Whether there is room, and whether the flusher has to be told that there is much to flush, is
//! looked at now and then only: `next.clear` says up to where that is not necessary. It is never
//! beyond the limit, since `durable` only grows.
//!
//! When the log has failed nobody waits for room any more, and space is handed out that must not be
//! filled in: [`Space::durable_if_room`] tells the filler.

use duramen_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, CachePadded, Condvar, Mutex, thread};
use duramen_types::{Gsn, Lsn, planted};

use crate::buffer::clock::Clock;
use crate::buffer::insertion_lock::InsertionLock;
use crate::buffer::released::Released;
use crate::wake_event::WakeEvent;

/// The positions of a log buffer.
#[derive(Debug)]
pub(crate) struct Space {
    capacity: u64,
    block: u64,
    alarm: u64,
    next: InsertionLock<Next>,
    released: Released,
    durable: CachePadded<AtomicU64>,
    /// Everything below is durable or will be when the present flush has ended.
    in_flush: CachePadded<AtomicU64>,
    failed: AtomicBool,
    hardening: Hardening,
    /// What is hardened, if the log tells; or was, when a log with a persistent buffer failed.
    /// Behind that, what is released may never have been filled in.
    hardened: CachePadded<AtomicU64>,
    /// Set when an insertion finds the buffer full or much of it unflushed, so that the daemon
    /// flushes.
    flusher: Arc<WakeEvent>,
    /// Threads in `wait_for_room`. Changed with `room` locked, read without.
    waiting: AtomicUsize,
    room: Mutex<()>,
    room_made: Condvar,
    /// Of one of several logs.
    clock: Option<Clock>,
}

/// When a record is hardened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hardening {
    /// When it has been flushed.
    Flushed,
    /// The buffer is persistent, and records are durable when they are released.
    Released,
    /// The buffer is persistent, and the log tells which of the released records are durable.
    Told,
}

/// What the thread whose turn it is changes.
#[derive(Debug)]
struct Next {
    lsn: AtomicU64,
    /// Up to here space can be handed out without looking at anything: there is room, and so little
    /// is unflushed that nobody need be told. Of no meaning without turns.
    clear: AtomicU64,
    records: AtomicU64,
    full_waits: AtomicU64,
}

/// The right to hand out space: the insertion lock, held. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    space: &'a Space,
    /// The flusher has to be told that much is unflushed, after the turn.
    alarmed: bool,
}

impl Space {
    /// An empty buffer of `capacity` bytes, flushed in blocks of `block` bytes, a power of two, for
    /// a log that ends at `end`. With `alarm` bytes unflushed, the flusher is woken.
    pub(crate) fn new(
        capacity: u64,
        block: u64,
        alarm: u64,
        end: Lsn,
        flusher: Arc<WakeEvent>,
        hardening: Hardening,
    ) -> Self {
        assert!(block.is_power_of_two(), "blocks are rounded to with a mask");
        let next = Next {
            lsn: AtomicU64::new(end.get()),
            clear: AtomicU64::new(end.get()),
            records: AtomicU64::new(0),
            full_waits: AtomicU64::new(0),
        };
        let space = Self {
            capacity,
            block,
            alarm,
            next: InsertionLock::new(next),
            released: Released::new(end, capacity),
            durable: CachePadded::new(AtomicU64::new(end.get())),
            in_flush: CachePadded::new(AtomicU64::new(end.get())),
            failed: AtomicBool::new(false),
            hardening,
            hardened: CachePadded::new(AtomicU64::new(end.get())),
            flusher,
            waiting: AtomicUsize::new(0),
            room: Mutex::new(()),
            room_made: Condvar::new(),
            clock: None,
        };
        space.look(end.get());
        space
    }

    /// The same for one of several logs, which needs a clock. It is kept by those who have the
    /// turn, so designs that have none cannot be used then.
    pub(crate) fn with_clock(self, clock: Option<Clock>) -> Self {
        Self { clock, ..self }
    }

    /// The same for measurements: who has filled in its space early waits for its turn to release
    /// it.
    pub(crate) fn without_notes(self) -> Self {
        Self { released: Released::without_notes(self.released()), ..self }
    }

    /// The clock of one of several logs.
    #[inline]
    pub(crate) fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    /// The GSN of the record at `lsn`, which the caller has acquired and not released.
    #[inline]
    pub(crate) fn gsn(&self, lsn: Lsn) -> Gsn {
        self.clock.as_ref().map_or(Gsn::new(lsn.get()), |clock| clock.gsn(lsn))
    }

    /// Where the next record goes: a snapshot.
    pub(crate) fn end(&self) -> Lsn {
        Lsn::new(self.next.lsn.load(Ordering::Acquire))
    }

    /// Everything below is stable. Where releases are put off, more may be: see
    /// [`crate::insert::Insertion::collect`].
    #[inline]
    pub(crate) fn released(&self) -> Lsn {
        self.released.get()
    }

    /// Everything below is on the device.
    #[inline]
    pub(crate) fn durable(&self) -> Lsn {
        Lsn::new(self.durable.load(Ordering::Acquire))
    }

    /// Everything below is hardened: always the end of a record.
    #[inline]
    pub(crate) fn hardened(&self) -> Lsn {
        match self.hardening {
            Hardening::Flushed => self.durable(),
            Hardening::Released => self.released_in_order().unwrap_or_else(|| self.hardened_so_far()),
            Hardening::Told => self.hardened_so_far(),
        }
    }

    fn hardened_so_far(&self) -> Lsn {
        Lsn::new(self.hardened.load(Ordering::Acquire))
    }

    /// As [`Space::released`], if all of that has been filled in: not if the log has failed.
    #[inline]
    pub(crate) fn released_in_order(&self) -> Option<Lsn> {
        let released = self.released();
        // Afterwards: space without room is released only by who has seen that the log has failed.
        (!self.has_failed()).then_some(released)
    }

    /// Everything below is on the device or will be when the flush that is in progress has ended
    /// well.
    pub(crate) fn in_flush(&self) -> Lsn {
        Lsn::new(self.in_flush.load(Ordering::Acquire))
    }

    /// A flush is about to write everything below `lsn`.
    pub(crate) fn set_in_flush(&self, lsn: Lsn) {
        self.in_flush.store(lsn.get(), Ordering::Release);
    }

    /// Everything below `lsn`, the end of a record, is hardened.
    pub(crate) fn set_hardened(&self, lsn: Lsn) {
        self.hardened.fetch_max(lsn.get(), Ordering::AcqRel);
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

    fn own_turn(&self) -> Turn<'_> {
        Turn { space: self, alarmed: false }
    }

    /// Hands out `bytes` for one record if it is nobody's turn and nothing has to be looked at;
    /// otherwise does nothing. The turn lasts until [`Space::end_turn`]. (No guard and no closure:
    /// what is to be done in the turn is made part of the caller's code then, in every design.)
    #[inline(always)]
    pub(crate) fn try_acquire(&self, bytes: u64) -> Option<Lsn> {
        if !self.next.try_lock() {
            return None;
        }
        let next = &*self.next;
        let lsn = next.lsn.load(Ordering::Relaxed);
        let end = lsn + bytes;
        // Relaxed: who has changed it has done so in a turn.
        if end <= next.clear.load(Ordering::Relaxed) {
            // No read-modify-write is needed: nobody else writes these.
            next.records.store(next.records.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            next.lsn.store(end, Ordering::Release);
            return Some(Lsn::new(lsn));
        }
        // SAFETY: the lock has been taken above.
        unsafe { self.next.unlock() };
        None
    }

    /// Ends the turn that [`Space::try_acquire`] has begun.
    ///
    /// # Safety
    /// It has, and the turn has not been ended yet.
    #[inline(always)]
    pub(crate) unsafe fn end_turn(&self) {
        // SAFETY: the lock is held, as the caller says.
        unsafe { self.next.unlock() };
    }

    /// Waits for the insertion lock; not without a pause at first if it has been `tried` already.
    pub(crate) fn turn(&self, tried: bool) -> Turn<'_> {
        if tried {
            self.next.lock_after_pause();
        } else {
            self.next.lock();
        }
        self.own_turn()
    }

    /// Waits for the insertion lock, which has been tried already, where few do.
    pub(crate) fn turn_of_few(&self) -> Turn<'_> {
        self.next.lock_of_few();
        self.own_turn()
    }

    /// Takes the insertion lock if it is free.
    pub(crate) fn try_turn(&self) -> Option<Turn<'_>> {
        self.next.try_lock().then(|| self.own_turn())
    }

    /// Looks how far space that follows `end` can be handed out without looking again; returns
    /// whether so much is unflushed that the flusher has to be told.
    fn look(&self, end: u64) -> bool {
        let durable = self.durable().get();
        let room = (durable & !(self.block - 1)) + self.capacity;
        let alarmed = end.saturating_sub(durable) >= self.alarm;
        // The flusher stays awake while it is that much. In case that it has seen less and gone to
        // sleep, look again soon.
        let quiet = if alarmed { end.saturating_add(self.alarm / 4) } else { durable.saturating_add(self.alarm - 1) };
        // Relaxed: it is read in turns, which pass on that what lies up to there has been flushed.
        self.next.clear.store(room.min(quiet), Ordering::Relaxed);
        alarmed
    }

    /// The turn that another thread has given away with [`Turn::entrust`].
    ///
    /// # Safety
    /// Each entrusted turn is taken over once.
    #[inline]
    pub(crate) unsafe fn entrusted_turn(&self) -> Turn<'_> {
        self.own_turn()
    }

    /// Hands out `bytes` without a turn, for designs that have none, unless others wait for room.
    /// [`Space::reserved`] must follow.
    #[inline]
    pub(crate) fn try_reserve(&self, bytes: u64) -> Option<Lsn> {
        // What this thread did before happens before any later insertion; checkpoints rest on that.
        (self.waiting.load(Ordering::Relaxed) == 0).then(|| Lsn::new(self.next.lsn.fetch_add(bytes, Ordering::AcqRel)))
    }

    /// Hands out `bytes` without a turn, for designs that have none; if others wait for room, it
    /// waits with them first. [`Space::reserved`] must follow.
    pub(crate) fn reserve(&self, bytes: u64) -> Lsn {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.back_off(bytes);
        }
        // As in `try_reserve`.
        Lsn::new(self.next.lsn.fetch_add(bytes, Ordering::AcqRel))
    }

    /// Waits until there is room for the `bytes` that have been reserved and end at `end`; returns
    /// whether there is, which is always so unless the log has failed.
    #[inline]
    pub(crate) fn reserved(&self, bytes: u64, end: Lsn) -> bool {
        let durable = self.durable();
        let is_quiet = end.get().saturating_sub(durable.get()) < self.alarm;
        is_quiet && self.has_room(end.get(), durable) || self.room_for_reserved(bytes, end)
    }

    #[cold]
    fn room_for_reserved(&self, bytes: u64, end: Lsn) -> bool {
        let end = end.get();
        if !self.has_room(end, self.durable()) {
            self.wait_for_room(|| end);
        }
        // The flusher stays awake while much is unflushed. In case that it has seen less and gone
        // to sleep, tell it again now and then.
        let step = (self.alarm / 4).max(1);
        let before = (end - bytes).saturating_sub(self.durable().get());
        if before < self.alarm || (end - bytes) / step != end / step {
            self.flusher.wake();
        }
        self.has_room(end, self.durable())
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

    /// The durable position, if space that ends at `end` may be filled in. It may not when it was
    /// handed out after the log failed: the bytes it would overwrite may never have reached the
    /// device, and a reader may be at them.
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
        // Pairs with the fence in `set_durable`: either that one sees us waiting, or we see its
        // position.
        fence(Ordering::SeqCst);
        self.flusher.wake();
        while !self.has_room(end(), self.durable()) && !self.has_failed() {
            self.room_made.wait(&mut guard);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Moves `released` from `from` to `to`, in a log whose design calls this in LSN order, one
    /// thread at a time, and never calls [`Space::release`].
    #[inline]
    pub(crate) fn release_in_order(&self, from: Lsn, to: Lsn) {
        assert_eq!(self.released(), from, "space is released in order");
        self.release_due(to);
    }

    /// As [`Space::release_in_order`], for a thread that has just seen `released` where its space
    /// starts.
    #[inline]
    pub(crate) fn release_due(&self, to: Lsn) {
        self.released.release_due(to);
    }

    /// Counts records that got space without a turn. One thread at a time.
    pub(crate) fn count_records(&self, records: u64) {
        self.next.records.store(self.next.records.load(Ordering::Relaxed) + records, Ordering::Relaxed);
    }

    /// Declares the space from `lsn` to `end` filled in. It counts as released when all before it
    /// is (Aether, algorithm 3), which may be after the return.
    #[inline]
    pub(crate) fn release(&self, lsn: Lsn, end: Lsn) {
        self.released.release(lsn, end, || self.has_failed());
    }

    /// Moves `released` over the spaces that were filled in early and have been come to.
    pub(crate) fn follow_notes(&self) {
        self.released.follow_all();
    }

    /// Declares everything below `lsn` durable. Only the flusher calls this.
    pub(crate) fn set_durable(&self, lsn: Lsn) {
        assert!(lsn >= self.durable() && lsn <= self.released(), "only stable bytes become durable");
        let unseen = planted!(RoomFenceDropped) && self.waiting.load(Ordering::Relaxed) == 0;
        if planted!(RoomFenceDropped) {
            // As long as the store waits in a store buffer.
            (0..16).for_each(|_| thread::yield_now());
        }
        self.durable.store(lsn.get(), Ordering::Release);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 && !unseen {
            // With the lock held: a waiter that saw the old position is then asleep, not about to
            // be.
            let _room = self.room.lock();
            self.room_made.notify_all();
        }
    }

    /// Declares the log failed: nobody waits for room any more.
    pub(crate) fn fail(&self) {
        let _room = self.room.lock();
        if !self.has_failed() && self.hardening == Hardening::Released {
            self.set_hardened(self.released());
        }
        self.failed.store(true, Ordering::SeqCst);
        self.room_made.notify_all();
    }
}

impl Turn<'_> {
    /// Hands out `bytes` for `records` records; waits while there is no room.
    pub(crate) fn acquire(&mut self, bytes: u64, records: u64) -> Lsn {
        let next = &*self.space.next;
        let lsn = next.lsn.load(Ordering::Relaxed);
        let end = lsn + bytes;
        if !self.space.has_room(end, self.space.durable()) {
            self.space.wait_for_room(|| end);
        }
        next.records.store(next.records.load(Ordering::Relaxed) + records, Ordering::Relaxed);
        next.lsn.store(end, Ordering::Release);
        if let Some(clock) = &self.space.clock {
            clock.pass(Lsn::new(lsn), || self.space.released());
        }
        self.alarmed = self.space.look(end);
        Lsn::new(lsn)
    }

    /// Keeps the turn when this thread has gone on: another one takes it over with
    /// [`Space::entrusted_turn`].
    pub(crate) fn entrust(self) {
        if self.alarmed {
            self.space.flusher.wake();
        }
        std::mem::forget(self);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // SAFETY: a turn exists while the lock is held, and only once.
        unsafe { self.space.next.unlock() };
        if self.alarmed {
            self.space.flusher.wake();
        }
    }
}

#[cfg(test)]
#[path = "positions_tests.rs"]
mod tests;
