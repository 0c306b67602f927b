//! A table: rows in an arena, and a tree from keys to rows. A row takes whole lines.

use crate::regions::arena::{Arena, LINE, broken};
use crate::regions::bplus::BPlusTree;
use crate::regions::memory::{Addr, AtomicMemory, RegionAccess};

#[derive(Clone, Debug)]
pub(super) struct Table {
    tree: BPlusTree,
    rows: Arena,
}

/// Lays a tree out for so many entries; `place` finds room for a number of bytes.
pub(super) fn place_tree(entries: u64, place: &mut impl FnMut(u64) -> Addr) -> BPlusTree {
    BPlusTree::new(place(BPlusTree::new(0, entries).bytes()), entries)
}

impl Table {
    /// Lays the table out for so many rows of so many bytes.
    pub(super) fn place(entries: u64, row_bytes: u64, place: &mut impl FnMut(u64) -> Addr) -> Self {
        let tree = place_tree(entries, place);
        let rows = |base| Arena::new(base, 0, entries, row_bytes.next_multiple_of(LINE));
        Self { tree, rows: rows(place(rows(0).bytes())) }
    }

    pub(super) fn make<M: AtomicMemory>(&self, memory: &mut M, lock: M::Lock) -> Result<(), M::Error> {
        self.tree.make(memory, lock)?;
        self.rows.make(memory, lock)
    }

    pub(super) fn find<M: RegionAccess>(&self, memory: &mut M, key: u64) -> Result<Option<Addr>, M::Error> {
        self.tree.find(memory, key)
    }

    /// Inserts a row, and returns where it is.
    pub(super) fn insert<M: RegionAccess>(&self, memory: &mut M, key: u64, row: &[u8]) -> Result<Addr, M::Error> {
        let at = self.rows.take(memory)?.ok_or_else(|| broken("a table has no room for another row"))?;
        let mut words = row.to_vec();
        words.resize(row.len().next_multiple_of(8), 0);
        memory.write(at, &words)?;
        self.tree.insert(memory, key, at)?;
        Ok(at)
    }

    /// Checks the table, and returns its keys with their rows' addresses.
    pub(super) fn audit<M: RegionAccess>(&self, memory: &mut M) -> Result<Vec<(u64, Addr)>, M::Error> {
        let entries = self.tree.audit(memory)?;
        self.rows.audit(memory, entries.len() as u64)?;
        let mut rows: Vec<Addr> = entries.iter().map(|(_, row)| *row).collect();
        rows.sort_unstable();
        if rows.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(broken("two keys lead to one row"));
        }
        Ok(entries)
    }
}

/// Reads the row at `at`.
pub(super) fn row<const N: usize, M: RegionAccess>(memory: &mut M, at: Addr) -> Result<[u8; N], M::Error> {
    let mut row = [0; N];
    memory.read(at, &mut row)?;
    Ok(row)
}
