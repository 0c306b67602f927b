//! Which tree a record of the log is about.

use duramen_types::{PageId, TableId};

/// A tree, by the page of its root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tree {
    /// The root's page.
    pub(crate) root: PageId,
    /// The table whose records it holds.
    pub(crate) table: TableId,
}
