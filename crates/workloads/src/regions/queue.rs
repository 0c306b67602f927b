//! A queue: a ring of entries, and two counters. The words: number of the next entry to take out,
//! and of the next one to put in.

use crate::regions::arena::{Arena, EntrySize, Scale, broken, check_entry, write_node};
use crate::regions::memory::{Addr, RegionAccess};

const FIRST: u64 = 0;
const NEXT: u64 = 1;
/// The key of the entry.
const WORDS: u64 = 1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    arena: Arena,
    scale: Scale,
}

impl Queue {
    pub(crate) fn new(base: Addr, scale: Scale) -> Self {
        Self { arena: Arena::new(base, 2, scale.entries, scale.size.bytes()), scale }
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Puts an entry in; a full queue stays as it is.
    pub(crate) fn enqueue<M: RegionAccess>(&self, memory: &mut M, key: u64) -> Result<(), M::Error> {
        let (first, next) = self.ends(memory)?;
        if next - first == self.scale.entries {
            return Ok(());
        }
        let node = self.node(next);
        memory.announce(&[(node, self.scale.size.bytes()), (self.arena.word(NEXT), 8)])?;
        write_node(memory, node, [key], self.scale.size, key)?;
        memory.store(self.arena.word(NEXT), next + 1)
    }

    /// Takes an entry out and returns its key.
    pub(crate) fn dequeue<M: RegionAccess>(&self, memory: &mut M) -> Result<Option<u64>, M::Error> {
        let (first, next) = self.ends(memory)?;
        if next == first {
            return Ok(None);
        }
        let node = self.node(first);
        let key = memory.load(node)?;
        // Copied while the queue is locked.
        let mut entry = [0; EntrySize::MOST];
        memory.read(node + WORDS * 8, &mut entry[..(self.scale.size.bytes() - WORDS * 8) as usize])?;
        memory.store(self.arena.word(FIRST), first + 1)?;
        Ok(Some(key))
    }

    /// Returns the keys, oldest first.
    pub(crate) fn audit<M: RegionAccess>(&self, memory: &mut M) -> Result<Vec<u64>, M::Error> {
        let (first, next) = self.ends(memory)?;
        if next < first || next - first > self.scale.entries {
            return Err(broken(format!("the ends are {first} and {next}")));
        }
        let mut keys = Vec::new();
        for number in first..next {
            let node = self.node(number);
            let key = memory.load(node)?;
            check_entry(memory, node, WORDS, self.scale.size, key)?;
            keys.push(key);
        }
        Ok(keys)
    }

    fn ends<M: RegionAccess>(&self, memory: &mut M) -> Result<(u64, u64), M::Error> {
        Ok((memory.load(self.arena.word(FIRST))?, memory.load(self.arena.word(NEXT))?))
    }

    fn node(&self, number: u64) -> Addr {
        self.arena.node(number % self.scale.entries)
    }
}
