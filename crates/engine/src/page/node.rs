//! The slotted B+-tree node, reading side.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 32 | 2 | number of slots |
//! | 34 | 2 | start of the heap, which ends at the end of the page |
//! | 36 | 2 | garbage: bytes of the heap that no cell and no fence uses |
//! | 38 | 2 | length of the prefix common to all keys of the node |
//! | 40, 42 | 2, 2 | offset and length of the lower fence |
//! | 44, 46 | 2, 2 | offset and length of the upper fence |
//! | 48 | 2 | node flags: bit 0 there is a lower fence, bit 1 an upper fence, bit 2 slots are narrow |
//! | 50 | 2 | head skip: bytes that all suffixes start with and heads leave out |
//! | 52 | 4 | reserved, zero |
//! | 56 | 8 | page id of the rightmost child; 0 in leaves |
//! | 64 | 4 each | slots, in key order, growing up ([`slot`]) |
//! | heap start | | cells and fences, growing down from the end of the page |
//!
//! A slot has the head of a key and leads to the cell, which has the key's suffix and the value. In
//! inner nodes the value is the child's page id, 8 bytes.
//!
//! The node covers the keys above its lower fence, up to and including its upper fence; a missing
//! fence is infinite. All keys between two fences start with the common prefix of the fences. The
//! node cuts that prefix off its keys, and readers take it from the lower fence. (Bayer and
//! Unterauer, "Prefix B-trees", 1977; Graefe, "Modern B-tree techniques", section 3.5.)
//!
//! Heads let a search skip most cells. A head is the first two bytes after those that all suffixes
//! of the node have in common. Without that skip, some nodes would have useless heads: a
//! node that lacks a fence, such as every root, cuts off no prefix, and keys such as small
//! big-endian integers would differ only after their heads. The skip is the whole suffix when the
//! first key arrives, and shrinks with each key that has less in common. Only rebuilding the node
//! makes the skip grow again.
//!
//! Child number `i` of an inner node covers the keys above key `i - 1`, up to and including key
//! `i`. The rightmost child covers the keys above the last key.
//!
//! [`slot`]: super::slot

use std::cmp::Ordering;

use duramen_types::{PAGE_SIZE, PageId, TableId};

use super::bytes::PageBytes;
use super::slot::{
    Cell, HEAD, LEAST_NARROWED, Lengths, PLACE, SLOT_SIZE, SLOTS, SlotFlags, WIDE_SLOT_SIZE, cell_at, entry_size,
    flags_of, head_of, partition, wide_cell, wide_flags,
};
use super::{LEVEL, PAGE_HEADER_SIZE, PageType, TABLE_ID, TYPE};

pub(super) const SLOT_COUNT: usize = 32;
pub(super) const HEAP_START: usize = 34;
pub(super) const GARBAGE: usize = 36;
pub(super) const PREFIX_LEN: usize = 38;
pub(super) const LOWER_OFF: usize = 40;
pub(super) const LOWER_LEN: usize = 42;
pub(super) const UPPER_OFF: usize = 44;
pub(super) const UPPER_LEN: usize = 46;
pub(super) const NODE_FLAGS: usize = 48;
pub(super) const HEAD_SKIP: usize = 50;
pub(super) const RESERVED: std::ops::Range<usize> = 52..56;
pub(super) const RIGHTMOST: usize = 56;

/// Length of the reference to overflow pages that a leaf holds in place of a large value, in bytes.
pub(crate) const OVERFLOW_REFERENCE_SIZE: usize = 24;
/// Largest key and value together, in bytes, that a leaf holds itself; the value of a larger record
/// goes to overflow pages. The limit is small enough that any node has room for three records
/// besides two fences of the maximal length.
pub(crate) const MAX_INLINE_SIZE: usize = 1536;
/// Size of a child's page id.
pub(super) const CHILD_SIZE: usize = 8;

pub(super) const HAS_LOWER: u16 = 1;
pub(super) const HAS_UPPER: u16 = 2;
/// Slots are as this program writes them; otherwise they are wide.
pub(super) const NARROW: u16 = 4;

const _: () = assert!(PAGE_HEADER_SIZE == SLOT_COUNT && RIGHTMOST + 8 == SLOTS);

/// A leaf or inner node, read through `B`.
///
/// No method panics, whatever the bytes are, except those that return slices of a stable page.
/// Those require a node that passes [`super::check()`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<B: PageBytes>(pub(crate) B);

impl<B: PageBytes> Node<B> {
    /// Returns whether the node is a leaf; otherwise it is an inner node.
    #[inline(always)]
    pub(crate) fn is_leaf(&self) -> bool {
        self.0.u8_at(TYPE) == PageType::Leaf as u8
    }

    /// Returns the height above the leaves.
    #[inline(always)]
    pub(crate) fn level(&self) -> u8 {
        self.0.u8_at(LEVEL)
    }

    #[inline(always)]
    pub(super) fn field(&self, off: usize) -> usize {
        usize::from(self.0.u16_at(off))
    }

    /// Returns whether the node has the slots of format versions before 9.
    #[inline(always)]
    pub(super) fn is_wide(&self) -> bool {
        self.0.u16_at(NODE_FLAGS) & NARROW == 0
    }

    #[inline(always)]
    fn slot_size(&self) -> usize {
        if self.is_wide() { WIDE_SLOT_SIZE } else { SLOT_SIZE }
    }

    /// Returns the largest number of slots that fit into the page.
    #[inline(always)]
    pub(super) fn most_slots(&self) -> usize {
        (PAGE_SIZE - SLOTS) / self.slot_size()
    }

    /// Returns the number of slots.
    #[inline(always)]
    pub(crate) fn slot_count(&self) -> usize {
        self.field(SLOT_COUNT).min(self.most_slots())
    }

    /// Returns the offset behind the last slot.
    #[inline(always)]
    pub(super) fn slots_end(&self) -> usize {
        SLOTS + self.slot_count() * self.slot_size()
    }

    #[inline(always)]
    fn wide_head(&self, slot: usize) -> u32 {
        self.0.u32_at(SLOTS + slot * WIDE_SLOT_SIZE)
    }

    #[inline(always)]
    fn narrow_head(&self, slot: usize) -> u16 {
        self.0.u16_at(SLOTS + slot * SLOT_SIZE + HEAD)
    }

    /// Returns the slot's head, as the upper half of the number if the slot is narrow.
    #[inline(always)]
    pub(super) fn head(&self, slot: usize) -> u32 {
        if self.is_wide() { self.wide_head(slot) } else { u32::from(self.narrow_head(slot)) << 16 }
    }

    /// Returns the head that a key would have whose bytes behind the head skip are these, in the
    /// form of [`Self::head`].
    #[inline(always)]
    pub(super) fn head_for(&self, bytes: &[u8]) -> u32 {
        let head = head_of(bytes);
        if self.is_wide() { head } else { head & 0xFFFF_0000 }
    }

    /// Returns the first slot whose head is not below `head`, which is in the form of
    /// [`Self::head`]. This touches no cell.
    #[inline(always)]
    fn first_head_from(&self, count: usize, head: u32) -> usize {
        if self.is_wide() {
            return partition(0, count, |slot| self.wide_head(slot) < head);
        }
        let head = (head >> 16) as u16;
        partition(0, count, |slot| self.narrow_head(slot) < head)
    }

    /// Returns the field of a narrow slot that says where its cell is.
    #[inline(always)]
    pub(super) fn place(&self, slot: usize) -> u16 {
        self.0.u16_at(SLOTS + slot * SLOT_SIZE + PLACE)
    }

    /// Returns where the slot's entry is.
    #[inline(always)]
    pub(super) fn cell(&self, slot: usize) -> Cell {
        if self.is_wide() { wide_cell(&self.0, slot) } else { cell_at(&self.0, self.place(slot)) }
    }

    /// Returns the slot's flags.
    #[inline]
    pub(crate) fn flags(&self, slot: usize) -> SlotFlags {
        if self.is_wide() { SlotFlags::from_bits(wide_flags(&self.0, slot)) } else { flags_of(self.place(slot)) }
    }

    /// Compares the key's first bytes with the prefix. If they are equal, returns the rest of the
    /// key. Otherwise returns, as `Err`, the slot where all such keys belong.
    #[inline(always)]
    fn strip<'k>(&self, key: &'k [u8], count: usize) -> Result<&'k [u8], usize> {
        let prefix_len = self.field(PREFIX_LEN);
        if prefix_len == 0 {
            return Ok(key);
        }
        let (first, rest) = key.split_at(prefix_len.min(key.len()));
        match self.0.compare(self.field(LOWER_OFF), prefix_len, first) {
            Ordering::Equal => Ok(rest),
            Ordering::Less => Err(count),
            Ordering::Greater => Err(0),
        }
    }

    #[inline(always)]
    fn compare_suffix(&self, slot: usize, suffix: &[u8]) -> Ordering {
        let cell = self.cell(slot);
        self.0.compare(cell.suffix, cell.suffix_len, suffix)
    }

    /// Returns the first slot whose key is not below `key`, and whether its key is `key`.
    #[inline]
    pub(crate) fn lower_bound(&self, key: &[u8]) -> (usize, bool) {
        let count = self.slot_count();
        let suffix = match self.strip(key, count) {
            Ok(suffix) => suffix,
            Err(slot) => return (slot, false),
        };
        let skip = self.field(HEAD_SKIP);
        let mut behind = suffix;
        if skip > 0 && count > 0 {
            let first;
            (first, behind) = suffix.split_at(skip.min(suffix.len()));
            match self.0.compare(self.cell(0).suffix, skip, first) {
                Ordering::Less => return (count, false),
                Ordering::Equal => {}
                Ordering::Greater => return (0, false),
            }
        }
        let head = self.head_for(behind);
        let low = self.first_head_from(count, head);
        if low >= count || self.head(low) != head {
            return (low, false);
        }
        if low + 1 >= count || self.head(low + 1) != head {
            return match self.compare_suffix(low, suffix) {
                Ordering::Less => (low + 1, false),
                order => (low, order == Ordering::Equal),
            };
        }
        self.lower_bound_among_equal_heads(low, count, head, suffix)
    }

    /// Finishes [`Self::lower_bound`] if several keys from slot `low` on have the same head.
    fn lower_bound_among_equal_heads(&self, low: usize, count: usize, head: u32, suffix: &[u8]) -> (usize, bool) {
        let (mut low, mut high) = (low, count);
        while low < high {
            let mid = low + (high - low) / 2;
            let order = match self.head(mid) == head {
                true => self.compare_suffix(mid, suffix),
                false => Ordering::Greater,
            };
            match order {
                Ordering::Less => low = mid + 1,
                Ordering::Equal => return (mid, true),
                Ordering::Greater => high = mid,
            }
        }
        (low, false)
    }

    /// Compares the slot's key with `key`.
    pub(crate) fn compare_key(&self, slot: usize, key: &[u8]) -> Ordering {
        match self.strip(key, 1) {
            Ok(suffix) => self.compare_suffix(slot, suffix),
            Err(0) => Ordering::Greater,
            Err(_) => Ordering::Less,
        }
    }

    /// Returns whether the slot's record is deleted.
    #[inline]
    pub(crate) fn is_ghost(&self, slot: usize) -> bool {
        self.flags(slot).contains(SlotFlags::GHOST)
    }

    /// Returns the length of the slot's key, prefix included.
    pub(crate) fn key_len(&self, slot: usize) -> usize {
        self.field(PREFIX_LEN) + self.cell(slot).suffix_len
    }

    /// Sets `out` to the slot's key, prefix included.
    pub(crate) fn key_into(&self, slot: usize, out: &mut Vec<u8>) {
        out.clear();
        self.append_key(slot, out);
    }

    /// Appends the slot's key to `out`.
    #[inline]
    pub(crate) fn append_key(&self, slot: usize, out: &mut Vec<u8>) {
        self.0.copy_into(self.field(LOWER_OFF), self.field(PREFIX_LEN), out);
        let cell = self.cell(slot);
        self.0.copy_into(cell.suffix, cell.suffix_len, out);
    }

    /// Returns the length of the slot's value.
    #[inline]
    pub(crate) fn value_len(&self, slot: usize) -> usize {
        self.cell(slot).value_len
    }

    /// Sets `out` to the slot's value.
    pub(crate) fn value_into(&self, slot: usize, out: &mut Vec<u8>) {
        out.clear();
        self.append_value(slot, out);
    }

    /// Appends the slot's value to `out`.
    #[inline]
    pub(crate) fn append_value(&self, slot: usize, out: &mut Vec<u8>) {
        let cell = self.cell(slot);
        self.0.copy_into(cell.value(), cell.value_len, out);
    }

    /// Sets `out` to the lower fence. Returns false if there is none and the node reaches down to
    /// minus infinity.
    pub(crate) fn lower_fence_into(&self, out: &mut Vec<u8>) -> bool {
        self.fence_into(HAS_LOWER, LOWER_OFF, LOWER_LEN, out)
    }

    /// Sets `out` to the upper fence. Returns false if there is none and the node reaches up to
    /// plus infinity.
    pub(crate) fn upper_fence_into(&self, out: &mut Vec<u8>) -> bool {
        self.fence_into(HAS_UPPER, UPPER_OFF, UPPER_LEN, out)
    }

    fn fence_into(&self, flag: u16, off: usize, len: usize, out: &mut Vec<u8>) -> bool {
        out.clear();
        let present = self.0.u16_at(NODE_FLAGS) & flag != 0;
        if present {
            self.0.copy_into(self.field(off), self.field(len), out);
        }
        present
    }

    /// Returns child number `slot` of an inner node; the rightmost one for `slot == slot_count()`.
    #[inline]
    pub(crate) fn child(&self, slot: usize) -> PageId {
        let off = if slot < self.slot_count() { self.cell(slot).value() } else { RIGHTMOST };
        PageId::new(self.0.u64_at(off))
    }

    /// Returns the child of an inner node that covers `key`, and the child's number.
    #[inline]
    pub(crate) fn child_for(&self, key: &[u8]) -> (usize, PageId) {
        let (slot, _) = self.lower_bound(key);
        (slot, self.child(slot))
    }

    /// Returns whether this is a node at `level` of the table's tree.
    #[inline(always)]
    pub(crate) fn is_of(&self, table: TableId, level: u8) -> bool {
        let ty = if level == 0 { PageType::Leaf } else { PageType::Inner };
        self.0.u8_at(TYPE) == ty as u8 && self.0.u8_at(LEVEL) == level && self.0.u32_at(TABLE_ID) == table.get()
    }

    /// Returns whether `child` can be child number `slot` of this inner node of the table: it is a
    /// node of the same tree, one level below, and its fences are the separators on either side.
    #[inline]
    pub(crate) fn is_parent<C: PageBytes>(&self, slot: usize, child: &Node<C>, table: TableId) -> bool {
        let count = self.slot_count();
        child.is_of(table, self.level().saturating_sub(1))
            && match slot.checked_sub(1) {
                None => self.has_same_fence(HAS_LOWER, LOWER_OFF, child),
                Some(below) => self.is_fence(below, HAS_LOWER, LOWER_OFF, child),
            }
            && match slot < count {
                true => self.is_fence(slot, HAS_UPPER, UPPER_OFF, child),
                false => self.has_same_fence(HAS_UPPER, UPPER_OFF, child),
            }
    }

    /// Returns whether both nodes have the same lower, or upper, fence. The field of the fence's
    /// length follows the field of its offset.
    #[inline(always)]
    fn has_same_fence<C: PageBytes>(&self, flag: u16, off: usize, other: &Node<C>) -> bool {
        let present = self.0.u16_at(NODE_FLAGS) & flag;
        if present != other.0.u16_at(NODE_FLAGS) & flag {
            return false;
        }
        let len = self.field(off + 2);
        present == 0 || len == other.field(off + 2) && self.equals(self.field(off), other, other.field(off), len)
    }

    /// Returns whether the slot's key is the lower, or upper, fence of `child`.
    #[inline(always)]
    fn is_fence<C: PageBytes>(&self, slot: usize, flag: u16, off: usize, child: &Node<C>) -> bool {
        let (prefix, cell) = (self.field(PREFIX_LEN), self.cell(slot));
        let (at, len) = (child.field(off), child.field(off + 2));
        child.0.u16_at(NODE_FLAGS) & flag != 0
            && len == prefix + cell.suffix_len
            && self.equals(cell.suffix, child, at + prefix, cell.suffix_len)
            && self.equals(self.field(LOWER_OFF), child, at, prefix)
    }

    /// Returns whether the `len` bytes at `off` are those of `other` at `other_off`.
    #[inline(always)]
    fn equals<C: PageBytes>(&self, off: usize, other: &Node<C>, other_off: usize, len: usize) -> bool {
        let difference = |at: usize| self.0.u64_at(off + at) ^ other.0.u64_at(other_off + at);
        let (whole, rest) = (len / 8 * 8, len % 8);
        (0..whole).step_by(8).all(|at| difference(at) == 0) && (rest == 0 || difference(whole) << (64 - 8 * rest) == 0)
    }

    /// Returns whether `key` lies within the fences.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let flags = self.0.u16_at(NODE_FLAGS);
        let above = flags & HAS_LOWER == 0
            || self.0.compare(self.field(LOWER_OFF), self.field(LOWER_LEN), key) == Ordering::Less;
        above
            && (flags & HAS_UPPER == 0
                || self.0.compare(self.field(UPPER_OFF), self.field(UPPER_LEN), key) != Ordering::Less)
    }

    /// Returns the bytes that are free for more slots and cells once the node is compacted. If its
    /// slots are wide, there are at least so many.
    pub(crate) fn free_space(&self) -> usize {
        let narrowed = if self.is_wide() { self.slot_count() * LEAST_NARROWED } else { 0 };
        (self.field(HEAP_START) + self.field(GARBAGE) + narrowed).saturating_sub(self.slots_end())
    }

    /// Returns whether an entry fits that has a key of `key_len` bytes, prefix included, and a
    /// value of `value_len` bytes.
    pub(crate) fn room_for(&self, key_len: usize, value_len: usize) -> bool {
        entry_size(key_len, value_len) <= self.free_space() + self.field(PREFIX_LEN).min(key_len)
    }

    /// Returns whether the slot's value can be replaced by one of `value_len` bytes.
    pub(crate) fn room_for_value(&self, slot: usize, value_len: usize) -> bool {
        let (old, new) = (self.cell(slot), Lengths { key: self.key_len(slot), value: value_len });
        value_len <= old.value_len || new.header() + old.suffix_len + value_len <= self.free_space() + old.len()
    }

    /// Returns the number of bytes that slots, cells and fences use, or would if the node were
    /// rewritten with narrow slots: at most so many.
    pub(crate) fn used_space(&self) -> usize {
        (PAGE_SIZE - SLOTS).saturating_sub(self.free_space())
    }
}

/// Slices of a stable node.
impl<'a> Node<&'a [u8]> {
    /// Returns the prefix of all keys.
    pub(crate) fn prefix(&self) -> &'a [u8] {
        let off = self.field(LOWER_OFF);
        &self.0[off..off + self.field(PREFIX_LEN)]
    }

    /// Returns the slot's key without the prefix.
    pub(crate) fn suffix(&self, slot: usize) -> &'a [u8] {
        let cell = self.cell(slot);
        &self.0[cell.suffix..cell.value()]
    }

    /// Returns the slot's value.
    #[inline]
    pub(crate) fn value(&self, slot: usize) -> &'a [u8] {
        let cell = self.cell(slot);
        &self.0[cell.value()..cell.value() + cell.value_len]
    }

    /// Returns the slot's key without the prefix, and its value.
    #[inline]
    pub(crate) fn entry(&self, slot: usize) -> (&'a [u8], &'a [u8]) {
        let cell = self.cell(slot);
        self.0[cell.suffix..][..cell.suffix_len + cell.value_len].split_at(cell.suffix_len)
    }

    /// Returns the lower fence, exclusive; `None` is minus infinity.
    pub(crate) fn lower_fence(&self) -> Option<&'a [u8]> {
        self.fence(HAS_LOWER, LOWER_OFF, LOWER_LEN)
    }

    /// Returns the upper fence, inclusive; `None` is plus infinity.
    pub(crate) fn upper_fence(&self) -> Option<&'a [u8]> {
        self.fence(HAS_UPPER, UPPER_OFF, UPPER_LEN)
    }

    fn fence(&self, flag: u16, off: usize, len: usize) -> Option<&'a [u8]> {
        let off = self.field(off);
        (self.0.u16_at(NODE_FLAGS) & flag != 0).then(|| &self.0[off..off + self.field(len)])
    }
}
