//! Compares random changes, splits and merges of a row of sibling nodes with ordered maps. Checks,
//! too, that each of them marks the lines that it changes.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::{Aligned, Page, TABLE, edit, widened};
use crate::page::*;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Insert(Vec<u8>, usize),
    Remove(Index),
    SetValue(Index, usize),
    Patch(Index, Index),
    SetFlags(Index, u16),
    Split(Index, Index),
    Merge(Index),
    Compact(Index),
    Image(Index),
    Widen(Index),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(b'b'), Just(254), Just(255), any::<u8>()];
    let prefix = prop_oneof![
        4 => Just(Vec::new()),
        4 => Just(b"tenant/0001/".to_vec()),
        2 => Just(b"tenant/".to_vec()),
        1 => Just(vec![b'x'; 500]),
        1 => Just(vec![0xFF; 1000]),
    ];
    (prefix, vec(byte, 0..20)).prop_map(|(prefix, rest)| [prefix, rest].concat())
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (key(), prop_oneof![0usize..40, 0usize..512]).prop_map(|(key, len)| Op::Insert(key, len)),
        4 => any::<Index>().prop_map(Op::Remove),
        3 => (any::<Index>(), prop_oneof![0usize..40, 0usize..512]).prop_map(|(at, len)| Op::SetValue(at, len)),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(at, from)| Op::Patch(at, from)),
        1 => (any::<Index>(), 0u16..2).prop_map(|(at, bits)| Op::SetFlags(at, bits)),
        2 => (any::<Index>(), any::<Index>()).prop_map(|(node, hint)| Op::Split(node, hint)),
        2 => any::<Index>().prop_map(Op::Merge),
        1 => any::<Index>().prop_map(Op::Compact),
        1 => any::<Index>().prop_map(Op::Image),
        2 => any::<Index>().prop_map(Op::Widen),
    ]
}

type Entry = (Vec<u8>, SlotFlags);

/// Siblings from minus to plus infinity, and their expected contents.
///
/// In inner nodes, the separators between the siblings belong to the contents, each with the
/// rightmost child of the node on its left.
struct Row {
    ty: PageType,
    nodes: Vec<Page>,
    contents: BTreeMap<Vec<u8>, Entry>,
    next: u64,
}

impl Row {
    fn new(ty: PageType) -> Self {
        let mut page = [0; PAGE_SIZE];
        let level = u8::from(ty == PageType::Inner);
        PageMut::tracked(&mut page, |page| {
            let mut node = NodeMut::init(page, ty, level, PageId::new(2), TABLE, None, None);
            if ty == PageType::Inner {
                node.set_rightmost(PageId::new(1_000_000));
            }
        });
        Self { ty, nodes: vec![page], contents: BTreeMap::new(), next: 1 }
    }

    fn value(&mut self, len: usize) -> Vec<u8> {
        self.next += 1;
        match self.ty {
            PageType::Leaf => (0..len).map(|i| (self.next as usize + i) as u8).collect(),
            _ => self.next.to_le_bytes().to_vec(),
        }
    }

    fn node_for(&self, key: &[u8]) -> usize {
        let covers: Vec<_> = (0..self.nodes.len()).filter(|&at| self.view(at).contains(key)).collect();
        assert_eq!(covers.len(), 1, "every key belongs to one node");
        covers[0]
    }

    fn view(&self, at: usize) -> Node<&[u8]> {
        Node(&self.nodes[at])
    }

    /// Returns node and slot of an existing entry.
    fn pick(&self, index: Index) -> Option<(usize, usize)> {
        let places: Vec<_> =
            (0..self.nodes.len()).flat_map(|at| (0..self.view(at).slot_count()).map(move |slot| (at, slot))).collect();
        (!places.is_empty()).then(|| places[index.index(places.len())])
    }

    fn key_at(&self, at: usize, slot: usize) -> Vec<u8> {
        let mut key = Vec::new();
        self.view(at).key_into(slot, &mut key);
        key
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Insert(key, len) => self.insert(key, len),
            Op::Remove(index) => {
                if let Some((at, slot)) = self.pick(index) {
                    self.contents.remove(&self.key_at(at, slot)).unwrap();
                    edit(&mut self.nodes[at], |mut node| node.remove(slot));
                }
            }
            Op::SetValue(index, len) => self.set_value(index, len),
            Op::Patch(index, from) => {
                if let Some((at, slot)) = self.pick(index) {
                    let key = self.key_at(at, slot);
                    let value = &mut self.contents.get_mut(&key).unwrap().0;
                    let from = from.index(value.len() + 1);
                    value[from..].iter_mut().for_each(|byte| *byte ^= 1);
                    edit(&mut self.nodes[at], |mut node| node.patch_value(slot, from, &value[from..]));
                }
            }
            Op::SetFlags(index, bits) => {
                if let (Some((at, slot)), PageType::Leaf) = (self.pick(index), self.ty) {
                    let flags = SlotFlags::from_bits(bits);
                    let key = self.key_at(at, slot);
                    edit(&mut self.nodes[at], |mut node| node.set_flags(slot, flags));
                    self.contents.get_mut(&key).unwrap().1 = flags;
                }
            }
            Op::Split(at, hint) => {
                let at = at.index(self.nodes.len());
                let count = self.view(at).slot_count();
                // A split at the very end serves a key between the last one and the upper fence.
                let hint = hint.index(count + 1);
                let at_fence = count > 0 && self.view(at).upper_fence() == Some(&self.key_at(at, count - 1)[..]);
                if count >= 3 && !(hint == count && at_fence) {
                    self.split(at, hint);
                }
            }
            Op::Merge(at) => {
                let at = at.index(self.nodes.len());
                if at + 1 < self.nodes.len() {
                    self.merge(at);
                }
            }
            Op::Compact(at) => {
                let at = at.index(self.nodes.len());
                edit(&mut self.nodes[at], |mut node| node.compact());
                assert_eq!(self.view(at).field(node::GARBAGE), 0);
            }
            Op::Image(at) => {
                let at = at.index(self.nodes.len());
                let bytes = image(&self.nodes[at]);
                assert!(bytes.len() <= PAGE_SIZE);
                let mut restored = [0xEE; PAGE_SIZE];
                PageMut::tracked(&mut restored, |mut page| restore_image(&bytes, &mut page)).unwrap();
                assert_eq!(image(&restored), bytes);
                self.nodes[at] = restored;
            }
            Op::Widen(at) => {
                let at = at.index(self.nodes.len());
                self.nodes[at] = widened(&self.nodes[at]);
            }
        }
    }

    fn insert(&mut self, key: Vec<u8>, len: usize) {
        if self.contents.contains_key(&key) {
            return;
        }
        let value = self.value(len);
        let at = self.node_for(&key);
        if self.ty == PageType::Inner && self.view(at).upper_fence() == Some(&key) {
            return;
        }
        let (slot, found) = self.view(at).lower_bound(&key);
        assert!(!found);
        let before = self.nodes[at];
        let (room, is_wide) = (self.view(at).room_for(key.len(), value.len()), self.view(at).is_wide());
        let result = edit(&mut self.nodes[at], |mut node| node.insert(slot, &key, &value, SlotFlags::NONE));
        assert!(if is_wide { result.is_ok() || !room } else { result.is_ok() == room });
        if result.is_err() {
            assert!(self.nodes[at] == before || is_wide, "a refused insertion changes nothing");
            self.split(at, slot);
            let at = self.node_for(&key);
            let (slot, _) = self.view(at).lower_bound(&key);
            edit(&mut self.nodes[at], |mut node| node.insert(slot, &key, &value, SlotFlags::NONE))
                .expect("a split makes room");
        }
        self.contents.insert(key, (value, SlotFlags::NONE));
    }

    fn set_value(&mut self, index: Index, len: usize) {
        let Some((at, slot)) = self.pick(index) else { return };
        let key = self.key_at(at, slot);
        let value = self.value(len);
        let before = self.nodes[at];
        let (room, is_wide) = (self.view(at).room_for_value(slot, value.len()), self.view(at).is_wide());
        if self.ty == PageType::Inner {
            let mut raw = [0; 8];
            raw.copy_from_slice(&value);
            edit(&mut self.nodes[at], |mut node| node.set_child(slot, PageId::new(u64::from_le_bytes(raw))));
        } else if edit(&mut self.nodes[at], |mut node| node.set_value(slot, &value)).is_err() {
            assert!(!room && (self.nodes[at] == before || is_wide), "a refused change changes nothing");
            self.split(at, slot);
            let at = self.node_for(&key);
            let (slot, found) = self.view(at).lower_bound(&key);
            assert!(found);
            edit(&mut self.nodes[at], |mut node| node.set_value(slot, &value)).expect("a split makes room");
        }
        self.contents.get_mut(&key).unwrap().0 = value;
    }

    fn split(&mut self, at: usize, hint: usize) {
        let (slot, separator) = split_point(self.view(at), hint);
        let mut right = [0; PAGE_SIZE];
        PageMut::tracked(&mut right, |mut right| {
            build_right(self.view(at), slot, &separator, &mut right, PageId::new(3));
        });
        assert_eq!(page_id(&right), PageId::new(3));
        edit(&mut self.nodes[at], |mut node| node.truncate_left(slot, &separator));
        assert_eq!(page_id(&self.nodes[at]), PageId::new(2));
        PageMut::tracked(&mut right, |mut right| set_page_id(&mut right, PageId::new(2)));
        self.nodes.insert(at + 1, right);
    }

    fn merge(&mut self, at: usize) {
        let (left, right) = (self.view(at), self.view(at + 1));
        let size = merged_size(left, right);
        assert_eq!(merge_fits(left, right), size <= PAGE_SIZE);
        if size > PAGE_SIZE {
            return;
        }
        let separator = left.upper_fence().unwrap().to_vec();
        let right = self.nodes.remove(at + 1);
        PageMut::tracked(&mut self.nodes[at], |mut left| merge_into(&mut left, Node(&right), &separator));
        assert_eq!(self.view(at).used_space() + 64, size);
    }

    fn validate(&self) {
        let mut entries = Vec::new();
        for (at, page) in self.nodes.iter().enumerate() {
            check(page).unwrap();
            let node = Node(&page[..]);
            if !node.is_wide() {
                let sizes = (0..node.slot_count()).map(|slot| entry_size(node.key_len(slot), node.value_len(slot)));
                let size = node_size(node.lower_fence(), node.upper_fence(), node.slot_count(), sizes.sum());
                assert_eq!(node.used_space() + 64, size, "the size follows from the entries alone");
            }
            assert_eq!(node.lower_fence(), (at > 0).then(|| self.view(at - 1).upper_fence().unwrap()));
            for slot in 0..node.slot_count() {
                let key = self.key_at(at, slot);
                assert_eq!(node.lower_bound(&key), (slot, true));
                assert_eq!(node.compare_key(slot, &key), std::cmp::Ordering::Equal);
                let mut value = Vec::new();
                node.value_into(slot, &mut value);
                entries.push((key, (value, node.flags(slot))));
            }
            if let (Some(upper), PageType::Inner) = (node.upper_fence(), self.ty) {
                let child = node.child(node.slot_count());
                entries.push((upper.to_vec(), (child.get().to_le_bytes().to_vec(), SlotFlags::NONE)));
            }
        }
        let last = self.view(self.nodes.len() - 1);
        assert_eq!(last.upper_fence(), None);
        if self.ty == PageType::Inner {
            assert_eq!(last.child(last.slot_count()), PageId::new(1_000_000));
        }
        assert!(entries.iter().map(|(key, entry)| (key, entry)).eq(&self.contents), "the nodes hold the contents");
    }

    /// Looks `key` up in the node that covers it, in every way of reading.
    fn look_up(&self, key: &[u8]) {
        let at = self.node_for(key);
        let page = Box::new(Aligned(self.nodes[at]));
        let (node, optimistic) = (self.view(at), page.optimistic());
        let expected = (0..node.slot_count()).find(|&slot| self.key_at(at, slot)[..] >= *key);
        let (slot, found) = node.lower_bound(key);
        assert_eq!(slot, expected.unwrap_or(node.slot_count()));
        assert_eq!(found, slot < node.slot_count() && self.key_at(at, slot) == key);
        assert_eq!(optimistic.lower_bound(key), (slot, found));
        assert!(optimistic.contains(key));
        if self.ty == PageType::Inner {
            assert_eq!(optimistic.child_for(key), (slot, node.child(slot)));
            let next = self.contents.range(key.to_vec()..).next();
            let child = next.map_or(1_000_000u64.to_le_bytes().to_vec(), |(_, (child, _))| child.clone());
            assert_eq!(optimistic.child_for(key).1.get().to_le_bytes().to_vec(), child);
        } else if found {
            let mut value = Vec::new();
            optimistic.value_into(slot, &mut value);
            assert_eq!(value, self.contents[key].0);
        }
    }
}

pub(super) fn run(ty: PageType, ops: Vec<Op>, probes: Vec<Vec<u8>>) {
    let mut row = Row::new(ty);
    for op in ops {
        row.apply(op);
        row.validate();
    }
    probes.iter().for_each(|key| row.look_up(key));
    let keys: Vec<_> = row.contents.keys().cloned().collect();
    keys.iter().for_each(|key| row.look_up(key));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn leaves_match_the_model(ops in vec(op(), 1..250), probes in vec(key(), 20)) {
        run(PageType::Leaf, ops, probes);
    }

    #[test]
    fn inner_nodes_match_the_model(ops in vec(op(), 1..250), probes in vec(key(), 20)) {
        run(PageType::Inner, ops, probes);
    }
}
