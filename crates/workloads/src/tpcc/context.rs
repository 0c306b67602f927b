//! What the transactions of a terminal share.

use super::Tables;
use crate::error::Error;

/// What all transactions of a terminal work with.
pub(super) struct Context<T> {
    pub(super) tables: Tables<T>,
    /// The terminal's warehouse ...
    pub(super) w: u32,
    /// ... and district.
    pub(super) d: u8,
    /// Where the terminal's next history row goes.
    pub(super) history_key: [u8; 12],
    /// Space for a row, and for parts of rows that a transaction needs later.
    pub(super) bytes: Vec<u8>,
    pub(super) numbers: Vec<u32>,
}

/// Returns the error for a row that must be there and is not, or is too short.
#[cold]
pub(super) fn damaged(what: &str, key: &[u8]) -> Error {
    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    Error::Damaged { reason: format!("the {what} with the key {key} is missing or too short") }
}
