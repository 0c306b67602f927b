//! `reserved`: one atomic addition hands out space, and there is no lock. Not from Aether: the
//! reservation and the buffer of links are MySQL 8's, the back-off is after MariaDB's.
//!
//! 1. *Acquire*: add the record's size to `next` ([`Space::reserve`]). What was there before is the
//!    record's LSN.
//! 2. *Fill* it in, side by side with everyone else.
//! 3. *Release*: note in the [`Links`] that the record is there. Nobody waits for anybody, not even
//!    for a moment, and a thread that loses its processor in the middle holds up nothing but the
//!    hardening of what comes behind it.
//!
//! `released` is not kept by those who insert. Who wants to know it, a flush that is, follows the
//! links from where it was ([`Insertion::collect`]); the first place without one belongs to a
//! record that is still being filled in.
//!
//! # A full buffer
//! Others have reserved behind a reservation, so it cannot be taken back when there turns out to be
//! no room for it: its bytes are part of the log, and the thread waits with the reservation until
//! there is room. That this ends is argued in `space`. Nothing but `next` is beyond the limit
//! meanwhile; in particular no byte of the buffer is touched and no link is used again. While
//! somebody waits so, threads that come later do not reserve: they wait for room *without* a
//! reservation, and `next` stays close to the limit.
//!
//! # Failure
//! On a log that has failed nobody waits for room, and a reservation without room is neither filled
//! in nor linked: its link's place may still be in use. `released` ends before it, which does not
//! matter, since nothing is flushed any more.

use duramen_sync::{Mutex, thread};
use duramen_types::{Lsn, planted};

use super::links::Links;
use super::{Fill, Insertion, Shape};
use crate::buffer::positions::Space;

/// The design without a lock.
#[derive(Debug)]
pub(crate) struct ReservedInsertion {
    links: Links,
    /// Held by who follows the links.
    follower: Mutex<()>,
}

impl Insertion for ReservedInsertion {
    fn new(shape: Shape) -> Self {
        Self { links: Links::new(shape.capacity, shape.smallest), follower: Mutex::new(()) }
    }

    #[inline(always)]
    fn try_insert(&self, space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn> {
        if planted!(LinkedBeforeFilled) {
            return None;
        }
        let lsn = space.try_reserve(bytes)?;
        let end = lsn.advance(bytes);
        if space.reserved(bytes, end) {
            fill.fill(lsn);
            self.links.add(lsn, end);
        }
        Some(lsn)
    }

    fn insert(&self, space: &Space, bytes: u64, _tried: bool, fill: impl Fill) -> Lsn {
        let lsn = space.reserve(bytes);
        let end = lsn.advance(bytes);
        if space.reserved(bytes, end) {
            if planted!(LinkedBeforeFilled) {
                self.links.add(lsn, end);
                thread::yield_now();
            }
            fill.fill(lsn);
            self.links.add(lsn, end);
        }
        lsn
    }

    fn collect(&self, space: &Space) {
        let _following = self.follower.lock();
        let from = space.released();
        let (mut to, mut records) = (from, 0);
        while let Some(end) = self.links.follow(to) {
            to = end;
            records += 1;
        }
        if records > 0 {
            space.release_in_order(from, to);
            space.count_records(records);
        }
    }
}
