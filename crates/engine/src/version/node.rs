//! Nodes: how snapshots find the values of records from before the changes of one transaction.

use duramen_sync::Arc;
use duramen_types::{Gsn, TableId};

use super::values::{Entry, Place};
use super::writer::{Outcome, Writer};

/// Refers to the value of a record before the first change of one transaction.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) writer: Arc<Writer>,
    /// The place of the entry.
    word: u32,
    segment: u16,
    /// A part of the hash of table and key: few other nodes of the bucket have the same.
    pub(super) tag: u16,
}

impl Node {
    pub(super) fn new(writer: Arc<Writer>, tag: u16, Place { segment, word }: Place) -> Self {
        Self { writer, word, segment, tag }
    }

    pub(super) fn entry(&self) -> Entry<'_> {
        self.writer.values.get(Place { segment: self.segment, word: self.word })
    }

    /// Returns whether the node is of this record, whose tag is `tag`. The entry of another record
    /// is seldom touched.
    #[inline]
    pub(super) fn is_of(&self, tag: u16, table: TableId, key: &[u8]) -> bool {
        self.tag == tag && self.entry().is_of(table, key)
    }
}

/// Unlinks the nodes of a key that none of the snapshots `open` needs, nor a later one, whose
/// position will be `horizon` at least. Returns whether there were any.
pub(super) fn prune(nodes: &mut Vec<Node>, tag: u16, table: TableId, key: &[u8], open: &[Gsn], horizon: Gsn) -> bool {
    let mut commits: Vec<(Gsn, u64)> = nodes
        .iter()
        .filter(|node| node.is_of(tag, table, key))
        .filter_map(|node| match node.writer.outcome() {
            Outcome::Committed(at, turn) => Some((at, turn)),
            _ => None,
        })
        .collect();
    commits.sort_unstable();
    let before = nodes.len();
    nodes.retain(|node| {
        if !node.is_of(tag, table, key) {
            return true;
        }
        let Outcome::Committed(until, turn) = node.writer.outcome() else { return true };
        // The position of the next older commit to the key.
        let older = commits.partition_point(|commit| *commit < (until, turn));
        let from = older.checked_sub(1).map_or(Gsn::ZERO, |older| commits[older].0);
        let is_needed = !duramen_types::planted!(PrunedTooMuch) && open.iter().any(|at| (from..until).contains(at));
        is_needed || until > horizon
    });
    nodes.len() < before
}
