//! The machine build: simulated threads on a simulated computer (`duramen-machine`).
//!
//! Outside of a run, where the program prepares it or reads its results, everything works as in the
//! native build, for one thread.

use std::time::Duration;

use duramen_machine::{is_simulated, shared, threads};

pub(crate) fn pause(pauses: u32) {
    shared::pause(pauses);
}

#[path = "machine_atomic.rs"]
pub mod atomic;
#[path = "machine_locks.rs"]
mod locks;

pub use locks::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Plain memory that threads share under their own protocol.
pub mod cell {
    pub use crate::plain_cell::UnsafeCell;
}

/// Threads.
pub mod thread {
    use std::any::Any;
    use std::cell::Cell;
    use std::rc::Rc;

    use duramen_machine::Time;

    use super::{Duration, is_simulated, threads};

    pub use std::thread::panicking;

    /// A started thread.
    pub struct JoinHandle<T> {
        id: threads::ThreadId,
        result: Rc<Cell<Option<T>>>,
    }

    // SAFETY: simulated threads share one host thread.
    unsafe impl<T> Send for JoinHandle<T> {}
    // SAFETY: as above.
    unsafe impl<T> Sync for JoinHandle<T> {}

    impl<T> std::fmt::Debug for JoinHandle<T> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_tuple("JoinHandle").field(&self.id).finish()
        }
    }

    impl<T> JoinHandle<T> {
        /// Waits for the thread's end.
        ///
        /// # Errors
        /// The value with which it panicked.
        pub fn join(self) -> Result<T, Box<dyn Any + Send>> {
            match threads::join(self.id) {
                Some(panic) => Err(panic),
                None => Ok(self.result.take().expect("a thread that has ended without panic has a result")),
            }
        }

        /// Returns whether the thread has ended.
        pub fn is_finished(&self) -> bool {
            threads::has_ended(self.id)
        }
    }

    /// Starts a named thread. The caller must be within a run.
    ///
    /// # Errors
    /// The host's, if it has no memory for another stack.
    pub fn spawn<T: Send + 'static>(
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<JoinHandle<T>> {
        if !is_simulated() {
            return Err(std::io::Error::other("threads of this build exist within a run of the simulated machine"));
        }
        let result = Rc::new(Cell::new(None));
        let slot = Rc::clone(&result);
        let id = threads::spawn(name, move || slot.set(Some(body())))?;
        Ok(JoinHandle { id, result })
    }

    /// Returns whether the handle is that of the calling thread, which must not join itself.
    pub fn is_current<T>(handle: &JoinHandle<T>) -> bool {
        handle.id == threads::current()
    }

    /// Returns the name of the calling thread.
    pub fn current_name() -> String {
        if is_simulated() { threads::current_name() } else { String::new() }
    }

    /// Sleeps for `length`.
    pub fn sleep(length: Duration) {
        if is_simulated() {
            threads::sleep(Time::from(length));
        } else {
            std::thread::sleep(length);
        }
    }

    /// Lets other threads run.
    pub fn yield_now() {
        if is_simulated() {
            threads::yield_now();
        }
    }

    /// Returns the number of contexts of the simulated computer.
    pub fn available_parallelism() -> usize {
        if is_simulated() { threads::contexts() } else { 1 }
    }

    /// Returns the next of the calling thread's own random numbers.
    pub fn random() -> u64 {
        if is_simulated() { threads::random() } else { 0x9e37_79b9_7f4a_7c15 }
    }

    /// Returns a number that no other thread has.
    pub fn id() -> u64 {
        if is_simulated() { threads::current().number() } else { u64::MAX - 1 }
    }

    pub use super::locks::Parker;
}

/// Where the calling thread runs.
pub mod cpu {
    use super::{is_simulated, threads};
    pub use crate::cpu_topology::CpuLocation;

    /// Returns the number of the context on which the calling thread runs at this moment.
    pub fn current() -> usize {
        if is_simulated() { threads::context() } else { 0 }
    }

    /// Returns the number of the memory node of the processor on which the calling thread runs at
    /// this moment.
    pub fn node() -> usize {
        if is_simulated() { threads::node() } else { 0 }
    }

    /// Returns the number of memory nodes of the simulated computer.
    pub fn nodes() -> usize {
        if is_simulated() { threads::nodes() } else { 1 }
    }

    /// Returns the context on which the calling thread runs at this moment, by its node. All nodes
    /// have the same number of consecutive contexts.
    pub fn location() -> CpuLocation {
        let of_node = if is_simulated() { threads::contexts() / threads::nodes() } else { 1 };
        CpuLocation { node: node(), processor: current() % of_node }
    }

    /// Returns the number of memory nodes of the simulated computer that have contexts: all of
    /// them.
    pub fn occupied_nodes() -> usize {
        nodes()
    }
}
