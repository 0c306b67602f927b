//! Other storage engines as [`duramen_workloads::Store`]s, so that the same workload code drives
//! them and Duramen.
//!
//! Each engine is one file of [`engines`], which says what it does for a durable commit and for a
//! relaxed one, how it keeps writers apart, and how isolated its transactions are. Every adapter
//! passes the conformance suite of the workloads (`tests/conformance.rs`).

pub mod engines;
