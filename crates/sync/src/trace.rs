//! Lines in the trace of a simulated run. In every other build the calls are empty.

#[cfg(duramen_machine)]
pub use duramen_machine::trace::note;

/// Records what the calling thread does, if it runs on a simulated machine that is traced. `what`
/// may only read plain data of the caller.
#[cfg(not(duramen_machine))]
#[inline(always)]
pub fn note(_what: impl FnOnce() -> String) {}
