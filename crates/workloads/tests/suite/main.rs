//! The suites of the workloads in one program, which is compiled and linked once.

#[path = "../common/mod.rs"]
mod common;

mod regions;
mod runner;
mod store;
mod tatp;
mod tpcb;
mod tpcc;
mod ycsb;
