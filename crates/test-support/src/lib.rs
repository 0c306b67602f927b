//! What tests of several crates need. No crate depends on it but for its tests.

mod future;
mod random;
mod sampling;

pub use future::block_on;
pub use random::{Rng, announced_seed, fresh_seed};
pub use sampling::{Stride, is_long, search_time};
