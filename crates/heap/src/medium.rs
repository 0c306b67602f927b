//! The memory of a heap: a region, and which of its operations the persistence domain needs.

use duramen_pmem::{Domain, Region};
use duramen_sync::Striped;
use duramen_sync::atomic::{AtomicU64, Ordering};

/// What a barrier waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Barrier {
    /// Undo records.
    Log,
    /// Lines in their places.
    Home,
    /// The end of an update.
    End,
}

/// A region with counted barriers.
#[derive(Debug)]
pub(crate) struct Medium {
    region: Region,
    flushes: bool,
    barriers: Striped<[AtomicU64; 3], 16>,
}

impl Medium {
    pub(crate) fn new(region: Region) -> Self {
        let flushes = region.domain() == Domain::VolatileCache;
        Self { region, flushes, barriers: Striped::default() }
    }

    pub(crate) fn location(&self) -> &str {
        self.region.location()
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Stores through the caches.
    #[inline]
    pub(crate) fn store(&self, at: u64, bytes: &[u8]) {
        self.region.store(at, &[bytes]);
    }

    /// Stores a word through the caches.
    #[inline]
    pub(crate) fn store_word(&self, at: u64, word: u64) {
        self.region.store(at, &[&word.to_le_bytes()]);
    }

    /// Stores what is not read again soon: past the caches, where they are volatile.
    #[inline]
    pub(crate) fn stream(&self, at: u64, parts: &[&[u8]]) {
        if self.flushes { self.region.stream(at, parts) } else { self.region.store(at, parts) }
    }

    /// Sends what was stored through the caches to the memory, where caches are volatile.
    #[inline]
    pub(crate) fn flush(&self, at: u64, len: usize) {
        if self.flushes {
            self.region.flush(at, len);
        }
    }

    /// Returns whether caches are volatile, so that what is stored through them must be flushed.
    pub(crate) fn flushes(&self) -> bool {
        self.flushes
    }

    /// Waits until what the calling thread has streamed, or stored and flushed, is durable.
    #[inline]
    pub(crate) fn barrier(&self, what: Barrier) {
        self.region.fence();
        self.barriers.own().1[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Stores a word durably.
    pub(crate) fn persist_word(&self, at: u64, word: u64, what: Barrier) {
        self.store_word(at, word);
        self.flush(at, 8);
        self.barrier(what);
    }

    #[inline]
    pub(crate) fn read(&self, at: u64, to: &mut [u8]) {
        self.region.read(at, to);
    }

    pub(crate) fn read_word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.region.read(at, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Returns the number of barriers of each kind.
    pub(crate) fn barriers(&self) -> [u64; 3] {
        let sum = |kind: usize| self.barriers.iter().map(|counts| counts[kind].load(Ordering::Relaxed)).sum();
        std::array::from_fn(sum)
    }
}
