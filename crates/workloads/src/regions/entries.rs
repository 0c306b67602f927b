//! Entries: words of the structure, then a payload up to the entry's size. Free ones are in a list
//! whose head is a word of the structure, so that taking and freeing is a part of the region.

use super::{AtomicMemory, Instance};

/// Where the entries of an instance are, and the head of their free list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries {
    /// Address of the head of the free list.
    pub(super) head: u64,
    /// The first entry.
    pub(super) first: u64,
    pub(super) count: u64,
    pub(super) bytes: u64,
}

impl Entries {
    /// The entries of `instance` behind `head_bytes` of its own; the head is its first word.
    pub(super) fn of(instance: &Instance, head_bytes: u64) -> Self {
        Self {
            head: instance.base,
            first: instance.base + head_bytes.next_multiple_of(64),
            count: 2 * instance.entries,
            bytes: instance.entry_bytes,
        }
    }

    /// The byte behind the last one.
    pub(super) fn end(&self) -> u64 {
        self.first + self.count * self.bytes
    }

    /// Puts all entries into the list.
    pub(super) fn free_all<M: AtomicMemory>(&self, memory: &mut M) -> Result<(), M::Error> {
        for entry in (0..self.count).rev() {
            self.free(memory, self.first + entry * self.bytes)?;
        }
        Ok(())
    }

    /// Takes an entry, of which there is always one: there are as many as there are keys.
    pub(super) fn take<M: AtomicMemory>(&self, memory: &mut M) -> Result<u64, M::Error> {
        let entry = memory.load(self.head)?;
        debug_assert!(entry != 0, "there is an entry for each key");
        let next = memory.load(entry)?;
        memory.store(self.head, next)?;
        Ok(entry)
    }

    pub(super) fn free<M: AtomicMemory>(&self, memory: &mut M, entry: u64) -> Result<(), M::Error> {
        let next = memory.load(self.head)?;
        memory.store(entry, next)?;
        memory.store(self.head, entry)
    }

    /// Fills an entry from byte `from` on with a payload that follows from `seed`.
    pub(super) fn fill<M: AtomicMemory>(
        &self,
        memory: &mut M,
        entry: u64,
        from: u64,
        seed: u64,
    ) -> Result<(), M::Error> {
        for at in (from..self.bytes).step_by(8) {
            memory.store(entry + at, seed.wrapping_add(at))?;
        }
        Ok(())
    }

    /// Whether the payload is what [`Entries::fill`] wrote.
    pub(super) fn is_filled(&self, memory: &super::Plain, entry: u64, from: u64) -> bool {
        let seed = memory.word(entry + from).wrapping_sub(from);
        (from..self.bytes).step_by(8).all(|at| memory.word(entry + at) == seed.wrapping_add(at))
    }

    /// Whether this is the address of an entry.
    pub(super) fn is_entry(&self, at: u64) -> bool {
        (self.first..self.end()).contains(&at) && (at - self.first).is_multiple_of(self.bytes)
    }

    /// Checks that the free entries and `used` others are all there are.
    pub(super) fn check_free(&self, memory: &super::Plain, used: u64) -> Result<(), String> {
        let (mut free, mut at) = (0, memory.word(self.head));
        while at != 0 {
            if !self.is_entry(at) || free + used >= self.count {
                return Err(format!("the list of free entries leads to {at}"));
            }
            free += 1;
            at = memory.word(at);
        }
        if free + used == self.count { Ok(()) } else { Err(format!("{free} entries free and {used} used")) }
    }
}
