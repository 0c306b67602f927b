//! The parts of the engine that finish transactions.

use crate::health::Failures;
use crate::lock::LockManager;
use crate::storage::store::Store;
use crate::txn_state::context_pool::ContextPool;
use crate::txn_state::deferred_free::Freeing;
use crate::txn_state::table::TxnTable;

/// The parts of the engine that the undo pass works with.
pub(crate) struct UndoParts<'e> {
    pub(crate) store: &'e Store,
    pub(crate) locks: &'e LockManager,
    pub(crate) txns: &'e TxnTable,
    pub(crate) contexts: &'e ContextPool,
    pub(crate) failures: Failures<'e>,
    pub(crate) freeing: Freeing<'e>,
    /// Whether other transactions run before these have ended: see
    /// [`crate::Options::instant_recovery`].
    pub(crate) instant_recovery: bool,
}
