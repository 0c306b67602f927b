//! P1, P3m and P5 to P8: the schemes of *Storage Management in the NVRAM Era* beside each other, by
//! the length of a persist barrier, and group commit by the length of its batches.
//!
//! The same experiments run natively and on the simulated processor of the paper ([`World`]). A
//! [`ground::Ground`] is where they run, and a [`ground::Site`] a workload's databases there, one
//! for each scheme.

mod barriers;
mod break_even;
mod by_barrier;
mod crossing;
mod ground;
mod measure;
mod much_data;
mod native;
mod period;
mod reads;
mod recovery;
mod simulated;
#[cfg(duramen_machine)]
mod simulated_bed;
mod verdicts;
mod world;

pub(super) use barriers::Barriers;
pub(super) use break_even::BreakEven;
pub(super) use crossing::Crossing;
pub(super) use much_data::MuchData;
pub(super) use period::Period;
pub(super) use reads::Reads;
pub(super) use recovery::Recovery;
pub(super) use world::World;
