//! The handle of a request to harden the log: wait for it, await it, or have a function called.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use duramen_sync::{Arc, Mutex, Reference, References};
use duramen_types::{Gsn, Lsn, planted};

use crate::error::{Result, WalError};
use crate::group_commit::requests::Ask;
use crate::group_commit::wake::Wake;
use crate::several::commit_rounds::CommitRounds;
use crate::stream::inner::StreamInner;

/// A request to harden the log up to and including one record. Call [`Hardened::wait`], or await
/// the request in an async program. Dropping the handle does not cancel the request.
#[derive(Debug)]
#[must_use = "the record is hardened only when this says so"]
pub struct Hardened {
    request: Request,
    /// The waker that the queue calls, once this has been polled.
    task: Option<Arc<Mutex<Waker>>>,
    /// Set if the request was invalid.
    refused: Option<WalError>,
}

/// What has been requested: a record, from the only log or from the commit rounds of several logs.
#[derive(Clone, Debug)]
enum Request {
    One(Reference<StreamInner>, Lsn),
    Several(Reference<CommitRounds>, Gsn),
}

impl Request {
    fn is_resolved(&self) -> bool {
        match self {
            Self::One(stream, lsn) => stream.is_resolved(*lsn),
            Self::Several(rounds, gsn) => rounds.is_resolved(*gsn),
        }
    }

    /// Queues a waiter; returns the waiter if there is nothing left to wait for.
    fn queue(&self, wake: Wake) -> Option<Wake> {
        match self {
            Self::One(stream, lsn) => stream.queue.queue(&stream.space, *lsn, wake),
            Self::Several(rounds, gsn) => rounds.queue(*gsn, wake),
        }
    }
}

impl Hardened {
    /// Requests that a database's only log be hardened up to and including `lsn`.
    pub(crate) fn of_one(stream: &References<StreamInner>, lsn: Lsn) -> Self {
        let request = Request::One(stream.take(), lsn);
        Self { request, task: None, refused: stream.request(lsn).err() }
    }

    /// Returns the handle of a request to several logs, which has been made.
    pub(crate) fn of_several(rounds: &References<CommitRounds>, gsn: Gsn) -> Self {
        Self { request: Request::Several(rounds.take(), gsn), task: None, refused: None }
    }

    /// Blocks until the record is hardened.
    ///
    /// # Errors
    /// [`WalError::Failed`] or [`WalError::Closed`] when the record will not be hardened;
    /// [`WalError::OutOfRange`] when there is no such record.
    pub fn wait(&self) -> Result<()> {
        match &self.request {
            _ if self.is_ready() => self.outcome(),
            Request::One(stream, lsn) => stream.wait(*lsn, Ask::SelfFlushing),
            Request::Several(rounds, gsn) => rounds.wait(None, *gsn, Ask::SelfFlushing),
        }
    }

    /// Calls `call` with the outcome. If there is nothing to wait for, this thread makes the call
    /// at once; otherwise a dedicated thread of the log makes it. That thread makes all calls and
    /// wakes all tasks one after the other. So a slow call delays the others, and a call that waits
    /// for another call, or for a task to be woken, waits for ever. Closing or dropping the log
    /// waits for the call in progress. A call that panics affects no other call.
    pub fn on_ready(self, call: impl FnOnce(Result<()>) + Send + 'static) {
        if self.is_ready() {
            return call(self.outcome());
        }
        let request = self.request.clone();
        if let Some(wake) = request.queue(Wake::Call(Box::new(move || call(self.outcome())))) {
            wake.tell();
        }
    }

    /// Returns whether [`Hardened::wait`] would return at once, with success or with an error.
    pub fn is_ready(&self) -> bool {
        self.refused.is_some() || planted!(AcknowledgeBeforeFlush) || self.request.is_resolved()
    }

    /// Returns the outcome of a request that is ready.
    fn outcome(&self) -> Result<()> {
        match (&self.refused, &self.request) {
            (Some(error), _) => Err(error.clone()),
            _ if planted!(AcknowledgeBeforeFlush) => Ok(()),
            (None, Request::One(stream, lsn)) => stream.outcome(*lsn),
            (None, Request::Several(rounds, gsn)) => rounds.outcome(*gsn),
        }
    }
}

impl Future for Hardened {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some(task) = &self.task {
            // Wakers are cloned and dropped without the lock, because that runs foreign code.
            let waker = context.waker().clone();
            let previous = std::mem::replace(&mut *task.lock(), waker);
            drop(previous);
        } else if self.refused.is_none() {
            let new = Arc::new(Mutex::new(context.waker().clone()));
            if self.request.queue(Wake::Task(Arc::clone(&new))).is_none() {
                self.task = Some(new);
            }
        }
        // Checked after the waker is in place: a later change then calls the waker.
        if self.is_ready() { Poll::Ready(self.outcome()) } else { Poll::Pending }
    }
}
