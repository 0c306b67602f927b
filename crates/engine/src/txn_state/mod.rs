//! What the database keeps of each transaction: its records and its undo buffer ([`log`]), its
//! entry in the transaction table ([`table`]), and the working memory that it hands on to the next
//! one ([`context_pool`]). [`undo`] takes changes back and [`deferred_free`] gives pages back after
//! the commit; both are for transactions under way and for those that recovery finds.

pub(crate) mod context_pool;
pub(crate) mod deferred_free;
pub(crate) mod log;
pub(crate) mod table;
pub(crate) mod undo;
