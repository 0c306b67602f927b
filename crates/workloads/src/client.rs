//! A client: its session, its inputs and how far it is.

use duramen_sync::clock::Instant;
use rand::rngs::StdRng;

use crate::error::Error;
use crate::workload::{Executed, Session};

/// One client of an agent.
pub(crate) struct Client {
    pub(crate) id: u32,
    pub(crate) session: Box<dyn Session>,
    pub(crate) rng: StdRng,
    /// Transactions it may still begin.
    pub(crate) quota: u64,
    pub(crate) committed: u64,
    pub(crate) aborted: u64,
    /// Its transaction, from the commit to the acknowledgement.
    pub(crate) executed: Option<Executed>,
    /// When its transaction begins: when the one before was acknowledged (there is no think time),
    /// or at the time that the pace gives.
    pub(crate) start: Instant,
    /// Failed attempts of the transaction that has been drawn; `None` when none has been.
    pub(crate) attempts: Option<u32>,
    /// The earliest time of the next attempt, after a failed one.
    pub(crate) again: Instant,
}

impl Client {
    pub(crate) fn new(id: u32, session: Box<dyn Session>, rng: StdRng, quota: u64) -> Self {
        let now = Instant::now();
        Self {
            id,
            session,
            rng,
            quota,
            committed: 0,
            aborted: 0,
            executed: None,
            start: now,
            attempts: None,
            again: now,
        }
    }

    /// Returns the time when it has something to do.
    pub(crate) fn due(&self) -> Instant {
        self.start.max(self.again)
    }

    /// Returns whether its transaction is no longer in flight.
    pub(crate) fn is_done(&self) -> bool {
        self.executed.as_ref().is_none_or(|executed| executed.pending.is_done())
    }

    /// Returns what went wrong, with its client's number.
    pub(crate) fn failure(&self, source: Error) -> Error {
        Error::Client { client: self.id, source: Box::new(source) }
    }
}
