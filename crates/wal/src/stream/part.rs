//! A request to harden everything up to a position. A thread or a task can wait for it, or a
//! function is called when it is done.

use std::fmt::Debug;
use std::task::{Context, Poll, Waker};

use duramen_sync::{Arc, Mutex, Reference, References};
use duramen_types::{Lsn, planted};

use crate::error::{Result, WalError};
use crate::group_commit::requests::Ask;
use crate::group_commit::wake::Wake;
use crate::stream::inner::StreamInner;

/// A component that hardens everything up to a position on request.
pub(crate) trait Hardens: Debug + Send + Sync + 'static {
    /// The type of the positions that can be requested.
    type Position: Copy + Debug + Send;

    /// Returns whether waiting for `at` is over.
    fn is_ready(&self, at: Self::Position) -> bool;

    /// Queues a waiter; returns the waiter if there is nothing left to wait for.
    fn queue(&self, at: Self::Position, wake: Wake) -> Option<Wake>;

    /// Blocks until waiting for `at` is over, and returns the outcome.
    fn wait(&self, at: Self::Position, ask: Ask) -> Result<()>;

    /// Returns the outcome of waiting for `at`, which is over.
    fn outcome(&self, at: Self::Position) -> Result<()>;
}

impl Hardens for StreamInner {
    type Position = Lsn;

    fn is_ready(&self, at: Lsn) -> bool {
        self.is_resolved(at)
    }

    fn queue(&self, at: Lsn, wake: Wake) -> Option<Wake> {
        self.queue.queue(&self.space, at, wake)
    }

    fn wait(&self, at: Lsn, ask: Ask) -> Result<()> {
        self.wait(at, ask)
    }

    fn outcome(&self, at: Lsn) -> Result<()> {
        self.outcome(at)
    }
}

/// The part of a request that concerns one log, or several logs with shared commit rounds.
#[derive(Debug)]
pub(crate) struct Part<T: Hardens = StreamInner> {
    of: Reference<T>,
    at: T::Position,
    /// The waker that the queue calls, once this part has been polled.
    task: Option<Arc<Mutex<Waker>>>,
    /// Set if the request was invalid.
    refused: Option<WalError>,
}

impl Part {
    /// Requests that a log be hardened up to and including `lsn`.
    pub(crate) fn request(shared: &References<StreamInner>, lsn: Lsn) -> Self {
        Self::requested(shared.take(), lsn, shared.request(lsn).err())
    }
}

impl<T: Hardens> Part<T> {
    /// Returns the part of a request that has been made, or `refused`.
    pub(crate) fn requested(of: Reference<T>, at: T::Position, refused: Option<WalError>) -> Self {
        Self { of, at, task: None, refused }
    }

    pub(crate) fn wait(&self, ask: Ask) -> Result<()> {
        if self.is_ready() { self.outcome() } else { self.of.wait(self.at, ask) }
    }

    pub(crate) fn on_ready(self, call: Box<dyn FnOnce(Result<()>) + Send>) {
        if self.is_ready() {
            return call(self.outcome());
        }
        let (of, at) = (self.of.clone(), self.at);
        if let Some(wake) = of.queue(at, Wake::Call(Box::new(move || call(self.outcome())))) {
            wake.tell();
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.refused.is_some() || planted!(AcknowledgeBeforeFlush) || self.of.is_ready(self.at)
    }

    /// Returns the outcome of a request that is ready.
    pub(crate) fn outcome(&self) -> Result<()> {
        match &self.refused {
            Some(error) => Err(error.clone()),
            None if planted!(AcknowledgeBeforeFlush) => Ok(()),
            None => self.of.outcome(self.at),
        }
    }

    /// Ensures that the task of `context` is woken if it has to wait.
    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<Result<()>> {
        if let Some(task) = &self.task {
            // Wakers are cloned and dropped without the lock, because that runs foreign code.
            let waker = context.waker().clone();
            let previous = std::mem::replace(&mut *task.lock(), waker);
            drop(previous);
        } else if self.refused.is_none() {
            let new = Arc::new(Mutex::new(context.waker().clone()));
            if self.of.queue(self.at, Wake::Task(Arc::clone(&new))).is_none() {
                self.task = Some(new);
            }
        }
        // Checked after the waker is in place: a later change then calls the waker.
        if self.is_ready() { Poll::Ready(self.outcome()) } else { Poll::Pending }
    }
}
