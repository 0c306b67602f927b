//! Nodes: the values of records from before one transaction's changes, as snapshots find them.

use duramen_sync::Arc;
use duramen_types::{Gsn, TableId};

use super::writer::{Outcome, Writer};
use crate::lock::LockId;
use crate::page::SlotFlags;

/// A record as it was before a change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Before<'a> {
    /// There was none.
    Absent,
    /// The value in the leaf, which may be a reference to overflow pages.
    Value(&'a [u8], SlotFlags),
}

/// The value of a record before the first change of one transaction.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) writer: Arc<Writer>,
    table: TableId,
    /// A part of the hash of table and key: few other nodes of the bucket have the same.
    tag: u32,
    key_len: u16,
    /// The flags of the value; none if there was no record.
    pub(super) flags: Option<SlotFlags>,
    /// The key, then the value.
    bytes: Box<[u8]>,
}

impl Node {
    pub(super) fn new(writer: Arc<Writer>, table: TableId, key: &[u8], before: Before<'_>) -> Self {
        let tag = tag_of(table, key);
        let (value, flags) = match before {
            Before::Absent => (&[][..], None),
            Before::Value(value, flags) => (value, Some(flags)),
        };
        let mut bytes = Vec::with_capacity(key.len() + value.len());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        let key_len = u16::try_from(key.len()).expect("the limit of a key's length was checked");
        Self { writer, table, tag, key_len, flags, bytes: bytes.into_boxed_slice() }
    }

    /// Returns whether the node is of this record, whose tag is `tag`. The bytes of another node
    /// are seldom touched.
    #[inline]
    pub(super) fn is_of(&self, tag: u32, table: TableId, key: &[u8]) -> bool {
        self.tag == tag && self.table == table && self.bytes[..usize::from(self.key_len)] == *key
    }

    pub(super) fn value(&self) -> &[u8] {
        &self.bytes[usize::from(self.key_len)..]
    }

    /// Returns the bytes of memory that the node takes.
    pub(super) fn size(&self) -> u64 {
        (size_of::<Self>() + self.bytes.len()) as u64
    }
}

/// Returns the tag of a record's nodes.
#[inline]
pub(super) fn tag_of(table: TableId, key: &[u8]) -> u32 {
    LockId::record(table, key).tag()
}

/// Unlinks the nodes of a key that none of the snapshots `open` needs, nor a later one, whose
/// position will be `horizon` at least. Returns the bytes of memory that they took.
pub(super) fn prune(nodes: &mut Vec<Node>, table: TableId, key: &[u8], open: &[Gsn], horizon: Gsn) -> u64 {
    let tag = tag_of(table, key);
    let mut commits: Vec<(Gsn, u64)> = nodes
        .iter()
        .filter(|node| node.is_of(tag, table, key))
        .filter_map(|node| match node.writer.outcome() {
            Outcome::Committed(at, turn) => Some((at, turn)),
            _ => None,
        })
        .collect();
    commits.sort_unstable();
    let mut freed = 0;
    nodes.retain(|node| {
        let Outcome::Committed(until, turn) = node.writer.outcome() else { return true };
        if !node.is_of(tag, table, key) {
            return true;
        }
        // The position of the next older commit to the key.
        let older = commits.partition_point(|commit| *commit < (until, turn));
        let from = older.checked_sub(1).map_or(Gsn::ZERO, |older| commits[older].0);
        let is_needed = !duramen_types::planted!(PrunedTooMuch) && open.iter().any(|at| (from..until).contains(at));
        let stays = is_needed || until > horizon;
        if !stays {
            freed += node.size();
        }
        stays
    });
    freed
}
