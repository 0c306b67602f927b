//! What every benchmark implements.

use std::fmt;

use duramen::Db;
use rand::rngs::StdRng;

use crate::audit::AuditReport;
use crate::error::Result;

/// A benchmark: its population, its transactions, its consistency conditions.
pub trait Workload: Send + Sync + fmt::Debug {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Populates the database unless that is done already. A population that was cut off is completed. `observe` is
    /// called several times a second, on the calling thread.
    ///
    /// # Errors
    /// [`crate::Error::WrongScale`] when the database was populated for other parameters; the engine's errors.
    fn load(&self, db: &Db, observe: &mut dyn FnMut(LoadProgress)) -> Result<LoadOutcome>;

    /// The context of client number `client`, counted from 0. One session at a time may exist for each number.
    ///
    /// # Errors
    /// The engine's.
    fn session(&self, db: &Db, client: u32) -> Result<Box<dyn Session>>;

    /// Checks the consistency conditions. No transaction may be writing meanwhile.
    ///
    /// # Errors
    /// The engine's, when the database cannot be read. What can be read and is wrong is in the report.
    fn audit(&self, db: &Db) -> Result<AuditReport>;
}

/// One client's context: its connection to the database and the inputs of its current transaction.
pub trait Session: Send {
    /// Draws the inputs of the client's next transaction.
    fn draw(&mut self, rng: &mut StdRng);

    /// Runs the transaction drawn last, up to its acknowledged commit. After a retryable error (see
    /// [`crate::Error::is_retryable`]) nothing of it took effect, and it may be called again for the same inputs.
    ///
    /// # Errors
    /// The engine's; [`crate::Error::Damaged`] when a row is missing that the population put there.
    fn execute(&mut self) -> Result<()>;
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
