//! Those who wait for the log, and how they are told.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use duramen_sync::thread::Parker;
use duramen_sync::{Arc, Mutex};

/// How a waiter is told.
pub(crate) enum Wake {
    /// A thread is unparked.
    Thread(Arc<Parker>),
    /// A thread is unparked that could flush by itself if it did not sleep.
    SelfFlusher(Arc<Parker>),
    /// A task is woken.
    Task(Arc<Mutex<Waker>>),
    /// A function is called.
    Call(Box<dyn FnOnce() + Send>),
}

impl Wake {
    /// Tells the waiter. A panic of code that is not the log's ends here: others wait for the
    /// thread that calls this.
    pub(crate) fn tell(self) {
        let told = catch_unwind(AssertUnwindSafe(|| match self {
            Self::Thread(parker) | Self::SelfFlusher(parker) => parker.unpark(),
            Self::Task(task) => {
                // Not called under the lock: it may run the task, which takes it. The task may end
                // with its waker here.
                let waker = std::mem::replace(&mut *task.lock(), Waker::noop().clone());
                waker.wake();
            }
            Self::Call(call) => call(),
        }));
        if let Err(payload) = told {
            // Whose destructor may panic, too.
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

/// Those who wait, by what they wait for and in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Waiters<P> {
    waiting: BTreeMap<(P, u64), Wake>,
    came: u64,
    /// Those of them that are [`Wake::SelfFlusher`]s.
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

    /// The furthest position that somebody waits for.
    pub(crate) fn last(&self) -> Option<P> {
        self.waiting.last_key_value().map(|((position, _), _)| *position)
    }

    /// Takes those out, from the first on, for whom `is_over` says so: threads, and wakers and
    /// functions that are not the log's code.
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
