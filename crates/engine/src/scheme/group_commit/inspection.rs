//! What the batch log of a closed heap holds, for inspection.

use super::format::{Batch, LineKind, StackState};
use crate::heap::{Heap, Word};

/// A record of a batch that can be read.
#[derive(Clone, Debug)]
pub(crate) struct FoundBatch {
    pub(crate) number: u64,
    /// Whether the record holds the lines as they were before the batch.
    pub(crate) has_old_lines: bool,
    /// Whether a word of the header says that a batch with old lines is committed; always for one
    /// with new lines.
    pub(crate) is_committed: bool,
    pub(crate) bytes: u64,
    pub(crate) pages: u64,
    pub(crate) lines: u64,
    pub(crate) next_txn: u64,
    pub(crate) groups: u64,
    /// The carried transactions: number, whether it has committed, bytes of undo information.
    pub(crate) carried: Vec<(u64, bool, u64)>,
}

/// Reads the batches of a heap, the latest first, whatever its bytes are.
pub(crate) fn batches_of(heap: &Heap) -> Vec<FoundBatch> {
    let mut found: Vec<FoundBatch> = [0, 1]
        .iter()
        .filter_map(|parity| Batch::read(heap, *parity))
        .map(|batch| {
            let has_old_lines = batch.kind == LineKind::Old;
            FoundBatch {
                number: batch.summary.batch,
                has_old_lines,
                is_committed: !has_old_lines || heap.get(Word::CommittedBatch) >= batch.summary.batch,
                bytes: batch.bytes().len() as u64,
                pages: batch.pages().count() as u64,
                lines: batch.pages().map(|(_, lines, _)| u64::from(lines.count())).sum(),
                next_txn: batch.summary.next_txn.get(),
                groups: batch.summary.groups,
                carried: batch
                    .carried
                    .iter()
                    .map(|txn| (txn.txn.get(), txn.state == StackState::Committed, txn.bytes))
                    .collect(),
            }
        })
        .collect();
    found.sort_by_key(|batch| std::cmp::Reverse(batch.number));
    found
}
