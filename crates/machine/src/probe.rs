//! Coverage probes: counters of branches that are rarely taken, so that one can see whether runs
//! come there at all.

use crate::run::{is_simulated, world};

/// The calling thread takes the rare branch `number`, which is called `name`.
pub fn reach(number: usize, name: &str) {
    if is_simulated() {
        world(|world| world.reach(number, name));
    }
}
