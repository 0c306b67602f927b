//! The random numbers of tests: a generator whose sequence never changes, so that a printed seed
//! stays valid.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use duramen_sync::SplitMix64;

/// [`SplitMix64`] with what tests draw.
#[derive(Clone, Debug)]
pub struct Rng(SplitMix64);

impl Rng {
    /// A generator whose sequence depends on `seed` alone.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// A number in `range`, which must not be empty.
    pub fn within(&mut self, range: Range<usize>) -> usize {
        assert!(!range.is_empty(), "an empty range has no number");
        range.start + self.below((range.end - range.start) as u64) as usize
    }

    /// Whether an event of `percent` per cent happens.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.within(0..100) < percent
    }

    /// One of `items`, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.within(0..items.len())]
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.within(0..i + 1));
        }
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.bits().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    /// A generator of its own for a part of the work.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self::new(self.bits())
    }
}

/// A seed that differs from run to run.
pub fn fresh_seed() -> u64 {
    // Short, because people copy it into commands.
    RandomState::new().hash_one(std::process::id()) % 1_000_000_000
}

/// The seed given in the environment variable `DURAMEN_SEED`, else a fresh one; says on standard
/// error which.
pub fn announced_seed(suite: &str) -> u64 {
    let given = std::env::var("DURAMEN_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(fresh_seed);
    eprintln!("{suite}: seed {seed} (DURAMEN_SEED={seed} repeats it)");
    seed
}
