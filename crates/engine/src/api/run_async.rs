//! Runs transactions for asynchronous programs.
//!
//! A task that holds locks while it is suspended can block the threads of its executor: other tasks
//! wait for these locks, and no thread is left to resume the first task. So a transaction runs on a
//! thread of the database, from its beginning to its pre-commit, and the task awaits the rest.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use duramen_sync::{Arc, Mutex, Process, Reference};

use super::db::Db;
use super::run::until_committed;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::txn::{Commit, Txn};

/// What a run has left when its thread is done with it.
type Ran<R> = Result<(R, Commit)>;

/// The way from the thread that runs the transaction to the task.
struct Slot<R> {
    /// The inner error is a panic.
    ran: Option<Result<Ran<R>, Box<dyn Any + Send>>>,
    waker: Option<Waker>,
}

/// A transaction that [`Db::run_async`] runs. Awaiting it returns what [`Db::run`] would.
#[must_use = "the transaction is durable only when this says so"]
pub struct Running<R> {
    slot: Arc<Mutex<Slot<R>>>,
    /// The process that has the thread.
    process: Process,
    committing: Option<(R, Commit)>,
    /// Whether the outcome has been given out.
    is_over: bool,
}

// Nothing in it is ever pinned.
impl<R> Unpin for Running<R> {}

impl<R> fmt::Debug for Running<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("has_pre_committed", &self.committing.is_some()).finish_non_exhaustive()
    }
}

impl Db {
    /// Runs a transaction as [`Db::run`] does, for an asynchronous program of any runtime: `work`
    /// runs on a thread of the database, from [`crate::Options::run_async_threads`], and the task
    /// awaits the outcome. So no lock is held across an `.await`, and no thread of the runtime
    /// waits for a lock or for the disk.
    ///
    /// The transaction runs whether or not the future is polled or dropped.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// # let db = duramen::Db::open(home.path(), duramen::Options::default())?;
    /// let visits = db.create_table("visits")?;
    /// let visit = async |name: &'static [u8]| {
    ///     let visits = visits.clone();
    ///     db.run_async(move |txn| {
    ///         let seen = txn.get_for_update(&visits, name)?.map_or(0, |seen| seen[0]);
    ///         txn.put(&visits, name, &[seen + 1])
    ///     })
    ///     .await
    /// };
    /// # duramen_test_support::block_on(visit(b"home"))?;
    /// # assert_eq!(db.run(|txn| txn.get(&visits, b"home"))?, Some(vec![1]));
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::run`], when awaited; [`crate::Error::Io`] if the system refuses a thread.
    ///
    /// # Panics
    /// When awaited, if `work` panicked, or if the outcome has been given out already.
    pub fn run_async<R: Send + 'static>(&self, work: impl FnMut(&mut Txn) -> Result<R> + Send + 'static) -> Running<R> {
        let slot = Arc::new(Mutex::new(Slot { ran: None, waker: None }));
        let running =
            Running { slot: Arc::clone(&slot), process: Process::current(), committing: None, is_over: false };
        if let Err(error) = self.engine().health.check_process() {
            slot.lock().ran = Some(Ok(Err(error)));
            return running;
        }
        let engine = self.begin_reference();
        let fill = move |ran| {
            let mut slot = slot.lock();
            slot.ran = Some(ran);
            let waker = slot.waker.take();
            drop(slot);
            if let Some(waker) = waker {
                waker.wake();
            }
        };
        let refused = fill.clone();
        let workers = Arc::clone(&self.engine().workers);
        let job = move || {
            let ran = catch_unwind(AssertUnwindSafe(|| run(&engine, work)));
            // A task that has the outcome may close the database, and open it again at once.
            drop(engine);
            fill(ran);
        };
        if let Err(error) = workers.submit(Box::new(job)) {
            refused(Ok(Err(error)));
        }
        running
    }
}

fn run<R>(engine: &Reference<Engine>, work: impl FnMut(&mut Txn) -> Result<R>) -> Ran<R> {
    until_committed(|| Txn::begin(engine.clone(), engine.options.isolation), work, |txn| txn.commit_async().accepted())
}

impl<R> Future for Running<R> {
    type Output = Result<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R>> {
        assert!(!self.is_over, "the outcome has been given out already");
        if !self.process.is_current() {
            self.is_over = true;
            return Poll::Ready(Err(Error::Forked));
        }
        if self.committing.is_none() {
            let ran = {
                let mut slot = self.slot.lock();
                let Some(ran) = slot.ran.take() else {
                    slot.waker = Some(context.waker().clone());
                    return Poll::Pending;
                };
                ran
            };
            self.is_over = !matches!(ran, Ok(Ok(_)));
            match ran {
                Ok(Ok(committing)) => self.committing = Some(committing),
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(panic) => resume_unwind(panic),
            }
        }
        let (_, commit) = self.committing.as_mut().expect("the transaction has run");
        match Pin::new(commit).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(outcome) => {
                let (value, _) = self.committing.take().expect("the transaction has run");
                self.is_over = true;
                Poll::Ready(outcome.map(|()| value))
            }
        }
    }
}
