//! What the simulated machine is charged for the instructions of a call, besides its operations on
//! shared memory and the data it touches: key and value handling, descents, log records, undo.
//!
//! In instructions, from counts of native runs with valgrind (of the client's thread for a
//! transaction: TATP GetSubscriberData 2,580, UpdateLocation 9,980, TPC-B 25,200), less what the
//! machine charges of its own accord; with both the machine comes within 6 % of each. `duramen lab
//! calibrate` compares the times.

/// Beginning a transaction.
pub(crate) const BEGIN: u64 = 400;
/// Looking a record up.
pub(crate) const READ: u64 = 900;
/// A step of a scan.
pub(crate) const SCAN_STEP: u64 = 150;
/// Changing a record.
pub(crate) const WRITE: u64 = 5_000;
/// Committing.
pub(crate) const COMMIT: u64 = 900;
