//! Reading ranges of a snapshot, a leaf at a time.
//!
//! The cursor copies a leaf and validates the copy. Then it looks for the versions of the leaf's
//! records in the range, and validates the leaf again: the copy, with the older values that it has
//! found, is what the snapshot shows of this leaf. A leaf that no transaction has changed since
//! before the snapshot needs no look ([`Snapshot::unchanged_below`]).

use std::ops::{Bound, Range};

use duramen_sync::probe::{Probe, reach};
use duramen_types::{PAGE_SIZE, planted};

use super::Snapshot;
use crate::btree::OUT_OF_ORDER;
use crate::error::Result;
use crate::page::{self, Node, PageBytes, SlotFlags};
use crate::pool::{Interrupt, broken};
use crate::record::Tree;
use crate::storage::catalog::{CATALOG, NEXT_TABLE_KEY, Table};
use crate::txn::KeyRange;
use crate::version::Version;

/// A record of the current leaf that the snapshot shows.
#[derive(Clone, Copy, Debug)]
struct Item {
    slot: u16,
    flags: SlotFlags,
    /// Where the value begins and ends in the older values; none if it is the one in the leaf.
    older: Option<(u32, u32)>,
}

impl Item {
    /// Returns its value, or what the leaf has of a large one: `in_leaf` is what its slot has now.
    #[inline]
    fn stored<'a>(self, in_leaf: &'a [u8], older: &'a [u8]) -> &'a [u8] {
        self.older.map_or(in_leaf, |(start, end)| &older[start as usize..end as usize])
    }
}

/// Where the next leaf is looked for.
#[derive(Debug)]
enum Next {
    /// At the first key of the range that is not below this one, or is above it.
    From { key: Vec<u8>, is_above: bool },
    /// There is none.
    End,
}

/// The records of a range that a snapshot shows, in ascending order. Made by [`Snapshot::cursor`].
///
/// It lends keys and values, and copies no value that lies in a leaf. After an error it returns the
/// error's kind again or continues with the same record; it skips nothing.
#[derive(Debug)]
pub struct Cursor<'s> {
    snapshot: &'s Snapshot,
    /// The table, until its tree is known.
    table: Table,
    tree: Option<Tree>,
    upper: Bound<Vec<u8>>,
    next: Next,
    /// A copy of the current leaf.
    leaf: Vec<u8>,
    /// The slots of the leaf that are still to be returned, if the snapshot shows the leaf as it
    /// is.
    slots: Range<usize>,
    /// What is to be returned of another leaf.
    items: Vec<Item>,
    /// The item that is returned next.
    at: usize,
    /// Older values of the leaf's records.
    older: Vec<u8>,
    /// The key that is lent at present.
    key: Vec<u8>,
    /// The large value that is lent at present.
    large: Vec<u8>,
}

impl Snapshot {
    /// Returns a cursor over the records whose keys lie in `range`.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options { snapshots: true, ..duramen::Options::small() })?;
    /// # let table = db.table("t")?;
    /// # db.run(|txn| txn.put(&table, b"apple", b"12"))?;
    /// let snapshot = db.snapshot()?;
    /// let mut cursor = snapshot.cursor(&table, b"a"..b"c");
    /// while let Some((key, value)) = cursor.next()? {
    ///     assert_eq!((key, value), (&b"apple"[..], &b"12"[..]));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn cursor(&self, table: &Table, range: impl KeyRange) -> Cursor<'_> {
        Cursor::new(self, table, range)
    }

    /// Returns an iterator over copies of the records whose keys lie in `range`, in ascending
    /// order. The first error ends it.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let options = duramen::Options { snapshots: true, ..duramen::Options::small() };
    /// # let db = duramen::Db::in_memory(options)?;
    /// # let events = db.table("events")?;
    /// db.run(|txn| (0..10_u8).try_for_each(|day| txn.put(&events, &[day], b"...")))?;
    /// let snapshot = db.snapshot()?;
    /// db.run(|txn| txn.delete_range(&events, ..))?;
    ///
    /// let days = snapshot.scan(&events, [2_u8]..[5_u8]).map(|item| item.unwrap().0[0]);
    /// assert_eq!(days.collect::<Vec<_>>(), [2, 3, 4]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&self, table: &Table, range: impl KeyRange) -> SnapshotScan<'_> {
        SnapshotScan { cursor: self.cursor(table, range), has_failed: false }
    }

    /// Returns the names of all tables that the snapshot shows, in ascending order.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let options = duramen::Options { snapshots: true, ..duramen::Options::small() };
    /// # let db = duramen::Db::in_memory(options)?;
    /// db.create_table("films")?;
    /// let snapshot = db.snapshot()?;
    /// db.create_table("people")?;
    /// assert_eq!(snapshot.list()?, ["films"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Snapshot::get`].
    pub fn list(&self) -> Result<Vec<String>> {
        let mut cursor = self.catalog();
        let mut names = Vec::new();
        while let Some((name, _)) = cursor.next()? {
            if name != NEXT_TABLE_KEY {
                names.push(String::from_utf8_lossy(name).into_owned());
            }
        }
        Ok(names)
    }

    /// Returns a cursor over the records of the catalog.
    pub(super) fn catalog(&self) -> Cursor<'_> {
        let catalog = self.engine().tables.of_dropped("the catalog", CATALOG);
        Cursor { tree: Some(CATALOG), ..self.cursor(&catalog, ..) }
    }
}

impl<'s> Cursor<'s> {
    fn new(snapshot: &'s Snapshot, table: &Table, range: impl KeyRange) -> Self {
        let (lower, upper) = range.into_bounds();
        let next = match lower {
            Bound::Included(key) => Next::From { key, is_above: false },
            Bound::Excluded(key) => Next::From { key, is_above: true },
            Bound::Unbounded => Next::From { key: Vec::new(), is_above: false },
        };
        Self {
            snapshot,
            table: table.clone(),
            tree: None,
            upper,
            next,
            leaf: Vec::with_capacity(PAGE_SIZE),
            slots: 0..0,
            items: Vec::new(),
            at: 0,
            older: Vec::new(),
            key: Vec::new(),
            large: Vec::new(),
        }
    }

    /// Returns the next record, or none at the end of the range.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let options = duramen::Options { snapshots: true, ..duramen::Options::small() };
    /// # let db = duramen::Db::in_memory(options)?;
    /// # let accounts = db.table("accounts")?;
    /// # db.run(|txn| txn.put(&accounts, b"alice", &[100]))?;
    /// # db.run(|txn| txn.put(&accounts, b"bob", &[50]))?;
    /// let snapshot = db.snapshot()?;
    /// let mut cursor = snapshot.cursor(&accounts, ..);
    /// let mut sum = 0;
    /// while let Some((name, balance)) = cursor.next()? {
    ///     sum += u32::from(balance[0]);
    ///     db.run(|txn| txn.put(&accounts, name, &[0]))?; // neither hindered nor seen
    /// }
    /// assert_eq!(sum, 150);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let item = loop {
            match self.take_item() {
                Some(item) => break item,
                None if !self.fill()? => return Ok(None),
                None => {}
            }
        };
        let is_large = item.flags.contains(SlotFlags::OVERFLOW);
        if is_large {
            let tree = self.tree.expect("a leaf was read");
            let in_leaf = Node(&self.leaf[..]).value(item.slot.into());
            match self.snapshot.large_value(tree, item.stored(in_leaf, &self.older)) {
                Ok(value) => self.large = value,
                Err(error) => {
                    self.put_back(item);
                    return Err(error);
                }
            }
        }
        let node = Node(&self.leaf[..]);
        let (suffix, in_leaf) = node.entry(item.slot.into());
        set_key(&mut self.key, &node, suffix);
        Ok(Some((&self.key, if is_large { &self.large } else { item.stored(in_leaf, &self.older) })))
    }

    /// Takes the next item of the current leaf.
    #[inline]
    fn take_item(&mut self) -> Option<Item> {
        let node = Node(&self.leaf[..]);
        for slot in self.slots.by_ref() {
            let flags = node.flags(slot);
            if !flags.contains(SlotFlags::GHOST) {
                return Some(Item { slot: slot as u16, flags, older: None });
            }
        }
        let item = *self.items.get(self.at)?;
        self.at += 1;
        Some(item)
    }

    /// Makes an item that was just taken the next one again.
    #[cold]
    fn put_back(&mut self, item: Item) {
        match self.at.checked_sub(1) {
            Some(before) => self.at = before,
            None => self.slots.start = item.slot.into(),
        }
    }

    /// Reads the next leaf; returns whether there is one.
    fn fill(&mut self) -> Result<bool> {
        let tree = match self.tree {
            Some(tree) => tree,
            None => match self.snapshot.tree_of(&self.table)? {
                Some(tree) => *self.tree.insert(tree),
                None => return Ok(false),
            },
        };
        let snapshot = self.snapshot;
        if matches!(self.next, Next::End) {
            return Ok(false);
        }
        match snapshot.repeat(|| self.read_leaf(tree)) {
            Ok(next) => self.next = next,
            Err(error) => {
                // What was read counts only if the snapshot was not too old by then.
                self.drop_items();
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Forgets what was read and is not returned yet.
    fn drop_items(&mut self) {
        self.items.clear();
        self.slots = 0..0;
        self.at = 0;
    }

    /// Reads a leaf once; returns where the one behind it begins.
    fn read_leaf(&mut self, tree: Tree) -> Result<Next, Interrupt> {
        self.drop_items();
        self.older.clear();
        self.leaf.clear();
        let Next::From { key, is_above } = &self.next else { return Ok(Next::End) };
        let engine = self.snapshot.engine();
        let leaf = engine.store.leaf(tree, key)?;
        leaf.page().copy_into(0, PAGE_SIZE, &mut self.leaf);
        leaf.validate()?;

        let node = Node(&self.leaf[..]);
        if node.upper_fence().is_some_and(|fence| fence < &key[..]) {
            return Err(broken(leaf.id(), OUT_OF_ORDER).into());
        }
        let (start, found) = node.lower_bound(key);
        let start = start + usize::from(found && *is_above);
        let count = node.slot_count();
        let end = match &self.upper {
            Bound::Unbounded => count,
            Bound::Included(upper) => {
                let (slot, found) = node.lower_bound(upper);
                slot + usize::from(found)
            }
            Bound::Excluded(upper) => node.lower_bound(upper).0,
        };
        let is_unchanged = page::gsn(&self.leaf) < self.snapshot.unchanged_below();
        let changed = if is_unchanged { start..start } else { start..end };
        for slot in changed {
            let mut item = Item { slot: slot as u16, flags: node.flags(slot), older: None };
            let from = self.older.len();
            set_key(&mut self.key, &node, node.suffix(slot));
            let at = self.snapshot.gsn();
            match engine.versions.version_at(tree.table, &self.key, at, &mut self.older) {
                Version::Current if item.flags.contains(SlotFlags::GHOST) => continue,
                Version::Current => {}
                Version::Absent => continue,
                Version::InLeaf(flags) => item.flags = flags,
                Version::Value(flags) => {
                    item.flags = flags;
                    item.older = Some((from as u32, self.older.len() as u32));
                }
                Version::Unsettled => {
                    reach(Probe::CommitUnsettled);
                    self.items.clear();
                    return Err(Interrupt::Restart);
                }
            }
            self.items.push(item);
        }
        if !planted!(LeafNotRevalidated) && leaf.validate().is_err() {
            self.items.clear();
            return Err(Interrupt::Restart);
        }
        if is_unchanged {
            self.slots = start..end.max(start);
        }
        Ok(match (node.upper_fence(), &self.upper) {
            (None, _) => Next::End,
            (Some(fence), Bound::Included(upper) | Bound::Excluded(upper)) if fence >= &upper[..] => Next::End,
            // The fence itself belongs to this leaf.
            (Some(fence), _) => Next::From { key: [fence, &[0]].concat(), is_above: false },
        })
    }
}

/// Sets `key` to the key of a slot of `node` that has this suffix.
#[inline]
fn set_key(key: &mut Vec<u8>, node: &Node<&[u8]>, suffix: &[u8]) {
    key.clear();
    key.extend_from_slice(node.prefix());
    key.extend_from_slice(suffix);
}

/// Copies of the records of a range. Made by [`Snapshot::scan`].
#[derive(Debug)]
pub struct SnapshotScan<'s> {
    cursor: Cursor<'s>,
    has_failed: bool,
}

impl Iterator for SnapshotScan<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        match self.cursor.next() {
            Ok(found) => found.map(|(key, value)| Ok((key.to_vec(), value.to_vec()))),
            Err(error) => {
                self.has_failed = true;
                Some(Err(error))
            }
        }
    }
}
