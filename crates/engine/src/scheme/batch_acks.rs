//! Threads and tasks that wait for batches, and how they learn that a batch is durable.
//!
//! Threads wait on a condition. Wakers of tasks and functions are called by a thread of their own,
//! the notifier, because they may take any time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::{Arc, CachePadded, Condvar, Mutex};

use crate::error::{Error, Result};

/// What is done when a batch is durable, or will not be.
enum Wake {
    Task(Waker),
    Call(Box<dyn FnOnce(Result<()>) + Send>),
}

#[derive(Default)]
struct State {
    /// The tasks and functions, each with the batch that it waits for.
    waiting: Vec<(u64, Wake)>,
    failed: Option<Error>,
    is_stopped: bool,
}

/// The batches that are durable, and the tasks that wait for others.
#[derive(Default)]
pub(super) struct Acks {
    durable: CachePadded<AtomicU64>,
    has_failed: AtomicBool,
    state: Mutex<State>,
    /// Signalled after each batch, and after a failure.
    news: Condvar,
    /// Signalled when the notifier may have something to do.
    notify: Condvar,
}

impl std::fmt::Debug for Acks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acks").field("durable", &self.durable).finish_non_exhaustive()
    }
}

impl Acks {
    pub(super) fn new(durable: u64) -> Self {
        let acks = Self::default();
        acks.durable.store(durable, Ordering::Relaxed);
        acks
    }

    /// Returns the latest durable batch.
    pub(super) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Says that a batch is durable.
    pub(super) fn publish(&self, batch: u64) {
        self.durable.store(batch, Ordering::Release);
        // A thread that looked before this waits by the time the mutex is free.
        let has_tasks = !self.state.lock().waiting.is_empty();
        self.news.notify_all();
        if has_tasks {
            self.notify.notify_one();
        }
    }

    /// Says that no further batch will be durable.
    pub(super) fn fail(&self, error: Error) {
        self.state.lock().failed.get_or_insert(error);
        self.has_failed.store(true, Ordering::Release);
        self.news.notify_all();
        self.notify.notify_one();
    }

    /// Returns why no further batch will be durable.
    pub(super) fn failure(&self) -> Option<Error> {
        if self.has_failed.load(Ordering::Acquire) { self.state.lock().failed.clone() } else { None }
    }

    /// Returns the outcome for a batch, if it is known.
    fn outcome(&self, batch: u64) -> Option<Result<()>> {
        if self.durable() >= batch { Some(Ok(())) } else { self.failure().map(Err) }
    }

    /// Waits until a batch is durable.
    pub(super) fn wait(&self, batch: u64) -> Result<()> {
        if self.durable() >= batch {
            return Ok(());
        }
        let mut state = self.state.lock();
        loop {
            if self.durable() >= batch {
                return Ok(());
            }
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            self.news.wait(&mut state);
        }
    }

    /// Wakes tasks and calls functions until it is told to stop, and then those that are left.
    pub(super) fn notify_loop(&self) {
        let mut state = self.state.lock();
        loop {
            let durable = self.durable();
            let error = state.failed.clone();
            let mut told = Vec::new();
            state.waiting = std::mem::take(&mut state.waiting)
                .into_iter()
                .filter_map(|(batch, wake)| {
                    if batch > durable && error.is_none() {
                        return Some((batch, wake));
                    }
                    told.push((if batch <= durable { None } else { error.clone() }, wake));
                    None
                })
                .collect();
            if !told.is_empty() {
                drop(state);
                for (error, wake) in told {
                    tell(wake, error.map_or(Ok(()), Err));
                }
                state = self.state.lock();
                continue;
            }
            if state.is_stopped {
                return;
            }
            self.notify.wait(&mut state);
        }
    }

    /// Tells the notifier to stop.
    pub(super) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.notify.notify_one();
    }
}

/// Calls foreign code. Its panic ends here, because others wait for the notifier.
fn tell(wake: Wake, outcome: Result<()>) {
    let told = catch_unwind(AssertUnwindSafe(|| match wake {
        Wake::Task(waker) => waker.wake(),
        Wake::Call(call) => call(outcome),
    }));
    if let Err(payload) = told {
        // The destructor of the payload may panic, too.
        std::mem::forget(payload);
    }
}

/// A request to be told when a batch is durable.
#[derive(Debug)]
pub(crate) struct Ticket {
    acks: Arc<Acks>,
    batch: u64,
    /// The waker that was left last.
    waker: Option<Waker>,
}

impl Ticket {
    pub(super) fn new(acks: &Arc<Acks>, batch: u64) -> Self {
        Self { acks: Arc::clone(acks), batch, waker: None }
    }

    /// Returns whether [`Ticket::wait`] would return at once.
    pub(crate) fn is_ready(&self) -> bool {
        self.acks.outcome(self.batch).is_some()
    }

    /// Waits until the batch is durable.
    pub(crate) fn wait(&self) -> Result<()> {
        self.acks.wait(self.batch)
    }

    /// Calls `call` with the outcome: at once if it is known, else on the notifier.
    pub(crate) fn on_ready(self, call: impl FnOnce(Result<()>) + Send + 'static) {
        let mut state = self.acks.state.lock();
        let failed = state.failed.clone();
        if self.acks.durable() >= self.batch || failed.is_some() || state.is_stopped {
            drop(state);
            let is_durable = self.acks.durable() >= self.batch;
            return call(if is_durable { Ok(()) } else { Err(failed.unwrap_or(Error::Closed)) });
        }
        state.waiting.push((self.batch, Wake::Call(Box::new(call))));
    }

    /// Returns the outcome, or has the task woken when it is known.
    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<Result<()>> {
        if let Some(outcome) = self.acks.outcome(self.batch) {
            return Poll::Ready(outcome);
        }
        let waker = context.waker();
        if self.waker.as_ref().is_some_and(|left| left.will_wake(waker)) {
            return Poll::Pending;
        }
        let mut state = self.acks.state.lock();
        if self.acks.durable() >= self.batch {
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = &state.failed {
            return Poll::Ready(Err(error.clone()));
        }
        state.waiting.push((self.batch, Wake::Task(waker.clone())));
        self.waker = Some(waker.clone());
        Poll::Pending
    }
}
