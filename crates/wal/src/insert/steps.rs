//! The three steps of an insertion by one thread, in the two orders that designs share: fill and
//! release under the insertion lock, or after it.

use duramen_types::Lsn;

use super::Fill;
use crate::buffer::positions::{Space, Turn};

/// Inserts under the insertion lock, if the lock is free.
#[inline(always)]
pub(super) fn try_in_turn(space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn> {
    let lsn = space.try_acquire(bytes)?;
    fill.fill(lsn);
    space.release_in_order(lsn, lsn.advance(bytes));
    // SAFETY: `try_acquire` has taken the lock above.
    unsafe { space.end_turn() };
    Some(lsn)
}

/// Inserts under the insertion lock, which `turn` holds.
pub(super) fn in_turn(space: &Space, mut turn: Turn<'_>, bytes: u64, fill: impl Fill) -> Lsn {
    let lsn = turn.acquire(bytes, 1);
    fill.fill(lsn);
    space.release_in_order(lsn, lsn.advance(bytes));
    lsn
}

/// Acquires space under the insertion lock, if the lock is free, and fills it in after unlocking.
#[inline(always)]
pub(super) fn try_behind_turn(space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn> {
    let lsn = space.try_acquire(bytes)?;
    // SAFETY: `try_acquire` has taken the lock above.
    unsafe { space.end_turn() };
    fill.fill(lsn);
    space.release(lsn, lsn.advance(bytes));
    Some(lsn)
}

/// Acquires space under the insertion lock, which `turn` holds, unlocks it, and fills the space in.
pub(super) fn behind_turn(space: &Space, mut turn: Turn<'_>, bytes: u64, fill: impl Fill) -> Lsn {
    let lsn = turn.acquire(bytes, 1);
    drop(turn);
    fill.fill(lsn);
    space.release(lsn, lsn.advance(bytes));
    lsn
}
