//! Coverage probes: counters of rarely taken branches, which show whether runs reach them at all.

use crate::run::{is_simulated, world};

/// Records that the calling thread takes the rare branch `number`, which is called `name`.
pub fn reach(number: usize, name: &str) {
    if is_simulated() {
        world(|world| world.reach(number, name));
    }
}
