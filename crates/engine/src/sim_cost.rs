//! The instructions that the simulated machine charges for a call, besides its operations on shared
//! memory and the data that it touches: key and value handling, descents, log records, undo.
//!
//! The figures come from native runs under valgrind (instructions of the client's thread for one
//! transaction: TATP GetSubscriberData 2,580, UpdateLocation 9,980, TPC-B 25,200), less the
//! instructions that the machine charges by itself. With both, the machine comes within 6 % of each
//! native count. `duramen lab calibrate` compares the times.

/// Beginning a transaction.
pub(crate) const BEGIN: u64 = 400;
/// Looking up a record.
pub(crate) const READ: u64 = 900;
/// A step of a scan.
pub(crate) const SCAN_STEP: u64 = 150;
/// Changing a record.
pub(crate) const WRITE: u64 = 5_000;
/// Committing.
pub(crate) const COMMIT: u64 = 900;
