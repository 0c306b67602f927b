//! The handle of a request to harden the log.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::Result;
use crate::group_commit::requests::Ask;
use crate::several::commit_rounds::CommitRounds;
use crate::stream::part::Part;

/// A request to harden the log up to and including one record. Call [`Hardened::wait`], or await
/// the request in an async program. Dropping the handle does not cancel the request.
#[derive(Debug)]
#[must_use = "the record is hardened only when this says so"]
pub struct Hardened(pub(crate) Request);

/// A request, to one log or to several.
#[derive(Debug)]
pub(crate) enum Request {
    One(Part),
    Several(Part<CommitRounds>),
}

impl Hardened {
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
            Request::One(part) => part.wait(Ask::SelfFlushing),
            Request::Several(part) => part.wait(Ask::SelfFlushing),
        }
    }

    /// Calls `call` with the outcome. If there is nothing to wait for, this thread makes the call
    /// at once; otherwise a dedicated thread of the log makes it. That thread makes all calls and
    /// wakes all tasks one after the other. So a slow call delays the others, and a call that waits
    /// for another call, or for a task to be woken, waits for ever. Closing or dropping the log
    /// waits for the call in progress. A call that panics affects no other call.
    pub fn on_ready(self, call: impl FnOnce(Result<()>) + Send + 'static) {
        match self.0 {
            Request::One(part) => part.on_ready(Box::new(call)),
            Request::Several(part) => part.on_ready(Box::new(call)),
        }
    }

    /// Returns whether [`Hardened::wait`] would return at once, with success or with an error.
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            Request::One(part) => part.is_ready(),
            Request::Several(part) => part.is_ready(),
        }
    }
}

impl Future for Hardened {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match &mut self.0 {
            Request::One(part) => part.poll(context),
            Request::Several(part) => part.poll(context),
        }
    }
}
