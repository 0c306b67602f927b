//! The waiters for the log, and how they are notified.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use duramen_sync::thread::Parker;
use duramen_sync::{Arc, Mutex};

/// How a waiter is notified.
pub(crate) enum Wake {
    Thread(Arc<Parker>),
    /// A self-flushing waiter: a thread that could flush by itself if it were not parked.
    SelfFlusher(Arc<Parker>),
    Task(Arc<Mutex<Waker>>),
    Call(Box<dyn FnOnce() + Send>),
}

impl Wake {
    /// Notifies the waiter. A panic of foreign code ends here: others wait for the calling thread.
    pub(crate) fn tell(self) {
        let told = catch_unwind(AssertUnwindSafe(|| match self {
            Self::Thread(parker) | Self::SelfFlusher(parker) => parker.unpark(),
            Self::Task(task) => {
                // Called without the lock: the waker may run the task, which takes the lock. The
                // task may end here, and its waker with it.
                let waker = std::mem::replace(&mut *task.lock(), Waker::noop().clone());
                waker.wake();
            }
            Self::Call(call) => call(),
        }));
        if let Err(payload) = told {
            // The destructor of the payload may panic, too.
            std::mem::forget(payload);
        }
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Thread(_) => "Thread",
            Self::SelfFlusher(_) => "SelfFlusher",
            Self::Task(_) => "Task",
            Self::Call(_) => "Call",
        })
    }
}

/// The waiters, ordered by the position that they wait for and then by arrival.
#[derive(Debug, Default)]
pub(crate) struct Waiters<P> {
    waiting: BTreeMap<(P, u64), Wake>,
    came: u64,
    /// How many waiters are [`Wake::SelfFlusher`]s.
    pub(crate) self_flushers: usize,
}

impl<P: Ord + Copy> Waiters<P> {
    pub(crate) fn push(&mut self, position: P, wake: Wake) {
        self.self_flushers += usize::from(matches!(wake, Wake::SelfFlusher(_)));
        self.waiting.insert((position, self.came), wake);
        self.came += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the furthest position that a waiter waits for.
    pub(crate) fn last(&self) -> Option<P> {
        self.waiting.last_key_value().map(|((position, _), _)| *position)
    }

    /// Removes waiters, from the lowest position on, as long as `is_over` accepts the position.
    /// Returns threads and foreign code (wakers and functions) separately.
    pub(crate) fn take(&mut self, is_over: impl Fn(P) -> bool) -> (Vec<Arc<Parker>>, Vec<Wake>) {
        let (mut threads, mut foreign) = (Vec::new(), Vec::new());
        while let Some(first) = self.waiting.first_entry().filter(|first| is_over(first.key().0)) {
            match first.remove() {
                Wake::Thread(parker) => threads.push(parker),
                Wake::SelfFlusher(parker) => {
                    self.self_flushers -= 1;
                    threads.push(parker);
                }
                wake => foreign.push(wake),
            }
        }
        (threads, foreign)
    }
}
