//! A hash table: chains of nodes. A node has the words next and key, then the entry.

use crate::regions::arena::{Arena, Scale, broken, check_entry, write_node};
use crate::regions::memory::{Addr, RegionAccess};

pub(crate) const CHAINS: u64 = 64;
const NEXT: u64 = 0;
const KEY: u64 = 8;
const WORDS: u64 = 2;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Hash {
    arena: Arena,
    scale: Scale,
}

impl Hash {
    pub(crate) fn new(base: Addr, scale: Scale) -> Self {
        Self { arena: Arena::new(base, CHAINS, scale.entries, scale.size.bytes()), scale }
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Deletes the key if it is there, else inserts it; a full table stays as it is.
    pub(crate) fn toggle<M: RegionAccess>(&self, memory: &mut M, key: u64) -> Result<(), M::Error> {
        let chain = self.arena.word(chain_of(key));
        let mut link = chain;
        loop {
            let node = memory.load(link)?;
            if node == 0 {
                break;
            }
            memory.work(10);
            if memory.load(node + KEY)? == key {
                let next = memory.load(node + NEXT)?;
                memory.announce(&[(link, 8), (node, 8), (self.arena.base, 8)])?;
                memory.store(link, next)?;
                return self.arena.give_back(memory, node);
            }
            link = node + NEXT;
        }
        let Some(node) = self.arena.take_with(memory, &[chain])? else { return Ok(()) };
        let first = memory.load(chain)?;
        write_node(memory, node, [first, key], self.scale.size, key)?;
        memory.store(chain, node)
    }

    /// Returns the keys, sorted.
    pub(crate) fn audit<M: RegionAccess>(&self, memory: &mut M) -> Result<Vec<u64>, M::Error> {
        let mut keys = Vec::new();
        for chain in 0..CHAINS {
            let mut node = memory.load(self.arena.word(chain))?;
            while node != 0 {
                let key = memory.load(node + KEY)?;
                if chain_of(key) != chain || keys.len() as u64 >= self.scale.entries {
                    return Err(broken(format!("key {key} is in chain {chain}")));
                }
                check_entry(memory, node, WORDS, self.scale.size, key)?;
                keys.push(key);
                node = memory.load(node + NEXT)?;
            }
        }
        self.arena.audit(memory, keys.len() as u64)?;
        keys.sort_unstable();
        Ok(keys)
    }
}

fn chain_of(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58
}
