//! How an update is undone.

use duramen_types::{PageId, TableId};

use super::codec::{Malformed, Reader, put_bytes, put_number};
use super::tree::Tree;
use crate::page::SlotFlags;

/// The inverse of an update. It names a key, not a slot: when it is needed, splits and merges may
/// have moved the record to another page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Undo<'a> {
    /// The key was added: undo makes it a ghost.
    Insert { tree: Tree, key: &'a [u8] },
    /// Bytes `at .. at + remove` of the value become `add` again, and the flags become `flags`
    /// again.
    Change { tree: Tree, key: &'a [u8], at: u16, remove: u16, add: &'a [u8], flags: SlotFlags },
    /// The page was allocated: undo frees it.
    Allocate { page: PageId },
    /// The records were deleted together: undo gives them their flags again. It may be carried out
    /// several times, because setting flags twice changes nothing.
    Delete { tree: Tree, keys: KeyList<'a> },
}

/// The keys of records that were deleted together, in order, and the flags that they had.
///
/// Encoded as what all keys begin with, and then the flags and the rest of each key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyList<'a> {
    prefix: &'a [u8],
    rest: &'a [u8],
}

impl<'a> KeyList<'a> {
    /// Encodes a list into `buffer`.
    pub(crate) fn of(keys: &[(&[u8], SlotFlags)], buffer: &'a mut Vec<u8>) -> Self {
        buffer.clear();
        let (first, last) = (keys.first().map_or(&[][..], |key| key.0), keys.last().map_or(&[][..], |key| key.0));
        // The keys are in order, so what the first and the last have in common, all have.
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        buffer.extend_from_slice(&first[..common]);
        for (key, flags) in keys {
            put_number(buffer, flags.bits().into());
            put_bytes(buffer, &key[common..]);
        }
        let (prefix, rest) = buffer.split_at(common);
        Self { prefix, rest }
    }

    /// Calls `each` with each key and its flags, in order.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&[u8], SlotFlags)) {
        let mut key = self.prefix.to_vec();
        let mut reader = Reader::new(self.rest);
        while let Ok(Some((rest, flags))) = Self::next(&mut reader) {
            key.truncate(self.prefix.len());
            key.extend_from_slice(rest);
            each(&key, flags);
        }
    }

    /// Returns the number of keys.
    pub(crate) fn count(&self) -> usize {
        let mut count = 0;
        self.for_each(|_, _| count += 1);
        count
    }

    /// Returns the first and the last key.
    pub(crate) fn ends(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut reader = Reader::new(self.rest);
        let (mut first, mut last) = (None, None);
        while let Ok(Some((rest, _))) = Self::next(&mut reader) {
            first.get_or_insert(rest);
            last = Some(rest);
        }
        let whole = |rest: &[u8]| [self.prefix, rest].concat();
        Some((whole(first?), whole(last?)))
    }

    /// Returns the keys and their flags.
    pub(crate) fn to_vec(self) -> Vec<(Vec<u8>, SlotFlags)> {
        let mut keys = Vec::new();
        self.for_each(|key, flags| keys.push((key.to_vec(), flags)));
        keys
    }

    fn next(reader: &mut Reader<'a>) -> Result<Option<(&'a [u8], SlotFlags)>, Malformed> {
        if reader.is_empty() {
            return Ok(None);
        }
        let flags = SlotFlags::from_bits(reader.small()?);
        Ok(Some((reader.bytes()?, flags)))
    }

    fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let list = Self { prefix: reader.bytes()?, rest: reader.bytes()? };
        let mut rest = Reader::new(list.rest);
        while Self::next(&mut rest)?.is_some() {}
        Ok(list)
    }
}

pub(super) fn put_tree(out: &mut Vec<u8>, tree: Tree) {
    put_number(out, tree.root.get());
    put_number(out, tree.table.get().into());
}

pub(super) fn read_tree(reader: &mut Reader<'_>) -> Result<Tree, Malformed> {
    Ok(Tree { root: PageId::new(reader.number()?), table: TableId::new(reader.small()?) })
}

const INSERT: u8 = 1;
const CHANGE: u8 = 2;
const ALLOCATE: u8 = 3;
const DELETE: u8 = 4;

impl<'a> Undo<'a> {
    /// Appends this to a payload.
    #[inline]
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Insert { tree, key } => {
                out.push(INSERT);
                put_tree(out, tree);
                put_bytes(out, key);
            }
            Self::Change { tree, key, at, remove, add, flags } => {
                out.push(CHANGE);
                put_tree(out, tree);
                put_bytes(out, key);
                put_number(out, at.into());
                put_number(out, remove.into());
                put_bytes(out, add);
                put_number(out, flags.bits().into());
            }
            Self::Allocate { page } => {
                out.push(ALLOCATE);
                put_number(out, page.get());
            }
            Self::Delete { tree, keys } => {
                out.push(DELETE);
                put_tree(out, tree);
                put_bytes(out, keys.prefix);
                put_bytes(out, keys.rest);
            }
        }
    }

    /// Reads one from the front of a payload.
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match reader.byte()? {
            INSERT => Self::Insert { tree: read_tree(reader)?, key: reader.bytes()? },
            CHANGE => {
                let (tree, key) = (read_tree(reader)?, reader.bytes()?);
                let (at, remove, add) = (reader.small()?, reader.small()?, reader.bytes()?);
                Self::Change { tree, key, at, remove, add, flags: SlotFlags::from_bits(reader.small()?) }
            }
            ALLOCATE => Self::Allocate { page: PageId::new(reader.number()?) },
            DELETE => Self::Delete { tree: read_tree(reader)?, keys: KeyList::decode(reader)? },
            _ => return Err(Malformed),
        })
    }
}

/// A deferred free: pages that a transaction no longer needs and that are freed after it has
/// committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DeferredFree {
    /// An overflow chain: its first page and its number.
    OverflowChain { head: PageId, chain: u64 },
    /// A whole tree, overflow values included.
    Tree(Tree),
}

impl DeferredFree {
    /// Length of the longest encoding, in bytes.
    pub(crate) const MAX_BYTES: usize = 24;

    /// Appends this to a payload.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::OverflowChain { head, chain } => {
                out.push(1);
                put_number(out, head.get());
                put_number(out, chain);
            }
            Self::Tree(tree) => {
                out.push(2);
                put_tree(out, tree);
            }
        }
    }

    /// Reads a payload.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        Ok(match reader.byte()? {
            1 => Self::OverflowChain { head: PageId::new(reader.number()?), chain: reader.number()? },
            2 => Self::Tree(read_tree(&mut reader)?),
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undo_round_trips() {
        let tree = Tree { root: PageId::new(77), table: TableId::new(16) };
        let mut buffer = Vec::new();
        let keys = [(&b"key1"[..], SlotFlags::NONE), (b"key22", SlotFlags::OVERFLOW), (b"key3", SlotFlags::NONE)];
        let list = KeyList::of(&keys, &mut buffer);
        assert_eq!(list.prefix, b"key");
        assert_eq!(list.to_vec(), keys.map(|(key, flags)| (key.to_vec(), flags)));
        assert_eq!(list.ends(), Some((b"key1".to_vec(), b"key3".to_vec())));
        assert_eq!(KeyList { prefix: b"", rest: b"" }.ends(), None);
        for undo in [
            Undo::Delete { tree, keys: list },
            Undo::Delete { tree, keys: KeyList { prefix: b"", rest: b"" } },
            Undo::Insert { tree, key: b"key" },
            Undo::Change { tree, key: b"key", at: 8, remove: 4, add: b"old", flags: SlotFlags::OVERFLOW },
            Undo::Allocate { page: PageId::new(1 << 33) },
        ] {
            let mut out = Vec::new();
            undo.encode(&mut out);
            assert_eq!(Undo::decode(&mut Reader::new(&out)), Ok(undo));
            for cut in 0..out.len() {
                assert_eq!(Undo::decode(&mut Reader::new(&out[..cut])), Err(Malformed));
            }
        }
    }

    #[test]
    fn deferred_frees_round_trip() {
        for free in [
            DeferredFree::OverflowChain { head: PageId::new(5), chain: u64::MAX },
            DeferredFree::Tree(Tree { root: PageId::new(6), table: TableId::new(7) }),
        ] {
            let mut out = Vec::new();
            free.encode(&mut out);
            assert_eq!(DeferredFree::decode(&out), Ok(free));
            assert_eq!(DeferredFree::decode(&out[..out.len() - 1]), Err(Malformed));
        }
    }
}
