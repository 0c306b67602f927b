//! Recovery: one scan of the region. It reads and writes nothing else.
//!
//! 1. *Scan*. Of each page the version with the highest GSN counts, unless it belongs to a
//!    structure change that is still listed, or its covers are not whole. Of each key the tuple
//!    with the highest GSN counts, unless that is the tuple of a transaction that is still listed.
//!    All other slots are erased, and the tuples of transactions that are still listed, and a
//!    barrier follows.
//! 2. *Discard*. Where that version has covers of transactions that are still listed, their changes
//!    are discarded: the page is stored anew, with a higher GSN, as it was without them. A barrier;
//!    then the version until then is erased, with another barrier.
//! 3. The list is renewed, and a barrier follows.
//!
//! # Why it is right
//! - A number is listed durably before anything is stored that depends on it, and everything that
//!   the transaction has changed is durable before the number is replaced. So a transaction that is
//!   not listed has committed, or was rolled back, and its pages are whole; and the covers of one
//!   that is listed say what its keys were. Numbers are never used again.
//! - A page becomes durable together with the covers of all transactions under way that have
//!   changed it: by one checksum or, for many covers, by several slots of which none may miss.
//! - A version is erased only when a later one is durable. The latest one is erased only when the
//!   page is durable in the data file and all earlier ones are erased. So the version that is found
//!   is the latest one.
//! - Until the list is renewed, a crash repeats all this with the same outcome: discarding what is
//!   discarded has no effect.
//!
//! # Values that do not fit
//! A transaction that had not committed may have made a value shorter, and another one, which has
//! committed, may have used the space. The longer value cannot be put back into the page then. Its
//! cover stays, the transaction stays listed, and is rolled back as in normal operation, with a
//! split.

use std::collections::{BTreeMap, HashMap};

use duramen_types::{Gsn, PAGE_SIZE, PageId, planted};

use super::active::{Active, Xid};
use super::cell::{Cell, Class};
use super::content::Content;
use super::covers::{Cover, CoversOfPage};
use super::image::Image;
use super::layout::{SLOT_BYTES, Slot, SlotHeader, SlotKind};
use super::map::Map;
use super::overlay::put_tuples_into;
use super::tuples::{Base, HeldTuple, Tuples};
use super::{Pcm, corrupt};
use crate::error::Result;
use crate::options::Barriers;
use crate::page::{self, DatabaseTag, Lines, Node, PageMut, PageType, bitmap};

/// What the scan has found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(super) map: Map,
    pub(super) active: Active,
    /// Transactions that must be rolled back page by page.
    pub(crate) losers: Vec<Loser>,
    /// Transactions that have committed, with pages to be freed.
    pub(crate) winners: Vec<Winner>,
    /// The largest page in the region.
    pub(crate) reach: PageId,
    /// Pages in the region.
    pub(crate) pages: u64,
    /// Transactions whose changes were discarded.
    pub(crate) discarded: u64,
}

/// A transaction that had not committed, with changes that could not be discarded.
#[derive(Debug)]
pub(crate) struct Loser {
    pub(crate) xid: Xid,
    pub(crate) changes: Vec<LeftChange>,
}

/// A change that could not be discarded.
#[derive(Clone, Debug)]
pub(crate) struct LeftChange {
    pub(crate) page: PageId,
    pub(crate) cover: Cover,
    /// Length of the present value.
    pub(crate) len: usize,
}

/// A transaction that has committed, with pages to be freed.
#[derive(Debug)]
pub(crate) struct Winner {
    pub(crate) slots: Vec<Slot>,
    pub(crate) frees: Vec<Vec<u8>>,
}

/// A version of a page.
pub(super) struct Version {
    pub(super) slot: Slot,
    more: Vec<Slot>,
    gsn: Gsn,
    pub(super) covers: Vec<u8>,
}

/// The slots as they are found.
#[derive(Default)]
pub(super) struct Scan {
    pages: Vec<(Slot, SlotHeader, Vec<u8>)>,
    covers: HashMap<(PageId, Gsn, u32), (Slot, Vec<u8>)>,
    pub(super) garbage: Vec<(Slot, Xid, Vec<u8>)>,
    carved: Vec<(Slot, Class, Gsn)>,
    pub(super) free: Vec<Slot>,
    pub(super) erased: Vec<Slot>,
}

impl Scan {
    pub(super) fn of(pcm: &Pcm) -> Self {
        let mut scan = Self::default();
        let mut bytes = vec![0; SLOT_BYTES];
        for slot in (0..pcm.slots()).map(Slot) {
            let word = pcm.region.read_word(slot.at());
            if word == 0 {
                scan.free.push(slot);
                continue;
            }
            pcm.region.read(slot.at(), &mut bytes);
            let Some((header, _, rest)) = SlotHeader::decode(&pcm.database(), slot, &bytes) else {
                // It was being written.
                scan.erased.push(slot);
                continue;
            };
            let rest = rest.to_vec();
            match header.kind {
                SlotKind::Page => scan.pages.push((slot, header, rest)),
                SlotKind::Garbage => scan.garbage.push((slot, Xid(header.owner), rest)),
                SlotKind::Tuples => match Class::from_index(header.part as usize) {
                    Some(class) => scan.carved.push((slot, class, header.gsn)),
                    None => scan.erased.push(slot),
                },
                SlotKind::Covers => {
                    let key = (header.page, header.gsn, header.part);
                    if let Some((other, _)) = scan.covers.insert(key, (slot, rest)) {
                        scan.erased.push(other);
                    }
                }
            }
        }
        scan
    }

    /// Takes the versions that count, and leaves nothing.
    pub(super) fn take_versions(&mut self, pcm: &Pcm) -> HashMap<PageId, Version> {
        let mut newest: HashMap<PageId, Version> = HashMap::new();
        let older = |version: Version| std::iter::once(version.slot).chain(version.more);
        for (slot, header, mut covers) in std::mem::take(&mut self.pages) {
            let (page, gsn) = (header.page, header.gsn);
            let mut more = Vec::new();
            let parts = (0..header.part).map_while(|part| self.covers.remove(&(page, gsn, part)));
            for (part, bytes) in parts {
                more.push(part);
                covers.extend_from_slice(&bytes);
            }
            let is_whole = more.len() == header.part as usize;
            let is_unfinished = header.owner != 0 && Xid(header.owner).is_listed_in(pcm);
            let version = Version { slot, more, gsn, covers };
            if !is_whole || is_unfinished {
                self.erased.extend(older(version));
                continue;
            }
            let is_newer = |other: &Version| (other.gsn < version.gsn) != planted!(OlderVersionWins);
            match newest.get_mut(&page) {
                None => {
                    newest.insert(page, version);
                }
                Some(other) if is_newer(other) => self.erased.extend(older(std::mem::replace(other, version))),
                Some(_) => self.erased.extend(older(version)),
            }
        }
        self.erased.extend(self.covers.drain().map(|(_, (slot, _))| slot));
        newest
    }
}

impl Scan {
    /// Takes the tuples that count beside these versions of pages, and leaves nothing. Returns them
    /// with the cells of transactions that are still listed.
    pub(super) fn take_tuples(&mut self, pcm: &Pcm, versions: &HashMap<PageId, Version>) -> (Tuples, Vec<Cell>) {
        let mut latest: HashMap<(PageId, Vec<u8>), (Gsn, Cell)> = HashMap::new();
        let (mut slots, mut unfinished) = (BTreeMap::new(), Vec::new());
        for (slot, class, carving) in std::mem::take(&mut self.carved) {
            slots.insert(slot, (class, carving, false));
            for cell in (0..class.cells()).map(|number| Cell { slot, class, number, carving }) {
                let Some(tuple) = pcm.read_tuple(cell) else { continue };
                if tuple.xid.is_listed_in(pcm) {
                    unfinished.push(cell);
                    continue;
                }
                let is_later = |gsn: Gsn| (gsn < tuple.gsn) != planted!(OlderTupleWins);
                if versions.get(&tuple.page).is_some_and(|version| version.gsn >= tuple.gsn) {
                    continue;
                }
                let held = latest.entry((tuple.page, tuple.key)).or_insert((tuple.gsn, cell));
                if is_later(held.0) {
                    *held = (tuple.gsn, cell);
                }
            }
        }
        latest.values().for_each(|(_, cell)| slots.get_mut(&cell.slot).expect("it was scanned").2 = true);
        let mut tuples = Tuples::default();
        for (slot, (class, carving, is_used)) in slots {
            if is_used { tuples.add_slot(slot, class, carving) } else { self.erased.push(slot) }
        }
        for ((page, key), (gsn, cell)) in latest {
            tuples.occupy(cell);
            tuples.found(page, key, HeldTuple { cell, gsn, len_in_base: None, growth: cell.class.bytes() });
        }
        (tuples, unfinished)
    }
}

impl Found {
    /// Scans the region, and discards what transactions have changed that had not committed.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if a slot with a valid checksum has impossible contents.
    pub(crate) fn recover(pcm: &Pcm, barriers: Barriers) -> Result<Self> {
        pcm.persist_all();
        let mut scan = Scan::of(pcm);
        let newest = scan.take_versions(pcm);
        let mut winners: HashMap<Xid, Winner> = HashMap::new();
        for (slot, xid, frees) in std::mem::take(&mut scan.garbage) {
            if xid.is_listed_in(pcm) {
                scan.erased.push(slot);
                continue;
            }
            let winner = winners.entry(xid).or_insert_with(|| Winner { slots: Vec::new(), frees: Vec::new() });
            winner.slots.push(slot);
            winner.frees.extend(split_frees(&frees).ok_or_else(|| malformed(pcm, slot))?);
        }
        let (tuples, unfinished) = scan.take_tuples(pcm, &newest);
        if !unfinished.is_empty() {
            unfinished.iter().for_each(|cell| pcm.free_cell(*cell));
            // Their slots may be erased, too, and then nobody looks for them again.
            pcm.barrier();
        }
        scan.erased.iter().for_each(|slot| pcm.free_slot(*slot));
        pcm.barrier();

        let mut map = Map::default();
        map.tuples = tuples;
        map.give(scan.free.into_iter().chain(scan.erased));
        let mut discarded: Vec<Xid> = Vec::new();
        let mut losers: HashMap<Xid, Loser> = HashMap::new();
        let (pages, reach) = (newest.len() as u64, newest.keys().max().copied().unwrap_or(PageId::ZERO));
        // In order, so that recovery of the same region always does the same.
        let mut newest: Vec<(PageId, Version)> = newest.into_iter().collect();
        newest.sort_unstable_by_key(|(page, _)| *page);
        for (page, version) in newest {
            let covers = Cover::decode_all(&version.covers).map_err(|_| malformed(pcm, version.slot))?;
            let covers: Vec<Cover> = covers.into_iter().filter(|cover| cover.xid().is_listed_in(pcm)).collect();
            let (slot, gsn) = (version.slot, version.gsn);
            map.install(page, (slot, version.more), gsn, Vec::new(), None);
            if covers.is_empty() {
                continue;
            }
            discarded.extend(covers.iter().map(Cover::xid));
            let left = discard(pcm, &mut map, page, slot, covers)?;
            for change in left {
                let xid = change.cover.xid();
                losers.entry(xid).or_insert_with(|| Loser { xid, changes: Vec::new() }).changes.push(change);
            }
        }
        discarded.sort_unstable();
        discarded.dedup();
        let mut losers: Vec<Loser> = losers.into_values().collect();
        losers.sort_unstable_by_key(|loser| loser.xid);
        let mut winners: Vec<(Xid, Winner)> = winners.into_iter().collect();
        winners.sort_unstable_by_key(|(xid, _)| *xid);
        let kept: Vec<Xid> = losers.iter().map(|loser| loser.xid).collect();
        let active = Active::renew(pcm, barriers, &kept);
        pcm.barrier();
        let winners = winners.into_iter().map(|(_, winner)| winner).collect();
        Ok(Self { map, active, losers, winners, reach, pages, discarded: discarded.len() as u64 })
    }
}

/// Stores a page anew as it was without the changes that `covers` are for, and returns those that
/// could not be discarded.
fn discard(pcm: &Pcm, map: &mut Map, page: PageId, slot: Slot, covers: Vec<Cover>) -> Result<Vec<LeftChange>> {
    let mut bytes = vec![0; SLOT_BYTES];
    pcm.region.read(slot.at(), &mut bytes);
    let image = &mut bytes[super::layout::HEADER..][..PAGE_SIZE];
    let is_sound = page::page_type(image) != Some(PageType::Leaf) || page::check(image).is_ok();
    if page::page_id(image) != page || !is_sound {
        return Err(malformed(pcm, slot));
    }
    put_tuples_into(pcm, map, page, image)?;
    let mut lines = Lines::NONE;
    let mut left = Vec::new();
    {
        let mut change = PageMut::new(image, &mut lines);
        page::set_gsn(&mut change, Gsn::new(pcm.tick()));
        let (growing, others): (Vec<Cover>, Vec<Cover>) = covers.into_iter().partition(|cover| grows(&change, cover));
        for cover in others.into_iter().chain(growing) {
            if let Some(len) = take_back(&mut change, &cover) {
                left.push(LeftChange { page, cover, len });
            }
        }
    }
    page::seal(image, DatabaseTag::of(&pcm.database()));
    let mut covers = CoversOfPage::default();
    for change in &left {
        change.cover.encode(&mut covers.bytes);
        covers.xids.push(change.cover.xid());
    }
    let image = Image { page, bytes: image, covers: &covers };
    if map.free() < 1 + image.more() {
        return Err(corrupt(
            pcm.location(),
            "recovery needs a free slot and there is none; open it with a larger size",
        ));
    }
    let mut slots: Vec<Slot> = (0..1 + image.more()).filter_map(|_| map.take()).collect();
    let first = slots.remove(0);
    pcm.store_image(&image, first, &slots, Xid::default());
    pcm.barrier();
    map.install(page, (first, slots), image.gsn(), covers.xids.clone(), Base::of(image.bytes));
    let replaced = map.take_replaced();
    replaced.iter().for_each(|slot| pcm.free_slot(*slot));
    pcm.barrier();
    map.give(replaced);
    Ok(left)
}

/// Returns whether discarding a change makes a value longer.
fn grows(page: &[u8], cover: &Cover) -> bool {
    let Cover::Key { key, before: Content::Value { bytes, .. }, .. } = cover else { return false };
    let node = Node(page);
    match node.lower_bound(key) {
        (slot, true) => bytes.len() > node.value_len(slot),
        (_, false) => true,
    }
}

/// Takes a change back; returns the length of the present value if there is no space for the
/// earlier one.
fn take_back(page: &mut PageMut<'_>, cover: &Cover) -> Option<usize> {
    let (key, before) = match cover {
        Cover::Key { key, before, .. } => (key, before),
        Cover::Page { page: allocated, .. } => {
            if page::page_type(page) == Some(PageType::Bitmap) && !planted!(AllocationKept) {
                let (_, bit) = bitmap::locate(*allocated);
                // The bit is clear already if the allocation was taken back before the crash.
                let _ = bitmap::set(page, bit, false);
            }
            return None;
        }
    };
    // A key that a transaction has changed stays in its leaf, if only as a ghost.
    before.put(page, key).err().flatten()
}

/// Reads deferred frees, each with its length before it.
fn split_frees(mut bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut frees = Vec::new();
    while let Some((len, rest)) = bytes.split_first() {
        let len = usize::from(*len);
        frees.push(rest.get(..len)?.to_vec());
        bytes = &rest[len..];
    }
    Some(frees)
}

fn malformed(pcm: &Pcm, slot: Slot) -> crate::Error {
    let (file, offset) = (pcm.location().to_owned(), slot.at());
    let reason = "a slot has contents that no slot can have".to_owned();
    crate::Error::Corrupt { file, offset, page: None, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deferred_frees_are_split() {
        assert_eq!(split_frees(&[]), Some(vec![]));
        assert_eq!(split_frees(&[2, 7, 8, 0, 1, 9]), Some(vec![vec![7, 8], vec![], vec![9]]));
        assert_eq!(split_frees(&[2, 7]), None);
    }
}
