//! Experiments on a simulated machine, which only the machine build (`--cfg duramen_machine`) can
//! run.

pub(super) mod a10_slots;
pub(super) mod a11_components;
pub(super) mod a12_sockets;
pub(super) mod a13_synchronization;
pub(super) mod a14_migration;
pub(super) mod a15_distributed;
pub(super) mod a1_elr_skew;
pub(super) mod a5_log_contention;
pub(super) mod a6_threads;
pub(super) mod a7_record_size;
pub(super) mod a9_skew;
#[cfg(duramen_machine)]
mod bed;
mod buffer;
mod curves;
#[cfg_attr(not(duramen_machine), allow(dead_code, reason = "read by the machine build"))]
mod engine;
mod machines;
pub(super) mod n_distributed;
pub(super) mod s1_snapshots;
#[cfg_attr(not(duramen_machine), allow(dead_code, reason = "read by the machine build"))]
mod setup;
