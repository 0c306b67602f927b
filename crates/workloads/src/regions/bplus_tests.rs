//! The B+-tree against the standard library's map, on ordinary memory.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::regions::RegionError;
use crate::regions::memory::PlainMemory;

const BASE: Addr = 128;

fn empty(entries: u64) -> (PlainMemory, BPlusTree) {
    let tree = BPlusTree::new(BASE, entries);
    let mut memory = PlainMemory::new(BASE + tree.bytes());
    tree.make(&mut memory, ()).unwrap();
    (memory, tree)
}

/// Inserts the keys, and compares the tree with a map after each `step`th of them.
fn compare(keys: &[u64], step: usize) {
    let (mut memory, tree) = empty(keys.len() as u64);
    let mut model = BTreeMap::new();
    for (number, &key) in keys.iter().enumerate() {
        assert_eq!(tree.find(&mut memory, key), Ok(model.get(&key).copied()));
        if model.contains_key(&key) {
            continue;
        }
        tree.insert(&mut memory, key, key ^ 0xabc).unwrap();
        model.insert(key, key ^ 0xabc);
        if number % step == 0 || number + 1 == keys.len() {
            let entries: Vec<(u64, Addr)> = model.iter().map(|(key, row)| (*key, *row)).collect();
            assert_eq!(tree.audit(&mut memory), Ok(entries));
        }
    }
    for key in keys {
        for near in [key.saturating_sub(1), *key, key + 1] {
            assert_eq!(tree.find(&mut memory, near), Ok(model.get(&near).copied()));
        }
    }
}

#[test]
fn random_keys_are_found_in_order() {
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let keys: Vec<u64> = (0..400).map(|_| random.random_range(0..1 << (6 + seed % 5 * 8))).collect();
        compare(&keys, 1);
    }
}

#[test]
fn keys_in_any_order_fit_the_nodes_that_there_are() {
    const KEYS: u64 = 20_000;
    compare(&(0..KEYS).collect::<Vec<u64>>(), 4_001);
    compare(&(0..KEYS).rev().collect::<Vec<u64>>(), 4_001);
    // Groups that grow, each between others: as order lines of several districts in one tree.
    compare(&(0..KEYS).map(|number| ((number % 10) << 32) | (number / 10)).collect::<Vec<u64>>(), 4_001);
    compare(&(0..KEYS).map(|number| ((9 - number % 10) << 32) | (number / 10)).collect::<Vec<u64>>(), 4_001);
    let mut random = StdRng::seed_from_u64(5);
    compare(&(0..KEYS).map(|_| random.random_range(0..1 << 40)).collect::<Vec<u64>>(), 4_001);
}

#[test]
fn keys_that_grow_fill_the_nodes() {
    let (mut memory, tree) = empty(15_000);
    for key in 0..15_000 {
        tree.insert(&mut memory, key, key + 1).unwrap();
    }
    let free = tree.nodes.count_free(&mut memory).unwrap();
    let used = 15_000 / 6 + LEVELS as u64 - free;
    assert!(used < 15_000 / 14 * 14 / 12, "{used} nodes");
}

#[test]
fn a_key_is_not_inserted_twice() {
    let (mut memory, tree) = empty(100);
    for key in 0..60 {
        tree.insert(&mut memory, key, 8).unwrap();
    }
    assert!(matches!(tree.insert(&mut memory, 7, 8), Err(RegionError::Broken(_))));
}

#[test]
fn audits_notice_damage() {
    let mut noticed = 0;
    for seed in 0..200 {
        let (mut memory, tree) = empty(300);
        for key in 1..=300 {
            tree.insert(&mut memory, key * 10, key).unwrap();
        }
        let before = tree.audit(&mut memory).unwrap();
        // Any word of any node that is in use, but for the child word of leaves.
        let mut random = StdRng::seed_from_u64(seed);
        let node = loop {
            let at = tree.nodes.node(random.random_range(0..25));
            let node = Node::get(&mut memory, at).unwrap();
            if node.len() > 0 {
                break node;
            }
        };
        let word = match random.random_range(0..=2 * node.len()) {
            0 => 0,
            word => word + 1,
        };
        let at = node.0.at + word as u64 * 8;
        let damaged = node.0.words[word] ^ 1 << random.random_range(0..7);
        memory.store(at, damaged).unwrap();
        // Keys of inner nodes may change a little and still lead to the right leaves.
        let is_noticed = tree.audit(&mut memory) != Ok(before);
        let is_harmless = (1..=300).all(|key| tree.find(&mut memory, key * 10) == Ok(Some(key)));
        assert!(is_noticed || is_harmless, "seed {seed}, word {word} of {:?}", node.0.words);
        noticed += u32::from(is_noticed);
    }
    assert!(noticed > 150, "{noticed}");
}
