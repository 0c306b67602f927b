//! How far the log buffer is released: a position that moves over spaces in the order of their
//! LSNs, as they are filled in.
//!
//! With [`Released::release`], an owner whose turn it is moves the position over its space, with a
//! load and a store. One who is early spins for a moment, as in algorithm 3 of Aether. But there
//! may be more threads than processors, and the one before may have lost its processor in the
//! middle, or have a long record to fill in: to wait for it would hold up the page latches and
//! locks that the waiter has. So it leaves a note of its space instead, for whoever comes to it.
//!
//! # Notes
//! They lie in a table, in a bucket that the LSN gives. There is no order in it and no lock on it:
//! a note is found by the position having come to where its space starts.
//!
//! - *leave*: occupy a free cell of the bucket, write where the space ends, then where it starts.
//! - *take*, by who has seen the position where a noted space starts: exchange the start for
//!   nothing. An LSN never comes again, so that succeeds for one thread only, and the cell has said
//!   all the time where the space ends.
//! - *follow*: take the note of the space at the position, move the position over that space, and
//!   again. Who has taken the note stands for the owner, which has gone: nobody else moves the
//!   position meanwhile.
//!
//! Notes are followed by those who leave one, by those who have released in turn and know of notes,
//! and by those who want to know the position, a flush above all. Who has left a note looks at the
//! position once more, and who has moved the position looks for a note there. With a fence in
//! between one of them would always find what the other has done; but for those who release in turn
//! a fence would double the price. So the two may pass each other, and then the note waits for the
//! next who follows.
//!
//! Measurements can do without notes, to show what they are worth: then every owner waits for its
//! turn, as the paper's do.
//!
//! When all cells of its bucket are occupied, an owner waits, either for its turn or for a cell,
//! and follows notes meanwhile. The one that it waits for needs nothing but a processor. When the
//! log has failed nobody waits, and notes for which there is no cell are lost: nothing becomes
//! stable any more.

use duramen_sync::atomic::{AtomicU64, Ordering, fence};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Backoff, CachePadded};
use duramen_types::{Lsn, planted};

/// Most notes that are followed by one that comes by, so that it gets on with its own work; the
/// next one goes on.
const FOLLOWED: usize = if cfg!(duramen_loom) { 1 } else { 16 };

/// Notes of a bucket.
const CELLS: usize = if cfg!(duramen_loom) { 1 } else { 4 };

/// Nothing is noted; a space that starts at LSN `x` is noted as `x + 1`.
const FREE: u64 = 0;

/// A note is being written.
const OCCUPIED: u64 = u64::MAX;

/// The position, and the notes of spaces that it has not come to.
#[derive(Debug)]
pub(crate) struct Released {
    position: CachePadded<Position>,
    /// A power of two; none where everyone waits for its turn.
    buckets: Box<[Bucket]>,
}

#[derive(Debug)]
struct Position {
    lsn: AtomicU64,
    /// Before this there may be notes. A hint: it may be too low when two have left notes at the
    /// same time.
    noted: AtomicU64,
}

/// As many notes as a cache line holds.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([Note; CELLS]);

#[derive(Debug, Default)]
struct Note {
    start: AtomicU64,
    end: AtomicU64,
}

impl Released {
    /// Log bytes for each bucket.
    const BYTES_PER_BUCKET: u64 = 16 << 10;
    /// A note moves the hint on to the end of so many bytes, so that few of them have to.
    const HINT_BYTES: u64 = if cfg!(duramen_loom) { 1 } else { 16 << 10 };

    /// Everything below `lsn` is released, in a buffer of `capacity` bytes.
    pub(crate) fn new(lsn: Lsn, capacity: u64) -> Self {
        let most = if cfg!(duramen_loom) { 1 } else { 1024 };
        let buckets = (capacity / Self::BYTES_PER_BUCKET).next_power_of_two().clamp(most.min(16), most);
        Self {
            position: CachePadded::new(Position { lsn: AtomicU64::new(lsn.get()), noted: AtomicU64::new(0) }),
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
        }
    }

    /// The same without notes: who is early waits.
    pub(crate) fn without_notes(lsn: Lsn) -> Self {
        Self { buckets: Box::default(), ..Self::new(lsn, 0) }
    }

    /// Everything below is released.
    #[inline]
    pub(crate) fn get(&self) -> Lsn {
        Lsn::new(self.position.lsn.load(Ordering::Acquire))
    }

    /// Moves the position to `to`, for who has seen it where its space starts, or whose design sees
    /// to the order.
    #[inline]
    pub(crate) fn release_due(&self, to: Lsn) {
        self.position.lsn.store(to.get(), Ordering::Release);
    }

    /// Releases the space from `lsn` to `end`, which has been filled in, as soon as all before it
    /// is: that may be after the return, or never, once the log `has_failed`.
    #[inline]
    pub(crate) fn release(&self, lsn: Lsn, end: Lsn, has_failed: impl Fn() -> bool) {
        if self.get() == lsn || planted!(ReleaseOutOfOrder) {
            self.release_in_turn(end);
        } else {
            self.release_early(lsn, end, has_failed);
        }
    }

    /// The position is where the caller's space starts, which ends at `end`.
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
            self.wait_for_turn(lsn);
            self.release_due(end);
        } else {
            self.leave_note(lsn, end, has_failed);
            self.follow(FOLLOWED);
        }
    }

    /// Spins for about as long as others need that are at work. Not when there are notes: somebody
    /// before has spun in vain.
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

    fn wait_for_turn(&self, lsn: Lsn) {
        while self.get() != lsn {
            // A fresh one: no yield, so that it is the wait of the paper.
            Backoff::new().snooze();
        }
    }

    /// Leaves a note of the space, or releases it if its turn comes before there is a cell for the
    /// note.
    fn leave_note(&self, lsn: Lsn, end: Lsn, has_failed: impl Fn() -> bool) {
        reach(Probe::NoteLeft);
        let mut backoff = Backoff::new();
        while !self.bucket(lsn).put(lsn, end) {
            if self.get() == lsn {
                self.release_due(end);
                break;
            }
            if has_failed() {
                return;
            }
            self.follow(FOLLOWED);
            backoff.rest();
        }
        if self.position.noted.load(Ordering::Relaxed) < end.get() {
            self.position.noted.store(end.get() | (Self::HINT_BYTES - 1), Ordering::Relaxed);
        }
        // Pairs with the fence in `follow`: of two that leave notes one behind the other, one finds
        // what the other has done.
        fence(Ordering::SeqCst);
    }

    /// Moves the position over the noted spaces that it has come to.
    pub(crate) fn follow_all(&self) {
        // Not on and on, while new ones are left.
        self.follow(self.buckets.len() * CELLS);
    }

    /// The same, for `most` spaces at most: none where there are no notes.
    fn follow(&self, most: usize) {
        for _ in 0..most {
            let lsn = self.get();
            // What is before the note has been passed on to who sees the position there; the note
            // itself, by its cell.
            let Some(end) = self.bucket(lsn).take(lsn) else { return };
            reach(Probe::NoteFollowed);
            self.release_due(end);
            // Pairs with the fence in `leave_note`.
            fence(Ordering::SeqCst);
        }
    }

    /// Where the space that starts at `lsn` is noted.
    fn bucket(&self, lsn: Lsn) -> &Bucket {
        // Multiplicative hashing (Knuth, volume 3, section 6.4): records are of few sizes.
        let hash = lsn.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }
}

impl Bucket {
    /// Notes the space; returns whether there was a cell for it.
    fn put(&self, lsn: Lsn, end: Lsn) -> bool {
        let occupy = |note: &&Note| {
            planted!(NoteOverwritten)
                || note.start.load(Ordering::Relaxed) == FREE
                // Acquire: who has taken the last note has read it.
                && note.start.compare_exchange(FREE, OCCUPIED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let Some(note) = self.0.iter().find(occupy) else { return false };
        note.end.store(end.get(), Ordering::Relaxed);
        // Release: the space is filled in, and the note written.
        note.start.store(lsn.get() + 1, Ordering::Release);
        true
    }

    /// Takes the note of the space at `lsn`; returns where that ends.
    fn take(&self, lsn: Lsn) -> Option<Lsn> {
        let start = lsn.get() + 1;
        // Acquire: what the note says, and the space that is filled in.
        let note = self.0.iter().find(|note| note.start.load(Ordering::Acquire) == start)?;
        let end = note.end.load(Ordering::Relaxed);
        // Release: it has been read.
        let taken = note.start.compare_exchange(start, FREE, Ordering::Release, Ordering::Relaxed);
        taken.is_ok().then_some(Lsn::new(end))
    }
}

#[cfg(test)]
#[path = "released_tests.rs"]
mod tests;
