//! The positions in the log buffer, which determine what a thread may do with each part of it.
//!
//! ```text
//!   reclaimed      durable            released                  next          reclaimed + capacity
//!  ----+--------------+-------------------+------------------------+--------------------+----
//!      |  kept: the   |  stable: may be   |  handed out, being     |  free              |
//!      |  last block  |  written to disk  |  filled in             |                    |
//! ```
//!
//! - `next` is the start of the next record. Only the holder of the insertion lock
//!   ([`InsertionGuard`]) moves it; or, in a log whose design has no lock, every inserting thread
//!   does with an atomic addition ([`Space::reserve`]).
//! - `released` follows `next` in LSN order as threads finish filling in. Everything below is
//!   stable. The insertion design determines which thread moves it, and two threads never do at a
//!   time: [`Space::release_in_order`] serves designs that ensure the order themselves,
//!   [`Space::release`] those that do not ([`crate::buffer::released`]).
//! - `durable` follows `released`; only the one thread that flushes moves it. [`Space::in_flush`]
//!   publishes how far the flush in progress will move it as soon as this is known. Where the
//!   buffer itself is persistent, everything released is hardened ([`Space::hardened`]), and
//!   `durable` states how much is in the segments, too.
//! - `reclaimed` is `durable` rounded down to a whole block: the last block is written again when
//!   it has filled up, so its beginning must stay in the buffer.
//!
//! # Space
//! Filled-in bytes never pass `reclaimed + capacity`. With the insertion lock neither does `next`:
//! [`InsertionGuard::acquire`] waits before it moves `next`, and all other threads wait for the
//! lock. Without the lock a thread reserves space before it knows whether there is room, and cannot
//! take the reservation back, since other threads have reserved behind it. So `next` may pass the
//! limit by the bytes that the threads in `reserve` request, and these threads wait with their
//! reservations. The wait ends: the first of them waits for records to become durable that all have
//! room, so nothing for which it waits waits for it. To keep this case rare, threads that come
//! while others wait for room back off before they reserve.
//!
//! Threads check only now and then whether there is room, and whether they must wake the flusher
//! because much is unflushed: up to `next.clear` no check is necessary. It is never beyond the
//! limit, since `durable` only grows.
//!
//! When the log has failed no thread waits for room any more, and space is handed out that must not
//! be filled in: [`Space::durable_if_room`] states this to the thread that fills in.

use duramen_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, CachePadded, Condvar, Mutex, thread};
use duramen_types::{Gsn, Lsn, planted};

use crate::buffer::clock::Clock;
use crate::buffer::insertion_lock::InsertionLock;
use crate::buffer::released::Released;
use crate::wake_event::WakeEvent;

#[derive(Debug)]
pub(crate) struct Space {
    capacity: u64,
    block: u64,
    flush_threshold: u64,
    next: InsertionLock<Next>,
    released: Released,
    durable: CachePadded<AtomicU64>,
    /// Everything below is durable, or will be when the present flush has ended.
    in_flush: CachePadded<AtomicU64>,
    failed: AtomicBool,
    hardening: Hardening,
    /// The hardened position, if the log sets it; or the hardened position when a log with a
    /// persistent buffer failed. Released bytes beyond it may never have been filled in.
    hardened: CachePadded<AtomicU64>,
    /// Woken to flush when an insertion finds the buffer full or much of it unflushed.
    flusher: Arc<WakeEvent>,
    /// Threads in `wait_for_room`. Changed with `room` locked, read without it.
    waiting: AtomicUsize,
    room: Mutex<()>,
    room_made: Condvar,
    /// The clock, if this is one of several logs.
    clock: Option<Clock>,
}

/// When a record is hardened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hardening {
    /// When it has been flushed.
    Flushed,
    /// The buffer is persistent, and records are durable when they are released.
    Released,
    /// The buffer is persistent, and the log sets which of the released records are durable.
    Told,
}

/// What only the holder of the insertion lock changes.
#[derive(Debug)]
struct Next {
    lsn: AtomicU64,
    /// In one of several logs: the clock has been advanced for everything below this position.
    timed: AtomicU64,
    /// Up to this position space can be handed out without any check: there is room, and little is
    /// unflushed, so the flusher need not be woken. Without meaning in a design without the lock.
    clear: AtomicU64,
    records: AtomicU64,
    full_waits: AtomicU64,
}

/// The right to hand out space: the held insertion lock. Dropping it unlocks.
#[derive(Debug)]
pub(crate) struct InsertionGuard<'a> {
    space: &'a Space,
    /// Whether the flusher must be woken after unlocking, because much is unflushed.
    must_wake: bool,
}

impl Space {
    /// Makes an empty buffer of `capacity` bytes for a log that ends at `end`. It is flushed in
    /// blocks of `block` bytes, a power of two, when `flush_threshold` bytes are unflushed.
    pub(crate) fn new(
        capacity: u64,
        block: u64,
        flush_threshold: u64,
        end: Lsn,
        flusher: Arc<WakeEvent>,
        hardening: Hardening,
    ) -> Self {
        assert!(block.is_power_of_two(), "blocks are rounded to with a mask");
        let next = Next {
            lsn: AtomicU64::new(end.get()),
            timed: AtomicU64::new(end.get()),
            clear: AtomicU64::new(end.get()),
            records: AtomicU64::new(0),
            full_waits: AtomicU64::new(0),
        };
        let space = Self {
            capacity,
            block,
            flush_threshold,
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

    /// Adds the clock that one of several logs needs. The holder of the insertion lock keeps the
    /// clock, so designs without the lock cannot be used then.
    pub(crate) fn with_clock(self, clock: Option<Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Disables early-release entries, for measurements: threads wait until their space is due.
    pub(crate) fn without_early_entries(self) -> Self {
        Self { released: Released::without_early_entries(self.released()), ..self }
    }

    /// Returns the clock, if this is one of several logs.
    #[inline]
    pub(crate) fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    /// Returns the GSN of the record at `lsn`, which the caller has acquired and not released.
    #[inline]
    pub(crate) fn gsn(&self, lsn: Lsn) -> Gsn {
        self.clock.as_ref().map_or(Gsn::new(lsn.get()), |clock| clock.gsn(lsn))
    }

    /// Returns the start of the next record: a snapshot.
    pub(crate) fn end(&self) -> Lsn {
        Lsn::new(self.next.lsn.load(Ordering::Acquire))
    }

    /// Returns the position below which the GSNs of all records follow from the clock as it is.
    pub(crate) fn timed(&self) -> Lsn {
        Lsn::new(self.next.timed.load(Ordering::Acquire))
    }

    /// Returns the position below which everything is stable. Where releases are deferred, more may
    /// be stable: see [`crate::insert::Insertion::collect`].
    #[inline]
    pub(crate) fn released(&self) -> Lsn {
        self.released.get()
    }

    /// Returns the position below which everything is on the device.
    #[inline]
    pub(crate) fn durable(&self) -> Lsn {
        Lsn::new(self.durable.load(Ordering::Acquire))
    }

    pub(crate) fn hardening(&self) -> Hardening {
        self.hardening
    }

    /// Returns the position below which everything is hardened: always the end of a record.
    #[inline]
    pub(crate) fn hardened(&self) -> Lsn {
        let so_far = || Lsn::new(self.hardened.load(Ordering::Acquire));
        match self.hardening {
            Hardening::Flushed => self.durable(),
            Hardening::Released => self.released_in_order().unwrap_or_else(so_far),
            Hardening::Told => so_far(),
        }
    }

    /// Returns [`Space::released`] if everything below has been filled in: the log has not failed.
    #[inline]
    pub(crate) fn released_in_order(&self) -> Option<Lsn> {
        let released = self.released();
        // Checked afterwards: only a thread that has seen the failure releases space without room.
        (!self.has_failed()).then_some(released)
    }

    /// Returns what [`Space::durable`] will be when the flush in progress has succeeded.
    pub(crate) fn in_flush(&self) -> Lsn {
        Lsn::new(self.in_flush.load(Ordering::Acquire))
    }

    /// Publishes that a flush is about to write everything below `lsn`.
    pub(crate) fn set_in_flush(&self, lsn: Lsn) {
        self.in_flush.store(lsn.get(), Ordering::Release);
    }

    /// Publishes that everything below `lsn`, the end of a record, is hardened.
    pub(crate) fn set_hardened(&self, lsn: Lsn) {
        self.hardened.fetch_max(lsn.get(), Ordering::AcqRel);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Returns the number of insertions that wait for room.
    pub(crate) fn waiting_for_room(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Returns the number of records that got space, and how often one had to wait for it.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.next.records.load(Ordering::Relaxed), self.next.full_waits.load(Ordering::Relaxed))
    }

    fn guard(&self) -> InsertionGuard<'_> {
        InsertionGuard { space: self, must_wake: false }
    }

    /// Hands out `bytes` for one record if the insertion lock is free and no check is due. The
    /// caller then holds the lock until [`Space::unlock`]. (There is neither a guard nor a closure,
    /// so that in every design the work under the lock is inlined into the caller.)
    #[inline(always)]
    pub(crate) fn try_acquire(&self, bytes: u64) -> Option<Lsn> {
        if !self.next.try_lock() {
            return None;
        }
        let next = &*self.next;
        let lsn = next.lsn.load(Ordering::Relaxed);
        let end = lsn + bytes;
        // Relaxed: only holders of the lock change it.
        if end <= next.clear.load(Ordering::Relaxed) {
            // No read-modify-write is needed: no other thread writes these.
            next.records.store(next.records.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            next.lsn.store(end, Ordering::Release);
            return Some(Lsn::new(lsn));
        }
        // SAFETY: `try_lock` has locked it above.
        unsafe { self.next.unlock() };
        None
    }

    /// Unlocks the insertion lock that [`Space::try_acquire`] has locked.
    ///
    /// # Safety
    /// `try_acquire` has returned an LSN, and the lock has not been unlocked since.
    #[inline(always)]
    pub(crate) unsafe fn unlock(&self) {
        // SAFETY: the lock is held, as the caller guarantees.
        unsafe { self.next.unlock() };
    }

    /// Waits for the insertion lock; `tried` is as for [`Space::try_lock`].
    pub(crate) fn lock(&self, tried: bool) -> InsertionGuard<'_> {
        self.next.lock(tried);
        self.guard()
    }

    /// Waits for the insertion lock, which has been tried already, where few threads wait.
    pub(crate) fn lock_with_priority(&self) -> InsertionGuard<'_> {
        self.next.lock_with_priority();
        self.guard()
    }

    /// Takes the insertion lock if it is free, for a thread that may just have `tried` in vain to
    /// insert.
    pub(crate) fn try_lock(&self, tried: bool) -> Option<InsertionGuard<'_>> {
        self.next.try_lock_again(tried).then(|| self.guard())
    }

    /// Computes how far space behind `end` can be handed out without another check; returns whether
    /// so much is unflushed that the flusher must be woken.
    fn look(&self, end: u64) -> bool {
        let durable = self.durable().get();
        let room = (durable & !(self.block - 1)) + self.capacity;
        let must_wake = end.saturating_sub(durable) >= self.flush_threshold;
        // Much unflushed keeps the flusher awake; check again soon in case it saw less and parked.
        let quiet = if must_wake {
            end.saturating_add(self.flush_threshold / 4)
        } else {
            durable.saturating_add(self.flush_threshold - 1)
        };
        // Relaxed: only holders of the lock read it, and the lock also publishes that everything up
        // to there has been flushed.
        self.next.clear.store(room.min(quiet), Ordering::Relaxed);
        must_wake
    }

    /// Takes over the lock that another thread has given away with [`InsertionGuard::entrust`].
    ///
    /// # Safety
    /// Each entrusted lock is taken over once.
    #[inline]
    pub(crate) unsafe fn entrusted_lock(&self) -> InsertionGuard<'_> {
        self.guard()
    }

    /// Hands out `bytes` without the lock, for designs that have none, unless other threads wait
    /// for room. [`Space::reserved`] must follow.
    #[inline]
    pub(crate) fn try_reserve(&self, bytes: u64) -> Option<Lsn> {
        // What this thread did before happens before any later insertion; checkpoints rely on this.
        (self.waiting.load(Ordering::Relaxed) == 0).then(|| Lsn::new(self.next.lsn.fetch_add(bytes, Ordering::AcqRel)))
    }

    /// Hands out `bytes` as [`Space::try_reserve`] does, but waits with the threads that wait for
    /// room, if there are any. [`Space::reserved`] must follow.
    pub(crate) fn reserve(&self, bytes: u64) -> Lsn {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.back_off(bytes);
        }
        // As in `try_reserve`.
        Lsn::new(self.next.lsn.fetch_add(bytes, Ordering::AcqRel))
    }

    /// Waits until there is room for the `bytes` that have been reserved and end at `end`. Returns
    /// whether there is room: always, unless the log has failed.
    #[inline]
    pub(crate) fn reserved(&self, bytes: u64, end: Lsn) -> bool {
        let durable = self.durable();
        let is_quiet = end.get().saturating_sub(durable.get()) < self.flush_threshold;
        is_quiet && self.has_room(end.get(), durable) || self.room_for_reserved(bytes, end)
    }

    #[cold]
    fn room_for_reserved(&self, bytes: u64, end: Lsn) -> bool {
        let end = end.get();
        if !self.has_room(end, self.durable()) {
            self.wait_for_room(|| end);
        }
        // Much unflushed keeps the flusher awake; wake it now and then in case it saw less.
        let step = (self.flush_threshold / 4).max(1);
        let before = (end - bytes).saturating_sub(self.durable().get());
        if before < self.flush_threshold || (end - bytes) / step != end / step {
            self.flusher.wake();
        }
        self.has_room(end, self.durable())
    }

    /// Waits, without a reservation, until there seems to be room for `bytes`.
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

    /// Returns the durable position, if space that ends at `end` may be filled in. It may not if it
    /// was handed out after the log failed: the bytes that it would overwrite may never have
    /// reached the device, and a reader may be reading them.
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
        // Pairs with the fence in `set_durable`: it sees us waiting, or we see its position.
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

    /// Releases up to `to`, for a thread that has just seen `released` at the start of its space.
    #[inline]
    pub(crate) fn release_due(&self, to: Lsn) {
        self.released.release_due(to);
    }

    /// Counts records that got space without a guard. One thread at a time.
    pub(crate) fn count_records(&self, records: u64) {
        self.next.records.store(self.next.records.load(Ordering::Relaxed) + records, Ordering::Relaxed);
    }

    /// Declares the space from `lsn` to `end` filled in. It counts as released when everything
    /// before it is (Aether, algorithm 3), which may be after the return.
    #[inline]
    pub(crate) fn release(&self, lsn: Lsn, end: Lsn) {
        self.released.release(lsn, end, || self.has_failed());
    }

    /// Moves `released` over the spaces with early-release entries that have become due.
    pub(crate) fn follow_notes(&self) {
        self.released.follow_all();
    }

    /// Declares everything below `lsn` durable. Only the flusher calls this.
    pub(crate) fn set_durable(&self, lsn: Lsn) {
        assert!(lsn >= self.durable() && lsn <= self.released(), "only stable bytes become durable");
        let unseen = planted!(SpaceFenceDropped) && self.waiting.load(Ordering::Relaxed) == 0;
        if planted!(SpaceFenceDropped) {
            // For as long as the store waits in a store buffer.
            (0..16).for_each(|_| thread::yield_now());
        }
        self.durable.store(lsn.get(), Ordering::Release);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 && !unseen {
            // With the lock held: a waiter that saw the old position is parked, not about to park.
            let _room = self.room.lock();
            self.room_made.notify_all();
        }
    }

    /// Declares the log failed: no thread waits for room any more.
    pub(crate) fn fail(&self) {
        let _room = self.room.lock();
        if !self.has_failed() && self.hardening == Hardening::Released {
            self.set_hardened(self.released());
        }
        self.failed.store(true, Ordering::SeqCst);
        self.room_made.notify_all();
    }
}

impl InsertionGuard<'_> {
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
            next.timed.store(end, Ordering::Release);
        }
        self.must_wake = self.space.look(end);
        Lsn::new(lsn)
    }

    /// Keeps the lock held, for the thread that calls [`Space::entrusted_lock`].
    pub(crate) fn entrust(self) {
        if self.must_wake {
            self.space.flusher.wake();
        }
        std::mem::forget(self);
    }
}

impl Drop for InsertionGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: a `InsertionGuard` exists only while the lock is held, and only one.
        unsafe { self.space.next.unlock() };
        if self.must_wake {
            self.space.flusher.wake();
        }
    }
}

#[cfg(test)]
#[path = "positions_tests.rs"]
mod tests;
