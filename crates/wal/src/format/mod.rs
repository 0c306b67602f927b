//! Bytes on disk: records, and the headers of segment files.
//!
//! Everything here is a pure function of bytes; nothing reads a file.

pub(crate) mod record;
pub(crate) mod segment;
