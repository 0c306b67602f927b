//! Where recovery gets the parts of the engine from, on any of its threads.

use super::background::BackgroundRecovery;
use super::parts::UndoParts;
use crate::options::Options;

/// The engine.
pub(crate) trait RecoveryHost: Send + Sync {
    fn options(&self) -> &Options;

    /// Takes what is left for after the opening.
    fn background(&self) -> &BackgroundRecovery;

    fn undo_parts(&self) -> UndoParts<'_>;
}
