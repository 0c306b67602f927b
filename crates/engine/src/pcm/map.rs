//! Which page is in which slot, which slots are free, and which tuples are in others. In DRAM only:
//! recovery makes it anew.

use std::collections::{HashMap, HashSet};

use duramen_types::{Gsn, PageId};

use super::active::Xid;
use super::covers::CoversOfPage;
use super::layout::Slot;
use super::tuples::{Base, Tuples};

/// A page in the region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Held {
    pub(super) slot: Slot,
    /// The slots with more covers.
    pub(super) more: Vec<Slot>,
    pub(super) gsn: Gsn,
    /// The transactions that the page has covers of.
    pub(super) xids: Vec<Xid>,
    /// When the page was written or read last.
    used: u64,
}

/// A copy of a page that is to be written.
#[derive(Debug)]
struct Copy {
    gsn: Gsn,
    covers: CoversOfPage,
    /// Whether a later version has been here and has left for the data file meanwhile. The copy
    /// would be taken for the latest version. (What left with the same GSN may have been made of
    /// tuples, without the changes of transactions under way.)
    is_outdated: bool,
}

/// The map.
#[derive(Debug, Default)]
pub(super) struct Map {
    pages: HashMap<PageId, Held>,
    free: Vec<Slot>,
    /// Slots that have been replaced, but are not durably free.
    replaced: Vec<Slot>,
    /// Pages that were copied from their frames and are not written yet.
    in_flight: HashMap<PageId, Copy>,
    /// Pages that could not be read to leave, and are not tried again while others may leave.
    kept_back: HashSet<PageId>,
    pub(super) tuples: Tuples,
    time: u64,
}

impl Map {
    /// Returns the place of a page.
    pub(super) fn get(&self, page: PageId) -> Option<&Held> {
        self.pages.get(&page)
    }

    /// Returns the number of pages.
    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Notes that a page was read.
    pub(super) fn touch(&mut self, page: PageId) {
        self.time += 1;
        if let Some(held) = self.pages.get_mut(&page) {
            held.used = self.time;
        }
        self.tuples.touch(page, self.time);
    }

    /// Returns the time of the latest use of a page.
    pub(super) fn time(&self) -> u64 {
        self.time
    }

    /// Returns the number of free slots.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free slot.
    pub(super) fn take(&mut self) -> Option<Slot> {
        self.free.pop()
    }

    /// Notes that slots are durably free.
    pub(super) fn give(&mut self, slots: impl IntoIterator<Item = Slot>) {
        self.free.extend(slots);
    }

    /// Puts a page into a slot; `base` is what is known of it. Its slots until then are replaced,
    /// and those of tuples that are not later.
    pub(super) fn install(
        &mut self,
        page: PageId,
        slots: (Slot, Vec<Slot>),
        gsn: Gsn,
        xids: Vec<Xid>,
        base: Option<Base>,
    ) {
        self.time += 1;
        self.kept_back.remove(&page);
        let held = Held { slot: slots.0, more: slots.1, gsn, xids, used: self.time };
        if let Some(before) = self.pages.insert(page, held) {
            self.replaced.push(before.slot);
            self.replaced.extend(before.more);
        }
        let emptied = self.tuples.superseded(page, gsn, base);
        self.replaced.extend(emptied);
    }

    /// Notes slots that are to be freed durably before they are used again.
    pub(super) fn replace(&mut self, slots: impl IntoIterator<Item = Slot>) {
        self.replaced.extend(slots);
    }

    /// Returns whether slots have been replaced.
    pub(super) fn has_replaced(&self) -> bool {
        !self.replaced.is_empty()
    }

    /// Takes the slots that have been replaced.
    pub(super) fn take_replaced(&mut self) -> Vec<Slot> {
        std::mem::take(&mut self.replaced)
    }

    /// Notes that a copy of a page is to be written, with these covers.
    pub(super) fn announce(&mut self, page: PageId, gsn: Gsn, covers: CoversOfPage) {
        self.in_flight.insert(page, Copy { gsn, covers, is_outdated: false });
    }

    /// Returns the covers of a copy.
    pub(super) fn announced(&self, page: PageId) -> CoversOfPage {
        self.in_flight.get(&page).map(|copy| copy.covers.clone()).unwrap_or_default()
    }

    /// Returns whether this version of a page is later than all that were written.
    pub(super) fn is_new(&self, page: PageId, gsn: Gsn) -> bool {
        let is_outdated = self.in_flight.get(&page).is_some_and(|copy| copy.is_outdated && copy.gsn == gsn);
        !is_outdated && self.pages.get(&page).is_none_or(|held| held.gsn < gsn)
    }

    /// Returns whether a copy of a page is to be written.
    pub(super) fn is_in_flight(&self, page: PageId) -> bool {
        self.in_flight.contains_key(&page)
    }

    /// Notes that all copies are written.
    pub(super) fn end_announcements(&mut self) {
        self.in_flight.clear();
    }

    /// Returns whether a thread reads a leaf that has tuples, which cannot leave meanwhile.
    pub(super) fn is_read(&self) -> bool {
        self.tuples.overlays().any(|(page, _)| !self.tuples.may_leave(*page))
    }

    /// Notes that a page cannot leave, because reading it failed.
    pub(super) fn keep_back(&mut self, page: PageId) {
        self.kept_back.insert(page);
    }

    /// Notes that a page was read after all.
    pub(super) fn keep_back_no_longer(&mut self, page: PageId) {
        self.kept_back.remove(&page);
    }

    /// Lets all pages be tried again that could not leave.
    pub(super) fn keep_none_back(&mut self) {
        self.kept_back.clear();
    }

    /// Returns the coldest pages that may leave and are not kept back: up to `count` that are in
    /// slots, without a cover of an active transaction, and up to `overlays` that have nothing but
    /// tuples here.
    pub(super) fn coldest(
        &self,
        count: usize,
        overlays: usize,
        is_active: impl Fn(Xid) -> bool,
    ) -> Vec<(PageId, Option<Held>)> {
        let may_leave = |page: &PageId| self.tuples.may_leave(*page) && !self.kept_back.contains(page);
        let has_ended = |held: &Held| !held.xids.iter().any(|xid| is_active(*xid));
        let in_slots = self.pages.iter().filter(|(page, held)| may_leave(page) && has_ended(held));
        let in_slots = in_slots.map(|(page, held)| (held.used, *page));
        let is_alone = |page: &PageId| may_leave(page) && !self.pages.contains_key(page);
        let in_cells = self.tuples.overlays().filter(|(page, _)| is_alone(page));
        let in_cells = in_cells.map(|(page, overlay)| (overlay.used, *page));
        let mut pages: Vec<(u64, PageId)> =
            if overlays > 0 { in_slots.chain(in_cells).collect() } else { in_slots.collect() };
        if pages.len() > count && count > 0 {
            pages.select_nth_unstable(count - 1);
            pages.truncate(count);
        }
        pages.sort_unstable();
        let mut left = overlays;
        let mut coldest: Vec<(PageId, Option<Held>)> = Vec::new();
        for (_, page) in pages {
            let held = self.pages.get(&page).cloned();
            if held.is_none() {
                let Some(fewer) = left.checked_sub(1) else { continue };
                left = fewer;
            }
            coldest.push((page, held));
        }
        coldest.sort_unstable_by_key(|(page, _)| *page);
        coldest
    }

    /// Removes a page that is durable in the data file with this GSN, if it is still in this slot;
    /// returns its slots. Slots that are without tuples now are replaced: they are freed after the
    /// page's, because the page counts without them.
    pub(super) fn remove(&mut self, page: PageId, slot: Slot, gsn: Gsn, base: Option<Base>) -> Vec<Slot> {
        if self.pages.get(&page).is_none_or(|held| held.slot != slot) {
            return Vec::new();
        }
        let held = self.pages.remove(&page).expect("it was just found");
        if let Some(copy) = self.in_flight.get_mut(&page) {
            copy.is_outdated |= copy.gsn < gsn;
        }
        let emptied = self.tuples.superseded(page, gsn, base);
        self.replaced.extend(emptied);
        std::iter::once(held.slot).chain(held.more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cold_pages_without_active_transactions_leave() {
        let mut map = Map::default();
        map.give((0..6).map(Slot));
        for page in 1..4 {
            let slot = map.take().unwrap();
            let xids = if page == 2 { vec![Xid(7)] } else { Vec::new() };
            map.install(PageId::new(page), (slot, Vec::new()), Gsn::new(page), xids, None);
        }
        map.touch(PageId::new(1));
        let coldest = |map: &Map, active: u64| -> Vec<u64> {
            map.coldest(1, 0, |xid| xid.0 == active).iter().map(|(page, _)| page.get()).collect()
        };
        assert_eq!(coldest(&map, 7), [3]);
        assert_eq!(coldest(&map, 8), [2]);
        let slot = map.get(PageId::new(3)).unwrap().slot;
        assert_eq!(map.remove(PageId::new(3), Slot(99), Gsn::new(3), None), []);
        assert_eq!(map.remove(PageId::new(3), slot, Gsn::new(3), None), [slot]);
        assert_eq!(coldest(&map, 7), [1]);
        assert_eq!((map.free(), map.pages()), (3, 2));
    }

    #[test]
    fn a_copy_is_outdated_when_a_later_version_has_left() {
        let page = PageId::new(1);
        for (written, is_new) in [(4, true), (5, true), (6, false)] {
            let mut map = Map::default();
            map.announce(page, Gsn::new(5), CoversOfPage::default());
            map.install(page, (Slot(1), Vec::new()), Gsn::new(written), Vec::new(), None);
            assert_eq!(map.is_new(page, Gsn::new(5)), written < 5, "{written}");
            assert_eq!(map.remove(page, Slot(1), Gsn::new(written), None), [Slot(1)]);
            assert_eq!(map.is_new(page, Gsn::new(5)), is_new, "{written}");
            assert!(map.is_new(page, Gsn::new(7)));
            map.end_announcements();
            assert!(map.is_new(page, Gsn::new(5)));
        }
    }

    #[test]
    fn the_slots_of_an_earlier_version_are_replaced() {
        let mut map = Map::default();
        map.install(PageId::new(1), (Slot(1), vec![Slot(2)]), Gsn::new(1), Vec::new(), None);
        map.install(PageId::new(1), (Slot(3), Vec::new()), Gsn::new(2), Vec::new(), None);
        assert_eq!(map.take_replaced(), [Slot(1), Slot(2)]);
        assert_eq!(map.take_replaced(), []);
    }
}
