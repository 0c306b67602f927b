//! Segment files: make them, read them in order, find the end of a log after a crash, recycle and
//! archive them.
//!
//! `pool` makes, reserves and recycles segments; `files` are the open ones. `scan` reads in order
//! and, in `scan/back`, backwards along a transaction's records; `read_ahead` reads the next part
//! meanwhile. `recover` finds the end of the log and erases what is behind it. `reader` reads a
//! closed log without changing it. `retention` states what must not be recycled yet. `archive`
//! copies whole segments. `log_pieces` assembles a log from backup, archive and log. `sync_records`
//! keeps the sync records that were read, and determines which of them is met. `write_sizes` tells
//! how large the log's writes are.

pub(crate) mod archive;
pub(crate) mod files;
pub(crate) mod log_pieces;
pub(crate) mod pool;
pub(crate) mod read_ahead;
pub(crate) mod reader;
pub(crate) mod recover;
pub(crate) mod retention;
pub(crate) mod scan;
pub(crate) mod sync_records;
pub(crate) mod write_sizes;
