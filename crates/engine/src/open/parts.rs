//! The parts of a database that depend on its storage scheme.

use duramen_sync::Arc;

use crate::checkpoint::control::Control;
use crate::error::Result;
use crate::metrics::RecoveryReport;
use crate::pool::Pool;
use crate::recovery::RecoveryHost;
use crate::scheme::StorageScheme;

/// Brings the pages to the state of the last hardened commit, once the engine has its parts.
type Recover = Box<dyn FnOnce(&Arc<dyn RecoveryHost>, Control) -> Result<RecoveryReport>>;

/// The parts of a database that depend on its storage scheme.
pub(super) struct Opened {
    pub(super) pool: Arc<Pool>,
    pub(super) scheme: Arc<dyn StorageScheme>,
    /// The events that acknowledged commits do not survive, if these include less than a power cut.
    pub(super) shortfall: Option<String>,
    /// Called by a thread that is going to wait for a lock.
    pub(super) before_lock_wait: Option<Box<dyn Fn() + Send + Sync>>,
    pub(super) recover: Recover,
    /// Called after the first checkpoint.
    pub(super) checkpointed: Box<dyn FnOnce()>,
}
