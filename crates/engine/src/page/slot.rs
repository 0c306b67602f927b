//! Slots and cells: where the entries of a node are.
//!
//! A slot has four bytes:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 2 | head: two bytes of the key's suffix as a big-endian number, padded with zeros |
//! | 2 | 2 | bits 0 to 12: offset of the cell; bit 13: the cell is long; bits 14, 15: [`SlotFlags`] |
//!
//! A cell is the length of the suffix, the length of the value, the suffix, the value. The lengths
//! have a byte each. They have two bytes each in a *long* cell: that of an entry whose key (the
//! prefix included) or value is longer than 255 bytes.
//!
//! # Wide slots
//! Before format version 9, a slot had twelve bytes: head u32, cell offset u16, suffix length u16,
//! value length u16, flags u16. A cell was the suffix and the value alone. Nodes that have not
//! changed since then are still like that, so [`Node`] reads both. A node is rewritten when it
//! changes ([`NodeMut::new`]), and then needs fewer bytes.
//!
//! [`Node`]: super::Node
//! [`NodeMut::new`]: super::NodeMut::new

use duramen_types::PAGE_SIZE;

use super::bytes::PageBytes;

/// Offset of the first slot.
pub(super) const SLOTS: usize = 64;
/// Size of a slot.
pub(super) const SLOT_SIZE: usize = 4;
/// Offset, in a slot, of the head.
pub(super) const HEAD: usize = 0;
/// Offset, in a slot, of the field that says where the cell is, and how.
pub(super) const PLACE: usize = 2;

const OFFSET_BITS: u32 = 13;
const OFFSET: u16 = (1 << OFFSET_BITS) - 1;
const LONG: u16 = 1 << OFFSET_BITS;
const FLAGS_FROM: u32 = OFFSET_BITS + 1;

/// Size of a wide slot.
pub(super) const WIDE_SLOT_SIZE: usize = 12;
/// The bytes that an entry loses, at least, when its slot becomes narrow.
pub(super) const LEAST_NARROWED: usize = WIDE_SLOT_SIZE - MAX_ENTRY_OVERHEAD;
const WIDE_CELL: usize = 4;
const WIDE_SUFFIX_LEN: usize = 6;
const WIDE_VALUE_LEN: usize = 8;
const WIDE_FLAGS: usize = 10;

const _: () = assert!(PAGE_SIZE == 1 << OFFSET_BITS);

/// Properties of a record in a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SlotFlags(u16);

impl SlotFlags {
    /// An ordinary record.
    pub(crate) const NONE: Self = Self(0);
    /// The record is deleted; it stays until it is purged, because locks and undo need it.
    pub(crate) const GHOST: Self = Self(1);
    /// The value is a reference to overflow pages.
    pub(crate) const OVERFLOW: Self = Self(2);

    /// Converts the bits in a slot or a log record; drops bits without meaning.
    #[inline]
    pub(crate) const fn from_bits(bits: u16) -> Self {
        Self(bits & 3)
    }

    /// Returns the bits as stored.
    #[inline]
    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    /// Returns whether all flags of `other` are set.
    #[inline]
    pub(crate) const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns these flags and `other`.
    #[inline]
    #[must_use]
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Returns the first four of the bytes as a number that orders like them. Equal numbers tell
/// nothing about the order.
#[inline(always)]
pub(super) fn head_of(bytes: &[u8]) -> u32 {
    match bytes.first_chunk() {
        Some(first) => u32::from_be_bytes(*first),
        None => bytes.iter().zip([24, 16, 8]).fold(0, |head, (&byte, shift)| head | u32::from(byte) << shift),
    }
}

/// The lengths of an entry's key (the prefix included) and value, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Lengths {
    pub(super) key: usize,
    pub(super) value: usize,
}

impl Lengths {
    /// Returns whether the entry's cell is long.
    #[inline(always)]
    pub(super) const fn are_long(self) -> bool {
        self.key > u8::MAX as usize || self.value > u8::MAX as usize
    }

    /// Returns the size of the cell's lengths.
    #[inline(always)]
    pub(super) const fn header(self) -> usize {
        if self.are_long() { 4 } else { 2 }
    }
}

/// Returns the bytes that an entry takes, slot and cell, in a node that cuts nothing off its keys.
pub(crate) const fn entry_size(key_len: usize, value_len: usize) -> usize {
    let lengths = Lengths { key: key_len, value: value_len };
    SLOT_SIZE + lengths.header() + key_len + value_len
}

/// The most bytes that an entry takes besides its key and value.
pub(super) const MAX_ENTRY_OVERHEAD: usize = SLOT_SIZE + 4;

/// Returns the field of a slot that says that its cell is at `start`.
#[inline(always)]
pub(super) fn place(start: usize, is_long: bool, flags: SlotFlags) -> u16 {
    debug_assert!(start <= usize::from(OFFSET), "a cell begins in its page");
    start as u16 | if is_long { LONG } else { 0 } | flags.bits() << FLAGS_FROM
}

/// Returns the same field after the cell has moved to `start`.
#[inline(always)]
pub(super) fn moved(place: u16, start: usize) -> u16 {
    debug_assert!(start <= usize::from(OFFSET), "a cell begins in its page");
    place & !OFFSET | start as u16
}

/// Returns the same field with other flags.
#[inline(always)]
pub(super) fn reflagged(place: u16, flags: SlotFlags) -> u16 {
    place & (OFFSET | LONG) | flags.bits() << FLAGS_FROM
}

/// The beginning of a cell: its lengths.
pub(super) struct CellHeader {
    bytes: [u8; 4],
    len: usize,
}

impl CellHeader {
    #[inline(always)]
    pub(super) fn new(is_long: bool, suffix_len: usize, value_len: usize) -> Self {
        let (suffix, value) = (suffix_len as u16, value_len as u16);
        if is_long {
            let ([a, b], [c, d]) = (suffix.to_le_bytes(), value.to_le_bytes());
            Self { bytes: [a, b, c, d], len: 4 }
        } else {
            debug_assert!(suffix_len <= u8::MAX.into() && value_len <= u8::MAX.into(), "a length has a byte");
            Self { bytes: [suffix as u8, value as u8, 0, 0], len: 2 }
        }
    }

    #[inline(always)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Where the parts of a cell are in the page.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    /// Offset of the cell.
    pub(super) start: usize,
    /// Offset of the suffix, which follows the lengths.
    pub(super) suffix: usize,
    pub(super) suffix_len: usize,
    pub(super) value_len: usize,
}

impl Cell {
    /// Returns the offset of the value.
    #[inline(always)]
    pub(super) fn value(self) -> usize {
        self.suffix + self.suffix_len
    }

    /// Returns the number of bytes that the cell takes in the heap.
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        self.value() + self.value_len - self.start
    }

    /// Returns whether the lengths have two bytes each.
    #[inline(always)]
    pub(super) fn is_long(self) -> bool {
        self.suffix - self.start == 4
    }
}

/// Returns the cell that a slot's field leads to.
#[inline(always)]
pub(super) fn cell_at(page: &impl PageBytes, place: u16) -> Cell {
    let start = usize::from(place & OFFSET);
    let lengths = page.u64_at(start);
    if place & LONG == 0 {
        let (suffix_len, value_len) = (usize::from(lengths as u8), usize::from((lengths >> 8) as u8));
        Cell { start, suffix: start + 2, suffix_len, value_len }
    } else {
        let (suffix_len, value_len) = (usize::from(lengths as u16), usize::from((lengths >> 16) as u16));
        Cell { start, suffix: start + 4, suffix_len, value_len }
    }
}

/// Returns the flags in a slot's field.
#[inline(always)]
pub(super) fn flags_of(place: u16) -> SlotFlags {
    SlotFlags(place >> FLAGS_FROM)
}

/// Returns the cell of a wide slot.
#[cold]
pub(super) fn wide_cell(page: &impl PageBytes, slot: usize) -> Cell {
    let field = |off: usize| usize::from(page.u16_at(SLOTS + slot * WIDE_SLOT_SIZE + off));
    let start = field(WIDE_CELL);
    Cell { start, suffix: start, suffix_len: field(WIDE_SUFFIX_LEN), value_len: field(WIDE_VALUE_LEN) }
}

/// Returns the bits of a wide slot's flags.
pub(super) fn wide_flags(page: &impl PageBytes, slot: usize) -> u16 {
    page.u16_at(SLOTS + slot * WIDE_SLOT_SIZE + WIDE_FLAGS)
}

/// Returns the first of the slots from `start` to `end` that is not `below`, found without branches
/// that depend on the data.
#[inline(always)]
pub(super) fn partition(start: usize, end: usize, below: impl Fn(usize) -> bool) -> usize {
    let mut base = start;
    let mut size = end - start;
    while size > 1 {
        let half = size / 2;
        base = std::hint::select_unpredictable(below(base + half - 1), base + half, base);
        size -= half;
    }
    if size == 1 && below(base) { base + 1 } else { base }
}
