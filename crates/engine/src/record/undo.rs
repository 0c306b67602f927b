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
}

fn put_tree(out: &mut Vec<u8>, tree: Tree) {
    put_number(out, tree.root.get());
    put_number(out, tree.table.get().into());
}

fn read_tree(reader: &mut Reader<'_>) -> Result<Tree, Malformed> {
    Ok(Tree { root: PageId::new(reader.number()?), table: TableId::new(reader.small()?) })
}

const INSERT: u8 = 1;
const CHANGE: u8 = 2;
const ALLOCATE: u8 = 3;

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
        for undo in [
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
