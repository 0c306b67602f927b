//! Locks of the simulated machine: a thread spins briefly on a word, then waits at it.
//!
//! They are written like the locks that ship (`parking_lot`'s: barging, a short spin, then the
//! operating system), on top of this build's own atomic variables, so that their cache lines move
//! as the real ones do.

use std::fmt;
use std::time::Duration;

use parking_lot::lock_api;

use super::atomic::{AtomicU32, Ordering::*};
use duramen_machine::{Time, futex, is_simulated, shared};

/// Rounds of spinning before a thread waits, each twice as long as the one before.
const SPINS: u32 = 7;

/// Waits at `word` while it holds `value`. Returns whether it was woken in time.
fn wait(word: &AtomicU32, value: u32, timeout: Option<Duration>) -> bool {
    assert!(is_simulated(), "outside of a run nobody else could ever release this");
    // SAFETY: reads the value of this build's atomics; simulated threads share one host thread, so
    // no thread writes meanwhile.
    let unchanged = || unsafe { *word.as_ptr() == value };
    futex::wait(word.as_ptr() as usize, unchanged, timeout.map(Time::from))
}

fn wake(word: &AtomicU32, count: usize) {
    if is_simulated() {
        futex::wake(word.as_ptr() as usize, count);
    }
}

const FREE: u32 = 0;
const LOCKED: u32 = 1;
const AWAITED: u32 = 2;

/// The state of a [`Mutex`].
///
/// The word is `FREE`, `LOCKED`, or `AWAITED`: locked, and a thread may have to be woken.
pub struct RawMutex(AtomicU32);

impl RawMutex {
    /// Makes an unlocked mutex.
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Takes the lock if it is free; returns whether it has.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, LOCKED, Acquire, Relaxed).is_ok()
    }

    /// Waits for the lock.
    pub fn lock(&self) {
        if self.try_lock() {
            return;
        }
        for spin in 0..SPINS {
            let word = self.0.load(Relaxed);
            if word == FREE && self.try_lock() {
                return;
            }
            if word == AWAITED {
                break;
            }
            shared::pause(1 << spin);
        }
        while self.0.swap(AWAITED, Acquire) != FREE {
            wait(&self.0, AWAITED, None);
        }
    }

    /// Unlocks the mutex.
    ///
    /// # Safety
    /// The mutex is locked, and no other thread unlocks it for the same holder.
    #[inline]
    pub unsafe fn unlock(&self) {
        if self.0.swap(FREE, Release) == AWAITED {
            wake(&self.0, 1);
        }
    }
}

impl Default for RawMutex {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RawMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawMutex").field(&self.0).finish()
    }
}

// SAFETY: the word is `FREE`, or exactly one `lock` or `try_lock` has taken it that has not been
// followed by `unlock`.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(clippy::declare_interior_mutable_const, reason = "this is how the trait asks for it")]
    const INIT: Self = Self::new();
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        Self::lock(self);
    }

    fn try_lock(&self) -> bool {
        Self::try_lock(self)
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller guarantees the contract of `unlock`.
        unsafe { Self::unlock(self) };
    }
}

/// A reader-writer lock's state: the number of readers, or `WRITER`; and how many times the lock
/// has become free, the word at which threads wait.
pub struct RawRwLock {
    state: AtomicU32,
    freed: AtomicU32,
    waiting: AtomicU32,
}

const WRITER: u32 = u32::MAX;

impl RawRwLock {
    /// Waits until `take` succeeds.
    fn wait_for(&self, take: impl Fn() -> bool) {
        for spin in 0..SPINS {
            if take() {
                return;
            }
            shared::pause(1 << spin);
        }
        self.waiting.fetch_add(1, AcqRel);
        loop {
            let freed = self.freed.load(Acquire);
            if take() {
                break;
            }
            wait(&self.freed, freed, None);
        }
        self.waiting.fetch_sub(1, AcqRel);
    }

    fn freed(&self) {
        if self.waiting.load(Acquire) > 0 {
            self.freed.fetch_add(1, AcqRel);
            wake(&self.freed, usize::MAX);
        }
    }
}

// SAFETY: the state is `WRITER` while one exclusive holder exists, otherwise the number of shared
// ones.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "this is how the trait asks for it")]
    const INIT: Self = Self { state: AtomicU32::new(0), freed: AtomicU32::new(0), waiting: AtomicU32::new(0) };
    type GuardMarker = lock_api::GuardNoSend;

    fn lock_shared(&self) {
        self.wait_for(|| self.try_lock_shared());
    }

    fn try_lock_shared(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        while state != WRITER {
            match self.state.compare_exchange(state, state + 1, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    unsafe fn unlock_shared(&self) {
        if self.state.fetch_sub(1, Release) == 1 {
            self.freed();
        }
    }

    fn lock_exclusive(&self) {
        self.wait_for(|| self.try_lock_exclusive());
    }

    fn try_lock_exclusive(&self) -> bool {
        self.state.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok()
    }

    unsafe fn unlock_exclusive(&self) {
        self.state.store(0, SeqCst);
        self.freed();
    }
}

/// A mutual exclusion lock.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// A locked [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// A reader-writer lock.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// A [`RwLock`] held for reading.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// A [`RwLock`] held for writing.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// A condition variable for [`Mutex`]: counts notifications; a thread waits at the count while it
/// stays unchanged.
#[derive(Debug, Default)]
pub struct Condvar {
    notified: AtomicU32,
    waiting: AtomicU32,
}

impl Condvar {
    /// Makes a condition without waiting threads.
    pub const fn new() -> Self {
        Self { notified: AtomicU32::new(0), waiting: AtomicU32::new(0) }
    }

    /// Releases the lock, waits for a notification, takes the lock again. May wake spuriously.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_until_notified(guard, None);
    }

    /// Does what [`Condvar::wait`] does, but for at most `timeout`; returns whether the time ran
    /// out.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        !self.wait_until_notified(guard, Some(timeout))
    }

    fn wait_until_notified<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Option<Duration>) -> bool {
        self.waiting.fetch_add(1, Relaxed);
        let notified = self.notified.load(Relaxed);
        let woken = MutexGuard::unlocked(guard, || wait(&self.notified, notified, timeout));
        self.waiting.fetch_sub(1, Relaxed);
        woken
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        self.notify(usize::MAX);
    }

    fn notify(&self, count: usize) {
        if self.waiting.load(SeqCst) > 0 {
            self.notified.fetch_add(1, Relaxed);
            wake(&self.notified, count);
        }
    }
}

/// Where one thread parks until other threads wake it. A wake-up that comes before the thread parks
/// is kept.
#[derive(Debug, Default)]
pub struct Parker {
    woken: Mutex<bool>,
    wake: Condvar,
}

impl Parker {
    /// Makes a parker with no wake-up pending.
    pub const fn new() -> Self {
        Self { woken: Mutex::new(false), wake: Condvar::new() }
    }

    /// Parks until [`Parker::unpark`] has been called since the last return from here, and takes
    /// that wake-up.
    pub fn park(&self) {
        let mut woken = self.woken.lock();
        while !*woken {
            self.wake.wait(&mut woken);
        }
        *woken = false;
    }

    /// Does what [`Parker::park`] does, but for at most `timeout`; returns whether a wake-up was
    /// taken.
    pub fn park_timeout(&self, timeout: Duration) -> bool {
        let deadline = crate::clock::Instant::now().after(timeout);
        let mut woken = self.woken.lock();
        while !*woken {
            let left = deadline.since(crate::clock::Instant::now());
            if left.is_zero() || self.wake.wait_for(&mut woken, left) {
                break;
            }
        }
        std::mem::take(&mut *woken)
    }

    /// Wakes the parked thread, or lets the next [`Parker::park`] return at once.
    pub fn unpark(&self) {
        *self.woken.lock() = true;
        self.wake.notify_one();
    }
}
