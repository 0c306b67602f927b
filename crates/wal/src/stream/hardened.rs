//! A request to harden, as something to wait for: by a thread, by a task, or by a function to be called.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use duramen_sync::{Arc, Mutex, Reference, References};
use duramen_types::{Gsn, Lsn, planted};

use crate::error::{Result, WalError};
use crate::group_commit::requests::Ask;
use crate::group_commit::wake::Wake;
use crate::several::commit_round::Group;
use crate::several::logs::Complete;
use crate::stream::inner::Shared;

/// A request to harden the log up to and including one record: [`Hardened::wait`] for it, or await it in an async
/// program. Dropping it does not take the request back.
#[derive(Debug)]
#[must_use = "the record is hardened only when this says so"]
pub struct Hardened(Request);

#[derive(Debug)]
enum Request {
    /// One log has to do it, or several on their own.
    Parts(Parts),
    /// Several logs that are hardened together. The last is what wakes the task, once this has been polled.
    Together(Reference<Group>, Gsn, Option<Arc<Mutex<Waker>>>),
}

#[derive(Debug)]
struct Parts {
    first: Part,
    /// In several logs, what else has to be hardened.
    others: Vec<Part>,
    /// In several logs: what is complete when all of it is.
    complete: Option<(Reference<Complete>, Gsn)>,
}

impl Hardened {
    pub(crate) fn request(shared: &References<Shared>, lsn: Lsn) -> Self {
        Self(Request::Parts(Parts { first: Part::request(shared, lsn), others: Vec::new(), complete: None }))
    }

    /// The parts, which have been requested, of a request that makes several logs complete up to `gsn`.
    pub(crate) fn of_several(first: Part, others: Vec<Part>, complete: Reference<Complete>, gsn: Gsn) -> Self {
        Self(Request::Parts(Parts { first, others, complete: Some((complete, gsn)) }))
    }

    /// A request that has been made of logs that are hardened together.
    pub(crate) fn together(group: Reference<Group>, gsn: Gsn) -> Self {
        Self(Request::Together(group, gsn, None))
    }

    /// Blocks until the record is hardened.
    ///
    /// # Errors
    /// [`WalError::Failed`] or [`WalError::Closed`] when it will not be; [`WalError::OutOfRange`] when there is no such
    /// record.
    pub fn wait(&self) -> Result<()> {
        match &self.0 {
            Request::Parts(parts) => parts.wait(),
            Request::Together(..) if planted!(AcknowledgeBeforeFlush) => Ok(()),
            Request::Together(group, gsn, _) => group.wait(*gsn),
        }
    }

    /// Has `call` called with the outcome: on a thread of the log that does nothing else, or at once on this one when
    /// there is nothing to wait for. Calls are made one after the other, and so are the wakers of
    /// tasks: one that takes its time delays the others, and one that waits until another is made, or a task is woken,
    /// waits for ever. Closing or dropping the log waits for the call that is being made. One that panics harms nobody but
    /// itself.
    pub fn on_ready(self, call: impl FnOnce(Result<()>) + Send + 'static) {
        match self.0 {
            Request::Parts(parts) => parts.on_ready(call),
            Request::Together(group, gsn, _) => {
                let told = group.clone();
                let wake = Wake::Call(Box::new(move || call(told.outcome(gsn))));
                if let Some(wake) = group.queue(gsn, wake) {
                    wake.tell();
                }
            }
        }
    }

    /// Whether [`Hardened::wait`] would return at once, for better or worse.
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            Request::Parts(parts) => parts.is_ready(),
            Request::Together(group, gsn, _) => group.is_ready(*gsn) || planted!(AcknowledgeBeforeFlush),
        }
    }
}

impl Future for Hardened {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match &mut self.0 {
            Request::Parts(parts) => parts.poll(context),
            Request::Together(group, gsn, task) => {
                let is_ready = poll(task, context, |wake| group.queue(*gsn, wake).is_none(), || group.is_ready(*gsn));
                if is_ready { Poll::Ready(group.outcome(*gsn)) } else { Poll::Pending }
            }
        }
    }
}

/// Sees to it that the task of `context` is woken, by what is or will be in `task`, which `queue` can add to those who are
/// told; returns whether there is nothing to wait for any more.
fn poll(
    task: &mut Option<Arc<Mutex<Waker>>>,
    context: &Context<'_>,
    queue: impl FnOnce(Wake) -> bool,
    is_ready: impl FnOnce() -> bool,
) -> bool {
    if let Some(task) = task {
        // Wakers are cloned and dropped without the lock: that is code of others.
        let waker = context.waker().clone();
        let previous = std::mem::replace(&mut *task.lock(), waker);
        drop(previous);
    } else {
        let new = Arc::new(Mutex::new(context.waker().clone()));
        if queue(Wake::Task(Arc::clone(&new))) {
            *task = Some(new);
        }
    }
    // After the waker has been put in place: it is then called for whatever comes later.
    is_ready()
}

impl Parts {
    fn wait(&self) -> Result<()> {
        // Several logs are flushed side by side, by their daemons.
        self.first.wait(if self.others.is_empty() { Ask::SelfFlushing } else { Ask::Requested })?;
        self.others.iter().try_for_each(|part| part.wait(Ask::Requested))?;
        self.note();
        Ok(())
    }

    fn on_ready(mut self, call: impl FnOnce(Result<()>) + Send + 'static) {
        let first = match self.others.pop() {
            None => {
                let Self { first, complete, .. } = self;
                return first.on_ready(Box::new(move |outcome| {
                    if let (Ok(()), Some((complete, gsn))) = (&outcome, complete) {
                        complete.note(gsn);
                    }
                    call(outcome);
                }));
            }
            Some(next) => std::mem::replace(&mut self.first, next),
        };
        // One log after the other: the call is made when the last of them is ready, whatever their order.
        first.on_ready(Box::new(move |outcome| match outcome {
            Ok(()) => self.on_ready(call),
            Err(error) => call(Err(error)),
        }));
    }

    fn is_ready(&self) -> bool {
        self.first.is_ready() && self.others.iter().all(Part::is_ready)
    }

    fn note(&self) {
        if let Some((complete, gsn)) = &self.complete {
            complete.note(*gsn);
        }
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<()>> {
        let mut outcome = self.first.poll(context);
        for part in &mut self.others {
            // Each of them, so that each wakes the task.
            outcome = match (outcome, part.poll(context)) {
                (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
                (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(Ok(())),
                _ => Poll::Pending,
            };
        }
        if matches!(outcome, Poll::Ready(Ok(()))) {
            self.note();
        }
        outcome
    }
}

/// The part of a request that one log has to do.
#[derive(Debug)]
pub(crate) struct Part {
    shared: Reference<Shared>,
    lsn: Lsn,
    /// What the queue wakes, once this has been polled.
    task: Option<Arc<Mutex<Waker>>>,
    /// The request made no sense.
    refused: Option<WalError>,
}

impl Part {
    pub(crate) fn request(shared: &References<Shared>, lsn: Lsn) -> Self {
        Self { refused: shared.request(lsn).err(), shared: shared.take(), lsn, task: None }
    }

    pub(crate) fn wait(&self, ask: Ask) -> Result<()> {
        match &self.refused {
            Some(error) => Err(error.clone()),
            None if self.shared.is_settled(self.lsn) => self.outcome(),
            None => self.shared.wait(self.lsn, ask),
        }
    }

    fn on_ready(mut self, call: Box<dyn FnOnce(Result<()>) + Send>) {
        if let Some(error) = self.refused.take() {
            return call(Err(error));
        }
        if self.is_ready() {
            return call(self.outcome());
        }
        let shared = self.shared.clone();
        let lsn = self.lsn;
        let wake = Wake::Call(Box::new(move || call(self.outcome())));
        if let Some(wake) = shared.queue.queue(&shared.space, lsn, wake) {
            wake.tell();
        }
    }

    fn is_ready(&self) -> bool {
        self.refused.is_some() || self.shared.is_settled(self.lsn)
    }

    fn outcome(&self) -> Result<()> {
        if planted!(AcknowledgeBeforeFlush) { Ok(()) } else { self.shared.outcome(self.lsn) }
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<()>> {
        if let Some(error) = &self.refused {
            return Poll::Ready(Err(error.clone()));
        }
        let Self { shared, lsn, .. } = self;
        let queue = |wake| shared.queue.queue(&shared.space, *lsn, wake).is_none();
        let is_ready = poll(&mut self.task, context, queue, || shared.is_settled(*lsn));
        if is_ready { Poll::Ready(self.outcome()) } else { Poll::Pending }
    }
}
