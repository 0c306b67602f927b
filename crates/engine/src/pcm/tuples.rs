//! Which tuples are in the region, and what is known of the leaves that they belong to. In DRAM
//! only: recovery makes it anew.
//!
//! The *base* of a leaf is its version in a slot or, if there is none, in the data file. The leaf
//! is its base with all its tuples of higher GSN put into it: its *overlay*. An overlay always
//! fits: tuples are stored only as long as the base has space for all that the overlay may add to
//! it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use duramen_types::{Gsn, PAGE_SIZE, PageId};

use super::cell::{Cell, Class};
use super::layout::Slot;
use crate::page::{self, Node, PageType};

/// The latest tuple of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldTuple {
    pub(super) cell: Cell,
    pub(super) gsn: Gsn,
    /// Length of the key's value in the base, if the base has the key and this is known.
    pub(super) len_in_base: Option<usize>,
    /// Bytes that the tuple may add to the base.
    pub(super) growth: usize,
}

/// The tuples of a leaf.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    pub(super) tuples: BTreeMap<Vec<u8>, HeldTuple>,
    /// When the leaf was written or read last.
    pub(super) used: u64,
    /// Threads that have read the base, or are about to.
    readers: u32,
    /// Whether all tuples are known to be later than the base: recovery does not know the base.
    pub(super) is_known: bool,
}

impl Overlay {
    fn growth(&self) -> usize {
        self.tuples.values().map(|held| held.growth).sum()
    }
}

/// What is known of the base of a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Base {
    pub(super) gsn: Gsn,
    /// Bytes that are free in it.
    free: usize,
}

impl Base {
    /// Returns what there is to know of a page, if it is a leaf.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let is_leaf = page::page_type(bytes) == Some(PageType::Leaf);
        is_leaf.then(|| Self { gsn: page::gsn(bytes), free: Node(bytes).free_space().min(PAGE_SIZE) })
    }
}

/// A slot that is divided into cells.
#[derive(Debug)]
struct Carved {
    class: Class,
    carving: Gsn,
    free: BTreeSet<u16>,
}

impl Carved {
    fn live(&self) -> usize {
        usize::from(self.class.cells()) - self.free.len()
    }
}

/// The tuples in the region.
#[derive(Debug, Default)]
pub(super) struct Tuples {
    carved: HashMap<Slot, Carved>,
    /// Slots with free cells.
    open: [BTreeSet<Slot>; Class::COUNT],
    /// Free cells.
    free: [usize; Class::COUNT],
    overlays: HashMap<PageId, Overlay>,
    bases: HashMap<PageId, Base>,
    /// Leaves that were changed in a way that no tuple tells, each with its GSN then.
    altered: HashMap<PageId, Gsn>,
    /// Leaves that are going to the data file.
    leaving: HashSet<PageId>,
}

impl Tuples {
    /// Returns the number of tuples.
    pub(super) fn count(&self) -> usize {
        self.overlays.values().map(|overlay| overlay.tuples.len()).sum()
    }

    /// Returns the number of slots with tuples.
    pub(super) fn slots(&self) -> usize {
        self.carved.len()
    }

    pub(super) fn overlay(&self, leaf: PageId) -> Option<&Overlay> {
        self.overlays.get(&leaf)
    }

    pub(super) fn overlays(&self) -> impl Iterator<Item = (&PageId, &Overlay)> {
        self.overlays.iter()
    }

    // ----- cells -----

    /// Notes that a slot is divided into cells, all of them free.
    pub(super) fn add_slot(&mut self, slot: Slot, class: Class, carving: Gsn) {
        self.carved.insert(slot, Carved { class, carving, free: (0..class.cells()).collect() });
        self.open[class.index()].insert(slot);
        self.free[class.index()] += usize::from(class.cells());
    }

    /// Returns how many cells of a class are free.
    pub(super) fn free_cells(&self, class: Class) -> usize {
        self.free[class.index()]
    }

    /// Takes a free cell.
    pub(super) fn take(&mut self, class: Class) -> Option<Cell> {
        let slot = *self.open[class.index()].first()?;
        let carved = self.carved.get_mut(&slot).expect("it is open");
        let number = carved.free.pop_first().expect("an open slot has a free cell");
        if carved.free.is_empty() {
            self.open[class.index()].remove(&slot);
        }
        self.free[class.index()] -= 1;
        Some(Cell { slot, class, number, carving: carved.carving })
    }

    /// Takes a certain cell, which is free.
    pub(super) fn occupy(&mut self, cell: Cell) {
        let carved = self.carved.get_mut(&cell.slot).expect("the slot was added");
        assert!(carved.free.remove(&cell.number), "a cell is taken once");
        if carved.free.is_empty() {
            self.open[cell.class.index()].remove(&cell.slot);
        }
        self.free[cell.class.index()] -= 1;
    }

    /// Gives back a cell; returns its slot if no cell of it is in use any more. It is no slot with
    /// tuples then.
    pub(super) fn give(&mut self, cell: Cell) -> Option<Slot> {
        let carved = self.carved.get_mut(&cell.slot).expect("the slot was added");
        assert!(carved.free.insert(cell.number), "a cell is given back once");
        self.free[cell.class.index()] += 1;
        if carved.live() > 0 {
            self.open[cell.class.index()].insert(cell.slot);
            return None;
        }
        self.remove_slot(cell.slot);
        Some(cell.slot)
    }

    fn remove_slot(&mut self, slot: Slot) {
        let carved = self.carved.remove(&slot).expect("the slot was added");
        self.open[carved.class.index()].remove(&slot);
        self.free[carved.class.index()] -= carved.free.len();
    }

    /// Returns the slot with the fewest tuples of those that can be emptied into the free cells of
    /// other slots.
    pub(super) fn sparsest(&self) -> Option<(Slot, Class)> {
        let emptied = |(slot, carved): (&Slot, &Carved)| {
            let elsewhere = self.free_cells(carved.class) - carved.free.len();
            (carved.live() <= elsewhere).then_some((carved.live() * carved.class.bytes(), *slot, carved.class))
        };
        self.carved.iter().filter_map(emptied).min().map(|(_, slot, class)| (slot, class))
    }

    /// Returns the cells of a slot that are in use.
    pub(super) fn cells_of(&self, slot: Slot) -> Vec<Cell> {
        let Carved { class, carving, free } = &self.carved[&slot];
        let used = (0..class.cells()).filter(|number| !free.contains(number));
        used.map(|number| Cell { slot, class: *class, number, carving: *carving }).collect()
    }

    /// Takes cells of other slots for this many tuples of a slot, which is none with tuples from
    /// now on.
    pub(super) fn move_out(&mut self, slot: Slot, class: Class, count: usize) -> Vec<Cell> {
        self.remove_slot(slot);
        (0..count).map(|_| self.take(class).expect("other slots have enough free cells")).collect()
    }

    /// Returns whether the tuple in a cell is the latest of its key.
    pub(super) fn is_latest(&self, leaf: PageId, key: &[u8], cell: Cell) -> bool {
        self.held(leaf, key).is_some_and(|held| held.cell == cell)
    }

    /// Notes that a tuple is in another cell now.
    pub(super) fn moved(&mut self, leaf: PageId, key: &[u8], to: Cell) {
        let held = self.overlays.get_mut(&leaf).and_then(|overlay| overlay.tuples.get_mut(key));
        held.expect("it was just found").cell = to;
    }

    // ----- leaves -----

    /// Returns the base of a leaf, if it is known.
    pub(super) fn base(&self, leaf: PageId) -> Option<Base> {
        self.bases.get(&leaf).copied()
    }

    /// Notes the base of a leaf. The map forgets bases without tuples when there are many of them.
    pub(super) fn set_base(&mut self, leaf: PageId, base: Option<Base>) {
        const MANY: usize = 1 << 20;
        if self.bases.len() > MANY.max(2 * self.overlays.len()) {
            let overlays = &self.overlays;
            self.bases.retain(|leaf, _| overlays.contains_key(leaf));
        }
        match base {
            Some(base) => self.bases.insert(leaf, base),
            None => self.bases.remove(&leaf),
        };
    }

    /// Notes that a leaf was changed in a way that no tuple tells.
    pub(super) fn alter(&mut self, leaf: PageId, gsn: Gsn) {
        let latest = self.altered.entry(leaf).or_default();
        *latest = gsn.max(*latest);
    }

    /// Notes that a leaf is durable as it was in its frame when it had this GSN.
    pub(super) fn stored_whole(&mut self, leaf: PageId, gsn: Gsn) {
        if self.altered.get(&leaf).is_some_and(|altered| *altered <= gsn) {
            self.altered.remove(&leaf);
        }
    }

    pub(super) fn is_altered(&self, leaf: PageId) -> bool {
        self.altered.contains_key(&leaf)
    }

    /// Notes that a page is durable with this GSN; returns slots that are without tuples now.
    pub(super) fn superseded(&mut self, page: PageId, gsn: Gsn, base: Option<Base>) -> Vec<Slot> {
        self.set_base(page, base);
        let Some(overlay) = self.overlays.get_mut(&page) else { return Vec::new() };
        let mut cells = Vec::new();
        overlay.tuples.retain(|_, held| {
            let is_later = held.gsn > gsn;
            if !is_later {
                cells.push(held.cell);
            }
            // The base is another one now: no more is known than that the tuple fits its cell.
            (held.len_in_base, held.growth) = (None, held.cell.class.bytes());
            is_later
        });
        if overlay.tuples.is_empty() && overlay.readers == 0 {
            self.overlays.remove(&page);
        }
        cells.into_iter().filter_map(|cell| self.give(cell)).collect()
    }

    /// Notes the latest tuple of a key. Returns the slot of the tuple until now, if that is without
    /// tuples now.
    pub(super) fn put(&mut self, leaf: PageId, key: Vec<u8>, held: HeldTuple, time: u64) -> Option<Slot> {
        let overlay = self.overlays.entry(leaf).or_insert_with(|| Overlay { is_known: true, ..Overlay::default() });
        overlay.used = time;
        let before = overlay.tuples.insert(key, held)?;
        self.give(before.cell)
    }

    /// Notes a tuple that recovery has found.
    pub(super) fn found(&mut self, leaf: PageId, key: Vec<u8>, held: HeldTuple) {
        self.overlays.entry(leaf).or_default().tuples.insert(key, held);
    }

    /// Returns whether the base has space for these tuples too: each with its key, the growth of
    /// its own, and that of the tuple that it replaces.
    pub(super) fn has_space(&self, leaf: PageId, more: usize, replaced: usize) -> bool {
        let growth = self.overlays.get(&leaf).map_or(0, Overlay::growth);
        let free = self.bases.get(&leaf).map_or(0, |base| base.free);
        growth + more - replaced <= free
    }

    pub(super) fn held(&self, leaf: PageId, key: &[u8]) -> Option<&HeldTuple> {
        self.overlays.get(&leaf)?.tuples.get(key)
    }

    /// Replaces what is known of the tuples of a leaf: their growth on its base.
    pub(super) fn set_overlay(&mut self, leaf: PageId, tuples: BTreeMap<Vec<u8>, HeldTuple>) {
        let Some(overlay) = self.overlays.get_mut(&leaf) else { return };
        overlay.tuples = tuples;
        overlay.is_known = true;
    }

    pub(super) fn touch(&mut self, leaf: PageId, time: u64) {
        if let Some(overlay) = self.overlays.get_mut(&leaf) {
            overlay.used = time;
        }
    }

    // ----- readers -----

    /// Notes that a thread is about to read the base of a leaf; returns whether the leaf has
    /// tuples.
    pub(super) fn begin_reading(&mut self, leaf: PageId) -> bool {
        self.overlays.get_mut(&leaf).map(|overlay| overlay.readers += 1).is_some()
    }

    /// Ends what [`Tuples::begin_reading`] has begun.
    pub(super) fn end_reading(&mut self, leaf: PageId) {
        let overlay = self.overlays.get_mut(&leaf).expect("an overlay that is read stays");
        overlay.readers -= 1;
        if overlay.readers == 0 && overlay.tuples.is_empty() {
            self.overlays.remove(&leaf);
        }
    }

    /// Returns whether no thread reads the base of the leaf.
    pub(super) fn may_leave(&self, leaf: PageId) -> bool {
        self.overlays.get(&leaf).is_none_or(|overlay| overlay.readers == 0)
    }

    pub(super) fn set_leaving(&mut self, leaves: impl IntoIterator<Item = PageId>) {
        self.leaving = leaves.into_iter().filter(|leaf| self.overlays.contains_key(leaf)).collect();
    }

    pub(super) fn is_leaving(&self, leaf: PageId) -> bool {
        self.leaving.contains(&leaf)
    }
}
