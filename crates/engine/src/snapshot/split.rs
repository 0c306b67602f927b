//! Dividing a table into ranges of about the same size.

use std::ops::Bound;

use super::Snapshot;
use crate::error::Result;
use crate::page::{Node, PageBytes};
use crate::pool::Interrupt;
use crate::record::Tree;
use crate::storage::catalog::Table;
use duramen_types::{PAGE_SIZE, PageId};

/// The inner nodes of a level that are looked at, at most.
const MOST_NODES: usize = 64;

/// Where a range of keys begins and ends; it is a [`crate::KeyRange`].
pub type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The separators and children of an inner node.
type Inner = (Vec<Vec<u8>>, Vec<PageId>);

impl Snapshot {
    /// Returns up to `n` ranges, at least one, that together contain each key once, in ascending
    /// order, for as many threads that scan the table. The ranges have about the same number of
    /// pages; a small table has fewer.
    ///
    /// ```
    /// # use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    /// # use std::thread;
    /// # fn main() -> duramen::Result<()> {
    /// # let options = duramen::Options { snapshots: true, ..duramen::Options::small() };
    /// # let db = duramen::Db::in_memory(options)?;
    /// # let events = db.table("events")?;
    /// # db.run(|txn| {
    /// #     (0..1000_u16).try_for_each(|day| txn.put(&events, &day.to_be_bytes(), &[0; 100]))
    /// # })?;
    /// let snapshot = db.snapshot()?;
    /// let parts = snapshot.split(&events, 4)?;
    /// assert_eq!(parts.len(), 4);
    /// let count = AtomicUsize::new(0);
    /// thread::scope(|scope| {
    ///     for part in parts {
    ///         scope.spawn(|| count.fetch_add(snapshot.scan(&events, part).count(), Relaxed));
    ///     }
    /// });
    /// assert_eq!(count.into_inner(), 1000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn split(&self, table: &Table, n: usize) -> Result<Vec<KeyBounds>> {
        let separators = match self.tree_of(table)? {
            Some(tree) => self.separators(tree, n)?,
            None => Vec::new(),
        };
        let parts = n.clamp(1, separators.len() + 1);
        let mut ranges = Vec::with_capacity(parts);
        let mut lower = Bound::Unbounded;
        for part in 1..parts {
            // There are `separators.len() + 1` children; this is the last one of the part.
            let key = &separators[part * (separators.len() + 1) / parts - 1];
            ranges.push((lower, Bound::Included(key.clone())));
            lower = Bound::Excluded(key.clone());
        }
        ranges.push((lower, Bound::Unbounded));
        Ok(ranges)
    }

    /// Returns separators of the highest level that has at least eight for each part, or of the
    /// lowest. Other threads may change the tree meanwhile: any ascending keys do.
    fn separators(&self, tree: Tree, parts: usize) -> Result<Vec<Vec<u8>>> {
        let mut nodes = vec![tree.root];
        let mut separators: Vec<Vec<u8>> = Vec::new();
        loop {
            let mut found = Vec::new();
            let mut below = Vec::new();
            for &id in &nodes {
                let Some((keys, children)) = self.repeat(|| self.inner_node(tree, id))? else { return Ok(separators) };
                found.extend(keys);
                below.extend(children);
            }
            found.append(&mut separators);
            found.sort();
            found.dedup();
            separators = found;
            if separators.len() >= parts.saturating_mul(8) || below.len() > MOST_NODES {
                return Ok(separators);
            }
            nodes = below;
        }
    }

    /// Returns the separators and children of an inner node; `None` if the page is not one, or no
    /// longer.
    fn inner_node(&self, tree: Tree, id: PageId) -> Result<Option<Inner>, Interrupt> {
        let page = self.engine().store.pool.optimistic(id)?;
        let mut bytes = Vec::with_capacity(PAGE_SIZE);
        page.page().copy_into(0, PAGE_SIZE, &mut bytes);
        page.validate()?;
        let node = Node(&bytes[..]);
        if node.is_leaf() || !node.is_of(tree.table, node.level()) {
            return Ok(None);
        }
        let mut keys = Vec::new();
        for slot in 0..node.slot_count() {
            let mut key = Vec::new();
            node.key_into(slot, &mut key);
            keys.push(key);
        }
        let children = (0..=node.slot_count()).map(|slot| node.child(slot)).collect();
        Ok(Some((keys, children)))
    }
}
