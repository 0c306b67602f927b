//! Pseudo-random numbers that are the same everywhere for the same seed.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
/// Its sequence never changes, so that the seed of a simulated crash stays valid.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Makes a generator whose sequence depends on `seed` alone.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        Self::mix(self.0)
    }

    /// Returns a number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Mixes the bits of a number; different numbers stay different.
    pub fn mix(number: u64) -> u64 {
        let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;

    /// Seeds are recorded in documents and in reports of failures.
    #[test]
    fn the_sequence_of_a_seed_is_the_published_one() {
        let mut numbers = SplitMix64::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([numbers.bits(), numbers.bits(), numbers.bits()], expected);
        assert!((0..1000).all(|_| numbers.below(3) < 3));
    }
}
