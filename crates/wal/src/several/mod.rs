//! The log, which consists of one stream or of several streams that act as one. This folder tracks
//! which records are durable across the streams, opens them, and merges them.

pub(crate) mod archiving;
pub(crate) mod bulk_load;
pub(crate) mod commit_rounds;
pub(crate) mod durable_gsn;
pub(crate) mod full_log;
pub(crate) mod hardened;
pub(crate) mod hold;
pub(crate) mod log;
pub(crate) mod log_pieces;
pub(crate) mod log_placement;
pub(crate) mod log_set;
pub(crate) mod merge;
pub(crate) mod open;
pub(crate) mod read_back;
pub(crate) mod reservation;
