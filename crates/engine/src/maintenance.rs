//! What the database does for itself, as the parts see it that have it done.
//!
//! The threads for checkpoints and for recovery, a transaction that finds the log full, and the one that frees pages each
//! need some of this; most of it needs the others. The engine implements it. It is called seldom.

use duramen_sync::atomic::AtomicBool;

use crate::error::Result;

/// Work that no transaction asks for by name.
pub(crate) trait Maintenance: Send + Sync {
    /// Takes a checkpoint, after writing out the pages that have been dirty since before the last one.
    fn checkpoint(&self) -> Result<()>;

    /// Takes a checkpoint after writing every dirty page out, to make room in the log. A page that cannot be redone is for
    /// those to report who need it.
    fn checkpoint_to_free_log(&self) -> Result<()>;

    /// Brings to their end the in-doubt transactions, which the last crash has interrupted, until it is told to stop. The caller must hold
    /// no latch, and must not be one of them.
    fn finish_in_doubt(&self, stop: &AtomicBool) -> Result<()>;

    /// Redoes every page that still lacks changes, until it is told to stop. The caller must hold no latch.
    fn finish_redo(&self, stop: &AtomicBool) -> Result<()>;

    /// Tries again to free the pages that could not be freed yet.
    fn retry_deferred_frees(&self);
}
