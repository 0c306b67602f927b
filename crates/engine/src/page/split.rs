//! Splits and merges nodes.
//!
//! [`build_right`], [`NodeMut::truncate_left`] and [`merge_into`] are functions of the pages' bytes
//! and their arguments alone: recovery repeats them from a log record that names only slot and
//! separator.

use std::ops::Range;

use duramen_types::{PAGE_SIZE, PageId};

use super::node::{CHILD_SIZE, HEAP_START, MAX_INLINE_SIZE, Node, PREFIX_LEN};
use super::node_mut::{NodeMut, common_prefix_len, copy_of, prefix_len};
use super::slot::{MAX_ENTRY_OVERHEAD, SLOT_SIZE, SLOTS, entry_size};
use super::{PageMut, PageType, init_header, page_type, table_id};

/// Chooses where to split a full node into which an entry of any size is to be inserted at slot
/// `hint`. [`split_point_for`] describes the result.
pub(crate) fn split_point(node: Node<&[u8]>, hint: usize) -> (usize, Vec<u8>) {
    split_point_for(node, hint, MAX_INLINE_SIZE)
}

/// Chooses where to split a full node into which an entry of `entry_len` bytes, key and value, is
/// to be inserted at slot `hint`.
///
/// Returns the number of entries that stay in the left node, and the separator, which becomes the
/// left node's upper fence:
/// - leaf: the separator is the shortest key that is not below the last key on the left and is
///   below the first key on the right. When the insertion is at the very end, all entries may stay,
///   and the right node begins empty. In that case the separator is either the last key, and the
///   new entry starts the right node, or a key above the last, and the new entry belongs to the
///   left or the right node as it compares with the separator.
/// - inner node: the separator is the key of the returned slot. It moves up, and its child becomes
///   the left node's rightmost child.
///
/// The bytes are halved, except when the insertion is at one end of the node, or in a leaf directly
/// behind the latest one: that end, or the part behind, gets as little as possible, so that
/// ascending and descending insertions leave full nodes behind. In every case both halves fit into
/// a page, and the half that the new entry belongs to has room for it.
pub(crate) fn split_point_for(node: Node<&[u8]>, hint: usize, entry_len: usize) -> (usize, Vec<u8>) {
    assert!(entry_len <= MAX_INLINE_SIZE, "the entry is too large for a node");
    if node.is_leaf() { split_leaf(node, hint, entry_len) } else { split_inner(node, hint) }
}

fn split_leaf(node: Node<&[u8]>, hint: usize, entry_len: usize) -> (usize, Vec<u8>) {
    let count = node.slot_count();
    assert!(count >= 2 || (count == 1 && hint == 1), "the node is too small to split");
    if hint == 0 {
        return (1, leaf_separator(node, 1));
    }
    if hint < count {
        return split_after_latest(node, hint, entry_len).unwrap_or_else(|| {
            let slot = halving_slot(node).clamp(1, count - 1);
            (slot, leaf_separator(node, slot))
        });
    }
    if let Some(fence) = truncating_fence(node, entry_len) {
        return (count, fence);
    }
    // On the left, the new upper fence needs space of its own, up to a whole key.
    let mut slot = count;
    loop {
        let separator = leaf_separator(node, slot);
        if slot == 1 || left_size(node, slot, &separator) <= PAGE_SIZE {
            return (slot, separator);
        }
        slot -= 1;
    }
}

/// Splits a leaf at `hint` if the entry before was the latest insertion: then keys probably ascend
/// here, below others that stay. Were the leaf halved, the ascending keys and the others would soon
/// share a leaf again, and every split would leave a leaf that is half full behind. Returns `None`
/// if one half had no room for the new entry.
fn split_after_latest(node: Node<&[u8]>, hint: usize, entry_len: usize) -> Option<(usize, Vec<u8>)> {
    // Cells are allocated downwards.
    if node.cell(hint - 1).start != node.field(HEAP_START) {
        return None;
    }
    let separator = high_separator(node, hint);
    let right = entries(node, hint..node.slot_count());
    let sizes = [left_size(node, hint, &separator), size_with(Some(&separator), node.upper_fence(), right)];
    sizes.iter().all(|size| size + MAX_ENTRY_OVERHEAD + entry_len <= PAGE_SIZE).then_some((hint, separator))
}

/// Returns a fence above the last key that lets the last leaf of a tree truncate its prefix, or
/// `None` unless the leaf then shrinks enough for the new entry to fit.
///
/// Without an upper fence that leaf cuts nothing off its keys. Suppose that a full leaf were split
/// at its last key. The left half would shrink at once by all that the new fence cuts off, and
/// ascending insertions would never return to use the space. The fence chosen here keeps the
/// ascending keys in the leaf, and in the leaves that are split off from it later, until all but
/// the last byte of the keys' common prefix changes.
fn truncating_fence(node: Node<&[u8]>, entry_len: usize) -> Option<Vec<u8>> {
    let (Some(lower), None) = (node.lower_fence(), node.upper_fence()) else { return None };
    let mut fence = Vec::new();
    node.key_into(node.slot_count() - 1, &mut fence);
    let kept = common_prefix_len(lower, &fence).checked_sub(1)?;
    if fence[kept] == u8::MAX {
        return None;
    }
    fence.truncate(kept);
    fence.push(u8::MAX);
    let size = left_size(node, node.slot_count(), &fence) + MAX_ENTRY_OVERHEAD + entry_len;
    (size <= PAGE_SIZE).then_some(fence)
}

fn split_inner(node: Node<&[u8]>, hint: usize) -> (usize, Vec<u8>) {
    let count = node.slot_count();
    assert!(count >= 3, "the node is too small to split");
    let slot = match hint {
        0 => 1,
        hint if hint >= count => count - 2,
        _ => halving_slot(node).clamp(1, count - 2),
    };
    let mut separator = Vec::new();
    node.key_into(slot, &mut separator);
    (slot, separator)
}

/// Returns the number of entries whose bytes come closest to half of all bytes.
fn halving_slot(node: Node<&[u8]>) -> usize {
    let size = |slot| SLOT_SIZE + node.cell(slot).len();
    let total: usize = (0..node.slot_count()).map(size).sum();
    let mut left = 0;
    for slot in 0..node.slot_count() {
        let next = left + size(slot);
        if 2 * next >= total {
            return if next - total / 2 < total / 2 - left { slot + 1 } else { slot };
        }
        left = next;
    }
    node.slot_count()
}

/// Returns a short key between the last of `slot` entries on the left and the first on the right,
/// such that further keys that follow the last belong to the left.
fn high_separator(node: Node<&[u8]>, slot: usize) -> Vec<u8> {
    let (mut last, mut first) = (Vec::new(), Vec::new());
    node.key_into(slot - 1, &mut last);
    node.key_into(slot, &mut first);
    let common = common_prefix_len(&last, &first);
    // The shortest separator of keys that differ only in their last byte is close to the last key.
    if first.len() == common + 1 && last.get(common).is_some_and(|byte| byte + 1 < first[common]) {
        first[common] -= 1;
        return first;
    }
    leaf_separator(node, slot)
}

/// Returns the shortest key between the last of `slot` entries on the left and the first on the
/// right.
fn leaf_separator(node: Node<&[u8]>, slot: usize) -> Vec<u8> {
    let mut last = Vec::new();
    node.key_into(slot - 1, &mut last);
    if slot < node.slot_count() {
        let mut first = Vec::new();
        node.key_into(slot, &mut first);
        shorten_separator(&mut last, &first);
    }
    last
}

/// Returns the shortest key that is not below `left` and is below `right`, a higher key.
pub(crate) fn separator(left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut separator = left.to_vec();
    shorten_separator(&mut separator, right);
    separator
}

/// Returns the size of a node with the given fences and `count` entries, whose [`entry_size`]s are
/// `bytes` in all.
pub(crate) fn node_size(lower: Option<&[u8]>, upper: Option<&[u8]>, count: usize, bytes: usize) -> usize {
    let fences = lower.map_or(0, <[u8]>::len) + upper.map_or(0, <[u8]>::len);
    SLOTS + fences + bytes - count * prefix_len(lower, upper)
}

/// Replaces `left` by the shortest key that is not below it and is below `right`.
fn shorten_separator(left: &mut Vec<u8>, right: &[u8]) {
    let common = common_prefix_len(left, right);
    if common == left.len() {
        return;
    }
    // One byte beyond the common bytes is enough if a value fits between the two bytes that differ.
    if right.len() > common + 1 || left[common] + 1 < right[common] {
        let byte = if right.len() > common + 1 { right[common] } else { left[common] + 1 };
        left.truncate(common);
        left.push(byte);
        return;
    }
    // Otherwise the separator keeps the differing byte, to stay below `right`, and rounds up as
    // early as possible after it.
    if let Some(at) = (common + 1..left.len() - 1).find(|&at| left[at] != u8::MAX) {
        left[at] += 1;
        left.truncate(at + 1);
    }
}

/// Returns the size of the left page after a split, header included.
fn left_size(node: Node<&[u8]>, slot: usize, separator: &[u8]) -> usize {
    size_with(node.lower_fence(), Some(separator), entries(node, 0..slot))
}

/// Returns the lengths of the keys and values of some entries.
fn entries(node: Node<&[u8]>, slots: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
    slots.map(move |slot| (node.key_len(slot), node.value_len(slot)))
}

/// Returns the size of a page with the given fences and entries (length of the whole key, length of
/// the value), header included.
fn size_with(lower: Option<&[u8]>, upper: Option<&[u8]>, entries: impl Iterator<Item = (usize, usize)>) -> usize {
    let (count, bytes) =
        entries.fold((0, 0), |(count, bytes), (key, value)| (count + 1, bytes + entry_size(key, value)));
    node_size(lower, upper, count, bytes)
}

/// Builds in `right` the right half of `left`, split at `slot` with `separator`, both as returned
/// by [`split_point`]. The result is page `right_id` of the same table and level, with GSN zero.
///
/// `left` is unchanged; [`NodeMut::truncate_left`] is the other half of the split.
pub(crate) fn build_right(left: Node<&[u8]>, slot: usize, separator: &[u8], right: &mut PageMut<'_>, right_id: PageId) {
    let ty = page_type(left.0).expect("a node's type is valid");
    init_header(right, ty, left.level(), right_id, table_id(left.0));
    let mut right = NodeMut(right.reborrow());
    right.init_body(Some(separator), left.upper_fence());
    let first = match ty {
        PageType::Leaf => slot,
        _ => {
            right.set_rightmost(left.child(left.slot_count()));
            slot + 1
        }
    };
    for slot in first..left.slot_count() {
        right.append(left, slot);
    }
}

impl NodeMut<'_> {
    /// Turns the node into the left half of its split at `slot` with `separator`. This drops the
    /// entries that [`build_right`] copied and, in an inner node, the separator itself. Page id and
    /// GSN do not change.
    pub(crate) fn truncate_left(&mut self, slot: usize, separator: &[u8]) {
        let old = copy_of(&self.0);
        self.rebuild(Node(&old[..]), slot, Some(separator));
    }

    /// Rewrites a node that has wide slots.
    pub(super) fn narrow(&mut self) {
        let old = copy_of(&self.0);
        let old = Node(&old[..]);
        self.rebuild(old, old.slot_count(), old.upper_fence());
    }

    /// Gives the node the first `count` entries of `old`, a copy of it, and another upper fence. In
    /// an inner node, the child behind those entries becomes the rightmost.
    fn rebuild(&mut self, old: Node<&[u8]>, count: usize, upper: Option<&[u8]>) {
        self.init_body(old.lower_fence(), upper);
        if !old.is_leaf() {
            self.set_rightmost(old.child(count));
        }
        for slot in 0..count {
            self.append(old, slot);
        }
    }

    /// Copies an entry of another node after the last one.
    fn append(&mut self, from: Node<&[u8]>, slot: usize) {
        let (ours, theirs) = (self.view().field(PREFIX_LEN), from.field(PREFIX_LEN));
        let suffix = from.suffix(slot);
        let parts = if ours >= theirs { [&suffix[ours - theirs..], &[]] } else { [&from.prefix()[ours..], suffix] };
        let end = self.view().slot_count();
        self.insert_parts(end, parts, from.value(slot), from.flags(slot)).expect("the size was computed before");
    }
}

/// Returns the size in bytes, header included, of the page that [`merge_into`] would build. The
/// size exceeds a page if the nodes cannot be merged.
pub(crate) fn merged_size(left: Node<&[u8]>, right: Node<&[u8]>) -> usize {
    let between = (!left.is_leaf()).then(|| (left.upper_fence().map_or(0, <[u8]>::len), CHILD_SIZE));
    let left_entries = entries(left, 0..left.slot_count()).chain(between);
    size_with(left.lower_fence(), right.upper_fence(), left_entries.chain(entries(right, 0..right.slot_count())))
}

/// Returns whether two adjacent nodes fit into one page.
pub(crate) fn merge_fits(left: Node<&[u8]>, right: Node<&[u8]>) -> bool {
    merged_size(left, right) <= PAGE_SIZE
}

/// Appends `right` to its left neighbour `left`. Both together must fit ([`merge_fits`]).
///
/// `separator` is the fence between them. In inner nodes it becomes a key of the merged node, with
/// the left node's rightmost child. The page id and the GSN of `left` do not change.
pub(crate) fn merge_into(left: &mut PageMut<'_>, right: Node<&[u8]>, separator: &[u8]) {
    let old = copy_of(left);
    let old = Node(&old[..]);
    assert!(
        old.upper_fence() == Some(separator) && right.lower_fence() == Some(separator) && old.level() == right.level(),
        "only neighbours merge"
    );
    let mut merged = NodeMut(left.reborrow());
    merged.init_body(old.lower_fence(), right.upper_fence());
    for slot in 0..old.slot_count() {
        merged.append(old, slot);
    }
    if !old.is_leaf() {
        let end = merged.view().slot_count();
        let child = old.child(end);
        merged.insert_child(end, separator, child).expect("the size was computed before");
        merged.set_rightmost(right.child(right.slot_count()));
    }
    for slot in 0..right.slot_count() {
        merged.append(right, slot);
    }
}
