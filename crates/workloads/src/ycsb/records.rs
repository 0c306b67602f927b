//! The records beyond the population, as all clients share them.

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{CachePadded, Mutex};

use super::row;
use crate::error::Result;
use crate::store::{Access, Store, transact};

/// Numbers of inserted records. A number is given out once; clients that stop before they use it
/// leave a hole.
#[derive(Default, Debug)]
pub(super) struct Records {
    /// The first number that this object has given out; `None` until a client has searched for it.
    first: Mutex<Option<u64>>,
    next: CachePadded<AtomicU64>,
    /// Acknowledged inserts of this object's clients.
    inserted: CachePadded<AtomicU64>,
}

impl Records {
    /// Finds out where the records in `store` end, of which there are at least `records`.
    pub(super) fn open<S: Store>(&self, store: &S, table: &S::Table, records: u64) -> Result<()> {
        let mut first = self.first.lock();
        if first.is_none() {
            let end = find_end(store, table, records)?;
            *first = Some(end);
            self.next.store(end, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns a number for a new record.
    pub(super) fn take(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number behind the last one given out.
    pub(super) fn end(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Notes an acknowledged insert.
    pub(super) fn note_insert(&self) {
        self.inserted.fetch_add(1, Ordering::Relaxed);
    }

    /// From which number on this object's clients inserted how many records; `None` when there was
    /// no client.
    pub(super) fn inserted(&self) -> Option<(u64, u64)> {
        let first = *self.first.lock();
        first.map(|first| (first, self.inserted.load(Ordering::Relaxed)))
    }
}

/// Searches for a number without a record, behind `records` and probably all others: in steps that
/// double, then by halving. Holes that clients left may end the search early; inserts then need a
/// second try.
fn find_end<S: Store>(store: &S, table: &S::Table, records: u64) -> Result<u64> {
    let mut connection = store.connect()?;
    let mut is_there = |number| {
        transact(&mut connection, Access::ReadCommitted, |txn| {
            Ok(crate::store::Transaction::get(txn, table, &row::key(number), |_| ())?.is_some())
        })
    };
    let (mut there, mut step) = (records - 1, 1);
    while is_there(there + step)? {
        there += step;
        step *= 2;
    }
    let mut absent = there + step;
    while absent - there > 1 {
        let middle = there + (absent - there) / 2;
        if is_there(middle)? { there = middle } else { absent = middle }
    }
    Ok(absent)
}
