//! P1, P5 and P7: the schemes of *Storage Management in the NVRAM Era* beside each other, by the
//! length of a persist barrier.
//!
//! The same experiments run natively and on the simulated processor of the paper ([`World`]). A
//! [`ground::Ground`] is where they run, and a [`ground::Site`] a workload's databases there, one
//! for each scheme.

mod barriers;
mod break_even;
mod ground;
mod measure;
mod native;
mod recovery;
mod simulated;
#[cfg(duramen_machine)]
mod simulated_bed;
mod verdicts;
mod world;

pub(super) use barriers::Barriers;
pub(super) use break_even::BreakEven;
pub(super) use recovery::Recovery;
pub(super) use world::World;
