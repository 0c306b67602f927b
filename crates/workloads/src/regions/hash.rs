//! A hash table of chains. An entry has a link, its key and a payload.

use duramen_sync::SplitMix64;

use super::entries::Entries;
use super::{AtomicMemory, Instance, Plain};

const CHAINS: u64 = 64;
const HEADS: u64 = 64;
const KEY: u64 = 8;
const PAYLOAD: u64 = 16;

fn entries(instance: &Instance) -> Entries {
    Entries::of(instance, HEADS + CHAINS * 8)
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
    for key in 0..instance.entries {
        toggle(instance, memory, 2 * key, random.bits())?;
    }
    Ok(())
}

pub(super) fn toggle<M: AtomicMemory>(
    instance: &Instance,
    memory: &mut M,
    key: u64,
    seed: u64,
) -> Result<(), M::Error> {
    let chain = instance.base + HEADS + key.wrapping_mul(0x9e37_79b9_7f4a_7c15) % CHAINS * 8;
    memory.work(6);
    toggle_in(&entries(instance), memory, chain, key, seed).map(|_| ())
}

/// Deletes the entry with `key` from the list whose head is at `head`, or inserts one; returns
/// whether it inserted.
pub(super) fn toggle_in<M: AtomicMemory>(
    entries: &Entries,
    memory: &mut M,
    head: u64,
    key: u64,
    seed: u64,
) -> Result<bool, M::Error> {
    let mut link = head;
    loop {
        let entry = memory.load(link)?;
        memory.work(4);
        if entry == 0 {
            break;
        }
        if memory.load(entry + KEY)? == key {
            let next = memory.load(entry)?;
            memory.store(link, next)?;
            entries.free(memory, entry)?;
            return Ok(false);
        }
        link = entry;
    }
    let entry = entries.take(memory)?;
    let first = memory.load(head)?;
    memory.store(entry, first)?;
    memory.store(entry + KEY, key)?;
    entries.fill(memory, entry, PAYLOAD, seed)?;
    memory.store(head, entry)?;
    Ok(true)
}

/// Checks a list and returns the keys in it.
pub(super) fn keys_in(entries: &Entries, memory: &Plain, head: u64) -> Result<Vec<u64>, String> {
    let (mut keys, mut at) = (Vec::new(), memory.word(head));
    while at != 0 {
        if !entries.is_entry(at) || keys.len() as u64 > entries.count {
            return Err(format!("the list at {head} leads to {at}"));
        }
        if !entries.is_filled(memory, at, PAYLOAD) {
            return Err(format!("the entry at {at} is not whole"));
        }
        keys.push(memory.word(at + KEY));
        at = memory.word(at);
    }
    Ok(keys)
}

pub(super) fn check(instance: &Instance, memory: &mut Plain) -> Result<u64, String> {
    let entries = entries(instance);
    let mut keys = Vec::new();
    for chain in 0..CHAINS {
        let of_chain = keys_in(&entries, memory, instance.base + HEADS + chain * 8)?;
        if let Some(key) = of_chain.iter().find(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15) % CHAINS != chain) {
            return Err(format!("key {key} is in chain {chain}"));
        }
        keys.extend(of_chain);
    }
    let used = keys.len() as u64;
    keys.sort_unstable();
    keys.dedup();
    if keys.len() as u64 != used {
        return Err("a key is there twice".to_owned());
    }
    entries.check_free(memory, used)?;
    Ok(used)
}
