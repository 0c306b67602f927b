//! The parts of a data file, on which trees build: mini-transactions, free space, large values, and
//! the catalog of tables.

pub(crate) mod catalog;
pub(crate) mod free_space;
pub(crate) mod mini_transaction;
pub(crate) mod overflow;
pub(crate) mod store;
