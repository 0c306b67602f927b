//! What a page tier knows of its slots: which page is where, and which page was used least
//! recently.
//!
//! A slot is in one of four states:
//! - *current*: it holds the newest durable version of a page. Reads of the page go there.
//! - *old*: it is free, but still holds a version of a page. After a crash this version would be
//!   found again.
//! - *blank*: it is free and holds no page.
//! - *unreadable*: it may hold a page, and is left alone until the tier is opened again.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use duramen_types::PageId;

use super::run::span;
use super::slots::{Contents, Found, Slot};
use crate::hash::BuildNumberHasher;

type ByPage<T> = HashMap<PageId, T, BuildNumberHasher>;

/// The contents of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holds {
    Nothing,
    Current(PageId),
    Old(PageId),
    Unreadable,
}

/// Where a page is, and when it was used.
#[derive(Clone, Copy, Debug)]
struct Place {
    slot: Slot,
    /// Place in the order of use.
    used: u64,
}

/// The pages and the slots of a tier.
#[derive(Debug)]
pub(super) struct Map {
    slots: Vec<Holds>,
    current: ByPage<Place>,
    /// Pages in the order of their last use, except for those that are kept back.
    order: BTreeMap<u64, PageId>,
    uses: u64,
    /// Slots that are not current. The one that has been free the longest is used first, so that
    /// old versions do not stay for long.
    free: VecDeque<Slot>,
    /// The old slots of each page.
    old: ByPage<Vec<Slot>>,
}

impl Map {
    /// Creates the map of a tier with `count` slots in which this was found. Versions for which
    /// `is_old` do not count. Of several others, `is_newer(a, b)` says whether `a` counts
    /// rather than `b`.
    pub(super) fn new(
        count: u32,
        found: &Contents,
        is_old: impl Fn(&Found) -> bool,
        is_newer: impl Fn(&Found, &Found) -> bool,
    ) -> Self {
        let mut newest: ByPage<Found> = ByPage::default();
        for version in found.pages.iter().filter(|version| !is_old(version)) {
            let entry = newest.entry(version.page).or_insert(*version);
            if is_newer(version, entry) {
                *entry = *version;
            }
        }
        let mut map = Self {
            slots: vec![Holds::Nothing; count as usize],
            current: ByPage::default(),
            order: BTreeMap::new(),
            uses: 0,
            free: VecDeque::new(),
            old: ByPage::default(),
        };
        for version in &found.pages {
            if newest.get(&version.page).is_some_and(|newest| newest.slot == version.slot) {
                map.set_current(version.page, version.slot);
            } else {
                map.set_old(version.page, version.slot);
            }
        }
        found.unreadable.iter().for_each(|slot| map.slots[*slot as usize] = Holds::Unreadable);
        let is_free = |slot: &Slot| !matches!(map.slots[*slot as usize], Holds::Current(_) | Holds::Unreadable);
        map.free = (0..count).filter(is_free).collect();
        map
    }

    /// Returns the slot of a page.
    pub(super) fn slot(&self, page: PageId) -> Option<Slot> {
        Some(self.current.get(&page)?.slot)
    }

    /// Notes that the page is used.
    pub(super) fn touch(&mut self, page: PageId) {
        if let Some(place) = self.current.get_mut(&page) {
            self.order.remove(&place.used);
            place.used = self.uses;
            self.order.insert(self.uses, page);
            self.uses += 1;
        }
    }

    /// Returns the number of pages in the tier.
    pub(super) fn pages(&self) -> usize {
        self.current.len()
    }

    /// Returns a slot that could not be read when the tier was opened.
    pub(super) fn unreadable(&self) -> Option<Slot> {
        self.slots.iter().position(|slot| matches!(slot, Holds::Unreadable)).map(|slot| slot as Slot)
    }

    /// Returns the number of slots that are not unreadable.
    pub(super) fn usable(&self) -> usize {
        self.current.len() + self.free.len()
    }

    /// Returns the number of free slots.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free slot; `None` if there is none. What it holds is about to be overwritten.
    pub(super) fn take(&mut self) -> Option<Slot> {
        let slot = self.free.pop_front()?;
        self.blank(slot);
        Some(slot)
    }

    /// Notes that a slot that was taken holds the newest version of the page, durably. The page's
    /// slot until then is free.
    pub(super) fn install(&mut self, page: PageId, slot: Slot) {
        self.release(page);
        self.set_current(page, slot);
    }

    /// Returns up to `count` pages that were used least recently, with their slots, in the order of
    /// their numbers.
    pub(super) fn coldest(&self, count: usize) -> Vec<(PageId, Slot)> {
        let mut pages: Vec<_> = self.order.values().take(count).map(|page| (*page, self.current[page].slot)).collect();
        pages.sort_unstable();
        pages
    }

    /// Returns the pages of as many runs of `run` pages as fit into `most` pages, with what lies
    /// between: those of the pages that were used least recently, but always one run. Pages that
    /// are kept back do not count.
    pub(super) fn coldest_runs(&self, most: usize, run: u64) -> Vec<(PageId, Slot)> {
        let (mut runs, mut pages, mut spanned) = (BTreeSet::new(), Vec::new(), 0);
        for page in self.order.values() {
            let number = page.get() / run;
            if !runs.insert(number) {
                continue;
            }
            let before = pages.len();
            pages.extend((number * run..(number + 1) * run).map(PageId::new).filter_map(|page| {
                let place = self.current.get(&page)?;
                self.order.contains_key(&place.used).then_some((page, place.slot))
            }));
            spanned += span(&pages[before..]);
            if spanned > most && before > 0 {
                pages.truncate(before);
                break;
            }
        }
        pages.sort_unstable();
        pages
    }

    /// Takes the page out of the order of use until it is used again.
    pub(super) fn keep_back(&mut self, page: PageId) {
        if let Some(place) = self.current.get(&page) {
            self.order.remove(&place.used);
        }
    }

    /// Puts all pages that were kept back into the order of use.
    pub(super) fn keep_none_back(&mut self) {
        let pages: Vec<PageId> = self.current.keys().copied().collect();
        pages.into_iter().for_each(|page| self.touch(page));
    }

    /// Returns the old slots of these pages.
    pub(super) fn old_slots(&self, pages: &[(PageId, Slot)]) -> Vec<Slot> {
        pages.iter().filter_map(|(page, _)| self.old.get(page)).flatten().copied().collect()
    }

    /// Notes that free slots hold nothing any more.
    pub(super) fn erased(&mut self, slots: &[Slot]) {
        slots.iter().for_each(|slot| self.blank(*slot));
    }

    /// Frees the slot of a page, which becomes old.
    pub(super) fn release(&mut self, page: PageId) {
        if let Some(place) = self.current.remove(&page) {
            self.order.remove(&place.used);
            self.set_old(page, place.slot);
            self.free.push_back(place.slot);
        }
    }

    fn set_current(&mut self, page: PageId, slot: Slot) {
        self.slots[slot as usize] = Holds::Current(page);
        self.current.insert(page, Place { slot, used: self.uses });
        self.order.insert(self.uses, page);
        self.uses += 1;
    }

    fn set_old(&mut self, page: PageId, slot: Slot) {
        self.slots[slot as usize] = Holds::Old(page);
        self.old.entry(page).or_default().push(slot);
    }

    fn blank(&mut self, slot: Slot) {
        if let Holds::Old(page) = std::mem::replace(&mut self.slots[slot as usize], Holds::Nothing) {
            let slots = self.old.get_mut(&page).expect("an old slot is listed");
            slots.retain(|other| *other != slot);
            if slots.is_empty() {
                self.old.remove(&page);
            }
        }
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;
    use duramen_types::Gsn;

    fn page(number: u64) -> PageId {
        PageId::new(number)
    }

    fn newer(a: &Found, b: &Found) -> bool {
        a.gsn > b.gsn
    }

    fn contents(pages: &[Found]) -> Contents {
        Contents { pages: pages.to_vec(), unreadable: Vec::new() }
    }

    #[test]
    fn the_newest_version_counts_and_the_others_are_old() {
        let version = |slot, id, gsn| Found { slot, page: page(id), gsn: Gsn::new(gsn) };
        let found = [version(0, 7, 10), version(2, 7, 30), version(3, 7, 20), version(4, 8, 5)];
        let map = Map::new(5, &contents(&found), |_| false, newer);
        assert_eq!((map.slot(page(7)), map.slot(page(8)), map.slot(page(9))), (Some(2), Some(4), None));
        assert_eq!((map.pages(), map.free()), (2, 3));
        assert_eq!(map.old_slots(&[(page(7), 2), (page(8), 4)]), [0, 3]);
        let map = Map::new(5, &contents(&found), |version| version.gsn.get() < 10, newer);
        assert_eq!((map.slot(page(8)), map.old_slots(&[(page(8), 4)])), (None, vec![4]));
    }

    #[test]
    fn a_slot_that_is_reused_or_erased_is_no_longer_old() {
        let mut map = Map::new(3, &contents(&[]), |_| false, newer);
        for _ in 0..3 {
            let slot = map.take().unwrap();
            map.install(page(1), slot);
        }
        assert_eq!((map.slot(page(1)), map.old_slots(&[(page(1), 2)])), (Some(2), vec![0, 1]));
        assert_eq!(map.take(), Some(0));
        assert_eq!(map.old_slots(&[(page(1), 2)]), [1]);
        map.erased(&[1]);
        assert!(map.old_slots(&[(page(1), 2)]).is_empty());
        assert_eq!((map.take(), map.take()), (Some(1), None));
    }

    #[test]
    fn a_page_that_is_kept_back_is_the_last_to_leave() {
        let mut map = Map::new(3, &contents(&[]), |_| false, newer);
        for number in [5, 3] {
            let slot = map.take().unwrap();
            map.install(page(number), slot);
        }
        map.keep_back(page(5));
        assert_eq!((map.coldest(9), map.slot(page(5))), (vec![(page(3), 1)], Some(0)));
        map.keep_none_back();
        assert_eq!(map.coldest(9).len(), 2);
        map.keep_back(page(3));
        map.release(page(3));
        assert_eq!((map.coldest(9), map.free()), (vec![(page(5), 0)], 2));
    }

    #[test]
    fn the_coldest_pages_leave_first() {
        let mut map = Map::new(4, &contents(&[]), |_| false, newer);
        for number in [5, 3, 9, 1] {
            let slot = map.take().unwrap();
            map.install(page(number), slot);
        }
        map.touch(page(5));
        map.touch(page(7));
        assert_eq!(map.coldest(2), [(page(3), 1), (page(9), 2)]);
        map.release(page(3));
        assert_eq!((map.coldest(9).len(), map.free(), map.old_slots(&[(page(3), 1)])), (3, 1, vec![1]));
    }
}
