//! The public face: the database handle, and the loops that run a transaction until it commits.

pub(crate) mod answerer;
pub(crate) mod bulk_load;
pub(crate) mod compact;
pub(crate) mod db;
mod metrics;
pub(crate) mod run;
pub(crate) mod run_async;
mod table_list;
pub(crate) mod tables;
