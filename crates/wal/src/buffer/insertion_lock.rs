//! The insertion lock: held for a few nanoseconds, taken with one atomic operation and given back
//! with a store.
//!
//! Most locks are given back with an atomic operation, too, since who gives it back must not
//! overlook who goes to sleep at that moment. That would double the cost of an insertion that meets
//! nobody. Nobody is woken by this one: who has tried in vain for long sleeps for a time and looks
//! again ([`Retry`]). That is rare, since it happens only when the holder has lost its processor or
//! waits for room in the buffer.
//!
//! # Contention
//! The lock and what it protects share a cache line, and to bring that from one core to another
//! takes as long as ten insertions. So who finds the lock taken does not try again at once, but
//! pauses for some hundred nanoseconds, and longer each time: the holder inserts a row of records
//! meanwhile, at full speed, and however many threads wait, few of them disturb it. There is no
//! order among those who wait.
//!
//! In designs that consolidate, few wait, each for a group of others, and to keep them waiting
//! helps nobody for long. So they want the lock at once after a while, and the others, finding
//! that, join the groups.
//!
//! A thread may give back what another has taken.

use std::ops::Deref;

use duramen_sync::CachePadded;
use duramen_sync::atomic::{AtomicBool, AtomicU32, Ordering};
#[cfg(not(duramen_loom))]
use duramen_sync::{Backoff, Retry, thread};

/// So many pauses who is one of a few lets the others go on before it wants the lock at once: two
/// to four microseconds.
#[cfg(not(duramen_loom))]
const PATIENCE: u32 = 4;

/// So often who wants the lock at once looks for it, for some microseconds each time, before it
/// sleeps: it has a group behind it, and the groups of a few others may be filled in before its
/// own.
#[cfg(not(duramen_loom))]
const ROUNDS: u32 = 64;

/// After so many pauses, which take a millisecond in all, a thread has had no luck for long.
#[cfg(not(duramen_loom))]
const STARVED: u32 = 16;

/// A lock, and what only its holder changes. That can be looked at without the lock, so it consists
/// of atomics.
#[derive(Debug)]
pub(crate) struct InsertionLock<T> {
    locked: CachePadded<Locked<T>>,
    /// So many want the lock at once. Apart from `locked`, so that those who look do not disturb
    /// the holder.
    wanted: CachePadded<AtomicU32>,
    #[cfg(duramen_loom)]
    blocked: models::Blocked,
}

/// One cache line, so that taking the lock brings the rest along.
#[derive(Debug)]
struct Locked<T> {
    held: AtomicBool,
    value: T,
}

impl<T> InsertionLock<T> {
    /// A free one.
    pub(crate) fn new(value: T) -> Self {
        Self {
            locked: CachePadded::new(Locked { held: AtomicBool::new(false), value }),
            wanted: CachePadded::new(AtomicU32::new(0)),
            #[cfg(duramen_loom)]
            blocked: models::Blocked::default(),
        }
    }

    /// Takes the lock if it is free and nobody wants it at once; returns whether it has.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) == 0 && self.take()
    }

    #[inline]
    fn take(&self) -> bool {
        // Acquire: what the last holder has done.
        self.locked.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock if it is free, without taking the line from a holder; returns whether it has.
    #[cfg(not(duramen_loom))]
    fn look(&self) -> bool {
        !self.locked.held.load(Ordering::Relaxed) && self.take()
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self) {
        if !self.try_lock() {
            self.lock_after_pause();
        }
    }

    /// Waits for the lock, having found it taken, where any number of threads do.
    #[cold]
    pub(crate) fn lock_after_pause(&self) {
        #[cfg(not(duramen_loom))]
        self.lock_patiently(Retry::among_many(), |_| self.try_lock());
        #[cfg(duramen_loom)]
        self.blocked.until(|| self.take());
    }

    /// Waits for the lock, having found it taken, where no more than a handful of threads do. After
    /// a few pauses it wants the lock at once, and everyone who does not want that, too, has to
    /// stand back.
    #[cold]
    pub(crate) fn lock_of_few(&self) {
        #[cfg(not(duramen_loom))]
        self.lock_patiently(Retry::among_few(PATIENCE), |pauses| self.take() || pauses >= PATIENCE && self.take_soon());
        #[cfg(duramen_loom)]
        self.blocked.until(|| self.take());
    }

    /// Waits for the lock with pauses before attempts, which are told how many. Who has had no luck
    /// for long wants the lock until it has it: a holder that keeps it for long, and takes it again
    /// at once, would never be met without it.
    #[cfg(not(duramen_loom))]
    fn lock_patiently(&self, mut retry: Retry, attempt: impl Fn(u32) -> bool) {
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

    /// Wants the lock, and takes it if it is given back before long. Before it lets its processor
    /// go it stops wanting it for that time: a lock that is free must not wait for a thread that
    /// does not run.
    #[cfg(not(duramen_loom))]
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

    /// Gives the lock back.
    ///
    /// # Safety
    /// It is held, and nobody else gives it back for the same turn.
    #[inline]
    pub(crate) unsafe fn unlock(&self) {
        // Release: what was done under the lock.
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

/// A model has no time, and a pause that ends at once would let it try the same again without end.
/// So in models those who wait sleep until the lock is given back. Who wants it at once makes no
/// difference to what may happen, only to how often.
#[cfg(duramen_loom)]
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
    use std::time::Duration;

    use duramen_sync::atomic::AtomicU64;
    use duramen_sync::cell::UnsafeCell;
    use duramen_sync::{Arc, thread};

    use super::*;

    /// A counter that threads increment, each with the lock held, under the eyes of loom in the
    /// models.
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
                counter.lock.lock();
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

    /// The holder keeps the lock for so long that everyone else goes to sleep, again and again.
    #[cfg(not(duramen_loom))]
    #[test]
    fn sleepers_get_it_too() {
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
