//! What tests of several crates need. No crate depends on it but for its tests.

mod future;
mod random;

pub use future::block_on;
pub use random::{Rng, announced_seed, fresh_seed};
