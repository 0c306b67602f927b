//! Where the inputs of transactions come from: distributions over numbered rows, and strings.

mod chooser;
mod text;
mod zipf;

pub use chooser::Chooser;
pub(crate) use text::{fill_alphanumeric, fill_digits, fill_letters};
pub use zipf::Zipf;

use rand::SeedableRng;
use rand::rngs::StdRng;

/// A generator for the part `part` of the population of a workload: the same in every run.
pub(crate) fn population_rng(workload: u64, part: u64) -> StdRng {
    StdRng::seed_from_u64(scramble(workload ^ scramble(part)))
}

/// Mixes the bits of a number; different numbers stay different (the finalizer of SplitMix64).
pub(crate) fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
