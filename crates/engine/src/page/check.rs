//! Structural validation of node pages.

/// Validates a node.
pub(crate) fn check(page: &[u8]) -> Result<(), String> {
    unimplemented!()
}
