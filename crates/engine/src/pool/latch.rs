//! The page latch: optimistic, shared and exclusive in one 64-bit word.
//!
//! | bits | name | meaning | what changes it |
//! |---|---|---|---|
//! | 0 | `EXCLUSIVE` | one thread may change the page | set by the CAS that acquires, cleared by its holder |
//! | 1 | `PENDING` | a thread waits for exclusive access; new shared holders stay out | set by the waiter, cleared by the thread that acquires exclusively and by a waiter that gives up (another waiter sets it again) |
//! | 2 | `PARKED` | a thread is parked in the [`ParkingLot`] | set by the thread that parks, cleared by the thread that wakes it |
//! | 3..16 | shared count | number of shared holders | each holder adds and subtracts its one |
//! | 16..64 | version | number of exclusive sections that changed the page | incremented by the exclusive holder as it leaves |
//!
//! The shared count is zero while `EXCLUSIVE` is set, and `EXCLUSIVE` is clear while the shared
//! count is not zero.
//!
//! An optimistic reader takes the version while `EXCLUSIVE` is clear, reads the page, and then
//! checks that the version is unchanged and `EXCLUSIVE` still clear. As in a seqlock, an acquire
//! fence stands between the reads and the check, and a release fence stands between the acquisition
//! of `EXCLUSIVE` and the first write. So a reader that saw any byte of a write also sees the word
//! that rejects the read. An exclusive section that changed nothing leaves the version alone, and
//! so disturbs no reader. (After LeanStore's hybrid latch. The version cannot wrap around during a
//! read, because 2^48 changes of one page take days.)
//!
//! A waiter spins, then yields, then parks. `PENDING` keeps a stream of shared holders from
//! starving a writer. A thread must not take the same latch twice: if a writer waits in between,
//! the second shared acquisition would wait forever.

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

/// The version of a page, taken while no thread held the page exclusively.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Version(u64);

/// The outcome of an attempt to turn an optimistic read into exclusive access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Upgrade {
    /// The latch is held, and nothing changed since the version was taken.
    Granted,
    /// The page changed, or is about to.
    Stale,
    /// Shared holders prevent the upgrade; the version is still valid.
    Busy,
}

/// The latch of one page frame.
#[derive(Debug)]
pub(super) struct Latch {
    word: AtomicU64,
}

impl Latch {
    /// Creates a free latch.
    pub(super) fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// Returns the version, unless a thread may be changing the page.
    #[inline]
    pub(super) fn version(&self) -> Option<Version> {
        let word = self.word.load(Ordering::Acquire);
        (word & EXCLUSIVE == 0).then_some(Version(word & VERSION_MASK))
    }

    /// Returns whether all data read since `version` was taken belongs to that version.
    #[inline]
    pub(super) fn validate(&self, version: Version) -> bool {
        fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) & (VERSION_MASK | EXCLUSIVE) == version.0
    }

    /// Returns, as a hint, whether any thread holds the latch.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.word.load(Ordering::Relaxed) & (EXCLUSIVE | SHARED_MASK) != 0
    }

    /// Takes the latch exclusively if no thread holds it.
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
        // Orders the acquisition before every write to the page, for readers that validate.
        fence(Ordering::Release);
        Ok(())
    }

    /// Waits for exclusive access as long as `wanted` is true; returns whether the latch was
    /// acquired. `wanted` must depend only on data that changes under this latch held exclusively.
    ///
    /// A waiter whose page leaves the frame must stop waiting for the latch. Otherwise it would
    /// wait for a page that it did not request, and the holder of that page may wait for a page
    /// that the waiter holds.
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

    /// Lets in the shared holders that `PENDING` kept out. Other waiting writers lose their
    /// precedence until they set the bit again.
    fn withdraw(&self, lot: &ParkingLot) {
        if self.word.fetch_and(!PENDING, Ordering::Relaxed) & PARKED != 0 {
            self.wake(lot);
        }
    }

    /// Takes shared access if no thread holds the latch exclusively. This overtakes waiting
    /// writers, so it is meant for holders that only copy one page.
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

    /// Waits for shared access as long as `wanted` is true, as in [`Latch::exclusive`].
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

    /// Waits until no thread holds the latch exclusively, but only for a limited time: the caller
    /// may be the holder.
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

    /// Releases shared access.
    #[inline]
    pub(super) fn release_shared(&self, lot: &ParkingLot) {
        let before = self.word.fetch_sub(SHARED_ONE, Ordering::Release);
        assert!(before & SHARED_MASK != 0 && before & EXCLUSIVE == 0, "released a latch that was not held");
        if before & PARKED != 0 {
            self.wake(lot);
        }
    }

    /// Releases exclusive access. If `changed` is true, optimistic readers of the page start over.
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

/// Returns whether to park rather than spin. Models park at once: spinning adds no new executions.
fn is_long(backoff: &Backoff) -> bool {
    cfg!(duramen_loom) || backoff.is_long()
}

/// The place where threads park during long waits for a latch, for example while the page is read
/// from disk.
///
/// A waiter sets `PARKED` and parks under the lock of its latch's slot. The waking thread clears
/// `PARKED` and then takes that lock before it notifies. So there are two cases. Either the
/// releaser sees the bit, or the waiter sets the bit after the release. In the second case the
/// waiter finds the latch free, or finds another holder, which will see the bit; it does not park
/// on the old one.
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

    /// Creates an empty lot.
    pub(super) fn new() -> Self {
        let slots = (0..Self::SLOTS).map(|_| CachePadded::new(Slot::default())).collect();
        Self { slots, pre_block_hook: PreBlockHook::default() }
    }

    /// Makes each thread call `hook` before it parks.
    pub(super) fn with_pre_block_hook(self, hook: PreBlockHook) -> Self {
        Self { pre_block_hook: hook, ..self }
    }

    /// Calls the hook, for a thread that is about to block elsewhere.
    pub(super) fn before_blocking(&self) {
        self.pre_block_hook.call();
    }

    fn slot(&self, word: &AtomicU64) -> &Slot {
        // Latches lie in padded headers, so the low address bits carry no information.
        let address = std::ptr::from_ref(word) as usize;
        &self.slots[(address >> 7) % self.slots.len()]
    }

    /// Parks while `word` has any of `obstacles` and the latch is `wanted`, until a wake-up
    /// (possibly a spurious one) or until `limit` has passed.
    fn sleep(&self, word: &AtomicU64, obstacles: u64, wanted: &impl Fn() -> bool, limit: Option<Duration>) {
        self.before_blocking();
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
        // Two holders can have made the latch unwanted. The change of an earlier holder is visible
        // here. The present holder saw or will see the bit that was just set, and wakes this
        // thread.
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
