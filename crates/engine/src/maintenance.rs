//! What the database does for itself, as the parts see it that need it done.
//!
//! The checkpoint thread, the recovery thread, a transaction that finds the log full, and deferred
//! frees each need some of this work, and most of this work needs the others. So the engine
//! implements it and hands it to them behind one trait. No call is on the path of a commit or a
//! read.

use duramen_sync::atomic::AtomicBool;

use crate::error::Result;

/// Work that no transaction asks for by name.
pub(crate) trait Maintenance: Send + Sync {
    /// Takes a checkpoint, after writing out the pages that have been dirty since before the last
    /// one.
    fn checkpoint(&self) -> Result<()>;

    /// Takes a checkpoint after writing every dirty page out, so that the log can be recycled.
    /// Whatever needs a page that cannot be redone reports that; this does not.
    fn checkpoint_to_free_log(&self) -> Result<()>;

    /// Brings the in-doubt transactions, which the last crash has interrupted, to their end, until
    /// it is told to stop. The caller must hold no latch, and must not be one of them.
    fn finish_in_doubt(&self, stop: &AtomicBool) -> Result<()>;

    /// Redoes every page that still lacks changes, until it is told to stop. The caller must hold
    /// no latch.
    fn finish_redo(&self, stop: &AtomicBool) -> Result<()>;

    /// Tries again to free the pages that could not be freed yet.
    fn retry_deferred_frees(&self);
}
