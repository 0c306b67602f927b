//! The names of lockable resources.
//!
//! A [`LockId`] consists of 61 bits that name the resource, above 3 bits that give its kind. For
//! the catalog, a table and the gap at the end of a table the 61 bits are exact. For a record and
//! the gap before it they are a hash of table and key. Two keys with the same hash share a lock.
//! Their transactions then wait for, or deadlock with, each other without need, but no conflict is
//! missed. The kind is not part of the hash, so a record never shares a lock with a gap or a table.
//!
//! The hash is fast and well mixed, not secret: an attacker who chooses keys can make them collide,
//! but gains no more than contention on them.

use duramen_types::TableId;

use crate::hash::{MIX, fold};

const KIND_BITS: u32 = 3;

/// The kinds of lockable resources; they occupy the low bits of an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
enum Kind {
    Catalog = 0,
    Table = 1,
    Record = 2,
    Gap = 3,
    GapEnd = 4,
}

/// The name of a lockable resource.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LockId(u64);

impl LockId {
    /// Returns the id of the set of tables.
    #[inline]
    pub(crate) const fn catalog() -> Self {
        Self::exact(Kind::Catalog, 0)
    }

    /// Returns the id of a table as a whole.
    #[inline]
    pub(crate) const fn table(table: TableId) -> Self {
        Self::exact(Kind::Table, table.get())
    }

    /// Returns the id of the record with `key`, present or not.
    #[inline]
    pub(crate) fn record(table: TableId, key: &[u8]) -> Self {
        Self::hashed(Kind::Record, table, key)
    }

    /// Returns the id of the open interval between `key` and the key before it.
    #[inline]
    pub(crate) fn gap(table: TableId, key: &[u8]) -> Self {
        Self::hashed(Kind::Gap, table, key)
    }

    /// Returns the id of the interval above the last key of a table.
    #[inline]
    pub(crate) const fn gap_end(table: TableId) -> Self {
        Self::exact(Kind::GapEnd, table.get())
    }

    /// Returns whether the id names a table as a whole, or the set of tables.
    #[inline]
    pub(crate) const fn is_coarse(self) -> bool {
        matches!(self.0 & ((1 << KIND_BITS) - 1), 0 | 1)
    }

    const fn exact(kind: Kind, number: u32) -> Self {
        Self((number as u64) << KIND_BITS | kind as u64)
    }

    fn hashed(kind: Kind, table: TableId, key: &[u8]) -> Self {
        Self(hash(table.get(), key) << KIND_BITS | kind as u64)
    }

    /// Returns bits of the id that [`Self::bucket`] hardly uses.
    #[inline]
    pub(crate) const fn tag(self) -> u32 {
        (self.0 >> KIND_BITS) as u32
    }

    /// Returns a number below 2^`bits`; ids that differ in any bit probably get different numbers.
    #[inline]
    pub(crate) const fn bucket(self, bits: u32) -> usize {
        // Two shifts: for zero bits, a single shift by 64 would be undefined.
        (self.0.wrapping_mul(MIX[3]) >> 1 >> (63 - bits)) as usize
    }
}

impl std::fmt::Debug for LockId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = self.0 >> KIND_BITS;
        match self.0 & ((1 << KIND_BITS) - 1) {
            kind if kind == Kind::Catalog as u64 => write!(f, "LockId(catalog)"),
            kind if kind == Kind::Table as u64 => write!(f, "LockId(table {number})"),
            kind if kind == Kind::Record as u64 => write!(f, "LockId(record {number:016x})"),
            kind if kind == Kind::Gap as u64 => write!(f, "LockId(gap {number:016x})"),
            _ => write!(f, "LockId(end of table {number})"),
        }
    }
}

/// Hashes a key within a table: one folded multiplication per 16 bytes.
#[inline]
fn hash(table: u32, key: &[u8]) -> u64 {
    // The length goes in first, so that keys which differ only in trailing zero bytes have
    // different start values.
    let mut state = fold(u64::from(table) << 32 ^ key.len() as u64 ^ MIX[0], MIX[3]);
    let (blocks, tail) = key.as_chunks::<16>();
    for block in blocks {
        let (low, high) = halves(block);
        state = fold(low ^ state, high ^ MIX[1]);
    }
    if !tail.is_empty() {
        let mut block = [0; 16];
        block[..tail.len()].copy_from_slice(tail);
        let (low, high) = halves(&block);
        state = fold(low ^ state, high ^ MIX[1]);
    }
    fold(state ^ MIX[2], MIX[0])
}

#[inline]
fn halves(block: &[u8; 16]) -> (u64, u64) {
    let block = u128::from_le_bytes(*block);
    (block as u64, (block >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{LockId, TableId};
    use crate::hash::BuildNumberHasher;

    const T: TableId = TableId::new(7);

    #[test]
    fn kinds_never_collide() {
        for key in [&b""[..], b"a", b"a longer key than one block"] {
            let ids = [
                LockId::catalog(),
                LockId::table(T),
                LockId::record(T, key),
                LockId::gap(T, key),
                LockId::gap_end(T),
                LockId::table(TableId::ZERO),
            ];
            assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        }
    }

    #[test]
    fn an_id_depends_on_table_and_key_alone() {
        let copy = String::from("key");
        assert_eq!(LockId::record(T, b"key"), LockId::record(T, copy.as_bytes()));
        assert_ne!(LockId::record(T, b"key"), LockId::record(TableId::new(8), b"key"));
        assert_ne!(LockId::record(T, b"key"), LockId::record(T, b"kez"));
    }

    #[test]
    fn structured_keys_do_not_collide_and_spread_over_buckets() {
        let mut ids = HashSet::with_hasher(BuildNumberHasher::default());
        let mut add = |key: &[u8]| assert!(ids.insert(LockId::record(T, key)), "{key:?}");
        for length in 0..64 {
            add(&vec![0; length]);
        }
        for length in 1..64 {
            add(&vec![255; length]);
        }
        for number in 1..50_000_u64 {
            add(&number.to_be_bytes());
            add(&[&number.to_be_bytes()[..], &[1; 20]].concat());
            add(format!("user{number:012}").as_bytes());
        }
        let mut buckets = [0_usize; 256];
        for id in &ids {
            buckets[id.bucket(8)] += 1;
        }
        let mean = ids.len() / buckets.len();
        assert!(buckets.iter().all(|&count| count > mean * 3 / 4 && count < mean * 5 / 4), "{buckets:?}");
    }

    #[test]
    fn neighbouring_tables_spread_over_buckets() {
        let used: HashSet<_> = (0..64).map(|table| LockId::table(TableId::new(table)).bucket(10)).collect();
        assert!(used.len() > 48, "{}", used.len());
        assert_eq!(LockId::table(T).bucket(0), 0);
    }
}
