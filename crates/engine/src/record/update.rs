//! How a record states an update and its inverse.
//!
//! The inverse comes first, and the operation on the page behind it. What both have in common is
//! stated once in two short forms, for the most frequent updates:
//!
//! | byte | name | then |
//! |---|---|---|
//! | 5 | insert | tree, slot, flags, bytes key, bytes value |
//! | 6 | change, without flags before and after | tree, slot, offset in the value, bytes key, bytes to put there when it is undone, bytes to put there |

use super::codec::{Malformed, Reader, put_bytes, put_number};
use super::op::PageOp;
use super::undo::{Undo, put_tree, read_tree};
use crate::page::SlotFlags;

const INSERT: u8 = 5;
const CHANGE: u8 = 6;

/// Appends an update of one page to a payload, in the shortest form.
#[inline]
pub(crate) fn put_update(out: &mut Vec<u8>, undo: &Undo<'_>, op: &PageOp<'_>) {
    match (*undo, *op) {
        (Undo::Insert { tree, key }, PageOp::Insert { slot, key: same, value, flags }) if key == same => {
            out.push(INSERT);
            put_tree(out, tree);
            put_number(out, slot.into());
            put_number(out, flags.bits().into());
            put_bytes(out, key);
            put_bytes(out, value);
        }
        (
            Undo::Change { tree, key, at, remove, add: old, flags: SlotFlags::NONE },
            PageOp::Change { slot, at: same, remove: before, add: new, flags: SlotFlags::NONE },
        ) if at == same && usize::from(remove) == new.len() && usize::from(before) == old.len() => {
            out.push(CHANGE);
            put_tree(out, tree);
            put_number(out, slot.into());
            put_number(out, at.into());
            put_bytes(out, key);
            put_bytes(out, old);
            put_bytes(out, new);
        }
        _ => {
            undo.encode(out);
            op.encode(out);
        }
    }
}

/// Reads an update of one page.
pub(crate) fn read_update<'a>(reader: &mut Reader<'a>) -> Result<(Undo<'a>, PageOp<'a>), Malformed> {
    Ok(match reader.first()? {
        INSERT => {
            reader.byte()?;
            let (tree, slot) = (read_tree(reader)?, reader.small()?);
            let (flags, key) = (SlotFlags::from_bits(reader.small()?), reader.bytes()?);
            (Undo::Insert { tree, key }, PageOp::Insert { slot, key, value: reader.bytes()?, flags })
        }
        CHANGE => {
            reader.byte()?;
            let (tree, slot, at) = (read_tree(reader)?, reader.small()?, reader.small()?);
            let (key, old, new) = (reader.bytes()?, reader.bytes()?, reader.bytes()?);
            let len = |part: &[u8]| u16::try_from(part.len()).map_err(|_| Malformed);
            let (before, after, flags) = (len(old)?, len(new)?, SlotFlags::NONE);
            (
                Undo::Change { tree, key, at, remove: after, add: old, flags },
                PageOp::Change { slot, at, remove: before, add: new, flags },
            )
        }
        _ => (Undo::decode(reader)?, PageOp::decode(reader)?),
    })
}

/// Reads the inverse at the beginning of an update's payload.
pub(crate) fn inverse(payload: &[u8]) -> Result<Undo<'_>, Malformed> {
    let mut reader = Reader::new(payload);
    match reader.first()? {
        INSERT | CHANGE => Ok(read_update(&mut reader)?.0),
        _ => Undo::decode(&mut reader),
    }
}

#[cfg(test)]
mod tests {
    use duramen_types::{PageId, TableId};

    use super::super::tree::Tree;
    use super::*;

    fn round_trip(undo: Undo<'_>, op: PageOp<'_>) -> usize {
        let mut out = Vec::new();
        put_update(&mut out, &undo, &op);
        assert_eq!(read_update(&mut Reader::new(&out)), Ok((undo, op)));
        assert_eq!(inverse(&out), Ok(undo));
        for cut in 0..out.len() {
            assert_eq!(read_update(&mut Reader::new(&out[..cut])), Err(Malformed));
        }
        let mut apart = Vec::new();
        undo.encode(&mut apart);
        op.encode(&mut apart);
        assert_eq!(read_update(&mut Reader::new(&apart)), Ok((undo, op)), "as earlier versions wrote it");
        assert_eq!(inverse(&apart), Ok(undo));
        apart.len() - out.len()
    }

    #[test]
    fn updates_round_trip_in_the_shortest_form() {
        let tree = Tree { root: PageId::new(77), table: TableId::new(16) };
        let (key, old, new) = (&b"some key"[..], &b"old"[..], &b"newer"[..]);
        let (none, ghost) = (SlotFlags::NONE, SlotFlags::GHOST);
        let undo_change = |flags| Undo::Change { tree, key, at: 300, remove: 5, add: old, flags };
        let change = |at, flags| PageOp::Change { slot: 7, at, remove: 3, add: new, flags };
        assert_eq!(round_trip(undo_change(none), change(300, none)), 7);
        assert_eq!(round_trip(undo_change(ghost), change(300, none)), 0);
        assert_eq!(round_trip(undo_change(none), change(300, ghost)), 0);
        assert_eq!(round_trip(undo_change(none), change(301, none)), 0);
        let insert = |key| PageOp::Insert { slot: 200, key, value: new, flags: SlotFlags::OVERFLOW };
        assert_eq!(round_trip(Undo::Insert { tree, key }, insert(key)), 10);
        assert_eq!(round_trip(Undo::Insert { tree, key }, insert(b"other")), 0);
    }
}
