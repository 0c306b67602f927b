//! The place where trees and overflow values live.

use duramen_sync::Arc;

use super::free_space::Space;
use crate::pool::Pool;
use crate::scheme::StorageScheme;

/// Pages, the free space that they are taken from, and the scheme that makes changes of them
/// durable.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) pool: Arc<Pool>,
    pub(crate) space: Space,
    pub(crate) scheme: Arc<dyn StorageScheme>,
}
