//! A B+-tree of order 8: nodes of two lines, with up to seven keys; leaves refer to entries outside.
//! A deletion takes the key from its leaf and merges nothing.

use duramen_sync::SplitMix64;

use super::entries::Entries;
use super::{AtomicMemory, Instance, Plain};

const KEYS: u64 = 7;
const ROOT: u64 = 8;
const HEIGHT: u64 = 16;
const FREE_NODES: u64 = 64;
const NODE: u64 = 128;

/// The first word of a node counts its keys; keys and children or entries follow. An inner node has
/// a child more than keys, before the first.
const FIRST_KEY: u64 = 8;
const FIRST_CHILD: u64 = 64;

const PAYLOAD: u64 = 8;
/// Inner nodes on the way to a leaf, at most.
const MOST_LEVELS: u64 = 16;

/// A node for every key is more than splits can make: no key range is split twice.
fn nodes(instance: &Instance) -> Entries {
    Entries {
        head: instance.base + FREE_NODES,
        first: instance.base + 128,
        count: 2 * instance.entries + 8,
        bytes: NODE,
    }
}

fn entries(instance: &Instance) -> Entries {
    Entries { first: nodes(instance).end(), ..Entries::of(instance, 0) }
}

pub(super) fn bytes(instance: &Instance) -> u64 {
    entries(instance).end() - instance.base
}

pub(super) fn build<M: AtomicMemory>(
    instance: &Instance,
    memory: &mut M,
    random: &mut SplitMix64,
) -> Result<(), M::Error> {
    entries(instance).free_all(memory)?;
    nodes(instance).free_all(memory)?;
    let root = nodes(instance).take(memory)?;
    memory.store(root, 0)?;
    memory.store(instance.base + ROOT, root)?;
    for key in 0..instance.entries {
        // An order in which neighbours do not follow each other.
        let key = key * 37 % instance.entries;
        toggle(instance, memory, 2 * key + 1, random.bits())?;
    }
    Ok(())
}

/// Returns the number of keys in `node` that are at most `key`.
fn position<M: AtomicMemory>(memory: &mut M, node: u64, key: u64) -> Result<(u64, u64), M::Error> {
    let count = memory.load(node)?;
    for index in 0..count {
        memory.work(3);
        if memory.load(node + FIRST_KEY + index * 8)? > key {
            return Ok((index, count));
        }
    }
    Ok((count, count))
}

pub(super) fn toggle<M: AtomicMemory>(
    instance: &Instance,
    memory: &mut M,
    key: u64,
    seed: u64,
) -> Result<(), M::Error> {
    let mut path = Vec::new();
    let mut node = memory.load(instance.base + ROOT)?;
    for _ in 0..memory.load(instance.base + HEIGHT)? {
        let (index, _) = position(memory, node, key)?;
        path.push((node, index));
        node = memory.load(node + FIRST_CHILD + index * 8)?;
    }
    let (index, count) = position(memory, node, key)?;
    if index > 0 && memory.load(node + FIRST_KEY + (index - 1) * 8)? == key {
        let entry = memory.load(node + FIRST_CHILD + (index - 1) * 8)?;
        for at in index..count {
            move_word(memory, node + FIRST_KEY + at * 8, node + FIRST_KEY + (at - 1) * 8)?;
            move_word(memory, node + FIRST_CHILD + at * 8, node + FIRST_CHILD + (at - 1) * 8)?;
        }
        memory.store(node, count - 1)?;
        return entries(instance).free(memory, entry);
    }
    let entry = entries(instance).take(memory)?;
    memory.store(entry, key)?;
    entries(instance).fill(memory, entry, PAYLOAD, seed)?;
    insert(instance, memory, &mut path, (node, index), (key, entry), 0)
}

fn move_word<M: AtomicMemory>(memory: &mut M, from: u64, to: u64) -> Result<(), M::Error> {
    let word = memory.load(from)?;
    memory.store(to, word)
}

/// Inserts a key and what lies right of it into a node; `extra` is 1 for inner nodes.
fn insert<M: AtomicMemory>(
    instance: &Instance,
    memory: &mut M,
    path: &mut Vec<(u64, u64)>,
    (node, index): (u64, u64),
    (key, value): (u64, u64),
    extra: u64,
) -> Result<(), M::Error> {
    let count = memory.load(node)?;
    if count < KEYS {
        return insert_at(memory, node, (index, count), (key, value), extra);
    }
    // The upper half moves to a new node. A leaf keeps its keys, an inner node gives the middle one
    // to its parent.
    let (kept, new) = (count / 2, nodes(instance).take(memory)?);
    let first = kept + extra;
    let middle = memory.load(node + FIRST_KEY + kept * 8)?;
    for at in first..count {
        move_word(memory, node + FIRST_KEY + at * 8, new + FIRST_KEY + (at - first) * 8)?;
    }
    for at in first..count + extra {
        move_word(memory, node + FIRST_CHILD + at * 8, new + FIRST_CHILD + (at - first) * 8)?;
    }
    memory.store(node, kept)?;
    memory.store(new, count - first)?;
    if key < middle {
        insert_at(memory, node, (index, kept), (key, value), extra)?;
    } else {
        insert_at(memory, new, (index - first, count - first), (key, value), extra)?;
    }
    match path.pop() {
        Some(parent) => insert(instance, memory, path, parent, (middle, new), 1),
        None => {
            let root = nodes(instance).take(memory)?;
            memory.store(root, 1)?;
            memory.store(root + FIRST_KEY, middle)?;
            memory.store(root + FIRST_CHILD, node)?;
            memory.store(root + FIRST_CHILD + 8, new)?;
            let height = memory.load(instance.base + HEIGHT)?;
            memory.store(instance.base + HEIGHT, height + 1)?;
            memory.store(instance.base + ROOT, root)
        }
    }
}

fn insert_at<M: AtomicMemory>(
    memory: &mut M,
    node: u64,
    (index, count): (u64, u64),
    (key, value): (u64, u64),
    extra: u64,
) -> Result<(), M::Error> {
    for at in (index..count).rev() {
        move_word(memory, node + FIRST_KEY + at * 8, node + FIRST_KEY + (at + 1) * 8)?;
        let child = at + extra;
        move_word(memory, node + FIRST_CHILD + child * 8, node + FIRST_CHILD + (child + 1) * 8)?;
    }
    memory.store(node + FIRST_KEY + index * 8, key)?;
    memory.store(node + FIRST_CHILD + (index + extra) * 8, value)?;
    memory.store(node, count + 1)
}

pub(super) fn check(instance: &Instance, memory: &mut Plain) -> Result<u64, String> {
    let (root, height) = (memory.word(instance.base + ROOT), memory.word(instance.base + HEIGHT));
    if height > MOST_LEVELS {
        return Err(format!("the tree is {height} high"));
    }
    let (mut used, mut used_nodes) = (0, 0);
    let mut open = vec![(root, height, 0, u64::MAX)];
    while let Some((node, height, least, most)) = open.pop() {
        let count = memory.word(node);
        if !nodes(instance).is_entry(node) || count > KEYS || used_nodes > nodes(instance).count {
            return Err(format!("the tree leads to {node}, which is no node"));
        }
        used_nodes += 1;
        let key = |index: u64| memory.word(node + FIRST_KEY + index * 8);
        let sorted = (1..count).all(|index| key(index - 1) < key(index));
        if !sorted || count > 0 && (key(0) < least || key(count - 1) >= most) {
            return Err(format!("the keys of node {node} are at the wrong place"));
        }
        if height > 0 {
            for index in 0..=count {
                let least = if index == 0 { least } else { key(index - 1) };
                let most = if index == count { most } else { key(index) };
                open.push((memory.word(node + FIRST_CHILD + index * 8), height - 1, least, most));
            }
            continue;
        }
        for index in 0..count {
            let entry = memory.word(node + FIRST_CHILD + index * 8);
            let whole = entries(instance).is_entry(entry) && entries(instance).is_filled(memory, entry, PAYLOAD);
            if !whole || memory.word(entry) != key(index) {
                return Err(format!("the entry of key {} is not whole", key(index)));
            }
            used += 1;
        }
    }
    nodes(instance).check_free(memory, used_nodes)?;
    entries(instance).check_free(memory, used)?;
    Ok(used)
}
