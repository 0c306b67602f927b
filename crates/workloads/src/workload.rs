//! What every benchmark implements.

use std::fmt;

use rand::rngs::StdRng;

use crate::audit::AuditReport;
use crate::error::Result;
use crate::store::{Acknowledge, Pending, Store};

/// A benchmark on a store: its population, its transactions, its consistency conditions.
pub trait Workload<S: Store>: Send + Sync + fmt::Debug {
    /// Returns its name on the command line.
    fn name(&self) -> &'static str;

    /// Returns the size of its database, for people.
    fn scale(&self) -> String;

    /// Returns the names of the kinds of transactions, in the order of their numbers in
    /// [`Done::kind`].
    fn kinds(&self) -> &'static [&'static str];

    /// Populates the store unless that is done already. A population that was cut off is completed.
    /// `observe` is called several times a second, on the calling thread.
    ///
    /// # Errors
    /// [`crate::Error::WrongScale`] when the database was populated for other parameters; the
    /// engine's errors.
    fn load(&self, store: &S, observe: &mut dyn FnMut(LoadProgress)) -> Result<LoadOutcome>;

    /// Returns the context of client number `client`, counted from 0. One session at a time may
    /// exist for each number.
    ///
    /// # Errors
    /// The engine's.
    fn session(&self, store: &S, client: u32) -> Result<Box<dyn Session>>;

    /// Checks the consistency conditions. No transaction may be writing meanwhile.
    ///
    /// # Errors
    /// The engine's, when the database cannot be read. What can be read and is wrong is in the
    /// report.
    fn audit(&self, store: &S) -> Result<AuditReport>;
}

/// One client's context: its connection to the database and the inputs of its current transaction.
pub trait Session: Send {
    /// Draws the inputs of the client's next transaction.
    fn draw(&mut self, rng: &mut StdRng);

    /// Runs the transaction drawn last, up to its commit, which is acknowledged as the caller
    /// wants. After a retryable error (see [`crate::Error::is_retryable`]) nothing of it took
    /// effect, and it may be called again for the same inputs.
    ///
    /// # Errors
    /// The engine's; [`crate::Error::Damaged`] when a row is missing that the population put there.
    fn execute(&mut self, acknowledge: Acknowledge) -> Result<Executed>;

    /// Called when the transaction executed last has been acknowledged, before the next one is
    /// drawn.
    ///
    /// # Errors
    /// When the client cannot record it.
    fn acknowledged(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A transaction that has been executed.
#[derive(Debug)]
pub struct Executed {
    /// How it ended, once it is acknowledged.
    pub done: Done,
    /// Its acknowledgement.
    pub pending: Pending,
}

/// A transaction that was brought to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Number of the kind of transaction, in the order of [`Workload::kinds`].
    pub kind: usize,
    /// Whether it changed nothing, or did not find what it looked for, as the benchmark's
    /// specification foresees for some inputs: for example, a new order that is rolled back, or a
    /// row that is inserted twice. It counts as done.
    pub declined: bool,
}

impl Done {
    /// Returns a transaction that did all that was to be done.
    pub fn committed(kind: usize) -> Self {
        Self { kind, declined: false }
    }

    /// Returns a transaction that ended otherwise, as is foreseen.
    pub fn declined(kind: usize) -> Self {
        Self { kind, declined: true }
    }
}

/// How far a population is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadProgress {
    /// Rows that are there.
    pub rows: u64,
    /// Rows that will be there.
    pub total: u64,
}

/// What [`Workload::load`] had to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadOutcome {
    /// Nothing: the population is complete.
    Present,
    /// The whole population was made.
    Loaded {
        /// Rows inserted.
        rows: u64,
    },
    /// A population that was cut off has been completed.
    Resumed {
        /// Rows inserted now.
        rows: u64,
    },
}
