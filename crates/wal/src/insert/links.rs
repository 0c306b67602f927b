//! A buffer of links: many threads record in it which parts of the log have been filled in, and one
//! thread at a time reads it in order. (The idea is that of MySQL 8's *recent written* buffer.)
//!
//! Each place of the buffer stands for fewer bytes than the smallest record has, so two records
//! that are in the log buffer together never start at the same place. A thread that has filled in
//! `[from, to)` stores `to` at the place of `from`. A reader at position `from` that finds a
//! position beyond `from` there moves on to it.
//!
//! Places are not cleared. An earlier round through the buffer has left at a place a position below
//! `from`: the record that left it started a whole buffer earlier, give or take a place, and had at
//! most a quarter of a buffer's bytes. A place is used again only when the record that used it is
//! durable, and the reader has passed it long before.

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_types::Lsn;

#[derive(Debug)]
pub(super) struct Links {
    places: Box<[AtomicU64]>,
    /// Binary logarithm of the bytes that a place stands for.
    shift: u32,
}

impl Links {
    /// Serves a buffer of `capacity` bytes, a power of two, with records of at least `smallest`.
    pub(super) fn new(capacity: u64, smallest: u64) -> Self {
        let shift = smallest.ilog2();
        Self { places: (0..capacity >> shift).map(|_| AtomicU64::new(0)).collect(), shift }
    }

    #[inline]
    fn place(&self, from: Lsn) -> &AtomicU64 {
        &self.places[(from.get() >> self.shift) as usize & (self.places.len() - 1)]
    }

    /// Records that `[from, to)` is filled in.
    #[inline]
    pub(super) fn add(&self, from: Lsn, to: Lsn) {
        // Release: publishes the bytes filled in.
        self.place(from).store(to.get(), Ordering::Release);
    }

    /// Returns where the part that starts at `from` ends, if it has been filled in.
    #[inline]
    pub(super) fn follow(&self, from: Lsn) -> Option<Lsn> {
        let to = self.place(from).load(Ordering::Acquire);
        (to > from.get()).then_some(Lsn::new(to))
    }
}
