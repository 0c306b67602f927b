//! The public face: the database handle, and the loop that runs a transaction until it commits.

pub(crate) mod db;
mod metrics;
pub(crate) mod run;
