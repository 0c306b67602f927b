//! A page with its covers, as slots hold it.

use duramen_types::{Gsn, PageId};

use super::Pcm;
use super::active::Xid;
use super::covers::CoversOfPage;
use super::layout::{COVERS_APART, COVERS_BESIDE, Slot, SlotHeader, SlotKind};
use crate::page;

/// A sealed page to be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image<'a> {
    pub(crate) page: PageId,
    pub(crate) bytes: &'a [u8],
    pub(crate) covers: &'a CoversOfPage,
}

impl Image<'_> {
    /// Returns the number of slots for covers that do not fit beside the page.
    pub(super) fn more(&self) -> usize {
        slots_with(self.covers.bytes.len()) as usize - 1
    }

    pub(super) fn gsn(&self) -> Gsn {
        page::gsn(self.bytes)
    }
}

/// Returns the slots that a page with so many bytes of covers takes. If several transactions have
/// covers in a page, the sum of what each would need suffices for all of them.
pub(crate) fn slots_with(covers: usize) -> u64 {
    1 + covers.saturating_sub(COVERS_BESIDE).div_ceil(COVERS_APART) as u64
}

impl Pcm {
    /// Stores a page and its covers, as a part of a structure change or, with the number 0, of
    /// none; durable after the next barrier. The covers come first: a page without them does not
    /// count.
    pub(super) fn store_image(&self, image: &Image<'_>, slot: Slot, more: &[Slot], group: Xid) {
        let beside = image.covers.bytes.len().min(COVERS_BESIDE);
        let (beside, apart) = image.covers.bytes.split_at(beside);
        let (page, gsn, owner) = (image.page, image.gsn(), group.0);
        for (part, (slot, covers)) in (0..).zip(more.iter().zip(apart.chunks(COVERS_APART))) {
            let header = SlotHeader { kind: SlotKind::Covers, len: covers.len() as u32, owner, gsn, page, part };
            self.store_slot(*slot, header, &[covers]);
        }
        let (len, part) = (beside.len() as u32, more.len() as u32);
        let header = SlotHeader { kind: SlotKind::Page, len, owner, gsn, page, part };
        self.store_slot(slot, header, &[image.bytes, beside]);
    }

    pub(super) fn store_slot(&self, slot: Slot, header: SlotHeader, parts: &[&[u8]]) {
        let header = header.encode(&self.database(), slot, parts);
        let mut all: Vec<&[u8]> = vec![&header];
        all.extend_from_slice(parts);
        self.store(slot.at(), &all);
    }
}
