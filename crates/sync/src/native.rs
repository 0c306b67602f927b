//! The native build: what ships.

pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use std::sync::atomic;

pub(crate) fn pause(pauses: u32) {
    for _ in 0..pauses {
        std::hint::spin_loop();
    }
}

use std::time::Duration;

/// A condition variable for [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// Makes a condition without waiting threads.
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Releases the lock, waits for a notification, takes the lock again. May wake spuriously.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(guard);
    }

    /// Does what [`Condvar::wait`] does, but for at most `timeout`; returns whether the time ran
    /// out.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        self.0.wait_for(guard, timeout).timed_out()
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

/// Plain memory that threads share under their own protocol.
pub mod cell {
    pub use crate::plain_cell::UnsafeCell;
}

/// Threads.
pub mod thread {
    use std::time::Duration;

    pub use std::thread::{JoinHandle, panicking, yield_now};

    /// Starts a named thread.
    ///
    /// # Errors
    /// The operating system's, if it refuses another thread.
    pub fn spawn<T: Send + 'static>(
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<JoinHandle<T>> {
        std::thread::Builder::new().name(name.to_owned()).spawn(body)
    }

    /// Returns whether the handle is that of the calling thread, which must not join itself.
    pub fn is_current<T>(handle: &JoinHandle<T>) -> bool {
        handle.thread().id() == std::thread::current().id()
    }

    /// Returns the name of the calling thread, if it has one.
    pub fn current_name() -> String {
        std::thread::current().name().unwrap_or_default().to_owned()
    }

    /// Sleeps for `time`.
    pub fn sleep(time: Duration) {
        std::thread::sleep(time);
    }

    /// Returns the number of processors that the first thread that calls this may use. Only that
    /// call asks the system, which reads several files.
    pub fn available_parallelism() -> usize {
        static COUNT: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    pub use crate::chance::{id, random};

    /// Where one thread parks until other threads wake it. A wake-up that comes before the thread
    /// parks is kept.
    #[derive(Debug, Default)]
    pub struct Parker {
        woken: parking_lot::Mutex<bool>,
        wake: parking_lot::Condvar,
    }

    impl Parker {
        /// Makes a parker with no wake-up pending.
        pub const fn new() -> Self {
            Self { woken: parking_lot::Mutex::new(false), wake: parking_lot::Condvar::new() }
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

        /// Does what [`Parker::park`] does, but for at most `timeout`; returns whether a wake-up
        /// was taken.
        pub fn park_timeout(&self, timeout: Duration) -> bool {
            let mut woken = self.woken.lock();
            if !*woken {
                self.wake.wait_while_for(&mut woken, |woken| !*woken, timeout);
            }
            std::mem::take(&mut *woken)
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
    pub use crate::cpu_topology::CpuLocation;
    use crate::cpu_topology::CpuTopology;

    /// Returns the number of the processor on which the calling thread runs at this moment: a hint,
    /// stale when it returns.
    pub fn current() -> usize {
        // SAFETY: the call takes no arguments and touches no memory of ours.
        let cpu = unsafe { libc::sched_getcpu() };
        usize::try_from(cpu).unwrap_or(0)
    }

    /// Returns the number of the memory node of the processor on which the calling thread runs at
    /// this moment: a hint, too.
    pub fn node() -> usize {
        let mut node: libc::c_uint = 0;
        let nothing = std::ptr::null_mut::<libc::c_uint>();
        // SAFETY: `node` is valid and writable; the kernel ignores null pointers here.
        let rc = unsafe { libc::syscall(libc::SYS_getcpu, nothing, &raw mut node, nothing) };
        if rc == 0 { node as usize } else { 0 }
    }

    /// Returns the number of memory nodes of this machine.
    pub fn nodes() -> usize {
        machine().nodes
    }

    /// Returns the processor on which the calling thread runs at this moment, by its node: a hint,
    /// too.
    pub fn location() -> CpuLocation {
        machine().topology.of(current())
    }

    /// Returns the number of memory nodes of this machine that have processors.
    pub fn occupied_nodes() -> usize {
        machine().topology.nodes()
    }

    struct Machine {
        nodes: usize,
        topology: CpuTopology,
    }

    /// Returns the system's description of its nodes, read once.
    fn machine() -> &'static Machine {
        static MACHINE: std::sync::OnceLock<Machine> = std::sync::OnceLock::new();
        MACHINE.get_or_init(|| {
            let entries = std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
            let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok();
            let mut nodes: Vec<u32> = entries.filter_map(number).collect();
            nodes.sort_unstable();
            let list = |node| std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"));
            let lists: Vec<String> = nodes.iter().map(|node| list(node).unwrap_or_default()).collect();
            Machine { nodes: nodes.len().max(1), topology: CpuTopology::of_nodes(lists.iter().map(String::as_str)) }
        })
    }
}
