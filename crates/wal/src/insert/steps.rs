//! The three steps of an insertion by one thread, in the two orders that designs share: fill and
//! release under the insertion lock, or after it.

use duramen_types::Lsn;

use super::Fill;
use crate::buffer::positions::{InsertionGuard, Space};

/// Inserts under the insertion lock, if the lock is free.
#[inline(always)]
pub(super) fn try_under_lock(space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn> {
    let lsn = space.try_acquire(bytes)?;
    fill.fill(lsn);
    space.release_in_order(lsn, lsn.advance(bytes));
    // SAFETY: `try_acquire` has taken the lock above.
    unsafe { space.unlock() };
    Some(lsn)
}

/// Inserts under the insertion lock, which `guard` holds.
pub(super) fn under_lock(space: &Space, mut guard: InsertionGuard<'_>, bytes: u64, fill: impl Fill) -> Lsn {
    let lsn = guard.acquire(bytes, 1);
    fill.fill(lsn);
    space.release_in_order(lsn, lsn.advance(bytes));
    lsn
}

/// Acquires space under the insertion lock, if the lock is free, and fills it in after unlocking.
#[inline(always)]
pub(super) fn try_after_unlock(space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn> {
    let lsn = space.try_acquire(bytes)?;
    // SAFETY: `try_acquire` has taken the lock above.
    unsafe { space.unlock() };
    fill.fill(lsn);
    space.release(lsn, lsn.advance(bytes));
    Some(lsn)
}

/// Acquires space under the insertion lock, which `guard` holds, unlocks it, and fills the space
/// in.
pub(super) fn after_unlock(space: &Space, mut guard: InsertionGuard<'_>, bytes: u64, fill: impl Fill) -> Lsn {
    let lsn = guard.acquire(bytes, 1);
    drop(guard);
    fill.fill(lsn);
    space.release(lsn, lsn.advance(bytes));
    lsn
}
