//! The slotted B+-tree node, writing side.

use duramen_types::{PAGE_SIZE, PageId, TableId};

use super::node::{
    CELL_OFF, CHILD_SIZE, GARBAGE, HAS_LOWER, HAS_UPPER, HEAD, HEAP_START, LOWER_LEN, LOWER_OFF, NODE_FLAGS, Node,
    PREFIX_LEN, RESERVED, RIGHTMOST, SLOT_COUNT, SLOT_FLAGS, SLOT_SIZE, SLOTS, SUFFIX_LEN, SlotFlags, UPPER_LEN,
    UPPER_OFF, VALUE_LEN, head_of,
};
use super::{PageType, init_header};

/// The entry does not fit into the node, even compacted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the entry does not fit into the node")]
pub(crate) struct NoSpace;

/// A leaf or inner node that the caller has to itself.
///
/// The node must pass [`super::check()`]. Every change is a function of the page's bytes and the arguments alone, so that
/// recovery, which repeats it, arrives at the same page.
#[derive(Debug)]
pub(crate) struct NodeMut<'a>(pub(crate) &'a mut [u8]);

impl<'a> NodeMut<'a> {
    /// Formats the page as an empty node with the given fences.
    pub(crate) fn init(
        page: &'a mut [u8],
        ty: PageType,
        level: u8,
        id: PageId,
        table: TableId,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Self {
        init_header(page, ty, level, id, table);
        let mut node = Self(page);
        node.init_body(lower, upper);
        node
    }

    /// Resets everything behind the page header to an empty node with the given fences.
    pub(super) fn init_body(&mut self, lower: Option<&[u8]>, upper: Option<&[u8]>) {
        self.0[SLOT_COUNT..].fill(0);
        self.set_field(HEAP_START, PAGE_SIZE);
        let mut flags = 0;
        if let Some(lower) = lower {
            flags |= HAS_LOWER;
            self.put_fence(lower, LOWER_OFF, LOWER_LEN);
        }
        if let Some(upper) = upper {
            flags |= HAS_UPPER;
            self.put_fence(upper, UPPER_OFF, UPPER_LEN);
        }
        self.set_field(NODE_FLAGS, usize::from(flags));
        self.set_field(PREFIX_LEN, prefix_len(lower, upper));
    }

    fn put_fence(&mut self, fence: &[u8], off: usize, len: usize) {
        let at = self.view().field(HEAP_START) - fence.len();
        self.0[at..at + fence.len()].copy_from_slice(fence);
        self.set_field(HEAP_START, at);
        self.set_field(off, at);
        self.set_field(len, fence.len());
    }

    /// The node for reading.
    #[inline(always)]
    pub(crate) fn view(&self) -> Node<&[u8]> {
        Node(&*self.0)
    }

    #[inline(always)]
    fn set_field(&mut self, off: usize, value: usize) {
        let value = u16::try_from(value).expect("offsets and lengths within a page are 16 bits");
        self.0[off..off + 2].copy_from_slice(&value.to_le_bytes());
    }

    #[inline(always)]
    fn set_slot_field(&mut self, slot: usize, off: usize, value: usize) {
        self.set_field(SLOTS + slot * SLOT_SIZE + off, value);
    }

    /// Whether an entry with a key of `key_len` bytes, prefix included, and a value of `value_len` bytes fits.
    pub(crate) fn room_for(&self, key_len: usize, value_len: usize) -> bool {
        let node = self.view();
        SLOT_SIZE + key_len.saturating_sub(node.field(PREFIX_LEN)) + value_len <= node.free_space()
    }

    /// Inserts an entry before the entry at `slot`; the key must belong there and within the fences.
    ///
    /// # Errors
    /// [`NoSpace`], and the node is unchanged.
    pub(crate) fn insert(&mut self, slot: usize, key: &[u8], value: &[u8], flags: SlotFlags) -> Result<(), NoSpace> {
        assert!(key.starts_with(self.view().prefix()), "the key belongs into another node");
        self.insert_parts(slot, [&key[self.view().field(PREFIX_LEN)..], &[]], value, flags)
    }

    /// Inserts a separator before `slot` whose left child is `child`: `child` covers the keys up to `key`, the child
    /// that was number `slot` those above.
    ///
    /// # Errors
    /// [`NoSpace`], and the node is unchanged.
    pub(crate) fn insert_child(&mut self, slot: usize, key: &[u8], child: PageId) -> Result<(), NoSpace> {
        self.insert(slot, key, &child.get().to_le_bytes(), SlotFlags::NONE)
    }

    /// Inserts an entry whose suffix is the two parts joined.
    pub(super) fn insert_parts(
        &mut self,
        slot: usize,
        suffix: [&[u8]; 2],
        value: &[u8],
        flags: SlotFlags,
    ) -> Result<(), NoSpace> {
        unimplemented!()
    }

    /// Sets the rightmost child of an inner node.
    pub(crate) fn set_rightmost(&mut self, child: PageId) {
        self.0[RIGHTMOST..RIGHTMOST + CHILD_SIZE].copy_from_slice(&child.get().to_le_bytes());
    }

    /// Sets child number `slot` of an inner node, the rightmost one for `slot == slot_count()`.
    pub(crate) fn set_child(&mut self, slot: usize, child: PageId) {
        if slot == self.view().slot_count() {
            self.set_rightmost(child);
        } else {
            self.patch_value(slot, 0, &child.get().to_le_bytes());
        }
    }

    /// Replaces the slot's value.
    ///
    /// # Errors
    /// [`NoSpace`], and the node is unchanged.
    pub(crate) fn set_value(&mut self, slot: usize, value: &[u8]) -> Result<(), NoSpace> {
        unimplemented!()
    }

    /// Overwrites the bytes of the slot's value from `offset` on; the value's length stays.
    pub(crate) fn patch_value(&mut self, slot: usize, offset: usize, bytes: &[u8]) {
        unimplemented!()
    }

    /// Replaces the slot's flags.
    pub(crate) fn set_flags(&mut self, slot: usize, flags: SlotFlags) {
        self.set_slot_field(slot, SLOT_FLAGS, usize::from(flags.bits()));
    }

    /// Removes the entry at `slot`; in an inner node its child goes with it.
    pub(crate) fn remove(&mut self, slot: usize) {
        unimplemented!()
    }

    /// Moves all cells together, so that all free space is between slots and heap.
    pub(crate) fn compact(&mut self) {
        unimplemented!()
    }
}

/// Length of the prefix of all keys between the fences.
pub(super) fn prefix_len(lower: Option<&[u8]>, upper: Option<&[u8]>) -> usize {
    match (lower, upper) {
        (Some(lower), Some(upper)) => common_prefix_len(lower, upper),
        _ => 0,
    }
}

/// Number of bytes that both keys start with.
pub(super) fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
