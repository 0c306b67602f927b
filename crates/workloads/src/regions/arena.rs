//! The arena of an instance: a head with the words of the structure, then nodes of one size, which
//! a free list hands out.
//!
//! | offset | content |
//! |---|---|
//! | 0 | first free node, or 0 |
//! | 64 | words of the structure |
//! | 64 + their size, rounded up to lines | nodes |
//!
//! A node begins with words of the structure and ends with the entry: 512 or 4,096 bytes together.
//! The entry's bytes follow from its key, so that an audit can check them.

use crate::regions::memory::{Addr, AtomicMemory, RegionAccess, RegionError};

/// Bytes of a line.
pub(crate) const LINE: u64 = 64;

/// The size of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntrySize {
    /// 512 bytes.
    Small,
    /// 4 KiB.
    Large,
}

impl EntrySize {
    /// Bytes of the largest one.
    pub(crate) const MOST: usize = Self::Large.bytes() as usize;

    /// Returns the number of bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Small => 512,
            Self::Large => 4096,
        }
    }
}

/// How much an instance holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// Entries that an instance can hold.
    pub entries: u64,
    /// Their size.
    pub size: EntrySize,
}

impl Scale {
    /// Returns a scale of 256 entries.
    pub const fn of(size: EntrySize) -> Self {
        Self { entries: 256, size }
    }

    /// Returns the number of keys that operations draw from: twice the entries, so that a search
    /// finds a key half of the time once an instance is half full.
    pub const fn keys(self) -> u64 {
        self.entries * 2
    }
}

/// An arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Arena {
    pub(crate) base: Addr,
    /// Words of the structure.
    words: u64,
    nodes: u64,
    node_bytes: u64,
}

impl Arena {
    pub(crate) const fn new(base: Addr, words: u64, nodes: u64, node_bytes: u64) -> Self {
        Self { base, words, nodes, node_bytes }
    }

    /// Returns where word `index` of the structure is.
    pub(crate) fn word(&self, index: u64) -> Addr {
        debug_assert!(index < self.words, "the structure has this word");
        self.base + LINE + index * 8
    }

    /// Returns where node `index` is.
    pub(crate) fn node(&self, index: u64) -> Addr {
        self.base + LINE + (self.words * 8).next_multiple_of(LINE) + index * self.node_bytes
    }

    /// Returns the size of the arena.
    pub(crate) fn bytes(&self) -> u64 {
        self.node(self.nodes) - self.base
    }

    /// Puts all nodes into the free list, each in a region of its own.
    pub(crate) fn make<M: AtomicMemory>(&self, memory: &mut M, lock: M::Lock) -> Result<(), M::Error> {
        for index in (0..self.nodes).rev() {
            memory.atomic(lock, |memory| self.give_back(memory, self.node(index)))?;
        }
        Ok(())
    }

    /// Takes a node.
    pub(crate) fn take<M: RegionAccess>(&self, memory: &mut M) -> Result<Option<Addr>, M::Error> {
        let Some((node, next)) = self.first_free(memory)? else { return Ok(None) };
        memory.store(self.base, next)?;
        Ok(Some(node))
    }

    /// Takes a node that will be written whole, as the words at `words` will be; announces all of
    /// it.
    pub(crate) fn take_with<M: RegionAccess>(&self, memory: &mut M, words: &[Addr]) -> Result<Option<Addr>, M::Error> {
        let Some((node, next)) = self.first_free(memory)? else { return Ok(None) };
        let words = words.iter().map(|at| (*at, 8)).chain([(self.base, 8), (node, self.node_bytes)]);
        memory.announce(&words.collect::<Vec<_>>())?;
        memory.store(self.base, next)?;
        Ok(Some(node))
    }

    /// Returns the first free node, and the next one.
    fn first_free<M: RegionAccess>(&self, memory: &mut M) -> Result<Option<(Addr, Addr)>, M::Error> {
        let node = memory.load(self.base)?;
        if node == 0 { Ok(None) } else { Ok(Some((node, memory.load(node)?))) }
    }

    /// Gives a node back.
    pub(crate) fn give_back<M: RegionAccess>(&self, memory: &mut M, node: Addr) -> Result<(), M::Error> {
        let next = memory.load(self.base)?;
        memory.store(node, next)?;
        memory.store(self.base, node)
    }

    /// Returns the number of free nodes.
    pub(crate) fn count_free<M: RegionAccess>(&self, memory: &mut M) -> Result<u64, M::Error> {
        let (mut free, mut at) = (0, memory.load(self.base)?);
        while at != 0 {
            free += 1;
            if free > self.nodes {
                return Err(broken("the free list has a circle"));
            }
            at = memory.load(at)?;
        }
        Ok(free)
    }

    /// Checks that all nodes are either free or among `used` ones.
    pub(crate) fn audit<M: RegionAccess>(&self, memory: &mut M, used: u64) -> Result<(), M::Error> {
        let free = self.count_free(memory)?;
        if free + used == self.nodes {
            return Ok(());
        }
        Err(broken(format!("{used} nodes are used and {free} are free of {}", self.nodes)))
    }
}

/// Writes a whole node: its words, and behind them the entry of `key`.
pub(crate) fn write_node<M: RegionAccess, const WORDS: usize>(
    memory: &mut M,
    node: Addr,
    words: [u64; WORDS],
    size: EntrySize,
    key: u64,
) -> Result<(), M::Error> {
    match size {
        EntrySize::Small => memory.write(node, node_bytes::<64>(&words, key).as_flattened()),
        EntrySize::Large => memory.write(node, node_bytes::<512>(&words, key).as_flattened()),
    }
}

fn node_bytes<const ALL: usize>(words: &[u64], key: u64) -> [[u8; 8]; ALL] {
    let mut all = [[0; 8]; ALL];
    let (own, entry) = all.split_at_mut(words.len());
    fill_words(words, own);
    fill_entry(key, entry.as_flattened_mut());
    all
}

/// Not generic, nor a `map`: where callers are not optimized, that is a call for each word.
fn fill_words(words: &[u64], bytes: &mut [[u8; 8]]) {
    for (to, word) in bytes.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
}

/// Checks the entry of `key`.
pub(crate) fn check_entry<M: RegionAccess>(
    memory: &mut M,
    node: Addr,
    words: u64,
    size: EntrySize,
    key: u64,
) -> Result<(), M::Error> {
    let mut wanted = vec![0; (size.bytes() - words * 8) as usize];
    fill_entry(key, &mut wanted);
    let mut found = vec![0; wanted.len()];
    memory.read(node + words * 8, &mut found)?;
    if found == wanted { Ok(()) } else { Err(broken(format!("the entry of key {key} at {node} is another one"))) }
}

fn fill_entry(key: u64, bytes: &mut [u8]) {
    for (word, bytes) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *bytes = (key << 16 | word as u64).to_le_bytes();
    }
}

pub(crate) fn broken<E: From<RegionError>>(what: impl Into<String>) -> E {
    RegionError::Broken(what.into()).into()
}
