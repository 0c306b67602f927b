//! A request to harden, as its user has it: what it asks of each log.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use duramen_sync::Reference;
use duramen_types::Gsn;

use crate::error::Result;
use crate::group_commit::requests::Ask;
use crate::several::commit_rounds::CommitRounds;
use crate::several::complete::DurableGsn;
use crate::stream::part::Part;

/// A request to harden the log up to and including one record: [`Hardened::wait`] for it, or await
/// it in an async program. Dropping it does not take the request back.
#[derive(Debug)]
#[must_use = "the record is hardened only when this says so"]
pub struct Hardened(Request);

#[derive(Debug)]
enum Request {
    /// One log has to do it, or several on their own.
    Parts(Parts),
    /// Several logs that are hardened log_set.
    Rounds(Part<CommitRounds>),
}

#[derive(Debug)]
struct Parts {
    first: Part,
    /// In several logs, what else has to be hardened.
    others: Vec<Part>,
    /// In several logs: what is complete when all of it is.
    complete: Option<(Reference<DurableGsn>, Gsn)>,
}

impl Hardened {
    /// The parts, which have been requested, of a request; several logs are complete up to a GSN
    /// when all of them are hardened.
    pub(crate) fn of_parts(first: Part, others: Vec<Part>, complete: Option<(Reference<DurableGsn>, Gsn)>) -> Self {
        Self(Request::Parts(Parts { first, others, complete }))
    }

    /// A request that has been made of logs that are hardened log_set.
    pub(crate) fn of_rounds(group: Reference<CommitRounds>, gsn: Gsn) -> Self {
        Self(Request::Rounds(Part::requested(group, gsn)))
    }

    /// Blocks until the record is hardened.
    ///
    /// # Errors
    /// [`WalError::Failed`] or [`WalError::Closed`] when it will not be; [`WalError::OutOfRange`]
    /// when there is no such record.
    ///
    /// [`WalError::Failed`]: crate::WalError::Failed
    /// [`WalError::Closed`]: crate::WalError::Closed
    /// [`WalError::OutOfRange`]: crate::WalError::OutOfRange
    pub fn wait(&self) -> Result<()> {
        match &self.0 {
            Request::Parts(parts) => parts.wait(),
            Request::Rounds(part) => part.wait(Ask::Requested),
        }
    }

    /// Has `call` called with the outcome: on a thread of the log that does nothing else, or at
    /// once on this one when there is nothing to wait for. Calls are made one after the other, and
    /// so are the wakers of tasks: one that takes its time delays the others, and one that waits
    /// until another is made, or a task is woken, waits for ever. Closing or dropping the log waits
    /// for the call that is being made. One that panics harms nobody but itself.
    pub fn on_ready(self, call: impl FnOnce(Result<()>) + Send + 'static) {
        match self.0 {
            Request::Parts(parts) => parts.on_ready(call),
            Request::Rounds(part) => part.on_ready(Box::new(call)),
        }
    }

    /// Whether [`Hardened::wait`] would return at once, for better or worse.
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            Request::Parts(parts) => parts.first.is_ready() && parts.others.iter().all(Part::is_ready),
            Request::Rounds(part) => part.is_ready(),
        }
    }
}

impl Future for Hardened {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match &mut self.0 {
            Request::Parts(parts) => parts.poll(context),
            Request::Rounds(part) => part.poll(context),
        }
    }
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
        // One log after the other: the call is made when the last of them is ready, whatever their
        // order.
        first.on_ready(Box::new(move |outcome| match outcome {
            Ok(()) => self.on_ready(call),
            Err(error) => call(Err(error)),
        }));
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
