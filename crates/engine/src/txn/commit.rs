//! A commit on its way to the disk.
//!
//! Flush pipelining (Aether, section 4): the thread that ran a transaction does not wait for its
//! commit record to be hardened but goes on with other transactions. What tells it, or somebody
//! else, about the outcome is a [`Commit`]: it can be waited for, awaited by an async program of
//! any runtime, looked at, or handed a function to call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use duramen_wal::Hardened;

use super::Txn;
use crate::engine::Engine;
use crate::error::{Error, Result};

/// The outcome of [`crate::Txn::commit_async`]: the transaction is over and its changes are
/// visible, but whoever is told of it must be told only when this is done. Dropping it does not
/// take the commit back.
///
/// Like a transaction it keeps the database in use: a directory can be opened again when all of
/// them are gone.
#[must_use = "the transaction is durable only when this says so"]
pub struct Commit(State);

const _: () = {
    const fn is_shared_by_threads<T: Send + Sync>() {}
    is_shared_by_threads::<Commit>();
};

enum State {
    /// The outcome is known; `None` when it has been given out.
    Done(Option<Result<()>>),
    /// The log has been asked. The transaction is over; it keeps the database in use.
    Hardening(Hardened, Txn),
}

impl Commit {
    pub(super) fn done(outcome: Result<()>) -> Self {
        Self(State::Done(Some(outcome)))
    }

    pub(super) fn hardening(hardened: Hardened, txn: Txn) -> Self {
        Self(State::Hardening(hardened, txn))
    }

    /// Whether [`Commit::wait`] would return at once, for better or worse. Costs one look at
    /// memory, or a part of the work where logs are hardened together.
    pub fn is_done(&self) -> bool {
        match &self.0 {
            State::Done(_) => true,
            State::Hardening(hardened, txn) => txn.engine.health.is_forked() || hardened.is_ready(),
        }
    }

    /// Blocks until the commit is durable.
    ///
    /// # Errors
    /// As [`crate::Txn::commit`].
    ///
    /// # Panics
    /// After the outcome has been given out to a task that awaited it.
    pub fn wait(self) -> Result<()> {
        match self.0 {
            State::Done(outcome) => outcome.expect("a commit has one outcome"),
            State::Hardening(hardened, txn) => {
                txn.engine.health.check_process()?;
                noted(&txn.engine, hardened.wait())
            }
        }
    }

    /// Has `call` called with the outcome: on a thread of the log when the commit is durable, or at
    /// once on this one when it is already. That thread makes all such calls and wakes all tasks,
    /// one after the other: a call that takes its time delays the others, and one that waits until
    /// another is made, or a task is woken, waits for ever. Closing the database waits for the call
    /// that is being made.
    ///
    /// # Panics
    /// After the outcome has been given out to a task that awaited it.
    pub fn on_done(self, call: impl FnOnce(Result<()>) + Send + 'static) {
        match self.0 {
            State::Done(outcome) => call(outcome.expect("a commit has one outcome")),
            State::Hardening(hardened, txn) => match txn.engine.health.check_process() {
                Ok(()) => hardened.on_ready(move |outcome| call(noted(&txn.engine, outcome))),
                Err(error) => call(Err(error)),
            },
        }
    }
}

impl Future for Commit {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let outcome = match &mut self.0 {
            State::Done(outcome) => outcome.take().expect("a commit that is done is not polled again"),
            State::Hardening(hardened, txn) => match txn.engine.health.check_process() {
                Err(error) => Err(error),
                Ok(()) => match Pin::new(hardened).poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(outcome) => noted(&txn.engine, outcome),
                },
            },
        };
        self.0 = State::Done(None);
        Poll::Ready(outcome)
    }
}

impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commit").field("is_done", &self.is_done()).finish_non_exhaustive()
    }
}

/// A log that has failed puts the database out of service.
fn noted(engine: &Engine, outcome: duramen_wal::Result<()>) -> Result<()> {
    outcome.map_err(|error| engine.note(Error::from(error)))
}
