//! Lines that a simulated thread adds to the trace of its run.

use crate::run::{is_simulated, on_host, world};

/// Records what the calling thread does, if the run is traced. `what` may only read plain data of
/// the caller's own: no operation on shared memory, nothing that waits.
#[inline]
pub fn note(what: impl FnOnce() -> String) {
    if is_simulated() && world(|world| world.trace.is_some()) {
        on_host(|| {
            let what = what();
            world(|world| world.note(&what));
        });
    }
}
