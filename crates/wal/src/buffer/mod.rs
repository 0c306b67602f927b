//! Memory of the log's tail: the ring of bytes, the positions in it, and what orders several logs.
//!
//! A thread that inserts takes the insertion lock, gets positions, fills the ring, and releases
//! what it has filled; a flush reads what is released. No file here uses the disk.

pub(crate) mod clock;
pub(crate) mod epochs;
pub(crate) mod insertion_lock;
pub(crate) mod positions;
pub(crate) mod released;
pub(crate) mod ring;
