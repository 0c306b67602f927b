//! Tables in an engine that has one ordered space of keys: a table's number, four bytes,
//! big-endian, comes before each of its keys. Table 0 holds the numbers of the others under their
//! names.

use duramen_workloads::store::ScanRange;

/// A table's number.
pub(super) type Number = u32;

/// The table of tables.
pub(super) const TABLES: Number = 0;

/// Bytes before a key.
pub(super) const LEN: usize = size_of::<Number>();

/// Writes the key under which the engine knows `key` into `buffer`.
pub(super) fn key<'b>(buffer: &'b mut Vec<u8>, table: Number, key: &[u8]) -> &'b [u8] {
    buffer.clear();
    buffer.extend_from_slice(&table.to_be_bytes());
    buffer.extend_from_slice(key);
    buffer
}

/// The first key of a range, and the first behind it.
pub(super) fn bounds(table: Number, range: &ScanRange<'_>) -> (Vec<u8>, Vec<u8>) {
    let mut start = Vec::new();
    key(&mut start, table, range.start);
    let mut end = Vec::new();
    match range.end {
        Some(last) => key(&mut end, table, last),
        None => key(&mut end, table + 1, &[]),
    };
    (start, end)
}

/// A table's number from its row in the table of tables.
pub(super) fn number(row: &[u8]) -> Option<Number> {
    Some(Number::from_be_bytes(row.try_into().ok()?))
}
