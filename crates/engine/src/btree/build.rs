//! Builds a tree from sorted records, from the leaves upwards. Each node is stored once, when it is
//! full and its fences are known.
//!
//! A record joins the leaf under construction when the next key is known: only then is it known
//! which fence the leaf would have if the record were its last one, and so how much of its keys
//! the leaf cuts off.

use duramen_types::{PAGE_SIZE, PageId, TableId};

use super::empty_root;
use crate::error::Result;
use crate::page::{self, NodeMut, PageBuf, PageType, SlotFlags};

/// How full nodes become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fill {
    /// Records that grow or come later find some space.
    WithRoom,
    /// The tree takes the least space.
    Whole,
}

impl Fill {
    /// Returns the bytes of a node that are filled.
    const fn bytes(self) -> usize {
        match self {
            Self::WithRoom => PAGE_SIZE / 16 * 15,
            Self::Whole => PAGE_SIZE,
        }
    }
}

/// Takes the pages of the tree.
pub(crate) trait NewPages {
    /// Stores a page that has no id yet in a new page; returns its id.
    fn store(&mut self, bytes: PageBuf) -> Result<PageId>;
}

/// A record as its leaf has it.
#[derive(Debug)]
struct Entry {
    key: Vec<u8>,
    payload: Vec<u8>,
    flags: SlotFlags,
}

/// The leaf under construction.
#[derive(Debug, Default)]
struct Leaf {
    lower: Option<Vec<u8>>,
    entries: Vec<Entry>,
    /// The sizes of the entries.
    bytes: usize,
    /// The fence between the last entry and the next key.
    upper: Vec<u8>,
    /// The record that joins this leaf or begins the next one.
    next: Option<Entry>,
}

/// An inner node under construction.
#[derive(Debug, Default)]
struct Inner {
    lower: Option<Vec<u8>>,
    /// Children with their upper fences.
    children: Vec<(PageId, Vec<u8>)>,
    /// The sizes of their entries.
    bytes: usize,
}

/// A tree under construction.
#[derive(Debug)]
pub(crate) struct TreeBuilder {
    table: TableId,
    fill: Fill,
    leaf: Leaf,
    /// The inner nodes, the lowest level first.
    inner: Vec<Inner>,
}

impl Leaf {
    /// Returns whether the leaf has room for the next record, if `upper` becomes its fence.
    fn has_room(&self, upper: Option<&[u8]>, fill: Fill) -> bool {
        let Some(next) = &self.next else { return true };
        let bytes = self.bytes + page::entry_size(next.key.len(), next.payload.len());
        self.entries.is_empty()
            || page::node_size(self.lower.as_deref(), upper, self.entries.len() + 1, bytes) <= fill.bytes()
    }

    /// Moves the next record into the leaf.
    fn join(&mut self) {
        if let Some(next) = self.next.take() {
            self.bytes += page::entry_size(next.key.len(), next.payload.len());
            self.entries.push(next);
        }
    }

    /// Returns the page of the leaf, which ends at `upper`, and begins the next leaf there.
    fn close(&mut self, table: TableId, upper: Option<Vec<u8>>) -> PageBuf {
        let mut bytes = PageBuf::zeroed();
        let lower = std::mem::replace(&mut self.lower, upper);
        let (lower, upper) = (lower.as_deref(), self.lower.as_deref());
        let mut node = NodeMut::init(bytes.page_mut(), PageType::Leaf, 0, PageId::ZERO, table, lower, upper);
        for (slot, Entry { key, payload, flags }) in self.entries.drain(..).enumerate() {
            node.insert(slot, &key, &payload, flags).expect("the size of the node was computed");
        }
        self.bytes = 0;
        bytes
    }
}

impl Inner {
    /// Returns whether the node has room for another child whose upper fence is `upper`.
    fn has_room(&self, upper: Option<&[u8]>, fill: Fill) -> bool {
        self.children.is_empty()
            || page::node_size(self.lower.as_deref(), upper, self.children.len(), self.bytes) <= fill.bytes()
    }

    fn add(&mut self, child: PageId, upper: Vec<u8>) {
        self.bytes += page::entry_size(upper.len(), size_of::<u64>());
        self.children.push((child, upper));
    }

    /// Returns the page of the node, whose last child ends where the node ends, and that fence; the
    /// next node begins there.
    fn close(&mut self, table: TableId, level: u8, is_last: bool) -> (PageBuf, Option<Vec<u8>>) {
        let mut bytes = PageBuf::zeroed();
        let (last, upper) = self.children.pop().expect("a node has a child");
        let upper = (!is_last).then_some(upper);
        let lower = std::mem::replace(&mut self.lower, upper.clone());
        let (lower, above) = (lower.as_deref(), upper.as_deref());
        let mut node = NodeMut::init(bytes.page_mut(), PageType::Inner, level, PageId::ZERO, table, lower, above);
        for (slot, (child, key)) in self.children.drain(..).enumerate() {
            node.insert_child(slot, &key, child).expect("the size of the node was computed");
        }
        node.set_rightmost(last);
        self.bytes = 0;
        (bytes, upper)
    }
}

impl TreeBuilder {
    /// Begins a tree without records.
    pub(crate) fn new(table: TableId, fill: Fill) -> Self {
        Self { table, fill, leaf: Leaf::default(), inner: Vec::new() }
    }

    /// Returns the key added last.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        self.leaf.next.as_ref().map(|entry| &entry.key[..])
    }

    /// Adds a record, whose key is above all others.
    pub(crate) fn add(
        &mut self,
        pages: &mut dyn NewPages,
        key: Vec<u8>,
        payload: Vec<u8>,
        flags: SlotFlags,
    ) -> Result<()> {
        if let Some(before) = &self.leaf.next {
            let upper = page::separator(&before.key, &key);
            if !self.leaf.has_room(Some(&upper), self.fill) {
                self.close_leaf(pages)?;
            }
            self.leaf.join();
            self.leaf.upper = upper;
        }
        self.leaf.next = Some(Entry { key, payload, flags });
        Ok(())
    }

    /// Completes the tree; returns its root.
    pub(crate) fn finish(mut self, pages: &mut dyn NewPages) -> Result<PageId> {
        if self.leaf.next.is_none() {
            return pages.store(empty_root(PageId::ZERO, self.table));
        }
        if !self.leaf.has_room(None, self.fill) {
            self.close_leaf(pages)?;
        }
        self.leaf.join();
        let mut node = pages.store(self.leaf.close(self.table, None))?;
        for at in 0.. {
            if at == self.inner.len() {
                break;
            }
            if !self.inner[at].has_room(None, self.fill) {
                self.close_inner(pages, at)?;
            }
            let level = at as u8 + 1;
            self.inner[at].add(node, Vec::new());
            node = pages.store(self.inner[at].close(self.table, level, true).0)?;
        }
        Ok(node)
    }

    fn close_leaf(&mut self, pages: &mut dyn NewPages) -> Result<()> {
        let upper = std::mem::take(&mut self.leaf.upper);
        let leaf = pages.store(self.leaf.close(self.table, Some(upper.clone())))?;
        self.add_child(pages, 0, leaf, upper)
    }

    fn close_inner(&mut self, pages: &mut dyn NewPages, at: usize) -> Result<()> {
        let (bytes, upper) = self.inner[at].close(self.table, at as u8 + 1, false);
        let node = pages.store(bytes)?;
        self.add_child(pages, at + 1, node, upper.expect("the node is not the last of its level"))
    }

    /// Adds a child to the node under construction at a level.
    fn add_child(&mut self, pages: &mut dyn NewPages, at: usize, child: PageId, upper: Vec<u8>) -> Result<()> {
        if at == self.inner.len() {
            self.inner.push(Inner::default());
        }
        if !self.inner[at].has_room(Some(&upper), self.fill) {
            self.close_inner(pages, at)?;
        }
        self.inner[at].add(child, upper);
        Ok(())
    }
}
