//! Bytes on disk: records, and the headers of segment files.
//!
//! Everything here is a pure function of bytes; no function reads a file.

pub(crate) mod header;
pub(crate) mod identity;
pub(crate) mod record;
pub(crate) mod segment;
