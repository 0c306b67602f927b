//! The active transaction list: which transactions have not committed.
//!
//! Each transaction that writes has an entry of the list, and a number ([`Xid`]) that is never used
//! again. It is *listed* while its entry holds its number: then it has not committed. With
//! [`Barriers::Fewest`], the end of a transaction replaces its number by that of the entry's next
//! transaction, which is thereby listed before it begins. With [`Barriers::Paper`], an entry is
//! cleared at the end, and a transaction is listed, with a barrier, when something that depends on
//! it is stored for the first time.
//!
//! Entry 0 belongs to structure changes, one at a time.

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_types::planted;

use super::Pcm;
use super::layout::ENTRIES;
use crate::options::Barriers;

/// The number of a transaction in the region: a number of the clock, and the entry of the list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Xid(pub(crate) u64);

const ENTRY_BITS: u32 = ENTRIES.trailing_zeros();

impl Xid {
    /// Returns the transaction's entry of the list.
    pub(crate) fn entry(self) -> u32 {
        (self.0 % u64::from(ENTRIES)) as u32
    }

    /// Returns whether the list in the region has the transaction.
    pub(super) fn is_listed_in(self, pcm: &Pcm) -> bool {
        pcm.entry(self.entry()) == self.0
    }
}

/// The list, with the present or next transaction of each entry.
#[derive(Debug)]
pub(crate) struct Active {
    barriers: Barriers,
    current: Box<[AtomicU64]>,
    /// What the region has. Changed by one thread at a time.
    listed: Box<[AtomicU64]>,
}

impl Active {
    /// Numbers every entry anew, except for those in `kept`, and stores the list. The caller issues
    /// the barrier.
    pub(super) fn renew(pcm: &Pcm, barriers: Barriers, kept: &[Xid]) -> Self {
        let zeros = || (0..ENTRIES).map(|_| AtomicU64::new(0)).collect();
        let list = Self { barriers, current: zeros(), listed: zeros() };
        for entry in 0..ENTRIES {
            match kept.iter().find(|xid| xid.entry() == entry) {
                Some(xid) => {
                    list.current[entry as usize].store(xid.0, Ordering::Release);
                    list.listed[entry as usize].store(xid.0, Ordering::Release);
                }
                None => list.replace(pcm, entry),
            }
        }
        list
    }

    /// Returns the present or next transaction of an entry.
    pub(crate) fn current(&self, entry: u32) -> Xid {
        Xid(self.current[entry as usize].load(Ordering::Acquire))
    }

    /// Returns whether a transaction has not ended.
    pub(crate) fn is_active(&self, xid: Xid) -> bool {
        self.current(xid.entry()) == xid
    }

    /// Stores the numbers of transactions that are not listed yet; returns whether there were any,
    /// so that a barrier has to follow. One thread at a time may change the list.
    pub(super) fn list(&self, pcm: &Pcm, xids: impl IntoIterator<Item = Xid>) -> bool {
        let mut has_stored = false;
        for xid in xids {
            let listed = &self.listed[xid.entry() as usize];
            if self.is_active(xid) && listed.load(Ordering::Relaxed) != xid.0 {
                pcm.set_entry(xid.entry(), xid.0);
                listed.store(xid.0, Ordering::Relaxed);
                has_stored = true;
            }
        }
        has_stored
    }

    /// Ends the entry's transaction in the region; durable after the next barrier. The caller then
    /// calls [`Active::begin_next`].
    pub(super) fn unlist(&self, pcm: &Pcm, entry: u32) -> Xid {
        let next = Xid(pcm.tick() << ENTRY_BITS | u64::from(entry));
        let is_listed_ahead = self.barriers == Barriers::Fewest && !planted!(XidListedLate);
        let word = if is_listed_ahead { next.0 } else { 0 };
        pcm.set_entry(entry, word);
        self.listed[entry as usize].store(word, Ordering::Relaxed);
        next
    }

    /// Begins the entry's next transaction.
    pub(super) fn begin_next(&self, next: Xid) {
        self.current[next.entry() as usize].store(next.0, Ordering::Release);
    }

    fn replace(&self, pcm: &Pcm, entry: u32) {
        let next = self.unlist(pcm, entry);
        self.begin_next(next);
    }
}
