//! The handle of a request to harden: what the request needs of each log.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use duramen_sync::Reference;
use duramen_types::Gsn;

use crate::error::Result;
use crate::group_commit::requests::Ask;
use crate::several::commit_rounds::CommitRounds;
use crate::several::durable_gsn::DurableGsn;
use crate::stream::part::Part;

/// A request to harden the log up to and including one record. Call [`Hardened::wait`], or await
/// the request in an async program. Dropping the handle does not cancel the request.
#[derive(Debug)]
#[must_use = "the record is hardened only when this says so"]
pub struct Hardened(Request);

#[derive(Debug)]
enum Request {
    /// One log hardens the record, or several logs do so independently.
    Parts(Parts),
    /// Several logs that harden commits in shared rounds.
    Rounds(Part<CommitRounds>),
}

#[derive(Debug)]
struct Parts {
    first: Part,
    /// With several logs: the other parts that have to be hardened.
    others: Vec<Part>,
    /// With several logs: the GSN that is durable when all parts are hardened.
    complete: Option<(Reference<DurableGsn>, Gsn)>,
}

impl Hardened {
    /// Combines parts that have been requested into one request. Several logs are complete up to
    /// the GSN when all parts are hardened.
    pub(crate) fn of_parts(first: Part, others: Vec<Part>, complete: Option<(Reference<DurableGsn>, Gsn)>) -> Self {
        Self(Request::Parts(Parts { first, others, complete }))
    }

    /// Returns the handle of a request made to logs with shared commit rounds.
    pub(crate) fn of_rounds(group: Reference<CommitRounds>, gsn: Gsn) -> Self {
        Self(Request::Rounds(Part::requested(group, gsn)))
    }

    /// Blocks until the record is hardened.
    ///
    /// # Errors
    /// [`WalError::Failed`] or [`WalError::Closed`] when the record will not be hardened;
    /// [`WalError::OutOfRange`] when there is no such record.
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

    /// Calls `call` with the outcome. If there is nothing to wait for, this thread makes the call
    /// at once; otherwise a dedicated thread of the log makes it. That thread makes all calls and
    /// wakes all tasks one after the other. So a slow call delays the others, and a call that waits
    /// for another call, or for a task to be woken, waits for ever. Closing or dropping the log
    /// waits for the call in progress. A call that panics affects no other call.
    pub fn on_ready(self, call: impl FnOnce(Result<()>) + Send + 'static) {
        match self.0 {
            Request::Parts(parts) => parts.on_ready(call),
            Request::Rounds(part) => part.on_ready(Box::new(call)),
        }
    }

    /// Returns whether [`Hardened::wait`] would return at once, with success or with an error.
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            Request::Parts(parts) => parts.is_ready(),
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
    fn is_ready(&self) -> bool {
        let mut all = std::iter::once(&self.first).chain(&self.others);
        let is_ready = all.clone().all(Part::is_ready);
        if is_ready && self.complete.is_some() && all.all(|part| part.outcome().is_ok()) {
            self.note();
        }
        is_ready
    }

    fn wait(&self) -> Result<()> {
        // The daemons of several logs flush in parallel.
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
        // Waits for one log after the other. The call is made when the last of them is ready,
        // whatever their order.
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
            // Polls every part, so that every part wakes the task.
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
