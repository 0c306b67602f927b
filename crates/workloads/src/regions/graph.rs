//! A graph: vertices with lists of edges. Each vertex has a line with the head of its list and its
//! degrees; two edges from each vertex are possible for every four entries of the instance.

use duramen_sync::SplitMix64;

use super::entries::Entries;
use super::hash::{keys_in, toggle_in};
use super::{AtomicMemory, Instance, Plain};

const HEADS: u64 = 64;
const OUT: u64 = 8;
const IN: u64 = 16;

fn vertices(instance: &Instance) -> u64 {
    instance.entries
}

fn entries(instance: &Instance) -> Entries {
    Entries::of(instance, HEADS + vertices(instance) * 64)
}

fn vertex(instance: &Instance, number: u64) -> u64 {
    instance.base + HEADS + number * 64
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
    for from in 0..vertices(instance) {
        toggle(instance, memory, from, random.bits())?;
    }
    Ok(())
}

/// Toggles one of the two edges that are possible from a vertex.
pub(super) fn toggle<M: AtomicMemory>(
    instance: &Instance,
    memory: &mut M,
    first: u64,
    second: u64,
) -> Result<(), M::Error> {
    let count = vertices(instance);
    let from = first % count;
    let to = (from * 7 + 1 + second % 2 * 5) % count;
    let (from_at, to_at) = (vertex(instance, from), vertex(instance, to));
    memory.work(8);
    let inserted = toggle_in(&entries(instance), memory, from_at, to, second)?;
    for degree in [from_at + OUT, to_at + IN] {
        let old = memory.load(degree)?;
        memory.store(degree, if inserted { old + 1 } else { old - 1 })?;
    }
    Ok(())
}

pub(super) fn check(instance: &Instance, memory: &mut Plain) -> Result<u64, String> {
    let entries = entries(instance);
    let mut incoming = vec![0; vertices(instance) as usize];
    let mut edges = 0;
    for from in 0..vertices(instance) {
        let to = keys_in(&entries, memory, vertex(instance, from))?;
        edges += to.len() as u64;
        if memory.word(vertex(instance, from) + OUT) != to.len() as u64 {
            return Err(format!("vertex {from} has {} edges, and counts others", to.len()));
        }
        for to in to {
            *incoming.get_mut(to as usize).ok_or_else(|| format!("vertex {from} leads to {to}"))? += 1;
        }
    }
    for (number, count) in incoming.into_iter().enumerate() {
        if memory.word(vertex(instance, number as u64) + IN) != count {
            return Err(format!("{count} edges lead to vertex {number}, and it counts others"));
        }
    }
    entries.check_free(memory, edges)?;
    Ok(edges)
}
