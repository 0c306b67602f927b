//! The inputs of transactions: distributions over numbered rows, and strings.

mod chooser;
mod text;
mod zipf;

pub use chooser::Chooser;
pub(crate) use text::{fill_alphanumeric, fill_digits, fill_letters};
pub use zipf::Zipf;

use duramen_sync::SplitMix64;
use rand::SeedableRng;
use rand::rngs::StdRng;

/// Returns a generator for the part `part` of the population of a workload: the same in every run.
pub(crate) fn population_rng(workload: u64, part: u64) -> StdRng {
    StdRng::seed_from_u64(scramble(workload ^ scramble(part)))
}

/// Mixes the bits of a number; different numbers stay different (a step of SplitMix64).
pub(crate) fn scramble(number: u64) -> u64 {
    SplitMix64::new(number).bits()
}
