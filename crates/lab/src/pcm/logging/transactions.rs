//! The transaction table: what each transaction in progress has changed, and where the changes are
//! (PCMLogging, section 3.2).

use std::collections::{BTreeMap, HashMap};

use super::medium::{Granularity, Unit, Version};
use crate::pcm::scheme::Xid;
use crate::pcm::trace::Page;

/// Where a transaction's change of a unit is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Change {
    /// What is only in DRAM.
    pub(super) in_dram: Option<Version>,
    /// Whether the PCM has a version of this transaction.
    pub(super) in_pcm: bool,
}

/// A transaction in progress.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// Whether it is in the list of active transactions in the PCM.
    pub(super) is_listed: bool,
    pub(super) changes: BTreeMap<Unit, Change>,
}

/// The transactions in progress that have changed something.
#[derive(Debug)]
pub(super) struct Transactions {
    granularity: Granularity,
    running: HashMap<Xid, Running>,
    /// Of each page with uncommitted units, how many it has.
    uncommitted: HashMap<Page, u32>,
}

impl Transactions {
    pub(super) fn new(granularity: Granularity) -> Self {
        Self { granularity, running: HashMap::new(), uncommitted: HashMap::new() }
    }

    /// Notes that `xid` changed `unit` in DRAM.
    pub(super) fn changed(&mut self, xid: Xid, unit: Unit, version: Version) {
        let changes = &mut self.running.entry(xid).or_default().changes;
        if !changes.contains_key(&unit) {
            *self.uncommitted.entry(self.granularity.page(unit)).or_default() += 1;
        }
        changes.entry(unit).or_default().in_dram = Some(version);
    }

    /// Notes that the change of `unit` moves to the PCM; returns it, and whether the transaction
    /// must be listed first.
    pub(super) fn moves_to_pcm(&mut self, xid: Xid, unit: Unit) -> (Version, bool) {
        let running = self.running.get_mut(&xid).expect("it has changed something");
        let change = running.changes.get_mut(&unit).expect("it has changed the unit");
        change.in_pcm = true;
        let version = change.in_dram.take().expect("the change is in DRAM only");
        (version, !std::mem::replace(&mut running.is_listed, true))
    }

    /// Returns the changes of `xid` that are only in DRAM.
    pub(super) fn in_dram(&self, xid: Xid) -> Vec<Unit> {
        let changes = self.running.get(&xid).into_iter().flat_map(|running| &running.changes);
        changes.filter(|(_, change)| change.in_dram.is_some()).map(|(unit, _)| *unit).collect()
    }

    /// Returns the changes of `page` that are only in DRAM.
    pub(super) fn in_dram_of(&self, page: Page) -> Vec<(Xid, Unit)> {
        if !self.has_uncommitted(page) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (xid, running) in &self.running {
            let of_page = running.changes.iter().filter(|(unit, _)| self.granularity.page(**unit) == page);
            found.extend(of_page.filter(|(_, change)| change.in_dram.is_some()).map(|(unit, _)| (*xid, *unit)));
        }
        found.sort_unstable();
        found
    }

    /// Returns whether transactions in progress have changed `page`.
    pub(super) fn has_uncommitted(&self, page: Page) -> bool {
        self.uncommitted.contains_key(&page)
    }

    /// Returns whether `xid` is in progress and has changes in the PCM.
    pub(super) fn has_stored(&self, xid: Xid) -> bool {
        self.running.get(&xid).is_some_and(|running| running.is_listed)
    }

    /// Ends a transaction and returns what it did; nothing if it only read.
    pub(super) fn end(&mut self, xid: Xid) -> Option<Running> {
        let running = self.running.remove(&xid)?;
        for unit in running.changes.keys() {
            let page = self.granularity.page(*unit);
            let count = self.uncommitted.get_mut(&page).expect("the unit was counted");
            *count -= 1;
            if *count == 0 {
                self.uncommitted.remove(&page);
            }
        }
        Some(running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_known_by_transaction_and_by_page() {
        let mut table = Transactions::new(Granularity::Tuple);
        let (one, two) = (Xid::new(1), Xid::new(2));
        table.changed(one, Unit(1), Version(10));
        table.changed(one, Unit(64), Version(11));
        table.changed(two, Unit(0), Version(12));
        table.changed(one, Unit(1), Version(13));
        assert_eq!(table.in_dram(one), [Unit(1), Unit(64)]);
        assert_eq!(table.in_dram_of(Page::new(0)), [(one, Unit(1)), (two, Unit(0))]);
        assert_eq!(table.moves_to_pcm(one, Unit(1)), (Version(13), true), "it is not listed yet");
        assert_eq!(table.moves_to_pcm(one, Unit(64)), (Version(11), false));
        assert_eq!(table.in_dram(one), []);
        assert!(table.has_stored(one) && !table.has_stored(two));
        assert_eq!(table.in_dram_of(Page::new(0)), [(two, Unit(0))]);
        let ended = table.end(one).unwrap();
        assert!(ended.is_listed && ended.changes[&Unit(1)] == Change { in_dram: None, in_pcm: true });
        assert!(table.has_uncommitted(Page::new(0)) && !table.has_uncommitted(Page::new(1)));
        assert!(!table.end(two).unwrap().is_listed && table.end(two).is_none());
        assert!(table.uncommitted.is_empty() && table.running.is_empty());
    }
}
