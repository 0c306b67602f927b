//! What the memory system has done.

use crate::Time;

/// Counts since the start of a run; a bulk touch counts once for each line.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Loads and stores that found their line in the first level.
    pub first_level_hits: u64,
    /// In the core's second level.
    pub second_level_hits: u64,
    /// In the shared cache, and in no other core's private cache alone.
    pub shared_hits: u64,
    /// Lines that came from another core's private cache, or were taken from one, behind the same
    /// shared cache.
    pub transfers_between_cores: u64,
    /// Lines that came or were taken from another shared cache of the socket.
    pub transfers_between_clusters: u64,
    /// Lines that came or were taken from another socket.
    pub transfers_between_sockets: u64,
    /// Copies in private caches that writes by others have ended.
    pub invalidations: u64,
    /// Atomic read-modify-write operations.
    pub atomics: u64,
    /// Bytes read from each node's memory.
    pub memory_read: Vec<u64>,
    /// Bytes written to each node's memory.
    pub memory_written: Vec<u64>,
    /// Bytes written to each node's memory by non-temporal stores; they count as written too.
    pub streamed: Vec<u64>,
    /// Time spent waiting for a line that others were using.
    pub line_waits: Time,
    /// Time spent waiting for a way or a memory controller that others were using.
    pub bandwidth_waits: Time,
    /// Time that contexts waited because their store or write-combining buffers were full.
    pub full_buffer_waits: Time,
    /// Time that fences and atomic operations waited for the buffers to drain.
    pub drain_waits: Time,
}

impl Counters {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            memory_read: vec![0; nodes],
            memory_written: vec![0; nodes],
            streamed: vec![0; nodes],
            ..Self::default()
        }
    }
}
