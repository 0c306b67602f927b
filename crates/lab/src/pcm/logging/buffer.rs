//! The operations of PCMLogging on the PCM (PCMLogging, section 3.2).
//!
//! | rule | why |
//! |---|---|
//! | a transaction is listed before its first version is stored | until it is removed from the list, its versions do not count |
//! | a version goes to a free slot, never over another one | the one before it may be needed again |
//! | at the commit all versions are stored before the transaction is removed from the list: that is the commit | then all of them count |
//! | the versions before them are freed after that | they count until then |
//! | an abort frees the versions before it removes the transaction from the list | else they would count |
//! | a slot is freed after its content was written to disk | it is nowhere else |
//!
//! Between a commit and the freeing of the version before, a unit has two committed versions: the
//! one stored later counts. The older one is always freed first, so that it cannot come back.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::mapping::Mapping;
use super::medium::{Granularity, Medium, Slot, Stored, Unit, Version};
use super::slots::Slots;
use super::transactions::Transactions;
use crate::pcm::scheme::Xid;
use crate::pcm::trace::Page;

/// The PCM with the tables in DRAM that describe it.
#[derive(Debug)]
pub(super) struct Buffer {
    granularity: Granularity,
    slots: Slots,
    mapping: Mapping,
    transactions: Transactions,
    /// The dirty page table: of each unit that a transaction in progress has stored, the committed
    /// version before it, if the PCM has one.
    previous: HashMap<Unit, Slot>,
    /// When the last version was stored.
    stamp: u64,
    has_been_full: bool,
}

impl Buffer {
    /// Returns an empty PCM with so many slots.
    pub(super) fn new(granularity: Granularity, slots: usize) -> Self {
        Self::with(granularity, Slots::new(slots))
    }

    fn with(granularity: Granularity, slots: Slots) -> Self {
        Self {
            granularity,
            slots,
            mapping: Mapping::new(granularity),
            transactions: Transactions::new(granularity),
            previous: HashMap::new(),
            stamp: 0,
            has_been_full: false,
        }
    }

    /// Builds the tables anew after a crash, from what the PCM holds: versions of listed
    /// transactions are discarded, and of the others the newest of each unit counts. Reads nothing
    /// from disk. The order allows for another crash meanwhile.
    pub(super) fn recover(
        (granularity, slots): (Granularity, usize),
        stored: &BTreeMap<Slot, Stored>,
        active: &BTreeSet<Xid>,
        medium: &mut impl Medium,
    ) -> Self {
        let mut newest: BTreeMap<Unit, (Slot, Stored)> = BTreeMap::new();
        let mut discarded = Vec::new();
        for (&slot, &found) in stored {
            if active.contains(&found.xid) {
                discarded.push(slot);
                continue;
            }
            match newest.get(&found.unit) {
                Some((_, other)) if other.stamp > found.stamp => discarded.push(slot),
                _ => discarded.extend(newest.insert(found.unit, (slot, found)).map(|(older, _)| older)),
            }
        }
        for slot in discarded {
            medium.free(slot);
        }
        for xid in active {
            medium.unlist(*xid);
        }
        let mut kept: Vec<(Slot, Stored)> = newest.into_values().collect();
        kept.sort_unstable_by_key(|(_, stored)| stored.stamp);
        let mut buffer = Self::with(granularity, Slots::with(slots, &kept));
        for (slot, stored) in kept {
            buffer.mapping.set(stored.unit, slot);
            buffer.stamp = stored.stamp;
        }
        buffer
    }

    /// Returns whether a version had to make room for another.
    pub(super) fn has_been_full(&self) -> bool {
        self.has_been_full
    }

    /// Returns how many units of `page` the PCM holds.
    pub(super) fn buffered(&self, page: Page) -> usize {
        self.mapping.of_page(page).len()
    }

    /// Returns where the committed version of `unit` is, if the PCM has one.
    pub(super) fn committed(&self, unit: Unit) -> Option<Slot> {
        let newest = self.mapping.get(unit)?;
        if self.transactions.has_stored(self.slots.get(newest).xid) {
            return self.previous.get(&unit).copied();
        }
        Some(newest)
    }

    /// Notes that `unit` is used; returns whether the PCM holds it.
    pub(super) fn hit(&mut self, unit: Unit) -> bool {
        let Some(slot) = self.mapping.get(unit) else { return false };
        if self.slots.is_replaceable(slot) {
            self.slots.offer(slot);
        }
        true
    }

    /// Notes that `xid` has changed `unit` in DRAM.
    pub(super) fn change(&mut self, xid: Xid, unit: Unit, version: Version) {
        self.transactions.changed(xid, unit, version);
    }

    /// Stores the changes of `page` that are only in DRAM, which the page leaves.
    pub(super) fn flush_page(&mut self, page: Page, medium: &mut impl Medium) {
        for (xid, unit) in self.transactions.in_dram_of(page) {
            self.flush(xid, unit, medium);
        }
    }

    /// Stores the change of `unit`, which is only in DRAM.
    pub(super) fn flush(&mut self, xid: Xid, unit: Unit, medium: &mut impl Medium) {
        let slot = self.free_slot(medium);
        let (version, must_be_listed) = self.transactions.moves_to_pcm(xid, unit);
        if must_be_listed {
            medium.list(xid);
        }
        self.stamp += 1;
        let stored = Stored { unit, xid, stamp: self.stamp, version };
        medium.store(slot, stored);
        self.slots.fill(slot, stored);
        match self.mapping.set(unit, slot) {
            Some(own) if self.slots.get(own).xid == xid => self.free(own, medium),
            Some(committed) => {
                self.slots.hold(committed);
                self.previous.insert(unit, committed);
            }
            None => {}
        }
    }

    /// Commits: stores what is only in DRAM, removes the transaction from the list, and frees the
    /// versions before.
    pub(super) fn commit(&mut self, xid: Xid, medium: &mut impl Medium) {
        for unit in self.transactions.in_dram(xid) {
            self.flush(xid, unit, medium);
        }
        let Some(ended) = self.transactions.end(xid) else { return };
        medium.unlist(xid);
        for unit in ended.changes.into_keys() {
            if let Some(before) = self.previous.remove(&unit) {
                self.free(before, medium);
            }
            self.slots.offer(self.mapping.get(unit).expect("the change was stored"));
        }
    }

    /// Takes the changes back: frees them, maps the units to the versions before, and removes the
    /// transaction from the list. Returns the units.
    pub(super) fn abort(&mut self, xid: Xid, medium: &mut impl Medium) -> Vec<Unit> {
        let Some(ended) = self.transactions.end(xid) else { return Vec::new() };
        for (&unit, _) in ended.changes.iter().filter(|(_, change)| change.in_pcm) {
            let slot = self.mapping.get(unit).expect("the change was stored");
            match self.previous.remove(&unit) {
                Some(before) => {
                    self.mapping.set(unit, before);
                    self.slots.offer(before);
                }
                None => self.mapping.remove(unit),
            }
            self.free(slot, medium);
        }
        if ended.is_listed {
            medium.unlist(xid);
        }
        ended.changes.into_keys().collect()
    }

    fn free(&mut self, slot: Slot, medium: &mut impl Medium) {
        medium.free(slot);
        self.slots.release(slot);
    }

    fn free_slot(&mut self, medium: &mut impl Medium) -> Slot {
        if let Some(slot) = self.slots.take() {
            return slot;
        }
        self.has_been_full = true;
        self.replace(medium);
        self.slots.take().expect("a slot was freed")
    }

    /// Writes the page of the version that was used longest ago back to disk, with all its
    /// committed units.
    fn replace(&mut self, medium: &mut impl Medium) {
        let coldest = self.slots.coldest().expect("the PCM has more slots than transactions in progress hold");
        let page = self.granularity.page(self.slots.get(coldest).unit);
        let mapped = self.mapping.of_page(page).iter().copied();
        let leaving: Vec<(Unit, Slot)> = mapped.filter(|(_, slot)| self.slots.is_replaceable(*slot)).collect();
        let stored: Vec<Stored> = leaving.iter().map(|(_, slot)| *self.slots.get(*slot)).collect();
        medium.write_back(page, &stored, self.transactions.has_uncommitted(page));
        for (unit, slot) in leaving {
            self.mapping.remove(unit);
            self.free(slot, medium);
        }
    }
}

#[cfg(test)]
#[path = "buffer_tests.rs"]
mod tests;
