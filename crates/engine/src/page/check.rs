//! Validates the structure of node pages whose bytes are untrusted.

use duramen_types::{MAX_KEY_LEN, PAGE_SIZE};

use super::node::{
    CHILD_SIZE, GARBAGE, HAS_LOWER, HAS_UPPER, HEAD_SKIP, HEAP_START, LOWER_LEN, LOWER_OFF, NARROW, NODE_FLAGS, Node,
    OVERFLOW_REFERENCE_SIZE, PREFIX_LEN, RESERVED, RIGHTMOST, SLOT_COUNT, UPPER_LEN, UPPER_OFF,
};
use super::node_mut::prefix_len;
use super::slot::{Lengths, SlotFlags, wide_flags};
use super::{PageType, page_type, u64_at};

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

/// Checks that the page is a well-formed leaf or inner node, in every respect that reads and
/// changes of the node rely on.
///
/// Never panics, whatever the bytes are. The caller must check the ids in the header and the
/// existence of the children.
///
/// # Errors
/// A description of the first defect found.
pub(crate) fn check(page: &[u8]) -> Result<(), String> {
    ensure!(page.len() == PAGE_SIZE, "a page does not have {} bytes", page.len());
    let node = Node(page);
    let ty = page_type(page);
    let leaf = match ty {
        Some(PageType::Leaf) => true,
        Some(PageType::Inner) => false,
        _ => return Err(format!("page type {ty:?} is not the type of a node")),
    };
    ensure!(leaf == (node.level() == 0), "{ty:?} at level {}", node.level());
    check_space(node)?;
    check_fences(node)?;
    for slot in 0..node.slot_count() {
        check_slot(node, slot, leaf)?;
    }
    check_order(node, leaf)?;
    ensure!(leaf == (u64_at(page, RIGHTMOST) == 0), "rightmost child {} in {ty:?}", u64_at(page, RIGHTMOST));
    ensure!(page[RESERVED].iter().all(|&byte| byte == 0), "reserved header bytes are in use");
    Ok(())
}

/// Checks that slots, cells and fences lie in the page and do not overlap, and that the free space
/// adds up.
fn check_space(node: Node<&[u8]>) -> Result<(), String> {
    let count = node.field(SLOT_COUNT);
    ensure!(count <= node.most_slots(), "{count} slots do not fit into a page");
    let (slots_end, heap) = (node.slots_end(), node.field(HEAP_START));
    ensure!(slots_end <= heap && heap <= PAGE_SIZE, "the heap starts at {heap}, but the slots end at {slots_end}");

    let flags = node.field(NODE_FLAGS) as u16;
    ensure!(flags & !(HAS_LOWER | HAS_UPPER | NARROW) == 0, "unknown node flags {flags:#x}");
    let mut used = Vec::with_capacity(count + 2);
    for (flag, off, len) in [(HAS_LOWER, LOWER_OFF, LOWER_LEN), (HAS_UPPER, UPPER_OFF, UPPER_LEN)] {
        let (off, len) = (node.field(off), node.field(len));
        if flags & flag != 0 {
            ensure!(len <= MAX_KEY_LEN, "a fence has {len} bytes");
            used.push((off, len));
        } else {
            ensure!(off == 0 && len == 0, "an infinite fence has a position or a length");
        }
    }
    used.extend((0..count).map(|slot| (node.cell(slot).start, node.cell(slot).len())));
    used.sort_unstable();
    let mut end = heap;
    let mut total = 0;
    for (off, len) in used {
        if len == 0 {
            // An empty cell cannot overlap anything; the heap may even have shrunk past it.
            ensure!(off <= PAGE_SIZE, "an empty cell is at {off}, outside the page");
            continue;
        }
        ensure!(off >= end, "bytes {off}..{} overlap a cell or fence that ends at {end}", off + len);
        end = off + len;
        total += len;
    }
    ensure!(end <= PAGE_SIZE, "a cell or fence ends at {end}, outside the page");
    let garbage = node.field(GARBAGE);
    ensure!(
        total + garbage == PAGE_SIZE - heap,
        "{total} used and {garbage} unused bytes do not fill the heap from {heap}"
    );
    Ok(())
}

/// Checks order and prefix of the fences, whose bytes lie in the page.
fn check_fences(node: Node<&[u8]>) -> Result<(), String> {
    let (lower, upper) = (node.lower_fence(), node.upper_fence());
    if let (Some(lower), Some(upper)) = (lower, upper) {
        ensure!(lower < upper, "the lower fence is not below the upper fence");
    }
    let (stored, actual) = (node.field(PREFIX_LEN), prefix_len(lower, upper));
    ensure!(stored == actual, "the prefix has {stored} bytes, but the fences share {actual}");
    Ok(())
}

fn check_slot(node: Node<&[u8]>, slot: usize, leaf: bool) -> Result<(), String> {
    let key_len = node.key_len(slot);
    ensure!(key_len <= MAX_KEY_LEN, "slot {slot}: the key has {key_len} bytes");
    let (suffix, skip) = (node.suffix(slot), node.field(HEAD_SKIP));
    let common = suffix.get(..skip);
    ensure!(
        common.is_some() && common == node.suffix(0).get(..skip),
        "slot {slot}: the head skips the key's own bytes"
    );
    ensure!(node.head(slot) == node.head_for(&suffix[skip..]), "slot {slot}: the head does not match the key");
    let (flags, value_len) = (node.flags(slot), node.value_len(slot));
    let bits = if node.is_wide() { wide_flags(&node.0, slot) } else { flags.bits() };
    let are_known = SlotFlags::from_bits(bits).bits() == bits;
    ensure!(are_known && (leaf || bits == 0), "slot {slot}: the flags {bits:#x} are invalid");
    let are_long = Lengths { key: key_len, value: value_len }.are_long();
    let is_right = node.is_wide() || node.cell(slot).is_long() == are_long;
    ensure!(is_right, "slot {slot}: the lengths in the cell have the wrong size");
    if leaf {
        let reference = flags.contains(SlotFlags::OVERFLOW);
        ensure!(!reference || value_len == OVERFLOW_REFERENCE_SIZE, "slot {slot}: the reference has {value_len} bytes");
    } else {
        ensure!(value_len == CHILD_SIZE, "slot {slot}: the child pointer has {value_len} bytes");
        ensure!(!node.child(slot).is_zero(), "slot {slot}: the child pointer is zero");
    }
    Ok(())
}

/// Checks that keys ascend strictly within the fences. The order of the suffixes is that of the
/// keys.
fn check_order(node: Node<&[u8]>, leaf: bool) -> Result<(), String> {
    let prefix = node.field(PREFIX_LEN);
    let mut previous = node.lower_fence().map(|lower| &lower[prefix..]);
    for slot in 0..node.slot_count() {
        let suffix = node.suffix(slot);
        ensure!(
            previous.is_none_or(|previous| previous < suffix),
            "slot {slot}: the key is not above the one before it"
        );
        previous = Some(suffix);
    }
    if let (Some(upper), true) = (node.upper_fence(), node.slot_count() > 0) {
        let (last, upper) = (node.suffix(node.slot_count() - 1), &upper[prefix..]);
        // The last child of an inner node would cover no keys if the key before it equalled the
        // fence.
        ensure!(if leaf { last <= upper } else { last < upper }, "the last key is above the upper fence");
    }
    Ok(())
}
