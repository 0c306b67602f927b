//! An array whose entries are swapped. Word 0 of an entry is its key.

use crate::regions::arena::{Arena, Scale, broken, check_entry, write_node};
use crate::regions::memory::{Addr, AtomicMemory, RegionAccess};

const WORDS: u64 = 1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sps {
    arena: Arena,
    scale: Scale,
}

impl Sps {
    pub(crate) fn new(base: Addr, scale: Scale) -> Self {
        Self { arena: Arena::new(base, 0, scale.entries, scale.size.bytes()), scale }
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Fills the array with the entries of the keys 0, 1, ...
    pub(crate) fn make<M: AtomicMemory>(&self, memory: &mut M, lock: M::Lock) -> Result<(), M::Error> {
        for index in 0..self.scale.entries {
            let node = self.arena.node(index);
            memory.atomic(lock, |memory| write_node(memory, node, [index], self.scale.size, index))?;
        }
        Ok(())
    }

    pub(crate) fn swap<M: RegionAccess>(&self, memory: &mut M, one: u64, other: u64) -> Result<(), M::Error> {
        let (one, other) = (self.arena.node(one % self.scale.entries), self.arena.node(other % self.scale.entries));
        let bytes = self.scale.size.bytes() as usize;
        let (mut first, mut second) = (vec![0; bytes], vec![0; bytes]);
        memory.read(one, &mut first)?;
        memory.read(other, &mut second)?;
        memory.write(one, &second)?;
        memory.write(other, &first)
    }

    /// Returns the keys in their order in the array.
    pub(crate) fn audit<M: RegionAccess>(&self, memory: &mut M) -> Result<Vec<u64>, M::Error> {
        let mut keys = Vec::new();
        for index in 0..self.scale.entries {
            let node = self.arena.node(index);
            let key = memory.load(node)?;
            check_entry(memory, node, WORDS, self.scale.size, key)?;
            keys.push(key);
        }
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..self.scale.entries) {
            return Err(broken("an entry is lost, or there twice"));
        }
        Ok(keys)
    }
}
