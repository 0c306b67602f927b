//! Keys and rows of YCSB, byte for byte.
//!
//! Key: `user` and 20 decimal digits, the scrambled record number: neighbours in number are none in
//! the table. Row: ten fields of 100 bytes. A field begins with the record number u64 and a seed
//! u64, little-endian; the rest follows from the seed, so that an audit notices a field that is
//! torn or belongs to another record.

use crate::random::scramble;

/// Fields of a record.
pub const FIELDS: usize = 10;
/// Bytes of a field.
pub const FIELD_LEN: usize = 100;
/// Bytes of a record.
pub const ROW_LEN: usize = FIELDS * FIELD_LEN;
/// Bytes of a key.
pub const KEY_LEN: usize = 24;

/// Bytes at the start of a field that say which record and which seed it is of.
const HEAD_LEN: usize = 16;

/// A field as stored.
pub type Field = [u8; FIELD_LEN];

/// Returns the key of record `number`.
pub fn key(number: u64) -> [u8; KEY_LEN] {
    let mut key = *b"user00000000000000000000";
    let mut rest = scramble(number);
    for place in key[4..].iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Returns a field of record `number`, with the content that follows from `seed`.
pub fn field(number: u64, seed: u64) -> Field {
    let mut field = [0; FIELD_LEN];
    field[..8].copy_from_slice(&number.to_le_bytes());
    field[8..HEAD_LEN].copy_from_slice(&seed.to_le_bytes());
    let mut state = seed;
    for piece in field[HEAD_LEN..].chunks_mut(8) {
        state = scramble(state);
        piece.copy_from_slice(&state.to_le_bytes()[..piece.len()]);
    }
    field
}

/// Returns a row of record `number` as the population and inserts make it.
pub fn row(number: u64, seed: u64) -> [u8; ROW_LEN] {
    let mut row = [0; ROW_LEN];
    for (place, at) in row.chunks_exact_mut(FIELD_LEN).zip(0..) {
        place.copy_from_slice(&field(number, seed ^ at));
    }
    row
}

/// Returns the record number of a row whose fields are all as they should be.
pub fn check_row(row: &[u8]) -> Option<u64> {
    let (fields, []) = row.as_chunks::<FIELD_LEN>() else { return None };
    if fields.len() != FIELDS {
        return None;
    }
    let head = |own: &Field, at: usize| own[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let number = head(&fields[0], 0)?;
    let holds = |own: &Field| head(own, 8).is_some_and(|seed| *own == field(number, seed));
    fields.iter().all(holds).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_rows_are_noticed() {
        let good = row(12, 99);
        assert_eq!(check_row(&good), Some(12));
        for at in [0, 8, 20, 99, 500, 999] {
            let mut bad = good;
            bad[at] ^= 4;
            assert_eq!(check_row(&bad), None, "byte {at}");
        }
        assert_eq!(check_row(&good[..900]), None);
        assert_eq!(check_row(&[]), None);
        let mut updated = good;
        updated[300..400].copy_from_slice(&field(12, 7));
        assert_eq!(check_row(&updated), Some(12));
    }

    #[test]
    fn keys_are_scattered() {
        assert_eq!(key(0).len(), KEY_LEN);
        assert!((0..100).map(key).all(|key| key[4..].iter().all(u8::is_ascii_digit)));
        assert!(!(0..100).map(key).is_sorted());
    }
}
