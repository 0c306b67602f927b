//! How far the log buffer is released: a position that moves over spaces in the order of their LSNs, as they are filled in.
//!
//! With [`Released::release`], an owner whose turn it is moves the position over its space, with a load and a store. One
//! who is early spins for a moment, as in algorithm 3 of Aether. But there may be more threads than processors, and the
//! one before may have lost its processor in the middle, or have a long record to fill in: to wait for it would hold up
//! the page latches and locks that the waiter has. So it leaves a note of its space instead.
//!
//! Who moves the position to where a noted space starts does not know of it: to look for notes without overlooking one
//! would take an atomic operation at each release. Notes are acted on by those who leave one (and, with a note left, all
//! that come later leave theirs until it is gone) and by those who want to know the position, a flush above all
//! ([`Released::follow`]).
//!
//! # Notes
//! - *leave*: a note is put in front of the list `left`, with one atomic operation.
//! - *follow*: one thread at a time, the holder of the mutex, takes the whole list, sorts it into `sorted`, and moves the
//!   position over the spaces that it has come to. It never meets the owner of another space: the one at the position is
//!   either noted, and its owner has gone, or not, and then no note starts there.
//!
//! Who has left a note tries to get the mutex, and if another thread holds it, goes: nobody who inserts ever waits for it.
//! (Threads that wait for a mutex behind each long record would form a convoy: each gets it at the price of a wake-up.) The
//! holder may have taken the list before. Then the note lies there until the next thread comes, as one does whose turn comes
//! after it was looked at.
//!
//! # Announced
//! Those who come by look at `noted` alone, which lies beside the position. Who has left a note sets it, unless it is set. Who
//! takes it back, since `sorted` has become empty, looks at `left` afterwards, and sets it again if there is a note. With
//! a fence between the two steps of each, one of them sees what the other has done.

use std::collections::BTreeMap;
use std::ptr;

use duramen_sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Backoff, CachePadded, Mutex, cost};
use duramen_types::Lsn;
use duramen_types::planted::{Bug, is_on};

/// Instructions to allocate, sort and free a note.
const NOTE_WORK: u64 = 300;

/// The position, and the notes of spaces that it has not come to.
#[derive(Debug)]
pub(crate) struct Released {
    position: CachePadded<Position>,
    /// The note left last.
    left: CachePadded<AtomicPtr<Note>>,
    sorted: CachePadded<Mutex<Sorted>>,
}

#[derive(Debug)]
struct Position {
    lsn: AtomicU64,
    /// There are notes.
    noted: AtomicBool,
}

#[derive(Debug)]
struct Note {
    start: u64,
    end: u64,
    /// The note left before.
    before: *mut Note,
}

/// Start and end of noted spaces. Spaces that follow each other are mostly one: behind a thread that has lost its processor
/// there may be many.
type Sorted = BTreeMap<u64, u64>;

// SAFETY: the notes on the list belong to it; whoever takes them off is their only owner.
unsafe impl Send for Released {}
// SAFETY: as above.
unsafe impl Sync for Released {}

impl Released {
    /// Everything below `lsn` is released.
    pub(crate) fn new(lsn: Lsn) -> Self {
        Self {
            position: CachePadded::new(Position { lsn: AtomicU64::new(lsn.get()), noted: AtomicBool::new(false) }),
            left: CachePadded::new(AtomicPtr::new(ptr::null_mut())),
            sorted: CachePadded::new(Mutex::new(Sorted::new())),
        }
    }

    /// Everything below is released.
    #[inline]
    pub(crate) fn get(&self) -> Lsn {
        Lsn::new(self.position.lsn.load(Ordering::Acquire))
    }

    /// Moves the position to `to`, for who has seen it where its space starts, or whose design sees to the order.
    #[inline]
    pub(crate) fn release_due(&self, to: Lsn) {
        self.position.lsn.store(to.get(), Ordering::Release);
    }

    /// Releases the space from `lsn` to `end`, which has been filled in, as soon as all before it is: that may be after the
    /// return.
    #[inline]
    pub(crate) fn release(&self, lsn: Lsn, end: Lsn) {
        if self.get() == lsn || is_on(Bug::ReleaseOutOfOrder) {
            self.release_due(end);
        } else {
            self.release_early(lsn, end);
        }
    }

    #[cold]
    fn release_early(&self, lsn: Lsn, end: Lsn) {
        if self.is_turn_soon(lsn) {
            self.release_due(end);
        } else {
            self.leave_note(lsn, end);
        }
    }

    /// Spins for about as long as others need that are at work. Not when there are notes: somebody before has spun in vain.
    fn is_turn_soon(&self, lsn: Lsn) -> bool {
        let mut backoff = Backoff::new();
        while !self.position.noted.load(Ordering::Relaxed) && backoff.is_spinning() {
            backoff.snooze();
            if self.get() == lsn {
                return true;
            }
        }
        false
    }

    fn leave_note(&self, lsn: Lsn, end: Lsn) {
        reach(Probe::NoteLeft);
        cost::work(NOTE_WORK);
        self.put(Note { start: lsn.get(), end: end.get(), before: ptr::null_mut() });
        if is_on(Bug::NoteNotAnnounced) {
            return;
        }
        // Pairs with the fence in `follow_with`: it finds our note, or we find what it has taken back.
        fence(Ordering::SeqCst);
        if !self.position.noted.load(Ordering::Relaxed) {
            self.position.noted.store(true, Ordering::Relaxed);
        }
        if let Some(mut sorted) = self.sorted.try_lock() {
            self.follow_with(&mut sorted);
        }
    }

    fn put(&self, note: Note) {
        let note = Box::into_raw(Box::new(note));
        let mut before = self.left.load(Ordering::Relaxed);
        loop {
            // SAFETY: the note is not on the list yet, so it is ours alone.
            unsafe { (*note).before = before };
            // Release: the space is filled in, and the note written.
            match self.left.compare_exchange_weak(before, note, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(newer) => before = newer,
            }
        }
    }

    /// Moves the position over the noted spaces that it has come to.
    pub(crate) fn follow(&self) {
        if self.position.noted.load(Ordering::Relaxed) {
            self.follow_with(&mut self.sorted.lock());
        }
    }

    fn follow_with(&self, sorted: &mut Sorted) {
        self.take_notes(|start, end| {
            let end = sorted.remove(&end).unwrap_or(end);
            match sorted.range_mut(..start).next_back() {
                Some((_, noted_end)) if *noted_end == start => *noted_end = end,
                _ => {
                    sorted.insert(start, end);
                }
            }
        });
        while let Some(first) = sorted.first_entry() {
            // What is before the note has been passed on to who sees the position there; the note itself, by the list.
            if self.get() != Lsn::new(*first.key()) {
                return;
            }
            reach(Probe::NoteFollowed);
            // The space at the position is the noted one, so nobody else moves it.
            self.release_due(Lsn::new(first.remove()));
        }
        self.position.noted.store(false, Ordering::Relaxed);
        // Pairs with the fence in `leave_note`.
        fence(Ordering::SeqCst);
        if !self.left.load(Ordering::Relaxed).is_null() {
            self.position.noted.store(true, Ordering::Relaxed);
        }
    }

    /// Takes all notes off the list.
    fn take_notes(&self, mut taken: impl FnMut(u64, u64)) {
        if self.left.load(Ordering::Relaxed).is_null() {
            return;
        }
        // Acquire: of each note, since each exchange that has put one there goes on from the one before.
        let mut note = self.left.swap(ptr::null_mut(), Ordering::Acquire);
        while !note.is_null() {
            // SAFETY: `put` has made it of a box, and the whole list has been taken by this thread.
            let Note { start, end, before } = *unsafe { Box::from_raw(note) };
            taken(start, end);
            note = before;
        }
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        self.take_notes(|_, _| {});
    }
}
