//! The variant that a test runs with: log design, number of logs, commit mode. Each seed stands for
//! one variant, so a seed alone repeats a test, and random seeds try all variants.

use std::fmt;

use duramen::{CommitMode, InsertDesign, Options, Partition};

/// The durable commit modes.
const MODES: [CommitMode; 3] = [CommitMode::Sync, CommitMode::Elr, CommitMode::Pipelined];

/// Several logs, and their partition. By transaction means in turn: a choice by the processor that
/// a thread happens to run on would make each run different.
const LAYOUTS: [(u16, Partition); 4] =
    [(2, Partition::RoundRobin), (3, Partition::Page), (2, Partition::Page), (3, Partition::RoundRobin)];

/// A log insertion design in a commit mode, with one log or several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variant {
    /// How records enter the log buffer.
    pub log_insert: InsertDesign,
    /// How commits are acknowledged.
    pub commit: CommitMode,
    /// Number of logs.
    pub logs: u16,
    /// The partition of several logs.
    pub partition: Partition,
}

impl Variant {
    /// Returns every pair of design and mode with one log, and, where that is possible, in two ways
    /// with several.
    pub fn all() -> Vec<Self> {
        let designs = InsertDesign::ALL.into_iter();
        let pairs = designs.flat_map(|log_insert| MODES.map(|commit| (log_insert, commit)));
        let mut several = LAYOUTS.into_iter().cycle();
        let mut all = Vec::new();
        for (log_insert, commit) in pairs {
            let one = Self { log_insert, commit, logs: 1, partition: Partition::Transaction };
            all.push(one);
            if log_insert != InsertDesign::Reserved {
                let some = several.by_ref().take(2);
                all.extend(some.map(|(logs, partition)| Self { logs, partition, ..one }));
            }
            // Otherwise each design would have the same layouts in the same modes.
            if commit == CommitMode::Pipelined {
                several.next();
            }
        }
        all
    }

    /// Returns the variant that `seed` stands for.
    pub fn of(seed: u64) -> Self {
        let all = Self::all();
        all[(seed % all.len() as u64) as usize]
    }

    /// Returns the seed that stands for this variant, among the seeds that share everything else
    /// with `seed`.
    pub fn seed(self, seed: u64) -> u64 {
        let all = Self::all();
        let (count, at) = (all.len() as u64, all.iter().position(|other| *other == self).expect("it is one of all"));
        (seed / count).min(u64::MAX / count - 1) * count + at as u64
    }

    /// `options` with this variant.
    pub fn apply(self, options: Options) -> Options {
        let Self { log_insert, commit, logs, partition } = self;
        Options { log_insert, commit, logs, log_partition: partition, ..options }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.log_insert, self.commit)?;
        if self.logs > 1 { write!(f, ", {} logs by {}", self.logs, self.partition) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_seeds() {
        for base in [0, 1, 17, 12_345, u64::MAX] {
            for variant in Variant::all() {
                assert_eq!(Variant::of(variant.seed(base)), variant);
            }
        }
        assert_eq!(Variant::of(12_345).seed(12_345), 12_345);
    }

    #[test]
    fn every_layout_is_among_them_with_every_design() {
        let all = Variant::all();
        for log_insert in InsertDesign::ALL.into_iter().filter(|design| *design != InsertDesign::Reserved) {
            for (logs, partition) in LAYOUTS {
                let is_this = |variant: &&Variant| {
                    (variant.log_insert, variant.logs, variant.partition) == (log_insert, logs, partition)
                };
                assert!(all.iter().any(|variant| is_this(&variant)), "{log_insert}, {logs} logs by {partition}");
            }
        }
    }
}
