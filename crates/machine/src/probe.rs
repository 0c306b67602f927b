//! Coverage probes: counters of rarely taken branches, which show whether runs reach them at all.

use crate::run::{is_simulated, world};

/// The calling thread takes the rare branch `number`, which is called `name`.
pub fn reach(number: usize, name: &str) {
    if is_simulated() {
        world(|world| world.reach(number, name));
    }
}
