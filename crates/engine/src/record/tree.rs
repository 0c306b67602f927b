//! Identifies the tree that a log record belongs to.

use duramen_types::{PageId, TableId};

/// A tree, identified by the page of its root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tree {
    /// The root's page.
    pub(crate) root: PageId,
    /// The table whose records it holds.
    pub(crate) table: TableId,
}
