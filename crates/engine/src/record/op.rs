//! Page operations: the smallest changes to one page, as the log records them.
//!
//! The running engine changes pages only by [`PageOp::apply`], and redo calls the same function. So
//! redo reproduces the original page by construction.

use duramen_types::{PageId, TableId};

use super::codec::{Malformed, Reader, put_bytes, put_number};
use crate::page::{self, Node, NodeMut, PageMut, PageType, SlotFlags, bitmap};

/// One change to one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageOp<'a> {
    /// Replaces the whole page by the image, whatever the page was.
    Image(&'a [u8]),
    /// A record is added to a leaf.
    Insert { slot: u16, key: &'a [u8], value: &'a [u8], flags: SlotFlags },
    /// Bytes `at .. at + remove` of a record's value are replaced by `add`, and its flags are set.
    Change { slot: u16, at: u16, remove: u16, add: &'a [u8], flags: SlotFlags },
    /// A record is removed from a leaf.
    Remove { slot: u16 },
    /// The left part of a split: entries from `slot` on have moved to the right node, and
    /// `separator` is the new upper fence.
    Truncate { slot: u16, separator: &'a [u8] },
    /// The child at `slot` of an inner node was split at `separator`; `right` is the new sibling.
    SplitChild { slot: u16, separator: &'a [u8], right: PageId },
    /// The child after `slot` of an inner node was merged into the one at `slot`.
    MergeChild { slot: u16 },
    /// A page number is allocated in an allocation bitmap.
    Take { bit: u32 },
    /// A page number is freed in an allocation bitmap.
    GiveBack { bit: u32 },
    /// Page numbers that follow each other are freed in an allocation bitmap.
    GiveBackRun { bit: u32, count: u32 },
    /// Records of a leaf get other flags. The bytes are an encoded list of [`FlagRun`].
    SetFlags { runs: &'a [u8] },
    /// The page is no longer in use.
    Retire,
}

/// Slots of a leaf that follow each other and get the same flags.
///
/// Encoded as three numbers: the first slot, the number of slots, the flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlagRun {
    pub(crate) slot: u16,
    pub(crate) count: u16,
    pub(crate) flags: SlotFlags,
}

impl FlagRun {
    /// Appends the run to a list.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_number(out, self.slot.into());
        put_number(out, self.count.into());
        put_number(out, self.flags.bits().into());
    }

    /// Reads a list; it ends at the first run that is malformed.
    pub(crate) fn all(list: &[u8]) -> impl Iterator<Item = Result<Self, Malformed>> {
        let mut reader = Reader::new(list);
        std::iter::from_fn(move || {
            if reader.is_empty() {
                return None;
            }
            let run = Self::decode(&mut reader);
            if run.is_err() {
                reader = Reader::new(&[]);
            }
            Some(run)
        })
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (slot, count) = (reader.small()?, reader.small()?);
        Ok(Self { slot, count, flags: SlotFlags::from_bits(reader.small()?) })
    }

    /// Returns the slots.
    pub(crate) fn slots(self) -> std::ops::Range<usize> {
        usize::from(self.slot)..usize::from(self.slot) + usize::from(self.count)
    }
}

/// An operation does not fit the page it is applied to: the page or the record is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a logged change does not fit the page")]
pub(crate) struct Misfit;

const IMAGE: u8 = 1;
const INSERT: u8 = 2;
const CHANGE: u8 = 3;
const REMOVE: u8 = 4;
const TRUNCATE: u8 = 5;
const SPLIT_CHILD: u8 = 6;
const MERGE_CHILD: u8 = 7;
const TAKE: u8 = 8;
const GIVE_BACK: u8 = 9;
const RETIRE: u8 = 10;
const GIVE_BACK_RUN: u8 = 11;
const SET_FLAGS: u8 = 12;

impl<'a> PageOp<'a> {
    /// Appends the operation to a record's payload.
    #[inline]
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Image(image) => {
                out.push(IMAGE);
                put_bytes(out, image);
            }
            Self::Insert { slot, key, value, flags } => {
                out.push(INSERT);
                put_number(out, slot.into());
                put_number(out, flags.bits().into());
                put_bytes(out, key);
                put_bytes(out, value);
            }
            Self::Change { slot, at, remove, add, flags } => {
                out.push(CHANGE);
                put_number(out, slot.into());
                put_number(out, at.into());
                put_number(out, remove.into());
                put_number(out, flags.bits().into());
                put_bytes(out, add);
            }
            Self::Remove { slot } => {
                out.push(REMOVE);
                put_number(out, slot.into());
            }
            Self::Truncate { slot, separator } => {
                out.push(TRUNCATE);
                put_number(out, slot.into());
                put_bytes(out, separator);
            }
            Self::SplitChild { slot, separator, right } => {
                out.push(SPLIT_CHILD);
                put_number(out, slot.into());
                put_number(out, right.get());
                put_bytes(out, separator);
            }
            Self::MergeChild { slot } => {
                out.push(MERGE_CHILD);
                put_number(out, slot.into());
            }
            Self::Take { bit } => {
                out.push(TAKE);
                put_number(out, bit.into());
            }
            Self::GiveBack { bit } => {
                out.push(GIVE_BACK);
                put_number(out, bit.into());
            }
            Self::Retire => out.push(RETIRE),
            Self::GiveBackRun { bit, count } => {
                out.push(GIVE_BACK_RUN);
                put_number(out, bit.into());
                put_number(out, count.into());
            }
            Self::SetFlags { runs } => {
                out.push(SET_FLAGS);
                put_bytes(out, runs);
            }
        }
    }

    /// Reads one operation.
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match reader.byte()? {
            IMAGE => Self::Image(reader.bytes()?),
            INSERT => {
                let (slot, flags) = (reader.small()?, SlotFlags::from_bits(reader.small()?));
                Self::Insert { slot, flags, key: reader.bytes()?, value: reader.bytes()? }
            }
            CHANGE => {
                let (slot, at, remove) = (reader.small()?, reader.small()?, reader.small()?);
                Self::Change { slot, at, remove, flags: SlotFlags::from_bits(reader.small()?), add: reader.bytes()? }
            }
            REMOVE => Self::Remove { slot: reader.small()? },
            TRUNCATE => Self::Truncate { slot: reader.small()?, separator: reader.bytes()? },
            SPLIT_CHILD => {
                let (slot, right) = (reader.small()?, PageId::new(reader.number()?));
                Self::SplitChild { slot, right, separator: reader.bytes()? }
            }
            MERGE_CHILD => Self::MergeChild { slot: reader.small()? },
            TAKE => Self::Take { bit: reader.small()? },
            GIVE_BACK => Self::GiveBack { bit: reader.small()? },
            RETIRE => Self::Retire,
            GIVE_BACK_RUN => Self::GiveBackRun { bit: reader.small()?, count: reader.small()? },
            SET_FLAGS => {
                let runs = reader.bytes()?;
                FlagRun::all(runs).try_for_each(|run| run.map(drop))?;
                Self::SetFlags { runs }
            }
            _ => return Err(Malformed),
        })
    }

    /// Returns whether the operation could have been applied to this page. Callers use this when a
    /// log and a page may not belong together.
    pub(crate) fn fits(&self, page: &[u8]) -> bool {
        let is = |ty| page::page_type(page) == Some(ty);
        let node = Node(page);
        match *self {
            Self::Image(_) | Self::Retire => true,
            Self::Take { bit } => is(PageType::Bitmap) && !bitmap::get(page, bit),
            Self::GiveBack { bit } => is(PageType::Bitmap) && bitmap::get(page, bit),
            Self::GiveBackRun { bit, count } => is(PageType::Bitmap) && bitmap::are_set(page, bit, count),
            Self::SetFlags { runs } => {
                let count = || node.slot_count();
                is(PageType::Leaf) && FlagRun::all(runs).all(|run| run.is_ok_and(|run| run.slots().end <= count()))
            }
            Self::Insert { slot, key, value, .. } => {
                is(PageType::Leaf)
                    && node.contains(key)
                    && node.lower_bound(key) == (slot.into(), false)
                    && node.room_for(key.len(), value.len())
            }
            Self::Change { slot, .. } | Self::Remove { slot } => {
                is(PageType::Leaf) && usize::from(slot) < node.slot_count()
            }
            Self::Truncate { slot, separator } => {
                (is(PageType::Leaf) || is(PageType::Inner))
                    && usize::from(slot) <= node.slot_count()
                    && node.contains(separator)
            }
            Self::SplitChild { slot, separator, .. } => {
                is(PageType::Inner)
                    && node.contains(separator)
                    && node.lower_bound(separator) == (slot.into(), false)
                    && node.room_for(separator.len(), size_of::<u64>())
            }
            Self::MergeChild { slot } => is(PageType::Inner) && usize::from(slot) < node.slot_count(),
        }
    }

    /// Changes `page`. Slots are checked against the page, so a damaged log or page gives an error,
    /// not a panic.
    #[inline]
    pub(crate) fn apply(&self, page: &mut PageMut<'_>) -> Result<(), Misfit> {
        match *self {
            Self::Image(image) => page::restore_image(image, page).map_err(|_| Misfit),
            Self::Insert { slot, key, value, flags } => {
                let mut node = leaf(page)?;
                if usize::from(slot) > node.view().slot_count() {
                    return Err(Misfit);
                }
                node.insert(slot.into(), key, value, flags).map_err(|_| Misfit)
            }
            Self::Change { slot, at, remove, add, flags } => {
                change(page, slot.into(), at.into(), remove.into(), add, flags)
            }
            Self::Remove { slot } => {
                let mut node = leaf(page)?;
                has_slot(&node, slot)?;
                node.remove(slot.into());
                Ok(())
            }
            Self::Truncate { slot, separator } => {
                let mut node = any_node(page)?;
                if usize::from(slot) > node.view().slot_count() {
                    return Err(Misfit);
                }
                node.truncate_left(slot.into(), separator);
                Ok(())
            }
            Self::SplitChild { slot, separator, right } => {
                let mut node = inner(page)?;
                let slot = usize::from(slot);
                if slot > node.view().slot_count() {
                    return Err(Misfit);
                }
                let left = node.view().child(slot);
                node.insert_child(slot, separator, left).map_err(|_| Misfit)?;
                node.set_child(slot + 1, right);
                Ok(())
            }
            Self::MergeChild { slot } => {
                let mut node = inner(page)?;
                has_slot(&node, slot)?;
                let left = node.view().child(slot.into());
                node.remove(slot.into());
                node.set_child(slot.into(), left);
                Ok(())
            }
            Self::Take { bit } => bitmap::set(page, bit, true).map_err(|_| Misfit),
            Self::GiveBack { bit } => bitmap::set(page, bit, false).map_err(|_| Misfit),
            Self::GiveBackRun { bit, count } => {
                let end = bit.checked_add(count).ok_or(Misfit)?;
                (bit..end).try_for_each(|bit| bitmap::set(page, bit, false)).map_err(|_| Misfit)
            }
            Self::SetFlags { runs } => {
                let mut node = leaf(page)?;
                let count = node.view().slot_count();
                for run in FlagRun::all(runs) {
                    let run = run.map_err(|Malformed| Misfit)?;
                    if run.slots().end > count {
                        return Err(Misfit);
                    }
                    run.slots().for_each(|slot| node.set_flags(slot, run.flags));
                }
                Ok(())
            }
            Self::Retire => {
                let id = page::page_id(page);
                page::init_header(page, PageType::Free, 0, id, TableId::ZERO);
                Ok(())
            }
        }
    }
}

fn leaf<'p>(page: &'p mut PageMut<'_>) -> Result<NodeMut<'p>, Misfit> {
    if page::page_type(page) == Some(PageType::Leaf) { Ok(NodeMut::new(page.reborrow())) } else { Err(Misfit) }
}

fn inner<'p>(page: &'p mut PageMut<'_>) -> Result<NodeMut<'p>, Misfit> {
    if page::page_type(page) == Some(PageType::Inner) { Ok(NodeMut::new(page.reborrow())) } else { Err(Misfit) }
}

fn any_node<'p>(page: &'p mut PageMut<'_>) -> Result<NodeMut<'p>, Misfit> {
    match page::page_type(page) {
        Some(PageType::Leaf | PageType::Inner) => Ok(NodeMut::new(page.reborrow())),
        _ => Err(Misfit),
    }
}

fn has_slot(node: &NodeMut<'_>, slot: u16) -> Result<(), Misfit> {
    if usize::from(slot) < node.view().slot_count() { Ok(()) } else { Err(Misfit) }
}

fn change(
    page: &mut PageMut<'_>,
    slot: usize,
    at: usize,
    remove: usize,
    add: &[u8],
    flags: SlotFlags,
) -> Result<(), Misfit> {
    let mut node = leaf(page)?;
    has_slot(&node, u16::try_from(slot).map_err(|_| Misfit)?)?;
    let old_len = node.view().value_len(slot);
    if at + remove > old_len {
        return Err(Misfit);
    }
    if remove == add.len() {
        node.patch_value(slot, at, add);
    } else {
        let view: Node<&[u8]> = node.view();
        let old = view.value(slot);
        let mut new = Vec::with_capacity(old_len - remove + add.len());
        new.extend_from_slice(&old[..at]);
        new.extend_from_slice(add);
        new.extend_from_slice(&old[at + remove..]);
        node.set_value(slot, &new).map_err(|_| Misfit)?;
    }
    node.set_flags(slot, flags);
    Ok(())
}

/// Returns the part in which two values differ: its offset, its length in `old`, and its bytes in
/// `new`.
#[inline]
pub(crate) fn difference<'a>(old: &[u8], new: &'a [u8]) -> (usize, usize, &'a [u8]) {
    let same_front = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old[same_front..], &new[same_front..]);
    let same_back = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    (same_front, old_rest.len() - same_back, &new_rest[..new_rest.len() - same_back])
}

#[cfg(test)]
mod tests;
