//! Identifiers, limits and checksums shared by every Duramen crate.
//!
//! Every identifier is a newtype with a private field, so that a log offset cannot be passed where
//! a page number is meant. All of them are plain `u64`/`u32` on disk, little-endian.

mod checksum;
mod checksum_words;
mod ids;
pub mod planted;
pub mod telemetry;
pub mod undo_record;

pub use checksum::{Crc32c, crc32c, crc32c_append, crc32c_of};
pub use checksum_words::{Block, crc32c_words, crc32c_words_of_three};
pub use ids::{Gsn, LogAddress, LogId, Lsn, PageId, TableId, TxnId};

/// Size of a database page in bytes. It is recorded in the control file; a file with another size
/// is refused.
pub const PAGE_SIZE: usize = 8192;

/// Unit of every direct read and write in bytes: file offsets, lengths and buffers are multiples of
/// it.
pub const BLOCK_SIZE: usize = 4096;

/// Unit that the device is assumed to write whole or not at all, in bytes.
pub const SECTOR_SIZE: usize = 512;

/// Longest key in bytes.
pub const MAX_KEY_LEN: usize = 1024;

/// Longest value in bytes (1 GiB).
pub const MAX_VALUE_LEN: usize = 1 << 30;

/// Longest table name in bytes.
pub const MAX_TABLE_NAME_LEN: usize = 255;
