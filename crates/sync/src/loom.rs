//! The loom build: every interleaving of a small model.

pub use loom::sync::atomic;
pub use loom::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use std::time::Duration;

pub(crate) fn pause(_pauses: u32) {
    loom::hint::spin_loop();
}

/// A mutex without poisoning.
#[derive(Debug)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Wraps `value`.
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// A reader-writer lock without poisoning.
#[derive(Debug)]
pub struct RwLock<T>(loom::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Wraps `value`.
    pub fn new(value: T) -> Self {
        Self(loom::sync::RwLock::new(value))
    }

    /// Waits for shared access.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits for exclusive access.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// A condition variable for [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(loom::sync::Condvar);

impl Condvar {
    /// Makes a condition without waiting threads.
    pub fn new() -> Self {
        Self(loom::sync::Condvar::new())
    }

    /// Releases the lock, waits for a notification, takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        replace(guard, |guard| self.0.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner()));
    }

    /// Does what [`Condvar::wait`] does: models have no time, so the wait never times out.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: Duration) -> bool {
        self.wait(guard);
        false
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Passes the guard by value through `f`, as loom's interface requires.
fn replace<'a, T>(slot: &mut MutexGuard<'a, T>, f: impl FnOnce(MutexGuard<'a, T>) -> MutexGuard<'a, T>) {
    struct Abort;
    impl Drop for Abort {
        fn drop(&mut self) {
            std::process::abort();
        }
    }
    let abort = Abort;
    // SAFETY: the guard is moved out and another is moved in before any code can see the hole; a
    // panic in between aborts.
    unsafe {
        let guard = std::ptr::read(slot);
        std::ptr::write(slot, f(guard));
    }
    std::mem::forget(abort);
}

/// Plain memory that threads share under their own protocol; loom reports conflicting accesses.
pub mod cell {
    pub use loom::cell::UnsafeCell;
}

/// Threads.
pub mod thread {
    use std::time::Duration;

    pub use loom::thread::{JoinHandle, yield_now};
    pub use std::thread::panicking;

    /// Starts a thread of the model.
    ///
    /// # Errors
    /// None; the signature is the native one.
    pub fn spawn<T: 'static>(_name: &str, body: impl FnOnce() -> T + 'static) -> std::io::Result<JoinHandle<T>> {
        Ok(loom::thread::spawn(body))
    }

    /// Returns whether the handle is that of the calling thread, which must not join itself.
    pub fn is_current<T>(handle: &JoinHandle<T>) -> bool {
        handle.thread().id() == loom::thread::current().id()
    }

    /// Returns the name of the calling thread, if it has one.
    pub fn current_name() -> String {
        String::new()
    }

    /// Lets other threads run: models have no time.
    pub fn sleep(_time: Duration) {
        yield_now();
    }

    /// Returns the number of processors of the model.
    pub fn available_parallelism() -> usize {
        2
    }

    pub use crate::chance::random;

    /// Returns a number that no other thread of the model has: the same in every execution, unlike
    /// a hash of the thread's id.
    pub fn id() -> u64 {
        let text = format!("{:?}", loom::thread::current().id());
        text.bytes().filter(u8::is_ascii_digit).fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
    }

    /// Where one thread parks until other threads wake it. A wake-up that comes before the thread
    /// parks is kept.
    #[derive(Debug, Default)]
    pub struct Parker {
        woken: super::Mutex<bool>,
        wake: super::Condvar,
    }

    impl Parker {
        /// Makes a parker with no wake-up pending.
        pub fn new() -> Self {
            Self::default()
        }

        /// Parks until [`Parker::unpark`] has been called since the last return from here, and
        /// takes that wake-up.
        pub fn park(&self) {
            let mut woken = self.woken.lock();
            while !*woken {
                self.wake.wait(&mut woken);
            }
            *woken = false;
        }

        /// Does what [`Parker::park`] does: models have no time, so the wait never times out.
        pub fn park_timeout(&self, _timeout: Duration) -> bool {
            self.park();
            true
        }

        /// Wakes the parked thread, or lets the next [`Parker::park`] return at once.
        pub fn unpark(&self) {
            *self.woken.lock() = true;
            self.wake.notify_one();
        }
    }
}

/// Where the calling thread runs.
pub mod cpu {
    /// Returns processor 0: a model has no processors.
    pub fn current() -> usize {
        0
    }

    /// Returns node 0.
    pub fn node() -> usize {
        0
    }

    /// Returns 1: there is one memory node.
    pub fn nodes() -> usize {
        1
    }

    pub use crate::cpu_topology::CpuLocation;

    /// Returns processor 0 of node 0.
    pub fn location() -> CpuLocation {
        CpuLocation::default()
    }

    /// Returns 1: there is one memory node.
    pub fn occupied_nodes() -> usize {
        1
    }
}
