//! How far the log buffer is released: a position that moves over spaces in LSN order.
//!
//! With [`Released::release`], an owner whose space is due moves the position over it, with a load
//! and a store. An owner that comes early spins briefly, as in algorithm 3 of Aether. But there may
//! be more threads than processors, and the predecessor may have lost its processor or have a long
//! record to fill in: waiting for it would hold up the latches and locks of the waiting thread. So
//! the owner leaves an early-release entry, and another thread releases the space when it is due.
//!
//! Entries cost more than releases in turn, and while a predecessor has no processor, all threads
//! behind it leave entries. So where entry follows upon entry, one in each
//! [`Released::HINT_BYTES`] of log yields the owner's processor. With more threads than processors
//! this matters: 16 threads that do nothing but insert, on two processors, insert two to three
//! times as many records.
//!
//! # Early-release entries
//! The entries are in a table, in a bucket that the LSN determines. The table has no order and no
//! lock: a thread finds an entry because the position has reached the start of the entry's space.
//!
//! - *leave*: occupy a free cell of the bucket, write the end of the space, then its start.
//! - *take*, by a thread that has seen the position at the start of the entry's space: exchange the
//!   start for nothing. An LSN never recurs, so only one thread succeeds, and until then the cell
//!   has stated the end of the space.
//! - *follow*: take the entry of the space at the position, move the position over that space, and
//!   repeat. The thread that has taken the entry acts for the owner, which has returned: no other
//!   thread moves the position meanwhile.
//!
//! Three kinds of threads follow entries: those that leave one, those that have released in turn
//! and have seen the hint that there are entries, and those that need the position, above all a
//! flush. A thread that has left an entry reads the position once more, and a thread that has moved
//! the position searches for an entry there. With a fence in between, one of the two would always
//! find what the other has done; but a fence would double the price of a release in turn. So the
//! two may pass each other, and then the entry waits for the next thread that follows entries.
//!
//! Without entries (for measurements) every owner waits until its space is due, as in the paper.
//!
//! When all cells of its bucket are occupied, an owner waits until its space is due or a cell is
//! free, and follows entries meanwhile. It waits for a thread that needs nothing but a processor.
//! In a failed log no thread waits, and entries without a cell are lost: nothing becomes stable.

use duramen_sync::atomic::{AtomicU64, Ordering, fence};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Backoff, CachePadded, thread};
use duramen_types::{Lsn, planted};

/// The largest number of entries that a thread follows besides its own work.
const FOLLOWED: usize = if cfg!(duramen_loom) { 1 } else { 16 };

/// Entries of a bucket.
const CELLS: usize = if cfg!(duramen_loom) { 1 } else { 4 };

/// No entry; the entry of a space that starts at LSN `x` has `x + 1`.
const FREE: u64 = 0;

/// An entry is being written.
const OCCUPIED: u64 = u64::MAX;

/// The position, and the entries of spaces that it has not reached.
#[derive(Debug)]
pub(crate) struct Released {
    position: CachePadded<Position>,
    /// A power of two of them; none where every thread waits until its space is due.
    buckets: Box<[Bucket]>,
}

#[derive(Debug)]
struct Position {
    lsn: AtomicU64,
    /// Below this LSN there may be entries. A hint: too low if two threads left entries at once.
    noted: AtomicU64,
}

/// As many entries as a cache line holds.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([Entry; CELLS]);

#[derive(Debug, Default)]
struct Entry {
    start: AtomicU64,
    end: AtomicU64,
}

impl Released {
    /// Log bytes for each bucket.
    const BYTES_PER_BUCKET: u64 = 16 << 10;
    /// An entry moves the hint to the end of this number of bytes, so that few entries move it, and
    /// few yield.
    const HINT_BYTES: u64 = if cfg!(duramen_loom) { 1 } else { 16 << 10 };

    /// Starts at `lsn`, below which everything is released, for a buffer of `capacity` bytes.
    pub(crate) fn new(lsn: Lsn, capacity: u64) -> Self {
        let most = if cfg!(duramen_loom) { 1 } else { 1024 };
        let buckets = (capacity / Self::BYTES_PER_BUCKET).next_power_of_two().clamp(most.min(16), most);
        Self {
            position: CachePadded::new(Position { lsn: AtomicU64::new(lsn.get()), noted: AtomicU64::new(0) }),
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
        }
    }

    /// Does the same without entries: a thread that comes early waits.
    pub(crate) fn without_early_entries(lsn: Lsn) -> Self {
        Self { buckets: Box::default(), ..Self::new(lsn, 0) }
    }

    /// Returns the position below which everything is released.
    #[inline]
    pub(crate) fn get(&self) -> Lsn {
        Lsn::new(self.position.lsn.load(Ordering::Acquire))
    }

    /// Moves the position; the caller has seen it at its space, or its design ensures the order.
    #[inline]
    pub(crate) fn release_due(&self, to: Lsn) {
        self.position.lsn.store(to.get(), Ordering::Release);
    }

    /// Releases the space from `lsn` to `end`, which has been filled in, as soon as everything
    /// before it is released: that may be after the return, or never, once the log `has_failed`.
    #[inline]
    pub(crate) fn release(&self, lsn: Lsn, end: Lsn, has_failed: impl Fn() -> bool) {
        if self.get() == lsn || planted!(ReleaseOutOfOrder) {
            self.release_in_turn(end);
        } else {
            self.release_early(lsn, end, has_failed);
        }
    }

    /// Releases the caller's space, which ends at `end` and at whose start the position is.
    #[inline]
    fn release_in_turn(&self, end: Lsn) {
        self.release_due(end);
        if end.get() < self.position.noted.load(Ordering::Relaxed) {
            self.follow(FOLLOWED);
        }
    }

    #[cold]
    fn release_early(&self, lsn: Lsn, end: Lsn, has_failed: impl Fn() -> bool) {
        if self.is_turn_soon(lsn) {
            self.release_in_turn(end);
        } else if self.buckets.is_empty() {
            while self.get() != lsn {
                // A fresh backoff never yields, so this is the wait of the paper.
                Backoff::new().snooze();
            }
            self.release_due(end);
        } else {
            self.leave_entry(lsn, end, has_failed);
            self.follow(FOLLOWED);
        }
    }

    /// Spins for about as long as running predecessors need. Does not spin when there are entries
    /// before the space: another thread has already spun in vain.
    fn is_turn_soon(&self, lsn: Lsn) -> bool {
        let mut backoff = Backoff::new();
        while self.position.noted.load(Ordering::Relaxed) <= lsn.get() && backoff.is_spinning() {
            backoff.snooze();
            if self.get() == lsn {
                return true;
            }
        }
        false
    }

    /// Leaves an entry for the space, or releases it if it becomes due before there is a cell.
    fn leave_entry(&self, lsn: Lsn, end: Lsn, has_failed: impl Fn() -> bool) {
        reach(Probe::EarlyReleaseEntered);
        let mut backoff = Backoff::new();
        while !self.bucket(lsn).put(lsn, end) {
            if self.get() == lsn {
                self.release_due(end);
                // As in `follow`.
                fence(Ordering::SeqCst);
                return;
            }
            if has_failed() {
                return;
            }
            self.follow(FOLLOWED);
            backoff.rest();
        }
        let noted = self.position.noted.load(Ordering::Relaxed);
        if noted < end.get() {
            self.position.noted.store(end.get() | (Self::HINT_BYTES - 1), Ordering::Relaxed);
            if noted > lsn.get() && !cfg!(duramen_loom) {
                // There are many entries already: perhaps their predecessor waits for a processor.
                thread::yield_now();
            }
        }
        // Pairs with the fence in `follow`: of two threads that leave entries one behind the other,
        // one finds what the other has done.
        fence(Ordering::SeqCst);
    }

    /// Moves the position over the spaces with entries that have become due.
    pub(crate) fn follow_all(&self) {
        // Bounded, so that it ends while other threads leave new entries.
        self.follow(self.buckets.len() * CELLS);
    }

    /// Does the same for at most `most` spaces: for none where there are no entries.
    fn follow(&self, most: usize) {
        for _ in 0..most {
            let lsn = self.get();
            // The position has published what is before the entry to threads that see the position
            // there; the entry's cell publishes its own space.
            let Some(end) = self.bucket(lsn).take(lsn) else { return };
            reach(Probe::NoteFollowed);
            self.release_due(end);
            // Pairs with the fence in `leave_entry`.
            fence(Ordering::SeqCst);
        }
    }

    fn bucket(&self, lsn: Lsn) -> &Bucket {
        // Multiplicative hashing (Knuth, volume 3, section 6.4): records have few different sizes.
        let hash = lsn.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }
}

impl Bucket {
    /// Writes an entry for the space; returns whether there was a cell for it.
    fn put(&self, lsn: Lsn, end: Lsn) -> bool {
        let occupy = |entry: &&Entry| {
            planted!(EntryOverwritten)
                || entry.start.load(Ordering::Relaxed) == FREE
                // Acquire: the thread that took the cell's last entry has read it.
                && entry.start.compare_exchange(FREE, OCCUPIED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let Some(entry) = self.0.iter().find(occupy) else { return false };
        entry.end.store(end.get(), Ordering::Relaxed);
        // Release: the space is filled in, and the entry written.
        entry.start.store(lsn.get() + 1, Ordering::Release);
        true
    }

    /// Takes the entry of the space at `lsn`; returns where the space ends.
    fn take(&self, lsn: Lsn) -> Option<Lsn> {
        let start = lsn.get() + 1;
        // Acquire: sees the entry's content, and the space filled in.
        let entry = self.0.iter().find(|entry| entry.start.load(Ordering::Acquire) == start)?;
        let end = entry.end.load(Ordering::Relaxed);
        // Release: the entry has been read.
        let taken = entry.start.compare_exchange(start, FREE, Ordering::Release, Ordering::Relaxed);
        taken.is_ok().then_some(Lsn::new(end))
    }
}

#[cfg(test)]
#[path = "released_tests.rs"]
mod tests;
