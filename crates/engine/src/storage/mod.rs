//! What trees are made of and what else a data file has: changes of pages that are logged as one,
//! free space, large values, and the catalog of tables.

pub(crate) mod catalog;
pub(crate) mod free_space;
pub(crate) mod mini_transaction;
pub(crate) mod overflow;
pub(crate) mod store;
