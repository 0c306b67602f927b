//! A commit that is not hardened yet.
//!
//! Flush pipelining (Aether, section 4): the thread that ran a transaction does not wait until its
//! commit record is hardened, but runs other transactions. A [`Commit`] reports the outcome to this
//! thread or to another one. It offers four ways: a blocking wait, an await in an async program of
//! any runtime, a poll, and a function that is called with the outcome.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Txn;
use crate::engine::Engine;
use crate::error::Result;
use crate::scheme::Hardening;

/// The outcome of [`crate::Txn::commit_async`]. The transaction is over and its changes are
/// visible, but the application must not acknowledge it before this commit is done. Dropping the
/// `Commit` does not take the commit back.
///
/// Like a transaction, a `Commit` keeps the database in use: a directory can be opened again when
/// all of them are gone.
#[must_use = "the transaction is durable only when this says so"]
pub struct Commit(State);

const _: () = {
    const fn is_shared_by_threads<T: Send + Sync>() {}
    is_shared_by_threads::<Commit>();
};

enum State {
    /// The outcome is known; `None` after it has been handed out.
    Done(Option<Result<()>>),
    /// The request has been given to the log. The transaction is over; it keeps the database in
    /// use.
    Hardening(Hardening, Txn),
}

impl Commit {
    pub(super) fn done(outcome: Result<()>) -> Self {
        Self(State::Done(Some(outcome)))
    }

    pub(super) fn hardening(hardened: Hardening, txn: Txn) -> Self {
        Self(State::Hardening(hardened, txn))
    }

    /// Returns whether [`Commit::wait`] would return at once, with success or an error. Costs one
    /// read of memory, or a share of the work if the logs use shared commit rounds.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let orders = db.table("orders")?;
    /// let mut txn = db.begin();
    /// txn.put(&orders, b"17", b"paid")?;
    /// let commit = txn.commit_async();
    /// while !commit.is_done() {
    ///     std::thread::yield_now(); // or run other transactions
    /// }
    /// assert!(commit.wait().is_ok()); // at once
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_done(&self) -> bool {
        match &self.0 {
            State::Done(_) => true,
            State::Hardening(hardened, txn) => txn.engine.health.is_forked() || hardened.is_ready(),
        }
    }

    /// Returns the commit unless it has been refused: its transaction was not pre-committed.
    pub(crate) fn accepted(self) -> Result<Self> {
        match self.0 {
            State::Done(Some(Err(error))) => Err(error),
            state => Ok(Self(state)),
        }
    }

    /// Blocks until the commit is durable.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let orders = db.table("orders")?;
    /// let mut txn = db.begin();
    /// txn.put(&orders, b"17", b"paid")?;
    /// let commit = txn.commit_async();
    /// // This thread goes on; another one waits, and then answers the customer.
    /// let answer = std::thread::spawn(move || commit.wait().map(|()| "order 17 is paid"));
    /// assert_eq!(answer.join().unwrap()?, "order 17 is paid");
    /// # Ok(())
    /// # }
    /// ```
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

    /// Calls `call` with the outcome: on a thread of the log when the commit is durable, or at once
    /// on the calling thread if it is durable already. The log's thread makes all such calls and
    /// wakes all tasks, one after the other: a slow call delays the others, and a call that waits
    /// for another such call, or for a task to be woken, waits for ever. Closing the database waits
    /// for the call in progress.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let orders = db.table("orders")?;
    /// let (sender, answers) = std::sync::mpsc::channel();
    /// let mut txn = db.begin();
    /// txn.put(&orders, b"17", b"paid")?;
    /// txn.commit_async().on_done(move |outcome| {
    ///     sender.send(outcome.map(|()| "order 17 is paid")).unwrap();
    /// });
    /// assert_eq!(answers.recv().unwrap()?, "order 17 is paid");
    /// # Ok(())
    /// # }
    /// ```
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
                Ok(()) => match hardened.poll(context) {
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

/// Passes the outcome on; a failure of the log puts the database out of service.
fn noted(engine: &Engine, outcome: Result<()>) -> Result<()> {
    outcome.map_err(|error| engine.note(error))
}
