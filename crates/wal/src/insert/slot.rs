//! A slot of the consolidation array, in which a group of insertions forms (Aether, A.4 and A.5).
//!
//! Its states, and the threads that change them:
//!
//! ```text
//!  FREE -> OPEN          the leader of another group, holding the insertion lock, takes the slot from the pool
//!  FREE -> COPYING       a thread that inserts alone, holding the insertion lock, occupies the slot (in `delegated`)
//!  OPEN -> OPEN          a thread joins: adds its bytes and itself; the first to join is the group's leader
//!  OPEN -> PENDING       the leader, holding the insertion lock, closes the slot: no thread joins any more
//!  PENDING -> COPYING    the leader has acquired space for all and publishes its start
//!  COPYING -> COPYING    a member has filled in its part and subtracts its bytes
//!  COPYING(0) = DONE     the last member finds no bytes left: it releases the group's space in the log buffer
//!  DONE -> FREE          and then frees the slot
//! ```
//!
//! The state is one word:
//!
//! | bits | content | valid in |
//! |---|---|---|
//! | 0..32 | OPEN: bytes that the group requests; COPYING: bytes not filled in yet | OPEN, COPYING |
//! | 32..48 | members that have joined | OPEN |
//! | 62..64 | phase: 0 FREE, 1 OPEN, 2 PENDING, 3 COPYING (DONE when bits 0..32 are 0) | always |
//!
//! A thread may read a slot that it found in the array long ago. This is harmless: it joins only if
//! the word says OPEN, and then the slot *is* open, though perhaps at another place of the array.

use duramen_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use duramen_sync::{Backoff, CachePadded, stagger};
use duramen_types::{Lsn, planted};

use super::release_queue::Node;

const PHASE: u64 = 0b11 << 62;
const FREE: u64 = 0;
const OPEN: u64 = 0b01 << 62;
const PENDING: u64 = 0b10 << 62;
const COPYING: u64 = 0b11 << 62;
const BYTES: u64 = (1 << 32) - 1;
const ONE_MEMBER: u64 = 1 << 32;
/// More members would overflow their field.
const MAX_MEMBERS: u64 = (1 << 16) - 1;

const fn members(word: u64) -> u64 {
    (word & !PHASE) >> 32
}

#[derive(Debug, Default)]
pub(super) struct Slot {
    word: AtomicU64,
    /// Size of the group's space in bytes. Written before COPYING is published, constant until
    /// FREE. Without meaning in a slot that one thread occupies.
    bytes: AtomicU64,
    /// Place in the array. Written before OPEN is published, constant until FREE.
    place: AtomicUsize,
    /// The slot's node in the release queue, in the design that has one. Separate from the word:
    /// the next thread in the queue writes to it under the insertion lock while members leave.
    pub(super) node: CachePadded<Node>,
    /// The start of the group's space plus one, or zero until the leader has acquired the space.
    /// Separate from the word: waiting and leaving members would disturb each other.
    told: CachePadded<AtomicU64>,
}

/// Result of an attempt to join.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// The first of the group, which must acquire space for it.
    Leader,
    /// A member, whose part is behind the `offset` bytes of the members that joined before.
    Member { offset: u64 },
    /// The slot does not accept the thread.
    Refused,
}

/// A group that has been closed, with the bytes that its members need together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) bytes: u64,
    pub(super) members: u64,
}

impl Slot {
    /// Changes FREE to OPEN, at `place` of the array; returns whether the slot was free.
    pub(super) fn open(&self, place: usize) -> bool {
        // Acquire: what the last user of the slot read of it happened before this thread's writes.
        if self.word.load(Ordering::Acquire) != FREE && !planted!(SlotReusedEarly) {
            return false;
        }
        self.place.store(place, Ordering::Relaxed);
        self.told.store(0, Ordering::Relaxed);
        self.word.store(OPEN, Ordering::Release);
        true
    }

    /// Changes FREE to COPYING, for `bytes` of one thread; returns whether the slot was free.
    #[inline]
    pub(super) fn occupy(&self, bytes: u64) -> bool {
        // Acquire: as in `open`.
        if self.word.load(Ordering::Acquire) != FREE && !planted!(SlotReusedEarly) {
            return false;
        }
        self.word.store(COPYING | bytes, Ordering::Release);
        true
    }

    /// Joins with `bytes`, unless the slot is not open or the group would exceed `limit` bytes.
    ///
    /// After a failed exchange the thread waits a random moment: each attempt takes the cache line
    /// from threads that are about to join or leave, and of dozens at once nearly all would fail.
    pub(super) fn join(&self, bytes: u64, limit: u64) -> Join {
        loop {
            let word = self.word.load(Ordering::Relaxed);
            let offset = word & BYTES;
            if word & PHASE != OPEN || offset + bytes > limit || members(word) == MAX_MEMBERS {
                return Join::Refused;
            }
            // Acquire: the leader needs `place`. Release: what a member did before its insertion
            // happens before its record gets its log address, and so before any later insertion;
            // checkpoints rely on this.
            match self.word.compare_exchange_weak(word, word + ONE_MEMBER + bytes, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) if members(word) == 0 => return Join::Leader,
                Ok(_) => return Join::Member { offset },
                Err(_) => stagger(),
            }
        }
    }

    /// Returns the slot's place in the array. Only the leader calls this.
    pub(super) fn place(&self) -> usize {
        self.place.load(Ordering::Relaxed)
    }

    /// Changes OPEN to PENDING. Only the leader calls this, holding the insertion lock.
    pub(super) fn close(&self) -> Group {
        let word = self.word.swap(PENDING, Ordering::Acquire);
        assert_eq!(word & PHASE, OPEN, "only the leader closes its slot");
        Group { bytes: word & BYTES, members: members(word) }
    }

    /// Changes PENDING to COPYING: the space of `bytes` for the group starts at `lsn`.
    #[inline]
    pub(super) fn notify(&self, lsn: Lsn, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.word.store(COPYING | bytes, Ordering::Relaxed);
        // Release: a member that sees this also sees the word in COPYING, and what the leader saw.
        self.told.store(lsn.get() + 1, Ordering::Release);
    }

    /// Waits for the leader's notification; returns where the group's space starts, and its size.
    ///
    /// The notification comes after the lock has changed hands once or twice. A member that notices
    /// it late delays the group, which with `consolidated` holds the lock. So pauses stay short for
    /// a long time and only then grow.
    pub(super) fn wait(&self) -> (Lsn, u64) {
        /// Number of short pauses before longer ones.
        const SHORT: u32 = 256;
        let mut backoff = Backoff::new();
        let mut short = 0..SHORT;
        loop {
            // Acquire: also sees what the leader saw of the ring when it acquired the space.
            if let Some(lsn) = self.told.load(Ordering::Acquire).checked_sub(1) {
                return (Lsn::new(lsn), self.bytes.load(Ordering::Relaxed));
            }
            match short.next() {
                Some(_) => Backoff::new().snooze(),
                None => backoff.snooze(),
            }
        }
    }

    /// Returns the size of the space. The slot must be in DONE or occupied by one thread.
    pub(super) fn bytes(&self) -> u64 {
        match self.word.load(Ordering::Relaxed) & BYTES {
            0 => self.bytes.load(Ordering::Relaxed),
            of_one => of_one,
        }
    }

    /// Subtracts a member's filled-in `bytes`; returns whether it was the last member. If so, the
    /// caller releases the space and frees the slot.
    pub(super) fn leave(&self, bytes: u64) -> bool {
        // Release: our bytes are filled in. Acquire: so are those of members that left before.
        let word = self.word.fetch_sub(bytes, Ordering::AcqRel);
        debug_assert_eq!(word & PHASE, COPYING);
        word & BYTES == bytes
    }

    /// Changes DONE to FREE. The last member calls this when it no longer needs the slot.
    pub(super) fn free(&self) {
        self.word.store(FREE, Ordering::Release);
    }
}
