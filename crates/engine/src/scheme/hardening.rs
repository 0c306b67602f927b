//! A request to harden, over any scheme.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use duramen_wal::Hardened;

use super::batch_acks::Ticket;
use crate::error::{Error, Result};

/// A request to harden up to and including one commit. Dropping it does not cancel the request.
#[derive(Debug)]
pub(crate) enum Hardening {
    /// The log hardens its records.
    Log(Hardened),
    /// The batch becomes durable.
    Batch(Ticket),
    /// The scheme has failed, for this reason.
    Failed(String),
}

impl Hardening {
    /// Returns whether [`Hardening::wait`] would return at once.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Self::Log(hardened) => hardened.is_ready(),
            Self::Batch(ticket) => ticket.is_ready(),
            Self::Failed(_) => true,
        }
    }

    /// Blocks until the commit is hardened.
    ///
    /// # Errors
    /// Those of the scheme when it will not be.
    pub(crate) fn wait(&self) -> Result<()> {
        match self {
            Self::Log(hardened) => hardened.wait().map_err(Error::from),
            Self::Batch(ticket) => ticket.wait(),
            Self::Failed(reason) => Err(Error::Poisoned { reason: reason.clone() }),
        }
    }

    /// Calls `call` with the outcome: at once if it is known, else on a thread of the scheme that
    /// makes all such calls.
    pub(crate) fn on_ready(self, call: impl FnOnce(Result<()>) + Send + 'static) {
        match self {
            Self::Log(hardened) => hardened.on_ready(move |outcome| call(outcome.map_err(Error::from))),
            Self::Batch(ticket) => ticket.on_ready(call),
            Self::Failed(reason) => call(Err(Error::Poisoned { reason })),
        }
    }

    /// Returns the outcome, or has the task woken when it is known.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self {
            Self::Log(hardened) => Pin::new(hardened).poll(context).map_err(Error::from),
            Self::Batch(ticket) => ticket.poll(context),
            Self::Failed(reason) => Poll::Ready(Err(Error::Poisoned { reason: reason.clone() })),
        }
    }
}
