//! Isolation: transactions must look as if they had run one after another.

pub mod anomalies;
pub mod graph;
pub mod history;
pub mod interleave;
pub mod lists;
pub mod program;
pub mod serial;

#[cfg(test)]
mod history_tests;
