//! A graph: for each vertex a list of its edges, each an entry. A node has the words next and
//! target, then the entry.

use crate::regions::arena::{Arena, Scale, broken, check_entry, write_node};
use crate::regions::memory::{Addr, RegionAccess};

pub(crate) const VERTICES: u64 = 256;
const NEXT: u64 = 0;
const TARGET: u64 = 8;
const WORDS: u64 = 2;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sdg {
    arena: Arena,
    scale: Scale,
}

impl Sdg {
    pub(crate) fn new(base: Addr, scale: Scale) -> Self {
        Self { arena: Arena::new(base, VERTICES, scale.entries, scale.size.bytes()), scale }
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Removes the edge if it is there, else adds it; a full graph stays as it is.
    pub(crate) fn toggle<M: RegionAccess>(&self, memory: &mut M, from: u64, to: u64) -> Result<(), M::Error> {
        let vertex = self.arena.word(from % VERTICES);
        let mut link = vertex;
        loop {
            let node = memory.load(link)?;
            if node == 0 {
                break;
            }
            memory.work(10);
            if memory.load(node + TARGET)? == to {
                let next = memory.load(node + NEXT)?;
                memory.store(link, next)?;
                return self.arena.give_back(memory, node);
            }
            link = node + NEXT;
        }
        let Some(node) = self.arena.take(memory)? else { return Ok(()) };
        let first = memory.load(vertex)?;
        write_node(memory, node, [first, to], self.scale.size, edge(from, to))?;
        memory.store(vertex, node)
    }

    /// Returns the edges, sorted.
    pub(crate) fn audit<M: RegionAccess>(&self, memory: &mut M) -> Result<Vec<u64>, M::Error> {
        let mut edges = Vec::new();
        for from in 0..VERTICES {
            let mut node = memory.load(self.arena.word(from))?;
            while node != 0 {
                let to = memory.load(node + TARGET)?;
                check_entry(memory, node, WORDS, self.scale.size, edge(from, to))?;
                edges.push(edge(from, to));
                if edges.len() as u64 > self.scale.entries {
                    return Err(broken("there are more edges than entries"));
                }
                node = memory.load(node + NEXT)?;
            }
        }
        self.arena.audit(memory, edges.len() as u64)?;
        edges.sort_unstable();
        Ok(edges)
    }
}

pub(crate) fn edge(from: u64, to: u64) -> u64 {
    (from % VERTICES) << 16 | to
}
