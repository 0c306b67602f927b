//! A lock for data of one thread that others read now and then.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::Backoff;
use crate::imp::atomic::{AtomicBool, Ordering};
use crate::imp::cell::UnsafeCell;

/// A lock that costs one atomic operation, where [`crate::Mutex`] costs two. A waiting thread spins
/// with [`Backoff`], so the lock is for short work that one thread does nearly always.
///
/// The store with `Release` that gives the lock back pairs with the exchange with `Acquire` that
/// acquires it next.
#[derive(Default)]
pub struct SpinLock<T> {
    is_locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that has the guard accesses the value, and guards come one after the
// other; so the value moves from thread to thread.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// Acquires the lock.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        if !self.try_acquire() {
            self.wait();
        }
        SpinGuard { lock: self, of_thread: PhantomData }
    }

    #[cold]
    fn wait(&self) {
        let mut backoff = Backoff::new();
        // Attempts would take the word's cache line from the thread that has the lock.
        while self.is_locked.load(Ordering::Relaxed) || !self.try_acquire() {
            backoff.rest();
        }
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        self.is_locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl<T> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpinLock").finish_non_exhaustive()
    }
}

/// Access to the value of a [`SpinLock`], until it is dropped.
#[derive(Debug)]
pub struct SpinGuard<'l, T> {
    lock: &'l SpinLock<T>,
    /// Other threads must not read the value through this one's guard.
    of_thread: PhantomData<*const T>,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: no other guard exists, and the reference ends before this one does.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as before; the reference borrows the guard as its only user.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.is_locked.store(false, Ordering::Release);
    }
}

#[cfg(all(test, duramen_loom))]
mod loom_tests {
    use super::*;
    use crate::Arc;
    use crate::imp::thread;

    #[test]
    fn one_thread_at_a_time_changes_the_value() {
        loom::model(|| {
            let lock = Arc::new(SpinLock::<u64>::default());
            let other = Arc::clone(&lock);
            let add = |lock: &SpinLock<u64>| *lock.lock() += 1;
            let thread = thread::spawn("other", move || add(&other)).unwrap();
            add(&lock);
            thread.join().unwrap();
            assert_eq!(*lock.lock(), 2);
        });
    }
}

#[cfg(all(test, not(any(duramen_loom, duramen_machine))))]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_that_of_all_threads() {
        let lock = SpinLock::<Vec<u64>>::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let lock = &lock;
                scope.spawn(move || (0..10_000).for_each(|number| lock.lock().push(thread << 32 | number)));
            }
        });
        let values = std::mem::take(&mut *lock.lock());
        assert_eq!(values.len(), 40_000);
        for thread in 0..4 {
            let of_thread = values.iter().filter(|value| *value >> 32 == thread);
            assert!(of_thread.is_sorted(), "one thread's values are in its order");
        }
    }
}
