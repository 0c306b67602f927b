//! Experiments on a simulated machine, which only the machine build (`--cfg machine`) can run.

pub(super) mod a10_slots;
pub(super) mod a6_threads;
pub(super) mod a7_record_size;
pub(super) mod a9_skew;
mod buffer;
