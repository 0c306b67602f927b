//! Which design of the log and which commit mode a test runs with. Each seed stands for one pair, so that a seed alone
//! repeats a test, and seeds drawn at random try all pairs.

use std::fmt;

use duramen::{CommitMode, InsertDesign, Options};

/// The durable commit modes.
const MODES: [CommitMode; 3] = [CommitMode::Sync, CommitMode::Elr, CommitMode::Pipelined];

/// A log insertion design in a commit mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variant {
    /// How records enter the log buffer.
    pub log_insert: InsertDesign,
    /// How commits are acknowledged.
    pub commit: CommitMode,
}

impl Variant {
    /// Every pair.
    pub fn all() -> Vec<Self> {
        let designs = InsertDesign::ALL.into_iter();
        designs.flat_map(|log_insert| MODES.map(|commit| Self { log_insert, commit })).collect()
    }

    /// The pair that `seed` stands for.
    pub fn of(seed: u64) -> Self {
        let all = Self::all();
        all[(seed % all.len() as u64) as usize]
    }

    /// The seed that stands for this pair, among the seeds that share everything else with `seed`.
    pub fn seed(self, seed: u64) -> u64 {
        let all = Self::all();
        let (count, at) = (all.len() as u64, all.iter().position(|other| *other == self).expect("it is one of all"));
        (seed / count).min(u64::MAX / count - 1) * count + at as u64
    }

    /// `options` with this pair.
    pub fn apply(self, options: Options) -> Options {
        Options { log_insert: self.log_insert, commit: self.commit, ..options }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.log_insert, self.commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_has_seeds() {
        for base in [0, 1, 17, 12_345, u64::MAX] {
            for variant in Variant::all() {
                assert_eq!(Variant::of(variant.seed(base)), variant);
            }
        }
        assert_eq!(Variant::of(12_345).seed(12_345), 12_345);
    }
}
