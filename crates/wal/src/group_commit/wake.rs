//! How those are told who wait for the log.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use duramen_sync::thread::Parker;
use duramen_sync::{Arc, Mutex};

/// How a waiter is told.
pub(crate) enum Wake {
    /// A thread is unparked.
    Thread(Arc<Parker>),
    /// A task is woken.
    Task(Arc<Mutex<Waker>>),
    /// A function is called.
    Call(Box<dyn FnOnce() + Send>),
}

impl Wake {
    /// Tells the waiter. A panic of code that is not the log's ends here: others wait for the thread that calls this.
    pub(crate) fn tell(self) {
        let told = catch_unwind(AssertUnwindSafe(|| match self {
            Self::Thread(parker) => parker.unpark(),
            Self::Task(task) => {
                // Not called under the lock: it may run the task, which takes it. The task may end with its waker here.
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
            Self::Task(_) => "Task",
            Self::Call(_) => "Call",
        })
    }
}
