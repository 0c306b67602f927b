//! Threads that run the transactions of asynchronous programs.
//!
//! A thread is started when a job arrives and none is idle, up to a limit, and ends with the
//! database. A transaction may keep its thread waiting for a lock, at most until another one on
//! these threads, or elsewhere, ends: jobs hold no locks between their transactions.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use duramen_sync::{Arc, Condvar, Mutex, thread};

use crate::error::{Error, Result};

pub(crate) type Job = Box<dyn FnOnce() + Send>;

pub(crate) struct Workers {
    queue: Mutex<Queue>,
    arrived: Condvar,
    most: usize,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("most", &self.most).finish_non_exhaustive()
    }
}

impl Workers {
    /// Creates up to `most` threads, none of them yet.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { queue: Mutex::default(), arrived: Condvar::new(), most })
    }

    /// Runs `job` when a thread is free. After [`Self::close`] a thread that lasts may still run
    /// it.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Io`] if there is no thread, and the system refuses one.
    pub(crate) fn submit(self: &Arc<Self>, job: Job) -> Result<()> {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Err(Error::Closed);
        }
        queue.jobs.push_back(job);
        if queue.idle >= queue.jobs.len() || queue.threads == self.most {
            drop(queue);
            self.arrived.notify_one();
            return Ok(());
        }
        queue.threads += 1;
        let workers = Arc::clone(self);
        match thread::spawn("duramen-run", move || workers.work()) {
            Ok(_) => Ok(()),
            Err(error) => {
                queue.threads -= 1;
                if queue.threads == 0 {
                    queue.jobs.pop_back();
                    return Err(Error::Io { reason: format!("cannot start a thread for `run_async`: {error}") });
                }
                Ok(())
            }
        }
    }

    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                // It catches the panics of its work; here may panic what the work has left.
                let _ = catch_unwind(AssertUnwindSafe(job));
                queue = self.queue.lock();
            } else if queue.is_closed {
                return;
            } else {
                queue.idle += 1;
                self.arrived.wait(&mut queue);
                queue.idle -= 1;
            }
        }
    }

    /// Ends the threads when they have run what has been submitted. Does not wait for them: one of
    /// them may be the caller, when its job drops the last handle.
    pub(crate) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.arrived.notify_all();
    }
}
