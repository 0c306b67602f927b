//! Identifies the process, without a system call.
//!
//! When a process forks, its child has a copy of its memory, and of its threads only the one that
//! forked. What the memory states about files and threads is then true only in the parent. A word
//! counts the forks from the first process to this one: the system's C library makes each new child
//! add one to its own copy of the word, before the child runs anything else.
//!
//! A child that is created without the C library's `fork` (by a bare system call) cannot be
//! distinguished from its parent.

/// A process, as far as code that runs in it or in its children can distinguish it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(u32);

impl Process {
    /// Returns the calling process.
    pub fn current() -> Self {
        forks::watch();
        Self(forks::count())
    }

    /// Returns whether the caller runs in this process, and not in a child that was forked since.
    #[inline]
    pub fn is_current(self) -> bool {
        self.0 == forks::count()
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::current()
    }
}

#[cfg(not(any(duramen_loom, duramen_machine)))]
mod forks {
    use std::sync::Once;
    use std::sync::atomic::{AtomicU32, Ordering};

    static COUNT: AtomicU32 = AtomicU32::new(0);

    extern "C" fn in_child() {
        // Relaxed: a child has one thread at that time.
        COUNT.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn watch() {
        static WATCHED: Once = Once::new();
        WATCHED.call_once(|| {
            // SAFETY: the function does one atomic operation, which a child of a process with many
            // threads may do.
            let rc = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            assert_eq!(rc, 0, "there is memory for one handler");
        });
    }

    #[inline]
    pub(super) fn count() -> u32 {
        COUNT.load(Ordering::Relaxed)
    }
}

/// In a model and on the simulated machine there is one process.
#[cfg(any(duramen_loom, duramen_machine))]
mod forks {
    pub(super) fn watch() {}

    pub(super) const fn count() -> u32 {
        0
    }
}
