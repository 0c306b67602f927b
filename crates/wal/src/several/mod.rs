//! The log: one stream, or several that act as one, with what is durable across them.

pub(crate) mod archiving;
pub(crate) mod commit_rounds;
pub(crate) mod durable_gsn;
pub(crate) mod full_log;
pub(crate) mod hardened;
pub(crate) mod hold;
pub(crate) mod log;
pub(crate) mod log_pieces;
pub(crate) mod log_placement;
pub(crate) mod log_set;
pub(crate) mod open;
pub(crate) mod read_back;
pub(crate) mod reservation;
