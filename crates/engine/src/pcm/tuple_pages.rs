//! Leaves whose latest changes are tuples in the region.
//!
//! With [`Granularity::Tuple`], a transaction that ends stores the records that it has changed,
//! each in a cell of its own, instead of the leaves that they are in (section 3.3 of the paper).
//! The leaves stay dirty in their frames, and are dropped when the pool needs these: the tuples are
//! put into a leaf when it is read again. When slots are needed, the leaves of the coldest tuples
//! are read, and go to the data file with their tuples.
//!
//! A read of one record that has a tuple needs no leaf: the tuple serves it.
//!
//! # When a leaf is stored as a page
//! - A transaction under way has changed it, and the pool needs its frame. Its slot has covers
//!   then.
//! - It belongs to a structure change.
//! - Ghosts were removed from it ([`Tuples::alter`]), and the pool needs its frame: no tuple tells
//!   that, and with the ghost the gaps that transactions have locked would change.
//! - Its base has got the GSN of the tuple to be stored, by a tuple of another transaction; or a
//!   copy of the leaf is just about to become its base.
//! - Its base has no space for all that its tuples add to it. So the tuples of a leaf fit into its
//!   base, whatever else was in the leaf.
//! - The tuples would take more space than the page, or one of them fits no cell.
//!
//! # Why it is right
//! - A tuple has the GSN of its leaf when it was stored, and counts for bases of lower GSNs only. A
//!   base has all changes up to its GSN, except that one which was made by putting tuples into the
//!   base before it lacks the changes of transactions that were under way then, and the removal of
//!   ghosts: the leaf in the frame has those, and is stored as a page later. So a tuple that is
//!   left over from an earlier base does no harm, and a cell can be used again without being erased
//!   before.
//! - The cell of a tuple is free when a later tuple of its key, or a later base, is durable and
//!   counts: when the number of the transaction that has stored it has been replaced.
//! - Of several tuples of a key the one with the highest GSN counts: one transaction at a time has
//!   the key, and its leaf gets a higher GSN with each change.
//! - The key of a tuple lies within the fences of its leaf: what moves keys to other leaves is a
//!   structure change, which gives all these leaves new bases.
//!
//! [`Tuples::alter`]: super::tuples::Tuples::alter
//! [`Granularity::Tuple`]: crate::options::Granularity::Tuple

use std::collections::BTreeMap;

use duramen_io::AlignedBuf;
use duramen_sync::atomic::Ordering;
use duramen_types::{Gsn, PAGE_SIZE, PageId, planted};

use super::active::Xid;
use super::cell::{Cell, Class, Tuple};
use super::content::Content;
use super::covers::{ChangedKey, CoversOfPage};
use super::image::Image;
use super::layout::SLOT_BYTES;
use super::map::{Held, Map};
use super::overlay;
use super::pages::{PcmPages, Storing};
use super::tuples::{Base, HeldTuple};
use crate::page::{self, Node, PageType, SlotFlags};
use crate::pool::{PageStore, PoolError, TupleStore};

/// The records of a leaf that a transaction has changed, as they are when it ends.
#[derive(Debug)]
pub(crate) struct ChangedLeaf {
    leaf: PageId,
    gsn: Gsn,
    records: Vec<(ChangedKey, Content)>,
}

impl ChangedLeaf {
    /// Reads records of a leaf, which the caller holds latched. Leaves those in `keys` that are not
    /// in the leaf any more, because a structure change has moved them.
    pub(crate) fn read(bytes: &[u8], keys: &mut Vec<ChangedKey>) -> Self {
        let (leaf, gsn) = (page::page_id(bytes), page::gsn(bytes));
        let is_here = |key: &ChangedKey| {
            page::page_type(bytes) == Some(PageType::Leaf)
                && page::table_id(bytes) == key.table
                && Node(bytes).contains(&key.key)
        };
        let (here, moved) = std::mem::take(keys).into_iter().partition(is_here);
        *keys = moved;
        let here: Vec<ChangedKey> = here;
        let records = here.into_iter().map(|key| {
            let content = Content::of(bytes, &key.key);
            (key, content)
        });
        Self { leaf, gsn, records: records.collect() }
    }
}

/// What became of the end of a transaction.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It is durable.
    Yes,
    /// These leaves must be stored as pages before.
    After(Vec<PageId>),
}

impl PcmPages {
    /// Notes that a leaf was changed in a way that no tuple tells; the caller holds it latched.
    pub(crate) fn alter(&self, leaf: &[u8]) {
        self.map.lock().tuples.alter(page::page_id(leaf), page::gsn(leaf));
    }

    /// Notes that a leaf is to be stored as a page at the next occasion.
    pub(crate) fn alter_page(&self, leaf: PageId) {
        self.map.lock().tuples.alter(leaf, Gsn::ZERO);
    }

    /// Ends the transaction of an entry of the list, as [`PcmPages::end`] does, after storing what
    /// it has changed in these leaves. All other pages that it has changed are durable here as they
    /// are now.
    ///
    /// # Errors
    /// As [`PcmPages::write_together`].
    pub(crate) fn end_with(&self, xid: Xid, leaves: Vec<ChangedLeaf>, ended_early: bool) -> Result<Ended, PoolError> {
        let mut storing = self.storing.lock();
        self.check_not_failed(&storing)?;
        let leaves: Vec<ChangedLeaf> = {
            let map = self.map.lock();
            let mut leaves = leaves;
            for leaf in &mut leaves {
                // What a page that was stored since has, needs no tuple.
                let stored = map.get(leaf.leaf).map_or(Gsn::ZERO, |held| held.gsn);
                leaf.records.retain(|(key, _)| key.latest > stored);
            }
            leaves.retain(|leaf| !leaf.records.is_empty());
            leaves
        };
        if leaves.is_empty() {
            if !ended_early {
                self.replace_number(&mut storing, xid.entry());
            }
            return Ok(Ended::Yes);
        }
        let mut cells: BTreeMap<Class, usize> = BTreeMap::new();
        let mut as_pages: Vec<PageId> = Vec::new();
        for leaf in &leaves {
            let classes = leaf.records.iter().map(|(key, content)| Class::of(&key.key, content));
            match classes.collect::<Option<Vec<Class>>>() {
                Some(classes) if classes.iter().map(|class| class.bytes()).sum::<usize>() <= SLOT_BYTES => {
                    classes.into_iter().for_each(|class| *cells.entry(class).or_default() += 1);
                }
                _ => as_pages.push(leaf.leaf),
            }
        }
        if !as_pages.is_empty() {
            return Ok(Ended::After(as_pages));
        }
        let slots = || -> usize {
            let map = self.map.lock();
            let slots = |(class, count): (&Class, &usize)| {
                count.saturating_sub(map.tuples.free_cells(*class)).div_ceil(class.cells().into())
            };
            cells.iter().map(slots).sum()
        };
        let mut room = 0;
        // Tuples of slots that are emptied for this may take free cells.
        while room < slots() {
            room = slots();
            match self.make_room(&mut storing, room) {
                // As pages they are stored in parts.
                Err(_) if !storing.has_failed => {
                    return Ok(Ended::After(leaves.iter().map(|leaf| leaf.leaf).collect()));
                }
                made => made?,
            }
        }
        let mut taken: BTreeMap<Class, Vec<Cell>> = BTreeMap::new();
        for (class, count) in cells {
            for _ in 0..count {
                let cell = self.take_cell(&mut storing, class)?;
                taken.entry(class).or_default().push(cell);
            }
        }
        // From now on no base changes.
        as_pages.extend(leaves.iter().filter(|leaf| !self.may_be_tuples(leaf)).map(|leaf| leaf.leaf));
        if !as_pages.is_empty() {
            let mut map = self.map.lock();
            let emptied: Vec<_> = taken.into_values().flatten().filter_map(|cell| map.tuples.give(cell)).collect();
            map.replace(emptied);
            return Ok(Ended::After(as_pages));
        }
        self.store_tuples(&mut storing, xid, leaves, taken, ended_early);
        Ok(Ended::Yes)
    }

    /// Returns whether tuples of a leaf may be stored: its base stays as it is, is earlier than
    /// they, and has space for what all its tuples and these may add to it.
    fn may_be_tuples(&self, leaf: &ChangedLeaf) -> bool {
        let map = self.map.lock();
        // With its tuples a base may have got the GSN of a change that was not among them.
        let is_earlier = map.tuples.base(leaf.leaf).is_some_and(|base| base.gsn < leaf.gsn);
        let (mut more, mut replaced) = (0, 0);
        for (key, content) in &leaf.records {
            more += growth(&map, leaf.leaf, key, content).0;
            replaced += map.tuples.held(leaf.leaf, &key.key).map_or(0, |held| held.growth);
        }
        let has_space = map.tuples.has_space(leaf.leaf, more, replaced) || planted!(TupleSpaceUnchecked);
        is_earlier && has_space && !map.is_in_flight(leaf.leaf)
    }

    /// Stores tuples in these cells, and ends their transaction.
    fn store_tuples(
        &self,
        storing: &mut Storing,
        xid: Xid,
        leaves: Vec<ChangedLeaf>,
        mut cells: BTreeMap<Class, Vec<Cell>>,
        ended_early: bool,
    ) {
        if !planted!(XidListedLate) && self.active.list(&self.pcm, [xid]) {
            self.pcm.barrier();
        }
        let mut stored = Vec::new();
        for ChangedLeaf { leaf, gsn, records } in leaves {
            for (key, content) in records {
                let class = Class::of(&key.key, &content).expect("it was found before");
                let cell = cells.get_mut(&class).and_then(Vec::pop).expect("there is a cell for each tuple");
                let tuple = Tuple { xid, gsn, page: leaf, table: key.table, key: key.key.clone(), content };
                self.pcm.store_tuple(cell, &tuple);
                stored.push((cell, gsn, leaf, key, tuple.content));
            }
        }
        if !planted!(TupleUnfenced) {
            self.pcm.barrier();
        }
        if planted!(XidListedLate) && self.active.list(&self.pcm, [xid]) {
            self.pcm.barrier();
        }
        if !ended_early {
            self.replace_number(storing, xid.entry());
        }
        self.counters.tuples_written.fetch_add(stored.len() as u64, Ordering::Relaxed);
        let mut map = self.map.lock();
        for (cell, gsn, leaf, key, content) in stored {
            let (growth, len_in_base) = growth(&map, leaf, &key, &content);
            let time = map.time();
            let emptied = map.tuples.put(leaf, key.key, HeldTuple { cell, gsn, len_in_base, growth }, time);
            map.replace(emptied);
        }
    }

    fn take_cell(&self, storing: &mut Storing, class: Class) -> Result<Cell, PoolError> {
        if let Some(cell) = self.map.lock().tuples.take(class) {
            return Ok(cell);
        }
        // There is a free slot, unless readers have emptied slots whose free cells were counted.
        if self.map.lock().free() == 0 {
            self.make_room(storing, 1)?;
        }
        let slot = self.take(1)[0];
        let carving = self.pcm.carve(slot, class);
        let mut map = self.map.lock();
        map.tuples.add_slot(slot, class, carving);
        Ok(map.tuples.take(class).expect("a slot has cells"))
    }

    /// Moves the tuples of a slot to free cells of others; returns whether there was such a slot.
    pub(super) fn empty_a_slot(&self, _storing: &mut Storing) -> bool {
        // Readers forget tuples that they find to be earlier than their base.
        let mut map = self.map.lock();
        let Some((slot, class)) = map.tuples.sparsest() else { return false };
        let mut tuples = Vec::new();
        for cell in map.tuples.cells_of(slot) {
            match self.pcm.read_tuple(cell) {
                Some(tuple) if map.tuples.is_latest(tuple.page, &tuple.key, cell) => tuples.push(tuple),
                // It is damaged, which its readers are to notice; or it is being stored.
                _ => return false,
            }
        }
        let cells = map.tuples.move_out(slot, class, tuples.len());
        for (tuple, cell) in tuples.iter().zip(&cells) {
            self.pcm.store_tuple(*cell, tuple);
            map.tuples.moved(tuple.page, &tuple.key, *cell);
        }
        self.pcm.barrier();
        map.replace([slot]);
        true
    }

    /// Puts the tuples of a leaf into its base ([`overlay::put_tuples_into`]).
    pub(super) fn put_tuples_into(&self, map: &mut Map, leaf: PageId, bytes: &mut [u8]) -> Result<(), PoolError> {
        overlay::put_tuples_into(&self.pcm, map, leaf, bytes)
    }

    /// Stores leaves that have nothing but tuples here as pages, so that they can be written to the
    /// data file: a page that is torn there is still here. There are free slots for them.
    pub(super) fn make_pages_of_tuples(
        &self,
        leaves: &[PageId],
        unreadable: &mut Vec<PoolError>,
    ) -> Vec<(PageId, Held)> {
        let none = CoversOfPage::default();
        let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
        let mut made = Vec::with_capacity(leaves.len());
        for &leaf in leaves {
            let is_later = match self.read_with_tuples(leaf, &mut bytes) {
                Ok(is_later) => is_later,
                Err(error) => {
                    self.stays(leaf, error, unreadable);
                    continue;
                }
            };
            if is_later {
                self.counters.tuple_pages.fetch_add(1, Ordering::Relaxed);
                let image = Image { page: leaf, bytes: &bytes, covers: &none };
                let slot = self.take(1)[0];
                self.pcm.store_image(&image, slot, &[], Xid::default());
                made.push((leaf, slot, image.gsn(), Base::of(&bytes)));
            }
        }
        self.pcm.barrier();
        let mut map = self.map.lock();
        let mut installed = Vec::with_capacity(made.len());
        for (leaf, slot, gsn, base) in made {
            map.install(leaf, (slot, Vec::new()), gsn, Vec::new(), base);
            installed.push((leaf, map.get(leaf).expect("it was just installed").clone()));
        }
        installed
    }

    /// Reads a leaf in the data file and puts its tuples into it; returns whether it has any that
    /// are later.
    fn read_with_tuples(&self, leaf: PageId, bytes: &mut [u8]) -> Result<bool, PoolError> {
        self.file.read(leaf, true, bytes)?;
        let mut map = self.map.lock();
        self.put_tuples_into(&mut map, leaf, bytes)?;
        let has_tuples = map.tuples.overlay(leaf).is_some_and(|overlay| !overlay.tuples.is_empty());
        if !has_tuples {
            let emptied = map.tuples.superseded(leaf, page::gsn(bytes), Base::of(bytes));
            map.replace(emptied);
        }
        Ok(has_tuples)
    }
}

impl TupleStore for PcmPages {
    fn record(&self, leaf: PageId, key: &[u8], value: &mut Vec<u8>) -> Option<SlotFlags> {
        let mut map = self.map.lock();
        let overlay = map.tuples.overlay(leaf).filter(|overlay| overlay.is_known)?;
        // A damaged tuple is for the reader of the leaf to notice.
        let tuple = self.pcm.read_tuple(overlay.tuples.get(key)?.cell)?;
        let Content::Value { flags, bytes } = tuple.content else { return None };
        if tuple.page != leaf || tuple.key != key {
            return None;
        }
        let time = map.time();
        map.tuples.touch(leaf, time);
        self.counters.tuple_hits.fetch_add(1, Ordering::Relaxed);
        value.clear();
        value.extend_from_slice(&bytes);
        Some(flags)
    }
}

/// Returns the bytes that a tuple may add to the base of its leaf, and the length of its value in
/// the base, if that is known.
fn growth(map: &Map, leaf: PageId, key: &ChangedKey, content: &Content) -> (usize, Option<usize>) {
    let len_in_base = match map.tuples.held(leaf, &key.key) {
        Some(held) => held.len_in_base,
        // Then the base has the value until then.
        None if map.tuples.base(leaf).is_some_and(|base| key.first > base.gsn) => key.len_before,
        None => None,
    };
    (content.growth(&key.key, len_in_base), len_in_base)
}
