//! A buffer of links: which parts of the log have been filled in, noted by many threads and read in
//! order by one at a time. (The idea is that of MySQL 8's *recent written* buffer.)
//!
//! There is a place for each possible start of a record in the log buffer, in the sense that two
//! records that are in the buffer together never start at the same place: a place stands for fewer
//! bytes than the smallest record has. Who has filled `[from, to)` in stores `to` at the place of
//! `from`. A reader that stands at `from` and finds a position beyond `from` there goes on to it.
//!
//! Places are not cleared. What an earlier round through the buffer has left at a place is a
//! position below `from`: the record that left it started a whole buffer before, give or take a
//! place, and had at most a quarter of a buffer's bytes. A place is used again only when the record
//! that used it is durable, and the reader has passed it long before.

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_types::Lsn;

/// The links of a log buffer.
#[derive(Debug)]
pub(super) struct Links {
    places: Box<[AtomicU64]>,
    /// Bytes that a place stands for, as a power of two.
    shift: u32,
}

impl Links {
    /// For a buffer of `capacity` bytes, a power of two, and records of at least `smallest`.
    pub(super) fn new(capacity: u64, smallest: u64) -> Self {
        let shift = smallest.ilog2();
        Self { places: (0..capacity >> shift).map(|_| AtomicU64::new(0)).collect(), shift }
    }

    #[inline]
    fn place(&self, from: Lsn) -> &AtomicU64 {
        &self.places[(from.get() >> self.shift) as usize & (self.places.len() - 1)]
    }

    /// Notes that `[from, to)` is filled in.
    #[inline]
    pub(super) fn add(&self, from: Lsn, to: Lsn) {
        // Release: so is what was filled in.
        self.place(from).store(to.get(), Ordering::Release);
    }

    /// Where the part that starts at `from` ends, if it has been filled in.
    #[inline]
    pub(super) fn follow(&self, from: Lsn) -> Option<Lsn> {
        let to = self.place(from).load(Ordering::Acquire);
        (to > from.get()).then_some(Lsn::new(to))
    }
}
