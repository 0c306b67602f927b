//! A ring of entries: *next in* and *next out* lie in lines of their own before it. Entries are
//! copied in and out while the ring is locked.

use super::{AtomicMemory, Instance, Plain};

const NEXT_IN: u64 = 0;
const NEXT_OUT: u64 = 64;
const FIRST: u64 = 128;

fn place(instance: &Instance, number: u64) -> u64 {
    instance.base + FIRST + number % (2 * instance.entries) * instance.entry_bytes
}

pub(super) fn bytes(instance: &Instance) -> u64 {
    FIRST + 2 * instance.entries * instance.entry_bytes
}

pub(super) fn build<M: AtomicMemory>(instance: &Instance, memory: &mut M) -> Result<(), M::Error> {
    for number in 0..instance.entries {
        enqueue(instance, memory, number)?;
    }
    Ok(())
}

/// Enqueues or dequeues in turn; a full ring is dequeued from, an empty one enqueued to.
pub(super) fn step<M: AtomicMemory>(
    instance: &Instance,
    memory: &mut M,
    number: u64,
    seed: u64,
) -> Result<(), M::Error> {
    let (next_in, next_out) = (memory.load(instance.base + NEXT_IN)?, memory.load(instance.base + NEXT_OUT)?);
    memory.work(6);
    let used = next_in - next_out;
    let takes = used > 0 && (number % 2 == 1 || used == 2 * instance.entries);
    if takes {
        let mut copy = vec![0; instance.entry_bytes as usize];
        memory.read(place(instance, next_out), &mut copy)?;
        return memory.store(instance.base + NEXT_OUT, next_out + 1);
    }
    enqueue(instance, memory, seed)
}

fn enqueue<M: AtomicMemory>(instance: &Instance, memory: &mut M, seed: u64) -> Result<(), M::Error> {
    let next_in = memory.load(instance.base + NEXT_IN)?;
    let at = place(instance, next_in);
    for offset in (0..instance.entry_bytes).step_by(8) {
        memory.store(at + offset, seed.wrapping_add(offset))?;
    }
    memory.store(instance.base + NEXT_IN, next_in + 1)
}

pub(super) fn check(instance: &Instance, memory: &mut Plain) -> Result<u64, String> {
    let (next_in, next_out) = (memory.word(instance.base + NEXT_IN), memory.word(instance.base + NEXT_OUT));
    let used = next_in.checked_sub(next_out).filter(|used| *used <= 2 * instance.entries);
    let used = used.ok_or_else(|| format!("entries {next_out} to {next_in} do not fit"))?;
    for number in next_out..next_in {
        let at = place(instance, number);
        let seed = memory.word(at);
        if (0..instance.entry_bytes).step_by(8).any(|offset| memory.word(at + offset) != seed.wrapping_add(offset)) {
            return Err(format!("entry {number} is not whole"));
        }
    }
    Ok(used)
}
