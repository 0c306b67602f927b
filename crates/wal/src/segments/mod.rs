//! Segment files: make them, read them in order, find the end of a log after a crash, recycle and
//! archive them.

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
