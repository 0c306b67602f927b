//! `reserved`: one atomic addition hands out space, and there is no lock. Not from Aether: the
//! addition and the buffer of links are those of MySQL 8; the back-off follows MariaDB.
//!
//! 1. *Acquire*: the thread adds the record's size to `next` ([`Space::reserve`]). The value before
//!    the addition is the record's LSN.
//! 2. *Fill*: the thread fills the space in, in parallel with all others.
//! 3. *Release*: the thread records in the [`Links`] that the record is there. No thread waits for
//!    another, so one that loses its processor delays only the hardening of later records.
//!
//! The threads that insert do not keep `released`. A flush, which needs it, follows the links from
//! the last known position ([`Insertion::collect`]) to the first place without a link, which
//! belongs to a record that is still being filled in, or to where `next` was when it began. (Beyond
//! that it would follow a fast inserter until the buffer is full, and flush only then.)
//!
//! # A full buffer
//! A thread cannot take back a reservation for which there is no room, since others have reserved
//! behind it: its bytes are part of the log, and the thread waits with it until there is room.
//! `buffer/positions.rs` shows that this wait ends. Meanwhile only `next` is beyond the limit; in
//! particular no byte of the buffer is written and no link is reused. Threads that come later wait
//! for room *without* a reservation, so `next` stays close to the limit.
//!
//! # Failure
//! On a log that has failed no thread waits for room. A reservation without room is neither filled
//! in nor linked, because its link's place may still be in use. `released` ends before it, which
//! does no harm, since nothing is flushed any more.

use duramen_sync::{Mutex, thread};
use duramen_types::{Lsn, planted};

use super::links::Links;
use super::{Fill, Insertion, Shape};
use crate::buffer::positions::Space;

#[derive(Debug)]
pub(crate) struct ReservedInsertion {
    links: Links,
    /// Held by the thread that follows the links.
    follower: Mutex<()>,
}

impl ReservedInsertion {
    /// Fills in the reserved space at `lsn` and links it, if there is room.
    #[inline(always)]
    fn fill(&self, space: &Space, lsn: Lsn, bytes: u64, fill: impl Fill) {
        let end = lsn.advance(bytes);
        if space.reserved(bytes, end) {
            if planted!(LinkedBeforeFilled) {
                self.links.add(lsn, end);
                thread::yield_now();
            }
            fill.fill(lsn);
            self.links.add(lsn, end);
        }
    }
}

impl Insertion for ReservedInsertion {
    fn new(shape: Shape) -> Self {
        Self { links: Links::new(shape.capacity, shape.smallest), follower: Mutex::new(()) }
    }

    #[inline(always)]
    fn try_insert(&self, space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn> {
        let lsn = space.try_reserve(bytes)?;
        self.fill(space, lsn, bytes, fill);
        Some(lsn)
    }

    fn insert(&self, space: &Space, bytes: u64, _tried: bool, fill: impl Fill) -> Lsn {
        let lsn = space.reserve(bytes);
        self.fill(space, lsn, bytes, fill);
        lsn
    }

    fn collect(&self, space: &Space) {
        let _following = self.follower.lock();
        let (from, until) = (space.released(), space.end());
        let (mut to, mut records) = (from, 0);
        while to < until
            && let Some(end) = self.links.follow(to)
        {
            to = end;
            records += 1;
        }
        if records > 0 {
            space.release_in_order(from, to);
            space.count_records(records);
        }
    }
}
