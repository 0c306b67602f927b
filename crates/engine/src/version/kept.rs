//! The values that the transactions of one context keep to themselves while no snapshot is open.
//!
//! Transactions append values to the *newer* of two parts, one transaction behind the other. When
//! that part has grown, and no snapshot will need the *older* one, the older one is emptied and
//! becomes the newer. So a commit takes nothing out, and what is kept stays in the processor's
//! cache as long as commits are hardened soon.

use duramen_types::{Gsn, TableId};

use super::values::Before;
use crate::page::SlotFlags;

/// The newer part becomes the older one when it has this many bytes, those of a few short
/// transactions: in models and simulations, of one.
const ENOUGH: usize = if cfg!(any(duramen_loom, duramen_machine)) { 1 } else { 2 << 10 };

/// A part with more memory than this is not used again.
const REUSED: usize = 32 << 10;

/// What a context keeps: of its running transaction, and of those before it.
#[derive(Debug, Default)]
pub(super) struct Kept {
    newer: Part,
    older: Part,
    /// The size of the newer part at which the older one was found to be needed, or zero.
    needed_at: usize,
}

/// The values of transactions, one behind the other; in the newer part the running one is the last.
#[derive(Debug, Default)]
struct Part {
    /// The keys and values of all entries.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    committed: Vec<Committed>,
}

/// A value, with its record: so many of the bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    table: TableId,
    key: u16,
    value: u16,
    /// Those of the value; none if there was no record.
    flags: Option<SlotFlags>,
}

/// A committed transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Committed {
    /// The position of the commit, and the turn among those of the same position.
    pub(super) at: Gsn,
    pub(super) turn: u64,
    /// The GSN of the transaction's first record.
    pub(super) first: Gsn,
    end: End,
}

/// Where the values of a transaction end.
#[derive(Clone, Copy, Default, Debug)]
struct End {
    bytes: usize,
    entries: usize,
}

impl Kept {
    /// Appends a value of the running transaction. `reclaimable` is the position up to which no
    /// snapshot needs the values of commits.
    #[inline]
    pub(super) fn append(&mut self, table: TableId, key: &[u8], before: Before<'_>, reclaimable: impl FnOnce() -> Gsn) {
        let size = self.newer.size();
        if size >= ENOUGH.max(2 * self.needed_at) && !self.has_running() {
            self.turn(size, reclaimable());
        }
        self.newer.append(table, key, before);
    }

    /// Begins another part, unless a snapshot may need the older one.
    fn turn(&mut self, size: usize, reclaimable: Gsn) {
        if self.older.is_needed(reclaimable) {
            self.needed_at = size;
            return;
        }
        self.needed_at = 0;
        self.older.clear();
        std::mem::swap(&mut self.newer, &mut self.older);
    }

    /// Returns whether the running transaction has values.
    pub(super) fn has_running(&self) -> bool {
        self.newer.entries.len() > self.newer.end().entries
    }

    /// Returns the bytes that the running transaction's values take.
    #[inline]
    pub(super) fn running_size(&self) -> usize {
        let End { bytes, entries } = self.newer.end();
        self.newer.bytes.len() - bytes + (self.newer.entries.len() - entries) * size_of::<Entry>()
    }

    /// Returns the values of the running transaction, in their order.
    pub(super) fn running(&self) -> impl Iterator<Item = (TableId, &[u8], Before<'_>)> {
        self.newer.values(self.newer.end(), self.newer.entries.len())
    }

    /// Drops the values of the running transaction.
    pub(super) fn drop_running(&mut self) {
        let End { bytes, entries } = self.newer.end();
        self.newer.bytes.truncate(bytes);
        self.newer.entries.truncate(entries);
    }

    /// Ends the running transaction. Its values stay.
    #[inline]
    pub(super) fn commit(&mut self, at: Gsn, turn: u64, first: Gsn) {
        if self.has_running() {
            let end = End { bytes: self.newer.bytes.len(), entries: self.newer.entries.len() };
            self.newer.committed.push(Committed { at, turn, first, end });
        }
    }

    /// Returns the transactions whose commits are beyond `until`, each with its values.
    pub(super) fn committed_beyond(
        &self,
        until: Gsn,
    ) -> impl Iterator<Item = (Committed, impl Iterator<Item = (TableId, &[u8], Before<'_>)>)> {
        [&self.older, &self.newer].into_iter().flat_map(move |part| {
            let begins = std::iter::once(End::default()).chain(part.committed.iter().map(|txn| txn.end));
            let all = part.committed.iter().zip(begins);
            let beyond = all.filter(move |(txn, _)| txn.at > until);
            beyond.map(|(txn, begin)| (*txn, part.values(begin, txn.end.entries)))
        })
    }

    /// Drops the values of all committed transactions.
    pub(super) fn drop_committed(&mut self) {
        self.older.clear();
        self.needed_at = 0;
        let End { bytes, entries } = self.newer.end();
        if entries == self.newer.entries.len() {
            return self.newer.clear();
        }
        self.newer.bytes.drain(..bytes);
        self.newer.entries.drain(..entries);
        self.newer.committed.clear();
    }

    /// Returns whether there are values that snapshots may need: those of the running transaction,
    /// or of commits beyond `reclaimable`.
    pub(super) fn is_needed(&self, reclaimable: Gsn) -> bool {
        self.has_running() || self.newer.is_needed(reclaimable) || self.older.is_needed(reclaimable)
    }
}

impl Part {
    fn append(&mut self, table: TableId, key: &[u8], before: Before<'_>) {
        let (value, flags) = match before {
            Before::Absent | Before::Ghost(_) => (&[][..], None),
            Before::Value(value, flags) => (value, Some(flags)),
        };
        let key_len = u16::try_from(key.len()).expect("the limit of a key's length was checked");
        let value_len = u16::try_from(value.len()).expect("a value in a leaf is short");
        self.bytes.reserve(key.len() + value.len());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries.push(Entry { table, key: key_len, value: value_len, flags });
    }

    /// Returns where the values of the last committed transaction end.
    #[inline]
    fn end(&self) -> End {
        self.committed.last().map_or(End::default(), |txn| txn.end)
    }

    /// Returns the values from `begin` up to and not including entry number `end`.
    fn values(&self, begin: End, end: usize) -> impl Iterator<Item = (TableId, &[u8], Before<'_>)> {
        let mut rest = &self.bytes[begin.bytes..];
        self.entries[begin.entries..end].iter().map(move |entry| {
            let (key, behind) = rest.split_at(entry.key.into());
            let (value, behind) = behind.split_at(entry.value.into());
            rest = behind;
            (entry.table, key, entry.flags.map_or(Before::Absent, |flags| Before::Value(value, flags)))
        })
    }

    /// Returns the bytes that are in use.
    #[inline]
    fn size(&self) -> usize {
        self.bytes.len() + size_of_val(&self.entries[..]) + size_of_val(&self.committed[..])
    }

    fn is_needed(&self, reclaimable: Gsn) -> bool {
        self.committed.iter().any(|txn| txn.at > reclaimable)
    }

    fn clear(&mut self) {
        let Self { bytes, entries, committed } = self;
        let lists = entries.capacity() * size_of::<Entry>() + committed.capacity() * size_of::<Committed>();
        if bytes.capacity() + lists > REUSED {
            *self = Self::default();
        }
        self.bytes.clear();
        self.entries.clear();
        self.committed.clear();
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;

    const TABLE: TableId = TableId::new(16);

    /// Appends values of a transaction; each is its number and place, or absent.
    fn append(kept: &mut Kept, txn: u64, values: u8, reclaimable: u64) {
        for place in 0..values {
            let value = [&txn.to_le_bytes()[..], &[place; 100]].concat();
            let before = if place == 3 { Before::Absent } else { Before::Value(&value, SlotFlags::OVERFLOW) };
            kept.append(TABLE, &[place], before, || Gsn::new(reclaimable));
        }
    }

    fn check<'k>(txn: u64, values: u8, found: impl Iterator<Item = (TableId, &'k [u8], Before<'k>)>) {
        let mut count = 0;
        for (place, (table, key, before)) in (0..).zip(found) {
            assert_eq!((table, key), (TABLE, &[place][..]));
            match before {
                Before::Absent | Before::Ghost(_) => assert_eq!(place, 3),
                Before::Value(value, flags) => {
                    assert_eq!(flags, SlotFlags::OVERFLOW);
                    assert_eq!(value, [&txn.to_le_bytes()[..], &[place; 100]].concat());
                }
            }
            count += 1;
        }
        assert_eq!(count, values);
    }

    #[test]
    fn values_stay_as_long_as_their_commits_are_not_reclaimable() {
        for lag in [0, 1, 7, 300] {
            let mut kept = Kept::default();
            for txn in 1..2000_u64 {
                let until = txn.saturating_sub(lag + 1);
                let values = (txn % 7) as u8;
                append(&mut kept, txn, values, until);
                check(txn, values, kept.running());
                assert_eq!(kept.has_running(), values > 0);
                if txn % 11 == 0 {
                    kept.drop_running();
                    continue;
                }
                kept.commit(Gsn::new(txn), 2 * txn, Gsn::new(txn - 1));
                assert_eq!((kept.running_size(), kept.has_running()), (0, false));
                let mut expected = (until + 1..=txn).filter(|txn| txn % 7 > 0 && txn % 11 > 0);
                for (committed, found) in kept.committed_beyond(Gsn::new(until)) {
                    let txn = expected.next().expect("no transaction appears twice");
                    assert_eq!((committed.at, committed.turn), (Gsn::new(txn), 2 * txn));
                    assert_eq!(committed.first, Gsn::new(txn - 1));
                    check(txn, (txn % 7) as u8, found);
                }
                assert_eq!(expected.next(), None, "all of them are there");
                let needed = (lag as usize + 1) * 700;
                assert!(kept.newer.size() + kept.older.size() <= 4 * needed.max(2 * ENOUGH), "memory is used again");
            }
            append(&mut kept, 5000, 3, 0);
            kept.drop_committed();
            assert_eq!(kept.committed_beyond(Gsn::ZERO).count(), 0);
            check(5000, 3, kept.running());
            assert!(kept.is_needed(Gsn::MAX));
            kept.drop_running();
            assert!(!kept.is_needed(Gsn::ZERO));
        }
    }
}
