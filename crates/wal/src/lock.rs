//! The insertion lock: held for a few nanoseconds, taken with one atomic operation and given back with a store.
//!
//! Most locks are given back with an atomic operation, too, since who gives it back must not overlook who goes to sleep at
//! that moment. That would double the cost of an insertion that meets nobody. This one is given back with a store, and with
//! a look at whether somebody sleeps by those who have met others themselves. So a sleeper may be overlooked, and no sleep
//! is longer than [`SLEEP`]; and sleep is rare, since threads do it at this lock only when its holder has lost its processor
//! or waits for room in the buffer.
//!
//! # Contention
//! The lock and what it protects share a cache line, and to bring that from one core to another takes as long as ten
//! insertions. So who finds the lock taken does not try again at once, but pauses for some hundred nanoseconds
//! ([`Retry`]): the holder inserts a row of records meanwhile, at full speed. After [`ATTEMPTS`] it goes to the queue, where
//! all but the first sleep. The first asks all others for the lock ([`WANTED`]): they do not try to take it any more, and
//! it gets it as soon as it is given back. If that takes long it sleeps ([`SLEEPING`]), and wants it no more until it
//! wakes: a lock that is free must not wait for a sleeper.
//!
//! A thread may give back what another has taken.

use std::ops::Deref;
use std::time::Duration;

use duramen_sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use duramen_sync::thread::Parker;
use duramen_sync::{Backoff, CachePadded, Mutex, Retry};

/// What the first in the queue does: there is none, it wants the lock at once, it sleeps.
const EMPTY: u32 = 0;
const WANTED: u32 = 1;
const SLEEPING: u32 = 2;

/// So often a thread tries before it goes to the queue: about six microseconds.
const ATTEMPTS: u32 = 8;

/// Longest sleep of a thread that has been overlooked.
const SLEEP: Duration = Duration::from_micros(200);

/// A lock, and what only its holder changes. That can be looked at without the lock, so it consists of atomics.
#[derive(Debug)]
pub(crate) struct InsertionLock<T> {
    locked: CachePadded<Locked<T>>,
    /// Apart from `locked`, so that those who wait do not disturb the holder.
    queue: CachePadded<Queue>,
}

/// One cache line, so that taking the lock brings the rest along.
#[derive(Debug)]
struct Locked<T> {
    held: AtomicBool,
    value: T,
}

#[derive(Debug, Default)]
struct Queue {
    /// Changed by the first in the queue.
    first_does: AtomicU32,
    /// Held by the first in the queue; the others sleep at it.
    first: Mutex<()>,
    /// Where the first sleeps.
    parker: Parker,
    #[cfg(loom)]
    blocked: models::Blocked,
}

impl<T> InsertionLock<T> {
    /// A free one.
    pub(crate) fn new(value: T) -> Self {
        Self {
            locked: CachePadded::new(Locked { held: AtomicBool::new(false), value }),
            queue: CachePadded::new(Queue::default()),
        }
    }

    /// Takes the lock if it is free and nobody queues for it; returns whether it has. It may be given back with
    /// [`Self::unlock_quickly`].
    #[inline]
    pub(crate) fn try_lock_alone(&self) -> bool {
        self.queue.first_does.load(Ordering::Relaxed) == EMPTY && self.take()
    }

    /// Takes the lock if it is free and nobody wants it at once; returns whether it has.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        self.queue.first_does.load(Ordering::Relaxed) != WANTED && self.take()
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self) {
        if !self.try_lock() {
            self.lock_after_pause();
        }
    }

    #[inline]
    fn take(&self) -> bool {
        // Acquire: what the last holder has done.
        self.locked.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits for the lock, having found it taken.
    #[cold]
    pub(crate) fn lock_after_pause(&self) {
        #[cfg(not(loom))]
        self.lock_in_queue();
        #[cfg(loom)]
        self.queue.blocked.until(|| self.take());
    }

    #[cfg_attr(all(loom, not(test)), allow(dead_code, reason = "models of what uses the lock do without"))]
    fn lock_in_queue(&self) {
        let mut retry = Retry::new();
        while retry.pause(ATTEMPTS) {
            if self.try_lock() {
                return;
            }
        }
        let _first = self.queue.first.lock();
        let does = &self.queue.first_does;
        loop {
            does.store(WANTED, Ordering::Relaxed);
            if self.take_soon() {
                break;
            }
            does.store(SLEEPING, Ordering::Relaxed);
            // Who gives the lock back and overlooks that has mostly done it by now.
            fence(Ordering::SeqCst);
            if self.take() {
                break;
            }
            self.queue.sleep();
        }
        does.store(EMPTY, Ordering::Relaxed);
    }

    /// Takes the lock if it is given back before long.
    fn take_soon(&self) -> bool {
        let mut backoff = Backoff::new();
        while !self.take() {
            if backoff.is_long() {
                return false;
            }
            backoff.snooze();
        }
        true
    }

    /// Gives the lock back, and wakes a sleeper.
    ///
    /// # Safety
    /// It is held, and nobody else gives it back for the same turn.
    pub(crate) unsafe fn unlock(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.unlock_quickly() };
        if self.queue.first_does.load(Ordering::Relaxed) == SLEEPING {
            self.queue.parker.unpark();
        }
    }

    /// Gives the lock back without a look at whether somebody sleeps: if anybody does, it has come since
    /// [`Self::try_lock_alone`], and the holder has lost its processor in between.
    ///
    /// # Safety
    /// As [`Self::unlock`].
    #[inline]
    pub(crate) unsafe fn unlock_quickly(&self) {
        // Release: what was done under the lock.
        self.locked.held.store(false, Ordering::Release);
        #[cfg(loom)]
        self.queue.blocked.wake();
    }
}

impl<T> Deref for InsertionLock<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.locked.value
    }
}

impl Queue {
    fn sleep(&self) {
        if cfg!(loom) {
            // A model has no time, so a sleep that runs out is one that ends at once.
            duramen_sync::thread::yield_now();
        } else {
            self.parker.park_timeout(SLEEP);
        }
    }
}

/// How threads wait in models of what uses the lock. With the queue there would be too much to try; it has a model of its
/// own.
#[cfg(loom)]
mod models {
    use duramen_sync::{Condvar, Mutex};

    #[derive(Debug, Default)]
    pub(super) struct Blocked(Mutex<()>, Condvar);

    impl Blocked {
        pub(super) fn until(&self, taken: impl Fn() -> bool) {
            let mut guard = self.0.lock();
            while !taken() {
                self.1.wait(&mut guard);
            }
        }

        pub(super) fn wake(&self) {
            drop(self.0.lock());
            self.1.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use duramen_sync::atomic::AtomicU64;
    use duramen_sync::cell::UnsafeCell;
    use duramen_sync::{Arc, thread};

    use super::*;

    /// A counter that threads increment, each with the lock held, under the eyes of loom in the models.
    struct Counter {
        lock: InsertionLock<AtomicU64>,
        plain: UnsafeCell<u64>,
    }

    // SAFETY: `plain` is touched with the lock held only.
    unsafe impl Send for Counter {}
    // SAFETY: as above.
    unsafe impl Sync for Counter {}

    fn increments(threads: u64, each: u64) {
        let counter = Arc::new(Counter { lock: InsertionLock::new(AtomicU64::new(0)), plain: UnsafeCell::new(0) });
        let run = move |counter: &Counter| {
            for _ in 0..each {
                if !counter.lock.try_lock_alone() && !counter.lock.try_lock() {
                    counter.lock.lock_in_queue();
                }
                // SAFETY: the lock is held.
                counter.plain.with_mut(|plain| unsafe { *plain += 1 });
                counter.lock.store(counter.lock.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                // SAFETY: as above.
                unsafe { counter.lock.unlock_quickly() };
            }
        };
        let spawn = |_| {
            let counter = Arc::clone(&counter);
            thread::spawn("locker", move || run(&counter)).unwrap()
        };
        let others: Vec<_> = (1..threads).map(spawn).collect();
        run(&counter);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(counter.lock.try_lock_alone(), "it has been given back, and nobody queues");
        assert!(!counter.lock.try_lock());
        // SAFETY: the lock is held.
        assert_eq!(counter.plain.with(|plain| unsafe { *plain }), threads * each);
        assert_eq!(counter.lock.load(Ordering::Relaxed), threads * each);
    }

    #[cfg(not(loom))]
    #[test]
    fn one_at_a_time() {
        increments(8, 20_000);
    }

    /// The holder keeps the lock for so long that everyone else goes to sleep, again and again.
    #[cfg(not(loom))]
    #[test]
    fn sleepers_are_woken() {
        let lock = Arc::new(InsertionLock::new(AtomicU64::new(0)));
        let run = |lock: &InsertionLock<AtomicU64>| {
            for _ in 0..20 {
                lock.lock();
                thread::sleep(Duration::from_millis(1));
                lock.store(lock.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                // SAFETY: it is held.
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

    #[cfg(loom)]
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
