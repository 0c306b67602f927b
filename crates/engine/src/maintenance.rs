//! The database's own maintenance work, as seen by the parts that need it.
//!
//! The checkpoint thread, the recovery thread, a transaction that finds the log full, and deferred
//! frees each need some of this work, and most of the tasks depend on each other. So the engine
//! implements them and hands them to these parts behind one trait. No call is on the path of a
//! commit or a read.

use duramen_sync::atomic::AtomicBool;

use crate::error::Result;

/// Work that no transaction requests directly.
pub(crate) trait Maintenance: Send + Sync {
    /// Takes a checkpoint after writing out the pages that have been dirty since before the last
    /// checkpoint.
    fn checkpoint(&self) -> Result<()>;

    /// Takes a checkpoint as [`Maintenance::checkpoint`] does, if the log has grown enough.
    fn checkpoint_if_due(&self) -> Result<()>;

    /// Takes a checkpoint after writing every dirty page out, so that the log can be recycled. A
    /// page that cannot be redone is reported to the operation that needs this page, not by this
    /// call.
    fn checkpoint_to_free_log(&self) -> Result<()>;

    /// Finishes the transactions that the last crash left in doubt, until `stop` is set. The caller
    /// must hold no latch, and must not run one of these transactions.
    fn finish_in_doubt(&self, stop: &AtomicBool) -> Result<()>;

    /// Redoes every page that still lacks changes, until `stop` is set. The caller must hold no
    /// latch.
    fn finish_redo(&self, stop: &AtomicBool) -> Result<()>;

    /// Tries again to free the pages that could not be freed yet, so that they do not keep the log.
    fn free_log_of_deferred_frees(&self);
}
