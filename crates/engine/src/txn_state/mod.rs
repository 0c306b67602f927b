//! The state that the database keeps of each transaction: its records and its undo buffer
//! ([`log`]), its entry in the transaction table ([`table`]), and the working memory that it passes
//! on to the next transaction ([`context_pool`]). [`undo`] takes changes back and [`deferred_free`]
//! frees pages after the commit; both serve running transactions and those that recovery finds.

pub(crate) mod context_pool;
pub(crate) mod deferred_free;
pub(crate) mod log;
pub(crate) mod purging;
pub(crate) mod table;
pub(crate) mod undo;
