//! Splits and merges.

use duramen_types::PageId;

use super::node::Node;
use super::node_mut::NodeMut;

/// Where to split: the slot and the separator.
pub(crate) fn split_point(node: Node<&[u8]>, hint: usize) -> (usize, Vec<u8>) {
    unimplemented!()
}

/// Builds the right half in `right`.
pub(crate) fn build_right(left: Node<&[u8]>, slot: usize, separator: &[u8], right: &mut [u8], right_id: PageId) {
    unimplemented!()
}

impl NodeMut<'_> {
    /// Drops the entries that moved right.
    pub(crate) fn truncate_left(&mut self, slot: usize, separator: &[u8]) {
        unimplemented!()
    }
}

/// Bytes, header included, of the merged page.
pub(crate) fn merged_size(left: Node<&[u8]>, right: Node<&[u8]>) -> usize {
    unimplemented!()
}

/// Whether both nodes fit into one page.
pub(crate) fn merge_fits(left: Node<&[u8]>, right: Node<&[u8]>) -> bool {
    unimplemented!()
}

/// Merges `right` into `left`.
pub(crate) fn merge_into(left: &mut [u8], right: Node<&[u8]>, separator: &[u8]) {
    unimplemented!()
}
