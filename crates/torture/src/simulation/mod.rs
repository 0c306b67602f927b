//! The engine on a simulated machine under a random scheduler: every interleaving of threads at the
//! level of single operations on shared memory is possible, together with crashes and faults of the
//! disk, and every run can be repeated.
//!
//! A [`Plan`] determines a run completely: what the clients do, when the disk fails, how threads
//! are scheduled. The plan of a seed is drawn from a weighted grammar. A plan that fails is shrunk:
//! smaller ones are tried as long as they fail, too.

mod hunt;
mod plan;

pub use hunt::{Hunted, Reached, hunt};
pub use plan::{Plan, Scenario, Simulated};
