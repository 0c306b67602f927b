//! What the simulated machine is charged for the instructions of a call, besides its operations on shared memory and the
//! data it touches: key and value handling, descents, log records, undo.
//!
//! In instructions, from counts of native runs with valgrind (TATP GetSubscriberData 3,000 for a transaction, TPC-B
//! 30,000), less what the machine charges of its own accord. `duramen lab calibrate` shows what is left of the difference.

/// Beginning a transaction.
pub(crate) const BEGIN: u64 = 400;
/// Looking a record up.
pub(crate) const READ: u64 = 1_100;
/// A step of a scan.
pub(crate) const SCAN_STEP: u64 = 150;
/// Changing a record.
pub(crate) const WRITE: u64 = 4_000;
/// Committing.
pub(crate) const COMMIT: u64 = 900;
