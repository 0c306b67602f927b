//! Mixes numbers cheaply, and identically in every run.

use std::hash::{BuildHasherDefault, Hasher};

/// Odd constants without structure: the fractional parts of the square roots of 2, 3 and 5, and of
/// the golden ratio.
pub(crate) const MIX: [u64; 4] =
    [0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0x9e37_79b9_7f4a_7c15];

/// Folds the high and the low half of the 128-bit product: every bit of the inputs affects every
/// bit of the result.
#[inline]
pub(crate) const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Hashes numbers (lock ids, transaction ids, page ids) for a map.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

/// Builds [`NumberHasher`]s.
pub(crate) type BuildNumberHasher = BuildHasherDefault<NumberHasher>;

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = fold(self.0 ^ number ^ MIX[2], MIX[3]);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
