//! The page latch: optimistic, shared and exclusive in one 64-bit word.
//!
//! | bits | name | meaning | who changes it |
//! |---|---|---|---|
//! | 0 | `EXCLUSIVE` | one thread may change the page | set by the CAS that acquires, cleared by its holder |
//! | 1 | `PENDING` | a thread waits for exclusive access; new shared holders stay out | set by the waiter, cleared by whoever acquires exclusively and by a waiter that gives up (another waiter sets it again) |
//! | 2 | `PARKED` | somebody sleeps in the [`ParkingLot`] | set by the sleeper, cleared by the thread that wakes |
//! | 3..16 | shared count | number of shared holders | each holder adds and subtracts its one |
//! | 16..64 | version | number of exclusive sections that changed the page | incremented by the exclusive holder as it leaves |
//!
//! The shared count is zero while `EXCLUSIVE` is set, and the other way round.
//!
//! An optimistic reader takes the version while `EXCLUSIVE` is clear, reads, and then checks that
//! the version is the same and `EXCLUSIVE` still clear: as in a seqlock, an acquire fence stands
//! between its reads and the check, and a release fence between the acquisition of `EXCLUSIVE` and
//! the first write, so that a reader that saw any byte of a write also sees the word that rejects
//! it. An exclusive section that changed nothing leaves the version alone and so disturbs no
//! reader. (After LeanStore's hybrid latch; the version cannot wrap around during a read, as 2^48
//! changes of one page take days.)
//!
//! Waiters spin, then yield, then sleep; `PENDING` keeps a stream of shared holders from starving a
//! writer. A thread must not take the same latch twice: with a writer waiting in between, the
//! second shared acquisition would wait forever.

use std::time::Duration;

use duramen_sync::atomic::{AtomicU64, Ordering, fence};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Backoff, CachePadded, Condvar, Mutex};
use duramen_types::planted;

use crate::pre_block_hook::PreBlockHook;

const EXCLUSIVE: u64 = 1;
const PENDING: u64 = 1 << 1;
const PARKED: u64 = 1 << 2;
const SHARED_ONE: u64 = 1 << 3;
const VERSION_ONE: u64 = 1 << 16;
const SHARED_MASK: u64 = VERSION_ONE - SHARED_ONE;
const VERSION_MASK: u64 = !(VERSION_ONE - 1);

/// A version of a page, as seen while nobody held it exclusively.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Version(u64);

/// How an attempt to turn an optimistic read into exclusive access ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Upgrade {
    /// The latch is held; nothing changed since the version was taken.
    Granted,
    /// The page changed, or is about to.
    Stale,
    /// Shared holders are in the way; the version still stands.
    Busy,
}

/// The latch of one page frame.
#[derive(Debug)]
pub(super) struct Latch {
    word: AtomicU64,
}

impl Latch {
    /// A free latch.
    pub(super) fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// The version, unless somebody may be changing the page.
    #[inline]
    pub(super) fn version(&self) -> Option<Version> {
        let word = self.word.load(Ordering::Acquire);
        (word & EXCLUSIVE == 0).then_some(Version(word & VERSION_MASK))
    }

    /// Whether everything that was read since `version` was taken is of that version.
    #[inline]
    pub(super) fn validate(&self, version: Version) -> bool {
        fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) & (VERSION_MASK | EXCLUSIVE) == version.0
    }

    /// Whether somebody holds the latch, as a hint.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.word.load(Ordering::Relaxed) & (EXCLUSIVE | SHARED_MASK) != 0
    }

    /// Takes the latch exclusively if nobody holds it.
    #[inline]
    pub(super) fn try_exclusive(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & (EXCLUSIVE | SHARED_MASK) == 0 {
            match self.cas_exclusive(word) {
                Ok(()) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Turns an optimistic read of `version` into exclusive access.
    #[inline]
    pub(super) fn try_upgrade(&self, version: Version) -> Upgrade {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & (VERSION_MASK | EXCLUSIVE) != version.0 {
                return Upgrade::Stale;
            }
            if word & SHARED_MASK != 0 {
                return Upgrade::Busy;
            }
            match self.cas_exclusive(word) {
                Ok(()) => return Upgrade::Granted,
                Err(now) => word = now,
            }
        }
    }

    #[inline]
    fn cas_exclusive(&self, word: u64) -> Result<(), u64> {
        let held = (word | EXCLUSIVE) & !PENDING;
        self.word.compare_exchange_weak(word, held, Ordering::Acquire, Ordering::Relaxed)?;
        // Orders the acquisition before every write to the page for readers that validate.
        fence(Ordering::Release);
        Ok(())
    }

    /// Waits for exclusive access, as long as `wanted`; returns whether it got it. `wanted` must
    /// depend only on what changes under this latch held exclusively.
    ///
    /// A waiter whose page leaves the frame must not go on waiting for the latch: it would wait for
    /// a page it did not ask for, whose holder may wait for a page that the waiter holds.
    #[inline]
    #[must_use]
    pub(super) fn exclusive(&self, lot: &ParkingLot, wanted: impl Fn() -> bool) -> bool {
        self.try_exclusive() || self.exclusive_slow(lot, wanted)
    }

    #[cold]
    fn exclusive_slow(&self, lot: &ParkingLot, wanted: impl Fn() -> bool) -> bool {
        let mut backoff = Backoff::new();
        loop {
            let word = self.word.load(Ordering::Acquire);
            if word & (EXCLUSIVE | SHARED_MASK) == 0 {
                if self.cas_exclusive(word).is_ok() {
                    return true;
                }
            } else if !wanted() {
                self.withdraw(lot);
                return false;
            } else if word & PENDING == 0 {
                self.word.fetch_or(PENDING, Ordering::Relaxed);
            } else if is_long(&backoff) {
                lot.sleep(&self.word, EXCLUSIVE | SHARED_MASK, &wanted, None);
            } else {
                backoff.snooze();
            }
        }
    }

    /// Lets shared holders in again that `PENDING` kept out. Other waiting writers lose their
    /// precedence for a while.
    fn withdraw(&self, lot: &ParkingLot) {
        if self.word.fetch_and(!PENDING, Ordering::Relaxed) & PARKED != 0 {
            self.wake(lot);
        }
    }

    /// Takes shared access if nobody holds the latch exclusively. Overtakes waiting writers: for
    /// holders that stay for a copy of one page.
    #[inline]
    pub(super) fn try_shared(&self) -> bool {
        self.try_shared_unless(EXCLUSIVE)
    }

    #[inline]
    fn try_shared_unless(&self, obstacles: u64) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & obstacles == 0 {
            assert!(word & SHARED_MASK != SHARED_MASK, "more shared holders than threads can exist");
            match self.word.compare_exchange_weak(word, word + SHARED_ONE, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Waits for shared access, as long as `wanted`, as in [`Latch::exclusive`].
    #[inline]
    #[must_use]
    pub(super) fn shared(&self, lot: &ParkingLot, wanted: impl Fn() -> bool) -> bool {
        let mut backoff = Backoff::new();
        while !self.try_shared_unless(EXCLUSIVE | PENDING) {
            if !wanted() {
                return false;
            } else if is_long(&backoff) {
                lot.sleep(&self.word, EXCLUSIVE | PENDING, &wanted, None);
            } else {
                backoff.snooze();
            }
        }
        true
    }

    /// Waits until nobody holds the latch exclusively, but only for so long: the caller may itself
    /// be the holder.
    #[cold]
    pub(super) fn await_unlatched(&self, lot: &ParkingLot) -> bool {
        let mut backoff = Backoff::new();
        while self.word.load(Ordering::Relaxed) & EXCLUSIVE != 0 {
            if is_long(&backoff) {
                lot.sleep(&self.word, EXCLUSIVE, &|| true, Some(ParkingLot::BRIEFLY));
                return self.word.load(Ordering::Relaxed) & EXCLUSIVE == 0;
            }
            backoff.snooze();
        }
        true
    }

    /// Gives up shared access.
    #[inline]
    pub(super) fn release_shared(&self, lot: &ParkingLot) {
        let before = self.word.fetch_sub(SHARED_ONE, Ordering::Release);
        assert!(before & SHARED_MASK != 0 && before & EXCLUSIVE == 0, "released a latch that was not held");
        if before & PARKED != 0 {
            self.wake(lot);
        }
    }

    /// Gives up exclusive access; `changed` tells whether the page was, so that optimistic readers
    /// must start over.
    #[inline]
    pub(super) fn release_exclusive(&self, changed: bool, lot: &ParkingLot) {
        let step = if changed { VERSION_ONE - EXCLUSIVE } else { EXCLUSIVE.wrapping_neg() };
        let before = self.word.fetch_add(step, Ordering::Release);
        assert!(before & (EXCLUSIVE | SHARED_MASK) == EXCLUSIVE, "released a latch that was not held");
        if before & PARKED != 0 {
            self.wake(lot);
        }
    }

    #[cold]
    fn wake(&self, lot: &ParkingLot) {
        self.word.fetch_and(!PARKED, Ordering::Relaxed);
        lot.wake(&self.word);
    }
}

/// Whether to sleep rather than spin. Models sleep at once: spinning shows them nothing new.
fn is_long(backoff: &Backoff) -> bool {
    cfg!(duramen_loom) || backoff.is_long()
}

/// Where threads sleep that wait for a latch for long: while the page is read from disk, say.
///
/// A sleeper sets `PARKED` and goes to sleep under the lock of its latch's slot; the waker clears
/// `PARKED` and then takes that lock before it notifies. So the bit is either seen by the releaser,
/// or set after the release, in which case the sleeper finds the latch free (or another holder, who
/// will see the bit) and does not sleep on it.
#[derive(Debug)]
pub(super) struct ParkingLot {
    slots: Box<[CachePadded<Slot>]>,
    pre_block_hook: PreBlockHook,
}

#[derive(Debug, Default)]
struct Slot {
    lock: Mutex<()>,
    wake: Condvar,
}

impl ParkingLot {
    const SLOTS: usize = if cfg!(duramen_loom) { 1 } else { 64 };

    /// Longest wait of a thread that may be waiting for itself.
    const BRIEFLY: Duration = Duration::from_micros(500);

    /// An empty lot.
    pub(super) fn new() -> Self {
        let slots = (0..Self::SLOTS).map(|_| CachePadded::new(Slot::default())).collect();
        Self { slots, pre_block_hook: PreBlockHook::default() }
    }

    /// Has each thread call `f` before it goes to sleep.
    pub(super) fn with_pre_block_hook(self, f: impl Fn() + Send + Sync + 'static) -> Self {
        Self { pre_block_hook: PreBlockHook::new(f), ..self }
    }

    fn slot(&self, word: &AtomicU64) -> &Slot {
        // Latches lie in padded headers, so the low bits say nothing.
        let address = std::ptr::from_ref(word) as usize;
        &self.slots[(address >> 7) % self.slots.len()]
    }

    /// Sleeps while `word` has any of `obstacles` and the latch is `wanted`, until woken (perhaps
    /// for nothing) or `limit` has passed.
    fn sleep(&self, word: &AtomicU64, obstacles: u64, wanted: &impl Fn() -> bool, limit: Option<Duration>) {
        self.pre_block_hook.call();
        let slot = self.slot(word);
        let mut guard = slot.lock.lock();
        let mut now = word.load(Ordering::Relaxed);
        loop {
            if planted!(LatchWakeLost) {
                word.fetch_or(PARKED, Ordering::Relaxed);
                break;
            }
            if now & obstacles == 0 {
                return;
            }
            match word.compare_exchange_weak(now, now | PARKED, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
        // What makes the latch unwanted was done either by an earlier holder, and is seen here, or
        // by the holder that saw or will see the bit just set, and wakes.
        if !wanted() {
            return;
        }
        reach(Probe::LatchSlept);
        match limit {
            Some(limit) => {
                slot.wake.wait_for(&mut guard, limit);
            }
            None => slot.wake.wait(&mut guard),
        }
    }

    fn wake(&self, word: &AtomicU64) {
        let slot = self.slot(word);
        drop(slot.lock.lock());
        slot.wake.notify_all();
    }
}

#[cfg(test)]
#[path = "latch_tests.rs"]
mod tests;
