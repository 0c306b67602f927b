//! The three steps of an insertion by one thread, in the two orders that designs share: filled in
//! and released in the turn, or behind it.

use duramen_types::Lsn;

use super::Fill;
use crate::buffer::positions::{Space, Turn};

/// Inserts in a turn, if that is to be had at once.
#[inline(always)]
pub(super) fn try_in_turn(space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn> {
    let lsn = space.try_acquire(bytes)?;
    fill.fill(lsn);
    space.release_in_order(lsn, lsn.advance(bytes));
    // SAFETY: the turn has begun above.
    unsafe { space.end_turn() };
    Some(lsn)
}

/// Inserts in this turn.
pub(super) fn in_turn(space: &Space, mut turn: Turn<'_>, bytes: u64, fill: impl Fill) -> Lsn {
    let lsn = turn.acquire(bytes, 1);
    fill.fill(lsn);
    space.release_in_order(lsn, lsn.advance(bytes));
    lsn
}

/// Acquires space in a turn, if that is to be had at once, and fills it in behind it.
#[inline(always)]
pub(super) fn try_behind_turn(space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn> {
    let lsn = space.try_acquire(bytes)?;
    // SAFETY: the turn has begun just now.
    unsafe { space.end_turn() };
    fill.fill(lsn);
    space.release(lsn, lsn.advance(bytes));
    Some(lsn)
}

/// Acquires space in this turn, ends it, and fills the space in.
pub(super) fn behind_turn(space: &Space, mut turn: Turn<'_>, bytes: u64, fill: impl Fill) -> Lsn {
    let lsn = turn.acquire(bytes, 1);
    drop(turn);
    fill.fill(lsn);
    space.release(lsn, lsn.advance(bytes));
    lsn
}
