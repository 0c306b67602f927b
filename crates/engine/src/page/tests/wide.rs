//! Nodes with wide slots, as programs before format version 9 wrote them.

use super::*;
use crate::page::node::{
    GARBAGE, HAS_LOWER, HAS_UPPER, HEAD_SKIP, HEAP_START, LOWER_OFF, NARROW, NODE_FLAGS, SLOT_COUNT, UPPER_OFF,
};
use crate::page::slot::{Cell, PLACE, SLOT_SIZE, SLOTS, WIDE_SLOT_SIZE, head_of};

/// Returns the node as it was in format version 8; the node itself if it was too full for that.
pub(super) fn widened(narrow: &Page) -> Page {
    let node = Node(&narrow[..]);
    let (flags, skip) = (node.field(NODE_FLAGS) as u16, node.field(HEAD_SKIP));
    let fences = [(HAS_LOWER, LOWER_OFF, node.lower_fence()), (HAS_UPPER, UPPER_OFF, node.upper_fence())];
    let cells: usize = (0..node.slot_count()).map(|slot| node.suffix(slot).len() + node.value(slot).len()).sum();
    let fence_bytes: usize = fences.iter().map(|(_, _, fence)| fence.map_or(0, <[u8]>::len)).sum();
    if SLOTS + node.slot_count() * WIDE_SLOT_SIZE + cells + fence_bytes > PAGE_SIZE {
        return *narrow;
    }
    let mut wide = *narrow;
    wide[SLOTS..].fill(0);
    let mut heap = PAGE_SIZE;
    let put = |wide: &mut Page, at: usize, value: usize| {
        wide[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
    };
    for (flag, at, fence) in fences {
        if flags & flag != 0 {
            let fence = fence.unwrap();
            heap -= fence.len();
            wide[heap..heap + fence.len()].copy_from_slice(fence);
            put(&mut wide, at, heap);
        }
    }
    for slot in 0..node.slot_count() {
        let (suffix, value) = (node.suffix(slot), node.value(slot));
        heap -= suffix.len() + value.len();
        wide[heap..][..suffix.len()].copy_from_slice(suffix);
        wide[heap + suffix.len()..][..value.len()].copy_from_slice(value);
        let at = SLOTS + slot * WIDE_SLOT_SIZE;
        wide[at..at + 4].copy_from_slice(&head_of(&suffix[skip..]).to_le_bytes());
        let fields = [heap, suffix.len(), value.len(), node.flags(slot).bits().into()];
        for (field, value) in fields.into_iter().enumerate() {
            put(&mut wide, at + 4 + 2 * field, value);
        }
    }
    put(&mut wide, NODE_FLAGS, usize::from(flags & !NARROW));
    put(&mut wide, SLOT_COUNT, node.slot_count());
    put(&mut wide, HEAP_START, heap);
    put(&mut wide, GARBAGE, 0);
    wide
}

#[test]
fn wide_nodes_are_read_and_become_narrow_when_they_change() {
    let mut page = leaf(Some(b"key/1"), Some(b"key/7"));
    let keys: Vec<_> = (0..200).map(|number| format!("key/2{number:03}").into_bytes()).collect();
    keys.iter().for_each(|key| insert(&mut page, key, b"value").unwrap());
    edit(&mut page, |mut node| node.set_flags(7, SlotFlags::GHOST));
    let mut wide = widened(&page);
    assert!(Node(&wide[..]).is_wide() && !Node(&page[..]).is_wide());
    // The wide node counts four of the six bytes that each entry will lose.
    assert_eq!(Node(&wide[..]).free_space() + 200 * 2, Node(&page[..]).free_space());
    for page in [&page, &wide] {
        check(page).unwrap();
        for (slot, key) in keys.iter().enumerate() {
            let node = Node(&page[..]);
            assert_eq!(node.lower_bound(key), (slot, true));
            assert_eq!((node.value(slot), node.is_ghost(slot)), (&b"value"[..], slot == 7));
        }
    }
    // A change of nothing.
    edit(&mut wide, |mut node| node.set_flags(7, SlotFlags::GHOST));
    check(&wide).unwrap();
    assert_eq!(Node(&wide[..]).free_space(), Node(&page[..]).free_space());
    assert!((0..200).all(|slot| Node(&wide[..]).is_ghost(slot) == (slot == 7)));
}

/// Checks that a leaf of several entries can be split before any of them.
fn split_everywhere(page: &Page) {
    let node = Node(&page[..]);
    assert!(node.slot_count() > 1);
    for hint in 0..node.slot_count() {
        let (slot, separator) = split_point(node, hint);
        let (mut left, mut right) = (*page, [0; PAGE_SIZE]);
        PageMut::tracked(&mut right, |mut right| build_right(node, slot, &separator, &mut right, PageId::new(11)));
        edit(&mut left, |mut node| node.truncate_left(slot, &separator));
        check(&left).unwrap();
        check(&right).unwrap();
        assert_eq!(Node(&left[..]).slot_count() + Node(&right[..]).slot_count(), node.slot_count());
    }
}

#[test]
fn full_nodes_of_both_kinds_split_everywhere() {
    let prefix = "p".repeat(900);
    let fences = [prefix.clone() + "/1", prefix.clone() + "/7"].map(String::into_bytes);
    for (prefix, lower, upper) in
        [("", None, None), (&prefix[..], None, None), (&prefix, Some(&fences[0][..]), Some(&fences[1][..]))]
    {
        for value_len in [0, 20, 254, 255, 256, 300] {
            let mut page = leaf(lower, upper);
            let mut number = 0;
            while insert(&mut page, format!("{prefix}/2{number:04}").as_bytes(), &vec![1; value_len]).is_ok() {
                number += 1;
            }
            split_everywhere(&page);
            // So many entries that the wide node has room.
            while !Node(&widened(&page)[..]).is_wide() {
                edit(&mut page, |mut node| node.remove(0));
            }
            split_everywhere(&widened(&page));
            let mut wide = widened(&page);
            while insert(&mut wide, format!("{prefix}/1{number:04}").as_bytes(), &vec![1; value_len]).is_ok() {
                number += 1;
            }
            check(&wide).unwrap();
            split_everywhere(&wide);
        }
    }
}

/// Sizes are computed from lengths alone, so the lengths must say which cells are long.
#[test]
fn a_short_cell_of_a_long_key_is_a_defect() {
    let prefix = [b'p'; 300];
    let mut page = leaf(Some(&[&prefix[..], b"a"].concat()), Some(&[&prefix[..], b"z"].concat()));
    insert(&mut page, &[&prefix[..], b"k"].concat(), b"value").unwrap();
    check(&page).unwrap();
    let Cell { start, suffix_len, value_len, .. } = Node(&page[..]).cell(0);
    page[start + 2..start + 4].copy_from_slice(&[suffix_len as u8, value_len as u8]);
    let place = slot::place(start + 2, false, SlotFlags::NONE);
    page[SLOTS + PLACE..SLOTS + SLOT_SIZE].copy_from_slice(&place.to_le_bytes());
    page[HEAP_START..HEAP_START + 2].copy_from_slice(&(start as u16 + 2).to_le_bytes());
    assert_eq!(Node(&page[..]).value(0), b"value");
    assert!(check(&page).unwrap_err().contains("wrong size"));
}

/// Redo from an old backup makes a node narrow earlier than it was at first, and must find as much
/// space in it.
#[test]
fn it_does_not_matter_when_a_node_becomes_narrow() {
    let with_value = |len| {
        let mut page = leaf(None, None);
        (0..10).for_each(|number| insert(&mut page, &[number], &vec![3; len]).unwrap());
        widened(&page)
    };
    let (mut early, mut late) = (with_value(300), with_value(10));
    (0..10).for_each(|slot| edit(&mut early, |mut node| node.set_value(slot, &[3; 10])).unwrap());
    edit(&mut late, |mut node| node.set_flags(0, SlotFlags::NONE));
    assert!(!Node(&early[..]).is_wide() && !Node(&late[..]).is_wide());
    assert_eq!(Node(&early[..]).free_space(), Node(&late[..]).free_space());
}
