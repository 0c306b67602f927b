//! The insertion lock: held for nanoseconds, locked by one atomic operation, unlocked by a store.
//!
//! Most locks need an atomic operation to unlock, too, lest the unlocking thread overlook one that
//! parks at that moment. That would double the cost of an uncontended insertion. This lock wakes no
//! thread: one that has tried in vain for long sleeps for a while and tries again ([`Retry`]). This
//! is rare: it happens only when the holder has lost its processor or waits for room.
//!
//! # Contention
//! The lock and the data that it protects share a cache line, and moving this line between cores
//! takes as long as ten insertions. So a thread that finds the lock taken first pauses for some
//! hundred nanoseconds, and longer each time. Meanwhile the holder inserts a series of records at
//! full speed, and few of the threads that wait disturb it. Waiting threads have no order.
//!
//! In designs that consolidate, few threads wait, each for a group, and long waits help no thread.
//! So after a while they become priority waiters, and the other threads, which then find the lock
//! refused, join the groups.
//!
//! A thread may unlock the lock that another thread has locked.

use std::ops::Deref;

use duramen_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use duramen_sync::{Backoff, CachePadded, Retry, thread};

/// Pauses, in all 2 to 4 microseconds, before [`InsertionLock::lock_with_priority`] gets priority.
const SPIN_LIMIT: u32 = 4;

/// Attempts of a priority waiter, of some microseconds each, before it sleeps. It acts for a group,
/// and groups of a few other threads may be filled in before its own.
const ROUNDS: u32 = 64;

/// A lock, and the data that only its holder changes. Other threads may read the data without the
/// lock, so it consists of atomics.
#[derive(Debug)]
pub(crate) struct InsertionLock<T> {
    locked: CachePadded<Locked<T>>,
    /// Priority waiters. Separate from `locked`, so that its readers do not disturb the holder.
    wanted: CachePadded<AtomicU32>,
    #[cfg(duramen_loom)]
    blocked: models::Blocked,
}

/// One cache line, so that locking also fetches the data.
#[derive(Debug)]
struct Locked<T> {
    held: AtomicBool,
    value: T,
}

impl<T> InsertionLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            locked: CachePadded::new(Locked { held: AtomicBool::new(false), value }),
            wanted: CachePadded::new(AtomicU32::new(0)),
            #[cfg(duramen_loom)]
            blocked: models::Blocked::default(),
        }
    }

    /// Locks if the lock is free and there are no priority waiters; returns whether it has.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) == 0 && self.take()
    }

    #[inline]
    fn take(&self) -> bool {
        // Acquire: sees what the last holder has done.
        self.locked.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Locks like `take`, without taking the cache line from a holder.
    fn look(&self) -> bool {
        !self.locked.held.load(Ordering::Relaxed) && self.take()
    }

    /// Locks as `try_lock` does, for a thread that may just have `tried` in vain to insert. It then
    /// reads the lock first, which disturbs a holder less: the cache line is mostly still here. If
    /// the lock is free, it was probably a check that was due.
    pub(crate) fn try_lock_again(&self, tried: bool) -> bool {
        !(tried && self.locked.held.load(Ordering::Relaxed)) && self.try_lock()
    }

    /// Waits for the lock among any number of threads; pauses if [`Self::try_lock_again`] fails.
    pub(crate) fn lock(&self, tried: bool) {
        if !self.try_lock_again(tried) {
            self.lock_with_pauses(Retry::among_many(), |_| self.try_lock());
        }
    }

    /// Waits for the lock after a failed attempt, where only a handful of threads wait. After a few
    /// pauses the thread becomes a priority waiter, and all threads that are not must stand back.
    #[cold]
    pub(crate) fn lock_with_priority(&self) {
        self.lock_with_pauses(Retry::among_few(SPIN_LIMIT), |pauses| {
            self.take() || pauses >= SPIN_LIMIT && self.take_soon()
        });
    }

    /// Waits for the lock with pauses before attempts; `attempt` gets the number of pauses. A
    /// starved thread remains a priority waiter until it has the lock: otherwise it might never
    /// catch the lock free when a holder keeps it for long and retakes it at once.
    #[cfg(not(duramen_loom))]
    #[cold]
    fn lock_with_pauses(&self, mut retry: Retry, attempt: impl Fn(u32) -> bool) {
        /// Pauses, a millisecond in all, after which a thread counts as starved.
        const STARVED: u32 = 16;
        while retry.attempts() < STARVED {
            retry.pause();
            if attempt(retry.attempts()) {
                return;
            }
        }
        let mut backoff = Backoff::new();
        self.wanted.fetch_add(1, Ordering::Relaxed);
        while !self.look() {
            backoff.rest();
        }
        self.wanted.fetch_sub(1, Ordering::Relaxed);
    }

    /// Becomes a priority waiter, and takes the lock if it is unlocked soon. Before the thread
    /// yields its processor it stops being a priority waiter for that time: a free lock must not
    /// wait for a thread that does not run.
    fn take_soon(&self) -> bool {
        (0..ROUNDS).any(|_| {
            let mut backoff = Backoff::new();
            self.wanted.fetch_add(1, Ordering::Relaxed);
            let taken = loop {
                match self.look() {
                    false if backoff.is_spinning() => backoff.snooze(),
                    taken => break taken,
                }
            };
            self.wanted.fetch_sub(1, Ordering::Relaxed);
            if !taken {
                thread::yield_now();
            }
            taken
        })
    }

    /// Unlocks the lock.
    ///
    /// # Safety
    /// The lock is held, and no other thread unlocks it for the same holder.
    #[inline]
    pub(crate) unsafe fn unlock(&self) {
        // Release: publishes what was done under the lock.
        self.locked.held.store(false, Ordering::Release);
        #[cfg(duramen_loom)]
        self.blocked.wake();
    }
}

impl<T> Deref for InsertionLock<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.locked.value
    }
}

/// A model has no time, and a pause that ends at once would let it repeat the same attempt without
/// end. So in models waiting threads park until the lock is unlocked. Priority waiters do not
/// change what may happen, only how often.
#[cfg(duramen_loom)]
mod models {
    use duramen_sync::{Condvar, Mutex, Retry};

    #[derive(Debug, Default)]
    pub(super) struct Blocked(Mutex<()>, Condvar);

    impl<T> super::InsertionLock<T> {
        pub(super) fn lock_with_pauses(&self, _: Retry, _: impl Fn(u32) -> bool) {
            let Blocked(mutex, unlocked) = &self.blocked;
            let mut guard = mutex.lock();
            while !self.take() {
                unlocked.wait(&mut guard);
            }
        }
    }

    impl Blocked {
        pub(super) fn wake(&self) {
            drop(self.0.lock());
            self.1.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use duramen_sync::atomic::AtomicU64;
    use duramen_sync::cell::UnsafeCell;
    use duramen_sync::{Arc, thread};

    use super::*;

    /// A counter that threads increment, each with the lock held; in the models loom checks the
    /// accesses.
    struct Counter {
        lock: InsertionLock<AtomicU64>,
        plain: UnsafeCell<u64>,
    }

    // SAFETY: `plain` is accessed only with the lock held.
    unsafe impl Send for Counter {}
    // SAFETY: as above.
    unsafe impl Sync for Counter {}

    fn increments(threads: u64, each: u64) {
        let counter = Arc::new(Counter { lock: InsertionLock::new(AtomicU64::new(0)), plain: UnsafeCell::new(0) });
        let run = move |counter: &Counter| {
            for _ in 0..each {
                counter.lock.lock(false);
                // SAFETY: the lock is held.
                counter.plain.with_mut(|plain| unsafe { *plain += 1 });
                counter.lock.store(counter.lock.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                // SAFETY: as above.
                unsafe { counter.lock.unlock() };
            }
        };
        let spawn = |_| {
            let counter = Arc::clone(&counter);
            thread::spawn("locker", move || run(&counter)).unwrap()
        };
        let others: Vec<_> = (1..threads).map(spawn).collect();
        run(&counter);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(counter.lock.try_lock(), "it has been given back");
        assert!(!counter.lock.try_lock());
        // SAFETY: the lock is held.
        assert_eq!(counter.plain.with(|plain| unsafe { *plain }), threads * each);
        assert_eq!(counter.lock.load(Ordering::Relaxed), threads * each);
    }

    #[cfg(not(duramen_loom))]
    #[test]
    fn one_at_a_time() {
        increments(8, 20_000);
    }

    /// The holder keeps the lock for so long that all other threads sleep, again and again.
    #[cfg(not(duramen_loom))]
    #[test]
    fn sleepers_get_it_too() {
        let lock = Arc::new(InsertionLock::new(AtomicU64::new(0)));
        let run = |lock: &InsertionLock<AtomicU64>| {
            for _ in 0..20 {
                lock.lock(false);
                thread::sleep(Duration::from_millis(1));
                lock.store(lock.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                // SAFETY: the lock is held.
                unsafe { lock.unlock() };
            }
        };
        let others: Vec<_> = (0..3)
            .map(|_| {
                let lock = Arc::clone(&lock);
                thread::spawn("locker", move || run(&lock)).unwrap()
            })
            .collect();
        run(&lock);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(lock.load(Ordering::Relaxed), 80);
    }

    #[cfg(duramen_loom)]
    mod loom_models {
        use super::*;

        #[test]
        fn one_at_a_time() {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(3);
            builder.max_branches = 50_000;
            builder.check(|| increments(2, 2));
        }
    }
}
