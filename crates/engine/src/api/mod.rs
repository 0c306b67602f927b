//! The public face: the database handle, its options, its counters, points in time, and the loop that retries.

pub(crate) mod db;
pub(crate) mod metrics;
pub(crate) mod options;
pub(crate) mod run;
pub(crate) mod timestamp;
