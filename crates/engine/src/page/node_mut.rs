//! The slotted B+-tree node, writing side.

use duramen_sync::cost;
use duramen_types::{MAX_KEY_LEN, PAGE_SIZE, PageId, TableId, planted};

use super::node::{
    GARBAGE, HAS_LOWER, HAS_UPPER, HEAD_SKIP, HEAP_START, LOWER_LEN, LOWER_OFF, NARROW, NODE_FLAGS, Node, PREFIX_LEN,
    RIGHTMOST, SLOT_COUNT, UPPER_LEN, UPPER_OFF,
};
use super::slot::{CellHeader, HEAD, Lengths, PLACE, SLOT_SIZE, SLOTS, SlotFlags, head_of, moved, place, reflagged};
use super::{PageMut, PageType, init_header};

/// The entry does not fit into the node, even after compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the entry does not fit into the node")]
pub(crate) struct NoSpace;

/// A leaf or inner node to which the caller has exclusive access.
///
/// Its slots are narrow. The node must pass [`super::check()`]. Every change is a function of the
/// page's bytes and the arguments alone, so recovery, which repeats the change, produces the same
/// page. The bytes that a node uses are a function of its entries and fences alone: a node that is
/// restored from a backup may become narrow earlier than it did at first, and the changes in the
/// log must fit then as they did.
#[derive(Debug)]
pub(crate) struct NodeMut<'a>(pub(super) PageMut<'a>);

impl<'a> NodeMut<'a> {
    /// Takes a leaf or inner node for writing. If its slots are wide, this rewrites it.
    pub(crate) fn new(page: PageMut<'a>) -> Self {
        let is_wide = Node(&page[..]).is_wide();
        let mut node = Self(page);
        if is_wide {
            node.narrow();
        }
        node
    }

    /// Formats the page as an empty node with the given fences.
    pub(crate) fn init(
        mut page: PageMut<'a>,
        ty: PageType,
        level: u8,
        id: PageId,
        table: TableId,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Self {
        init_header(&mut page, ty, level, id, table);
        let mut node = Self(page);
        node.init_body(lower, upper);
        node
    }

    /// Resets everything after the page header to an empty node with the given fences.
    pub(super) fn init_body(&mut self, lower: Option<&[u8]>, upper: Option<&[u8]>) {
        self.0.zero_from(SLOT_COUNT);
        self.set_field(HEAP_START, PAGE_SIZE);
        let mut flags = NARROW;
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
        let at = self.allocate(fence.len());
        self.0.put(at, fence);
        self.set_field(off, at);
        self.set_field(len, fence.len());
    }

    /// Returns the node for reading.
    #[inline(always)]
    pub(crate) fn view(&self) -> Node<&[u8]> {
        Node(&*self.0)
    }

    #[inline(always)]
    fn set_field(&mut self, off: usize, value: usize) {
        let value = u16::try_from(value).expect("offsets and lengths within a page are 16 bits");
        self.0.put_field(off, value.to_le_bytes());
    }

    #[inline(always)]
    fn set_place(&mut self, slot: usize, place: u16) {
        self.0.put_field(SLOTS + slot * SLOT_SIZE + PLACE, place.to_le_bytes());
    }

    /// Inserts an entry before the entry at `slot`. The key must belong there and lie within the
    /// fences.
    ///
    /// # Errors
    /// [`NoSpace`], and the node is unchanged.
    pub(crate) fn insert(&mut self, slot: usize, key: &[u8], value: &[u8], flags: SlotFlags) -> Result<(), NoSpace> {
        assert!(key.starts_with(self.view().prefix()), "the key belongs into another node");
        debug_assert!(self.view().contains(key), "the key belongs into another node");
        debug_assert_eq!(self.view().lower_bound(key), (slot, false), "the key belongs elsewhere in the node");
        self.insert_parts(slot, [&key[self.view().field(PREFIX_LEN)..], &[]], value, flags)
    }

    /// Inserts a separator before `slot` whose left child is `child`. `child` covers the keys up to
    /// `key`; the child that was number `slot` covers the keys above it.
    ///
    /// # Errors
    /// [`NoSpace`], and the node is unchanged.
    pub(crate) fn insert_child(&mut self, slot: usize, key: &[u8], child: PageId) -> Result<(), NoSpace> {
        self.insert(slot, key, &child.get().to_le_bytes(), SlotFlags::NONE)
    }

    /// Inserts an entry whose suffix is the concatenation of the two parts.
    pub(super) fn insert_parts(
        &mut self,
        slot: usize,
        suffix: [&[u8]; 2],
        value: &[u8],
        flags: SlotFlags,
    ) -> Result<(), NoSpace> {
        let count = self.view().slot_count();
        assert!(slot <= count, "insertion beyond the last slot");
        let suffix_len = suffix[0].len() + suffix[1].len();
        let is_long = Lengths { key: self.view().field(PREFIX_LEN) + suffix_len, value: value.len() }.are_long();
        let header = CellHeader::new(is_long, suffix_len, value.len());
        let cell_len = header.bytes().len() + suffix_len + value.len();
        if SLOT_SIZE + cell_len > self.view().free_space() {
            return Err(NoSpace);
        }
        if self.gap() < SLOT_SIZE + cell_len {
            self.compact();
        }
        let start = SLOTS + slot * SLOT_SIZE;
        self.0.move_within(start..SLOTS + count * SLOT_SIZE, start + SLOT_SIZE);
        self.set_field(SLOT_COUNT, count + 1);
        let at = self.allocate(cell_len);
        self.0.put_parts(at, [header.bytes(), suffix[0], suffix[1], value]);
        cost::write(self.0.as_ptr().wrapping_add(at), cell_len);
        cost::write(self.0.as_ptr().wrapping_add(start), SLOTS + (count + 1) * SLOT_SIZE - start);
        self.set_place(slot, place(at, is_long, flags));
        self.set_head(slot);
        Ok(())
    }

    /// Sets the head of the entry just inserted. If the entries now have less in common than
    /// before, sets the heads of all entries.
    fn set_head(&mut self, slot: usize) {
        let node = self.view();
        let (count, skip) = (node.slot_count(), node.field(HEAD_SKIP));
        let other = if slot == 0 { count - 1 } else { 0 };
        let common = common_prefix_len(node.suffix(slot), node.suffix(other));
        if count > 1 && common >= skip {
            self.write_head(slot, skip);
        } else {
            self.set_field(HEAD_SKIP, common);
            (0..count).for_each(|slot| self.write_head(slot, common));
        }
    }

    fn write_head(&mut self, slot: usize, skip: usize) {
        let head = (head_of(&self.view().suffix(slot)[skip..]) >> 16) as u16;
        self.0.put_field(SLOTS + slot * SLOT_SIZE + HEAD, head.to_le_bytes());
    }

    /// Returns the number of bytes between the slots and the heap.
    fn gap(&self) -> usize {
        let node = self.view();
        node.field(HEAP_START) - node.slots_end()
    }

    /// Takes `len` bytes from the gap; the caller has checked that there are enough.
    fn allocate(&mut self, len: usize) -> usize {
        let at = self.view().field(HEAP_START) - len;
        self.set_field(HEAP_START, at);
        at
    }

    /// Frees `len` bytes of the heap at `at`.
    fn free(&mut self, at: usize, len: usize) {
        if at == self.view().field(HEAP_START) {
            self.set_field(HEAP_START, at + len);
        } else {
            let garbage = self.view().field(GARBAGE);
            self.set_field(GARBAGE, garbage + len);
        }
    }

    /// Sets the rightmost child of an inner node.
    pub(crate) fn set_rightmost(&mut self, child: PageId) {
        self.0.put_field(RIGHTMOST, child.get().to_le_bytes());
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
        let node = self.view();
        assert!(slot < node.slot_count(), "no such slot");
        let old = node.cell(slot);
        let (flags, key) = (node.flags(slot), node.key_len(slot));
        let is_long = Lengths { key, value: value.len() }.are_long();
        let header = CellHeader::new(is_long, old.suffix_len, value.len());
        if value.len() <= old.value_len {
            // Suffix and value stay where they are, also behind a shorter header.
            let (start, at) = (old.suffix - header.bytes().len(), old.value());
            self.0.put(at, value);
            cost::write(self.0.as_ptr().wrapping_add(start), at - start + value.len());
            if value.len() < old.value_len {
                self.0.put(start, header.bytes());
                self.free(at + value.len(), old.value_len - value.len());
            }
            if start > old.start {
                self.set_place(slot, place(start, is_long, flags));
                self.free(old.start, start - old.start);
            }
            return Ok(());
        }
        if !node.room_for_value(slot, value.len()) {
            return Err(NoSpace);
        }
        let cell_len = header.bytes().len() + old.suffix_len + value.len();
        let mut suffix = [0; MAX_KEY_LEN];
        let suffix = &mut suffix[..old.suffix_len];
        suffix.copy_from_slice(node.suffix(slot));
        self.free(old.start, old.len());
        if self.gap() < cell_len {
            self.compact_except(Some(slot));
        }
        let at = self.allocate(cell_len);
        self.0.put_parts(at, [header.bytes(), &*suffix, value]);
        self.set_place(slot, place(at, is_long, flags));
        Ok(())
    }

    /// Overwrites the bytes of the slot's value from `offset` on; the value's length does not
    /// change.
    pub(crate) fn patch_value(&mut self, slot: usize, offset: usize, bytes: &[u8]) {
        let node = self.view();
        assert!(slot < node.slot_count() && offset + bytes.len() <= node.value_len(slot), "a patch stays in its value");
        let at = node.cell(slot).value() + offset;
        let lines = *self.0.lines;
        self.0.put(at, bytes);
        if planted!(LineForgotten) {
            *self.0.lines = lines;
        }
    }

    /// Replaces the slot's flags.
    pub(crate) fn set_flags(&mut self, slot: usize, flags: SlotFlags) {
        let node = self.view();
        assert!(slot < node.slot_count(), "no such slot");
        // A line in which nothing changes need not be written.
        if node.flags(slot) != flags {
            self.set_place(slot, reflagged(node.place(slot), flags));
        }
    }

    /// Removes the entry at `slot`, in an inner node together with its child.
    pub(crate) fn remove(&mut self, slot: usize) {
        let node = self.view();
        let count = node.slot_count();
        assert!(slot < count, "no such slot");
        let cell = node.cell(slot);
        self.free(cell.start, cell.len());
        let start = SLOTS + slot * SLOT_SIZE;
        self.0.move_within(start + SLOT_SIZE..SLOTS + count * SLOT_SIZE, start);
        self.set_field(SLOT_COUNT, count - 1);
    }

    /// Moves all cells together, so that all free space lies between slots and heap.
    pub(crate) fn compact(&mut self) {
        self.compact_except(None);
    }

    /// Moves all cells together but the cell of the slot `freed`, whose bytes are free.
    fn compact_except(&mut self, freed: Option<usize>) {
        let old = copy_of(&self.0);
        let old = Node(&old[..]);
        self.set_field(HEAP_START, PAGE_SIZE);
        self.set_field(GARBAGE, 0);
        if let Some(lower) = old.lower_fence() {
            self.put_fence(lower, LOWER_OFF, LOWER_LEN);
        }
        if let Some(upper) = old.upper_fence() {
            self.put_fence(upper, UPPER_OFF, UPPER_LEN);
        }
        for slot in (0..old.slot_count()).filter(|&slot| Some(slot) != freed) {
            let cell = old.cell(slot);
            let at = self.allocate(cell.len());
            self.0.put(at, &old.0[cell.start..cell.start + cell.len()]);
            self.set_place(slot, moved(old.place(slot), at));
        }
    }
}

/// Returns a copy of the page, from which the page is rebuilt.
pub(super) fn copy_of(page: &[u8]) -> [u8; PAGE_SIZE] {
    page.try_into().expect("a page has PAGE_SIZE bytes")
}

/// Returns the length of the prefix of all keys between the fences.
pub(super) fn prefix_len(lower: Option<&[u8]>, upper: Option<&[u8]>) -> usize {
    match (lower, upper) {
        (Some(lower), Some(upper)) => common_prefix_len(lower, upper),
        _ => 0,
    }
}

/// Returns the number of bytes that both keys start with.
pub(super) fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
