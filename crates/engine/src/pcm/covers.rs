//! Covers: what keys and pages were before transactions under way changed them.
//!
//! Transactions lock keys and share pages, so a page that becomes durable may have changes of
//! several transactions that have not committed. Its slot says for each of them what was there
//! before: its *cover*. While the transaction is listed, the cover counts and not the page; when it
//! is not listed any more, the page counts. (The paper locks pages, and discards those of
//! transactions that have not committed.)
//!
//! [`Covers`] has them in DRAM, by key: one for each key, because a key has one writer.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use duramen_sync::Mutex;
use duramen_types::{Gsn, PageId, TableId, planted};

use super::active::Xid;
use super::content::Content;
use crate::page::{self, Node, PageType, SlotFlags, bitmap};
use crate::record::{Malformed, Reader, Tree, Undo, put_bytes, put_number};

/// What a transaction has changed, and what was there before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cover {
    /// A record of a leaf.
    Key { xid: Xid, tree: Tree, key: Vec<u8>, before: Content },
    /// An allocated page, in an allocation bitmap: it was free.
    Page { xid: Xid, page: PageId },
}

const ABSENT: u8 = 1;
const VALUE: u8 = 2;
const PAGE: u8 = 3;

impl Cover {
    /// Returns the transaction.
    pub(crate) fn xid(&self) -> Xid {
        match self {
            Self::Key { xid, .. } | Self::Page { xid, .. } => *xid,
        }
    }

    /// Appends this to the covers of a page.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Key { xid, tree, key, before } => encode_key(out, *xid, *tree, key, before),
            Self::Page { xid, page } => encode_page(out, *xid, *page),
        }
    }

    /// Reads all covers of a page.
    pub(super) fn decode_all(bytes: &[u8]) -> Result<Vec<Self>, Malformed> {
        let mut reader = Reader::new(bytes);
        let mut covers = Vec::new();
        while !reader.is_empty() {
            let (kind, xid) = (reader.byte()?, Xid(reader.number()?));
            if kind == PAGE {
                covers.push(Self::Page { xid, page: PageId::new(reader.number()?) });
                continue;
            }
            let tree = Tree { root: PageId::new(reader.number()?), table: TableId::new(reader.small()?) };
            let key = reader.bytes()?.to_vec();
            let before = match kind {
                ABSENT => Content::Absent,
                VALUE => {
                    let flags = SlotFlags::from_bits(reader.small()?);
                    Content::Value { flags, bytes: reader.bytes()?.to_vec() }
                }
                _ => return Err(Malformed),
            };
            covers.push(Self::Key { xid, tree, key, before });
        }
        Ok(covers)
    }
}

fn encode_key(out: &mut Vec<u8>, xid: Xid, tree: Tree, key: &[u8], before: &Content) {
    out.push(if *before == Content::Absent { ABSENT } else { VALUE });
    put_number(out, xid.0);
    put_number(out, tree.root.get());
    put_number(out, tree.table.get().into());
    put_bytes(out, key);
    if let Content::Value { flags, bytes } = before {
        put_number(out, flags.bits().into());
        put_bytes(out, bytes);
    }
}

fn encode_page(out: &mut Vec<u8>, xid: Xid, page: PageId) {
    out.push(PAGE);
    put_number(out, xid.0);
    put_number(out, page.get());
}

/// The covers of a page, as its slot gets them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CoversOfPage {
    pub(crate) bytes: Vec<u8>,
    /// The transactions, each once.
    pub(crate) xids: Vec<Xid>,
}

impl CoversOfPage {
    fn note(&mut self, xid: Xid) {
        if !self.xids.contains(&xid) {
            self.xids.push(xid);
        }
    }
}

/// The covers of all transactions under way.
#[derive(Debug, Default)]
pub(crate) struct Covers(Mutex<Index>);

#[derive(Debug, Default)]
struct Index {
    tables: HashMap<TableId, BTreeMap<Vec<u8>, KeyCover>>,
    pages: BTreeMap<PageId, Xid>,
}

#[derive(Debug)]
struct KeyCover {
    xid: Xid,
    tree: Tree,
    before: Content,
    /// The leaf that has the key, and its GSNs when the transaction had changed the key for the
    /// first and for the latest time.
    leaf: PageId,
    first: Gsn,
    latest: Gsn,
}

/// A key that a transaction has changed.
#[derive(Clone, Debug)]
pub(crate) struct ChangedKey {
    pub(crate) table: TableId,
    pub(crate) key: Vec<u8>,
    /// GSNs of its leaf when the transaction had changed the key for the first and for the latest
    /// time.
    pub(super) first: Gsn,
    pub(super) latest: Gsn,
    /// Length of the value until then, if there was one.
    pub(super) len_before: Option<usize>,
}

impl Index {
    /// Notes what there was before a change of a key, unless the transaction has changed it before.
    /// Returns about how many bytes that takes.
    fn note_key(
        &mut self,
        xid: Xid,
        tree: Tree,
        key: &[u8],
        (leaf, gsn): (PageId, Gsn),
        covered: &mut Vec<Covered>,
        before: impl FnOnce() -> Content,
    ) -> usize {
        let table = self.tables.entry(tree.table).or_default();
        if let Some(cover) = table.get_mut(key).filter(|cover| cover.xid == xid) {
            (cover.leaf, cover.latest) = (leaf, gsn);
            return 0;
        }
        let before = before();
        let bytes = if let Content::Value { bytes, .. } = &before { bytes.len() } else { 0 };
        table.insert(key.to_vec(), KeyCover { xid, tree, before, leaf, first: gsn, latest: gsn });
        covered.push(Covered::Key(tree.table, key.to_vec()));
        key.len() + bytes + 40
    }
}

/// What a transaction has a cover for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Covered {
    Key(TableId, Vec<u8>),
    Page(PageId),
}

impl Covers {
    /// Notes what a change has replaced in a page, which the caller holds exclusively. The page is
    /// changed already, and `undo` takes the change back. Appends what the covers are for to
    /// `covered`, but what the transaction has changed before, and returns about how many bytes
    /// they take.
    pub(crate) fn note(&self, xid: Xid, leaf: Option<&[u8]>, undo: Undo<'_>, covered: &mut Vec<Covered>) -> usize {
        let record = |key: &[u8]| {
            let node = Node(leaf.expect("a change of a record is one of a leaf"));
            let (slot, is_there) = node.lower_bound(key);
            assert!(is_there, "a record that was just changed is in its leaf");
            node.value(slot)
        };
        let at = leaf.map_or((PageId::ZERO, Gsn::ZERO), |leaf| (page::page_id(leaf), page::gsn(leaf)));
        let mut index = self.0.lock();
        match undo {
            Undo::Allocate { page } => {
                index.pages.insert(page, xid);
                covered.push(Covered::Page(page));
                24
            }
            Undo::Insert { tree, key } => index.note_key(xid, tree, key, at, covered, || Content::Absent),
            Undo::Change { tree, key, at: start, remove, add, flags } => {
                index.note_key(xid, tree, key, at, covered, || {
                    let (value, start) = (record(key), usize::from(start));
                    // A ghost is a record that is not there.
                    if flags.contains(SlotFlags::GHOST) {
                        return Content::Absent;
                    }
                    Content::Value {
                        flags,
                        bytes: [&value[..start], add, &value[start + usize::from(remove)..]].concat(),
                    }
                })
            }
            Undo::Delete { tree, keys } => {
                let mut bytes = 0;
                keys.for_each(|key, flags| {
                    let before = || Content::Value { flags, bytes: record(key).to_vec() };
                    bytes += index.note_key(xid, tree, key, at, covered, before);
                });
                bytes
            }
        }
    }

    /// Notes a cover that recovery has found in a page.
    pub(crate) fn resume(&self, leaf: PageId, cover: Cover) -> Covered {
        let mut index = self.0.lock();
        match cover {
            Cover::Key { xid, tree, key, before } => {
                let cover = KeyCover { xid, tree, before, leaf, first: Gsn::ZERO, latest: Gsn::ZERO };
                index.tables.entry(tree.table).or_default().insert(key.clone(), cover);
                Covered::Key(tree.table, key)
            }
            Cover::Page { xid, page } => {
                index.pages.insert(page, xid);
                Covered::Page(page)
            }
        }
    }

    /// Forgets a cover of a transaction.
    pub(crate) fn forget(&self, xid: Xid, covered: &Covered) {
        let mut index = self.0.lock();
        match covered {
            Covered::Key(table, key) => {
                let Some(keys) = index.tables.get_mut(table) else { return };
                if keys.get(key).is_some_and(|cover| cover.xid == xid) {
                    keys.remove(key);
                }
                if keys.is_empty() {
                    index.tables.remove(table);
                }
            }
            Covered::Page(page) => {
                if index.pages.get(page) == Some(&xid) {
                    index.pages.remove(page);
                }
            }
        }
    }

    /// Notes that a transaction has taken back a change in a leaf, which the caller holds
    /// exclusively.
    pub(crate) fn note_taken_back(&self, xid: Xid, leaf: &[u8]) {
        let mut index = self.0.lock();
        let Some(keys) = index.tables.get_mut(&page::table_id(leaf)) else { return };
        for (_, cover) in keys.range_mut::<[u8], _>(range_of(leaf)).filter(|(_, cover)| cover.xid == xid) {
            (cover.leaf, cover.latest) = (page::page_id(leaf), page::gsn(leaf));
        }
    }

    /// Adds the keys of `covered` to those of their leaves.
    pub(crate) fn by_leaf(&self, covered: &[Covered], leaves: &mut BTreeMap<PageId, Vec<ChangedKey>>) {
        let index = self.0.lock();
        for covered in covered {
            let Covered::Key(table, key) = covered else { continue };
            let Some(cover) = index.tables.get(table).and_then(|keys| keys.get(key)) else { continue };
            let len_before = match &cover.before {
                Content::Absent => None,
                Content::Value { bytes, .. } => Some(bytes.len()),
            };
            let changed =
                ChangedKey { table: *table, key: key.clone(), first: cover.first, latest: cover.latest, len_before };
            leaves.entry(cover.leaf).or_default().push(changed);
        }
    }

    /// Returns the covers of a page, which the caller holds latched, and notes which leaf has their
    /// keys now.
    pub(crate) fn of_page(&self, bytes: &[u8]) -> CoversOfPage {
        let mut covers = CoversOfPage::default();
        match page::page_type(bytes) {
            Some(PageType::Leaf) => {
                let mut index = self.0.lock();
                let Some(keys) = index.tables.get_mut(&page::table_id(bytes)) else { return covers };
                for (key, cover) in keys.range_mut::<[u8], _>(range_of(bytes)) {
                    cover.leaf = page::page_id(bytes);
                    encode_key(&mut covers.bytes, cover.xid, cover.tree, key, &cover.before);
                    covers.note(cover.xid);
                }
            }
            Some(PageType::Bitmap) => {
                let (group, _) = bitmap::locate(page::page_id(bytes));
                let (first, behind) = (bitmap::page_at(group, 0), bitmap::page_at(group + 1, 0));
                for (page, xid) in self.0.lock().pages.range(first..behind) {
                    encode_page(&mut covers.bytes, *xid, *page);
                    covers.note(*xid);
                }
            }
            _ => {}
        }
        if planted!(CoverForgotten) { CoversOfPage::default() } else { covers }
    }
}

/// Returns the keys that lie within the fences of a leaf.
fn range_of(leaf: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    let node = Node(leaf);
    let lower = node.lower_fence().map_or(Bound::Unbounded, Bound::Excluded);
    (lower, node.upper_fence().map_or(Bound::Unbounded, Bound::Included))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covers_round_trip_and_cut_ones_are_malformed() {
        let tree = Tree { root: PageId::new(7), table: TableId::new(3) };
        let value = Content::Value { flags: SlotFlags::OVERFLOW, bytes: b"old".to_vec() };
        let covers = vec![
            Cover::Key { xid: Xid(1 << 40), tree, key: b"a".to_vec(), before: Content::Absent },
            Cover::Key { xid: Xid(5), tree, key: b"bc".to_vec(), before: value },
            Cover::Page { xid: Xid(6), page: PageId::new(1 << 33) },
        ];
        let mut bytes = Vec::new();
        covers.iter().for_each(|cover| cover.encode(&mut bytes));
        assert_eq!(Cover::decode_all(&bytes), Ok(covers.clone()));
        let whole: Vec<usize> = (0..=covers.len())
            .map(|count| {
                let mut part = Vec::new();
                covers[..count].iter().for_each(|cover| cover.encode(&mut part));
                part.len()
            })
            .collect();
        for cut in (0..bytes.len()).filter(|cut| !whole.contains(cut)) {
            assert_eq!(Cover::decode_all(&bytes[..cut]), Err(Malformed), "{cut}");
        }
    }
}
