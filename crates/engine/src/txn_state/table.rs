//! The transaction table: the transactions that have written to the log and have not ended, which a
//! checkpoint must record.
//!
//! # Protocol
//! A transaction announces each insertion: it sets `inserting`, inserts, stores the effect of the
//! record (its last LSN, its state), and clears `inserting`. A checkpoint first inserts its begin
//! record. Then, for each transaction, it waits until `inserting` is clear and reads the slot. If a
//! record lies before the begin record, its transaction had set `inserting` before the log assigned
//! the begin record's address. So the checkpoint either sees the flag set and waits, or sees what
//! was stored after the insertion. Recovery's analysis itself finds the records behind the begin
//! record.
//!
//! While the checkpoint reads a slot, a later insertion may be under way, and the checkpoint may
//! see some of its stores and not others. The record of this insertion is behind the begin record,
//! and analysis reads it. Only for a transaction's first record would a wrong entry remain: its
//! last LSN without its first. In this case all the transaction's records are behind the begin
//! record, and the checkpoint omits the transaction.
//!
//! Lock order: the checkpoint holds a stripe's mutex while it reads the stripe's slots; no other
//! lock is taken under it.

use duramen_sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use duramen_sync::{Arc, Backoff, Mutex, Striped};
use duramen_types::{Gsn, LogAddress, TxnId};

use crate::scheme::Recorded;

/// The phase of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum TxnState {
    /// Running or rolling back: recovery undoes it.
    Active = 0,
    /// Committed, with pages still to be freed: recovery finishes the frees.
    Committed = 1,
    /// Over: recovery can ignore it.
    Over = 2,
}

impl TxnState {
    pub(crate) const fn from_u8(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Active,
            1 => Self::Committed,
            2 => Self::Over,
            _ => return None,
        })
    }
}

/// What a checkpoint records about a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TxnEntry {
    pub(crate) txn: TxnId,
    pub(crate) state: TxnState,
    /// GSN of its first record.
    pub(crate) first: Gsn,
    /// Its latest record.
    pub(crate) last: LogAddress,
}

impl TxnEntry {
    /// Creates the entry of a transaction without records.
    pub(crate) const fn new(txn: TxnId) -> Self {
        Self { txn, state: TxnState::Active, first: Gsn::ZERO, last: LogAddress::ZERO }
    }
}

/// A transaction's slot in the table.
#[derive(Debug, Default)]
pub(crate) struct TxnSlot {
    inserting: AtomicBool,
    txn: AtomicU64,
    first: AtomicU64,
    last: AtomicU64,
    state: AtomicU8,
    /// Bytes of log that the transaction has reserved.
    reserved: AtomicU64,
    /// The stripe that the slot lies in.
    stripe: AtomicUsize,
}

impl TxnSlot {
    /// Runs `insert` as the announced insertion of a record that leaves the transaction in `state`.
    #[inline]
    pub(crate) fn insert(&self, state: TxnState, insert: impl FnOnce(LogAddress) -> Recorded) -> Recorded {
        self.inserting.store(true, Ordering::Release);
        let inserted = insert(self.last());
        if self.first.load(Ordering::Relaxed) == 0 {
            self.first.store(inserted.gsn.get(), Ordering::Relaxed);
        }
        self.last.store(inserted.address.get(), Ordering::Relaxed);
        self.state.store(state as u8, Ordering::Relaxed);
        self.inserting.store(false, Ordering::Release);
        inserted
    }

    /// Returns the address of the latest record; zero before the first.
    #[inline]
    pub(crate) fn last(&self) -> LogAddress {
        LogAddress::new(self.last.load(Ordering::Relaxed))
    }

    /// Returns the GSN of the first record; zero before the first.
    pub(crate) fn first(&self) -> Gsn {
        Gsn::new(self.first.load(Ordering::Relaxed))
    }

    /// Records that the transaction no longer needs any log before `first`.
    pub(crate) fn restart_at(&self, first: Gsn) {
        self.first.store(first.get(), Ordering::Relaxed);
    }

    /// Records how many bytes of log the transaction has reserved.
    pub(crate) fn note_reserved(&self, bytes: u64) {
        self.reserved.store(bytes, Ordering::Relaxed);
    }

    fn reset(&self, entry: TxnEntry, stripe: usize) {
        self.stripe.store(stripe, Ordering::Relaxed);
        self.txn.store(entry.txn.get(), Ordering::Relaxed);
        self.first.store(entry.first.get(), Ordering::Relaxed);
        self.last.store(entry.last.get(), Ordering::Relaxed);
        self.state.store(entry.state as u8, Ordering::Relaxed);
    }

    fn entry(&self) -> TxnEntry {
        let mut backoff = Backoff::new();
        while self.inserting.load(Ordering::Acquire) {
            backoff.snooze();
        }
        TxnEntry {
            txn: TxnId::new(self.txn.load(Ordering::Relaxed)),
            state: TxnState::from_u8(self.state.load(Ordering::Relaxed)).expect("only states are stored"),
            first: Gsn::new(self.first.load(Ordering::Relaxed)),
            last: LogAddress::new(self.last.load(Ordering::Relaxed)),
        }
    }
}

/// The transaction table. A transaction is in the stripe of the thread that entered it.
#[derive(Debug, Default)]
pub(crate) struct TxnTable {
    stripes: Striped<Mutex<Vec<Arc<TxnSlot>>>, 32>,
}

impl TxnTable {
    /// Enters a new transaction, or one that recovery resumes.
    pub(crate) fn enter(&self, slot: &Arc<TxnSlot>, entry: TxnEntry) {
        let (stripe, slots) = self.stripes.own();
        slot.reset(entry, stripe);
        slots.lock().push(Arc::clone(slot));
    }

    /// Removes a transaction, whose last record says that it is over.
    pub(crate) fn leave(&self, slot: &Arc<TxnSlot>) {
        let mut slots = self.stripes.at(slot.stripe.load(Ordering::Relaxed)).lock();
        let at = slots.iter().position(|other| Arc::ptr_eq(other, slot)).expect("the transaction was entered");
        slots.swap_remove(at);
    }

    /// Returns every transaction that is not over and has records before the checkpoint's begin
    /// record, which the caller has inserted.
    pub(crate) fn snapshot(&self) -> Vec<TxnEntry> {
        let mut entries = Vec::new();
        for slots in self.stripes.iter() {
            for slot in slots.lock().iter() {
                let entry = slot.entry();
                // If either is missing, the transaction has no record before the begin record.
                let has_records = !entry.first.is_zero() && !entry.last.is_zero();
                if entry.state != TxnState::Over && has_records {
                    entries.push(entry);
                }
            }
        }
        entries
    }

    /// Returns the transaction with the earliest first record, and how many bytes of log it has
    /// reserved.
    pub(crate) fn oldest(&self) -> Option<(TxnEntry, u64)> {
        let mut oldest: Option<(TxnEntry, u64)> = None;
        for slots in self.stripes.iter() {
            for slot in slots.lock().iter() {
                let entry = slot.entry();
                let is_older = oldest.is_none_or(|(oldest, _)| entry.first < oldest.first);
                if entry.state != TxnState::Over && !entry.first.is_zero() && is_older {
                    oldest = Some((entry, slot.reserved.load(Ordering::Relaxed)));
                }
            }
        }
        oldest
    }

    /// Returns the GSN of the earliest first record among all transactions entered. A transaction
    /// that enters or leaves meanwhile may be missing.
    pub(crate) fn least_first(&self) -> Option<Gsn> {
        let mut least: Option<Gsn> = None;
        for slots in self.stripes.iter() {
            // Not under the mutex: in schemes without a log an announced insertion may wait for
            // latches, and a holder of such a latch may be about to enter.
            let slots: Vec<_> = slots.lock().clone();
            for slot in slots {
                let first = slot.entry().first;
                if !first.is_zero() && least.is_none_or(|least| first < least) {
                    least = Some(first);
                }
            }
        }
        least
    }

    /// Returns the number of transactions entered.
    pub(crate) fn len(&self) -> usize {
        self.stripes.iter().map(|slots| slots.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use duramen_sync::clock::Instant;
    use duramen_sync::thread;

    use super::*;

    fn at(lsn: u64) -> Recorded {
        Recorded { gsn: Gsn::new(lsn), address: LogAddress::new(lsn), bytes: 48 }
    }

    #[test]
    fn snapshot_lists_writers_only() {
        let txns = TxnTable::default();
        let slots: Vec<_> = (0..3).map(|_| Arc::new(TxnSlot::default())).collect();
        for (slot, txn) in slots.iter().zip(1..) {
            txns.enter(slot, TxnEntry::new(TxnId::new(txn)));
        }
        slots[0].insert(TxnState::Active, |prev| {
            assert_eq!(prev, LogAddress::ZERO);
            at(100)
        });
        slots[0].insert(TxnState::Active, |prev| {
            assert_eq!(prev, LogAddress::new(100));
            at(200)
        });
        slots[1].insert(TxnState::Over, |_| at(300));
        let expected =
            TxnEntry { txn: TxnId::new(1), state: TxnState::Active, first: Gsn::new(100), last: LogAddress::new(200) };
        assert_eq!(txns.snapshot(), [expected]);
        // A state that a reader may see while the first record is inserted.
        slots[2].last.store(400, Ordering::Relaxed);
        assert_eq!(txns.snapshot(), [expected]);
        slots[2].last.store(0, Ordering::Relaxed);
        slots[2].first.store(400, Ordering::Relaxed);
        assert_eq!(txns.snapshot(), [expected]);
        slots[0].note_reserved(7);
        assert_eq!(txns.oldest(), Some((expected, 7)));
        txns.leave(&slots[0]);
        assert_eq!(txns.snapshot(), []);
        assert_eq!(txns.len(), 2);
    }

    /// The announced insertion waited for the latch of a transaction that could not enter.
    #[test]
    fn a_reader_of_first_records_keeps_nobody_from_entering() {
        let txns = Arc::new(TxnTable::default());
        let [one, other] = [(); 2].map(|()| Arc::new(TxnSlot::default()));
        txns.enter(&one, TxnEntry::new(TxnId::new(1)));
        one.inserting.store(true, Ordering::Release);
        let shared = Arc::clone(&txns);
        let reader = thread::spawn("reader", move || shared.least_first()).unwrap();
        let (inserting, has_entered) = (Arc::clone(&one), Arc::new(AtomicBool::new(false)));
        let entered = Arc::clone(&has_entered);
        let inserter = thread::spawn("inserter", move || {
            // The insertion ends in any case.
            let begun = Instant::now();
            while !entered.load(Ordering::Acquire) && begun.elapsed() < Duration::from_secs(10) {
                thread::yield_now();
            }
            let in_time = entered.load(Ordering::Acquire);
            inserting.inserting.store(false, Ordering::Release);
            in_time
        });
        // So that the reader waits for the insertion.
        thread::sleep(Duration::from_millis(20));
        txns.enter(&other, TxnEntry::new(TxnId::new(2)));
        has_entered.store(true, Ordering::Release);
        assert!(inserter.unwrap().join().unwrap(), "the other transaction waits for the reader");
        assert_eq!(reader.join().unwrap(), None);
    }
}
