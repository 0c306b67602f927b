//! The trait through which recovery reaches the parts of the engine, on any of its threads.

use super::background::BackgroundRecovery;
use super::parts::UndoParts;
use crate::options::Options;

/// The engine, as recovery sees it.
pub(crate) trait RecoveryHost: Send + Sync {
    fn options(&self) -> &Options;

    /// Returns the owner of the work that is left for after the opening.
    fn background(&self) -> &BackgroundRecovery;

    fn undo_parts(&self) -> UndoParts<'_>;
}
