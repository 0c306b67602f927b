//! An array of which two entries are swapped. An entry is filled from a word that names it.

use super::{AtomicMemory, Instance, Plain};

pub(super) fn bytes(instance: &Instance) -> u64 {
    instance.entries * instance.entry_bytes
}

fn value(entry: u64, at: u64) -> u64 {
    entry.wrapping_add(1).wrapping_mul(1_000_003).wrapping_add(at)
}

pub(super) fn build<M: AtomicMemory>(instance: &Instance, memory: &mut M) -> Result<(), M::Error> {
    for entry in 0..instance.entries {
        for at in (0..instance.entry_bytes).step_by(8) {
            memory.store(instance.base + entry * instance.entry_bytes + at, value(entry, at))?;
        }
    }
    Ok(())
}

pub(super) fn swap<M: AtomicMemory>(
    instance: &Instance,
    memory: &mut M,
    first: u64,
    second: u64,
) -> Result<(), M::Error> {
    let size = instance.entry_bytes as usize;
    let [first, second] = [first, second].map(|entry| instance.base + entry * instance.entry_bytes);
    let (mut one, mut other) = (vec![0; size], vec![0; size]);
    memory.read(first, &mut one)?;
    memory.read(second, &mut other)?;
    memory.write(first, &other)?;
    memory.write(second, &one)
}

pub(super) fn check(instance: &Instance, memory: &mut Plain) -> Result<u64, String> {
    let mut seen = vec![false; instance.entries as usize];
    for place in 0..instance.entries {
        let at = |at: u64| memory.word(instance.base + place * instance.entry_bytes + at);
        let entry = (at(0) / 1_000_003).wrapping_sub(1);
        let whole = (0..instance.entry_bytes).step_by(8).all(|of| at(of) == value(entry, of));
        match seen.get_mut(entry as usize).filter(|seen| whole && !**seen) {
            Some(seen) => *seen = true,
            None => return Err(format!("place {place} has no whole entry of its own")),
        }
    }
    Ok(instance.entries)
}
